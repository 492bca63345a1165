"""K-means in NumPy, and k-means that grows by splitting: the ground of the estimators that end with a partition.

scikit-learn's `KMeans` adds up over its threads, so its last digits, and any split they decide, depend on the number of
cores. One matrix product a block of rows takes the same time on one core and always rounds alike.
"""

from collections.abc import Callable, Sequence
from math import log
from typing import NamedTuple

import numpy as np
from sklearn.cluster import kmeans_plusplus

from koncord._progress import report
from koncord._random import draw_seed
from koncord.estimate.asm import floored
from koncord.estimate.mixture import SphericalMixtureMixin
from koncord.kernels.assign import nearest, sums_by_label
from koncord.kernels.splitting import ROUNDING
from koncord.types import BoolArray, Components, FloatArray, IntArray, SphericalMixture

# Lloyd steps of one run; a run that stops at any tolerance in use takes far fewer.
MAX_STEPS = 300
# Floats in one block of distances: a block should stay in the cache.
KMEANS_BLOCK_FLOATS = 1 << 16
# Runs that end in the same partition differ by no more than this share of their cost.
SAME_COST = 1e-9


class PartitionMixin(SphericalMixtureMixin):
    """What an estimator learns from a partition of its rows; `means_` and `counts_` are those of these rows."""

    n_components_: int
    counts_: IntArray
    labels_: IntArray

    def _learn(self, X: FloatArray, labels: IntArray) -> None:
        components = partition_components(X, labels)
        self.n_components_ = len(components)
        self.means_ = components.means
        self.counts_ = components.counts
        self.weights_ = components.counts / len(X)
        self.variances_ = floored(SphericalMixture.of_rows(components))
        self.labels_ = labels


class UnitRows(NamedTuple):
    """A table moved to mean zero and divided by one number, so that the mean variance of its columns is one."""

    rows: FloatArray  # (n_samples, n_features)
    origin: FloatArray  # (n_features,)
    scale: float
    point_scatter: float  # scatter a row below which rows differ by the rounding of the table alone


def unit_rows(X: FloatArray) -> UnitRows:
    """`X` centred and scaled. A table that is one point, up to rounding, becomes zeros with scale zero."""
    origin = X.mean(axis=0)
    rows = X - origin
    scale = float(np.sqrt((rows**2).mean()))
    rounding = ROUNDING * float(max(-X.min(), X.max()))
    if scale <= rounding:
        return UnitRows(rows=np.zeros_like(rows), origin=origin, scale=0.0, point_scatter=0.0)
    rows /= scale
    return UnitRows(rows=rows, origin=origin, scale=scale, point_scatter=X.shape[1] * (rounding / scale) ** 2)


def grow(
    table: UnitRows,
    centers: FloatArray,
    children_of: Callable[[FloatArray], FloatArray | None],
    *,
    max_components: int,
    tolerance: float,
) -> IntArray:
    """Labels of k-means that starts from `centers` and then splits clusters until none splits or the cap is reached.

    `children_of` gets the rows of one cluster, centred on their mean, and returns two centers relative to that mean,
    or None where the cluster stays whole. K-means runs on all centers after every pass over the clusters.
    """
    while True:
        labels = kmeans_from(table.rows, centers, tolerance=tolerance)
        clusters = partition_components(table.rows, labels)
        centers = kmeans_split_pass(table, labels, clusters, children_of, max_components)
        if len(centers) == len(clusters):
            return labels
        report(log(len(centers)) / log(max_components))  # passes about double the clusters


def kmeans_split_pass(
    table: UnitRows,
    labels: IntArray,
    clusters: Components,
    children_of: Callable[[FloatArray], FloatArray | None],
    max_components: int,
) -> FloatArray:
    """Centers after one pass over the clusters, in order, until `max_components` are reached."""
    room = max_components - len(clusters)
    by_cluster = np.split(np.argsort(labels, kind="stable"), np.cumsum(clusters.counts)[:-1])
    several_points = clusters.scatters > clusters.counts * table.point_scatter
    centers: list[FloatArray] = []
    for rows, mean, is_divisible in zip(by_cluster, clusters.means, several_points, strict=True):
        children = children_of(table.rows[rows] - mean) if is_divisible and room > 0 else None
        if children is None:
            centers.append(mean)
        else:
            centers.extend(mean + children)
            room -= 1
    return np.array(centers)


