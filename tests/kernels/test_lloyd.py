import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.errors import MessageError
from koncord.kernels.assign import SMALL_MEMBERSHIP, means_by_label, sums_by_label
from koncord.kernels.lloyd import check_n_clusters, cost, kmeans, kpp, lloyd, stacked_rows, unstacked


def plain_lloyd(X, centers, weights, max_iter):
    centers = [center.copy() for center in centers]
    labels = None
    for _ in range(max_iter):
        nearest = []
        for x in X:
            squared = [((x - center) ** 2).sum() for center in centers]
            nearest.append(squared.index(min(squared)))
        if nearest == labels:
            break
        labels = nearest
        for k in range(len(centers)):
            rows = [i for i, label in enumerate(labels) if label == k and weights[i] > 0]
            if rows:
                centers[k] = sum(weights[i] * X[i] for i in rows) / sum(weights[i] for i in rows)
    return np.array(centers), labels


def plain_kpp(X, k, rng, weights):
    rows = []
    for _ in range(k):
        if rows:
            mass = [w * min(((x - X[row]) ** 2).sum() for row in rows) for x, w in zip(X, weights, strict=True)]
        else:
            mass = list(weights)
        if sum(mass) == 0:
            break
        aim, reached = rng.random() * sum(mass), 0.0
        for row, share in enumerate(mass):
            reached += share
            if reached > aim:
                rows.append(row)
                break
    return rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 12), st.booleans())
def test_lloyd_is_the_plain_loop(seed, k, max_iter, is_weighted):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    start = rng.normal(size=(k, 2))
    weights = rng.integers(0, 4, size=30).astype(float) if is_weighted else None
    found = lloyd(X, start, weights, max_iter=max_iter)
    centers, labels = plain_lloyd(X, start, np.ones(30) if weights is None else weights, max_iter)
    np.testing.assert_allclose(found.centers, centers, atol=1e-12)
    assert found.labels.tolist() == labels
    assert found.counts.tolist() == [labels.count(cluster) for cluster in range(k)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.booleans(), st.booleans())
def test_seeding_is_the_plain_loop(seed, k, is_weighted, has_duplicates):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(25, 2)).astype(float) if has_duplicates else rng.normal(size=(25, 2))
    weights = rng.integers(1, 4, size=25).astype(float) if is_weighted else None
    rows = kpp(X, k, np.random.default_rng(seed), weights)
    assert rows.tolist() == plain_kpp(X, k, np.random.default_rng(seed), np.ones(25) if weights is None else weights)


def test_coinciding_rows_give_fewer_seeds():
    X = np.array([[0.0], [0.0], [5.0], [5.0], [5.0]])
    assert sorted(X[kpp(X, 4, np.random.default_rng(0))].ravel()) == [0.0, 5.0]
    assert len(kpp(X[:1], 3, np.random.default_rng(0))) == 1


def test_a_row_without_weight_is_no_seed():
    X = np.arange(6.0)[:, None]
    weights = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    for seed in range(20):
        assert set(kpp(X, 6, np.random.default_rng(seed), weights)) == {1, 3, 5}


def test_a_center_that_attracts_nothing_keeps_its_place():
    found = lloyd(np.array([[0.0], [2.0]]), np.array([[1.5], [100.0]]))
    assert found.centers.tolist() == [[1.0], [100.0]]
    assert found.counts.tolist() == [2, 0]


def test_ties_go_to_the_lowest_index():
    X = np.array([[0.0], [0.0], [1.0]])
    assert lloyd(X, np.array([[-1.0], [1.0]]), max_iter=1).labels.tolist() == [0, 0, 1]
    assert lloyd(X, np.array([[0.5], [0.5]]), max_iter=1).labels.tolist() == [0, 0, 0]


