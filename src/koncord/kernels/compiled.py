"""The rows of split tests in C, where `_splitting.c` was built: the same as `koncord.kernels.centered`, to rounding.

A wheel that was built without a compiler lacks it, and the NumPy form is used.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from koncord.kernels import centered
from koncord.kernels.centered import (
    CenteredRows,
    Node,
    Pair,
    leading_eigenvector,
    log_odds,
    maximize,
    scaled_axes,
)
from koncord.types import BoolArray, FloatArray, IntArray


def compiled_module() -> Any:
    """The module in C; None where it was not built."""
    try:
        return import_module("koncord.kernels._splitting")
    except ImportError:
        return None


_splitting = compiled_module()
NOTHING = np.empty(0)


class CompiledRows(CenteredRows):
    """The rows of several nodes, each centered on its node, in blocks as `_splitting.c` has them.

    A very large node is gathered anew, piece by piece, in every iteration, as in NumPy.
    """

    def __init__(self, X: FloatArray, nodes: Sequence[Node], block_size: int) -> None:
        self.X = X
        self.nodes = nodes
        self.n_features = d = X.shape[1]
        self.totals = np.array([[node.scatter, len(node.rows)] for node in nodes]).T
        self.sizes = np.array([len(node.rows) for node in nodes], dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(padded_rows(self.sizes))])
        self.responsible = np.zeros(self.starts[-1])
        is_kept = len(nodes) > 1 or self.starts[-1] * (d + 1) <= centered.KEPT_FLOATS
        self.piece_rows = 0 if is_kept else max(block_size // _splitting.BLOCK, 1) * _splitting.BLOCK
        n = self.starts[-1] if is_kept else self.piece_rows
        self.z, self.squares = np.empty(n * d), np.empty(n)
        if is_kept:
            for b in range(len(nodes)):
                self._gather(b, slice(None), *self._own(b))

    def _own(self, b: int) -> tuple[FloatArray, FloatArray]:
        """Rows of node `b` in blocks, and their squares."""
        start, stop = self.starts[b], self.starts[b + 1]
        return self.z[start * self.n_features : stop * self.n_features], self.squares[start:stop]

    def _gather(self, b: int, rows: slice, z: FloatArray, squares: FloatArray) -> None:
        _splitting.gather(self.X, self.nodes[b].rows[rows], self.nodes[b].mean, z, squares)

    def _pieces_in_turn(self) -> list[tuple[slice, int]]:
        """Rows of each piece of a node that is not kept, and how many numbers of a column they take."""
        n = int(self.sizes[0])
        pieces = [slice(at, min(at + self.piece_rows, n)) for at in range(0, n, self.piece_rows)]
        return [(piece, int(padded_rows(piece.stop - piece.start))) for piece in pieces]

    def leading_axes(self) -> FloatArray:
        n, d = self.totals[1], self.n_features
        axes, values = np.empty((len(n), d)), np.empty(len(n))
        grams = []
        for b in range(len(n)):
            if n[b] < d:  # the smaller Gram matrix has the same leading eigenvalue
                z = self.X[self.nodes[b].rows] - self.nodes[b].mean
                values[b], weights = leading_eigenvector(z @ z.T)
                axes[b] = z.T @ weights / np.sqrt(values[b])
            elif d <= centered.SMALL_GRAM:
                grams.append((b, self._gram(b)))
            else:
                values[b], axes[b] = leading_eigenvector(self._gram(b))
        if grams:
            at = [b for b, _ in grams]
            found, vectors = np.linalg.eigh(np.array([gram for _, gram in grams]))
            values[at], axes[at] = found[:, -1], vectors[:, :, -1]
        return scaled_axes(values, axes, n)

    def _gram(self, b: int) -> FloatArray:
        """Sums of products (d, d) of the columns of node `b`."""
        if not self.piece_rows:
            return gram_of_blocks(self._own(b)[0], int(self.sizes[b]), self.n_features)
        gram = np.zeros((self.n_features, self.n_features))
        for rows, width in self._pieces_in_turn():
            z = self.z[: width * self.n_features]
            self._gather(b, rows, z, self.squares[:width])
            gram += gram_of_blocks(z, rows.stop - rows.start, self.n_features)
        return gram

    def fitted(self, odds: FloatArray, floor: FloatArray | None, n_em_iter: int) -> Pair:
        first = np.zeros_like(odds)
        floors = NOTHING if floor is None else floor
        scatters = np.ascontiguousarray(self.totals[0])
        if not self.piece_rows:
            _splitting.em(self.z, self.squares, self.sizes, odds, scatters, floors, n_em_iter, self.responsible, first)
            return maximize(first, self.totals, floor)
        for _ in range(n_em_iter):
            first[:] = 0.0
            for rows, width in self._pieces_in_turn():
                first += self._expect_piece(rows, width, odds, scatters, floors)
            pair = maximize(first.copy(), self.totals, floor)
            log_odds(pair, odds)
        return pair

    def _expect_piece(
        self, rows: slice, width: int, odds: FloatArray, scatters: FloatArray, floors: FloatArray
    ) -> FloatArray:
        """Sums (1, d + 2) of one piece, weighted by the responsibilities that are left behind."""
        z, squares, found = self.z[: width * self.n_features], self.squares[:width], np.zeros_like(odds)
        self._gather(0, rows, z, squares)
        share = self.responsible[rows.start : rows.start + width]
        size: IntArray = np.array([rows.stop - rows.start], dtype=np.int64)
        _splitting.em(z, squares, size, odds, scatters, floors, 1, share, found)
        return found

    def is_first(self, b: int) -> BoolArray:
        found: BoolArray = self.responsible[self.starts[b] :][: self.sizes[b]] >= 0.5
        return found

    def sums_of_first(self, b: int) -> FloatArray:
        start, found = self.starts[b], np.zeros(self.n_features + 2)
        weights = (self.responsible[start : self.starts[b + 1]] >= 0.5).astype(np.float64)
        if not self.piece_rows:
            _splitting.sums(*self._own(b), weights, found)
            return found
        for rows, width in self._pieces_in_turn():
            z, squares = self.z[: width * self.n_features], self.squares[:width]
            self._gather(b, rows, z, squares)
            _splitting.sums(z, squares, weights[rows.start : rows.start + width], found)
        return found


def padded_rows(n: Any) -> Any:
    """Rows with the padding of the last block."""
    return -(-n // _splitting.PADDING) * _splitting.PADDING


def gram_of_blocks(z: FloatArray, n: int, d: int) -> FloatArray:
    """Sums of products (d, d) of n rows in blocks."""
    n_full = n // _splitting.BLOCK
    gram: FloatArray = np.zeros((d, d))
    if n_full:
        blocks = z[: n_full * _splitting.BLOCK * d].reshape(n_full, d, _splitting.BLOCK)
        gram += np.matmul(blocks, blocks.transpose(0, 2, 1)).sum(axis=0)
    rest = z[n_full * _splitting.BLOCK * d :].reshape(d, -1)
    return gram + rest @ rest.T
