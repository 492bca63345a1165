"""Which cluster each row of a table belongs to, how far it lies from it, and which cluster comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from koncord._jobs import spread
from koncord._words import text_table
from koncord.model.globalmodel import GlobalModel
from koncord.types import FloatArray, IntArray

# Distances held at a time: 64 MB.
MOST_DISTANCES = 1 << 23
LINES_AT_ONCE = 1 << 16
HEADER = ("row", "cluster", "distance", "runner_up", "runner_up_distance")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignments:
    """Of every row, in the order of the table; distances are those on the scaled columns.

    Where the shape of the clusters is known, each distance is in the metric of its cluster (Mahalanobis).
    """

    labels: IntArray  # (n,) -1 of an outlier, where these were asked for
    distances: FloatArray  # (n,) to the center of the label
    runner_ups: IntArray | None  # (n,) the cluster that comes next; None where there is one only
    runner_up_distances: FloatArray | None  # (n,)

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


def distances_in(model: GlobalModel, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distances of scaled rows to all clusters, each in its own metric, and what the most likely one is least by."""
    if model.gaussians is None:
        distances = model.distances_of(Z)
        return distances, distances.copy()
    squared = model.gaussians.squared_distances(Z)
    return np.sqrt(squared), -model.gaussians.log_joint_at(squared)


def as_csv(found: Assignments) -> str:
    """One line a row, numbered from 1; the last two fields stay empty where there is one cluster only."""
    starts = range(0, len(found), LINES_AT_ONCE)
    return "".join([",".join(HEADER) + "\n", *spread(partial(lines_of, found), starts)])


def lines_of(found: Assignments, start: int) -> str:
    """The lines of some rows, from `start` on: one format for all of them, for that is what costs least."""
    part = slice(start, start + LINES_AT_ONCE)
    labels = found.labels[part].tolist()
    columns: list[Sequence[Any]] = [range(start + 1, start + len(labels) + 1), labels, found.distances[part].tolist()]
    line = "%d,%d,%.6g,,\n"
    if found.runner_ups is not None and found.runner_up_distances is not None:
        columns += [found.runner_ups[part].tolist(), found.runner_up_distances[part].tolist()]
        line = "%d,%d,%.6g,%d,%.6g\n"
    values: list[Any] = [None] * (len(columns) * len(labels))
    for at, column in enumerate(columns):
        values[at :: len(columns)] = column
    return line * len(labels) % tuple(values)


def assignments_record(found: Assignments, n_clusters: int) -> dict[str, Any]:
    """For a machine."""
    return {
        "labels": found.labels,
        "distances": found.distances,
        "runner_ups": found.runner_ups,
        "runner_up_distances": found.runner_up_distances,
        "n_clusters": n_clusters,
        "counts": np.bincount(found.labels[found.labels >= 0], minlength=n_clusters),
        "outliers": int((found.labels < 0).sum()),
        "rows": len(found),
    }


def as_counts_text(found: Assignments, n_clusters: int) -> str:
    """For a person: how many rows each cluster got, and how far they lie from its center."""
    inside = found.labels >= 0
    counts = np.bincount(found.labels[inside], minlength=n_clusters)
    distances = np.bincount(found.labels[inside], found.distances[inside], minlength=n_clusters) / np.maximum(counts, 1)
    lines = [
        (str(number), f"{count:,}", f"{count / len(found):.1%}", f"{distance:.3f}" if count else "none", "")
        for number, (count, distance) in enumerate(zip(counts.tolist(), distances.tolist(), strict=True))
    ]
    if not inside.all():
        n_out = int((~inside).sum())
        mean = float(found.distances[~inside].mean())
        lines.append(("-1", f"{n_out:,}", f"{n_out / len(found):.1%}", f"{mean:.3f}", "outliers"))
    return text_table(("cluster", "rows", "share", "mean distance", ""), lines)
