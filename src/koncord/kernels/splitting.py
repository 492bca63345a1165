"""The split stage of ASM: one lazily grown tree of binary splits for each split factor.

The split test of a component reads its own rows only, so the tree does not depend on the minimum mass: a larger
minimum mass is the same tree, cut higher up. All components of one pass, of all trees, are tested together.

Inside a test the rows are centred on their component and carried as ``[z, |z|^2, 1]``. The log odds of the two
children are then one matrix-vector product, and every sum an M-step needs (of ``z``, ``|z|^2`` and 1, weighted by the
responsibilities of the first child) is one more. As the rows sum to zero, the sums of the second child follow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from koncord._progress import report
from koncord.types import Components, FloatArray, IntArray, SphericalMixture

# A child's variance is never below this share of the variance of the component under test: a child that collapses
# onto duplicate rows keeps a finite likelihood, and the test stays independent of the scale of the data.
VARIANCE_FLOOR = 1e-6
# Rows that differ by no more than the rounding of the largest value in the table, or whose squared differences are too
# small for a float, are one point and never split.
ROUNDING = 16 * float(np.finfo(float).eps)
SMALLEST_VARIANCE = 1e-290
# A child whose responsibilities fade out keeps this mass, far below one row, so that its mean stays finite.
FADED_MASS = 1e-9
# Floats in one block of rows: an EM iteration reads a block twice, so it should stay in the cache.
BLOCK_FLOATS = 1 << 16
# Floats of a component that are kept, centred, from one EM iteration to the next.
KEPT_FLOATS = 1 << 22
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


class SplitForest:
    """Split trees of ``X[rows]``, one for each split factor, grown only as far as the cuts asked of them need.

    Of several groups of rows each has its own trees: those of the first group, then those of the next.

    Parameters
    ----------
    X : array (n_samples, n_features)
    rows : ndarray of int, sequence of ndarray of int or None, default None
        Indices of the rows of ``X`` to model, or groups of such indices, or None for all.
    split_factors : sequence of float
        Delta of each tree; the children start at ``mean +- delta sqrt(lambda_1) v_1``.
    is_spherical : bool
        One variance a component (ASM-S), else the identity (ASM-I).
    n_em_iter : int
        EM iterations of a split test, always all of them.
    """

    def __init__(
        self,
        X: FloatArray,
        rows: IntArray | Sequence[IntArray] | None = None,
        *,
        split_factors: Sequence[float],
        is_spherical: bool,
        n_em_iter: int,
    ) -> None:
        self.X = X
        self.is_spherical = is_spherical
        self.n_em_iter = n_em_iter
        # At least as many rows as columns, so that a component with fewer lies in one piece.
        self.block_size = max(BLOCK_FLOATS // (X.shape[1] + 2), X.shape[1])
        self.point_scatter = X.shape[1] * max((ROUNDING * max(-X.min(), X.max())) ** 2, SMALLEST_VARIANCE)
        rows = np.arange(len(X)) if rows is None else rows
        self.roots: list[Node] = []
        for group in [rows] if isinstance(rows, np.ndarray) else rows:
            mean, scatter = mean_and_scatter(X, group, self.block_size)
            for delta in split_factors:
                root = Node(
                    rows=group.copy(),
                    mean=mean,
                    scatter=scatter,
                    fitted_mean=mean,
                    fitted_variance=scatter / (len(group) * X.shape[1]),
                    split_factor=delta,
                )
                self.roots.append(root)

    def cut(self, min_mass: float, max_components: int) -> list[list[Node]]:
        """Components of each tree when no child may weigh less than `min_mass`: passes until nothing splits.

        The trees are grown side by side, so that a pass of all of them is tested together.
        """
        trees = [[root] for root in self.roots]
        while True:
            self._test([node for tree in trees if len(tree) < max_components for node in tree], min_mass)
            after = [split_pass(tree, min_mass, max_components) for tree in trees]
            if after == trees:
                return trees
            trees = after
            report(log(max(map(len, trees))) / log(max_components))  # passes about double the components

    def _test(self, nodes: Sequence[Node], min_mass: float) -> None:
        untested = []
        for node in nodes:
            n = len(node.rows)
            # The masses of two children sum to their rows, so fewer than 2 tau rows cannot give both tau.
            if not node.is_tested and n > 1 and n >= 2 * min_mass and node.scatter > n * self.point_scatter:
                node.is_tested = True
                untested.append(node)
        for batch in batches(untested, self.block_size):
            table = CentredRows(self.X, batch, self.block_size)
            divide_where_bic_improves(table, is_spherical=self.is_spherical, n_em_iter=self.n_em_iter)


def split_pass(tree: list[Node], min_mass: float, max_components: int) -> list[Node]:
    """One pass: every component that splits is replaced by its children, as long as there is room."""
    room = max_components - len(tree)
    after: list[Node] = []
    for node in tree:
        if room and node.children and node.child_mass >= min_mass:
            after.extend(node.children)
            room -= 1
        else:
            after.append(node)
    return after


def mixture_of(nodes: Sequence[Node]) -> SphericalMixture:
    """The components that EM fitted, with the sums of their rows."""
    return SphericalMixture(
        means=np.array([node.fitted_mean for node in nodes]),
        variances=np.array([node.fitted_variance for node in nodes]),
        rows=Components(
            counts=np.array([len(node.rows) for node in nodes]),
            means=np.array([node.mean for node in nodes]),
            scatters=np.array([node.scatter for node in nodes]),
        ),
    )


def mean_and_scatter(X: FloatArray, rows: IntArray, block_size: int) -> tuple[FloatArray, float]:
    """In two passes over blocks, so that nothing the size of the table is allocated."""
    blocks = [rows[at : at + block_size] for at in range(0, len(rows), block_size)]
    mean: FloatArray = np.sum([X[block].sum(axis=0) for block in blocks], axis=0) / len(rows)
    return mean, sum(float(((X[block] - mean) ** 2).sum()) for block in blocks)


def batches(nodes: Sequence[Node], most_rows: int) -> Iterator[list[Node]]:
    """Consecutive nodes that together stay within `most_rows`; a larger node is a batch of its own."""
    batch: list[Node] = []
    n_rows = 0
    for node in nodes:
        if batch and n_rows + len(node.rows) > most_rows:
            yield batch
            batch, n_rows = [], 0
        batch.append(node)
        n_rows += len(node.rows)
    if batch:
        yield batch


def divide_where_bic_improves(table: "CentredRows", *, is_spherical: bool, n_em_iter: int) -> None:
    """The split test of several nodes at once: fit two children to each by EM; where BIC improves, they are kept."""
    d = table.n_features
    scatter, n = table.totals
    variance = scatter / (n * d) if is_spherical else np.ones_like(n)
    floor = VARIANCE_FLOOR * variance if is_spherical else None
    split_factors = np.array([node.split_factor for node in table.nodes])
    odds = np.zeros((len(n), d + 2))  # children start with equal weights and the variance of their parent
    odds[:, :d] = (-2 * split_factors / variance)[:, None] * table.leading_axes()
    with np.errstate(over="ignore"):  # odds beyond the largest float are a responsibility of zero
        for _ in range(n_em_iter):
            pair = maximise(table.expect(odds), table.totals, floor)
            log_odds(pair, odds)
    one = -0.5 * (n * d * np.log(2 * np.pi * variance) + scatter / variance)
    n_parameters = d + 2 if is_spherical else d + 1
    improves = component_term(pair) - one > n_parameters / 2 * np.log(n)
    for b in np.flatnonzero(improves):
        table.divide(int(b), pair)


class Pair(NamedTuple):
    """The two children of each node, relative to its mean; the first axis is the child, the second the node."""

    moments: FloatArray  # (n_nodes, n_features): mass_1 mu_1 = -mass_2 mu_2
    masses: FloatArray  # (2, n_nodes) sums of responsibilities
    variances: FloatArray  # (2, n_nodes)
    mean_terms: FloatArray  # (2, n_nodes) mass |mu|^2
    scatters: FloatArray  # (2, n_nodes) weighted sums of |z - mu|^2


def maximise(first: FloatArray, totals: FloatArray, floor: FloatArray | None) -> Pair:
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


class CentredRows:
    """The rows of several nodes, each centred on its node, as columns ``[z, |z|^2, 1]``.

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

    def divide(self, b: int, pair: Pair) -> None:
        """Give each row of node `b` to the child that is most responsible for it; a child without rows is no split."""
        node, d = self.nodes[b], self.n_features
        is_first = np.concatenate([share for _, share in self.spans[b]]) >= 0.5
        n_first = int(is_first.sum())
        if n_first in (0, len(is_first)):
            return
        first = np.zeros(d + 2)
        for columns, share in self.pieces(b):
            first += columns @ (share >= 0.5).astype(np.float64)
        node.rows[:] = np.concatenate([node.rows[is_first], node.rows[~is_first]])
        children = []
        for child, sign, rows, square in (
            (0, 1.0, node.rows[:n_first], first[d]),
            (1, -1.0, node.rows[n_first:], node.scatter - first[d]),
        ):
            moment = sign * first[:d]
            shift = moment / len(rows)
            children.append(
                Node(
                    rows=rows,
                    mean=node.mean + shift,
                    scatter=max(float(square - shift @ moment), 0.0),
                    fitted_mean=node.mean + sign * pair.moments[b] / pair.masses[child, b],
                    fitted_variance=float(pair.variances[child, b]),
                    split_factor=node.split_factor,
                )
            )
        node.children = (children[0], children[1])
        node.child_mass = float(pair.masses[:, b].min())


def responsibility(odds: FloatArray) -> None:
    """Turn log odds against the first child into its responsibilities, in place."""
    np.exp(odds, odds)
    np.add(odds, 1.0, odds)
    np.reciprocal(odds, odds)


def leading_axis(parts: Iterable[FloatArray]) -> FloatArray:
    """``sqrt(lambda_1) v_1`` of centred columns given in parts of (n_features, n), its largest entry positive."""
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
