"""The table that a site answers from, when its owner's table changes between runs, and where both are kept.

Two runs over tables that differ by one row would tell that row. So the rows that a site has answered about stay its
answers' rows until enough of them changed: rows that were added are answered about once they are as many as the floor,
as a cell of their own, which is cut among itself, and rows that were removed go once as many of one cell are gone. Rows
that went come back only as the group that they went in. Until then the site answers from the rows as they were. All
versions together are then still sums over cells of one partition. The first question for sums is kept, too: rows stay
shaped as it says (`koncord.protocol.partition`), whatever later ones say, and rows that are added are shaped alike. So
is the first plan by which missing values were filled in: of a row that was answered about they stay what they were.

The rows are in the site's own state folder (``answered``). What was answered of them, which holds no row, is there too
until a run is answered, and from then on in a folder that all state folders over the table share
(`koncord.network.tables`); the file ``joint`` says where.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from koncord._files import locked, write_atomic
from koncord.errors import CheckpointError, NotAllowed
from koncord.protocol import setup
from koncord.protocol.partition import (
    JointCells,
    JointPartition,
    Rows,
    Shaping,
    coded_rows,
    divided,
    moved_of,
    one_cell,
    pairs_of,
    places_by_number,
    recoded,
)
from koncord.session.checkpoint import read_blobs, write_blobs
from koncord.types import BoolArray, FloatArray, IntArray

VERSION, PARTITION, ASKED, PLAN, LOCK = "answered", "partition", "asked", "plan", "partition.lock"
NEXT = "answered.next"  # a version that takes the place of the one before as soon as its cells do
JOINT = "joint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Rows that a site has answered about and does not answer about any more, in the groups that they left in."""

    X: FloatArray  # (n_gone, n_features)
    moved: FloatArray  # (n_gone, n_features)
    cells: JointCells  # the groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The rows that a site answers about, and what was answered of them before this version."""

    X: FloatArray  # (n_rows, n_features) as they came
    moved: FloatArray  # (n_rows, n_features) as they are answered about: no row dominates
    pairs: FloatArray  # (2, n_features) values of columns with two of them, else NaN
    cells: JointCells
    gone: Gone
    shaping: Shaping | None = None  # of the first question for sums, by which `moved` is
    plan: bytes = b""  # the first one, by which `moved` has no gaps; without one the medians of the columns stand there
    columns: tuple[str, ...] = ()  # their names, for the plan

    def rows(self, least: int) -> Rows:
        return coded_rows(self.X, self.moved, self.pairs, shaping=self.shaping, least=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """By how much the owner's table differs from what was answered about before, and what was done about it."""

    n_added: int = 0
    n_removed: int = 0
    n_waiting: int = 0  # added rows that are not answered about yet
    n_stale: int = 0  # removed rows that are still answered about

    @property
    def is_a_move(self) -> bool:
        """Whether other rows are answered about than before."""
        return self.n_added > self.n_waiting or self.n_removed > self.n_stale

    @property
    def is_held_back(self) -> bool:
        """Whether the site answers from other rows than those of the owner's table."""
        return bool(self.n_waiting or self.n_stale)


def first_version(X: FloatArray, least: int) -> Version:
    """A table of which nothing was answered yet."""
    pairs = pairs_of(X)
    moved = moved_of(X, least, pairs)
    cells = one_cell(coded_rows(X, moved, pairs, least=least))
    nobody = Gone(X=X[:0], moved=X[:0], cells=some_cells(cells, np.zeros(len(X), dtype=np.bool_)))
    return Version(X=X, moved=moved, pairs=pairs, cells=cells, gone=nobody)


def next_version(before: Version, X: FloatArray, least: int) -> tuple[Version, Change]:
    """The rows to answer about now that the owner's table is X, after all that was answered about `before`."""
    is_kept, is_known = matched(before.X, X)
    unknown = X[~is_known]
    if len(before.X) < least:  # of which nothing was ever sent
        before, is_kept, unknown = some_rows(before, np.zeros(len(before.X), dtype=np.bool_)), is_kept[:0], X
    older = without_removed(before, ~is_kept, least)
    is_back, is_returning = matched(before.gone.X, unknown)
    back = with_returned(older, is_back)
    after = with_added(back, unknown[~is_returning], least)
    return after, Change(
        n_added=len(unknown),
        n_removed=int((~is_kept).sum()),
        n_waiting=len(unknown) - (len(after.X) - len(older.X)),
        n_stale=len(older.X) - int(is_kept.sum()),
    )


def some_rows(version: Version, at: BoolArray) -> Version:
    """Some of the rows of a version."""
    cells = some_cells(version.cells, at)
    return replace(version, X=version.X[at], moved=version.moved[at], cells=cells)


def some_cells(cells: JointCells, at: BoolArray) -> JointCells:
    """The cells of some rows, numbered anew."""
    present, of_row = np.unique(cells.of_row[at], return_inverse=True)
    return JointCells(of_row=of_row, rarer=cells.rarer[present], is_cut=cells.is_cut[present])


def beside(one: JointCells, other: JointCells) -> JointCells:
    """The cells of the rows of one partition, then those of another."""
    of_row = np.concatenate([one.of_row, other.of_row + len(one)])
    return JointCells(
        of_row=of_row,
        rarer=np.concatenate([one.rarer, other.rarer]),
        is_cut=np.concatenate([one.is_cut, other.is_cut]),
    )


def matched(before: FloatArray, after: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which rows of either table have an equal row in the other, one to one."""
    joined = np.ascontiguousarray(np.concatenate([before, after]) + 0.0)  # one zero
    joined[np.isnan(joined)] = np.nan  # and one gap
    kinds = np.unique(joined.view(f"V{joined.itemsize * joined.shape[1]}").ravel(), return_inverse=True)[1]
    mine, theirs = kinds[: len(before)], kinds[len(before) :]
    n_kinds = int(kinds.max(initial=-1)) + 1
    counts = np.bincount(mine, minlength=n_kinds), np.bincount(theirs, minlength=n_kinds)
    return places_of(mine) < counts[1][mine], places_of(theirs) < counts[0][theirs]


def places_of(kinds: IntArray) -> IntArray:
    """How many of the same kind come before each, (n,)."""
    order = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[order], kinds[order])
    places = np.empty(len(kinds), dtype=np.int64)
    places[order] = np.arange(len(kinds)) - starts
    return places


def without_removed(before: Version, is_removed: BoolArray, least: int) -> Version:
    """The version without the removed rows of those cells that lose enough of them, and keep enough or none."""
    rows, cells = before.rows(least), before.cells
    staying, leaving = cells.rarer.copy(), cells.rarer.copy()
    goes = np.zeros(len(before.X), dtype=np.bool_)
    for cell, own in enumerate(places_by_number(cells.of_row, len(cells))):
        gone, left = own[is_removed[own]], own[~is_removed[own]]
        if len(gone) < least or (len(left) and (len(left) < least or any(map(rows.is_told, (gone, left))))):
            continue
        counts = [rows.has_rarer[part].sum(axis=0) for part in (left, gone)]
        staying[cell], leaving[cell] = divided(cells.rarer[cell], counts, [len(left), len(gone)])
        goes[gone] = True
    left_with = some_cells(replace(cells, rarer=leaving), goes)
    return replace(
        some_rows(replace(before, cells=replace(cells, rarer=staying)), ~goes),
        gone=Gone(
            X=np.concatenate([before.gone.X, before.X[goes]]),
            moved=np.concatenate([before.gone.moved, before.moved[goes]]),
            cells=beside(before.gone.cells, left_with),
        ),
    )


def with_returned(version: Version, is_back: BoolArray) -> Version:
    """The version with those groups of gone rows that are all back; `is_back` is of the rows that were gone before."""
    gone = version.gone
    is_back = np.concatenate([is_back, np.zeros(len(gone.X) - len(is_back), dtype=np.bool_)])
    n_away = np.bincount(gone.cells.of_row, ~is_back, minlength=len(gone.cells))
    returns = n_away[gone.cells.of_row] == 0
    return replace(
        version,
        X=np.concatenate([version.X, gone.X[returns]]),
        moved=np.concatenate([version.moved, gone.moved[returns]]),
        cells=beside(version.cells, some_cells(gone.cells, returns)),
        gone=Gone(X=gone.X[~returns], moved=gone.moved[~returns], cells=some_cells(gone.cells, ~returns)),
    )


def with_added(before: Version, added: FloatArray, least: int) -> Version:
    """The version with the added rows as one cell more, if they are enough; else without."""
    has_pair = ~np.isnan(before.pairs[0])
    is_of_pair = ((added == before.pairs[0]) | (added == before.pairs[1]) | np.isnan(added)).all(axis=0)
    if len(added) < least or not is_of_pair[has_pair].all():
        return before
    X = np.concatenate([before.X, added])
    moved = moved_of(X, least, before.pairs, before.shaping)[len(before.X) :]
    if before.plan and np.isnan(added).any():
        whole = np.where(np.isnan(X), np.nan, np.concatenate([before.moved, moved]))
        moved = setup.completed(whole, before.columns, before.plan, least)[len(before.X) :]
    own = coded_rows(added, moved, before.pairs, shaping=before.shaping, least=least)
    if own.is_told(np.arange(len(added))):
        return before
    moved = np.concatenate([before.moved, moved])
    return replace(before, X=X, moved=moved, cells=beside(before.cells, one_cell(own)))


# --- on disk ---


def joint_folder(folder: Path) -> Path | None:
    """Where what was answered of a site's table is kept, for all state folders over it; None before anything was.

    `NotAllowed` if it is gone: nobody knows then what was answered.
    """
    if not (folder / JOINT).exists():
        return None
    joint = Path(json.loads((folder / JOINT).read_text(encoding="utf-8"))["folder"])
    if not joint.is_dir():
        raise NotAllowed(
            f"What was answered from the state folder '{folder}' is kept in '{joint}', which is gone: no more is "
            "answered of this table without a privacy budget. Put it back from a backup."
        )
    return joint


def point_to(folder: Path, joint: Path) -> None:
    """Keep in a site's folder where what was answered of its table is; on the disk when this returns."""
    content = json.dumps({"folder": str(joint)}).encode()
    write_atomic(folder / JOINT, content, private=True, durable=True)


class CellsFile:
    """The cells of a version on disk: there before an answer leaves, and one process at a time.

    Parameters
    ----------
    folder : Path
        Of what was answered.
    digest : str
        Of the version: cells of another one do not count.
    first : Cells or None
        What was answered before this version; None: nothing.
    is_shared : bool, default False
        Whether other state folders answer by the same cells: then those of another version are theirs.
    """

    def __init__(self, folder: Path, digest: str, first: JointCells | None, *, is_shared: bool = False) -> None:
        self.folder = folder
        self.digest = digest
        self.first = first
        self.is_shared = is_shared

    def read(self) -> JointCells | None:
        path = self.folder / PARTITION
        if path.exists():
            header, blobs = read_blobs(path)
            if header["version"] == self.digest:
                return cells_in(header, blobs)
        if self.is_shared:
            raise NotAllowed(
                "The table was joined with other rows from another state folder since this site joined: join with it "
                "again."
            )
        return self.first

    def update(self, change: Callable[[JointCells | None], JointCells]) -> JointCells:
        with locked(self.folder / LOCK):
            before = self.read()
            after = change(before)
            if after is not before:
                write_cells(self.folder, self.digest, after)
        return after

    def first_asked(self, asked: bytes) -> bytes:
        with locked(self.folder / LOCK):
            return first_of(self.folder, ASKED, asked)

    def first_plan(self, plan: bytes) -> bytes:
        with locked(self.folder / LOCK):
            return first_of(self.folder, PLAN, plan)


def first_of(folder: Path, name: str, message: bytes) -> bytes:
    """The first message of its kind, kept under a name: this one if there was none."""
    if not (folder / name).exists():
        write_blobs(folder / name, {}, {"asked": message})
    return read_first(folder, name)


def read_first(folder: Path, name: str) -> bytes:
    """The first message that is kept under a name; nothing before there was one."""
    return read_blobs(folder / name)[1]["asked"] if (folder / name).exists() else b""


def write_cells(folder: Path, digest: str, cells: JointCells) -> None:
    """Write the cells of a version; on the disk, whole, when this returns."""
    write_blobs(folder / PARTITION, {"version": digest, "shape": cells.rarer.shape}, blobs_of(cells))


def digest_of_cells(folder: Path) -> str:
    """Digest of the version that the cells in a folder are of; empty where there are none."""
    return str(read_blobs(folder / PARTITION)[0]["version"]) if (folder / PARTITION).exists() else ""


def blobs_of(cells: JointCells) -> dict[str, bytes]:
    return {
        "of_row": cells.of_row.astype("<i8").tobytes(),
        "rarer": cells.rarer.astype("<i8").tobytes(),
        "is_cut": cells.is_cut.tobytes(),
    }


def cells_in(header: Mapping[str, Any], blobs: Mapping[str, bytes], prefix: str = "") -> JointCells:
    of_row, rarer = (np.frombuffer(blobs[f"{prefix}{name}"], dtype="<i8") for name in ("of_row", "rarer"))
    whole = rarer.astype(np.int64).reshape(header[f"{prefix}shape"])
    is_cut = np.frombuffer(blobs[f"{prefix}is_cut"], dtype=np.bool_).copy()
    return JointCells(of_row=of_row.astype(np.int64), rarer=whole, is_cut=is_cut)


Stored = tuple[Mapping[str, Any], Mapping[str, bytes]]  # header and bytes of a file


def keep_version(folder: Path, version: Version, columns: tuple[str, ...], *, is_answered: bool) -> None:
    """Write the rows that the site answers about from now on; on the disk, whole, when this returns."""
    write_blobs(folder / VERSION, *stored(version, columns, is_answered=is_answered))


def move_version(folder: Path, joint: Path, version: Version, columns: tuple[str, ...]) -> None:
    """The same, where something was answered: the cells that all answers go by are those of this version from now on.

    A process that ends in between leaves the version before, or this one (`read_version`). The caller holds the lock of
    the cells.
    """
    content = stored(version, columns, is_answered=True)
    write_blobs(folder / NEXT, *content)
    write_cells(joint, version_digest(*content), version.cells)
    (folder / NEXT).replace(folder / VERSION)


def stored(version: Version, columns: tuple[str, ...], *, is_answered: bool) -> Stored:
    """Header and bytes of the file of a version."""
    gone = version.gone
    header = {
        "columns": columns,
        "shape": version.cells.rarer.shape,
        "gone_shape": gone.cells.rarer.shape,
        "is_answered": is_answered,
        "is_shaped": version.shaping is not None,
        "is_filled": bool(version.plan),
    }
    arrays = {
        "X": version.X,
        "moved": version.moved,
        "pairs": version.pairs,
        "gone_X": gone.X,
        "gone_moved": gone.moved,
    }
    blobs = {name: np.ascontiguousarray(array, dtype="<f8").tobytes() for name, array in arrays.items()}
    blobs |= blobs_of(version.cells) | {f"gone_{name}": blob for name, blob in blobs_of(gone.cells).items()}
    return header, blobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a site's disk holds of the rows that it answers about."""

    version: Version
    columns: tuple[str, ...]
    digest: str
    store: CellsFile
    is_answered: bool  # whether anything was
    is_shaped: bool  # whether its rows are as the first question for sums shapes them
    is_filled: bool  # whether its gaps are filled in by the first plan
    asked: bytes  # this question, as it was sent
    plan: bytes  # this plan, as it was sent

    def partition(self, least: int) -> JointPartition:
        return JointPartition(
            self.shaped(least).rows(least),
            least,
            self.store,
            is_shaped=bool(self.asked),
            is_filled=self.is_filled,
        )

    def now(self, least: int) -> Version:
        """The version with the cells of all answers up to now."""
        cells = self.store.read()
        filled = self.filled(least)
        return filled if cells is None else replace(filled, cells=cells)

    def filled(self, least: int) -> Version:
        """The shaped version with its gaps filled in by the first plan, if there was one."""
        shaped = self.shaped(least)
        if not self.plan:
            return shaped
        moved = shaped.moved
        if not self.is_filled and np.isnan(shaped.X).any():
            moved = setup.completed(np.where(np.isnan(shaped.X), np.nan, moved), self.columns, self.plan, least)
        return replace(shaped, moved=moved, plan=self.plan, columns=self.columns)

    def shaped(self, least: int) -> Version:
        """The version with its rows as the first question for sums shapes them, if there was one."""
        shaping = setup.shaping_of(self.asked, self.columns) if self.asked else None
        if shaping is None:
            return self.version
        moved = self.version.moved if self.is_shaped else recoded(self.version.rows(least), least, shaping).X
        return replace(self.version, moved=moved, shaping=shaping)


def read_version(folder: Path) -> Kept | None:
    """What the folder holds of the rows that are answered about, if it does."""
    joint = joint_folder(folder)
    if joint is not None:
        finish_move(folder, joint)
    if not (folder / VERSION).exists():
        return None
    header, blobs = read_blobs(folder / VERSION)
    columns = tuple(header["columns"])
    answers = folder if joint is None else joint

    def array(name: str) -> FloatArray:
        return np.frombuffer(blobs[name], dtype="<f8").reshape(-1, len(columns)).astype(float)

    gone = Gone(X=array("gone_X"), moved=array("gone_moved"), cells=cells_in(header, blobs, "gone_"))
    version = Version(
        X=array("X"), moved=array("moved"), pairs=array("pairs"), cells=cells_in(header, blobs), gone=gone
    )
    digest = version_digest(header, blobs)
    first = version.cells if header["is_answered"] else None
    store = CellsFile(answers, digest, first, is_shared=joint is not None)
    is_answered = header["is_answered"] or store.read() is not None
    return Kept(
        version=version,
        columns=columns,
        digest=digest,
        store=store,
        is_answered=is_answered,
        is_shaped=header["is_shaped"],
        is_filled=header["is_filled"],
        asked=read_first(answers, ASKED),
        plan=read_first(answers, PLAN),
    )


def finish_move(folder: Path, joint: Path) -> None:
    """Put a version in its place whose cells are there: what wrote both ended in between."""
    if (folder / NEXT).exists() and digest_of_version(folder / NEXT) == digest_of_cells(joint):
        (folder / NEXT).replace(folder / VERSION)


def digest_of_version(path: Path) -> str:
    """Digest of the version in a file; empty where there is none that can be read."""
    try:
        return version_digest(*read_blobs(path))
    except CheckpointError:
        return ""


def version_digest(header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256(json.dumps([header["columns"], header["shape"]]).encode())
    for name in ("X", "moved", "of_row", "rarer"):
        whole.update(blobs[name])
    return whole.hexdigest()
