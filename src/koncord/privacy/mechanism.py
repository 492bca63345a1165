"""The rows of a private site, and the noisy sums that are all anybody gets of them.

Rows are clipped to a ball and written in whole numbers, so that what one row adds to a sum is bounded exactly and no
rounding of floats adds to it. A row of the ball adds to one cell: a count, a vector, and its squared length.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.privacy.budget import CELLS, HISTOGRAM, HOLDINGS, MOMENTS, PRODUCTS, STEPS, Accountant
from koncord.types import FloatArray, IntArray

# The radius of a ball in whole numbers is `STEPS`: what a row loses by rounding is far below any noise.
# A squared length, at most one in radii, is divided by this beside the vector: it is one number against many.
SQUARES = 2
# Rows, and centers that they are compared with, count as lying no farther than this in any column, in radii.
FAR = 16
# Products in one block of distances.
BLOCK = 1 << 20
# For products of columns the radius is so many steps: sums of products of `PRODUCT_ROWS` rows are whole numbers that a
# float holds exactly, in whatever order they are added.
PRODUCT_STEPS, PRODUCT_ROWS = 1 << 12, 1 << 20
# What a square of a column and a product of two weigh: with the root of 2 for the latter, the vector of all of them is
# as long as the row squared, and 7 / 5 is less.
SQUARE_WEIGHT, PRODUCT_WEIGHT = 5, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Ball:
    """Where rows are clipped to: agreed beforehand, or found from noisy sums."""

    center: FloatArray  # (n_features,)
    radius: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySums:
    """What a release tells of the rows in each cell, in the units of the rows but about the center of the ball."""

    counts: FloatArray  # (k,) whole numbers, possibly below 0
    sums: FloatArray  # (k, n_features) of the rows less the center
    squares: FloatArray  # (k,) summed squared distances to the center; (k, n_features) for moments
    count_noise: float  # standard deviation of each count
    sum_noise: float  # and of each number in sums


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyProducts:
    """Sums of the products of every two columns over all rows, about the center of the ball."""

    products: FloatArray  # (n_features, n_features) symmetric
    noise: float  # standard deviation of those on the diagonal; the others have 5 / 7 of it


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """How many rows are nearest to each center."""

    counts: FloatArray  # (k,) possibly below 0
    noise: float  # standard deviation of each


class Mechanism:
    """Holds the rows of one site and answers with noisy sums, as long as the accountant lets it.

    Parameters
    ----------
    X : array (n_samples, n_features)
    accountant : Accountant
        Draws the noise.
    """

    def __init__(self, X: FloatArray, accountant: Accountant) -> None:
        self._table = X
        self._rows = X
        self.accountant = accountant

    def rescale(self, order: IntArray, means: FloatArray, scales: FloatArray) -> None:
        """From now on take the columns in this order, less `means` and divided by `scales`."""
        with np.errstate(over="ignore"):
            self._rows = np.clip((self._table[:, order] - means) / scales, -LARGEST_VALUE, LARGEST_VALUE)

    def moments(self, ball: Ball) -> NoisySums:
        """Count, sum and squares by column of all rows of the table as it is, one cell."""
        rows = clipped(whole(self._table, ball))
        one = np.zeros(len(rows), dtype=np.int64)
        return self._release(MOMENTS, rows, rows**2, one, 1, ball)

    def cells(self, centers: FloatArray, ball: Ball, kind: str = CELLS) -> NoisySums:
        """Sums of the rows, clipped to `ball`, by the nearest of the centers."""
        unclipped = whole(self._rows, ball)
        rows = clipped(unclipped)
        labels = nearest_whole(unclipped, whole(centers, ball))
        return self._release(kind, rows, np.vecdot(rows, rows)[:, None], labels, len(centers), ball)

    def products(self, ball: Ball) -> NoisyProducts:
        """Sums of the products of every two columns of the rows, clipped to `ball`."""
        rows = clipped(whole(self._rows, ball))
        d, sensitivity = rows.shape[1], product_sensitivity()
        coarse = np.sign(rows) * (np.abs(rows) // (STEPS // PRODUCT_STEPS))  # toward 0, so that no row gets longer
        weights, unit = product_weights(d), (ball.radius / PRODUCT_STEPS) ** 2
        weighed = (exact_products(coarse) * weights)[np.triu_indices(d)]
        noisy = symmetric(self.accountant.release(PRODUCTS, weighed, sensitivity).astype(float), d) / weights
        noise = self.accountant.scale(PRODUCTS, sensitivity) / SQUARE_WEIGHT
        return NoisyProducts(products=noisy * unit, noise=noise * unit)

    def histogram(self, centers: FloatArray, ball: Ball) -> NoisyCounts:
        """How many rows are nearest to each of the centers, with all that is kept for cells."""
        counts = self._released_counts(centers, ball, HISTOGRAM).astype(float) / STEPS
        return NoisyCounts(counts=counts, noise=self.accountant.scale(HISTOGRAM, float(STEPS)) / STEPS)

    def holdings(self, centers: FloatArray, ball: Ball) -> IntArray:
        """How many rows are nearest to each of the centers."""
        counts: IntArray = np.rint(self._released_counts(centers, ball, HOLDINGS) / STEPS).astype(np.int64)
        return counts

    def _released_counts(self, centers: FloatArray, ball: Ball, kind: str) -> IntArray:
        labels = nearest_whole(whole(self._rows, ball), whole(centers, ball))
        return self.accountant.release(kind, STEPS * np.bincount(labels, minlength=len(centers)), float(STEPS))

    def _release(self, kind: str, rows: IntArray, squares: IntArray, labels: IntArray, k: int, ball: Ball) -> NoisySums:
        d = rows.shape[1]
        weight, sensitivity = count_weight(d), sensitivity_of(d)
        total = np.zeros((k, 1 + d + squares.shape[1]), dtype=np.int64)
        np.add.at(total, labels, added(rows, squares))
        noisy: FloatArray = self.accountant.release(kind, total.ravel(), sensitivity).reshape(total.shape).astype(float)
        noise, step = self.accountant.scale(kind, sensitivity), ball.radius / STEPS
        return NoisySums(
            counts=noisy[:, 0] / weight,
            sums=noisy[:, 1 : d + 1] * step,
            squares=noisy[:, d + 1 :] * (step * ball.radius * SQUARES),
            count_noise=noise / weight,
            sum_noise=noise * step,
        )


# What is computed of a row depends on that row alone, to the last bit: floats are only taken one by one, and whatever
# is added up are whole numbers.


def whole(X: FloatArray, ball: Ball) -> IntArray:
    """Rows (n, d) relative to the ball's center in steps of its radius; no entry is beyond `FAR` radii."""
    with np.errstate(over="ignore"):
        gaps = np.clip((X - ball.center) / ball.radius, -FAR, FAR)
    steps: IntArray = np.trunc(gaps * STEPS).astype(np.int64)
    return steps


