"""Leaves: how a client describes its rows to the server, as micro-clusters of at least a given number of rows.

A leaf is count, mean and scatter of some rows (the clustering feature of BIRCH; Zhang, Ramakrishnan and Livny, 1996).
The rows are cut in two along their longest axis, where the cut lowers the squared error most and leaves enough rows on
either side; the group whose cut lowers it most is next. So leaves hold between the floor and twice as many rows, unless
a client has so many rows that `MOST_LEAVES` such groups do not hold them.

Beside its leaves a client sends one covariance, that of all its rows about the mean of their leaf.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from koncord.kernels.assign import means_by_label
from koncord.protocol.schema import LARGEST_FLOAT, Array
from koncord.types import FloatArray, IntArray

MOST_LEAVES = 200
# Directions in which the covariance inside leaves is told; along the others the sums by column stand for it.
N_AXES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Client to server: what its rows are made of; possibly nothing, if it has too few."""

    counts: Annotated[IntArray, Array("at most n_leaves", least=1, total="rows")]  # (n_leaves,) none below the floor
    means: Annotated[FloatArray, Array("at most n_leaves", "n_features")]  # (n_leaves, n_features)
    scatters: Annotated[FloatArray, Array("at most n_leaves", least=0, most=LARGEST_FLOAT)]  # about the means
    spread: Annotated[FloatArray, Array("n_features", least=0, most=LARGEST_FLOAT)]  # squares about the means, summed
    axes: Annotated[FloatArray, Array("at most n_axes", "n_features")]  # the longest of the spread; see `axes_of`

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def variances(self) -> FloatArray:
        """Mean squared distance of the rows of each leaf to their mean."""
        inside: FloatArray = self.scatters / self.counts
        return inside

    def covariance_inside(self) -> FloatArray:
        """Covariance (n_features, n_features) of the rows about the mean of their leaf."""
        known = self.axes.T @ self.axes
        rest = np.maximum(self.spread - np.diagonal(known), 0.0)
        covariance: FloatArray = (known + np.diag(rest)) / max(int(self.counts.sum()), 1)
        return covariance


class Cut(NamedTuple):
    """The best cut of a group: by how much it lowers the squared error, the rows along the axis, and where it is."""

    gain: float
    rows: IntArray
    at: int


def leaves_of(X: FloatArray, min_rows: int) -> Leaves:
    """Leaves of X (n, d) with at least `min_rows` rows each; none if X has fewer."""
    if len(X) < min_rows:
        return nothing(X.shape[1])
    return leaves_by(X, groups_of(X, min_rows))


def leaves_by(X: FloatArray, groups: Sequence[IntArray]) -> Leaves:
    """The leaves that groups of rows of X make; each row is in one of them."""
    labels = np.empty(len(X), dtype=np.int64)
    for at, rows in enumerate(groups):
        labels[rows] = at
    means = means_by_label(X, labels, otherwise=np.zeros((len(groups), X.shape[1])))
    inside = X - means[labels]
    return Leaves(
        counts=np.array([len(rows) for rows in groups], dtype=np.int64),
        means=means,
        scatters=np.bincount(labels, np.vecdot(inside, inside)).astype(np.float64),
        spread=(inside**2).sum(axis=0),
        axes=axes_of(inside),
    )


def groups_of(X: FloatArray, min_rows: int, most: int = MOST_LEAVES) -> list[IntArray]:
    """Rows of each leaf, at least `min_rows`, in the order of their first row; at most `most` leaves."""
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
    """The cut across the longest axis of the rows that lowers their squared error most, with enough on either side.

    None where there are too few rows, or where all of them are equal.
    """
    n = len(rows)
    if n < 2 * min_rows:
        return None
    centred = X[rows] - X[rows].mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    along = centred @ (axis * np.sign(axis[np.abs(axis).argmax()]))
    order = np.argsort(along, kind="stable")
    below = np.cumsum(along[order])
    sizes = np.arange(min_rows, n - min_rows + 1)
    gains = below[sizes - 1] ** 2 * (1 / sizes + 1 / (n - sizes))  # the sums of both sides are equal and opposite
    best = int(gains.argmax())
    if not gains[best] > 0:
        return None
    return Cut(float(gains[best]), rows[order], int(sizes[best]))


def nothing(n_features: int) -> Leaves:
    return Leaves(
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


def stacked(parts: Sequence[Leaves], n_features: int) -> Leaves:
    """Leaves of several clients as one, in the order given."""
    each = [nothing(n_features), *parts]
    return Leaves(
        counts=np.concatenate([part.counts for part in each]),
        means=np.concatenate([part.means for part in each]),
        scatters=np.concatenate([part.scatters for part in each]),
        spread=np.sum([part.spread for part in each], axis=0),
        axes=np.concatenate([part.axes for part in each]),
    )


def taken(leaves: Leaves, at: IntArray) -> Leaves:
    """Some of the leaves; spread and axes stay those of all."""
    return replace(leaves, counts=leaves.counts[at], means=leaves.means[at], scatters=leaves.scatters[at])


def rescaled(leaves: Leaves, scales: FloatArray) -> Leaves:
    """The leaves with every column multiplied by its entry of `scales` (n_features,).

    How the scatter of a leaf changes is not known, so that of all leaves tells: each changes by the same factor.
    """
    spread = leaves.spread * scales**2
    before = leaves.spread.sum()
    return replace(
        leaves,
        means=leaves.means * scales,
        scatters=leaves.scatters * (spread.sum() / before if before > 0 else 1.0),
        spread=spread,
        axes=leaves.axes * scales,
    )
