"""Micro-clusters: how a client describes its rows to the server, as micro-clusters of at least a given number of rows.

A micro-cluster is count, mean and scatter of some rows (the clustering feature of BIRCH; Zhang, Ramakrishnan and Livny,
1996). The rows are cut in two across their longest axis, or across a column with more than one peak, where the cut
lowers the squared error most and leaves enough rows on either side; the group whose cut lowers it most is next. So
micro-clusters hold between the floor and twice as many rows, unless a client has so many rows that
`MOST_MICRO_CLUSTERS` such groups do not hold them.

Beside its micro-clusters a client sends one covariance, that of all its rows about the mean of their micro-cluster.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from koncord.kernels.assign import means_by_label
from koncord.protocol.schema import LARGEST_FLOAT, Array
from koncord.types import FloatArray, IntArray

MOST_MICRO_CLUSTERS = 200
# Directions in which the covariance inside micro-clusters is told; along the others the sums by column stand for it.
N_AXES = 16
# The best cut of a density with a single peak leaves at least a quarter of its variance; a little less by chance.
MOST_OF_A_PEAK = 0.78
# Added to the share of a column's variance that a cut leaves, so that no column outweighs all others.
LEAST_LEFT = 0.1
# Rows of a large group from which the axis of its cut is found.
ROWS_FOR_AXIS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroClusters:
    """Client to server: what its rows are made of; possibly nothing, if it has too few."""

    counts: Annotated[
        IntArray, Array("at most n_micro_clusters", least=1, total="rows")
    ]  # (n_micro_clusters,) none below the floor
    means: Annotated[FloatArray, Array("at most n_micro_clusters", "n_features")]  # (n_micro_clusters, n_features)
    scatters: Annotated[FloatArray, Array("at most n_micro_clusters", least=0, most=LARGEST_FLOAT)]  # about the means
    spread: Annotated[FloatArray, Array("n_features", least=0, most=LARGEST_FLOAT)]  # squares about the means, summed
    axes: Annotated[FloatArray, Array("at most n_axes", "n_features")]  # the longest of the spread; see `axes_of`

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def variances(self) -> FloatArray:
        """Mean squared distance of the rows of each micro-cluster to their mean."""
        inside: FloatArray = self.scatters / self.counts
        return inside

    def covariance_inside(self) -> FloatArray:
        """Covariance (n_features, n_features) of the rows about the mean of their micro-cluster."""
        known = self.axes.T @ self.axes
        rest = np.maximum(self.spread - np.diagonal(known), 0.0)
        covariance: FloatArray = (known + np.diag(rest)) / max(int(self.counts.sum()), 1)
        return covariance


class Cut(NamedTuple):
    """The best cut of a group: by how much it lowers the squared error, the rows along the axis, and where it is."""

    gain: float
    rows: IntArray
    at: int


def micro_clusters_of(X: FloatArray, min_rows: int) -> MicroClusters:
    """Micro-clusters of X (n, d) with at least `min_rows` rows each; none if X has fewer."""
    if len(X) < min_rows:
        return nothing(X.shape[1])
    return micro_clusters_by(X, groups_of(X, min_rows))


def micro_clusters_by(X: FloatArray, groups: Sequence[IntArray]) -> MicroClusters:
    """The micro-clusters that groups of rows of X make; each row is in one of them."""
    labels = np.empty(len(X), dtype=np.int64)
    for at, rows in enumerate(groups):
        labels[rows] = at
    means = means_by_label(X, labels, otherwise=np.zeros((len(groups), X.shape[1])))
    inside = X - means[labels]
    return MicroClusters(
        counts=np.array([len(rows) for rows in groups], dtype=np.int64),
        means=means,
        scatters=np.bincount(labels, np.vecdot(inside, inside)).astype(np.float64),
        spread=(inside**2).sum(axis=0),
        axes=axes_of(inside),
    )


def groups_of(X: FloatArray, min_rows: int, most: int = MOST_MICRO_CLUSTERS) -> list[IntArray]:
    """Rows of each micro-cluster, at least `min_rows`, in the order of their first row; at most `most` groups."""
    done: list[IntArray] = []
    waiting: list[tuple[float, int, Cut]] = []
    todo = [np.arange(len(X))]
    while True:
        for rows in todo:
            cut = best_cut(X, rows, min_rows)
            if cut is None:
                done.append(rows)
            else:
                heapq.heappush(waiting, (-cut.gain, int(rows.min()), cut))
        if not waiting or len(waiting) + len(done) >= most:
            break
        cut = heapq.heappop(waiting)[2]
        todo = [cut.rows[: cut.at], cut.rows[cut.at :]]
    found = [*done, *(cut.rows for *_, cut in waiting)]
    return sorted(map(np.sort, found), key=lambda rows: int(rows[0]))


def best_cut(X: FloatArray, rows: IntArray, min_rows: int) -> Cut | None:
    """The cut that lowers the squared error of the rows most, with enough on either side.

    It goes across the longest axis of the rows, or across a column that it splits better than it could a single peak.
    None where there are too few rows, or where all of them are equal.
    """
    n = len(rows)
    if n < 2 * min_rows:
        return None
    centred = X[rows] - X[rows].mean(axis=0)
    along = centred @ cutting_axis(X[rows[:: max(n // ROWS_FOR_AXIS, 1)]], min_rows)
    order = np.argsort(along, kind="stable")
    gain, at = largest_gains(along[order][:, None], min_rows)
    return Cut(float(gain[0]), rows[order], int(at[0])) if gain[0] > 0 else None


def cutting_axis(X: FloatArray, min_rows: int) -> FloatArray:
    """The direction to cut rows (n, d) across: their longest axis, or a column of which the cut explains more.

    A column that tells nothing is as long as one that tells clusters apart, where columns are standardized. So a
    column is cut where that lowers its own variance by more than it could that of a single peak; and the more, the
    more of it is explained.
    """
    centred = X - X.mean(axis=0)
    longest = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    axes = np.column_stack([longest * np.sign(longest[np.abs(longest).argmax()]), np.eye(len(longest))])
    along = np.sort(centred @ axes, axis=0)
    gains = largest_gains(along, min(min_rows, len(along) // 2))[0]
    total = (along**2).sum(axis=0)
    explained = np.divide(gains, total, out=np.zeros(len(gains)), where=total > 0)
    is_peak = explained <= MOST_OF_A_PEAK
    is_peak[0] = False  # the longest axis is always a candidate
    best = int(np.where(is_peak, -1.0, gains / (1 - explained + LEAST_LEFT)).argmax())
    axis: FloatArray = axes[:, best]
    return axis


def largest_gains(along: FloatArray, min_rows: int) -> tuple[FloatArray, IntArray]:
    """By how much the best cut of each sorted, centred column (n, m) lowers its squares, and the rows below it."""
    n = len(along)
    sizes = np.arange(min_rows, n - min_rows + 1)
    below = np.cumsum(along, axis=0)[sizes - 1]
    gains = below**2 * (1 / sizes + 1 / (n - sizes))[:, None]  # the sums of both sides are equal and opposite
    return gains.max(axis=0), sizes[gains.argmax(axis=0)]


def nothing(n_features: int) -> MicroClusters:
    return MicroClusters(
        counts=np.empty(0, dtype=np.int64),
        means=np.empty((0, n_features)),
        scatters=np.empty(0),
        spread=np.zeros(n_features),
        axes=np.empty((0, n_features)),
    )


def axes_of(inside: FloatArray) -> FloatArray:
    """Leading principal axes of centred rows (n, d), each as long as the root of the squares summed along it."""
    values, vectors = np.linalg.eigh(inside.T @ inside)
    axes: FloatArray = (np.sqrt(np.maximum(values, 0.0)) * vectors).T[::-1][:N_AXES]
    return axes


def stacked(parts: Sequence[MicroClusters], n_features: int) -> MicroClusters:
    """Micro-clusters of several clients as one, in the order given."""
    each = [nothing(n_features), *parts]
    return MicroClusters(
        counts=np.concatenate([part.counts for part in each]),
        means=np.concatenate([part.means for part in each]),
        scatters=np.concatenate([part.scatters for part in each]),
        spread=np.sum([part.spread for part in each], axis=0),
        axes=np.concatenate([part.axes for part in each]),
    )


def taken(micro: MicroClusters, at: IntArray) -> MicroClusters:
    """Some of the micro-clusters; spread and axes stay those of all."""
    return replace(micro, counts=micro.counts[at], means=micro.means[at], scatters=micro.scatters[at])


def rescaled(micro: MicroClusters, scales: FloatArray) -> MicroClusters:
    """The micro-clusters with every column multiplied by its entry of `scales` (n_features,).

    How the scatter of a micro-cluster changes is not known, so that of all micro-clusters tells: each changes by the
    same factor.
    """
    spread = micro.spread * scales**2
    before = micro.spread.sum()
    return replace(
        micro,
        means=micro.means * scales,
        scatters=micro.scatters * (spread.sum() / before if before > 0 else 1.0),
        spread=spread,
        axes=micro.axes * scales,
    )
