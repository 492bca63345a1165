"""The joint partition of a table that is read batch by batch, against that of the same table in memory."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from koncord.data import batches
from koncord.data.batches import SampledTable, batched_table, sampled_table
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.cutting import cut_tree, group_labels, groups_and_tree
from koncord.protocol.dominance import bounds_of, is_dominated
from koncord.protocol.partition import MOST_CELLS, JointPartition
from koncord.protocol.streamed import StreamedGroups, StreamedPartition, streamed_rows
from koncord.types import FloatArray, IntArray


def table_of(X: FloatArray, n_sample: int) -> SampledTable:
    columns = {f"c{at}": X[:, at] for at in range(X.shape[1])}
    return sampled_table(batched_table(pa.table(columns), name="north"), n_sample)


def rows(seed: int, n: int) -> FloatArray:
    """Clusters, a heavy tail, a column with two values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + 6 * rng.integers(0, 3, (n, 1))
    X[:, 2] = rng.standard_cauchy(n)
    return np.column_stack([X, rng.random(n) < 0.2])


def by_centers(seed: int, k: int) -> Callable[[FloatArray], IntArray]:
    centers = np.random.default_rng(seed).normal(6, 6, (k, 2))
    return lambda X: nearest(X[:, :2], centers)


def cut(X: FloatArray, n_sample: int, least: int, label: Callable[[FloatArray], IntArray], k: int) -> StreamedPartition:
    partition = StreamedPartition(streamed_rows(table_of(X, n_sample)), least)
    partition.cut(lambda: (label, k))
    return partition


def own_cuts(X: FloatArray, partition: StreamedPartition, least: int) -> tuple[Callable[[FloatArray], IntArray], int]:
    """The cuts of a table in memory."""
    rows = partition.rows.sample()
    tree = cut_tree(rows.X, least, MOST_CELLS, is_safe=rows.safe_cuts)
    return (lambda X: tree.assign(np.where(np.arange(4) == 3, X, partition.rows.coded(X)))), tree.n_groups


def divides_equal_values(partition: StreamedPartition, least: int) -> bool:
    """Whether a cut in memory has equal values on both sides, which its tree cannot tell apart: a known defect."""
    own = partition.rows.sample()
    groups, tree = groups_and_tree(own.X, least, MOST_CELLS, is_safe=own.safe_cuts)
    return not np.array_equal(tree.assign(own.X), group_labels(groups, len(own.X)))


@given(seed=st.integers(0, 10_000), n=st.integers(40, 300), least=st.integers(2, 20))
@settings(max_examples=40, deadline=None)
def test_cells_are_those_of_the_table_in_memory(seed: int, n: int, least: int) -> None:
    X = rows(seed, n)
    streamed = StreamedPartition(streamed_rows(table_of(X, n)), least)
    assume(not divides_equal_values(streamed, least))
    whole = JointPartition(streamed.rows.sample(), least)
    found = streamed.cut(lambda: own_cuts(X, streamed, least))
    cells = whole.cut(whole.rows.X)
    pairs = np.unique(np.c_[found.of_rows(X), cells.of_row], axis=0)
    assert len(pairs) == len(found.counts) == len(cells)
    assert np.array_equal(np.sort(found.counts), np.sort(np.bincount(cells.of_row)))
    assert np.array_equal(found.rarer.sum(axis=0), cells.rarer.sum(axis=0))
    assert found.means is not None
    own = means_by_label(streamed.rows.coded(X), found.of_rows(X), otherwise=np.zeros((len(found.counts), 4)))
    assert np.allclose(found.means[:, :3], own[:, :3])
    assert streamed.cut(lambda: (by_centers(seed, 5), 5)) is found  # for good


@given(seed=st.integers(0, 10_000), least=st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_no_cell_is_smaller_than_the_floor_or_dominated_whatever_the_sample(seed: int, least: int) -> None:
    X = rows(seed, 400)
    partition = cut(X, 60, least, by_centers(seed, 12), 12)
    cells = partition.cells.of_rows(X)
    coded = partition.rows.coded(X)[:, ~partition.rows.is_shared]
    for cell in np.unique(cells):
        assert (cells == cell).sum() >= least
        if len(np.unique(cells)) > 1:
            assert not is_dominated(coded[cells == cell])
    assert (partition.cells.rarer % 3 == 0).all()


def groups_by(partition: StreamedPartition, label: Callable[[FloatArray], IntArray]) -> StreamedGroups:
    return StreamedGroups(rows=partition.rows, label=label, cells=partition.cells if partition.least > 1 else None)


def test_sums_of_two_valued_columns_are_those_that_are_sent() -> None:
    X = rows(3, 500)
    partition = cut(X, 100, 20, by_centers(1, 6), 6)
    groups = groups_by(partition, by_centers(2, 3))
    found, labels = zip(*groups.batches(), strict=True)
    cells = partition.cells.of_rows(X)
    rarer = partition.rows.table.pairs[1, 3]
    for cell in range(len(partition.cells.rarer)):
        assert (np.concatenate(found)[cells == cell, 3] == rarer).sum() == partition.cells.rarer[cell, 0]
    assert np.array_equal(np.concatenate(labels), groups.labels(X))


def test_a_cell_goes_where_its_mean_goes() -> None:
    X = rows(3, 500)
    partition = cut(X, 100, 20, by_centers(1, 6), 6)
    assert partition.cells.means is not None
    labels = groups_by(partition, by_centers(2, 9)).labels(X)
    cells = partition.cells.of_rows(X)
    assert np.array_equal(labels, by_centers(2, 9)(partition.cells.means)[cells])


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows(4, 500)
    results = []
    for size in (1 << 20, 40):
        monkeypatch.setattr(batches, "STREAMED_VALUES", size)
        partition = cut(X, 100, 20, by_centers(1, 6), 6)
        groups = groups_by(partition, by_centers(2, 9))
        results.append((partition.cells.of_rows(X), np.concatenate([each for each, _ in groups.batches()])))
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


def test_what_lies_far_out_is_moved_as_in_memory() -> None:
    X = rows(5, 300)
    X[7, 0], X[8, 0] = 1e6, -1e5
    found = streamed_rows(table_of(X, 300))
    low, high = bounds_of(X)
    assert np.allclose(np.clip(X, low, high)[:, :3], found.coded(X)[:, :3])
    assert found.coded(X)[7, 0] < 1e3


def test_no_floor_allows_every_label() -> None:
    X = rows(6, 50)
    groups = groups_by(StreamedPartition(streamed_rows(table_of(X, 20)), 1), by_centers(1, 9))
    assert np.array_equal(groups.labels(X), by_centers(1, 9)(groups.rows.coded(X)))
