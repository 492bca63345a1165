"""A site's own disk: its copy of the table, what it remembers of every run, and what it answers from it.

The state folder holds ``table.npy``, ``site.json`` (columns, name, what the owner allows), ``key`` and ``ca.crt`` from
the invitation, and for every run ``runs/RUN/``: what the site needs to go on, and at the end ``labels.csv`` and
``model.koncord``. ``NAME.ledger.jsonl`` lists every message that left and every refusal, ``runs.txt`` the runs that
the site took part in. Nobody else may enter the folder.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from koncord._files import atomic_file, locked, write_atomic
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, sends_rows
from koncord.aggregate.private import check_private_form
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import DisclosureRefused, KoncordError, MessageError, NotAllowed, UnknownMethod
from koncord.model.globalmodel import GlobalModel
from koncord.network.method import from_text, usual_methods
from koncord.network.places import Invitation
from koncord.privacy.budget import Budget
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger, ledger_file, read_ledger, spent_by_run
from koncord.protocol.wire import unpack
from koncord.runs.assignments import as_csv, assign_scaled
from koncord.session.checkpoint import SiteMemory
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.types import FloatArray

RUNS = "runs.txt"
OLDER_RUNS = "budget-runs.txt"  # the same in folders of 0.1.0.dev0, which counted runs with a budget only
NO_RUN = "?"  # in the ledger, in the place of a name that is none
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFolder:
    """The state folder of one site."""

    folder: Path
    name: str
    columns: tuple[str, ...]
    digest: str  # of the table
    levels: Mapping[str, tuple[str, ...]]  # of the columns that are categories
    ledgers: str  # folder of the ledger
    policy: SitePolicy

    @property
    def methods(self) -> tuple[str, ...]:
        """Aggregators that the site takes part in, and estimators of other packages that it runs."""
        usual = usual_methods(with_rows=self.policy.allows_disclosure)
        return usual if self.policy.methods is None else self.policy.methods

    @property
    def ledger(self) -> Path:
        return ledger_file(Path(self.ledgers), self.name)

    def spent(self) -> dict[str, float]:
        """Epsilon of each run within a privacy budget, as the ledger has it."""
        return spent_by_run(read_ledger(self.ledger), self.name) if self.ledger.exists() else {}

    @classmethod
    def create(
        cls,
        folder: Path,
        invitation: Invitation,
        X: FloatArray,
        columns: tuple[str, ...],
        policy: SitePolicy,
        *,
        levels: Mapping[str, tuple[str, ...]] | None = None,
        ledgers: Path | None = None,
        may_weaken: bool = True,
    ) -> Self:
        """Write the site's files, the table as it is now; the ledger is kept in this folder or in `ledgers`.

        Unless it `may_weaken`, nothing is written over the files of a site with stronger limits: `NotAllowed` says what
        would become weaker. The caller is the folder's `sole_owner`.
        """
        usual = usual_methods(with_rows=policy.allows_disclosure)
        methods = tuple(sorted(set(policy.methods))) if policy.methods else usual
        made = cls(
            folder=folder.resolve(),
            name=invitation.site,
            columns=columns,
            digest=table_digest(X, columns, levels or {}),
            levels=dict(levels or {}),
            ledgers=str((ledgers or folder).resolve()),
            policy=replace(policy, methods=methods),  # by name: what is usual may change with koncord
        )
        if not may_weaken and (folder / "site.json").exists():
            check_no_weaker(cls.load(folder), made)
        folder.mkdir(mode=0o700, exist_ok=True)
        if ledgers is not None:
            ledgers.mkdir(exist_ok=True)
        folder.chmod(0o700)
        (folder / "runs").mkdir(exist_ok=True)
        if (folder / OLDER_RUNS).exists() and not (folder / RUNS).exists():
            (folder / OLDER_RUNS).rename(folder / RUNS)
        write_atomic(folder / "key", invitation.key.encode(), private=True)
        write_atomic(folder / "ca.crt", invitation.authority.encode(), private=True)
        with atomic_file(folder / "table.npy", private=True) as file:
            np.save(file, X, allow_pickle=False)
        write_atomic(folder / "site.json", json.dumps(made.content(), indent=1).encode(), private=True)
        return made

    @classmethod
    def load(cls, folder: Path) -> Self:
        content = json.loads((folder / "site.json").read_text(encoding="utf-8"))
        methods = content.get("methods")  # a folder of before there was a list has none
        return cls(
            folder=folder,
            name=content["name"],
            columns=tuple(content["columns"]),
            digest=content["digest"],
            levels={name: tuple(own) for name, own in content.get("levels", {}).items()},
            ledgers=content["ledgers"],
            policy=SitePolicy(
                min_report=content["min_report"],
                budget=None if content["privacy"] is None else Budget(**content["privacy"]),
                methods=None if methods is None else tuple(methods),
                max_rounds=content.get("max_rounds"),
                max_runs=content.get("max_runs"),
                allows_disclosure=content["allows_disclosure"],
            ),
        )

    def content(self) -> dict[str, Any]:
        """What ``site.json`` holds."""
        limits = asdict(self.policy)
        budget = limits.pop("budget")
        return {
            "name": self.name,
            "columns": self.columns,
            "digest": self.digest,
            "levels": dict(self.levels),
            "ledgers": self.ledgers,
            "privacy": budget,
            **limits,
        }

    def run_folder(self, run: str) -> Path:
        if not RUN_NAME.fullmatch(run):
            raise MessageError(f"site {self.name!r} was sent a run with the name {run[:80]!r}.")
        return self.folder / "runs" / run


def table_digest(X: FloatArray, columns: tuple[str, ...], levels: Mapping[str, tuple[str, ...]]) -> str:
    whole = hashlib.sha256(json.dumps([columns, X.shape, *([dict(levels)] if levels else [])]).encode())
    whole.update(np.ascontiguousarray(X, dtype="<f8").tobytes())
    return whole.hexdigest()


def check_no_weaker(before: SiteFolder, after: SiteFolder) -> None:
    """`NotAllowed`, with what would become weaker, unless every limit is at least as strong as it was."""
    weaker = list(weakened(before, after))
    if weaker:
        raise NotAllowed(
            f"The state folder '{before.folder}' was joined with stronger limits: {'; '.join(weaker)}. "
            "If its owner wants that, add --weaken."
        )


def weakened(before: SiteFolder, after: SiteFolder) -> Iterator[str]:
    """What the owner promised before and would not promise any more, in words."""
    old, new = before.policy, after.policy
    if new.min_report < old.min_report:
        yield f"the floor would fall from {old.min_report} rows to {new.min_report}"
    if old.budget is not None and new.budget is None:
        yield f"the privacy budget (epsilon {old.budget.epsilon:g}, delta {old.budget.delta:g}) would be gone"
    elif old.budget is not None and new.budget is not None:
        for name in ("epsilon", "delta"):
            was, would_be = getattr(old.budget, name), getattr(new.budget, name)
            if would_be > was:
                yield f"{name} would rise from {was:g} to {would_be:g}"
    if old.max_runs is not None and new.max_runs is None:
        yield f"runs would no longer be limited to {old.max_runs}"
    elif old.max_runs is not None and new.max_runs is not None and new.max_runs > old.max_runs:
        yield f"runs would be limited to {new.max_runs} instead of {old.max_runs}"
    if new.allows_disclosure and not old.allows_disclosure:
        yield f"rows themselves would be allowed to leave ({', '.join(newly(before, after, with_rows=True))})"
    more = newly(before, after, with_rows=False)
    if more:
        yield f"{', '.join(more)} would be allowed"
    for name in sorted(set(before.methods) & set(after.methods)):
        if name not in AGGREGATORS:  # an estimator, or of a package that is no longer installed
            continue
        kind = aggregator_named(name)
        was, would_be = old.most_rounds(kind), new.most_rounds(kind)
        can_have_more = {"n_rounds", "max_rounds"} & set(kind().get_params())  # others have one round
        if would_be > was and can_have_more:
            yield f"{name} would have {would_be} rounds instead of {was}"


def newly(before: SiteFolder, after: SiteFolder, *, with_rows: bool) -> list[str]:
    """Methods that would be allowed and were not, of those that send rows or of the others."""
    new = sorted(set(after.methods) - set(before.methods))
    return [name for name in new if (name in AGGREGATORS and sends_rows(aggregator_named(name))) == with_rows]


def answer(folder: Path, run: str, exchange: int, method: str, messages: Sequence[bytes]) -> tuple[Any, Any]:
    """The site's replies to one exchange and the seconds each took; what it needs to go on is on disk before.

    Whatever is refused is in the ledger before the refusal micro-clusters. How long an answer took depends on the rows:
    it is sent in whole seconds, and with a privacy budget not at all.
    """
    place = SiteFolder.load(folder)
    is_named = RUN_NAME.fullmatch(run) is not None
    ledger = Ledger(place.ledger, run=run if is_named else NO_RUN, site=place.name)
    with noting_refusal(ledger):
        own = place.run_folder(run)
        aggregator, estimator = asked_method(place, method)
        note_run(place, run)
    with locked(own / "lock"), one_thread():
        with noting_refusal(ledger):
            site = Site(
                place.name,
                np.load(folder / "table.npy", allow_pickle=False),
                place.columns,
                estimator=estimator,
                aggregator=aggregator,
                policy=place.policy,
                ledger=ledger,
                levels=place.levels,
            )
            identity = {"table": place.digest, "method": method, "min_report": place.policy.min_report}
            memory = SiteMemory(own / "memory", site, type(aggregator), identity)
        answered = memory.answer(exchange, messages)  # notes what it refuses itself
        if site.guard.is_over and not (own / "labels.csv").exists():
            write_labels(own, site, messages[-1])
    return answered.replies, told_seconds(answered.seconds, place.policy.budget)


@contextmanager
def noting_refusal(ledger: Ledger) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ledger.refuse(error)
        raise


def told_seconds(seconds: Sequence[float], privacy: Budget | None) -> list[float]:
    return [0.0 if privacy is not None else float(round(each)) for each in seconds]


def asked_method(place: SiteFolder, method: str) -> tuple[Aggregator, Any]:
    """Aggregator and estimator a coordinator asks for, if the site knows them and its owner allows them."""
    try:
        aggregator, estimator = from_text(method, place.methods)
    except NotAllowed as error:
        raise NotAllowed(f"site {place.name!r} was asked for a method that it does not run: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnknownMethod(f"site {place.name!r} was asked for a method it does not know ({error}).") from error
    kind = type(aggregator)
    if sends_rows(kind) and not place.policy.allows_disclosure:
        raise DisclosureRefused(
            f"{kind.name} sends every row; site {place.name!r} joined without --allow-disclosure and does not."
        )
    if place.policy.budget is not None:
        check_private_form(kind)
    if kind.name not in place.methods:
        raise NotAllowed(
            f"site {place.name!r} was asked for {kind.name}; its owner allows {', '.join(place.methods)} (--methods)."
        )
    asked, most = aggregator.most_rounds(), place.policy.most_rounds(kind)
    if asked > most:
        raise NotAllowed(
            f"site {place.name!r} was asked for {asked} rounds of {kind.name}; its owner allows {most} (--max-rounds)."
        )
    return aggregator, estimator


def note_run(place: SiteFolder, run: str) -> None:
    """Note that the site takes part in this run; `NotAllowed` if that is one run more than its owner allows.

    A run whose folder is gone is over: nobody knows what was sent in it, so nothing more is.
    """
    own = place.run_folder(run)
    with locked(place.folder / "lock"), (place.folder / RUNS).open("a+", encoding="ascii") as file:
        file.seek(0)
        noted = file.read().splitlines()
        if run in noted:
            if not own.is_dir():
                raise NotAllowed(f"site {place.name!r} has ended its part in run {run}: its folder is gone.")
            return
        max_runs = place.policy.max_runs
        if max_runs is not None and len(noted) >= max_runs:
            raise NotAllowed(
                f"site {place.name!r} has taken part in {len(noted)} runs; its owner allows no more than "
                f"{max_runs} (--max-runs)."
            )
        own.mkdir(exist_ok=True)  # before it is noted: a site killed in between goes on
        file.write(f"{run}\n")
        file.flush()
        os.fsync(file.fileno())


def write_labels(folder: Path, site: Site, last: bytes) -> None:
    """Write which global cluster each row of the site's table is in, and the clusters themselves."""
    if site.prepared is None:
        raise KoncordError(f"Site {site.name!r} has no scale to label its rows on.")
    attribute, _ = unpack(last, (setup.Attribute,))
    k = len(attribute.centers)
    plan = site.prepared.plan()
    model = GlobalModel(
        centers=attribute.centers,
        weights=np.full(k, 1 / k),
        columns=plan.features,
        means=plan.feature_means,
        scales=plan.feature_scales,
        plan=plan,
        sites=(site.name,),
        local_counts=(0 if site.estimate is None else site.estimate.n_components,),
        gaussians=attribute.gaussians(),
        seed=site.prepared.seed,
    )
    found = assign_scaled(model, plan.apply(site.table, site.columns, site.levels, centers=model.centers))
    held = np.bincount(found.labels, minlength=k)
    # The weights are those of this site's rows: it knows no others.
    replace(model, weights=held / held.sum(), holdings=held[None]).save(folder / "model.koncord")
    write_atomic(folder / "labels.csv", as_csv(found).encode(), private=True)


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Within the block no other koncord join uses the folder, made if it is not there; `KoncordError` if one does."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with locked(folder / "joined", busy=f"Another koncord join uses the state folder '{folder}'."):
        yield
