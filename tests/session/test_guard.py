"""Every message is held against what it may be, both ways; a site that sends another is set aside, the run goes on."""

from dataclasses import fields, replace
from itertools import combinations
from typing import Annotated, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from every_aggregator import every_aggregator
from koncord import AFCL, FFCM, SPAHM, Consensus, FederatedClustering, FedGEM, FedKMeans, KFed, KnownCounts
from koncord.aggregate import afcl, consensus, fedgem, fedkmeans, ffcm, kfed, registry, spahm
from koncord.aggregate.registry import aggregator_named
from koncord.errors import BadReply, DisclosureRefused, KoncordError, MessageError, TooFewSites
from koncord.prepare.columns import without_small
from koncord.protocol import schema as limits
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.report.federation import notes_of
from koncord.session.federation import run_federation
from koncord.session.guard import MOST_REFUSALS, MOST_REPEATS, ReplyGuard
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

K, D = 3, 2
CENTERS = 9.0 * np.array([[0, 0], [1, 0], [0, 1]])
AGGREGATORS = every_aggregator(K, micro_rows=1)
SENDS_NO_ROWS = [name for name in AGGREGATORS if name != "afcl"]


def tables(n_each=30, seed=0):
    """Four sites with two of three separated clusters each."""
    rng = np.random.default_rng(seed)
    held = [(0, 1), (1, 2), (0, 2), (0, 1)]
    return {
        f"s{at}": np.concatenate([rng.normal(CENTERS[k], 1, (n_each, D)) for k in pair]) for at, pair in enumerate(held)
    }


def sites_of(X, aggregator, kinds=None, min_report=1, **options):
    columns = tuple(f"x{at}" for at in range(D))
    kinds = kinds or {}
    return [
        kinds.get(name, Site)(
            name,
            rows,
            columns,
            estimator=KnownCounts(2),
            aggregator=aggregator,
            policy=SitePolicy(min_report=min_report),
            **options,
        )
        for name, rows in X.items()
    ]


def federate(sites, aggregator, link=InProcess, **options):
    return run_federation(link(sites, **options), aggregator, seed=0, standardize=False, settings={})


# --- every message has its rules ---

KINDS = [aggregator_named(name) for name in registry.AGGREGATORS.own]


def protocol():
    """Every message of every aggregator, both ways, and those before and after any."""
    replies = setup.REPLIES | {asked: reply for kind in KINDS for asked, reply in kind.replies.items()}
    return list(dict.fromkeys((*replies, *replies.values())))


@pytest.mark.parametrize("kind", protocol(), ids=lambda kind: kind.__qualname__)
def test_every_field_of_every_message_has_a_rule(kind):
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        if hint is bool:
            continue
        assert get_origin(hint) is Annotated, f"{kind.__name__}.{field.name} has no rule"
        (rule,) = get_args(hint)[1:]
        assert callable(rule.check)
        if isinstance(rule, limits.Array):
            named = {name.removeprefix(limits.AT_MOST) for name in rule.shape} | ({rule.total} - {None})
            assert named <= limits.LARGEST.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_of_a_server_has_one_type_of_reply(kind):
    steps = {asked: get_args(get_type_hints(step)["return"])[1] for asked, step in kind.client_steps.items()}
    private = {asked: get_type_hints(step)["return"] for asked, step in kind.private_steps.items()}
    assert kind.replies == {**private, **steps}


def sizes_of(kind):
    """Sizes under which a message of ones and zeros keeps to its rules."""
    return dict.fromkeys(limits.LARGEST, 2) | {"rows": 10}


