"""What every aggregator keeps to: the checks behind `koncord.check_aggregator`.

A check is a function of an aggregator whose name is the sentence it checks. The federations it runs are small: five
sites, each with two of four separated clusters.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

import numpy as np
from sklearn.base import clone

from koncord._random import seeded
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, Replies, check_is_aggregator, sends_rows
from koncord.checks.failing import check_clone, run_checks
from koncord.estimate.known import KnownCounts
from koncord.model.globalmodel import GlobalModel
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord.protocol.schema import AT_MOST, LARGEST, Array, rule_of
from koncord.protocol.wire import pack, unpack, wire_name
from koncord.session.checkpoint import state_kinds
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.rounds import RoundRequest
from koncord.session.site import Site
from koncord.session.transport import Carried
from koncord.types import FloatArray

CENTERS = 10.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
HELD = {"east": (0, 1), "north": (1, 2), "south": (2, 3), "west": (0, 3), "wide": (1, 3)}
N_EACH = 50
FEW = 5  # rows, below the floor
# A cluster is found if a center lies within this many standard deviations of it.
NEAR = 2.0
MOST_LOST = 6  # exchanges that a site is taken out of, one run each

Tables = Mapping[str, FloatArray]
AggregatorCheck = Callable[[Aggregator], None]


def check_aggregator(aggregator: Aggregator) -> None:
    """Run every check that koncord holds its own aggregators to.

    Parameters
    ----------
    aggregator : Aggregator
        An instance. Where the number of clusters or ``allow_disclosure`` is left open, the checks fill it in.

    Raises
    ------
    AssertionError
        The sentence names the check that failed.

    Examples
    --------
    >>> import koncord
    >>> koncord.check_aggregator(koncord.KFed())
    """
    check_is_aggregator(aggregator, owner="check_aggregator")
    run_checks(AGGREGATOR_CHECKS, aggregator)


# --- declarations ---


def it_is_made_without_arguments_and_cloned_with_the_same_ones(aggregator: Aggregator) -> None:
    """A site makes the class itself to learn how many rounds it has; a run clones it."""
    made = type(aggregator)()
    for name, parameter in signature(type(aggregator)).parameters.items():
        assert getattr(made, name) is parameter.default, f"{name!r} is not stored as it is given"
    check_clone(aggregator)


def its_name_can_be_written_on_a_command_line(aggregator: Aggregator) -> None:
    name = aggregator.name
    assert isinstance(name, str), "'name' must be a string"
    assert name.replace("-", "").isalnum(), f"'name' must be letters, digits and hyphens; it is {name!r}"
    assert name == name.lower(), f"'name' must be in lower case; it is {name!r}"


def its_parameters_can_travel(aggregator: Aggregator) -> None:
    """A coordinator tells sites the parameters as JSON."""
    json.dumps(aggregator.get_params(deep=False), allow_nan=False)


def its_messages_are_frozen_dataclasses_with_names_of_their_own(aggregator: Aggregator) -> None:
    kinds = messages_of(aggregator)
    for kind in kinds:
        assert is_dataclass(kind), f"{kind.__name__} is no dataclass"
        assert kind.__dataclass_params__.frozen, f"{kind.__name__} is not frozen"  # type: ignore[attr-defined]
    named = [wire_name(kind) for kind in kinds]
    assert len(set(named)) == len(named), f"two messages share a name: {sorted(named)}"


def every_field_of_its_messages_has_a_rule(aggregator: Aggregator) -> None:
    """What is not bounded, the other side could not check before it computes with it."""
    for kind in messages_of(aggregator):
        hints = get_type_hints(kind)
        for field in fields(kind):
            rule = rule_of(kind, field.name)
            where = f"{kind.__name__}.{field.name}"
            assert rule is not None or hints[field.name] is bool, f"{where} has no rule (koncord.protocol.schema)"
            if isinstance(rule, Array):
                named = {size.removeprefix(AT_MOST) for size in rule.shape} | ({rule.total} - {None})
                assert named <= LARGEST.keys(), f"{where} has a size that is none of {', '.join(LARGEST)}"


# --- runs ---


def it_finds_finite_centers_and_counts_every_row(aggregator: Aggregator) -> None:
    model = run_in_process(aggregator, tables()).model
    assert model.n_clusters >= 1
    assert model.centers.shape == (model.n_clusters, CENTERS.shape[1])
    assert np.isfinite(model.centers).all()
    assert model.holdings is not None
    assert model.holdings.sum() == 2 * N_EACH * len(HELD)


def it_finds_separated_clusters(aggregator: Aggregator) -> None:
    """Every cluster has a center near it, and one is enough unless the method starts from too many."""
    model = run_in_process(aggregator, tables(seed=1), seed=1).model
    distances = np.linalg.norm(CENTERS[:, None] - model.centers, axis=2)
    assert (distances.min(axis=1) < NEAR).all(), "a cluster has no center near it"


def the_same_seed_gives_the_same_bits_in_any_order_of_the_sites(aggregator: Aggregator) -> None:
    X = tables(seed=2)
    turned = {site: X[site] for site in reversed(X)}
    one, two = (run_in_process(aggregator, each, seed=4).model for each in (X, turned))
    np.testing.assert_array_equal(one.centers, two.centers)


def one_cluster_and_one_site_alone_are_possible(aggregator: Aggregator) -> None:
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=(2 * N_EACH, 2)) for name in HELD}
    single = for_clusters(clone(aggregator), 1, always=True)
    for each in (X, {"east": X["east"]}):
        model = run_in_process(single, each, local_k=1).model
        assert np.isfinite(model.centers).all()


def the_tables_stay_as_they_are(aggregator: Aggregator) -> None:
    X = tables()
    before = {site: rows.copy() for site, rows in X.items()}
    for rows in X.values():
        rows.setflags(write=False)
    run_in_process(aggregator, X)
    for site, rows in X.items():
        np.testing.assert_array_equal(rows, before[site])


def it_goes_on_without_a_site_that_is_missing_from_an_exchange(aggregator: Aggregator) -> None:
    n_exchanges = run_in_process(aggregator, tables()).n_exchanges
    for exchange in range(1, min(n_exchanges, MOST_LOST) + 1):
        model = run_in_process(aggregator, tables(), lost=[("north", exchange)]).model
        assert np.isfinite(model.centers).all()


def a_site_with_less_than_its_floor_says_so_or_sends_nothing_of_its_rows(aggregator: Aggregator) -> None:
    """What such a site sends is the same whatever its rows are."""
    if sends_rows(aggregator):
        return
    sent = []
    for seed in (0, 1):
        rows = np.random.default_rng(seed).normal(size=(FEW, CENTERS.shape[1]))
        ran = run_in_process(aggregator, {**tables(), "few": rows}, min_report=DEFAULT_MIN_REPORT)
        sent.append([packed for site, packed in ran.packed if site == "few"])
    assert sent[0] == sent[1], f"a site of {FEW} rows with a floor of {DEFAULT_MIN_REPORT} tells something of them"


# --- messages ---


def it_sends_what_it_declares_and_nothing_else(aggregator: Aggregator) -> None:
    declared = {(sent.message, sent.field) for sent in aggregator.sends}
    left = {(kind, field) for kind, field in sizes(run_in_process(aggregator, tables()).of(aggregator))}
    assert left <= declared, f"not declared: {sorted(left - declared)}"


def only_what_says_so_grows_with_the_rows(aggregator: Aggregator) -> None:
    """Of the rest, what grows has no more entries than stand for the floor of rows each."""
    X = tables()
    twice = {site: np.concatenate([rows, rows + 1e-3]) for site, rows in X.items()}
    floor = checked_floor(aggregator)
    few, many = (sizes(run_in_process(aggregator, each, min_report=floor).of(aggregator)) for each in (X, twice))
    may_grow = {(sent.message, sent.field) for sent in aggregator.sends if sent.grows_with_rows}
    most = 4 * N_EACH // floor if floor > 1 else 0
    for key in few.keys() & many.keys() - may_grow:
        grown, entries = many[key]
        assert grown <= few[key][0] or entries <= most, f"{'.'.join(key)} grows with the rows of a site"


def no_message_holds_a_row(aggregator: Aggregator) -> None:
    """Unless it is declared to."""
    may_hold = {(sent.message, sent.field) for sent in aggregator.sends if sent.grows_with_rows}
    X = tables()
    if may_hold:
        return
    for site, message in run_in_process(aggregator, X).messages:
        for field in fields(message):
            value = getattr(message, field.name)
            if isinstance(value, np.ndarray) and value.dtype == float and value.shape[-1:] == CENTERS.shape[1:]:
                is_row = (value.reshape(-1, 1, CENTERS.shape[1]) == X[site]).all(axis=2).any()
                assert not is_row, f"{type(message).__name__}.{field.name} of {site} holds a row"


def every_reply_survives_the_wire(aggregator: Aggregator) -> None:
    for _, message in run_in_process(aggregator, tables()).messages:
        again, _ = unpack(pack(message), [type(message)])
        for field in fields(message):
            np.testing.assert_array_equal(getattr(again, field.name), getattr(message, field.name))


def what_a_client_remembers_can_be_kept(aggregator: Aggregator) -> None:
    """A site that is started anew goes on from what it wrote to its disk."""
    kinds = state_kinds(type(aggregator))
    for state in run_in_process(aggregator, tables()).states:
        if state is not None:
            assert type(state) in kinds, f"no client step says that it returns a {type(state).__name__}"
            again, _ = unpack(pack(state), kinds)
            assert pack(again) == pack(state)


def the_model_can_be_kept(aggregator: Aggregator) -> None:
    X = tables()
    model = run_in_process(aggregator, X).model
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = GlobalModel.load(Path(folder) / "model")
    np.testing.assert_array_equal(loaded.predict(X["north"]), model.predict(X["north"]))
    assert loaded == model


AGGREGATOR_CHECKS: tuple[AggregatorCheck, ...] = (
    it_is_made_without_arguments_and_cloned_with_the_same_ones,
    its_name_can_be_written_on_a_command_line,
    its_parameters_can_travel,
    its_messages_are_frozen_dataclasses_with_names_of_their_own,
    every_field_of_its_messages_has_a_rule,
    it_finds_finite_centers_and_counts_every_row,
    it_finds_separated_clusters,
    the_same_seed_gives_the_same_bits_in_any_order_of_the_sites,
    one_cluster_and_one_site_alone_are_possible,
    the_tables_stay_as_they_are,
    it_goes_on_without_a_site_that_is_missing_from_an_exchange,
    a_site_with_less_than_its_floor_says_so_or_sends_nothing_of_its_rows,
    it_sends_what_it_declares_and_nothing_else,
    only_what_says_so_grows_with_the_rows,
    no_message_holds_a_row,
    every_reply_survives_the_wire,
    what_a_client_remembers_can_be_kept,
    the_model_can_be_kept,
)


# --- a small federation ---


def for_clusters(aggregator: Aggregator, k: int, *, always: bool = False) -> Aggregator:
    """`aggregator` for k clusters: what it leaves open of their number, and of the leave to send rows, is filled in.

    With `always`, their number is set where it is given, too.
    """
    n_given = 2 * k if aggregator.count_is_bound and not always else k
    wanted: dict[str, Any] = {aggregator.count_parameter: n_given, "allow_disclosure": True}
    params = aggregator.get_params(deep=False)
    is_open = {name: always or params[name] in (None, False) for name in wanted if name in params}
    aggregator.set_params(**{name: wanted[name] for name, fill in is_open.items() if fill})
    return aggregator


def tables(seed: int = 0) -> dict[str, FloatArray]:
    """Five sites with two of four separated clusters each."""
    rng = np.random.default_rng(seed)
    return {
        site: np.concatenate([rng.normal(CENTERS[k], 1, (N_EACH, CENTERS.shape[1])) for k in pair])
        for site, pair in HELD.items()
    }


def checked_floor(aggregator: Aggregator) -> int:
    return 1 if sends_rows(aggregator) else DEFAULT_MIN_REPORT


class Recorder(InProcess):
    """A link that keeps every reply, and loses those of chosen sites in chosen exchanges."""

    def __init__(self, sites: Sequence[Site], lost: Collection[tuple[str, int]]) -> None:
        super().__init__(sites)
        self.lost = lost
        self.messages: list[tuple[str, Any]] = []
        self.packed: list[tuple[str, bytes]] = []

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        away = {site for site in down if (site, exchange) in self.lost}
        carried = super().carry(exchange, {site: down[site] for site in down if site not in away})
        self.packed += [(site, each) for site, replies in carried.replies.items() for each in replies]
        return Carried(replies=carried.replies, missing=dict.fromkeys(away, "lost"), seconds=carried.seconds)

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        received = super().exchange_all(asked)
        self.messages += [item for replies in received for item in replies.items()]
        return received


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ran:
    """What a small federation left."""

    model: GlobalModel
    messages: Sequence[tuple[str, Any]]  # with the site that sent each
    packed: Sequence[tuple[str, bytes]]  # the same, as it left
    states: Sequence[Any]  # of the sites, at the end
    n_exchanges: int

    def of(self, aggregator: Aggregator) -> list[Any]:
        """The messages of the aggregator itself."""
        kinds = tuple(aggregator.replies.values())
        return [message for _, message in self.messages if isinstance(message, kinds)]


def run_in_process(
    aggregator: Aggregator,
    X: Tables,
    *,
    seed: int = 0,
    local_k: int = 2,
    min_report: int = 1,
    lost: Collection[tuple[str, int]] = (),
) -> Ran:
    """A federation of these tables by a clone of the aggregator; a reply that its own rules refuse fails it."""
    own = for_clusters(clone(aggregator), len(CENTERS))
    columns = tuple(f"x{at}" for at in range(next(iter(X.values())).shape[1]))
    estimator = seeded(KnownCounts(local_k), seed)
    policy = SitePolicy(min_report=min_report)
    sites = [Site(n, rows, columns, estimator=estimator, aggregator=own, policy=policy) for n, rows in X.items()]
    link = Recorder(sites, lost)
    with one_thread():
        model = run_federation(link, own, seed=seed, standardize=False, settings={}, min_report=min_report)
    for site, reason in link.set_aside.items():
        raise AssertionError(f"what site {site!r} replies is refused: {reason}")
    return Ran(
        model=model,
        messages=link.messages,
        packed=link.packed,
        states=[site.state for site in link.sites.values()],
        n_exchanges=link.n_exchanges,
    )


def messages_of(aggregator: Aggregator) -> list[type[Any]]:
    """Every kind of message, both ways."""
    return list(dict.fromkeys((*aggregator.replies, *aggregator.replies.values())))


def sizes(messages: Sequence[Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """Most numbers, and most entries along the first axis, of every field of every message."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for message in messages:
        for field in fields(message):
            value = np.asarray(getattr(message, field.name))
            key = type(message).__name__, field.name
            most, entries = found.get(key, (0, 0))
            found[key] = max(most, value.size), max(entries, len(value) if value.ndim else 1)
    return found
