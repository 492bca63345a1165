"""Rows cut into small groups: in two along their longest axis, where the cut lowers the squared error most.

The group whose cut lowers it most is next. Every group has at least a given number of rows.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from koncord.types import BoolArray, FloatArray, IntArray

MOST_GROUPS = 200
Safe = Callable[[IntArray, IntArray], BoolArray]


class Cut(NamedTuple):
    """The best cut of a group: by how much it lowers the squared error, the rows along the axis, and where it is."""

    gain: float
    rows: IntArray
    at: int


def groups_of(X: FloatArray, min_rows: int, most: int = MOST_GROUPS, *, is_safe: Safe | None = None) -> list[IntArray]:
    """Rows of each group, at least `min_rows`, in the order of their first row; at most `most` groups.

    With `is_safe`, rows are cut only where both sides are: it takes rows in their order and sizes of the first side.
    """
    done: list[IntArray] = []
    waiting: list[tuple[float, int, Cut]] = []
    todo = [np.arange(len(X))]
    while True:
        for group in todo:
            cut = best_cut(X, group, min_rows, is_safe)
            if cut is None:
                done.append(group)
            else:
                heapq.heappush(waiting, (-cut.gain, int(group.min()), cut))
        if not waiting or len(waiting) + len(done) >= most:
            break
        cut = heapq.heappop(waiting)[2]
        todo = [cut.rows[: cut.at], cut.rows[cut.at :]]
    found = [*done, *(cut.rows for *_, cut in waiting)]
    return sorted(map(np.sort, found), key=lambda group: int(group[0]))


def best_cut(X: FloatArray, group: IntArray, min_rows: int, is_safe: Safe | None = None) -> Cut | None:
    """The cut across the longest axis of a group that lowers its squared error most, with enough rows on either side.

    None where there are too few rows, or where all of them are equal, or where no cut is safe.
    """
    n = len(group)
    if n < 2 * min_rows:
        return None
    centred = X[group] - X[group].mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    along = centred @ (axis * np.sign(axis[np.abs(axis).argmax()]))
    order = np.argsort(along, kind="stable")
    below = np.cumsum(along[order])
    sizes = np.arange(min_rows, n - min_rows + 1)
    gains = below[sizes - 1] ** 2 * (1 / sizes + 1 / (n - sizes))  # the sums of both sides are equal and opposite
    ordered = group[order]
    best = int(gains.argmax())
    if is_safe is not None and not is_safe(ordered, sizes[[best]])[0]:
        gains = np.where(is_safe(ordered, sizes), gains, 0.0)
        best = int(gains.argmax())
    if not gains[best] > 0:
        return None
    return Cut(float(gains[best]), ordered, int(sizes[best]))


def labels_of(groups: Sequence[IntArray], n_rows: int) -> IntArray:
    """The group of each row; each row is in one of them."""
    labels = np.empty(n_rows, dtype=np.int64)
    for at, rows in enumerate(groups):
        labels[rows] = at
    return labels