def good(kind):
    """A message that keeps to its rules, its sizes all 2."""
    values = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hint is bool:
            values[name] = False
            continue
        plain, rule = get_args(hint)
        if isinstance(rule, limits.Array):
            dtype = np.int64 if limits_int() in (plain, *get_args(plain)) else np.float64
            shape = tuple(10 if "rows" in size else 2 for size in rule.shape)
            values[name] = np.full(shape, 1 if rule.least > 0 else 0, dtype=dtype)
        elif isinstance(rule, limits.Number):
            values[name] = type_of(plain)(min(2, rule.most))
        elif isinstance(rule, limits.Word):
            values[name] = rule.words[0]
        else:
            values[name] = ("a", "b")
    if kind in (setup.Moments, setup.Sketch):
        values["count"] = 10
    if kind is setup.Prepare:
        values["covariances"] = np.eye(2)
    if kind in (setup.Sketch, setup.Prepare):
        values["levels"] = ("0:a", "1:b")
    if kind is setup.Attribute:
        values |= {"axes": np.eye(2), "covariances": np.tile(np.eye(2), (2, 1, 1)), "weights": np.full(2, 0.5)}
    return kind(**values)


def limits_int():
    return get_args(get_type_hints(fedkmeans.LocalMeans, include_extras=True)["counts"])[0]


def type_of(plain):
    return float if float in (plain, *get_args(plain)) else int


def damages(message):
    """Copies of a message with one field against its rule: (what was done, copy)."""
    for name, hint in get_type_hints(type(message), include_extras=True).items():
        if hint is bool:
            continue
        plain, rule = get_args(hint)
        value = getattr(message, name)
        if isinstance(rule, limits.Array):
            longer = np.concatenate([value, value[:1]])
            yield f"{name} longer", {name: longer}
            yield f"{name} flat", {name: value.reshape(-1) if value.ndim > 1 else value[:, None]}
            if value.dtype == float:
                if not rule.may_be_nan:
                    yield f"{name} nan", {name: np.full_like(value, np.nan)}
                if rule.most < np.inf:
                    yield f"{name} inf", {name: np.full_like(value, np.inf)}
            if rule.least >= 0:
                yield f"{name} negative", {name: value - 5}
            if rule.total is not None:
                yield f"{name} beyond the rows", {name: value + 6}
            if rule.shape[-1] == "n_features":
                yield f"{name} more columns", {name: np.concatenate([value, value], axis=-1)}
        elif isinstance(rule, limits.Number):
            yield f"{name} too small", {name: type_of(plain)(min(rule.least - 1, 2 * rule.least))}
            yield f"{name} too large", {name: type_of(plain)(2 * rule.most)}
        elif isinstance(rule, limits.Word):
            yield f"{name} unknown", {name: "elsewhere"}
        else:
            yield f"{name} twice", {name: ("a", "a")}
            yield f"{name} one more", {name: (*value, "c")}
            yield f"{name} with an escape", {name: ("a", "\x1b[2J")}


@pytest.mark.parametrize("kind", protocol(), ids=lambda kind: kind.__qualname__)
def test_a_message_passes_as_it_is_and_with_any_field_against_its_rule_does_not(kind):
    message = good(kind)
    unpack(pack(message), [kind], sizes_of(kind))
    for what, change in damages(message):
        assert is_refused(pack_raw(message, change), kind), f"{kind.__name__} with {what} was taken"


def is_refused(data, kind):
    try:
        unpack(data, [kind], sizes_of(kind))
    except MessageError:
        return True
    return False


def pack_raw(message, change):
    """The bytes of a message with fields that its own constructor would refuse."""
    other = object.__new__(type(message))
    for field in fields(message):
        object.__setattr__(other, field.name, change.get(field.name, getattr(message, field.name)))
    return pack(other)


# --- the server's side ---


class Altered(Site):
    """A site that changes what it sends, from a message on."""

    at = 0  # reply, from 0

    def answer(self, data):
        answered = super().answer(data)
        self.n_sent = getattr(self, "n_sent", -1) + 1
        return self.alter(answered) if self.n_sent >= self.at else answered


def altering(change, at_=0):
    return type("Changed", (Altered,), {"alter": lambda self, data: change(data), "at": at_})


CHANGES = {
    "garbage": lambda data: b"\x00" * len(data),
    "nothing": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "another message": lambda data: pack(setup.Prepared(local_k=1)),
    "another round": lambda data: pack(*reround(data)),
}


