"""A site's own disk: its copy of the table, what it remembers of every run, and what it answers from it.

The state folder holds ``table.npy``, ``site.json`` (columns, name, what the owner allows), ``key`` and ``ca.crt`` from
the invitation, and for every run ``runs/RUN/``: what the site needs to go on, and at the end ``labels.csv`` and
``model.koncord``. ``NAME.ledger.jsonl`` lists every message that left, ``budget-runs.txt`` the runs that a privacy
budget was spent in. Nobody else may enter the folder.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

import koncord
from koncord._disk import writing
from koncord._threads import one_thread
from koncord.errors import BudgetSpent, DisclosureRefused, KoncordError, MessageError
from koncord.estimate.named import estimator_named
from koncord.federate import setup
from koncord.federate.checkpoint import SiteMemory
from koncord.federate.ledger import Ledger, ledger_file, read_ledger, spent_by_run
from koncord.federate.link import Aggregator
from koncord.federate.private import Budget, check_private_form
from koncord.federate.site import Site
from koncord.federate.wire import unpack
from koncord.model.globalmodel import GlobalModel
from koncord.network.files import write_private
from koncord.network.places import Invitation
from koncord.report.assignments import as_csv, assign
from koncord.types import FloatArray

BUDGET_RUNS = "budget-runs.txt"
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFolder:
    """The state folder of one site."""

    folder: Path
    name: str
    columns: tuple[str, ...]
    digest: str  # of the table
    min_report: int
    allows_disclosure: bool
    ledgers: str  # folder of the ledger
    privacy: Budget | None = None  # of every run
    max_runs: int | None = None  # that the budget is spent in

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
        *,
        min_report: int,
        allows_disclosure: bool,
        ledgers: Path | None = None,
        privacy: Budget | None = None,
        max_runs: int | None = None,
    ) -> Self:
        """Write the site's files, the table as it is now; the ledger is kept in this folder or in `ledgers`."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if ledgers is not None:
            ledgers.mkdir(exist_ok=True)
        folder.chmod(0o700)
        (folder / "runs").mkdir(exist_ok=True)
        write_private(folder / "key", invitation.key.encode())
        write_private(folder / "ca.crt", invitation.authority.encode())
        made = cls(
            folder=folder.resolve(),
            name=invitation.site,
            columns=columns,
            digest=table_digest(X, columns),
            min_report=min_report,
            allows_disclosure=allows_disclosure,
            ledgers=str((ledgers or folder).resolve()),
            privacy=privacy,
            max_runs=max_runs,
        )
        partial = folder / ".table.npy"
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with writing(folder / "table.npy"), os.fdopen(opened, "wb") as file:
            np.save(file, X, allow_pickle=False)
        partial.replace(folder / "table.npy")
        content = {name: value for name, value in asdict(made).items() if name != "folder"}
        write_private(folder / "site.json", json.dumps(content, indent=1).encode())
        return made

    @classmethod
    def load(cls, folder: Path) -> Self:
        content = json.loads((folder / "site.json").read_text(encoding="utf-8"))
        privacy = None if content["privacy"] is None else Budget(**content["privacy"])
        return cls(folder=folder, **{**content, "columns": tuple(content["columns"]), "privacy": privacy})

    def run_folder(self, run: str) -> Path:
        if not RUN_NAME.fullmatch(run):
            raise MessageError(f"site {self.name!r} was sent a run with the name {run[:80]!r}.")
        return self.folder / "runs" / run


def table_digest(X: FloatArray, columns: tuple[str, ...]) -> str:
    whole = hashlib.sha256(json.dumps([columns, X.shape]).encode())
    whole.update(np.ascontiguousarray(X, dtype="<f8").tobytes())
    return whole.hexdigest()


