"""Which cluster each row belongs to, how far it lies from it, which cluster comes next, and what looks wrong in it."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from koncord._jobs import in_order
from koncord._words import text_table
from koncord.data.batches import BatchedTable, Columns, check_batch, counted_columns, in_rows
from koncord.data.files import Table
from koncord.kernels.built import compiled_module
from koncord.kernels.gaussians import TwoNearest
from koncord.kernels.labeling import FarValues
from koncord.model.globalmodel import GlobalModel
from koncord.model.outliers import FEW_FAR_OFF, MOST_FAR_OFF
from koncord.runs.record import Crowd, OutlierCounts, RunRecord
from koncord.types import BoolArray, FloatArray, IntArray

_labeling = compiled_module("_labeling")
# Distances held at a time: 64 MB.
MOST_DISTANCES = 1 << 23
LINES_AT_ONCE = 1 << 16
MOVED_AT_ONCE = 1 << 20
HEADER = ("row", "cluster", "distance", "runner_up", "runner_up_distance")
OUTLIER_HEADER = "outlier"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FarOff:
    """The rows of one table that have a value far off in their cluster."""

    columns: tuple[str, ...]
    rows: IntArray  # rising
    column: IntArray  # of each of these, the column whose value is farthest off
    # Rows of a cluster that are far off in a column and too many to be outliers, by cluster and column.
    crowded: Mapping[tuple[int, str], int]

    def mask(self, n_rows: int) -> BoolArray:
        """Whether every row (n,) is one of them."""
        return np.isin(np.arange(n_rows), self.rows)

    def words(self) -> list[bytes]:
        """Of each of them the name of that column, for a CSV file."""
        fields = [csv_field(column).encode() for column in self.columns]
        return [fields[column] for column in self.column.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignments:
    """Of every row, in the order of the table; distances are those on the scaled columns.

    Where the shape of the clusters is known, each distance is in the metric of its cluster (Mahalanobis).
    """

    labels: IntArray  # (n,) -1 of an outlier, where these were asked for
    distances: FloatArray  # (n,) to the center of the label
    runner_ups: IntArray | None  # (n,) the cluster that comes next; None where there is one only
    runner_up_distances: FloatArray | None  # (n,)
    outliers: FarOff | None = None  # rows with a value far off, where these were looked for

    def __len__(self) -> int:
        return len(self.labels)


def assign(model: GlobalModel, X: FloatArray, *, quantile: float | None = None) -> Assignments:
    """Assign every row of X (n, d), columns in the model's order and in the units of the sites.

    With a `quantile`, a row beyond it is an outlier; distances stay those to the cluster that it is nearest to.
    """
    return assign_scaled(model, model.scaled(X), quantile=quantile)


def assign_scaled(model: GlobalModel, Z: FloatArray, *, quantile: float | None = None) -> Assignments:
    """Assign every row of Z (n, n_features), as the model's plan makes it."""
    if model.gaussians is None:
        found = assignments(model, *by_centers(model, Z))
    else:
        found = by_shapes(model, model.gaussians.two_nearest(Z))
    return found if quantile is None else replace(found, labels=model.without_outliers(Z, found.labels, quantile))


def by_shapes(model: GlobalModel, found: TwoNearest) -> Assignments:
    """The two most likely clusters of every row, each with its distance."""
    labels, squared, runner_ups, runner_up_squared = found
    return assignments(model, labels, np.sqrt(squared), runner_ups, np.sqrt(runner_up_squared))


def assignments(
    model: GlobalModel, labels: IntArray, distances: FloatArray, runner_ups: IntArray, runner_up_distances: FloatArray
) -> Assignments:
    has_others = model.n_clusters > 1
    return Assignments(
        labels=labels,
        distances=distances,
        runner_ups=runner_ups if has_others else None,
        runner_up_distances=runner_up_distances if has_others else None,
    )


