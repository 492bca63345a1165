"""Leaves: how a client describes its rows to the server, in pieces of at least a given number of rows.

A leaf is an end of the client's split tree (`koncord.kernels.splitting`), as count, mean and summed squared distance
of its rows to their mean. A split is undone where one of its halves would stand for fewer rows than the floor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from koncord.kernels.splitting import Node, SplitForest, components_of
from koncord.protocol.schema import LARGEST_FLOAT, Array
from koncord.types import FloatArray, IntArray

# How far from the mean the halves of a split start, the middle of the paper's grid, and its cap on their number.
SPLIT_FACTOR = 0.5
MOST_LEAVES = 200
# Pieces need not be the best halves: a third of the iterations of phase 1 finds clusters of leaves as well.
EM_ITERATIONS = 5
# Directions in which the spread inside leaves is told apart from the sum of its features.
N_AXES = 4


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


def leaves_of(X: FloatArray, min_rows: int) -> Leaves:
    """Leaves of the split tree of X (n, d) with at least `min_rows` rows each; none if X has fewer."""
    if len(X) < min_rows:
        return nothing(X.shape[1])
    (nodes,) = pieces_of(X, [np.arange(len(X))], min_rows)
    inside = np.concatenate([X[node.rows] - node.mean for node in nodes])
    return told(nodes, spread=(inside**2).sum(axis=0), axes=axes_of(inside))


def pieces_of(X: FloatArray, groups: Sequence[IntArray], min_rows: int) -> list[list[Node]]:
    """The leaves of each of several groups of rows of X, each of at least `min_rows` rows."""
    forest = SplitForest(X, groups, split_factors=[SPLIT_FACTOR], is_spherical=True, n_em_iter=EM_ITERATIONS)
    ends = forest.cut(min_rows, MOST_LEAVES)
    return [large_leaves(root, own, min_rows) for root, own in zip(forest.roots, ends, strict=True)]


def told(nodes: Sequence[Node], *, spread: FloatArray, axes: FloatArray) -> Leaves:
    parts = components_of(nodes)
    return Leaves(counts=parts.counts, means=parts.means, scatters=parts.scatters, spread=spread, axes=axes)


def nothing(n_features: int) -> Leaves:
    return Leaves(
        counts=np.empty(0, dtype=np.int64),
        means=np.empty((0, n_features)),
        scatters=np.empty(0),
        spread=np.zeros(n_features),
        axes=np.empty((0, n_features)),
    )


def large_leaves(root: Node, ends: Sequence[Node], min_rows: int) -> list[Node]:
    """Leaves of the tree that stops at `ends`, from left to right, without splits off fewer than `min_rows` rows.

    The split test weighs halves by responsibilities, so a half that is heavy enough may still be nearest to few rows.
    """
    is_end = set(map(id, ends))
    leaves: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.children and id(node) not in is_end and min(len(half.rows) for half in node.children) >= min_rows:
            waiting.extend(reversed(node.children))
        else:
            leaves.append(node)
    return leaves


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
