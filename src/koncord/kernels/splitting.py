"""The split stage of ASM: one lazily grown tree of binary splits for each split factor.

The split test of a component reads its own rows only, so the tree does not depend on the minimum mass: a larger
minimum mass is the same tree, cut higher up. All components of one pass, of all trees, are tested together.

The arithmetic of a test is in `koncord.kernels.centered`, and in C, where that was built, in
`koncord.kernels.compiled`.
"""

from collections.abc import Iterator, Sequence
from math import log
from threading import local

import numpy as np

from koncord._jobs import in_threads
from koncord._progress import report
from koncord.kernels.centered import CenteredRows, Node, component_term
from koncord.kernels.compiled import CompiledRows, Scratch, _splitting
from koncord.types import Components, FloatArray, IntArray, SphericalMixture

# A child's variance is never below this share of the variance of the component under test: a child that collapses
# onto duplicate rows keeps a finite likelihood, and the test stays independent of the scale of the data.
VARIANCE_FLOOR = 1e-6
# Rows that differ by no more than the rounding of the largest value in the table, or whose squared differences are too
# small for a float, are one point and never split.
ROUNDING = 16 * float(np.finfo(float).eps)
SMALLEST_VARIANCE = 1e-290
# Floats in one block of rows: an EM iteration reads a block twice, so it should stay in the cache.
BLOCK_FLOATS = 1 << 16
# Columns up to which the split test in C is the faster one.
COMPILED_COLUMNS = 128
# The rows of a split test, in C where that was built: tests compare it with `CenteredRows`.
ROWS: type[CenteredRows] = CenteredRows if _splitting is None else CompiledRows


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
        self.X = np.ascontiguousarray(X, dtype=np.float64)
        self._own = local()  # of each thread
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
        in_threads(self._test_batch, batches(self._untested(nodes, min_mass), self.block_size))

    def _untested(self, nodes: Sequence[Node], min_mass: float) -> list[Node]:
        """The nodes that a test may divide and that had none; from now on they count as tested."""
        untested = []
        for node in nodes:
            n = len(node.rows)
            # The masses of two children sum to their rows, so fewer than 2 tau rows cannot give both tau.
            if not node.is_tested and n > 1 and n >= 2 * min_mass and node.scatter > n * self.point_scatter:
                node.is_tested = True
                untested.append(node)
        return untested

    def _test_batch(self, nodes: Sequence[Node]) -> None:
        if not hasattr(self._own, "scratch"):
            self._own.scratch = Scratch()
        table = rows_of_test(self.X, nodes, self.block_size, self._own.scratch)
        divide_where_bic_improves(table, is_spherical=self.is_spherical, n_em_iter=self.n_em_iter)


def rows_of_test(X: FloatArray, nodes: Sequence[Node], block_size: int, scratch: Scratch) -> CenteredRows:
    """The rows of a test: of wide tables in the NumPy form, whose products are those of BLAS."""
    if ROWS is CompiledRows and X.shape[1] <= COMPILED_COLUMNS:
        return CompiledRows(X, nodes, block_size, scratch)
    return CenteredRows(X, nodes, block_size)


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


def divide_where_bic_improves(table: CenteredRows, *, is_spherical: bool, n_em_iter: int) -> None:
    """The split test of several nodes at once: fit two children to each by EM; where BIC improves, they are kept."""
    d = table.n_features
    scatter, n = table.totals
    variance = scatter / (n * d) if is_spherical else np.ones_like(n)
    floor = VARIANCE_FLOOR * variance if is_spherical else None
    split_factors = np.array([node.split_factor for node in table.nodes])
    odds = np.zeros((len(n), d + 2))  # children start with equal weights and the variance of their parent
    odds[:, :d] = (-2 * split_factors / variance)[:, None] * table.leading_axes()
    pair = table.fitted(odds, floor, n_em_iter)
    one = -0.5 * (n * d * np.log(2 * np.pi * variance) + scatter / variance)
    n_parameters = d + 2 if is_spherical else d + 1
    improves = component_term(pair) - one > n_parameters / 2 * np.log(n)
    chosen = np.flatnonzero(improves)
    if len(chosen):
        table.divide(chosen, pair)