def by_centers(model: GlobalModel, Z: FloatArray) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """The nearest center of every scaled row and the one after it, each with its distance."""
    labels, runner_ups = np.empty(len(Z), dtype=np.int64), np.empty(len(Z), dtype=np.int64)
    distances, runner_up_distances = np.empty(len(Z)), np.empty(len(Z))
    step = max(MOST_DISTANCES // model.n_clusters, 1)
    for start in range(0, len(Z), step):
        part = slice(start, start + step)
        to_centers = model.distances_of(Z[part])
        order, rows = to_centers.copy(), np.arange(len(to_centers))
        labels[part] = model.assign(Z[part])
        distances[part] = to_centers[rows, labels[part]]
        order[rows, labels[part]] = np.inf
        runner_ups[part] = order.argmin(axis=1)
        runner_up_distances[part] = to_centers[rows, runner_ups[part]]
    return labels, distances, runner_ups, runner_up_distances


def far_off_rows(model: GlobalModel, table: Table, labels: IntArray, site: str | None = None) -> FarOff | None:
    """The rows of a table with a value far off in their cluster; None where the model has no shape of the clusters."""
    found = model.far_values(table.X, table.columns, labels, site)
    if found is None:
        return None
    return without_crowds(found, model.plan.columns, np.bincount(labels, minlength=model.n_clusters))


def without_crowds(far: FarValues, columns: tuple[str, ...], held: IntArray) -> FarOff:
    """The rows with values far off, without the crowds: too many rows of one cluster that are far off in one column.

    Parameters
    ----------
    far : FarValues
        Of all rows of a table.
    columns : tuple of str
        Names of the columns of numbers.
    held : array (n_clusters,)
        How many rows each cluster has.
    """
    counts = np.zeros((len(held), len(columns)), dtype=np.int64)
    np.add.at(counts, (far.labels, far.columns), 1)
    is_crowded = counts > np.maximum(MOST_FAR_OFF * held, FEW_FAR_OFF)[:, None]
    own = np.flatnonzero(~is_crowded[far.labels, far.columns])
    farthest = own[np.lexsort((far.columns[own], -far.beyond[own], far.rows[own]))]  # of each row first
    rows, first = np.unique(far.rows[farthest], return_index=True)
    return FarOff(
        columns=columns,
        rows=rows,
        column=far.columns[farthest[first]],
        crowded={(cluster, columns[at]): int(counts[cluster, at]) for cluster, at in np.argwhere(is_crowded).tolist()},
    )


def outlier_counts(found: Sequence[FarOff]) -> OutlierCounts:
    """The outliers of several tables, counted."""
    by_column: dict[str, int] = {}
    crowded: dict[tuple[int, str], int] = {}
    for each in found:
        for at, n in enumerate(np.bincount(each.column, minlength=len(each.columns)).tolist()):
            by_column[each.columns[at]] = by_column.get(each.columns[at], 0) + n
        for place, n in each.crowded.items():
            crowded[place] = crowded.get(place, 0) + n
    return OutlierCounts(
        by_column={column: n for column, n in by_column.items() if n},
        crowded=tuple(
            Crowd(cluster=cluster, column=column, rows=n) for (cluster, column), n in sorted(crowded.items())
        ),
    )


def as_csv(found: Assignments) -> str:
    """One line a row, numbered from 1; what is known of other clusters stays empty where there is one only."""
    return csv_bytes(found).decode()


def csv_bytes(found: Assignments) -> bytes:
    """The same as bytes."""
    header = csv_header(has_outliers=found.outliers is not None).encode()
    words = [] if found.outliers is None else found.outliers.words()
    blocks = in_order(partial(lines_of, found, words), range(0, len(found), LINES_AT_ONCE))
    return b"".join([header, *blocks])


def csv_header(*, has_outliers: bool = False) -> str:
    return ",".join((*HEADER, OUTLIER_HEADER) if has_outliers else HEADER) + "\n"


def lines_of(found: Assignments, words: Sequence[bytes], start: int) -> bytes:
    """The lines of some rows of a table, from `start` on; `words` are those of its outliers."""
    stop = start + LINES_AT_ONCE
    if found.outliers is None:
        return written(found, slice(start, stop), start + 1).text
    first, last = np.searchsorted(found.outliers.rows, (start, stop))
    lines = written(found, slice(start, stop), start + 1, found.outliers.rows[first:last] - start)
    return b"".join(pieces(lines.text, zip(lines.ends.tolist(), words[first:last], strict=True)))


class Lines(NamedTuple):
    """Lines of CSV, and where those of some rows end."""

    text: bytes
    ends: IntArray


def written(found: Assignments, part: slice, first: int, rows: IntArray | None = None) -> Lines:
    """The lines of some rows, numbered from `first`: in C where it was built, else in one format for all of them.

    With `rows`, rising and counted from the start of the part, every line has an empty field at its end, and `ends` is
    where the lines of these rows end: what is in the field may be known later.
    """
    ends = np.empty(0 if rows is None else len(rows), dtype=np.int64)
    others = [each for each in (found.runner_ups, found.runner_up_distances) if each is not None]
    columns = [np.ascontiguousarray(each[part]) for each in (found.labels, found.distances, *others)]
    if _labeling is not None:
        padded = columns if others else [*columns, columns[0][:0], columns[1][:0]]
        places = ends if rows is None else np.ascontiguousarray(rows)
        return Lines(_labeling.lines(first, *padded, rows is not None, places, ends), ends)
    line = ("%d,%d,%.6g,%d,%.6g" if others else "%d,%d,%.6g,,") + ("\n" if rows is None else ",\n")
    n = len(columns[0])
    values: list[Any] = [None] * ((1 + len(columns)) * n)
    for at, column in enumerate([range(first, first + n), *(each.tolist() for each in columns)]):
        values[at :: 1 + len(columns)] = column
    text = (line * n % tuple(values)).encode()
    if rows is not None and len(rows):
        ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))[rows]
    return Lines(text, ends)


