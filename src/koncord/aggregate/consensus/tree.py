"""Clusterings with fewer and with more clusters than were found, nested in each other.

With fewer: the two clusters with the smallest d' (`koncord.aggregate.consensus.separation`) are joined, again and
again. With more: of the best cuts through each cluster, the one whose halves have the largest d' is made. A cut is
looked for as the clusters were: by the hierarchies of `koncord.aggregate.consensus.choosing`, with two clusters.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from koncord.aggregate.consensus.hierarchies import AVERAGE, CONDENSED, WARD, labelings, put_together
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled, taken
from koncord.aggregate.consensus.mixture import Parts, maximized
from koncord.aggregate.consensus.separation import Shapes, distances_apart
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.tree import ClusterTree
from koncord.types import FloatArray, IntArray

# How many more clusters than were found the tree has at most: enough for a next answer, few enough to read.
MOST_FINER = 8
# Micro-clusters on either side of a cut at least: a single one in a tail lies far from the rest of any cloud.
LEAST_MICRO_CLUSTERS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters:
    """The clusters that were found, as far as the tree needs them."""

    micro: MicroClusters  # all micro-clusters, columns as weighed for the choice
    labels: IntArray  # (n,) cluster of each
    shapes: Shapes
    member: FloatArray  # (k, n) share of each micro-cluster in each cluster; never all zeros
    tied: FloatArray  # covariance that the clusters share, along the axes of `shapes`

    @classmethod
    def of(cls, micro: MicroClusters, labels: IntArray, scales: FloatArray, shares: FloatArray) -> "Clusters":
        """Clusters with the micro-clusters `labels`; one without any has its share (k, n) of `shares`."""
        weighed = rescaled(micro, scales)
        shapes = Shapes(weighed, weighed.covariance_inside())
        member = np.zeros(shares.shape)
        member[labels, np.arange(len(labels))] = 1.0
        is_empty = ~member.any(axis=1)
        member[is_empty] = shares[is_empty]
        return cls(micro=weighed, labels=labels, shapes=shapes, member=member, tied=shapes.moments(member)[3])

    def __len__(self) -> int:
        return len(self.member)

    def distances(self) -> FloatArray:
        """d' (k, k) of every two clusters; infinite on the diagonal."""
        return self.shapes.distances(self.member)

    def valleys(self, nearest: IntArray) -> FloatArray:
        """Depth (k,), from 0 to 1, of the valley of the density between each cluster and its `nearest` (k,)."""
        return self.shapes.valleys_between(self.labels, self.member, np.arange(len(self)), nearest)

    def halves_apart(self, at: IntArray, sides: IntArray) -> float:
        """d' of the two sides (0 or 1) of some micro-clusters."""
        member = np.zeros((2, len(self.labels)))
        member[sides, at] = 1.0
        counts, means, scatters, _ = self.shapes.moments(member)
        return float(distances_apart(counts, means, scatters, self.tied, np.array([0]), np.array([1]))[0])


class Fitted(NamedTuple):
    """The shapes of the clusters, what they were fitted to, and the share (n, k) of each micro-cluster in each."""

    gaussians: Gaussians
    parts: Parts
    shares: FloatArray


class Split(NamedTuple):
    """The best cut through a node: its micro-clusters, and the side of each."""

    apart: float
    at: IntArray
    sides: IntArray


@dataclass(slots=True)
class TreeNode:
    """A cluster while the tree is made; `at` are the micro-clusters of a found or a finer one."""

    at: IntArray
    found: int  # the found cluster it lies in
    parts: "tuple[TreeNode, TreeNode] | None" = None
    apart: float = 0.0  # d' of the parts
    number: int = field(default=-1)


