"""The rows of split tests, centered, and EM of two children for each: the arithmetic of `koncord.kernels.splitting`.

Rows are carried as ``[z, |z|^2, 1]``, centered on their component. The log odds of the two children are then one
matrix-vector product, and every sum an M-step needs (of ``z``, ``|z|^2`` and 1, weighted by the responsibilities of the
first child) is one more. As the rows sum to zero, the sums of the second child follow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from koncord.types import FloatArray, IntArray

# A child whose responsibilities fade out keeps this mass, far below one row, so that its mean stays finite.
FADED_MASS = 1e-9
# Floats of a component that are kept, centered, from one EM iteration to the next: 64 MB. With four times as many, a
# million rows of 16 columns take as long, and a second copy of the table.
KEPT_FLOATS = 1 << 23
# Up to this size all eigenvectors cost less than the call that finds one alone.
SMALL_GRAM = 24


@dataclass(slots=True, eq=False)
class Node:
    """A component of the tree. ``rows`` are indices into the table, a slice of the tree's own order.

    The next split test reads its rows only, their mean and their scatter; the component itself is what EM fitted.
    """

    rows: IntArray
    mean: FloatArray  # of the rows
    scatter: float  # of the rows
    fitted_mean: FloatArray  # of the component; that of the rows for the root
    fitted_variance: float
    split_factor: float
    is_tested: bool = False
    child_mass: float = 0.0  # effective mass of the lighter child
    children: "tuple[Node, Node] | None" = None  # None while untested, and where a split does not improve BIC


class Pair(NamedTuple):
    """The two children of each node, relative to its mean; the first axis is the child, the second the node."""

    moments: FloatArray  # (n_nodes, n_features): mass_1 mu_1 = -mass_2 mu_2
    masses: FloatArray  # (2, n_nodes) sums of responsibilities
    variances: FloatArray  # (2, n_nodes)
    mean_terms: FloatArray  # (2, n_nodes) mass |mu|^2
    scatters: FloatArray  # (2, n_nodes) weighted sums of |z - mu|^2


def maximize(first: FloatArray, totals: FloatArray, floor: FloatArray | None) -> Pair:
    """M-step from the first child's sums of ``[z, |z|^2, 1]``; without a floor the variances stay one (ASM-I)."""
    d = first.shape[1] - 2
    moments = first[:, :d]
    sums = np.empty((2, *totals.shape))
    sums[0] = first[:, d:].T
    np.subtract(totals, sums[0], sums[1])
    masses = np.maximum(sums[:, 1], FADED_MASS)
    mean_terms = np.vecdot(moments, moments) / masses
    scatters = sums[:, 0] - mean_terms
    if floor is None:
        return Pair(moments, masses, np.ones_like(masses), mean_terms, scatters)
    variances = scatters / masses
    variances /= d
    return Pair(moments, masses, np.maximum(variances, floor, out=variances), mean_terms, scatters)


def log_odds(pair: Pair, odds: FloatArray) -> None:
    """Fill `odds` (n_nodes, d + 2): coefficients of ``[z, |z|^2, 1]`` in the log odds against the first child."""
    moments, masses, variances, mean_terms, _ = pair
    d = moments.shape[1]
    precisions = 1.0 / variances
    scale = precisions / masses
    np.multiply(moments, -(scale[0] + scale[1])[:, None], odds[:, :d])
    odds[:, d] = 0.5 * (precisions[0] - precisions[1])
    mean_terms = mean_terms * scale
    odds[:, d + 1] = np.log(masses[1] / masses[0]) - 0.5 * (
        d * np.log(variances[1] / variances[0]) + mean_terms[1] - mean_terms[0]
    )


def component_term(pair: Pair) -> FloatArray:
    """``sum_i sum_m gamma_im log N(x_i | mu_m, s_m^2 I)``: the likelihood without the weights, as in the paper."""
    d = pair.moments.shape[1]
    per_child = pair.masses * d * np.log(2 * np.pi * pair.variances) + pair.scatters / pair.variances
    term: FloatArray = -0.5 * per_child.sum(axis=0)
    return term


