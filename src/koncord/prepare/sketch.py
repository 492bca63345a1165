"""A column in few numbers: the means of its sorted values, block by block, without the blocks at both ends.

Of the values at the ends only the number is sent. With them, the blocks would add up to the sum of all values, and
that sum less the sum of the fenced values is what the rows beyond the fence exceed it by: of one such row, the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koncord.types import FloatArray, IntArray

MOST_BLOCKS = 100  # of a column and site
END_SHARE = 0.02  # of the values, at each end, of which only the number is sent; no fewer than the floor
FEWEST = 5  # times the floor: with fewer values the ends would hide the quartiles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnSketch:
    """What one site tells of one column."""

    means: FloatArray  # (n_blocks,) of the blocks between the ends, rising; empty where there are too few values
    n_values: int
    n_end: int  # values at each end

    @property
    def weight(self) -> float:
        """Values in each block."""
        return (self.n_values - 2 * self.n_end) / max(len(self.means), 1)


def sketch_of(values: FloatArray, floor: int) -> ColumnSketch:
    """Sketch of values without gaps, every block and both ends of at least `floor` of them.

    >>> sketch = sketch_of(np.arange(100.0), floor=10)
    >>> sketch.means.tolist(), sketch.n_end
    ([14.5, 24.5, 34.5, 44.5, 54.5, 64.5, 74.5, 84.5], 10)
    """
    n = len(values)
    if n < FEWEST * floor:
        return ColumnSketch(means=np.empty(0), n_values=n, n_end=n // 2)
    n_end = max(floor, int(np.ceil(END_SHARE * n)))
    inner = np.sort(values)[n_end : n - n_end]
    n_blocks = min(MOST_BLOCKS, len(inner) // floor)
    edges = np.linspace(0, len(inner), n_blocks + 1).astype(np.int64)
    means = np.add.reduceat(inner, edges[:-1]) / np.diff(edges)
    return ColumnSketch(means=means, n_values=n, n_end=n_end)


class Distribution:
    """Quantiles of a column over several sites, from their sketches."""

    def __init__(self, sketches: Sequence[ColumnSketch]) -> None:
        sent = [sketch for sketch in sketches if len(sketch.means)]
        # What lies at an end lies beyond the nearest block; it is counted there.
        values = [part for s in sent for part in (s.means[:1], s.means, s.means[-1:])]
        weights = [np.full(len(s.means) + 2, s.weight) for s in sent]
        ends = [np.zeros(len(s.means) + 2) for s in sent]  # before and behind a block of the same mean
        for s, weight, end in zip(sent, weights, ends, strict=True):
            weight[0] = weight[-1] = s.n_end
            end[0], end[-1] = -1, 1
        self.is_known = bool(sent)
        total = sum(s.n_values for s in sent)
        self.end_share = sum(s.n_end for s in sent) / total if total else 0.5  # quantiles beyond it are not known
        if sent:
            value, weight, end = (np.concatenate(each) for each in (values, weights, ends))
            order = np.lexsort((end, value))
            self.values: FloatArray = value[order]
            weight = weight[order]
            self.ranks: FloatArray = (np.cumsum(weight) - weight / 2) / weight.sum()

    def quantiles(self, *shares: float) -> FloatArray:
        """The values below which these shares of all values lie."""
        found: FloatArray = np.interp(shares, self.ranks, self.values)
        return found


def rounded_down(counts: IntArray, total: int, floor: int) -> IntArray:
    """Counts that are sent of `total` rows: all of them, or a multiple of the floor, so that few rows change none."""
    return np.where(counts == total, total, counts // floor * floor)
