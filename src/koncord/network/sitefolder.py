"""A site's own disk: its copy of the table, what it remembers of every run, and what it answers from it.

The state folder holds ``table.npy``, ``answered`` and ``partition`` (the rows that are answered about, and what was
answered of them); of a table that is read batch by batch, which stays where it is, ``sampled``, ``bounds`` and
``sortings``. From the first run on ``partition``, ``bounds`` and ``sortings`` are where ``joint`` says, for all state
folders over the table (`koncord.network.tables`). Then ``site.json`` (columns, name, what the owner allows), ``key``
and ``ca.crt`` from the invitation, and for every run ``runs/RUN/``: what the site needs to go on, and at the end
``labels.csv`` and ``model.koncord``.
``NAME.ledger.jsonl`` lists every message that left and every refusal, ``runs.txt`` the runs that the site took part in.
Nobody else may enter the folder.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

import koncord
from koncord._files import atomic_file, locked, write_atomic
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, sends_rows
from koncord.aggregate.private import check_private_form
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.data.files import Table
from koncord.errors import DisclosureRefused, KoncordError, MessageError, NotAllowed, UnknownMethod
from koncord.model.globalmodel import GlobalModel
from koncord.network.limits import check_no_weaker
from koncord.network.method import Statement, from_text, statement_of, usual_methods
from koncord.network.places import PLACES_VERSION, Invitation, read_json
from koncord.network.shared import (
    claim,
    held_together,
    n_runs,
    note_runs,
    note_version,
    runs_alone,
    with_known_levels,
)
from koncord.network.tables import write_marks
from koncord.privacy.budget import Budget, epsilon_of_runs
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger, ledger_file, read_ledger, spent_by_run
from koncord.protocol.wire import unpack
from koncord.runs.assignments import csv_bytes, labeled
from koncord.runs.assignments import write_labels as write_batches
from koncord.session.checkpoint import SiteMemory
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.streamedfile import SAMPLED, SortingsFile, StreamedSource, kept_digest
from koncord.session.streamedsite import StreamedSite, check_streamed
from koncord.session.versions import LOCK as CELLS_LOCK
from koncord.session.versions import (
    Change,
    Kept,
    first_version,
    joint_folder,
    keep_version,
    move_version,
    next_version,
    read_version,
)
from koncord.types import FloatArray

STATE_FORMAT = "koncord-site"
RUNS = "runs.txt"
LEARNED = "learned.json"  # certificate authorities that were announced after the invitation
NO_RUN = "?"  # in the ledger, in the place of a name that is none
SAID_NO = "refused at the site"  # an owner's no, as it leaves
LABELS = "labels.csv"  # of a run: the cluster of every row
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


class Reply(NamedTuple):
    """What a site sends in one exchange."""

    replies: Sequence[bytes] = ()
    seconds: Sequence[float] = ()  # that each took
    question: str = ""  # to the owner of the site, who is asked first; it does not leave
    refused: str = ""  # what leaves if its owner said no


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
    is_streamed: bool = False  # whether the table is read batch by batch, where it lies
    is_apart: bool = False  # whether it answers apart from other state folders that have equal rows

    @property
    def methods(self) -> tuple[str, ...]:
        """Aggregators that the site takes part in, and estimators of other packages that it runs."""
        assert self.policy.methods is not None  # `create` names the usual ones
        return self.policy.methods

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
        X: FloatArray | StreamedSource,
        columns: tuple[str, ...],
        policy: SitePolicy,
        *,
        levels: Mapping[str, tuple[str, ...]] | None = None,
        ledgers: Path | None = None,
        may_weaken: bool = True,
        is_apart: bool = False,
    ) -> Self:
        """Write the site's files, the table as it is now; the ledger is kept in this folder or in `ledgers`.

        A table that is read batch by batch (`StreamedSource`) stays where it is.
        Unless it `may_weaken`, nothing is written over the files of a site with stronger limits: `NotAllowed` says what
        would become weaker. What was answered of the table from other state folders is held together with what this one
        answers, unless it `is_apart` (`koncord.network.shared`). The caller is the folder's `sole_owner`.
        """
        before = cls.load(folder) if (folder / "site.json").exists() else None
        if before is not None and levels and not isinstance(X, StreamedSource):
            X, levels = with_known_levels(X, columns, levels, before.levels)
        usual = usual_methods(with_rows=policy.allows_disclosure)
        if isinstance(X, StreamedSource):
            usual = tuple(name for name in usual if aggregator_named(name).streamed_steps)
        methods = tuple(sorted(set(policy.methods))) if policy.methods else usual
        if isinstance(X, StreamedSource):
            for name in set(methods) & set(AGGREGATORS):
                check_streamed(aggregator_named(name), policy)
        made = cls(
            folder=folder.resolve(),
            name=invitation.site,
            columns=columns,
            digest=X.digest if isinstance(X, StreamedSource) else table_digest(X, columns, levels or {}),
            levels=dict(levels or {}),
            ledgers=str((ledgers or folder).resolve()),
            policy=replace(policy, methods=methods),  # by name: what is usual may change with koncord
            is_streamed=isinstance(X, StreamedSource),
            is_apart=is_apart or (before is not None and before.is_apart),
        )
        if not may_weaken and before is not None:
            check_no_weaker(before, made)
        if made.keeps_partition and made.is_answered:
            made.check_kind(X)
        together = None
        if policy.budget is None:
            together = held_together(made, X, may_weaken=may_weaken)
            X = together.X
            if not isinstance(X, StreamedSource):
                made = replace(made, levels=dict(together.levels), digest=table_digest(X, columns, together.levels))
        n_answered, change = made.change_of(X)
        if not n_answered:
            raise NotAllowed(
                f"No row of this table may be answered about after what was answered from the state folder '{folder}' "
                "before: too few came, or they went before. A privacy budget (--epsilon) needs no such limit."
            )
        if change.is_held_back and policy.changed == "refuse":
            raise NotAllowed(
                f"The table has {change.n_added} rows more and {change.n_removed} fewer than what was answered from "
                f"the state folder '{folder}' before, too few of a kind to be answered about (--min-report "
                f"{policy.min_report}). Its owner wants no answers from older rows (--changed refuse); --changed old "
                "gives them."
            )
        folder.mkdir(mode=0o700, exist_ok=True)
        if ledgers is not None:
            ledgers.mkdir(exist_ok=True)
        folder.chmod(0o700)
        (folder / "runs").mkdir(exist_ok=True)
        write_atomic(folder / "key", invitation.key.encode(), private=True)
        trust(folder, invitation)
        if isinstance(X, StreamedSource):
            X.save(folder)
        else:
            (folder / SAMPLED).unlink(missing_ok=True)  # of a table of which nothing was answered
            with atomic_file(folder / "table.npy", private=True) as file:
                np.save(file, X, allow_pickle=False)
        made.keep_version(X)
        if together is not None:
            write_marks(folder, together.marks, together.order)
        write_atomic(folder / "site.json", json.dumps(made.content(), indent=1).encode(), private=True)
        return made

    @property
    def keeps_partition(self) -> bool:
        """Whether answers are sums over a joint partition: with a floor, and without a budget."""
        return self.policy.min_report > 1 and self.policy.budget is None

    @property
    def is_answered(self) -> bool:
        """Whether the site took part in a run."""
        return (self.folder / RUNS).exists() and bool((self.folder / RUNS).read_text(encoding="ascii").strip())

    def check_kind(self, X: FloatArray | StreamedSource) -> None:
        """`NotAllowed` for a table that cannot take the place of the one that was answered about.

        Of a table that is read batch by batch no row is kept: nobody can say which rows came and went.
        """
        before = kept_digest(self.folder)
        if before == (X.digest if isinstance(X, StreamedSource) else None):
            return
        raise NotAllowed(
            f"Another table than this one was answered from the state folder '{self.folder}' before, and one of them "
            "is read batch by batch: which rows came and went is not known. Join with that table; one of other rows "
            "needs another --state."
        )

    def change_of(self, X: FloatArray | StreamedSource) -> tuple[int, Change]:
        """How many rows are answered about if the table is X, and by how much it differs from what was before."""
        if isinstance(X, StreamedSource):
            return X.table.n_rows, Change()
        kept = read_version(self.folder) if self.keeps_partition else None
        if kept is None or not kept.is_answered:
            return len(X), Change()
        self._check_columns(kept)
        version, change = next_version(kept.now(self.policy.min_report), X, self.policy.min_report)
        return len(version.X), change

    def keep_version(self, X: FloatArray | StreamedSource) -> None:
        """Write which rows the site answers about, now that its table is X; nothing if they stay the same."""
        if not self.keeps_partition or isinstance(X, StreamedSource):
            return
        joint, least = joint_folder(self.folder), self.policy.min_report
        if joint is None:
            keep_version(self.folder, first_version(X, least), self.columns, is_answered=False)
            return
        with locked(joint / CELLS_LOCK):  # no other state folder answers meanwhile
            kept = read_version(self.folder)
            assert kept is not None
            self._check_columns(kept)
            version, change = next_version(kept.now(least), X, least)
            if change.is_a_move:
                note_version(self, joint, version.X)
                move_version(self.folder, joint, version, self.columns)

    def _check_columns(self, kept: Kept) -> None:
        if kept.columns != self.columns:
            raise NotAllowed(
                f"The table has other columns than the one that was answered from the state folder '{self.folder}' "
                f"before ({', '.join(kept.columns)}). Join with these, of which a run uses those that it names; a "
                "table of other rows needs another --state."
            )

    @classmethod
    def load(cls, folder: Path) -> Self:
        content = read_json(folder / "site.json", STATE_FORMAT, "the state of a site")
        return cls(
            folder=folder,
            name=content["name"],
            columns=tuple(content["columns"]),
            digest=content["digest"],
            levels={name: tuple(own) for name, own in content["levels"].items()},
            ledgers=content["ledgers"],
            policy=SitePolicy(
                min_report=content["min_report"],
                budget=None if content["privacy"] is None else Budget(**content["privacy"]),
                methods=tuple(content["methods"]),
                max_rounds=content["max_rounds"],
                max_runs=content["max_runs"],
                total_epsilon=content["total_epsilon"],
                changed=content["changed"],
                allows_disclosure=content["allows_disclosure"],
            ),
            is_streamed=content["is_streamed"],
            is_apart=content["is_apart"],
        )

    def content(self) -> dict[str, Any]:
        """What ``site.json`` holds."""
        limits = asdict(self.policy)
        budget = limits.pop("budget")
        return {
            "format": STATE_FORMAT,
            "version": PLACES_VERSION,
            "name": self.name,
            "columns": self.columns,
            "digest": self.digest,
            "levels": dict(self.levels),
            "ledgers": self.ledgers,
            "privacy": budget,
            **limits,
            "is_streamed": self.is_streamed,
            "is_apart": self.is_apart,
        }

    def run_folder(self, run: str) -> Path:
        if not RUN_NAME.fullmatch(run):
            raise MessageError(f"site {self.name!r} was sent a run with the name {run[:80]!r}.")
        return self.folder / "runs" / run


def trust(folder: Path, invitation: Invitation, new: bytes = b"") -> None:
    """Write the certificates that the site trusts: those of its invitation, and what was learned since it came.

    What was learned belongs to the invitation that it was learned with: another one begins anew.
    """
    path, of = folder / LEARNED, hashlib.sha256(invitation.authority.encode()).hexdigest()
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    learned = kept.get("certificates", "") if kept.get("invitation") == of else ""
    if new:
        learned += new.decode()
        write_atomic(path, json.dumps({"invitation": of, "certificates": learned}).encode(), private=True)
    write_atomic(folder / "ca.crt", (invitation.authority + learned).encode(), private=True)


def table_digest(X: FloatArray, columns: tuple[str, ...], levels: Mapping[str, tuple[str, ...]] | None = None) -> str:
    whole = hashlib.sha256(json.dumps([columns, X.shape, *([dict(levels)] if levels else [])]).encode())
    whole.update(np.ascontiguousarray(X, dtype="<f8").tobytes())
    return whole.hexdigest()


def answer_record(
    folder: Path, run: str, exchange: int, method: str, messages: Sequence[bytes], *, agreed: bool | None = True
) -> dict[str, Any]:
    """What leaves a site for one exchange, by the names it has on the wire (`koncord.protocol.received`).

    Or the question to its owner, who is asked first.
    """
    reply = answer(folder, run, exchange, method, messages, agreed=agreed)
    if reply.question:
        return {"question": reply.question}
    if reply.refused:
        return {"refused": reply.refused}
    return {"replies": list(reply.replies), "seconds": list(reply.seconds), "version": koncord.__version__}


def answer(
    folder: Path, run: str, exchange: int, method: str, messages: Sequence[bytes], *, agreed: bool | None = True
) -> Reply:
    """The site's replies to one exchange and the seconds each took; what it needs to go on is on disk before.

    `agreed` is the word of its owner on the run; None is that the owner is to be asked, and reads the statement alone.
    Whatever is refused is in the ledger before the refusal leaves. How long an answer took depends on the rows: it is
    sent in whole seconds, and with a privacy budget not at all.
    """
    place = SiteFolder.load(folder)
    is_named = RUN_NAME.fullmatch(run) is not None
    ledger = Ledger(place.ledger, run=run if is_named else NO_RUN, site=place.name)
    with noting_refusal(ledger):
        own = place.run_folder(run)
        aggregator, estimator = asked_method(place, method)
        statement = asked_statement(place, method, aggregator)
        check_run(place, run)
    if agreed is None:
        return Reply(question=statement.question(run, used_columns(place, statement), place.policy))
    if not agreed:
        ledger.refuse(NotAllowed(f"site {place.name!r} takes no part in run {run}: {SAID_NO}."))
        return Reply(refused=SAID_NO)
    with noting_refusal(ledger):
        claim(place)
        note_run(place, run)
    with locked(own / "lock"), one_thread():
        with noting_refusal(ledger):
            uses = stated_columns(place, statement)
            shared = {"uses": uses, "estimator": estimator, "aggregator": aggregator, "ledger": ledger}
            site, table = streamed_site(place, own, shared) if place.is_streamed else held_site(place, shared)
            identity = {"table": table, "method": method, "min_report": place.policy.min_report}
            memory = SiteMemory(own / "memory", site, type(aggregator), identity)
        answered = memory.answer(exchange, messages)  # notes what it refuses itself
        if site.guard.is_over and not (own / LABELS).exists():
            write_labels(own, site, messages[-1])
    return Reply(answered.replies, told_seconds(answered.seconds, place.policy.budget))


def held_site(place: SiteFolder, shared: Mapping[str, Any]) -> tuple[Site, str]:
    """The site over the copy of its table, and a digest of the rows that it answers about."""
    kept = read_version(place.folder) if place.keeps_partition else None
    site = Site(
        place.name,
        np.load(place.folder / "table.npy", allow_pickle=False),
        place.columns,
        policy=place.policy,
        levels=place.levels,
        partition=None if kept is None else kept.partition(place.policy.min_report),
        **shared,
    )
    return site, place.digest if kept is None else kept.digest


def streamed_site(place: SiteFolder, run: Path, shared: Mapping[str, Any]) -> tuple[Site, str]:
    """The site over a table that is read batch by batch, and a digest of its rows."""
    source = StreamedSource.load(place.folder)
    store = SortingsFile((joint_folder(place.folder) or place.folder) if place.keeps_partition else run)
    return StreamedSite(place.name, source.table, policy=place.policy, store=store, **shared), source.digest


def asked_statement(place: SiteFolder, method: str, aggregator: Aggregator) -> Statement:
    try:
        return statement_of(method, aggregator)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownMethod(f"site {place.name!r} was asked with a statement that it cannot read ({error}).") from error


def used_columns(place: SiteFolder, statement: Statement) -> tuple[str, ...]:
    """Those of the site's columns that the run is about, in the table's order."""
    asked = statement.asked.columns
    return place.columns if asked is None else tuple(name for name in place.columns if name in asked)


def stated_columns(place: SiteFolder, statement: Statement) -> tuple[str, ...]:
    """The columns that the run is about: nothing of another one is sent."""
    columns = used_columns(place, statement)
    if not columns:
        raise NotAllowed(f"site {place.name!r} has none of the columns that the run is about.")
    return columns


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


def check_run(place: SiteFolder, run: str) -> None:
    """`NotAllowed` if the site has ended its part in a run, or the run is one more than its owner allows."""
    with (place.folder / RUNS).open("a+", encoding="ascii") as file:
        file.seek(0)
        check_noted(place, run, file.read().splitlines())


def check_noted(place: SiteFolder, run: str, noted: Sequence[str]) -> None:
    """The same, with the runs that were noted.

    A run whose folder is gone is over: nobody knows what was sent in it, so nothing more is.
    """
    if run in noted:
        if not place.run_folder(run).is_dir():
            raise NotAllowed(f"site {place.name!r} has ended its part in run {run}: its folder is gone.")
        return
    max_runs, n_begun = place.policy.max_runs, n_runs(place, noted)
    if max_runs is not None and n_begun >= max_runs:
        raise NotAllowed(
            f"site {place.name!r} has taken part in {n_begun} runs; its owner allows no more than {max_runs} over this "
            "table (--max-runs)."
        )


def note_run(place: SiteFolder, run: str) -> None:
    """Note that the site takes part in this run, if it may."""
    own = place.run_folder(run)
    with runs_alone(place), (place.folder / RUNS).open("a+", encoding="ascii") as file:
        file.seek(0)
        noted = file.read().splitlines()
        check_noted(place, run, noted)
        if run in noted:
            return
        check_total(place, noted)
        own.mkdir(exist_ok=True)  # before it is noted: a site killed in between goes on
        note_runs(place, (*noted, run))
        file.write(f"{run}\n")
        file.flush()
        os.fsync(file.fileno())


def check_total(place: SiteFolder, noted: Sequence[str]) -> None:
    """`NotAllowed` if one run more would cost more, with all that were begun, than the owner allows together.

    A run counts with its whole budget from its beginning on, whatever it came to.
    """
    budget, most = place.policy.budget, place.policy.total_epsilon
    if budget is None or most is None:
        return
    spent = place.spent()
    total = epsilon_of_runs([max(spent.get(run, 0.0), budget.epsilon) for run in (*noted, "")], budget.delta)
    if total > most:
        raise NotAllowed(
            f"site {place.name!r} has taken part in {len(noted)} runs; with one more, all cost epsilon {total:.4g} "
            f"together, and its owner allows {most:g} (--total-epsilon)."
        )


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
        local_counts=() if site.estimate is None else (site.estimate.n_components,),
        gaussians=attribute.gaussians(),
        seed=site.prepared.seed,
    )
    with atomic_file(folder / LABELS, private=True) as file:
        if isinstance(site, StreamedSite):
            held = write_batches(file, model, site.all.table, site.name).counts.rows[:-1]
        else:
            found = labeled(model, Table(name=site.name, X=site.table, columns=site.columns, levels=site.levels))
            held = np.bincount(found.labels, minlength=k)
            file.write(csv_bytes(found))
        # The weights are those of this site's rows: it knows no others.
        replace(model, weights=held / held.sum(), holdings=held[None]).save(folder / "model.koncord")


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Within the block no other koncord join uses the folder, made if it is not there; `KoncordError` if one does."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with locked(folder / "joined", busy=f"Another koncord join uses the state folder '{folder}'."):
        yield