def reround(data):
    message, _ = unpack(data, protocol())
    return (message,)  # packed in round 0


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_bad_reply_sets_its_site_aside_and_the_run_goes_on_without_it(name, change):
    aggregator = clone(AGGREGATORS[name])
    bad = sites_of(tables(), aggregator, {"s3": altering(CHANGES[change], at_=2)})
    model = federate(bad, aggregator)
    (absence,) = model.info["missing"]
    assert (absence["site"], absence["exchange"]) == ("s3", 2)
    assert absence["reason"].startswith("set aside: ")
    assert any("s3" in note and "set aside" in note for note in notes_of(model))
    assert np.isfinite(model.centers).all()
    assert "s3" not in model.groups


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_a_site_is_set_aside_in_whatever_phase_it_begins_to_misbehave(at):
    aggregator = FedGEM(upsilon=2, n_rounds=3)
    federation = sites_of(tables(), aggregator, {"s1": altering(CHANGES["half"], at_=at)})
    model = federate(federation, aggregator)
    assert {absence["site"] for absence in model.info["missing"]} == {"s1"}
    assert model.n_clusters == K


def test_those_set_aside_count_for_nothing_so_that_the_model_is_that_of_the_others():
    aggregator, X = FedGEM(upsilon=2, n_rounds=3), tables()
    model = federate(sites_of(X, aggregator, {"s3": altering(CHANGES["garbage"])}), aggregator)
    others = federate(sites_of({name: X[name] for name in ("s0", "s1", "s2")}, aggregator), aggregator)
    np.testing.assert_array_equal(model.centers, others.centers)
    assert model.sites == others.sites


def test_too_few_sites_left_stop_the_run_with_their_names_and_reasons():
    aggregator = FedGEM(upsilon=2, n_rounds=3)
    federation = sites_of(tables(), aggregator, {"s3": altering(CHANGES["garbage"], at_=2)})
    with pytest.raises(TooFewSites, match="s3: set aside: the bytes are not a koncord message"):
        federate(federation, aggregator, min_sites=4)


