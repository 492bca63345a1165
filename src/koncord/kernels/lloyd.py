"""K-means as several aggregators use it: seeding (Arthur and Vassilvitskii, 2007), Lloyd's passes, the best of starts.

Ties go to the lowest index. A center that attracts no row keeps its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from koncord._validation import check_count, owner_name
from koncord.errors import MessageError
from koncord.kernels.assign import means_by_label, nearest
from koncord.types import FloatArray, IntArray

MAX_PASSES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Centers and the rows they are the means of: `labels` made the centers, later rows may lie nearer to another."""

    centers: FloatArray  # (k, n_features)
    labels: IntArray  # (n_samples,)

    @property
    def counts(self) -> IntArray:
        """Rows each center is the mean of, (k,); 0 for a center that kept its place."""
        return np.bincount(self.labels, minlength=len(self.centers))


def kmeans(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    weights: FloatArray | None = None,
    n_init: int = 1,
    starts: Sequence[FloatArray] = (),
    max_iter: int = MAX_PASSES,
) -> Partition:
    """Cheapest of Lloyd's results from the given `starts` and from `n_init` seedings; ties to the first."""
    seedings = (X[kpp(X, k, rng, weights)] for _ in range(n_init))
    found = [lloyd(X, start, weights, max_iter=max_iter) for start in (*starts, *seedings)]
    return min(found, key=lambda partition: cost(X, partition.centers, weights))


def kpp(X: FloatArray, k: int, rng: np.random.Generator, weights: FloatArray | None = None) -> IntArray:
    """Rows that k-means++ draws as seeds: `k` of them, or fewer if every row coincides with a seed before."""
    mass = np.ones(len(X)) if weights is None else weights
    squared = np.full(len(X), np.inf)
    rows: list[int] = []
    while len(rows) < k and mass.any():
        below = np.cumsum(mass)
        rows.append(int(np.searchsorted(below, rng.random() * below[-1], side="right")))
        squared = np.minimum(squared, cdist(X[rows[-1:]], X, "sqeuclidean")[0])
        mass = squared if weights is None else weights * squared
    return np.array(rows, dtype=np.int64)


def lloyd(
    X: FloatArray,
    centers: FloatArray,
    weights: FloatArray | None = None,
    *,
    max_iter: int = MAX_PASSES,
    tol: float = 0.0,
) -> Partition:
    """At most `max_iter` passes of assignment and mean; earlier if no label changed or the centers hardly move.

    They hardly move if their summed squared shift is at most `tol` times the mean variance of a feature of X.
    """
    still = tol * float(X.var(axis=0).mean()) if tol else 0.0
    labels = nearest(X, centers)
    for n_passes in range(1, max_iter + 1):
        moved = means_by_label(X, labels, weights, otherwise=centers)
        shift = float(((moved - centers) ** 2).sum())
        centers = moved
        if shift <= still or n_passes == max_iter:
            break
        attracted = nearest(X, centers)
        if np.array_equal(attracted, labels):
            break
        labels = attracted
    return Partition(centers=centers, labels=labels)


def cost(X: FloatArray, centers: FloatArray, weights: FloatArray | None = None) -> float:
    """(Weighted) sum over the rows of the squared distance to the nearest center."""
    gaps = X - centers[nearest(X, centers)]
    squared = np.vecdot(gaps, gaps)
    return float(squared.sum() if weights is None else weights @ squared)


def stacked_rows(parts: Mapping[str, FloatArray], n_features: int) -> FloatArray:
    """Rows of all clients, in name order; `MessageError` for a client whose rows have other columns."""
    for client, part in parts.items():
        if part.shape[1] != n_features:
            raise MessageError(
                f"client {client!r} sent rows of {part.shape[1]} features; the others have {n_features}."
            )
    return np.concatenate([np.empty((0, n_features)), *parts.values()])


def unstacked(values: IntArray, parts: Mapping[str, FloatArray]) -> dict[str, IntArray]:
    """The inverse of `stacked_rows` for one value a row: the values of each client."""
    ends = np.cumsum([len(part) for part in parts.values()])
    return dict(zip(parts, np.split(values, ends[:-1]), strict=True))


def check_n_clusters(value: Any, *, owner: object) -> int:
    """The global number of clusters an aggregator was given, which it cannot do without."""
    if value is None:
        raise ValueError(
            f"'n_clusters' of {owner_name(owner)} is missing: it needs the global number of clusters; "
            "FedGEM and SPAHM find it themselves."
        )
    return check_count("n_clusters", value, owner=owner)
