"""The rows of split tests in C, where `_splitting.c` was built: the same as `koncord.kernels.centered`, to rounding.

A wheel that was built without a compiler lacks it, and the NumPy form is used.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from koncord.kernels import centered
from koncord.kernels.built import compiled_module
from koncord.kernels.centered import CenteredRows, Node, Pair, leading_eigenvector, maximize, scaled_axes
from koncord.types import FloatArray, IntArray

_splitting = compiled_module("_splitting")
NOTHING = np.empty(0)
# Columns up to which sums of products in C, taken while rows are gathered, cost less than those of BLAS.
GRAM_COLUMNS = 32


class Scratch:
    """Memory that one test leaves to the next: fresh memory costs more than the rows that are put into it."""

    def __init__(self) -> None:
        self.floats = NOTHING

    def take(self, *sizes: int) -> list[FloatArray]:
        """Arrays of these sizes, side by side, with anything in them; those taken before are given up."""
        if len(self.floats) < sum(sizes):
            self.floats = NOTHING  # before the new, so that both are never held
            self.floats = np.empty(sum(sizes))
        stops = np.cumsum(sizes)
        return [self.floats[stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]


class CompiledRows(CenteredRows):
    """The rows of several nodes, each centered on its node, in blocks as `_splitting.c` has them.

    Blocks of a very large node are not kept: they are gathered anew in every iteration, as in NumPy.
    """

    def __init__(self, X: FloatArray, nodes: Sequence[Node], block_size: int, scratch: Scratch | None = None) -> None:
        self.X = X
        self.nodes = nodes
        self.n_features = d = X.shape[1]
        self.rows = [node.rows for node in nodes]
        self.means = np.array([node.mean for node in nodes])
        self.sizes = np.array([len(rows) for rows in self.rows], dtype=np.int64)
        self.totals = np.array([[node.scatter for node in nodes], self.sizes])
        n = int(padded_rows(self.sizes).sum())
        self.is_kept = len(nodes) > 1 or n * (d + 1) <= centered.KEPT_FLOATS
        n_kept = n if self.is_kept else 0
        self.share, self.z, self.squares = (scratch or Scratch()).take(n, n_kept * d, n_kept)
        has_grams = d <= GRAM_COLUMNS or not self.is_kept
        self.grams = np.empty((len(nodes), d, d) if has_grams else (0, d, d))
        _splitting.gather(*self._blocks, self.grams)

    @property
    def _blocks(self) -> tuple[FloatArray, list[IntArray], FloatArray, FloatArray, FloatArray]:
        return self.X, self.rows, self.means, self.z, self.squares

    def leading_axes(self) -> FloatArray:
        n, d = self.totals[1], self.n_features
        axes, values = np.empty((len(n), d)), np.empty(len(n))
        is_wide = n < d
        for b in np.flatnonzero(is_wide):  # the smaller Gram matrix has the same leading eigenvalue
            z = self.X[self.rows[b]] - self.means[b]
            values[b], weights = leading_eigenvector(z @ z.T)
            axes[b] = z.T @ weights / np.sqrt(values[b])
        tall = np.flatnonzero(~is_wide)
        if len(tall) and d <= centered.SMALL_GRAM:
            found, vectors = np.linalg.eigh(self.grams[tall])
            values[tall], axes[tall] = found[:, -1], vectors[:, :, -1]
        else:
            for b, gram in zip(tall, self._grams(tall), strict=True):
                values[b], axes[b] = leading_eigenvector(gram)
        return scaled_axes(values, axes, n)

    def _grams(self, chosen: IntArray) -> Iterable[FloatArray]:
        """Sums of products (d, d) of the columns of each of the chosen nodes."""
        if len(self.grams):
            return self.grams[chosen]
        d, stops = self.n_features, np.cumsum(padded_rows(self.sizes)) * self.n_features
        starts = stops - padded_rows(self.sizes) * d
        return (gram_of_blocks(self.z[starts[b] : stops[b]], int(self.sizes[b]), d) for b in chosen)

    def fitted(self, odds: FloatArray, floor: FloatArray | None, n_em_iter: int) -> Pair:
        first = np.empty_like(odds)
        floors = NOTHING if floor is None else floor
        _splitting.em(*self._blocks, odds, self.totals[0], floors, n_em_iter, self.share, first)
        return maximize(first, self.totals, floor)

    def divide(self, chosen: IntArray, pair: Pair) -> None:
        is_chosen = np.zeros(len(self.nodes), dtype=np.int64)
        is_chosen[chosen] = 1
        first, n_first = np.empty((len(self.nodes), self.n_features + 2)), np.empty(len(self.nodes), dtype=np.int64)
        _splitting.divide(*self._blocks, is_chosen, self.share, first, n_first)
        self.make_children(chosen, first[chosen], n_first[chosen], pair)


def padded_rows(n: IntArray) -> IntArray:
    """Rows with the padding of the last block."""
    padded: IntArray = -(-n // _splitting.PADDING) * _splitting.PADDING
    return padded


def gram_of_blocks(z: FloatArray, n: int, d: int) -> FloatArray:
    """Sums of products (d, d) of n rows in blocks."""
    n_full = n // _splitting.BLOCK
    gram: FloatArray = np.zeros((d, d))
    if n_full:
        blocks = z[: n_full * _splitting.BLOCK * d].reshape(n_full, d, _splitting.BLOCK)
        gram += np.matmul(blocks, blocks.transpose(0, 2, 1)).sum(axis=0)
    rest = z[n_full * _splitting.BLOCK * d :].reshape(d, -1)
    return gram + rest @ rest.T
