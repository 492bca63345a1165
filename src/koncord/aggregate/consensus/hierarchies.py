"""Clusterings of micro-clusters, one for every number of clusters K, and how well each does.

Three hierarchies give them: Ward's, polished by k-means; average linkage, which lets a large cluster stand beside small
ones; and average linkage whose clusters of a single micro-cluster went to the nearest other one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.kernels.assign import means_by_label, nearest, sums_by_label
from koncord.kernels.lloyd import kmeans, lloyd
from koncord.types import FloatArray, IntArray

# More micro-clusters than this are put together first, because distances between all pairs are held.
MOST_MICRO_CLUSTERS = 1000
# The most levels of average linkage that are searched for one without single micro-clusters.
MOST_LEVELS = 200
Hierarchy = Literal["ward", "average", "condensed", "mixture"]
WARD: Hierarchy = "ward"
AVERAGE: Hierarchy = "average"
CONDENSED: Hierarchy = "condensed"
MIXTURE: Hierarchy = "mixture"  # no cut: a mixture of Gaussians that is fitted to counts of cells
Key = tuple[Hierarchy, int]  # hierarchy and K
Labelings = Mapping[Key, IntArray]


class Judged(NamedTuple):
    """How well a clustering of micro-clusters does."""

    silhouette: float
    log_cost: float  # of the squared distances to the centers, as a share of those to the mean


def grid(most: int, *, every: int, step: float) -> list[int]:
    """Values of K from 2 to `most`: all up to `every`, then in steps."""
    ks = list(range(2, min(every, most) + 1))
    while ks and ks[-1] < most:
        ks.append(min(max(ks[-1] + 1, round(ks[-1] * step)), most))
    return ks


def put_together(micro: MicroClusters, rng: np.random.Generator) -> tuple[MicroClusters, IntArray]:
    """At most `MOST_MICRO_CLUSTERS` micro-clusters, and the one that each of the given went into."""
    belongs = groups_together(micro, rng, MOST_MICRO_CLUSTERS)
    return combined(micro, belongs), belongs


def groups_together(micro: MicroClusters, rng: np.random.Generator, most: int) -> IntArray:
    """The group (n,) of each micro-cluster in at most so many groups of neighbors; each alone where they are few."""
    if len(micro) <= most:
        return np.arange(len(micro))
    near = kmeans(micro.means, most, rng, weights=micro.counts.astype(float), max_iter=3).labels
    belongs: IntArray = np.unique(near, return_inverse=True)[1]
    return belongs


def combined(micro: MicroClusters, belongs: IntArray) -> MicroClusters:
    """The micro-clusters that groups of micro-clusters make; the same ones where each is a group of its own."""
    if np.array_equal(belongs, np.arange(len(micro))):
        return micro
    weights = micro.counts.astype(float)
    k = int(belongs.max()) + 1
    means = means_by_label(micro.means, belongs, weights, otherwise=np.zeros((k, micro.means.shape[1])))
    gaps = micro.means - means[belongs]
    scatters = np.bincount(belongs, micro.scatters + weights * np.vecdot(gaps, gaps)).astype(np.float64)
    counts = np.bincount(belongs, weights).astype(np.int64)
    return MicroClusters(counts=counts, means=means, scatters=scatters, spread=micro.spread, axes=micro.axes)


def labelings(
    micro: MicroClusters, ks: Sequence[int], hierarchies: Sequence[Hierarchy] = (WARD, AVERAGE)
) -> dict[Key, IntArray]:
    """The clustering of the micro-clusters by each hierarchy for each K, where it has K clusters."""
    found: dict[Key, IntArray] = {}
    if len(micro) < 2:
        return found
    distances = pdist(micro.means)
    trees = {method: linkage(distances, method) for method in dict.fromkeys(map(linkage_of, hierarchies))}
    for hierarchy in hierarchies:
        tree = trees[linkage_of(hierarchy)]
        for k, labels in (condensed(micro, tree, ks) if hierarchy == CONDENSED else cuts(tree, ks)).items():
            if hierarchy == WARD:
                labels = polished(micro, labels, k)
            if len(np.unique(labels)) == k:  # k-means may leave a center empty
                found[hierarchy, k] = labels
    return found


def linkage_of(hierarchy: Hierarchy) -> Literal["ward", "average"]:
    return "ward" if hierarchy == WARD else "average"


def condensed(micro: MicroClusters, tree: FloatArray, ks: Iterable[int]) -> dict[int, IntArray]:
    """Labels at each K where clusters of a single micro-cluster went to the nearest other one.

    Of the levels with the same K it is the coarsest.

    Levels without single micro-clusters are left out, for the tree itself has them.
    """
    wanted, weights = set(ks), micro.counts.astype(float)
    found: dict[int, IntArray] = {}
    levels = cuts(tree, range(2, min(len(micro), MOST_LEVELS) + 1))
    for k, labels in sorted(levels.items()):
        is_large = np.bincount(labels) > 1
        n_large = int(is_large.sum())
        if n_large in wanted and n_large < k and n_large not in found:
            means = means_by_label(micro.means, labels, weights, otherwise=np.zeros((k, micro.means.shape[1])))
            found[n_large] = nearest(means, means[is_large])[labels]
    return found


def polished(micro: MicroClusters, labels: IntArray, k: int) -> IntArray:
    """The clustering that k-means makes of another one; it may leave a cluster empty."""
    weights = micro.counts.astype(float)
    start = means_by_label(micro.means, labels, weights, otherwise=np.zeros((k, micro.means.shape[1])))
    return lloyd(micro.means, start, weights).labels


def cuts(tree: FloatArray, ks: Iterable[int]) -> dict[int, IntArray]:
    """Labels at each K of a tree of merges, as `linkage` gives it, from the finest to the coarsest.

    Clusters are numbered in the order of the tree's nodes: what the last merge made comes last.
    """
    n = len(tree) + 1
    wanted = {k for k in ks if 1 <= k <= n}
    if not wanted:
        return {}
    merges = tree[:, :2].astype(np.int64).tolist()
    k = max(wanted)
    labels = finest(merges, k)
    nodes = sorted(set(range(2 * n - k)) - {node for merge in merges[: n - k] for node in merge})
    found = {k: labels}
    for at in range(n - k, n - min(wanted)):
        low, high = sorted(bisect_left(nodes, node) for node in merges[at])
        del nodes[high], nodes[low]
        is_merged = (labels == low) | (labels == high)
        labels = labels - (labels > low) - (labels > high)
        labels[is_merged] = len(nodes)
        nodes.append(n + at)
        if len(nodes) in wanted:
            found[len(nodes)] = labels
    return found


def finest(merges: Sequence[Sequence[int]], k: int) -> IntArray:
    """Labels where merges have left k clusters."""
    n = len(merges) + 1
    numbers = [-1] * (2 * n - k)
    left = k
    for node in reversed(range(2 * n - k)):
        if numbers[node] < 0:  # nothing was made of it yet
            left -= 1
            numbers[node] = left
        if node >= n:
            for part in merges[node - n]:
                numbers[part] = numbers[node]
    return np.array(numbers[:n], dtype=np.int64)


def clustered(micro: MicroClusters, k: int, hierarchy: Hierarchy, rng: np.random.Generator) -> IntArray:
    """Labels of the micro-clusters at K in one hierarchy, within their cap; all alike if the hierarchy has no K.

    A nested clustering is no cut of a hierarchy; Ward's stands for it.
    """
    coarse, belongs = put_together(micro, rng)
    found = labelings(coarse, [k], [hierarchy]).get((hierarchy, k), np.zeros(len(coarse), dtype=np.int64))
    labels: IntArray = found[belongs]
    is_coarse = len(coarse) < len(micro)
    # Micro-clusters at the border of two clusters, put together, went with their neighbors: k-means tells them apart
    # again.
    return polished(micro, labels, int(labels.max()) + 1) if is_coarse and hierarchy == WARD else labels


def judged(micro: MicroClusters, found: Labelings) -> dict[Key, Judged]:
    distances = row_distances(micro)
    total = cost_of(micro, np.zeros(len(micro), dtype=np.int64))
    return {
        key: Judged(silhouette_of(distances, micro.counts, labels), float(np.log(cost_of(micro, labels) / total)))
        for key, labels in found.items()
    }


def row_distances(micro: MicroClusters) -> FloatArray:
    """Root mean squared distance between a row of one micro-cluster and a row of another, or of the same."""
    inside = micro.variances
    squared: FloatArray = cdist(micro.means, micro.means, "sqeuclidean")
    return np.sqrt(squared + inside[:, None] + inside)


def silhouette_of(distances: FloatArray, counts: IntArray, labels: IntArray) -> float:
    """Mean silhouette of the rows, each at the distances of its micro-cluster."""
    n, k = len(labels), int(labels.max()) + 1
    at = np.arange(n)
    membership = np.zeros((n, k))
    membership[at, labels] = counts
    sums = distances @ membership
    sizes = membership.sum(axis=0)
    own = (sums[at, labels] - np.diagonal(distances)) / np.maximum(sizes[labels] - 1, 1)
    sums /= sizes
    sums[at, labels] = np.inf
    other = sums.min(axis=1)
    widest = np.maximum(own, other)
    values = np.where(widest > 0, (other - own) / np.where(widest > 0, widest, 1.0), 0.0)
    return float(counts @ values / counts.sum())


def cost_of(micro: MicroClusters, labels: IntArray) -> float:
    """Summed squared distance of the rows to the mean of their cluster; never quite 0."""
    k = int(labels.max()) + 1
    weights = micro.counts.astype(float)
    means = sums_by_label(micro.means, labels, k, weights) / np.bincount(labels, weights, minlength=k)[:, None]
    gaps = micro.means - means[labels]
    return float(micro.scatters.sum() + weights @ np.vecdot(gaps, gaps)) + float(np.finfo(float).tiny)