def tree_of(
    clusters: Clusters,
    rng: np.random.Generator,
    *,
    centers: FloatArray,
    full: FloatArray,
    fitted: Fitted | None = None,
) -> tuple[ClusterTree, IntArray]:
    """The tree of the clusters, and the leaf (n,) that each micro-cluster is most of.

    Parameters
    ----------
    clusters : Clusters
        The clusters that were found.
    rng : Generator
        Used where a cluster has very many micro-clusters.
    centers : array (k, d)
        Their centers in the model.
    full : array (n, d)
        Means of the micro-clusters, columns as they are.
    fitted : Fitted, default None
        Their shapes; None where only centers are known.
    """
    found, splits = finer(clusters, rng)
    leaves = [leaf for node in found for leaf in leaves_under(node)]
    for number, leaf in enumerate(leaves):
        leaf.number = number
    joins: list[tuple[int, int]] = []
    apart: list[float] = []
    for node in reversed(splits):  # the last cut is the first join
        assert node.parts is not None
        node.number = len(leaves) + len(joins)
        joins.append((node.parts[0].number, node.parts[1].number))
        apart.append(node.apart)
    numbers = [node.number for node in found]
    for one, other, distance in coarser(clusters):
        numbers.append(len(leaves) + len(joins))
        joins.append((numbers[one], numbers[other]))
        apart.append(distance)
    labels = np.zeros(len(clusters.labels), dtype=np.int64)
    for leaf in leaves:
        labels[leaf.at] = leaf.number
    values = values_of(clusters, leaves, found, joins, labels, centers=centers, full=full, fitted=fitted)
    if fitted is not None:
        labels = leaf_shares(clusters, leaves, labels, fitted.shares).argmax(axis=1)
    tree = ClusterTree(
        joins=np.array(joins, dtype=np.int64).reshape(-1, 2),
        apart=np.array(apart, dtype=np.float64),
        centers=np.array([value.center for value in values]),
        weights=np.array([value.weight for value in values]),
        covariances=None if fitted is None else np.array([value.covariance for value in values]),
    )
    return tree, labels


# --- more clusters ---


def finer(clusters: Clusters, rng: np.random.Generator) -> tuple[list[TreeNode], list[TreeNode]]:
    """The nodes of the found clusters with the best cuts made below them, and the nodes that were cut, in order."""
    found = [TreeNode(at=np.flatnonzero(clusters.labels == cluster), found=cluster) for cluster in range(len(clusters))]
    waiting: list[tuple[float, int, TreeNode, Split]] = []
    splits: list[TreeNode] = []
    todo, n_seen = list(found), 0
    while True:
        for node in todo if len(splits) < MOST_FINER else ():
            split = best_split(clusters, node.at, rng)
            if split is not None:
                heapq.heappush(waiting, (-split.apart, n_seen, node, split))
                n_seen += 1
        if not waiting or len(splits) == MOST_FINER:
            return found, splits
        *_, node, split = heapq.heappop(waiting)
        node.parts = (
            TreeNode(at=split.at[split.sides == 0], found=node.found),
            TreeNode(at=split.at[split.sides == 1], found=node.found),
        )
        node.apart = split.apart
        splits.append(node)
        todo = list(node.parts)


def best_split(clusters: Clusters, at: IntArray, rng: np.random.Generator) -> Split | None:
    """Of the cuts in two that the hierarchies make, the one with the largest d'; None if none has enough on a side."""
    if len(at) < 2 * LEAST_MICRO_CLUSTERS:
        return None
    coarse, belongs = put_together(taken(clusters.micro, at), rng)
    splits = []
    for labels in labelings(coarse, [2], (WARD, AVERAGE, CONDENSED)).values():
        sides = labels[belongs]
        if np.bincount(sides).min() >= LEAST_MICRO_CLUSTERS:
            splits.append(Split(clusters.halves_apart(at, sides), at, sides))
    return max(splits, key=lambda split: split.apart, default=None)


def leaves_under(node: TreeNode) -> list[TreeNode]:
    return [node] if node.parts is None else [leaf for part in node.parts for leaf in leaves_under(part)]


# --- fewer clusters ---


