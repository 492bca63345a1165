"""Which cluster each row belongs to, how far it lies from it, which cluster comes next, and what looks wrong in it."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from koncord._jobs import spread
from koncord._words import text_table
from koncord.data.files import Table
from koncord.model.globalmodel import GlobalModel
from koncord.model.outliers import FAR_OFF, FEW_FAR_OFF, MOST_FAR_OFF
from koncord.runs.record import Crowd, OutlierCounts, RunRecord
from koncord.types import BoolArray, FloatArray, IntArray

# Distances held at a time: 64 MB.
MOST_DISTANCES = 1 << 23
LINES_AT_ONCE = 1 << 16
# Blocks of lines that are labeled at a time, where there are cores for them: about a million rows.
BLOCKS_AT_ONCE = 16
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

    def words(self, start: int, n_rows: int) -> list[str]:
        """Of so many rows from `start` on the name of that column, for a CSV file; empty where there is none."""
        found = [""] * n_rows
        first, last = np.searchsorted(self.rows, (start, start + n_rows))
        for row, column in zip(self.rows[first:last].tolist(), self.column[first:last].tolist(), strict=True):
            found[row - start] = csv_field(self.columns[column])
        return found


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
    labels = np.empty(len(Z), dtype=np.int64)
    distances, runner_ups, runner_up_distances = np.empty(len(Z)), np.empty(len(Z), dtype=np.int64), np.empty(len(Z))
    step = max(MOST_DISTANCES // model.n_clusters, 1) if model.gaussians is None else model.gaussians.rows_at_once
    for start in range(0, len(Z), step):
        part = slice(start, start + step)
        to_centers, order = distances_in(model, Z[part])
        rows = np.arange(len(to_centers))
        labels[part] = model.assign(Z[part]) if model.gaussians is None else order.argmin(axis=1)
        distances[part] = to_centers[rows, labels[part]]
        order[rows, labels[part]] = np.inf
        runner_ups[part] = order.argmin(axis=1)
        runner_up_distances[part] = to_centers[rows, runner_ups[part]]
    has_others = model.n_clusters > 1
    return Assignments(
        labels=labels if quantile is None else model.without_outliers(Z, labels, quantile),
        distances=distances,
        runner_ups=runner_ups if has_others else None,
        runner_up_distances=runner_up_distances if has_others else None,
    )


def far_off_rows(model: GlobalModel, table: Table, labels: IntArray, site: str | None = None) -> FarOff | None:
    """The rows of a table with a value far off in their cluster; None where the model has no shape of the clusters."""
    beyond = model.far_off(table, labels, site)
    if beyond is None:
        return None
    columns = model.plan.columns
    is_far = beyond > FAR_OFF
    counts = np.zeros((model.n_clusters, len(columns)), dtype=np.int64)
    np.add.at(counts, labels, is_far)
    rows = np.bincount(labels, minlength=model.n_clusters)
    is_crowded = counts > np.maximum(MOST_FAR_OFF * rows, FEW_FAR_OFF)[:, None]
    is_outlier = is_far & ~is_crowded[labels]
    found = np.flatnonzero(is_outlier.any(axis=1))
    return FarOff(
        columns=columns,
        rows=found,
        column=np.where(is_outlier, beyond, 0.0)[found].argmax(axis=1) if len(found) else found,
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


def distances_in(model: GlobalModel, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distances of scaled rows to all clusters, each in its own metric, and what the most likely one is least by."""
    if model.gaussians is None:
        distances = model.distances_of(Z)
        return distances, distances.copy()
    squared, joint = model.gaussians.judged(Z)
    return np.sqrt(squared), -joint


def as_csv(found: Assignments) -> str:
    """One line a row, numbered from 1; what is known of other clusters stays empty where there is one only."""
    starts = range(0, len(found), LINES_AT_ONCE)
    return "".join([csv_header(has_outliers=found.outliers is not None), *spread(partial(lines_of, found), starts)])


def csv_header(*, has_outliers: bool = False) -> str:
    return ",".join((*HEADER, OUTLIER_HEADER) if has_outliers else HEADER) + "\n"


def lines_of(found: Assignments, start: int, *, before: int = 0) -> str:
    """The lines of some rows, from `start` on: one format for all of them, for that is what costs least.

    `before` is the number of rows that came before these in other batches.
    """
    part = slice(start, start + LINES_AT_ONCE)
    labels = found.labels[part].tolist()
    first = before + start + 1
    columns: list[Sequence[Any]] = [range(first, first + len(labels)), labels, found.distances[part].tolist()]
    line = "%d,%d,%.6g,,"
    if found.runner_ups is not None and found.runner_up_distances is not None:
        columns += [found.runner_ups[part].tolist(), found.runner_up_distances[part].tolist()]
        line = "%d,%d,%.6g,%d,%.6g"
    if found.outliers is not None:
        columns.append(found.outliers.words(start, len(labels)))
        line += ",%s"
    line += "\n"
    values: list[Any] = [None] * (len(columns) * len(labels))
    for at, column in enumerate(columns):
        values[at :: len(columns)] = column
    return line * len(labels) % tuple(values)


def counting_outliers(record: RunRecord, found: Sequence[Assignments]) -> RunRecord:
    """The record of a run with the outliers of its tables."""
    return counting(record, [each.outliers for each in found])


def counting(record: RunRecord, found: Sequence[FarOff | None]) -> RunRecord:
    """The same from what was found in each table; the record as it is where nothing was looked for."""
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
    """Some rows of a table, as the model's plan makes them, and how many came before."""

    Z: FloatArray
    before: int


def write_labels(
    file: IO[bytes], model: GlobalModel, batches: Iterable[FloatArray], *, quantile: float | None = None
) -> LabelCounts:
    """Write the labels of rows that come batch by batch, as `as_csv` has them, and count them.

    Parameters
    ----------
    file : file
        Open, to write bytes to.
    model : GlobalModel
        The model.
    batches : iterable of array (n, n_features)
        Rows as the model's plan makes them.
    quantile : float or None, default None
        With one, a row beyond it is an outlier.
    """
    file.write(csv_header().encode())
    k = model.n_clusters
    total = LabelCounts(rows=np.zeros(k + 1, dtype=np.int64), distances=np.zeros(k + 1))
    for blocks in several(blocks_of(batches), BLOCKS_AT_ONCE):
        for lines, counted in spread(partial(labeled_block, model, quantile), blocks):
            file.write(lines)
            total += counted
    return total


def labeled_block(model: GlobalModel, quantile: float | None, block: Block) -> tuple[bytes, LabelCounts]:
    """The lines of a block, and what they count."""
    found = assign_scaled(model, block.Z, quantile=quantile)
    return lines_of(found, 0, before=block.before).encode(), label_counts(found, model.n_clusters)


def blocks_of(batches: Iterable[FloatArray]) -> Iterator[Block]:
    """Blocks of at most `LINES_AT_ONCE` rows."""
    before = 0
    for Z in batches:
        for start in range(0, len(Z), LINES_AT_ONCE):
            yield Block(Z[start : start + LINES_AT_ONCE], before + start)
        before += len(Z)


def several(blocks: Iterable[Block], n: int) -> Iterator[list[Block]]:
    """The blocks, n at a time."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if len(waiting) == n:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