LIES = {
    "more components than it found": (
        setup.Prepare,
        fedgem.Start,
        lambda m: replace(m, means=np.zeros((3, D)), radii=np.zeros(3)),
    ),
    "more columns": (setup.Prepare, fedgem.Start, lambda m: replace(m, means=np.zeros((2, D + 1)))),
    "a radius below 0": (setup.Prepare, fedgem.Start, lambda m: replace(m, radii=-m.radii - 1)),
    "no number": (setup.Prepare, fedgem.Start, lambda m: replace(m, means=m.means * np.nan)),
    "an endless radius beside another": (setup.Prepare, fedgem.Start, lambda m: replace(m, radii=m.radii + np.inf)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_reply_is_held_against_what_its_site_said_before(lie):
    _, asked, change = LIES[lie]
    said = ReplyGuard()
    said.expect(FedGEM.replies)
    said.agreed, said.said = {"n_features": D}, {"a": {"rows": 60, "local_k": 2}}
    down = asked(start="counts", radius="program", holds_out=False, means=None)
    honest = fedgem.Balls(means=np.zeros((2, D)), radii=np.ones(2))
    said.read("a", pack(honest, round_=1), down, 1)
    wrong = {field.name: getattr(changed(honest, change), field.name) for field in fields(honest)}
    with pytest.raises(BadReply, match="Site 'a' is set aside") as caught:
        said.read("a", pack_with_round(honest, wrong, 1), down, 1)
    assert caught.value.site == "a"


def changed(message, change):
    """`change` of a message, its constructor left out."""
    try:
        return change(message)
    except ValueError:
        return type("Raw", (), {"means": message.means, "radii": message.radii + np.inf})()


def pack_with_round(message, change, round_):
    other = object.__new__(type(message))
    for field in fields(message):
        object.__setattr__(other, field.name, change[field.name])
    return pack(other, round_=round_)


def test_counts_may_not_exceed_the_rows_a_site_said_it_has():
    said = ReplyGuard()
    said.said = {"a": {"rows": 10}}
    down = setup.Attribute(centers=np.zeros((2, D)))
    holds = setup.Holdings(counts=np.array([5, 5]), silhouettes=np.array([np.nan, 0.2]), scored=np.array([0, 5]))
    said.read("a", pack(holds), down, 0)
    for wrong in ({"counts": np.array([6, 5])}, {"scored": np.array([9, 9])}, {"counts": np.array([5])}):
        with pytest.raises(BadReply):
            said.read("a", pack_raw(holds, wrong), down, 0)


# --- the site's side ---


def site(aggregator=None, **options):
    aggregator = aggregator or FedGEM(upsilon=2)
    return sites_of({"s": tables()["s0"]}, aggregator, **options)[0]


def prepare(seed=0, d=D, **changes):
    values = {"seed": seed, "columns": tuple(f"x{at}" for at in range(d)), "means": np.zeros(d), "scales": np.ones(d)}
    return setup.Prepare(**{**values, **changes})


START = fedgem.Start(start="counts", radius="program", holds_out=False, means=None)


def test_a_site_takes_messages_in_their_turn_only():
    one = site()
    with pytest.raises(MessageError, match="site 's' was sent Start before Prepare"):
        one.answer(pack(START, round_=1))
    first = one.answer(pack(prepare()))
    assert one.answer(pack(prepare())) == first  # its reply may have been lost
    with pytest.raises(MessageError, match="a second Prepare that is not the first"):
        one.answer(pack(prepare(seed=1)))
    with pytest.raises(MessageError, match="Finish before Start"):
        one.answer(pack(fedgem.Finish(means=CENTERS, spread_of="after", holds_out=False), round_=1))
    with pytest.raises(MessageError, match="was sent Judge which its method does not ask for"):
        one.answer(pack(fedgem.Judge(centers=np.zeros((1, D)), sizes=np.array([1])), round_=1))
    one.answer(pack(START, round_=1))
    for round_ in (0, 1):
        with pytest.raises(MessageError, match=f"was sent Start in round {round_}, which is over"):
            one.answer(pack(START, round_=round_))
    with pytest.raises(MessageError, match="was sent Describe in round 3, not 0"):
        one.answer(pack(setup.Describe(), round_=3))
    one.answer(pack(setup.Attribute(centers=CENTERS), round_=2))
    for message in (setup.Attribute(centers=CENTERS + 1), START):
        with pytest.raises(MessageError, match="after the last message of the run"):
            one.answer(pack(message, round_=3))


@pytest.mark.parametrize(
    "message",
    [
        prepare(scales=np.zeros(D)),
        prepare(scales=np.full(D, np.nan)),
        prepare(scales=-np.ones(D)),
        prepare(scales=np.full(D, 5e-324)),
        prepare(means=np.full(D, np.inf)),
        prepare(columns=("x0", "x0")),
        prepare(columns=("x0", "y")),
        prepare(d=3),
        prepare(seed=-1),
    ],
)
def test_a_site_refuses_a_scale_or_columns_that_are_none(message):
    with pytest.raises(MessageError):
        site().answer(pack(message))


@pytest.mark.parametrize(
    "message",
    [
        setup.Attribute(centers=np.zeros((limits.LARGEST["global_k"] + 1, D))),
        setup.Attribute(centers=np.zeros((0, D))),
        setup.Attribute(centers=np.zeros((2, D + 1))),
        setup.Attribute(centers=np.full((2, D), np.nan)),
        kfed.SendCenters(n_init=1, min_count=1),
        fedkmeans.Begin(n_clusters=2, local_iters=1, min_count=1),
        afcl.SendBounds(),
        spahm.SendAtoms(min_count=1),
        setup.Prepared(local_k=1),
        fedgem.Start(start="given", radius="program", holds_out=False, means=np.zeros((1001, D))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_site_refuses_what_is_not_of_its_protocol_or_beyond_its_limits(message):
    one = site()
    one.answer(pack(prepare()))
    with pytest.raises(MessageError):
        one.answer(pack(message, round_=1))
    one.answer(pack(START, round_=1))  # and is none the worse


def test_a_site_answers_as_many_rounds_as_its_method_has_and_no_more():
    one = site(FedKMeans(2, n_rounds=3))
    one.answer(pack(prepare()))
    begin = fedkmeans.Begin(n_clusters=2, local_iters=1, min_count=1)
    refine = fedkmeans.Refine(centers=CENTERS, local_iters=1, min_count=1, drop_empty=True)
    one.answer(pack(refine, round_=1))
    one.answer(pack(refine, round_=7))
    with pytest.raises(MessageError, match="site 's' was sent Refine after 2 of them; its method has no more"):
        one.answer(pack(refine, round_=8))
    one.answer(pack(begin, round_=8))
    for message in (begin, refine):
        with pytest.raises(MessageError, match="after 3 rounds; its method has no more"):
            one.answer(pack(message, round_=9))
    one.answer(pack(setup.Attribute(centers=CENTERS), round_=9))


@pytest.mark.parametrize("message", [setup.Describe(), prepare()], ids=lambda message: type(message).__name__)
def test_what_may_be_lost_is_repeated_a_few_times_only(message):
    one = site()
    said = {one.answer(pack(message)) for _ in range(MOST_REPEATS)}
    assert len(said) == 1
    with pytest.raises(MessageError, match=f"after {MOST_REPEATS} of them"):
        one.answer(pack(message))


def test_after_a_few_refusals_a_site_takes_no_more_questions_of_the_run():
    one = site()
    for _ in range(MOST_REFUSALS):
        with pytest.raises(MessageError, match="before Prepare"):
            one.answer(pack(START, round_=1))
    with pytest.raises(MessageError, match=f"has refused {MOST_REFUSALS} questions of this run"):
        one.answer(pack(prepare()))


@pytest.mark.parametrize("name", AGGREGATORS)
def test_no_run_asks_for_more_than_its_aggregator_says(name):
    """The figures that a site holds a coordinator to are those of a real run, with a site that comes late in it."""
    aggregator, asked = clone(AGGREGATORS[name]), []

    class Late(InProcess):
        def carry(self, exchange, down):
            asked.append({client: len(messages) for client, messages in down.items()})
            here = down if exchange > 2 else {client: each for client, each in down.items() if client != "s1"}
            return super().carry(exchange, here)

    sites = sites_of(tables(), aggregator)
    federate(sites, aggregator, link=Late)
    most = aggregator.most_messages()
    assert most.keys() == aggregator.client_steps.keys()
    for one in sites:
        assert not one.guard.n_refused
        assert len(one.guard.answered) <= aggregator.most_rounds() + 1
        assert max(each.get(one.name, 0) for each in asked) <= one.guard.most_at_once
    in_turn = next(one for one in sites if one.name == "s0")
    if name in ("kfed", "spahm", "fedgem", "fedgem, upsilon open"):  # the others may end before their last round
        assert len(in_turn.guard.answered) == aggregator.most_rounds() + 1


def test_a_method_that_sends_rows_is_refused_by_a_site_with_a_floor():
    with pytest.raises(DisclosureRefused, match="afcl sends rows"):
        site(AFCL(3, allow_disclosure=True), min_report=2)


# --- no fewer rows than the floor ---


class Listening(InProcess):
    heard: list

    def exchange_all(self, asked):
        received = super().exchange_all(asked)
        type(self).heard += [item for replies in received for item in replies.items()]
        return received


def heard_from(X, aggregator, min_report):
    Listening.heard = []
    model = federate(sites_of(X, aggregator, min_report=min_report), aggregator, link=Listening)
    return model, list(Listening.heard)


def small_tables(seed=0):
    """Sites with tight groups of one, two, three and more rows, so that a floor of four has something to withhold."""
    rng = np.random.default_rng(seed)
    groups = {"a": (9, 3, 1), "b": (7, 6), "c": (8, 2, 2), "d": (3,), "e": (12, 1)}
    return {
        name: np.concatenate([rng.normal(30 * at, 1, (n, D)) for at, n in enumerate(sizes)])
        for name, sizes in groups.items()
    }


def means_of_few(X, fewer_than):
    """Mean of every set of fewer rows than that."""
    sets = [list(rows) for n in range(1, fewer_than) for rows in combinations(range(len(X)), n)]
    return np.array([X[rows].mean(axis=0) for rows in sets])


def vectors_of(message):
    """What stands for a place among the columns: rows of tables, sums divided by their weights."""
    if hasattr(message, "sums"):
        weights = message.supports if isinstance(message, ffcm.FuzzySums) else message.counts
        return message.sums[weights > 0] / weights[weights > 0][:, None]
    rules = {name: get_args(hint)[1:] for name, hint in get_type_hints(type(message), include_extras=True).items()}
    places = [
        name for name, rule in rules.items() if isinstance(rule[0], limits.Array) and rule[0].shape[-1] == "n_features"
    ]
    tables_ = [getattr(message, name).reshape(-1, D) for name in places if name not in ("scatters", "spread")]
    return np.concatenate([np.empty((0, D)), *tables_])


@pytest.mark.parametrize("estimator_k", [1, 2, 4])
@pytest.mark.parametrize("name", SENDS_NO_ROWS)
def test_nothing_a_site_sends_stands_for_fewer_rows_than_its_floor(name, estimator_k):
    m, X = 4, small_tables()
    aggregator = clone(AGGREGATORS[name])
    if "n_clusters" in aggregator.get_params():
        aggregator.set_params(n_clusters=2)
    columns = ("x0", "x1")
    Listening.heard = []
    link = Listening(
        [
            Site(
                each,
                rows,
                columns,
                estimator=KnownCounts(estimator_k),
                aggregator=aggregator,
                policy=SitePolicy(min_report=m),
            )
            for each, rows in X.items()
        ]
    )
    run_federation(link, aggregator, seed=0, standardize=False, settings={})
    few = {site_: means_of_few(rows, m) for site_, rows in X.items()}
    n_checked = 0
    for site_, message in Listening.heard:
        for vector in vectors_of(message):
            if not isinstance(message, setup.Moments) or message.count:
                gaps = np.abs(few[site_] - vector).max(axis=1)
                assert gaps.min() > 1e-9, f"{type(message).__name__} of {site_} holds the mean of fewer than {m} rows"
                n_checked += 1
        for counts in (getattr(message, field, None) for field in ("counts", "scored")):
            if counts is not None:
                assert not ((counts > 0) & (counts < m)).any()
    assert n_checked > 5
    (moments,) = [message for site_, message in Listening.heard if site_ == "d" and isinstance(message, setup.Moments)]
    assert moments.count == 0
    assert not moments.means.any()
    sent_by_d = [message for site_, message in Listening.heard if site_ == "d"]
    assert all(not len(vectors_of(message)) for message in sent_by_d if not isinstance(message, setup.Moments))


@pytest.mark.parametrize("n", [3, 4, 5])
def test_the_weight_of_one_row_in_a_mean_of_fedgem_is_at_most_one_in_the_floor(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(40, D)) * 3
    means = X[:20]
    kept = fedgem.with_enough_rows(X, means, n)
    origin = kept.mean(axis=0)
    shares = fedgem.shares_of(X - origin, kept - origin)
    assert (shares.max(axis=1) * n <= shares.sum(axis=1) + 1e-9).all()
    assert 1 <= len(kept) <= 40 // n
    np.testing.assert_array_equal(fedgem.with_enough_rows(X, means, 1), means)
    assert len(fedgem.with_enough_rows(X[: n - 1], means, n)) == 0


@pytest.mark.parametrize("name", SENDS_NO_ROWS)
def test_a_floor_that_withholds_nothing_changes_nothing(name):
    aggregator = every_aggregator(K, micro_rows=2)[name]  # micro-clusters of one row would be withheld
    X = tables(n_each=60)
    plain, _ = heard_from(X, aggregator, 1)
    floored, _ = heard_from(X, aggregator, 2)
    assert plain.n_clusters == floored.n_clusters
    if name != "spahm":  # with a floor it sends the means of the nearest rows
        np.testing.assert_allclose(plain.centers, floored.centers, rtol=1e-9, atol=1e-12)


def test_when_all_sites_are_below_their_floor_the_run_stops_with_a_sentence():
    for aggregator in (FedGEM(upsilon=1), FedKMeans(2), SPAHM(), FFCM(2), KFed(2)):
        with pytest.raises(KoncordError, match="No client sent"):
            federate(sites_of(tables(), aggregator, min_report=1000), aggregator)
    with pytest.raises(KoncordError, match="fewer rows than it reports"):
        FederatedClustering(KnownCounts(2), standardize=True, min_report=1000).fit(tables())


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([9, 0, 7], [9, 0, 7]),
        ([9, 3, 7], [9, 0, 0]),  # 3 would follow from the sum of all
        ([9, 3, 2], [9, 0, 0]),
        ([3, 0], [0, 0]),
        ([4, 4], [4, 4]),
        ([20, 3, 6, 5], [20, 0, 6, 0]),
    ],
)
def test_a_count_below_the_floor_cannot_be_had_by_subtraction_either(counts, told):
    counts = np.array(counts)
    np.testing.assert_array_equal(without_small(counts, 4), told)
    np.testing.assert_array_equal(without_small(counts, 1), counts)
    left_out = counts.sum() - sum(told)
    assert left_out == 0 or left_out >= 4 or not any(told)


def test_a_site_below_its_floor_gets_its_labels_and_tells_its_columns_only():
    X = {**tables(), "small": np.array([[0.1, 0.2], [9.0, 0.3]])}
    fitted = FederatedClustering(
        KnownCounts(2), FedGEM(upsilon=2), random_state=0, min_report=5, standardize=False
    ).fit(X)
    assert fitted.local_counts_[-1] == 0
    assert fitted.model_.local_counts[fitted.model_.sites.index("small")] == 0
    assert len(np.unique(fitted.labels_[-1])) == 2
    small = fitted.model_.holdings[fitted.model_.sites.index("small")]
    assert not small.any()


def test_no_count_of_few_rows_is_reported_of_clusters_nor_follows_from_what_is_reported():
    centers, held = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]]), (500, 30, 5)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(center, 1, (n, D)) for center, n in zip(centers, held, strict=True)])
    one = sites_of({"s": X}, Consensus(), min_report=20)[0]
    rows = unpack(one.answer(pack(setup.Describe())), (setup.Moments,))[0].count
    one.answer(pack(prepare()))
    told = unpack(one.answer(pack(setup.Attribute(centers=centers), round_=1)), (setup.Holdings,))[0]
    assert told.counts.tolist() == [505, 30, 0]  # the five go with the most
    assert told.scored.tolist() == [505, 30, 0]
    assert np.isnan(told.silhouettes).tolist() == [False, False, True]
    assert rows == told.counts.sum()


