import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import KMeans

from koncord.estimate.kmeans import (
    first_least,
    grow,
    kmeans_from,
    partition_components,
    partition_means,
    seed_centers,
    seed_halves,
    two_means,
    unit_rows,
)

FEW = st.floats(-3, 3, width=16)
TABLES = st.tuples(st.integers(1, 25), st.integers(1, 3)).flatmap(lambda shape: arrays(float, shape, elements=FEW))


def spread_rows(seed, n=200, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.5, 3, d)


@pytest.mark.parametrize("seed", range(8))
def test_kmeans_equals_scikit_learn_from_the_same_centers(seed):
    X = spread_rows(seed)
    centers = X[: 2 + seed]
    twin = KMeans(len(centers), init=centers, n_init=1, tol=0, max_iter=1000).fit(X)
    np.testing.assert_array_equal(kmeans_from(X, centers, tolerance=0), twin.labels_)


def test_kmeans_stops_once_no_center_moves_farther_than_the_tolerance():
    X = spread_rows(0)
    centers = X[:4]
    labels = kmeans_from(X, centers, tolerance=0.3)
    by_hand = centers
    while True:
        expected = ((X[:, None] - by_hand) ** 2).sum(axis=2).argmin(axis=1)
        moved = np.array([X[expected == k].mean(axis=0) for k in range(4)])
        if np.linalg.norm(moved - by_hand, axis=1).max() <= 0.3:
            break
        by_hand = moved
    np.testing.assert_array_equal(labels, expected)
    assert not np.array_equal(labels, kmeans_from(X, centers, tolerance=0))


def test_a_center_without_rows_takes_the_farthest_row():
    X = np.array([[0.0], [1.0], [2.0], [9.0]])
    labels = kmeans_from(X, np.array([[1.0], [500.0]]), tolerance=0)
    np.testing.assert_array_equal(labels, [0, 0, 0, 1])


def test_several_centers_without_rows_take_different_rows():
    X = np.array([[0.0], [0.1], [7.0], [9.0]])
    labels = kmeans_from(X, np.array([[500.0], [1.0], [600.0]]), tolerance=0)
    np.testing.assert_array_equal(labels, [1, 1, 2, 0])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(X=TABLES, k=st.integers(1, 8), seed=st.integers(0, 3))
def test_kmeans_fills_every_center_as_far_as_there_are_distinct_rows(X, k, seed):
    k = min(k, len(X))
    labels = kmeans_from(X, X[np.random.default_rng(seed).permutation(len(X))[:k]], tolerance=0)
    n_distinct = len(np.unique(X, axis=0))
    assert set(labels) == set(range(len(set(labels))))
    assert len(set(labels)) <= k
    if k == 1 or n_distinct == len(X):
        assert len(set(labels)) == k


def test_fewer_distinct_rows_than_centers_give_a_cluster_for_each():
    X = np.repeat([[0.1, 0.7], [3.3, 0.2]], 20, axis=0)
    assert set(kmeans_from(X, X[[0, 1, 2, 3, 30]], tolerance=0)) == {0, 1}


@pytest.mark.parametrize("seed", range(10))
def test_two_means_equals_kmeans(seed):
    X = spread_rows(seed, n=30 + 40 * seed)
    X = X - X.mean(axis=0)
    centers = X[:2]
    halves = two_means(X, centers, tolerance=0)
    expected = partition_components(X, kmeans_from(X, centers, tolerance=0))
    np.testing.assert_array_equal(halves.counts, expected.counts)
    np.testing.assert_allclose(halves.centers, expected.means, atol=1e-12)
    assert halves.explained == pytest.approx((X**2).sum() - expected.scatters.sum())


def test_the_second_half_starts_at_a_row_apart_from_the_first_in_proportion_to_squared_distance():
    X = np.array([[0.0], [0.0], [0.0], [1.0]])
    rng = np.random.default_rng(0)
    starts = np.array([seed_halves(X, rng).ravel() for _ in range(2000)])
    assert (starts[:, 0] != starts[:, 1]).all()
    assert (starts[:, 0] == 1).mean() == pytest.approx(0.25, abs=0.03)


