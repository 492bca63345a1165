"""Rows cut into small groups: in two, where the cut lowers the squared error most.

A cut goes across the longest axis of the rows, or across a column with more than one peak. The group whose cut lowers
it most is next. Every group has at least a given number of rows.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from koncord.kernels.built import compiled_module
from koncord.types import BoolArray, FloatArray, IntArray

_labeling = compiled_module("_labeling")
MOST_GROUPS = 200
# The best cut of a density with a single peak leaves at least a quarter of its variance; a little less by chance.
MOST_OF_A_PEAK = 0.78
# Added to the share of a column's variance that a cut leaves, so that no column outweighs all others.
LEAST_LEFT = 0.1
# Rows of a large group from which the axis of its cut is found.
ROWS_FOR_AXIS = 10_000
# Rows from which on counts in bins cost less than sorting all columns; how many bins; what rounding may add.
ROWS_FOR_BINS, N_BINS, ROUNDING = 256, 64, 1e-9
# Places of rows along cuts that are held at a time.
PROJECTED_FLOATS = 1 << 20
Safe = Callable[[IntArray, IntArray], BoolArray]


class Cut(NamedTuple):
    """The best cut of a group: by how much it lowers the squared error, the rows along the axis, and where it is."""

    gain: float
    rows: IntArray
    at: int
    axis: FloatArray  # (n_features,)
    offset: float  # a row is of the second side where it lies farther along the axis


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CutTree:
    """The cuts that made groups of some rows, for rows that were not among them."""

    axes: FloatArray  # (n_cuts, n_features)
    offsets: FloatArray  # (n_cuts,)
    sides: IntArray  # (n_cuts, 2) the next cut on either side, or -1 - the number of the group
    n_groups: int

    def assign(self, X: FloatArray) -> IntArray:
        """The group of every row of X (n, n_features)."""
        groups = np.zeros(len(X), dtype=np.int64)
        if self.n_groups == 1:
            return groups
        if _labeling is not None:
            _labeling.walk(np.ascontiguousarray(X), self.axes, self.offsets, self.sides, groups)
            return groups
        step = max(PROJECTED_FLOATS // len(self.axes), 1)
        for start in range(0, len(X), step):
            is_beyond = X[start : start + step] @ self.axes.T > self.offsets
            at = np.zeros(len(is_beyond), dtype=np.int64)
            rows = np.arange(len(at))
            while len(rows):
                at[rows] = self.sides[at[rows], is_beyond[rows, at[rows]].astype(np.int64)]
                rows = rows[at[rows] >= 0]
            groups[start : start + step] = -1 - at
        return groups


def groups_of(X: FloatArray, min_rows: int, most: int = MOST_GROUPS, *, is_safe: Safe | None = None) -> list[IntArray]:
    """Rows of each group, at least `min_rows`, in the order of their first row; at most `most` groups.

    With `is_safe`, rows are cut only where both sides are: it takes rows in their order and sizes of the first side.
    """
    return cut_apart(X, min_rows, most, is_safe)[0]


def cut_tree(X: FloatArray, min_rows: int, most: int = MOST_GROUPS, *, is_safe: Safe | None = None) -> CutTree:
    """The cuts of `groups_of`, which sort other rows into the same groups; these are numbered as there."""
    return groups_and_tree(X, min_rows, most, is_safe=is_safe)[1]


def groups_and_tree(
    X: FloatArray, min_rows: int, most: int = MOST_GROUPS, *, is_safe: Safe | None = None
) -> tuple[list[IntArray], CutTree]:
    """The groups of `groups_of`, and the cuts that made them."""
    groups, cuts, sides = cut_apart(X, min_rows, most, is_safe)
    return groups, CutTree(
        axes=np.array([cut.axis for cut in cuts]).reshape(len(cuts), X.shape[1]),
        offsets=np.array([cut.offset for cut in cuts]),
        sides=np.array(sides, dtype=np.int64).reshape(len(cuts), 2),
        n_groups=len(groups),
    )


def cut_apart(
    X: FloatArray, min_rows: int, most: int, is_safe: Safe | None
) -> tuple[list[IntArray], list[Cut], list[list[int]]]:
    """The groups, the cuts that were made, and what is on either side of each, as in `CutTree`."""
    cuts: list[Cut] = []
    sides: list[list[int]] = []
    done: list[tuple[IntArray, tuple[int, int]]] = []  # a group and the side of the cut that it is
    waiting: list[tuple[float, int, Cut, tuple[int, int]]] = []
    todo = [(np.arange(len(X)), (-1, 0))]
    while True:
        for group, side in todo:
            cut = best_cut(X, group, min_rows, is_safe)
            if cut is None:
                done.append((group, side))
            else:
                heapq.heappush(waiting, (-cut.gain, int(group.min()), cut, side))
        if not waiting or len(waiting) + len(done) >= most:
            break
        *_, cut, (parent, at) = heapq.heappop(waiting)
        if parent >= 0:
            sides[parent][at] = len(cuts)
        todo = [(cut.rows[: cut.at], (len(cuts), 0)), (cut.rows[cut.at :], (len(cuts), 1))]
        cuts.append(cut)
        sides.append([0, 0])
    found = [*done, *((cut.rows, side) for *_, cut, side in waiting)]
    ordered = sorted(((np.sort(group), side) for group, side in found), key=lambda each: int(each[0][0]))
    for number, (_, (parent, at)) in enumerate(ordered):
        if parent >= 0:
            sides[parent][at] = -1 - number
    return [group for group, _ in ordered], cuts, sides


def best_cut(X: FloatArray, group: IntArray, min_rows: int, is_safe: Safe | None = None) -> Cut | None:
    """The cut of a group that lowers its squared error most, with enough rows on either side.

    It goes across the longest axis of the rows, or across a column that it splits better than it could a single peak.
    None where there are too few rows, or where all of them are equal, or where no cut is safe.
    """
    n = len(group)
    if n < 2 * min_rows:
        return None
    own = X[group]
    mean = own.mean(axis=0)
    axis = cutting_axis(own[:: max(n // ROWS_FOR_AXIS, 1)], min_rows)
    own -= mean
    along = own @ axis
    order = stable_order(along)
    sizes, gains = gains_of(along[order], min_rows)
    ordered = group[order]
    best = int(gains.argmax())
    if is_safe is not None and not is_safe(ordered, sizes[[best]])[0]:
        gains = np.where(is_safe(ordered, sizes), gains, 0.0)
        best = int(gains.argmax())
    if not gains[best] > 0:
        return None
    at = int(sizes[best])
    between = float(along[order[at - 1]] + along[order[at]]) / 2
    return Cut(float(gains[best]), ordered, at, axis, between + float(mean @ axis))


def stable_order(values: FloatArray) -> IntArray:
    """The order of values (n,), equal ones as they come. A sort that is not stable is faster where none are equal."""
    if len(values) >= ROWS_FOR_AXIS:
        order = np.argsort(values)
        ordered = values[order]
        if (ordered[1:] > ordered[:-1]).all():
            return order
    return np.argsort(values, kind="stable")


def cutting_axis(X: FloatArray, min_rows: int) -> FloatArray:
    """The direction to cut rows (n, d) across: their longest axis, or a column of which the cut explains more.

    A column that tells nothing is as long as one that tells clusters apart, where columns are standardized. So a
    column is cut where that lowers its own variance by more than it could that of a single peak; and the more, the
    more of it is explained.
    """
    centered = X - X.mean(axis=0)
    longest = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    axes = np.column_stack([longest * np.sign(longest[np.abs(longest).argmax()]), np.eye(len(longest))])
    least = min(min_rows, len(centered) // 2)
    if len(centered) >= ROWS_FOR_BINS and (most_explained(centered, least) <= MOST_OF_A_PEAK - ROUNDING).all():
        return axes[:, 0]
    along = np.sort(centered @ axes, axis=0)
    gains = gains_of(along, least)[1].max(axis=0)
    total = (along**2).sum(axis=0)
    explained = np.divide(gains, total, out=np.zeros(len(gains)), where=total > 0)
    is_peak = explained <= MOST_OF_A_PEAK
    is_peak[0] = False  # the longest axis is always a candidate
    best = int(np.where(is_peak, -1.0, gains / (1 - explained + LEAST_LEFT)).argmax())
    axis: FloatArray = axes[:, best]
    return axis


def gains_of(along: FloatArray, least: int) -> tuple[IntArray, FloatArray]:
    """By how much a cut of sorted, centered values (n, ...) lowers their squares, and the values before each cut.

    At least so many are on either side.
    """
    n = len(along)
    sizes = np.arange(least, n - least + 1)
    below = np.cumsum(along, axis=0)[least - 1 : n - least]
    gains: FloatArray = below**2 * weights_of(sizes, n).reshape(-1, *(1,) * (along.ndim - 1))
    return sizes, gains


def weights_of(sizes: IntArray, n: int) -> FloatArray:
    """What the squared sum of so many of n centered values is multiplied by: both sides have the same, but its sign."""
    weights: FloatArray = 1 / sizes + 1 / (n - sizes)
    return weights


def most_explained(centered: FloatArray, least: int) -> FloatArray:
    """A share of the squares of each column (n_features,) that no cut lowers them by more than, found without sorting.

    Values are counted and summed in bins. Below 0 the sum of all values up to a cut falls, beyond it rises; so in a bin
    it lies between those at its edges, but where the bin holds 0. What it is weighed by is largest at an edge.
    """
    n, d = centered.shape
    low = centered.min(axis=0)
    width = centered.max(axis=0) - low
    scale = np.divide(N_BINS, width, out=np.zeros(d), where=width > N_BINS * np.finfo(float).tiny)
    places = np.vstack([centered, np.zeros(d)]) - low
    places *= scale
    # 0 may lie beyond all values of a column that is constant but for rounding.
    bins = np.clip(places, 0, N_BINS - 1).astype(np.int64) + N_BINS * np.arange(d)
    ends = np.zeros((2, d, N_BINS + 1))  # values before each edge, and their sum
    for at, weights in enumerate((None, centered.ravel())):
        ends[at, :, 1:] = np.bincount(bins[:n].ravel(), weights, minlength=d * N_BINS).reshape(d, N_BINS).cumsum(axis=1)
    counts, sums = ends[0], np.abs(ends[1])
    farthest = np.maximum(sums[:, :-1], sums[:, 1:]).ravel()
    farthest[bins[n]] += np.diff(counts).ravel()[bins[n]] * width / N_BINS
    weights = weights_of(np.clip(counts, least, n - least), n)
    gains = farthest.reshape(d, N_BINS) ** 2 * np.maximum(weights[:, :-1], weights[:, 1:])
    total = (centered**2).sum(axis=0)
    most: FloatArray = np.divide(gains.max(axis=1), total, out=np.zeros(d), where=total > 0)
    return most


def group_labels(groups: Sequence[IntArray], n_rows: int) -> IntArray:
    """The group of each row; each row is in one of them."""
    labels = np.empty(n_rows, dtype=np.int64)
    for at, rows in enumerate(groups):
        labels[rows] = at
    return labels
