"""The label-free score: mean silhouette of held-out rows under the components that attract them."""

from collections.abc import Hashable

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, pdist, squareform

from koncord.kernels.assign import nearest
from koncord.types import FloatArray, IntArray

# Held-out rows whose silhouette is taken: the distance matrix of this many rows fills 72 MB. A larger hold-out is
# cut to its first rows, which are in random order.
MAX_SCORED = 3000


class HeldOut:
    """Held-out rows with one distance matrix for all the labelings that will be scored on them."""

    def __init__(self, X: FloatArray, rows: IntArray) -> None:
        self.X = X[rows[:MAX_SCORED]]
        self._distances = squareform(pdist(self.X))
        self._scores: dict[Hashable, float] = {}

    def score(self, labels: IntArray) -> float:
        """Mean silhouette, or NaN where there is none: one label only, or a label for every row."""
        labels = in_order_of_appearance(labels)
        key = labels.tobytes()
        if key not in self._scores:
            self._scores[key] = silhouette(self._distances, labels)
        return self._scores[key]

    def score_nearest(self, means: FloatArray) -> float:
        return self.score(nearest(self.X, means))


def silhouette(distances: FloatArray, labels: IntArray) -> float:
    """Mean silhouette from a distance matrix, or NaN where there is none."""
    values = silhouettes(distances, labels)
    return float("nan") if values is None else float(values.mean())


def silhouettes(distances: FloatArray, labels: IntArray) -> FloatArray | None:
    """Silhouette of every row; a row alone in its cluster has 0. None for one label, or a label for every row."""
    n = len(labels)
    present, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if not 1 < len(present) < n:
        return None
    membership = csr_array((np.ones(n), (labels, np.arange(n))), shape=(len(sizes), n))
    to_cluster: FloatArray = np.asarray(membership @ distances)  # (k, n) summed distance of each row to each cluster
    rows = np.arange(n)
    own = to_cluster[labels, rows]
    to_cluster /= sizes[:, None]
    to_cluster[labels, rows] = np.inf
    other = to_cluster.min(axis=0)
    is_alone = sizes[labels] == 1
    own /= np.where(is_alone, 1, sizes[labels] - 1)
    widest = np.maximum(own, other)
    values: FloatArray = np.where(is_alone | (widest == 0), 0.0, (other - own) / np.where(widest == 0, 1.0, widest))
    return values


def in_order_of_appearance(labels: IntArray) -> IntArray:
    """Rename labels to 0, 1, ... as they first appear, so that equal partitions score equal to the last bit."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    renamed: IntArray = np.argsort(np.argsort(first))[inverse]
    return renamed


def group_silhouettes(
    counts: IntArray, means: FloatArray, variances: FloatArray, labels: IntArray
) -> FloatArray | None:
    """Silhouette of the rows of each group, from counts, means and mean squared distances to the means (n_groups,).

    A row is at the root mean squared distance of its group from the rows of another. None for one label.
    """
    _, labels = np.unique(labels, return_inverse=True)
    k = int(labels.max(initial=-1)) + 1
    if k < 2:
        return None
    at = np.arange(len(labels))
    distances = np.sqrt(cdist(means, means, "sqeuclidean") + variances[:, None] + variances)
    membership = np.zeros((len(labels), k))
    membership[at, labels] = counts
    sizes = membership.sum(axis=0)
    sums = distances @ membership
    own = (sums[at, labels] - np.diagonal(distances)) / np.maximum(sizes[labels] - 1, 1)
    sums /= sizes
    sums[at, labels] = np.inf
    other = sums.min(axis=1)
    widest = np.maximum(own, other)
    values: FloatArray = np.where(widest > 0, (other - own) / np.where(widest > 0, widest, 1.0), 0.0)
    return values