# --- support ---


def test_a_cluster_that_one_site_made_up_is_marked_and_the_others_are_not():
    class Elsewhere(Site):
        def _reply(self, message, round_):
            reply = super()._reply(message, round_)
            return replace(reply, means=reply.means + 500) if isinstance(reply, fedgem.Balls) else reply

    aggregator = FedGEM(upsilon=2, n_rounds=3)
    link = InProcess(sites_of(tables(), aggregator, {"s3": Elsewhere}))
    model = run_federation(link, aggregator, seed=0, standardize=False, settings={}, min_support=2)
    far = np.flatnonzero(model.centers.mean(axis=1) > 100).tolist()
    assert model.info["weak_clusters"] == far
    assert len(far) == 2
    assert [model.info["support"][cluster] for cluster in far] == [1, 1]
    assert any("Fewer than 2 sites support cluster" in note for note in notes_of(model))
    assert not model.info["missing"]  # within the limits: nobody refuses it


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_aggregator_tells_how_many_sites_support_each_cluster(name):
    federation = FederatedClustering(
        KnownCounts(2), clone(AGGREGATORS[name]), random_state=0, min_support=4, min_report=1, standardize=False
    )
    fitted = federation.fit(tables())
    info = fitted.model_.info
    assert len(info["support"]) == fitted.n_clusters_
    assert all(1 <= n <= 4 for n in info["support"])
    assert info["weak_clusters"] == [at for at, n in enumerate(info["support"]) if n < 4]