def test_of_two_drawn_rows_the_one_that_leaves_less_scatter_starts_the_second_half():
    X = np.array([[0.0]] * 50 + [[9.0]] * 50 + [[-9.0]])
    rng = np.random.default_rng(1)
    second = np.array([start[1, 0] for start in (seed_halves(X, rng) for _ in range(2000)) if start[0, 0] == 0])
    one_in_51_and_again = (1 / 51) ** 2  # both draws must hit the lone row
    assert (second == -9).mean() == pytest.approx(one_in_51_and_again, abs=0.004)


def test_seed_centers_are_rows_of_the_table_and_no_more_than_there_are():
    X = spread_rows(0, n=5)
    centers = seed_centers(X, 9, np.random.default_rng(0))
    np.testing.assert_array_equal(np.unique(centers, axis=0), np.unique(X, axis=0))


def test_unit_rows_have_mean_zero_and_mean_variance_one():
    X = spread_rows(1) * 1e5 + 1e9
    table = unit_rows(X)
    np.testing.assert_allclose(table.rows.mean(axis=0), 0, atol=1e-9)
    assert table.rows.var(axis=0).mean() == pytest.approx(1)
    np.testing.assert_allclose(table.origin + table.scale * table.rows, X)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e12, 3e-300])
def test_rows_that_differ_by_rounding_alone_are_zeros_with_scale_zero(value):
    X = np.full((30, 2), value)
    X[::2] = np.nextafter(value, np.inf)
    table = unit_rows(X)
    assert table.scale == 0
    assert not table.rows.any()


def test_components_are_the_counts_means_and_scatters_of_the_labels():
    X = spread_rows(2)
    labels = np.random.default_rng(0).integers(0, 4, len(X))
    components = partition_components(X, labels)
    for k in range(4):
        rows = X[labels == k]
        assert components.counts[k] == len(rows)
        np.testing.assert_allclose(components.means[k], rows.mean(axis=0), atol=1e-12)
        assert components.scatters[k] == pytest.approx(((rows - rows.mean(axis=0)) ** 2).sum())
    np.testing.assert_array_equal(components.means, partition_means(X, labels))


def test_the_first_of_equal_costs_is_the_least():
    assert first_least([3.0, 2.0 + 1e-12, 2.0, 5.0]) == 1
    assert first_least([3.0, 2.1, 2.0]) == 2
    assert first_least([-2.0 + 1e-12, -2.0]) == 0
    assert first_least([0.0, 0.0]) == 0


def always_halves(rows):
    """The two ends of the rows' first column, relative to their mean."""
    return np.array([rows[rows[:, 0].argmin()], rows[rows[:, 0].argmax()]])


def test_growth_ends_at_the_cap_with_the_first_clusters_split_first():
    X = np.repeat([[0.0], [1.0], [100.0], [101.0]], 5, axis=0)
    labels = grow(unit_rows(X), np.zeros((1, 1)), always_halves, max_components=3, tolerance=0)
    np.testing.assert_array_equal(labels, np.repeat([0, 1, 2, 2], 5))


def test_growth_without_a_cap_ends_when_every_cluster_is_one_point():
    X = np.repeat([[0.3], [1.0], [4.0], [9.5]], 7, axis=0)
    labels = grow(unit_rows(X), np.zeros((1, 1)), always_halves, max_components=100, tolerance=0)
    np.testing.assert_array_equal(labels, np.repeat([0, 1, 2, 3], 7))


def test_clusters_get_their_rows_centred_on_their_mean():
    seen = []

    def never(rows):
        seen.append(rows)

    X = spread_rows(3)
    centers = np.array([[-1.0, 0, 0], [1.0, 0, 0]])
    labels = grow(unit_rows(X), centers, never, max_components=9, tolerance=0)
    assert [len(rows) for rows in seen] == np.bincount(labels).tolist()
    for k, rows in enumerate(seen):
        expected = unit_rows(X).rows[labels == k]
        np.testing.assert_allclose(rows, expected - expected.mean(axis=0), atol=1e-12)