def pieces(text: bytes, words: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """A text with words put into it, each where it is said."""
    start = 0
    for end, word in words:
        yield text[start:end]
        yield word
        start = end
    yield text[start:]


def counting(record: RunRecord, found: Sequence[FarOff | None]) -> RunRecord:
    """The record of a run with the outliers of its tables; as it is where nothing was looked for."""
    looked_for = [each for each in found if each is not None]
    return replace(record, outliers=outlier_counts(looked_for)) if looked_for else record


def csv_field(text: str) -> str:
    """Text as one field of a CSV file."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([text])
    return written.getvalue()


def labeled(model: GlobalModel, table: Table, site: str | None = None, *, quantile: float | None = None) -> Assignments:
    """Assign every row of a table, and look for values that are far off in it.

    Parameters
    ----------
    model : GlobalModel
        The clusters.
    table : Table
        The rows.
    site : str or None, default None
        The site that they are of.
    quantile : float or None, default None
        A row beyond it is an outlier, and has no cluster; None gives every row one.
    """
    Z = model.rows(table, site)
    found = assign_scaled(model, Z)
    outliers = far_off_rows(model, table, found.labels, site)
    labels = found.labels if quantile is None else model.without_outliers(Z, found.labels, quantile)
    return replace(found, labels=labels, outliers=outliers)


def assignments_record(found: Assignments, n_clusters: int) -> dict[str, Any]:
    """For a machine."""
    return {
        "labels": found.labels,
        "distances": found.distances,
        "runner_ups": found.runner_ups,
        "runner_up_distances": found.runner_up_distances,
        **counts_record(label_counts(found, n_clusters)),
        "far_off": None
        if found.outliers is None
        else {
            str(row): found.outliers.columns[column]
            for row, column in zip(found.outliers.rows.tolist(), found.outliers.column.tolist(), strict=True)
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelCounts:
    """How many rows each cluster got, and how far they lie from its center in all; the outliers come last."""

    rows: IntArray  # (n_clusters + 1,)
    distances: FloatArray  # (n_clusters + 1,) sums

    def __add__(self, other: "LabelCounts") -> "LabelCounts":
        return LabelCounts(rows=self.rows + other.rows, distances=self.distances + other.distances)


def label_counts(found: Assignments, n_clusters: int) -> LabelCounts:
    at = np.where(found.labels < 0, n_clusters, found.labels)
    return LabelCounts(
        rows=np.bincount(at, minlength=n_clusters + 1),
        distances=np.bincount(at, found.distances, minlength=n_clusters + 1).astype(np.float64),
    )


def counts_record(counted: LabelCounts) -> dict[str, Any]:
    """For a machine: the counts alone."""
    return {
        "n_clusters": len(counted.rows) - 1,
        "counts": counted.rows[:-1],
        "outliers": int(counted.rows[-1]),
        "rows": int(counted.rows.sum()),
    }


def as_counts_text(counted: LabelCounts) -> str:
    """For a person: how many rows each cluster got, and how far they lie from its center."""
    n, means = int(counted.rows.sum()), counted.distances / np.maximum(counted.rows, 1)
    lines = [
        (str(number), f"{count:,}", f"{count / n:.1%}", f"{mean:.3f}" if count else "none", "")
        for number, (count, mean) in enumerate(zip(counted.rows[:-1].tolist(), means[:-1].tolist(), strict=True))
    ]
    if counted.rows[-1]:
        n_out = int(counted.rows[-1])
        lines.append(("-1", f"{n_out:,}", f"{n_out / n:.1%}", f"{means[-1]:.3f}", "outliers"))
    return text_table(("cluster", "rows", "share", "mean distance", ""), lines)


# --- tables that are read batch by batch ---


class Block(NamedTuple):
    """Some rows of a table, column by column as they came, and how many came before."""

    columns: Columns
    before: int


class LabeledBlock(NamedTuple):
    """The lines of a block, what they count, and values that are far off, where these are looked for."""

    lines: Lines
    counts: LabelCounts
    held: IntArray  # (n_clusters,) rows of each cluster, outliers with the nearest
    far: FarValues | None
    at: IntArray  # rows of the block with such values


class Labeled(NamedTuple):
    """What was found in a table that was labeled batch by batch."""

    counts: LabelCounts
    outliers: FarOff | None


def write_labels(
    file: IO[bytes],
    model: GlobalModel,
    table: BatchedTable,
    site: str | None = None,
    *,
    quantile: float | None = None,
) -> Labeled:
    """Write the labels of a table that is read batch by batch, as `as_csv` has them, and count them: one pass.

    Which rows have a value far off is known at the end: until then the places where a word may come are held.

    Parameters
    ----------
    file : file
        Open, to write bytes to and to read them.
    model : GlobalModel
        The model.
    table : BatchedTable
        The table.
    site : str or None, default None
        The site that it is of.
    quantile : float or None, default None
        With one, a row beyond it is an outlier.
    """
    k, has_outliers = model.n_clusters, model.gaussians is not None
    n_bytes = file.write(csv_header(has_outliers=has_outliers).encode())
    total, held = LabelCounts(rows=np.zeros(k + 1, dtype=np.int64), distances=np.zeros(k + 1)), np.zeros(k, np.int64)
    work = partial(labeled_block, BlockLabeler(model, table, site), quantile)
    far: list[FarValues] = []
    ends = [np.empty((0, 2), dtype=np.int64)]  # rows, and where their lines end
    for block in in_order(work, blocks_of(table)):
        total += block.counts
        held += block.held
        if block.far is not None:
            far.append(block.far)
            ends.append(np.column_stack([block.at, block.lines.ends + n_bytes]))
        n_bytes += file.write(block.lines.text)
    if not has_outliers:
        return Labeled(total, None)
    outliers = without_crowds(joined(far), model.plan.columns, held)
    places = np.concatenate(ends)
    at = places[np.searchsorted(places[:, 0], outliers.rows), 1]
    insert(file, list(zip(at.tolist(), outliers.words(), strict=True)), n_bytes)
    return Labeled(total, outliers)


class BlockLabeler:
    """What labels the blocks of one table, and finds their values far off."""

    def __init__(self, model: GlobalModel, table: BatchedTable, site: str | None) -> None:
        self.model, self.table, self.site = model, table, site
        self.by_columns = model.column_labeler(table.columns, site)

    def __call__(self, block: Block) -> tuple[Assignments, FarValues | None]:
        """Assign the rows of a block, in one step in C where that can be; values far off count rows from its first."""
        found = None if self.by_columns is None else self.by_columns(block.columns)
        if found is not None:
            return by_shapes(self.model, found.nearest), found.far
        X = in_rows(block.columns)
        check_batch(X, self.table, block.before, may_miss=self.model.plan.missing is not None)
        assigned = assign_scaled(self.model, self.scaled(X))
        return assigned, self.model.far_values(X, self.table.columns, assigned.labels, self.site)

    def scaled(self, X: FloatArray) -> FloatArray:
        return self.model.scaled_batch(X, self.table.columns, self.site)


def labeled_block(label: BlockLabeler, quantile: float | None, block: Block) -> LabeledBlock:
    """Labels of a block of rows, and what they count."""
    k = label.model.n_clusters
    found, far = label(block)
    held = np.bincount(found.labels, minlength=k)
    if quantile is not None:
        Z = label.scaled(in_rows(block.columns))
        found = replace(found, labels=label.model.without_outliers(Z, found.labels, quantile))
    if far is None:
        lines, at = written(found, slice(None), block.before + 1), np.empty(0, dtype=np.int64)
    else:
        at = np.unique(far.rows)
        lines = written(found, slice(None), block.before + 1, at)
        far = replace(far, rows=far.rows + block.before)
    return LabeledBlock(lines, label_counts(found, k), held, far, at + block.before)


def labeled_batches(model: GlobalModel, table: BatchedTable, site: str | None = None) -> tuple[IntArray, FarOff | None]:
    """The labels (n,) of a table that is read batch by batch, and its rows with a value far off: one pass."""
    label = BlockLabeler(model, table, site)
    labels, far = [np.empty(0, dtype=np.int64)], []
    for block in blocks_of(table):
        found, own = label(block)
        labels.append(found.labels)
        if own is not None:
            far.append(replace(own, rows=own.rows + block.before))
    whole = np.concatenate(labels)
    if model.gaussians is None:
        return whole, None
    return whole, without_crowds(joined(far), model.plan.columns, np.bincount(whole, minlength=model.n_clusters))


def joined(found: Sequence[FarValues]) -> FarValues:
    """The values far off of all blocks."""
    nowhere = np.empty(0, dtype=np.int64)
    return FarValues(
        rows=np.concatenate([nowhere, *(each.rows for each in found)]),
        columns=np.concatenate([nowhere, *(each.columns for each in found)]),
        beyond=np.concatenate([np.empty(0), *(each.beyond for each in found)]),
        labels=np.concatenate([nowhere, *(each.labels for each in found)]),
    )


def insert(file: IO[bytes], words: Sequence[tuple[int, bytes]], n_bytes: int) -> None:
    """Put words into a file of so many bytes, each where it is said, rising: from the last on, so that room is made."""
    stop, shift = n_bytes, sum(len(word) for _, word in words)
    for at, word in reversed(words):
        move(file, at, stop, shift)
        shift -= len(word)
        file.seek(at + shift)
        file.write(word)
        stop = at
    file.seek(0, os.SEEK_END)


def move(file: IO[bytes], start: int, stop: int, by: int) -> None:
    """Move a part of a file forward, the end of it first."""
    while stop > start:
        n = min(stop - start, MOVED_AT_ONCE)
        file.seek(stop - n)
        moved = file.read(n)
        file.seek(stop - n + by)
        file.write(moved)
        stop -= n


def blocks_of(table: BatchedTable) -> Iterator[Block]:
    """Blocks of at most `LINES_AT_ONCE` rows: one pass, with its progress."""
    for columns, before in counted_columns(table):
        for start in range(0, len(columns[0]), LINES_AT_ONCE):
            yield Block([each[start : start + LINES_AT_ONCE] for each in columns], before + start)