def test_a_wide_tolerance_stops_after_the_first_pass():
    X = np.random.default_rng(0).normal(size=(200, 2))
    start = X[:5]
    np.testing.assert_array_equal(lloyd(X, start, tol=1e6).centers, lloyd(X, start, max_iter=1).centers)
    assert cost(X, lloyd(X, start).centers) < cost(X, lloyd(X, start, max_iter=1).centers)


def test_the_shift_is_measured_in_units_of_the_data():
    X = np.random.default_rng(0).normal(size=(200, 2))
    small, large = lloyd(X, X[:5], tol=1e-2), lloyd(1e6 * X, 1e6 * X[:5], tol=1e-2)
    np.testing.assert_array_equal(small.labels, large.labels)


def test_centers_are_the_means_of_the_labels_they_come_with():
    """After one pass rows may lie nearer to another center; their count would not tell what a center is made of."""
    X = np.random.default_rng(3).normal(size=(40, 2))
    found = lloyd(X, X[:6], max_iter=1)
    for k in range(6):
        np.testing.assert_allclose(found.centers[k], X[found.labels == k].mean(axis=0))


def test_kmeans_is_at_least_as_good_as_every_start():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 3))
    weights = rng.random(80)
    previous = rng.normal(size=(7, 3))
    found = kmeans(X, 7, np.random.default_rng(1), weights=weights, n_init=4, starts=[previous])
    again = np.random.default_rng(1)
    starts = [previous, *(X[kpp(X, 7, again, weights)] for _ in range(4))]
    costs = [cost(X, lloyd(X, start, weights).centers, weights) for start in starts]
    assert cost(X, found.centers, weights) == min(costs)
    assert min(costs) <= cost(X, previous, weights)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([20, 1 + SMALL_MEMBERSHIP // 6]))
def test_sums_means_and_cost_are_those_of_plain_loops(seed, is_weighted, n):
    rng = np.random.default_rng(seed)
    X, labels, otherwise = rng.normal(size=(n, 3)), rng.integers(4, size=n), rng.normal(size=(6, 3))
    weights = rng.random(n) if is_weighted else None
    w = np.ones(n) if weights is None else weights
    for k in range(6):
        rows = labels == k
        expected = (w[rows, None] * X[rows]).sum(axis=0)
        np.testing.assert_allclose(sums_by_label(X, labels, 6, weights)[k], expected, atol=1e-10)
        mean = expected / w[rows].sum() if rows.any() else otherwise[k]
        np.testing.assert_allclose(means_by_label(X, labels, weights, otherwise=otherwise)[k], mean, atol=1e-12)
    plain = sum(w[i] * min(((X[i] - c) ** 2).sum() for c in otherwise) for i in range(n))
    assert abs(cost(X, otherwise, weights) - plain) < 1e-8


def test_values_go_back_to_the_clients_whose_rows_were_stacked():
    parts = {"a": np.ones((2, 3)), "b": np.empty((0, 3)), "c": np.zeros((1, 3))}
    assert stacked_rows(parts, 3).shape == (3, 3)
    assert {name: values.tolist() for name, values in unstacked(np.array([5, 6, 7]), parts).items()} == {
        "a": [5, 6],
        "b": [],
        "c": [7],
    }
    with pytest.raises(MessageError, match="client 'c' sent rows of 2 features; the others have 3"):
        stacked_rows({"a": np.ones((1, 3)), "c": np.ones((1, 2))}, 3)


def test_a_missing_number_of_clusters_is_a_sentence():
    with pytest.raises(
        ValueError, match="'n_clusters' of KFed is missing: it needs the global number of clusters; Fed"
    ):
        check_n_clusters(None, owner="KFed")
    with pytest.raises(ValueError, match="'n_clusters' of KFed must be at least 1; got 0"):
        check_n_clusters(0, owner="KFed")
    with pytest.raises(TypeError, match=r"'n_clusters' of KFed must be an integer of at least 1; got 2\.5"):
        check_n_clusters(2.5, owner="KFed")
