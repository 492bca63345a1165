"""The split test in C against the same in NumPy: the same trees, the same labels."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord._jobs import jobs
from koncord.estimate.asm import ASM
from koncord.kernels import centered, compiled, splitting
from koncord.kernels.centered import CenteredRows, Node
from koncord.kernels.compiled import CompiledRows
from koncord.kernels.splitting import SplitForest
from koncord.types import FloatArray

pytestmark = pytest.mark.skipif(compiled._splitting is None, reason="koncord was built without a compiler")
BOTH = (CenteredRows, CompiledRows)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = splitting.ROWS
    yield
    splitting.ROWS = before


def clusters(n: int, d: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.3, 2, (n, 1)) + 5 * rng.normal(size=(6, d))[rng.integers(0, 6, n)]


def leaves(X: FloatArray, *, is_spherical: bool, min_mass: float = 10) -> list[list[Node]]:
    forest = SplitForest(X, split_factors=[0.5, 1.0], is_spherical=is_spherical, n_em_iter=15)
    return forest.cut(min_mass, 40)


@given(n=st.integers(2, 700), d=st.integers(1, 30), seed=st.integers(0, 10_000), is_spherical=st.booleans())
@settings(max_examples=40, deadline=None)
def test_both_find_the_same_components(n: int, d: int, seed: int, is_spherical: bool) -> None:
    X = clusters(n, d, seed)
    found = []
    for splitting.ROWS in BOTH:
        found.append(leaves(X, is_spherical=is_spherical))
    for ours, theirs in zip(*found, strict=True):
        assert [node.rows.tolist() for node in ours] == [node.rows.tolist() for node in theirs]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.fitted_mean, other.fitted_mean, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(one.scatter, other.scatter, rtol=1e-8, atol=1e-8)


def test_a_node_that_is_read_in_pieces_is_the_node_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    X = clusters(3000, 5, 1)
    kept = leaves(X, is_spherical=True)
    monkeypatch.setattr(centered, "KEPT_FLOATS", 100)
    monkeypatch.setattr(splitting, "BLOCK_FLOATS", 1400)
    pieces = leaves(X, is_spherical=True)
    for ours, theirs in zip(kept, pieces, strict=True):
        assert [node.rows.tolist() for node in ours] == [node.rows.tolist() for node in theirs]


@pytest.mark.parametrize("far", [0.0, 1e8])
def test_far_rows_and_far_origins_do_not_overflow(far: float) -> None:
    X = np.concatenate([clusters(200, 3, 2), [[1e12, 0, 0], [-1e12, 1, 1]]]) + far
    found = []
    for splitting.ROWS in BOTH:
        found.append(leaves(X, is_spherical=True, min_mass=1)[1])
    assert [node.rows.tolist() for node in found[0]] == [node.rows.tolist() for node in found[1]]
    assert all(np.isfinite(node.fitted_mean).all() for node in found[1])


def test_asm_has_the_same_labels() -> None:
    X = clusters(490, 10, 3)
    labels = []
    for splitting.ROWS in BOTH:
        labels.append(ASM(random_state=0).fit(X).labels_)
    assert np.array_equal(*labels)


def test_a_table_in_another_order_of_memory_is_the_same_table() -> None:
    X = clusters(300, 4, 4)
    one, other = leaves(X, is_spherical=True)[1], leaves(np.asfortranarray(X), is_spherical=True)[1]
    assert [node.rows.tolist() for node in one] == [node.rows.tolist() for node in other]


@given(n=st.integers(1, 400), d=st.integers(1, 40), seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_loops_of_every_processor_give_the_same_numbers(n: int, d: int, seed: int) -> None:
    X, found = clusters(n, d, seed), []
    rows, means = [np.arange(n), np.arange(n)[::-2].copy()], np.array([X.mean(axis=0), X[-1]])
    for level in (0, 1, 2):
        compiled._splitting.limit(level)
        m = int(compiled.padded_rows(np.array([n, len(rows[1])])).sum())
        z, squares, share = np.empty(m * d), np.empty(m), np.empty(m)
        grams, first, sums = np.empty((2, d, d)), np.empty((2, d + 2)), np.empty((2, d + 2))
        odds, n_first = np.full((2, d + 2), 0.1), np.empty(2, dtype=np.int64)
        own = [each.copy() for each in rows]
        blocks = X, own, means, z, squares
        compiled._splitting.gather(*blocks, grams)
        compiled._splitting.em(*blocks, odds, np.full(2, 50.0), np.full(2, 0.01), 5, share, first)
        compiled._splitting.divide(*blocks, np.ones(2, dtype=np.int64), share, sums, n_first)
        found.append(np.concatenate([z, squares, grams.ravel(), share, first.ravel(), sums.ravel(), n_first, *own]))
    compiled._splitting.limit(2)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(grams[0], (X - means[0]).T @ (X - means[0]), rtol=1e-9, atol=1e-9)


def test_arrays_that_do_not_fit_are_refused() -> None:
    X, rows, means = np.zeros((5, 2)), [np.array([0, 4])], np.zeros((1, 2))
    z, squares, grams = np.empty(16), np.empty(8), np.empty((1, 2, 2))
    ones = np.ones(1)
    with pytest.raises(IndexError, match="has 5 where X has 5 rows"):
        compiled._splitting.gather(X, [np.array([0, 5])], means, z, squares, grams)
    with pytest.raises(ValueError, match="'z' must have 16"):
        compiled._splitting.gather(X, rows, means, z[:15], squares, grams)
    with pytest.raises(ValueError, match="'grams' must have 4"):
        compiled._splitting.gather(X, rows, means, z, squares, np.empty(3))
    with pytest.raises(ValueError, match="'means' must have a row"):
        compiled._splitting.gather(X, rows, np.empty(0), z, squares, grams)
    with pytest.raises(ValueError, match="'share' must have 8"):
        compiled._splitting.em(X, rows, means, z, squares, np.zeros(4), ones, ones, 1, np.empty(7), np.empty(4))
    with pytest.raises(ValueError, match="'odds' must have 4"):
        compiled._splitting.em(X, rows, means, z, squares, np.zeros(5), ones, ones, 1, np.empty(8), np.empty(4))
    with pytest.raises(ValueError, match="'n_first' must have 1"):
        compiled._splitting.divide(X, rows, means, z, squares, ones, np.empty(8), np.empty(4), np.empty(2))


def test_threads_change_no_row() -> None:
    X = clusters(20_000, 6, 5)
    found = []
    for n in (1, 3):
        with jobs(n):
            found.append(leaves(X, is_spherical=True))
    for ours, theirs in zip(*found, strict=True):
        assert [node.rows.tolist() for node in ours] == [node.rows.tolist() for node in theirs]
        assert all(np.array_equal(a.fitted_mean, b.fitted_mean) for a, b in zip(ours, theirs, strict=True))