def coarser(clusters: Clusters) -> list[tuple[int, int, float]]:
    """The joins of the two least apart, until one cluster is left; the t-th makes cluster k + t."""
    k = len(clusters)
    counts, means, scatters, _ = clusters.shapes.moments(clusters.member)
    sums = counts[:, None] * means
    seconds = scatters + counts[:, None, None] * means[:, :, None] * means[:, None, :]
    distances = clusters.distances()
    numbers = list(range(k))
    joins: list[tuple[int, int, float]] = []
    while len(numbers) > 1:
        one, other = sorted(np.unravel_index(int(distances.argmin()), distances.shape))
        joins.append((numbers[one], numbers[other], float(distances[one, other])))
        for moments in (counts, sums, seconds):
            moments[one] += moments[other]
        counts, sums, seconds = (np.delete(moments, other, axis=0) for moments in (counts, sums, seconds))
        distances = np.delete(np.delete(distances, other, axis=0), other, axis=1)
        del numbers[other]
        numbers[one] = k + len(joins) - 1
        means = sums / counts[:, None]
        scatters = seconds - counts[:, None, None] * means[:, :, None] * means[:, None, :]
        others = np.delete(np.arange(len(numbers)), one)
        anew = distances_apart(counts, means, scatters, clusters.tied, np.full(len(others), one), others)
        distances[one, others] = distances[others, one] = anew
    return joins


# --- place, weight and shape of every node ---


class Value(NamedTuple):
    """Share of all rows, center, and covariance where shapes are known."""

    weight: float
    center: FloatArray
    covariance: FloatArray | None


def values_of(
    clusters: Clusters,
    leaves: Sequence[TreeNode],
    found: Sequence[TreeNode],
    joins: Sequence[tuple[int, int]],
    labels: IntArray,
    *,
    centers: FloatArray,
    full: FloatArray,
    fitted: Fitted | None,
) -> list[Value]:
    """Of the leaves from their micro-clusters, of the found clusters as they are, of joins from the moments of both."""
    counts = clusters.micro.counts.astype(float)
    inside = [leaf.found for leaf in leaves]
    shapes = axes = None
    if fitted is None:
        whole = clusters.member @ counts / counts.sum()
        weights = np.bincount(labels, counts, minlength=len(leaves)).astype(float)
        places = means_by_label(full, labels, counts, otherwise=centers[inside])
    else:
        gaussians, parts, shares = fitted
        axes, whole = gaussians.axes, gaussians.weights
        finest = maximized(parts, leaf_shares(clusters, leaves, labels, shares))
        weights, places, shapes = finest.weights, finest.centers, finest.covariances
    totals = np.bincount(inside, weights, minlength=len(found))
    weights = weights * (whole / np.where(totals > 0, totals, 1.0))[inside]
    values = [
        Value(float(weights[at]), places[at], None if shapes is None else shapes[at]) for at in range(len(leaves))
    ]
    as_found = {
        node.number: Value(float(whole[at]), centers[at], None if fitted is None else fitted.gaussians.covariances[at])
        for at, node in enumerate(found)
    }
    values = [as_found.get(at, value) for at, value in enumerate(values)]
    for at, (one, other) in enumerate(joins, start=len(leaves)):
        values.append(as_found.get(at) or joined_values(values[one], values[other], axes))
    return values


def leaf_shares(clusters: Clusters, leaves: Sequence[TreeNode], labels: IntArray, shares: FloatArray) -> FloatArray:
    """The share (n, n_leaves) of each micro-cluster in each leaf, from those (n, k) in the found clusters.

    What it has of a cluster is in its own leaf of that cluster or, of clusters that it was not chosen for, in the leaf
    with the nearest mean.
    """
    weights = clusters.micro.counts.astype(float)
    whole = weights @ clusters.micro.means / weights.sum()
    means = means_by_label(clusters.micro.means, labels, weights, otherwise=np.tile(whole, (len(leaves), 1)))
    found: FloatArray = np.zeros((len(labels), len(leaves)))
    inside = np.array([leaf.found for leaf in leaves])
    for cluster in range(len(clusters)):
        own = np.flatnonzero(inside == cluster)
        near = own[nearest(clusters.micro.means, means[own])]
        near = np.where(inside[labels] == cluster, labels, near)
        found[np.arange(len(labels)), near] = shares[:, cluster]
    return found


def joined_values(one: Value, other: Value, axes: FloatArray | None) -> Value:
    """Two clusters taken as one, by their moments."""
    weight = one.weight + other.weight
    share = one.weight / weight if weight > 0 else 0.5
    center = share * one.center + (1 - share) * other.center
    if axes is None or one.covariance is None or other.covariance is None:
        return Value(weight, center, None)
    gap = axes @ (one.center - other.center)
    between = share * (1 - share) * np.outer(gap, gap)
    return Value(weight, center, share * one.covariance + (1 - share) * other.covariance + between)