class CenteredRows:
    """The rows of several nodes, each centered on its node, as columns ``[z, |z|^2, 1]``.

    A node lies in one piece, or in several if it is larger than a block. ``share`` is the responsibility of the
    first child for every row. The pieces of a very large node are made anew each time they are read, so that a test
    never holds a second copy of a large table.
    """

    def __init__(self, X: FloatArray, nodes: Sequence[Node], block_size: int) -> None:
        self.X = X
        self.nodes = nodes
        self.n_features = X.shape[1]
        self.totals = np.array([[node.scatter, len(node.rows)] for node in nodes]).T  # sums of |z|^2 and of 1
        self.share = np.empty(sum(len(node.rows) for node in nodes))
        self.spans: list[list[tuple[IntArray, FloatArray]]] = []
        start = 0
        for node in nodes:
            at = range(0, len(node.rows), block_size)
            rows = [node.rows[i : i + block_size] for i in at]
            self.spans.append([(r, self.share[start + i :][: len(r)]) for i, r in zip(at, rows, strict=True)])
            start += len(node.rows)
        is_kept = len(nodes) > 1 or len(self.share) * (self.n_features + 2) <= KEPT_FLOATS
        self.kept = [list(self._read(b)) for b in range(len(nodes))] if is_kept else None

    def pieces(self, b: int) -> Iterable[tuple[FloatArray, FloatArray]]:
        """Columns and responsibilities of node `b`, piece by piece."""
        return self._read(b) if self.kept is None else self.kept[b]

    def _read(self, b: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        d = self.n_features
        mean = self.nodes[b].mean[:, None]
        for rows, share in self.spans[b]:
            columns = np.empty((d + 2, len(rows)))
            np.subtract(self.X[rows].T, mean, columns[:d])
            np.einsum("ij,ij->j", columns[:d], columns[:d], out=columns[d])
            columns[d + 1] = 1.0
            yield columns, share

    def leading_axes(self) -> FloatArray:
        """``sqrt(lambda_1) v_1`` of the covariance of every node, (n_nodes, n_features)."""
        d = self.n_features
        if self.kept is not None and len(self.nodes) > 1 and d <= SMALL_GRAM and (self.totals[1] >= d).all():
            columns = [columns[:-2] for ((columns, _),) in self.kept]
            values, vectors = np.linalg.eigh(np.array([z @ z.T for z in columns]))
            return scaled_axes(values[:, -1], vectors[:, :, -1], self.totals[1])
        return np.array([leading_axis(columns[:-2] for columns, _ in self.pieces(b)) for b in range(len(self.nodes))])

    def expect(self, odds: FloatArray) -> FloatArray:
        """E-step: sums of ``[z, |z|^2, 1]`` weighted by the responsibilities of the first child, (n_nodes, d + 2)."""
        sums = np.zeros_like(odds)
        if self.kept is not None and len(self.nodes) > 1:  # each in one piece
            for against, ((columns, share),) in zip(odds, self.kept, strict=True):
                np.dot(against, columns, share)
            responsibility(self.share)
            for row, ((columns, share),) in zip(sums, self.kept, strict=True):
                np.dot(columns, share, row)
        else:
            for columns, share in self.pieces(0):
                responsibility(np.dot(odds[0], columns, share))
                sums[0] += columns @ share
        return sums

    def fitted(self, odds: FloatArray, floor: FloatArray | None, n_em_iter: int) -> Pair:
        """The two children of each node after EM from `odds` (n_nodes, d + 2), which it changes."""
        with np.errstate(over="ignore"):  # odds beyond the largest float are a responsibility of zero
            for _ in range(n_em_iter):
                pair = maximize(self.expect(odds), self.totals, floor)
                log_odds(pair, odds)
        return pair

    def divide(self, chosen: IntArray, pair: Pair) -> None:
        """Give each row of the chosen nodes to the child that is most responsible for it."""
        first = np.zeros((len(chosen), self.n_features + 2))
        n_first = np.zeros(len(chosen), dtype=np.int64)
        for at, b in enumerate(chosen):
            node = self.nodes[b]
            is_first = np.concatenate([share for _, share in self.spans[b]]) >= 0.5
            n_first[at] = is_first.sum()
            for columns, share in self.pieces(b):
                first[at] += columns @ (share >= 0.5).astype(np.float64)
            node.rows[:] = np.concatenate([node.rows[is_first], node.rows[~is_first]])
        self.make_children(chosen, first, n_first, pair)

    def make_children(self, chosen: IntArray, first: FloatArray, n_first: IntArray, pair: Pair) -> None:
        """Children of the chosen nodes, whose rows are in order: `n_first` of the first child, then the others.

        `first` has the sums of ``[z, |z|^2, 1]`` (n_chosen, d + 2) of the first. A child without rows is no split.
        """
        d = self.n_features
        scatter, n = self.totals[:, chosen]
        has_both = (n_first > 0) & (n_first < n)
        sizes = np.array([np.maximum(n_first, 1), np.maximum(n - n_first, 1)])
        moments = np.array([first[:, :d], -first[:, :d]])
        shifts = moments / sizes[:, :, None]
        squares = np.array([first[:, d], scatter - first[:, d]])
        scatters = np.maximum(squares - np.vecdot(shifts, moments), 0.0)
        means = np.array([self.nodes[b].mean for b in chosen])
        own = means + shifts
        fitted = means + np.array([1.0, -1.0])[:, None, None] * pair.moments[chosen] / pair.masses[:, chosen, None]
        variances = pair.variances[:, chosen]
        lighter = pair.masses[:, chosen].min(axis=0)
        for at in np.flatnonzero(has_both):
            node, n_one = self.nodes[chosen[at]], int(n_first[at])
            one, two = (
                Node(
                    rows=rows,
                    mean=own[child, at],
                    scatter=float(scatters[child, at]),
                    fitted_mean=fitted[child, at],
                    fitted_variance=float(variances[child, at]),
                    split_factor=node.split_factor,
                )
                for child, rows in enumerate((node.rows[:n_one], node.rows[n_one:]))
            )
            node.children = (one, two)
            node.child_mass = float(lighter[at])


def responsibility(odds: FloatArray) -> None:
    """Turn log odds against the first child into its responsibilities, in place."""
    np.exp(odds, odds)
    np.add(odds, 1.0, odds)
    np.reciprocal(odds, odds)


def leading_axis(parts: Iterable[FloatArray]) -> FloatArray:
    """``sqrt(lambda_1) v_1`` of centered columns given in parts of (n_features, n), its largest entry positive."""
    parts = iter(parts)
    z = next(parts)
    d, n = z.shape
    if n < d:  # fewer rows than columns, so there is one part: its smaller Gram matrix has the same leading eigenvalue
        value, weights = leading_eigenvector(z.T @ z)
        axis = z @ weights / np.sqrt(value)
    else:
        gram = z @ z.T
        for z in parts:
            gram += z @ z.T
            n += z.shape[1]
        value, axis = leading_eigenvector(gram)
    scaled: FloatArray = scaled_axes(np.array([value]), axis[None], np.array([n]))[0]
    return scaled


def scaled_axes(values: FloatArray, axes: FloatArray, n_rows: FloatArray | IntArray) -> FloatArray:
    """Unit axes (n_nodes, n_features) as long as the root of the variance along them, their largest entry positive."""
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    scaled: FloatArray = axes * np.copysign(np.sqrt(np.maximum(values, 0.0) / n_rows)[:, None], largest)
    return scaled


def leading_eigenvector(gram: FloatArray) -> tuple[float, FloatArray]:
    if len(gram) <= SMALL_GRAM:
        values, vectors = np.linalg.eigh(gram)
    else:
        top = len(gram) - 1
        values, vectors = eigh(gram, subset_by_index=[top, top], check_finite=False, overwrite_a=True)
    return max(float(values[-1]), 0.0), vectors[:, -1]
