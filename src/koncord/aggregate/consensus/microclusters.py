"""Micro-clusters: how a client describes its rows to the server, as micro-clusters of at least a given number of rows.

A micro-cluster is count, mean and scatter of some rows (the clustering feature of BIRCH; Zhang, Ramakrishnan and Livny,
1996). The rows are cut in two, between two peaks of a column or where the cut lowers the squared error most, with
enough rows on either side; the group whose cut lowers it most is next (`koncord.kernels.cutting`). So micro-clusters
hold between the floor and twice as many rows, unless a client has so many rows that `MOST_GROUPS` of them do not hold
them.

Beside its micro-clusters a client sends one covariance, that of all its rows about the mean of their micro-cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from koncord.kernels.assign import means_by_label
from koncord.kernels.cutting import group_labels, groups_of
from koncord.protocol.schema import LARGEST_FLOAT, Array
from koncord.types import FloatArray, IntArray

# Directions in which the covariance inside micro-clusters is sent; along the others the sums by column stand for it.
N_AXES = 16


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

    def moments(self) -> tuple[int, FloatArray, FloatArray]:
        """Count, means and summed squared deviations by column of all rows."""
        count = int(self.counts.sum())
        means = self.counts @ self.means / max(count, 1)
        return count, means, self.spread + self.counts @ (self.means - means) ** 2

    def covariance_inside(self) -> FloatArray:
        """Covariance (n_features, n_features) of the rows about the mean of their micro-cluster."""
        known = self.axes.T @ self.axes
        rest = np.maximum(self.spread - np.diagonal(known), 0.0)
        covariance: FloatArray = (known + np.diag(rest)) / max(int(self.counts.sum()), 1)
        return covariance


def micro_clusters_of(X: FloatArray, min_rows: int) -> MicroClusters:
    """Micro-clusters of X (n, d) with at least `min_rows` rows each; none if X has fewer."""
    if len(X) < min_rows:
        return nothing(X.shape[1])
    return micro_clusters_by(X, groups_of(X, min_rows))


def micro_clusters_by(X: FloatArray, groups: Sequence[IntArray]) -> MicroClusters:
    """The micro-clusters that groups of rows of X make; each row is in one of them."""
    return labeled_micro_clusters(X, group_labels(groups, len(X)))


def labeled_micro_clusters(X: FloatArray, labels: IntArray) -> MicroClusters:
    """The micro-clusters that the rows of X make by their labels; a label that no row has makes none."""
    labels = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(labels)
    means = means_by_label(X, labels, otherwise=np.zeros((len(counts), X.shape[1])))
    inside = X - means[labels]
    return MicroClusters(
        counts=counts,
        means=means,
        scatters=np.bincount(labels, np.vecdot(inside, inside)).astype(np.float64),
        spread=(inside**2).sum(axis=0),
        axes=axes_of(inside),
    )


def nothing(n_features: int) -> MicroClusters:
    return MicroClusters(
        counts=np.empty(0, dtype=np.int64),
        means=np.empty((0, n_features)),
        scatters=np.empty(0),
        spread=np.zeros(n_features),
        axes=np.empty((0, n_features)),
    )


def axes_of(inside: FloatArray) -> FloatArray:
    """Leading principal axes of centered rows (n, d), each as long as the root of the squares summed along it."""
    return axes_of_products(inside.T @ inside)


def axes_of_products(products: FloatArray) -> FloatArray:
    """The same from the sums of products (d, d) of the columns of centered rows."""
    values, vectors = np.linalg.eigh(products)
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


def with_share_of_spread(micro: MicroClusters, share: float) -> MicroClusters:
    """The micro-clusters with this share of the spread and of the axes, which are of all micro-clusters of a client."""
    return replace(micro, spread=micro.spread * share, axes=micro.axes * np.sqrt(share))


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