def answer(folder: Path, run: str, exchange: int, method: str, messages: Sequence[bytes]) -> tuple[Any, Any]:
    """The site's replies to one exchange and the seconds each took; what it needs to go on is on disk before."""
    place = SiteFolder.load(folder)
    kind, estimator = asked_method(place, method)
    own = place.run_folder(run)
    if place.privacy is not None:
        note_run(place, run)
    own.mkdir(exist_ok=True)
    with locked(own / "lock"), one_thread():
        memory = SiteMemory(
            own / "memory",
            Site(
                place.name,
                np.load(folder / "table.npy", allow_pickle=False),
                place.columns,
                estimator=estimator,
                aggregator=kind,
                min_report=place.min_report,
                ledger=Ledger(place.ledger, run=run, site=place.name),
                privacy=place.privacy,
            ),
            kind,
            {"table": place.digest, "method": method, "min_report": place.min_report},
        )
        answered = memory.answer(exchange, messages)
        if memory.site.guard.is_over and not (own / "labels.csv").exists():
            write_labels(own, memory.site, messages[-1])
    return answered.replies, answered.seconds


def asked_method(place: SiteFolder, method: str) -> tuple[type[Aggregator], Any]:
    """Aggregator and estimator a coordinator asks for, if the site knows them and allows what they send."""
    try:
        asked = json.loads(method)
        kind = aggregators()[asked["aggregator"]]
        estimator = estimator_named(**asked["estimator"])
    except (ValueError, KeyError, TypeError) as error:
        raise MessageError(f"site {place.name!r} was asked for a method it does not know.") from error
    if any(sent.grows_with_rows for sent in kind.sends) and not place.allows_disclosure:
        raise DisclosureRefused(
            f"{kind.name} sends every row; site {place.name!r} joined without --allow-disclosure and does not."
        )
    if place.privacy is not None:
        check_private_form(kind)
    return kind, estimator


def note_run(place: SiteFolder, run: str) -> None:
    """Note that the budget is spent in this run too; `BudgetSpent` if that is one run more than the owner allows.

    A run whose folder is gone is over: nobody knows what was told in it, so nothing more is.
    """
    own = place.run_folder(run)
    with locked(place.folder / "lock"), (place.folder / BUDGET_RUNS).open("a+", encoding="ascii") as file:
        file.seek(0)
        noted = file.read().splitlines()
        if run in noted:
            if not own.is_dir():
                raise BudgetSpent(f"site {place.name!r} has ended its part in run {run}: its folder is gone.")
            return
        if place.max_runs is not None and len(noted) >= place.max_runs:
            raise BudgetSpent(
                f"site {place.name!r} has spent its privacy budget in {len(noted)} runs; its owner allows no more "
                f"than {place.max_runs}."
            )
        own.mkdir(exist_ok=True)  # before it is noted: a site killed in between goes on
        file.write(f"{run}\n")
        file.flush()
        os.fsync(file.fileno())


def aggregators() -> dict[str, type[Aggregator]]:
    """Every aggregator koncord offers, by its name."""
    offered = [getattr(koncord, name) for name in koncord.__all__]
    kinds = [each for each in offered if isinstance(each, type) and issubclass(each, Aggregator)]
    return {kind.name: kind for kind in kinds}


def write_labels(folder: Path, site: Site, last: bytes) -> None:
    """Write which global cluster each row of the site's table is in, and the clusters themselves."""
    if site.prepared is None:
        raise KoncordError(f"Site {site.name!r} has no scale to label its rows on.")
    attribute, _ = unpack(last, (setup.Attribute,))
    k = len(attribute.centers)
    model = GlobalModel(
        centers=attribute.centers,
        weights=np.full(k, 1 / k),
        columns=site.prepared.columns,
        means=site.prepared.means,
        scales=site.prepared.scales,
        sites=(site.name,),
        local_counts=(0 if site.estimate is None else site.estimate.n_components,),
        seed=site.prepared.seed,
    )
    found = assign(model, site.table[:, setup.order_of(site.columns, site.prepared.columns)])
    held = np.bincount(found.labels, minlength=k)
    # The weights are those of this site's rows: it knows no others.
    replace(model, weights=held / held.sum(), holdings=held[None]).save(folder / "model.koncord")
    write_private(folder / "labels.csv", as_csv(found).encode())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the block no other process is; it waits its turn."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Within the block no other koncord join uses the folder; `KoncordError` if one does."""
    with (folder / "joined").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KoncordError(f"Another koncord join uses the state folder '{folder}'.") from None
        yield
