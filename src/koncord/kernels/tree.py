"""Nested clusterings: a tree whose nodes are clusters, each with its place, its weight and, if known, its shape.

The finest clusters are the leaves. Joining two nodes at a time leads from these, over the clusters that were found, to
one cluster of everything. The clustering with k clusters has the nodes that are there when all but k - 1 joins are
done, so each is nested in those with fewer clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from koncord.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterTree:
    """Clusters and what they are joined into: the leaves come first, then one node a join, in the order of the joins.

    Leaves are numbered so that those of one found cluster follow each other, in the order of the found clusters.
    """

    joins: IntArray  # (n_leaves - 1, 2) the two nodes of each join
    apart: FloatArray  # (n_leaves - 1,) d' of the two
    centers: FloatArray  # (n_nodes, d)
    weights: FloatArray  # (n_nodes,) share of all rows; those of a clustering sum to 1
    covariances: FloatArray | None = None  # (n_nodes, q, q) along the axes of the model; None where no shape is known
    groups: Mapping[str, IntArray] = field(default_factory=dict)  # leaf of each local component, by site

    def __post_init__(self) -> None:
        n = len(self.joins) + 1
        if self.joins.shape != (n - 1, 2) or self.apart.shape != (n - 1,):
            raise ValueError("'joins' must have two nodes a join, and 'apart' one number.")
        if self.weights.shape != (2 * n - 1,) or len(self.centers) != 2 * n - 1:
            raise ValueError("'centers' and 'weights' must have one entry a node.")
        if self.covariances is not None and len(self.covariances) != 2 * n - 1:
            raise ValueError("'covariances' must have one entry a node.")
        made = np.arange(n, 2 * n - 1)
        is_once = np.array_equal(np.sort(self.joins, axis=None), np.arange(2 * n - 2))
        if not is_once or (self.joins >= made[:, None]).any():
            raise ValueError("'joins' must take every node but the last once, after it was made.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterTree):
            return NotImplemented
        mine, theirs = (tree.arrays() for tree in (self, other))
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def arrays(self) -> dict[str, FloatArray | IntArray]:
        """The arrays by name; the groups of a site as ``groups.SITE``."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "groups"}
        groups = {f"groups.{site}": leaves for site, leaves in self.groups.items()}
        return {name: array for name, array in {**own, **groups}.items() if array is not None}

    @property
    def n_leaves(self) -> int:
        return len(self.joins) + 1

    def nodes_at(self, k: int) -> IntArray:
        """The nodes (k,) of the clustering with k clusters, in the order of their first leaves."""
        if not 1 <= k <= self.n_leaves:
            raise ValueError(f"'k' must be from 1 to {self.n_leaves}, the number of leaves; got {k}.")
        n_done = self.n_leaves - k
        there = np.ones(self.n_leaves + n_done, dtype=np.bool_)
        there[self.joins[:n_done].ravel()] = False
        nodes = np.flatnonzero(there)
        found: IntArray = nodes[np.argsort([self.first_leaf(int(node)) for node in nodes], kind="stable")]
        return found

    def leaves_of(self, node: int) -> list[int]:
        """The leaves under a node, in rising order."""
        waiting, found = [node], []
        while waiting:
            at = waiting.pop()
            if at < self.n_leaves:
                found.append(at)
            else:
                waiting += self.joins[at - self.n_leaves].tolist()
        return sorted(found)

    def first_leaf(self, node: int) -> int:
        return self.leaves_of(node)[0]

    def labels_at(self, k: int) -> IntArray:
        """The cluster (n_leaves,) of every leaf in the clustering with k clusters."""
        labels = np.empty(self.n_leaves, dtype=np.int64)
        for cluster, node in enumerate(self.nodes_at(k)):
            labels[self.leaves_of(int(node))] = cluster
        return labels

    def apart_at(self, k: int) -> float | None:
        """d' of the two clusters that are joined where k clusters become k - 1; None for one cluster."""
        return float(self.apart[self.n_leaves - k]) if k > 1 else None
