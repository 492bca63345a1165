"""The joint partition of a table that is read batch by batch, against that of the same table in memory."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.data import batches
from koncord.data.batches import SampledTable, batched_table, sampled_table
from koncord.kernels.assign import nearest
from koncord.protocol.dominance import bounds_of, is_dominated
from koncord.protocol.partition import JointPartition
from koncord.protocol.streamed import StreamedPartition, cells_after, streamed_rows
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


@given(seed=st.integers(0, 10_000), n=st.integers(40, 300), least=st.integers(2, 20), ks=st.lists(st.integers(1, 9)))
@settings(max_examples=40, deadline=None)
def test_all_answers_are_those_of_the_table_in_memory(seed: int, n: int, least: int, ks: list[int]) -> None:
    X = rows(seed, n)
    streamed = StreamedPartition(streamed_rows(table_of(X, n)), least)
    whole = JointPartition(streamed.rows.sample(), least)
    for at, k in enumerate(ks):
        label = by_centers(seed + at, k)
        groups = streamed.apart(label, k)
        allowed, cells = whole.apart(label(X))
        assert np.array_equal(groups.labels(X), allowed)
        assert np.array_equal(groups.counts, np.bincount(allowed, minlength=k))
        assert np.array_equal(cells_after(streamed.sortings, X), cells.of_row)
        assert np.array_equal(streamed.rarer, cells.rarer)


@given(seed=st.integers(0, 10_000), least=st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_no_cell_is_smaller_than_the_floor_or_dominated_whatever_the_sample(seed: int, least: int) -> None:
    X = rows(seed, 400)
    partition = StreamedPartition(streamed_rows(table_of(X, 60)), least)
    for at in range(3):
        partition.apart(by_centers(seed + at, 12), 12)
    cells = cells_after(partition.sortings, X)
    coded = partition.rows.coded(X)[:, ~partition.rows.is_shared]
    for cell in np.unique(cells):
        assert (cells == cell).sum() >= least
        if len(np.unique(cells)) > 1:
            assert not is_dominated(coded[cells == cell])
    assert (partition.rarer % 3 == 0).all()


def test_sums_of_two_valued_columns_are_those_that_are_sent() -> None:
    X = rows(3, 500)
    partition = StreamedPartition(streamed_rows(table_of(X, 100)), 20)
    groups = partition.apart(by_centers(1, 6), 6)
    found, labels = zip(*groups.batches(), strict=True)
    cells = cells_after(partition.sortings, X)
    rarer = partition.rows.table.pairs[1, 3]
    for cell in range(len(partition.rarer)):
        assert (np.concatenate(found)[cells == cell, 3] == rarer).sum() == partition.rarer[cell, 0]
    assert np.array_equal(np.concatenate(labels), groups.labels(X))


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows(4, 500)
    results = []
    for size in (1 << 20, 40):
        monkeypatch.setattr(batches, "STREAMED_VALUES", size)
        partition = StreamedPartition(streamed_rows(table_of(X, 100)), 20)
        first, second = partition.apart(by_centers(1, 6), 6), partition.apart(by_centers(2, 9), 9)
        results.append((first.labels(X), second.labels(X), np.concatenate([each for each, _ in second.batches()])))
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
    groups = StreamedPartition(streamed_rows(table_of(X, 20)), 1).apart(by_centers(1, 9), 9)
    assert np.array_equal(groups.labels(X), by_centers(1, 9)(X))
