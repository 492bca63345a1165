"""Dominance: no value of a column may be read off a sum because one row makes up most of it.

Two rules of statistical disclosure control (Hundepool et al., "Statistical Disclosure Control", 2012, chapter 4). The
*dominance rule*, once for a table: a row that makes up more than p = 10 % of the squared spread of a column is moved
toward the median until it does not (top and bottom coding). The *p % rule*, for every group of rows that sums are sent
of: who knows the count, the sum and the sum of squares must not know the largest deviation to within p %. So that
one far row does not keep its neighbors from being described, rows that break this rule among their neighbors are moved
in the same manner, once.
"""

import numpy as np

from koncord.kernels.cutting import groups_of
from koncord.types import BoolArray, FloatArray, IntArray

# p of both rules.
PERCENT = 0.10
# In a table of few rows the limit is this many times the equal share of a row: else plain noise would be moved.
EQUAL_SHARES = 4.0
# The root of the summed squares exceeds the largest deviation by less than p % if the squares are fewer times larger.
KNOWN_BY_SQUARES = (1 + PERCENT) ** 2


def coded(X: FloatArray, least: int, *, has_pair: BoolArray, is_magnitude: BoolArray) -> FloatArray:
    """X (n, n_features) with rows moved that make up too much of a column.

    Of all rows, in columns but those with two values; of `least` neighbors or more, in columns of magnitudes.
    """
    moved: FloatArray = np.where(has_pair, X, np.clip(X, *bounds_of(X)))
    if len(X) < 2 * least or not is_magnitude.any():
        return moved
    deviations = moved.std(axis=0)
    for group in groups_of(moved / np.where(deviations > 0, deviations, 1.0), least):
        columns = np.flatnonzero(is_magnitude & dominated_columns(moved[group]))
        own = moved[np.ix_(group, columns)]
        moved[np.ix_(group, columns)] = np.clip(own, *bounds_of(own))
    return moved


def bounds_of(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest value of each column (n_features,) between which no row makes up too much of the spread.

    Where no row does, they are the extremes of the column.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    limit = max(PERCENT, EQUAL_SHARES / len(X))
    if limit >= 1:
        return low, high
    middle = np.median(X, axis=0)
    n_top = min(int(1 / limit) + 1, len(X) - 1)  # no more rows can each make up more than the limit
    for column in range(X.shape[1]):
        squares = (X[:, column] - middle[column]) ** 2
        ordered = np.partition(squares, len(X) - n_top)
        largest = -np.sort(-ordered[len(X) - n_top :])
        reach = most_square(ordered[: len(X) - n_top].sum(), largest, limit)
        if largest[0] > reach:
            low[column] = max(low[column], middle[column] - np.sqrt(reach))
            high[column] = min(high[column], middle[column] + np.sqrt(reach))
    return low, high


def most_square(others: float, largest: FloatArray, limit: float) -> float:
    """The largest s for which squares cut down to s make up no more than `limit` of their sum.

    `others` is the sum of the squares that are not among the `largest`. With the j largest cut down to s the sum is
    the rest + j s, so s = limit (rest + j s). The rest is summed, not what is left of a total: one far row would leave
    nothing but rounding.
    """
    rests = others + np.cumsum(largest[::-1])[::-1]
    for j, (square, rest) in enumerate(zip(largest, rests, strict=True)):
        s = limit * rest / (1 - limit * j) if limit * j < 1 else 0.0
        if square <= s:
            return float(s)
    return 0.0


def is_dominated(X: FloatArray) -> bool:
    """Whether the largest deviation from the mean follows, to within p %, from the squares of some column of X."""
    return bool(dominated_columns(X).any())


def dominated_columns(X: FloatArray) -> BoolArray:
    squares = X - X.mean(axis=0)
    squares *= squares
    largest = squares.max(axis=0)
    dominated: BoolArray = (squares.sum(axis=0) < KNOWN_BY_SQUARES * largest) & (largest > 0)
    return dominated


def safe_cuts(X: FloatArray, sizes: IntArray) -> BoolArray:
    """For each of the `sizes` s, whether neither the first s rows of X nor the others are dominated."""
    if len(sizes) == 1 and X.shape[1] > 1:
        return np.array([is_safe_cut(X, int(sizes[0]))])
    safe = np.ones(len(sizes), dtype=np.bool_)
    for column in range(X.shape[1]):
        x = X[:, column] - X[:, column].mean()
        for part, n in ((x, sizes), (x[::-1], len(x) - sizes)):
            highest, lowest = np.maximum.accumulate(part)[n - 1], np.minimum.accumulate(part)[n - 1]
            safe &= is_safe(np.cumsum(part)[n - 1], np.cumsum(part**2)[n - 1], highest, lowest, n)
    return safe


def is_safe_cut(X: FloatArray, size: int) -> bool:
    """The same for one size and two columns or more, all columns at once and, row after row, added in the same order.

    So it is the same to the last bit: of equal values nothing but rounding is left.
    """
    x = np.subtract(X, np.ascontiguousarray(X.T).mean(axis=1), order="C")
    for part in (x[:size], np.ascontiguousarray(x[size:][::-1])):
        highest, lowest = part.max(axis=0), part.min(axis=0)
        total = part.sum(axis=0)
        part *= part
        if not is_safe(total, part.sum(axis=0), highest, lowest, len(part)).all():
            return False
    return True


def is_safe(
    sums: FloatArray, squares: FloatArray, highest: FloatArray, lowest: FloatArray, n: IntArray | int
) -> BoolArray:
    """Whether n values with these sums and sums of squares do not tell the one that deviates most."""
    means = sums / n
    largest = np.maximum(highest - means, means - lowest) ** 2
    safe: BoolArray = (squares - n * means**2 >= KNOWN_BY_SQUARES * largest) | (largest <= 0)
    return safe
