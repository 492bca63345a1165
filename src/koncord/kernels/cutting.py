"""Rows cut into small groups: in two, where the cut lowers the squared error most.

A cut goes across the longest axis of the rows, or across a column with more than one peak. The group whose cut lowers
it most is next. Every group has at least a given number of rows.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from koncord.types import BoolArray, FloatArray, IntArray

MOST_GROUPS = 200
# The best cut of a density with a single peak leaves at least a quarter of its variance; a little less by chance.
MOST_OF_A_PEAK = 0.78
# Added to the share of a column's variance that a cut leaves, so that no column outweighs all others.
LEAST_LEFT = 0.1
# Rows of a large group from which the axis of its cut is found.
ROWS_FOR_AXIS = 10_000
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
    """The cut of a group that lowers its squared error most, with enough rows on either side.

    It goes across the longest axis of the rows, or across a column that it splits better than it could a single peak.
    None where there are too few rows, or where all of them are equal, or where no cut is safe.
    """
    n = len(group)
    if n < 2 * min_rows:
        return None
    centered = X[group] - X[group].mean(axis=0)
    along = centered @ cutting_axis(X[group[:: max(n // ROWS_FOR_AXIS, 1)]], min_rows)
    order = np.argsort(along, kind="stable")
    sizes = np.arange(min_rows, n - min_rows + 1)
    gains = gains_of(along[order], sizes)
    ordered = group[order]
    best = int(gains.argmax())
    if is_safe is not None and not is_safe(ordered, sizes[[best]])[0]:
        gains = np.where(is_safe(ordered, sizes), gains, 0.0)
        best = int(gains.argmax())
    if not gains[best] > 0:
        return None
    return Cut(float(gains[best]), ordered, int(sizes[best]))


def cutting_axis(X: FloatArray, min_rows: int) -> FloatArray:
    """The direction to cut rows (n, d) across: their longest axis, or a column of which the cut explains more.

    A column that tells nothing is as long as one that tells clusters apart, where columns are standardized. So a
    column is cut where that lowers its own variance by more than it could that of a single peak; and the more, the
    more of it is explained.
    """
    centered = X - X.mean(axis=0)
    longest = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    axes = np.column_stack([longest * np.sign(longest[np.abs(longest).argmax()]), np.eye(len(longest))])
    along = np.sort(centered @ axes, axis=0)
    least = min(min_rows, len(along) // 2)
    gains = gains_of(along, np.arange(least, len(along) - least + 1)).max(axis=0)
    total = (along**2).sum(axis=0)
    explained = np.divide(gains, total, out=np.zeros(len(gains)), where=total > 0)
    is_peak = explained <= MOST_OF_A_PEAK
    is_peak[0] = False  # the longest axis is always a candidate
    best = int(np.where(is_peak, -1.0, gains / (1 - explained + LEAST_LEFT)).argmax())
    axis: FloatArray = axes[:, best]
    return axis


def gains_of(along: FloatArray, sizes: IntArray) -> FloatArray:
    """By how much a cut after each of `sizes` sorted, centered values (n, ...) lowers their squares."""
    below = np.cumsum(along, axis=0)[sizes - 1]
    weights = (1 / sizes + 1 / (len(along) - sizes)).reshape(-1, *(1,) * (along.ndim - 1))
    gains: FloatArray = below**2 * weights  # the sums of both sides are equal and opposite
    return gains


def group_labels(groups: Sequence[IntArray], n_rows: int) -> IntArray:
    """The group of each row; each row is in one of them."""
    labels = np.empty(n_rows, dtype=np.int64)
    for at, rows in enumerate(groups):
        labels[rows] = at
    return labels