def seed_centers(X: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """`k` rows drawn by k-means++, or as many as there are."""
    centers: FloatArray = kmeans_plusplus(X, min(k, len(X)), random_state=draw_seed(rng))[0]
    return centers


def kmeans_from(X: FloatArray, centers: FloatArray, *, tolerance: float) -> IntArray:
    """Labels 0 .. k-1 of Lloyd's algorithm from `centers`, run until no center moves by more than `tolerance`.

    A center that loses all its rows takes the row farthest from its own center. Only where no row is away from its
    center, because there are fewer distinct rows than centers, is k below the number of centers.
    """
    for _ in range(MAX_STEPS):
        labels = without_gaps(fill_empty(X, centers, nearest(X, centers, KMEANS_BLOCK_FLOATS)))
        means = partition_means(X, labels)
        if len(means) == len(centers) and ((means - centers) ** 2).sum(axis=1).max() <= tolerance**2:
            break
        centers = means
    return labels


def fill_empty(X: FloatArray, centers: FloatArray, labels: IntArray) -> IntArray:
    """Give each center without rows the row farthest from its own center, taking no center's last row."""
    counts = np.bincount(labels, minlength=len(centers))
    empty = np.flatnonzero(counts == 0)
    if len(empty) == 0:
        return labels
    labels = labels.copy()
    distances = ((X - centers[labels]) ** 2).sum(axis=1)
    for center in empty:
        can_leave = np.where(counts[labels] > 1, distances, 0.0)
        far = int(can_leave.argmax())
        if can_leave[far] == 0:
            break
        counts[labels[far]] -= 1
        counts[center] = 1
        labels[far], distances[far] = center, 0.0
    return labels


def without_gaps(labels: IntArray) -> IntArray:
    """The same partition with labels 0 .. k-1, in the same order."""
    is_used = np.bincount(labels) > 0
    if is_used.all():
        return labels
    renamed: IntArray = (np.cumsum(is_used) - 1)[labels]
    return renamed


def partition_means(X: FloatArray, labels: IntArray) -> FloatArray:
    """Mean of the rows of every label 0 .. k-1, (k, n_features)."""
    counts = np.bincount(labels)
    return sums_by_label(X, labels, len(counts)) / counts[:, None]


def partition_components(X: FloatArray, labels: IntArray) -> Components:
    """Counts, means and scatters of a partition with labels 0 .. k-1."""
    means = partition_means(X, labels)
    scatters = np.bincount(labels, ((X - means[labels]) ** 2).sum(axis=1)).astype(float)
    return Components(counts=np.bincount(labels), means=means, scatters=scatters)


def first_least(costs: Sequence[float]) -> int:
    """Index of the first cost that is the least up to rounding, so that the units of a table decide no tie."""
    least = min(costs)
    return next(at for at, cost in enumerate(costs) if cost <= least + SAME_COST * abs(least))


class Halves(NamedTuple):
    """Two clusters of rows that sum to zero."""

    counts: IntArray  # (2,)
    centers: FloatArray  # (2, n_features)
    explained: float  # scatter between the two; the rest of the rows' scatter is within them


def seed_halves(X: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Two rows by k-means++, (2, n_features): any row, then the better of two drawn by squared distance to it."""
    first = X[rng.integers(len(X))]
    squared = ((X - first) ** 2).sum(axis=1)
    up_to = np.cumsum(squared)
    drawn = X[np.searchsorted(up_to, rng.random(2) * up_to[-1], side="right")]
    left = [np.minimum(squared, ((X - row) ** 2).sum(axis=1)).sum() for row in drawn]
    return np.array([first, drawn[int(np.argmin(left))]])


def two_means(X: FloatArray, centers: FloatArray, *, tolerance: float) -> Halves:
    """`kmeans_from` for two centers and rows that sum to zero, where one product with the line between them does."""
    n = len(X)
    for _ in range(MAX_STEPS):
        is_second = beyond_midpoint(X, centers)
        n_second = int(np.count_nonzero(is_second))
        moment = is_second.astype(float) @ X
        counts = np.array([n - n_second, n_second])
        means = np.array([-moment, moment]) / np.maximum(counts, 1)[:, None]
        if ((means - centers) ** 2).sum(axis=1).max() <= tolerance**2:
            break
        centers = means
    return Halves(counts=counts, centers=means, explained=float(counts @ (means**2).sum(axis=1)))


def beyond_midpoint(X: FloatArray, centers: FloatArray) -> BoolArray:
    """Whether each row is nearer to the second of two centers; a tie goes to the first."""
    line = centers[1] - centers[0]
    beyond: BoolArray = X @ line > 0.5 * (line @ (centers[0] + centers[1]))
    return beyond