# --- micro-clusters add up ---


class Inventor(Site):
    """A site whose micro-clusters are not of its rows."""

    lie = "far"

    def _reply(self, message, round_):
        reply = super()._reply(message, round_)
        if isinstance(reply, consensus.MicroClusters):
            return {
                "far": lambda: replace(reply, means=reply.means + 30),
                "crowd": lambda: replace(reply, means=np.zeros_like(reply.means)),
                "counts": lambda: replace(reply, counts=reply.counts // 2),
                "few": lambda: replace(
                    reply, counts=reply.counts[1:], means=reply.means[1:], scatters=reply.scatters[1:]
                ),
                "wide": lambda: replace(reply, spread=reply.spread * 100, scatters=reply.scatters * 100),
            }[self.lie]()
        return reply


@pytest.mark.parametrize("lie", ["far", "crowd", "counts", "few", "wide"])
def test_a_site_whose_micro_clusters_do_not_add_up_to_its_moments_is_set_aside_by_name(lie):
    rng = np.random.default_rng(0)
    X = {name: np.concatenate([rng.normal(c, 1, (60, D)) for c in (0, 9)]) for name in ("a", "b", "c", "liar")}
    sites = sites_of(X, Consensus(), {"liar": type("Lying", (Inventor,), {"lie": lie})}, min_report=20)
    model = run_federation(InProcess(sites), Consensus(), seed=0, standardize=True, settings={}, min_report=20)
    assert {absence["site"] for absence in model.info["missing"]} == {"liar"}
    assert all("does not add up to its own moments" in absence["reason"] for absence in model.info["missing"][:1])
    assert model.n_clusters == 2


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), floor=st.sampled_from([1, 5, 20]), standardize=st.booleans())
@example(seed=384, floor=1, standardize=False)  # a micro-cluster of one row between clusters that lost theirs
def test_no_honest_site_is_set_aside_for_its_sums(seed, floor, standardize):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(25, 200))
    table = np.c_[
        np.exp(rng.normal(size=n) * rng.choice([0.5, 2.0])),
        rng.random(n) < rng.random(),
        1e6 + rng.normal(size=n),
        np.full(n, 7.0),
        rng.integers(4, size=n),
    ]
    columns = tuple("abcde")
    policy = SitePolicy(min_report=floor)
    sites = [
        Site(name, own, columns, estimator=KnownCounts(1), aggregator=Consensus(floor), policy=policy)
        for name, own in (("a", table), ("b", table[::-1] + 1), ("few", table[: int(rng.integers(1, 30))]))
    ]
    model = run_federation(
        InProcess(sites), Consensus(floor), seed=0, standardize=standardize, settings={}, min_report=floor
    )
    assert model.info["missing"] == []


def test_columns_that_are_constant_at_a_site_add_up_whatever_the_last_bits():
    """Sums of equal values in another order differ in their last bits: no honest site is set aside for these."""
    rng = np.random.default_rng(0)
    tables = {}
    for name, level in (("a", -0.0354332626), ("b", 7.1e5), ("c", 0.0)):
        tables[name] = np.column_stack([rng.normal(size=(293, 2)), np.full(293, level), np.full(293, 0.1)])
    fitted = FederatedClustering(KnownCounts(1), Consensus(), standardize=True, random_state=0).fit(tables)
    assert not fitted.model_.session.missing