def clipped(rows: IntArray) -> IntArray:
    """Rows in steps, none longer than the radius."""
    lengths = np.sqrt((rows**2).sum(axis=1).astype(float))
    short: IntArray = np.trunc(rows * (STEPS / np.maximum(lengths, STEPS))[:, None]).astype(np.int64)
    short[(short**2).sum(axis=1) > STEPS**2] = 0  # never, but for the rounding of a length
    return short


def nearest_whole(rows: IntArray, centers: IntArray) -> IntArray:
    """Index of the nearest center of every row, the lowest one on ties."""
    squared = (centers**2).sum(axis=1)
    labels = np.empty(len(rows), dtype=np.int64)
    size = max(BLOCK // len(centers), 1)
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        labels[start : start + size] = (squared - 2 * (block @ centers.T)).argmin(axis=1)
    return labels


def added(rows: IntArray, squares: IntArray) -> IntArray:
    """What each clipped row adds to its cell: a count, a vector, and squares that sum to no more than its own."""
    weight = np.full((len(rows), 1), count_weight(rows.shape[1]))
    return np.concatenate([weight, rows, squares // (STEPS * SQUARES)], axis=1)


def count_weight(n_features: int) -> int:
    """What a count weighs beside the vector, in steps: about the weight at which the mean of a cell is least noisy."""
    return max(round(STEPS / sqrt(sqrt(n_features))), 1)


def sensitivity_of(n_features: int) -> float:
    """Length of the longest vector that one row adds: the roots of its three parts are at most these."""
    longest = count_weight(n_features) ** 2 + STEPS**2 + (STEPS // SQUARES) ** 2
    return float(np.nextafter(sqrt(longest), np.inf))


def sum_noise(rho: float, n_features: int) -> float:
    """Standard deviation of the noise of each number of a sum in a release of this cost, in radii."""
    return sensitivity_of(n_features) / sqrt(2 * rho) / STEPS


def exact_products(rows: IntArray) -> IntArray:
    """Sums over the rows of the products of every two columns, exactly; rows are no longer than `PRODUCT_STEPS`."""
    total = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
    for start in range(0, len(rows), PRODUCT_ROWS):
        block = rows[start : start + PRODUCT_ROWS].astype(np.float64)
        total += (block.T @ block).astype(np.int64)
    return total


def product_weights(n_features: int) -> IntArray:
    """What each product (n_features, n_features) is multiplied by before noise is added."""
    weights = np.full((n_features, n_features), PRODUCT_WEIGHT)
    np.fill_diagonal(weights, SQUARE_WEIGHT)
    return weights


def product_sensitivity() -> float:
    """Length of the longest vector that one row adds: 25 (x_i^4 + ...) + 49 (x_i^2 x_j^2 + ...) is at most 25 |x|^4."""
    return float(SQUARE_WEIGHT * PRODUCT_STEPS**2)


def symmetric(upper: FloatArray, n_features: int) -> FloatArray:
    """The symmetric matrix whose upper triangle is given, row by row."""
    full = np.zeros((n_features, n_features))
    full[np.triu_indices(n_features)] = upper
    return full + np.triu(full, 1).T
