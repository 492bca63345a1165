"""The table that a site answers from, when its owner's table changes between runs, and where both are kept.

Two runs over tables that differ by one row would tell that row. So the rows that a site has answered about stay its
answers' rows until enough of them changed: rows that were added are answered about once they are as many as the floor,
as a cell of their own, and rows that were removed go once as many of one cell are gone. Until then the site answers
from the rows as they were. All versions together are then still sums over cells of one partition.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from koncord._files import locked
from koncord.protocol.dominance import bounds_of
from koncord.protocol.partition import Cells, JointPartition, Rows, divided, members_of, one_cell, pairs_of, rows_of
from koncord.session.checkpoint import read_blobs, write_blobs
from koncord.types import BoolArray, FloatArray, IntArray

VERSION, PARTITION, LOCK = "answered", "partition", "partition.lock"
ARRAYS = ("X", "batches", "bounds", "pairs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The rows that a site answers about, and what was answered of them before this version."""

    X: FloatArray  # (n_rows, n_features) as they came
    batches: IntArray  # (n_rows,) which rows came together
    bounds: FloatArray  # (n_batches, 2, n_features) between which the rows of a batch are answered about
    pairs: FloatArray  # (2, n_features) values of columns with two of them, else NaN
    cells: Cells

    def rows(self) -> Rows:
        return rows_of(self.X, self.bounds[self.batches].transpose(1, 0, 2), self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """By how much the owner's table differs from what was answered about before, and what was done about it."""

    n_added: int = 0
    n_removed: int = 0
    n_waiting: int = 0  # added rows that are not answered about yet
    n_stale: int = 0  # removed rows that are still answered about

    @property
    def is_held_back(self) -> bool:
        """Whether the site answers from other rows than those of the owner's table."""
        return bool(self.n_waiting or self.n_stale)


def first_version(X: FloatArray) -> Version:
    """A table of which nothing was answered yet."""
    bounds = np.array(bounds_of(X)) if len(X) else np.zeros((2, X.shape[1]))
    pairs = pairs_of(X)
    one = one_cell(rows_of(X, bounds[:, None], pairs))
    return Version(X=X, batches=np.zeros(len(X), dtype=np.int64), bounds=bounds[None], pairs=pairs, cells=one)


def next_version(before: Version, X: FloatArray, least: int) -> tuple[Version, Change]:
    """The rows to answer about now that the owner's table is X, after all that was answered about `before`."""
    is_kept, is_known = matched(before.X, X)
    n_added, n_removed = int((~is_known).sum()), int((~is_kept).sum())
    if len(before.X) < least or not is_kept.any():  # nothing was answered, or no row of it is left
        return first_version(X), Change(n_added=n_added, n_removed=n_removed)
    after = with_added(without_removed(before, ~is_kept, least), X[~is_known], least)
    n_waiting = n_added if len(after.bounds) == len(before.bounds) else 0
    n_stale = len(after.X) - (n_added - n_waiting) - int(is_kept.sum())
    return after, Change(n_added=n_added, n_removed=n_removed, n_waiting=n_waiting, n_stale=n_stale)


def matched(before: FloatArray, after: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which rows of either table have an equal row in the other, one to one."""
    joined = np.ascontiguousarray(np.concatenate([before, after]) + 0.0)  # one zero
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
    rows, cells = before.rows(), before.cells
    rarer, goes = cells.rarer.copy(), np.zeros(len(before.X), dtype=np.bool_)
    for cell, own in enumerate(members_of(cells.of_row, len(cells))):
        gone, left = own[is_removed[own]], own[~is_removed[own]]
        if len(gone) < least or (len(left) and (len(left) < least or any(map(rows.is_dominated, (gone, left))))):
            continue
        counts = [rows.has_rarer[part].sum(axis=0) for part in (left, gone)]
        rarer[cell] = divided(rarer[cell], counts, [len(left), len(gone)])[0]
        goes[gone] = True
    present, of_row = np.unique(cells.of_row[~goes], return_inverse=True)
    return Version(
        X=before.X[~goes],
        batches=before.batches[~goes],
        bounds=before.bounds,
        pairs=before.pairs,
        cells=Cells(of_row=of_row, rarer=rarer[present]),
    )


def with_added(before: Version, added: FloatArray, least: int) -> Version:
    """The version with the added rows as one cell more, if they are enough; else without."""
    X = np.concatenate([before.X, added])
    has_two = ~np.isnan(before.pairs[0])
    is_same_pair = ((added == before.pairs[0]) | (added == before.pairs[1])).all(axis=0)
    if len(added) < least or not is_same_pair[has_two].all():
        return before
    bounds = np.array(bounds_of(X))
    own = rows_of(added, bounds[:, None], before.pairs)
    if own.is_dominated(np.arange(len(added))):
        return before
    n_cells = len(before.cells)
    return Version(
        X=X,
        batches=np.concatenate([before.batches, np.full(len(added), len(before.bounds))]),
        bounds=np.concatenate([before.bounds, bounds[None]]),
        pairs=before.pairs,
        cells=Cells(
            of_row=np.concatenate([before.cells.of_row, np.full(len(added), n_cells)]),
            rarer=np.concatenate([before.cells.rarer, one_cell(own).rarer]),
        ),
    )


# --- on disk ---


class CellsFile:
    """The cells of a version on disk: there before an answer leaves, and one process at a time.

    Parameters
    ----------
    folder : Path
        Of the site.
    digest : str
        Of the version: cells of another one do not count.
    first : Cells or None
        What was answered before this version; None: nothing.
    """

    def __init__(self, folder: Path, digest: str, first: Cells | None) -> None:
        self.folder = folder
        self.digest = digest
        self.first = first

    def read(self) -> Cells | None:
        path = self.folder / PARTITION
        if path.exists():
            header, blobs = read_blobs(path)
            if header["version"] == self.digest:
                return cells_in(header, blobs)
        return self.first

    def update(self, change: Callable[[Cells | None], Cells]) -> Cells:
        with locked(self.folder / LOCK):
            before = self.read()
            after = change(before)
            if after is not before:
                header = {"version": self.digest, "shape": after.rarer.shape}
                write_blobs(self.folder / PARTITION, header, blobs_of(after))
        return after


def blobs_of(cells: Cells) -> dict[str, bytes]:
    return {"of_row": cells.of_row.astype("<i8").tobytes(), "rarer": cells.rarer.astype("<i8").tobytes()}


def cells_in(header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Cells:
    of_row, rarer = (np.frombuffer(blobs[name], dtype="<i8").astype(np.int64) for name in ("of_row", "rarer"))
    return Cells(of_row=of_row, rarer=rarer.reshape(header["shape"]))


def keep_version(folder: Path, version: Version, columns: tuple[str, ...], *, is_answered: bool) -> None:
    """Write the rows that the site answers about from now on; on the disk, whole, when this returns."""
    header = {
        "columns": columns,
        "shape": version.cells.rarer.shape,
        "n_batches": len(version.bounds),
        "is_answered": is_answered,
    }
    arrays = {name: getattr(version, name) for name in ARRAYS}
    blobs = {name: np.ascontiguousarray(array, dtype="<f8").tobytes() for name, array in arrays.items()}
    write_blobs(folder / VERSION, header, blobs | blobs_of(version.cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a site's disk holds of the rows that it answers about."""

    version: Version
    columns: tuple[str, ...]
    digest: str
    store: CellsFile
    is_answered: bool  # whether anything was

    def partition(self, least: int) -> JointPartition:
        return JointPartition(self.version.rows(), least, self.store)

    def now(self) -> Version:
        """The version with the cells of all answers up to now."""
        cells = self.store.read()
        return self.version if cells is None else Version(**{**fields_of(self.version), "cells": cells})


def fields_of(version: Version) -> dict[str, Any]:
    return {name: getattr(version, name) for name in Version.__slots__}


def read_version(folder: Path) -> Kept | None:
    """What the folder holds of the rows that are answered about, if it does."""
    if not (folder / VERSION).exists():
        return None
    header, blobs = read_blobs(folder / VERSION)
    columns = tuple(header["columns"])
    d = len(columns)
    X, batches, bounds, pairs = (
        np.frombuffer(blobs[name], dtype="<f8") for name in ("X", "batches", "bounds", "pairs")
    )
    version = Version(
        X=X.reshape(-1, d).astype(float),
        batches=batches.astype(np.int64),
        bounds=bounds.reshape(header["n_batches"], 2, d).astype(float),
        pairs=pairs.reshape(2, d).astype(float),
        cells=cells_in(header, blobs),
    )
    digest = digest_of(header, blobs)
    store = CellsFile(folder, digest, version.cells if header["is_answered"] else None)
    is_answered = header["is_answered"] or store.read() is not None
    return Kept(version=version, columns=columns, digest=digest, store=store, is_answered=is_answered)


def digest_of(header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256(json.dumps([header["columns"], header["shape"]]).encode())
    for name in ("X", "batches", "bounds", "of_row", "rarer"):
        whole.update(blobs[name])
    return whole.hexdigest()
