"""Cells: count, mean and variance of each column over groups of a site's rows, made safe to send.

Rows are on the scale of the plan, and come in batches. A tree of cuts that was found in a sample of them
(`koncord.kernels.cutting`) says which cell a row is of. In each cell and column the few lowest values count as the next
lowest, and the few highest as the next highest (winsorizing): one or two rows make no difference that others do not
share. Variances are then those that a Gaussian has before winsorizing. Last, everything is rounded by one rule: a
variance to a power of two, a mean to a step by which half a floor of rows at one standard deviation would move it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import pi
from typing import Annotated

import numpy as np
from scipy.special import ndtri

from koncord.kernels.assign import sums_by_label
from koncord.kernels.cutting import CutTree
from koncord.protocol.schema import LARGEST_FLOAT, Array
from koncord.types import FloatArray, IntArray

# Values at either end of a column of a cell that count as the next ones, as a share of the floor.
WINSORIZED = 0.1
# Rows at one standard deviation that no sum distinguishes, as a share of the floor.
INDISTINCT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Groups of rows: the one type for count, mean and variance of each column."""

    counts: Annotated[IntArray, Array("at most n_cells", least=1, total="rows")]  # (n_cells,)
    means: Annotated[FloatArray, Array("at most n_cells", "n_features")]
    variances: Annotated[FloatArray, Array("at most n_cells", "n_features", least=0, most=LARGEST_FLOAT)]

    def __len__(self) -> int:
        return len(self.counts)


def no_cells(n_features: int) -> Cells:
    nothing = np.empty((0, n_features))
    return Cells(counts=np.empty(0, dtype=np.int64), means=nothing, variances=nothing)


def cells_of(batches: Iterable[FloatArray], tree: CutTree, floor: int) -> Cells:
    """The cells of all rows (n, n_features) of the batches, before rounding.

    What is in a batch and what in another makes no difference but by the order of sums. The tree says how many rows a
    cell has: one whose cuts divide equal values may leave fewer than the floor.
    """
    n_ends, k = n_winsorized(floor), tree.n_groups
    counts, sums, squares = np.zeros(k), np.zeros((k, 1)), np.zeros((k, 1))
    lows, highs = np.full((n_ends + 1, k, 1), np.inf), np.full((n_ends + 1, k, 1), -np.inf)
    for X in batches:
        labels = tree.assign(X)
        counts = counts + np.bincount(labels, minlength=k)
        sums, squares = sums + sums_by_label(X, labels, k), squares + sums_by_label(X**2, labels, k)
        low, high = ends_of(X, labels, k, n_ends + 1)
        lows = np.sort(np.concatenate([lows + np.zeros_like(low), low]), axis=0)[: n_ends + 1]
        highs = np.sort(np.concatenate([highs + np.zeros_like(high), high]), axis=0)[-n_ends - 1 :]
    return winsorized(counts, sums, squares, lows, highs)


def ends_of(X: FloatArray, labels: IntArray, n_cells: int, n_ends: int) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest values (n_ends, n_cells, n_features) of each cell, rising; infinite where too few."""
    lows = np.full((n_ends, n_cells, X.shape[1]), np.inf)
    highs = np.full((n_ends, n_cells, X.shape[1]), -np.inf)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(n_cells + 1))
    for cell in range(n_cells):
        rows = X[order[starts[cell] : starts[cell + 1]]]
        n = min(n_ends, len(rows))
        if not n:
            continue
        places = sorted({n - 1, len(rows) - n})
        rows = np.partition(rows, places, axis=0)
        lows[:n, cell], highs[n_ends - n :, cell] = np.sort(rows[:n], axis=0), np.sort(rows[-n:], axis=0)
    return lows, highs


def winsorized(counts: FloatArray, sums: FloatArray, squares: FloatArray, lows: FloatArray, highs: FloatArray) -> Cells:
    """Cells by sums over their rows (n_cells, n_features), with the values at either end as the next ones."""
    n_ends = len(lows) - 1
    for ends, limit in ((lows[:-1], lows[-1]), (highs[1:], highs[0])):
        sums = sums + (limit - ends).sum(axis=0)
        squares = squares + (limit**2 - ends**2).sum(axis=0)
    means = sums / counts[:, None]
    narrowed = np.maximum(squares / counts[:, None] - means**2, 0.0)
    # Rounding of sums leaves a little variance where all values are equal.
    narrowed = np.where(highs[0] > lows[-1], narrowed, 0.0)
    means = np.where(highs[0] > lows[-1], means, lows[-1])
    widening = np.array([widened(int(count), n_ends) for count in counts])
    return Cells(counts=counts.astype(np.int64), means=means, variances=narrowed * widening[:, None])


def n_winsorized(floor: int) -> int:
    """Values at either end of a cell that count as the next ones."""
    return int(WINSORIZED * floor)


@cache
def widened(count: int, n_ends: int) -> float:
    """How many times the variance of `count` Gaussian values is that of the winsorized ones."""
    if not n_ends:
        return 1.0
    share = n_ends / count
    limit = -float(ndtri(share))
    density = float(np.exp(-(limit**2) / 2)) / (2 * pi) ** 0.5
    return float(1 / (1 - 2 * share - 2 * limit * density + 2 * share * limit**2))


def rounded(cells: Cells, floor: int) -> Cells:
    """The cells as they are sent.

    A mean is sent to a step of its own; where no value differs from another it is shared by all rows, and stays.
    """
    has_spread = cells.variances > 0
    exponents = np.rint(np.log2(np.where(has_spread, cells.variances, 1.0)))
    variances = np.where(has_spread, 2.0**exponents, 0.0)
    steps = np.sqrt(variances) * (INDISTINCT * floor) / cells.counts[:, None]
    means = np.where(has_spread, np.rint(cells.means / np.where(has_spread, steps, 1.0)) * steps, cells.means)
    return Cells(counts=cells.counts, means=means, variances=variances)
