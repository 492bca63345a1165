"""Rows cut into small groups: in two, across a column with two peaks or the longest axis of the rows.

Along a column the cut is between the peaks, so that a rare cluster is cut off from a frequent one and not divided with
it; along the longest axis it is where it lowers the squared error most. The group whose cut lowers it most is next.
Every group has at least a given number of rows.
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
# By how many times the entropy of the sides two peaks must make rows likelier, in logarithms: the halves of a uniform
# density do by 1, those of other single peaks by less. And by how much more, for all rows together.
TIMES_LIKELIER, LEAST_EVIDENCE = 1.1, 12.0
# Distance of the mean of a peak from the cut, in its standard deviations: of a density that falls from there on, as a
# tail does, it is at most the square root of 3. And the rows of a peak at least.
LEAST_FROM_CUT, LEAST_OF_PEAK = 1.9, 10
# Of what a cut across the longest axis lowers the squared error by: the share that one between peaks does at least.
LEAST_SHARE = 0.3
# Without such evidence: the best cut of a density with a single peak leaves a quarter of its variance, or a little
# less by chance. And what is added to the share that a cut leaves, so that no column outweighs all others.
MOST_OF_A_PEAK, LEAST_LEFT = 0.78, 0.1
# Rows of a large group from which the axis of its cut is found.
ROWS_FOR_AXIS = 10_000
# Rows from which on counts in bins cost less than sorting all columns; how many bins; what rounding may add to a share.
ROWS_FOR_BINS, N_BINS, ROUNDING = 256, 256, 1e-9
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
    """The best cut of a group with enough rows on either side: between two peaks, or where it lowers the error most.

    None where there are too few rows, or where all of them are equal, or where no cut is safe.
    """
    n = len(group)
    if n < 2 * min_rows:
        return None
    own = X[group]
    mean = own.mean(axis=0)
    axis, has_peaks = cutting_axis(own[:: max(n // ROWS_FOR_AXIS, 1)], min_rows)
    own -= mean
    along = own @ axis
    order = stable_order(along)
    sizes = np.arange(min_rows, n - min_rows + 1)
    gains = gains_of(along[order], sizes)
    ordered = group[order]
    best = None
    if has_peaks:
        best = best_place(evidence_of_peaks(along[order], sizes), ordered, sizes, is_safe)
    if best is None:
        best = best_place(gains, ordered, sizes, is_safe)
    if best is None:
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


def best_place(scores: FloatArray, ordered: IntArray, sizes: IntArray, is_safe: Safe | None) -> int | None:
    """Which of the cuts after each of `sizes` rows has the largest score of those that are safe; None if it is 0."""
    best = int(scores.argmax())
    if is_safe is not None and not is_safe(ordered, sizes[[best]])[0]:
        scores = np.where(is_safe(ordered, sizes), scores, 0.0)
        best = int(scores.argmax())
    return best if scores[best] > 0 else None


def cutting_axis(X: FloatArray, min_rows: int) -> tuple[FloatArray, bool]:
    """The direction to cut rows (n, d) across, and whether they have two peaks there.

    It is the column with the clearest two peaks. A column that tells nothing is as long as one that tells clusters
    apart, where columns are standardized; and a rare cluster hardly makes a column longer. But of very many columns one
    with two peaks may tell little. So where none lowers the squared error by a fair share of what the longest axis
    would, it is that axis, or a column whose own variance a cut lowers by more than it could that of a single peak; and
    the more, the more of it is explained.
    """
    centered = X - X.mean(axis=0)
    longest = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    axes = np.column_stack([longest * np.sign(longest[np.abs(longest).argmax()]), np.eye(len(longest))])
    least = min(min_rows, len(centered) // 2)
    looked_at = np.ones(axes.shape[1], dtype=np.bool_)
    if len(centered) >= ROWS_FOR_BINS:
        looked_at[1:] = may_be_cut(centered, least)
    axes, along = axes[:, looked_at], np.sort((centered @ axes)[:, looked_at], axis=0)
    sizes = np.arange(least, len(along) - least + 1)
    gains = gains_of(along, sizes)
    most, total = gains.max(axis=0), np.cumsum(along**2, axis=0)[-1]  # in the order of rows, for any number of axes
    is_much = gains >= LEAST_SHARE * most[0]
    due = share_due(len(along), sizes)
    found = np.zeros(len(total))
    for at in np.flatnonzero(((gains > due[:, None] * total) & is_much).any(axis=0)).tolist():
        found[at] = np.where(is_much[:, at], evidence_of_peaks(along[:, at], sizes), 0.0).max()
    has_peaks = bool(found.any())
    if not has_peaks:
        explained = np.divide(most, total, out=np.zeros(len(most)), where=total > 0)
        is_peak = explained <= MOST_OF_A_PEAK
        is_peak[0] = False  # the longest axis is always a candidate
        found = np.where(is_peak, -1.0, most / (1 - explained + LEAST_LEFT))
    axis: FloatArray = axes[:, int(found.argmax())]
    return axis, has_peaks


def may_be_cut(centered: FloatArray, least: int) -> BoolArray:
    """Columns (n_features,) that a cut may explain enough of, found without sorting: of the others none does.

    Values are counted and summed in bins. Below 0 the sum of all values up to a cut falls, beyond it rises; so in a bin
    it lies between those at its edges, but where the bin holds 0. What it is weighed by is largest at an edge, and what
    a cut must explain is least at one.
    """
    n, d = centered.shape
    low = centered.min(axis=0)
    width = centered.max(axis=0) - low
    scale = np.divide(N_BINS, width, out=np.zeros(d), where=width > N_BINS * np.finfo(float).tiny)
    places = np.vstack([centered, np.zeros(d)]) - low
    places *= scale
    # 0 may lie beyond all values of a column that is constant but for rounding.
    bins = np.clip(places, 0, N_BINS - 1).astype(np.int64) + N_BINS * np.arange(d)
    counts, sums = np.zeros((d, N_BINS + 1), dtype=np.int64), np.zeros((d, N_BINS + 1))  # up to each edge
    counts[:, 1:] = np.bincount(bins[:n].ravel(), minlength=d * N_BINS).reshape(d, N_BINS).cumsum(axis=1)
    sums[:, 1:] = np.bincount(bins[:n].ravel(), centered.ravel(), d * N_BINS).reshape(d, N_BINS).cumsum(axis=1)
    sums = np.abs(sums)
    farthest = np.maximum(sums[:, :-1], sums[:, 1:]).ravel()
    farthest[bins[n]] += np.diff(counts).ravel()[bins[n]] * width / N_BINS
    sizes = np.clip(counts, least, n - least)
    weights, due = 1 / sizes + 1 / (n - sizes), np.minimum(share_due(n, sizes), MOST_OF_A_PEAK)
    gains = farthest.reshape(d, N_BINS) ** 2 * np.maximum(weights[:, :-1], weights[:, 1:])
    total = (centered**2).sum(axis=0)[:, None]
    is_enough = gains > (np.minimum(due[:, :-1], due[:, 1:]) - ROUNDING) * total
    may: BoolArray = (is_enough & (counts[:, 1:] >= least) & (counts[:, :-1] <= n - least)).any(axis=1)
    return may


def share_due(n: int, sizes: IntArray) -> FloatArray:
    """Share of the squares of n values that a cut after each of `sizes` must explain to be one between two peaks."""
    due: FloatArray = -np.expm1(-2 * (TIMES_LIKELIER * entropy_of(n, sizes) + LEAST_EVIDENCE) / n)
    return due


def entropy_of(n: int, sizes: IntArray) -> FloatArray:
    """Of the sides of n values that are cut after each of `sizes`, for all values together."""
    share: FloatArray = sizes / n
    entropy: FloatArray = -n * (share * np.log(share) + (1 - share) * np.log1p(-share))
    return entropy


def evidence_of_peaks(along: FloatArray, sizes: IntArray) -> FloatArray:
    """How much likelier two peaks are than one, of cuts after each of `sizes` sorted, centered values (n,).

    Two peaks are normal densities of one width; the likelihood is that of rows with their side known, in logarithms. It
    is 0 where a cut is not between two peaks.
    """
    n = len(along)
    first, second = sizes, n - sizes
    sums, squares = np.cumsum(along)[sizes - 1], np.cumsum(along**2)
    total = squares[-1]
    if not total > 0:
        return np.zeros(len(sizes))
    least = np.finfo(float).eps * total / n  # of a variance: a peak may have no width
    below, above = sums / first, -sums / second
    of_first = np.maximum(squares[sizes - 1] / first - below**2, least)
    of_second = np.maximum((total - squares[sizes - 1]) / second - above**2, least)
    at = (along[sizes - 1] + along[sizes]) / 2
    from_cut = np.minimum((at - below) / np.sqrt(of_first), (above - at) / np.sqrt(of_second))
    likelier = n / 2 * np.log(total / (first * of_first + second * of_second)) - TIMES_LIKELIER * entropy_of(n, sizes)
    is_between = (from_cut > LEAST_FROM_CUT) & (np.minimum(first, second) >= LEAST_OF_PEAK)
    evidence: FloatArray = np.where(is_between & (likelier > LEAST_EVIDENCE), likelier, 0.0)
    return evidence


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
