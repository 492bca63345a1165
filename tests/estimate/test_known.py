import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from koncord import KnownCounts

FEW = st.floats(-3, 3, width=16)
TABLES = st.tuples(st.integers(1, 25), st.integers(1, 3)).flatmap(lambda shape: arrays(float, shape, elements=FEW))


def inertia(X, labels):
    return sum(((X[labels == k] - X[labels == k].mean(axis=0)) ** 2).sum() for k in np.unique(labels))


@pytest.mark.parametrize("k", [2, 4, 7])
def test_clusters_are_as_tight_as_those_of_scikit_learn(blobs, k):
    X, _ = blobs(np.eye(4) * 4, 50, seed=k)
    fitted = KnownCounts(k, random_state=0).fit(X)
    assert fitted.n_components_ == k
    assert inertia(X, fitted.labels_) <= 1.01 * KMeans(k, n_init=10, random_state=0).fit(X).inertia_


def test_more_runs_are_never_looser(blobs):
    X, _ = blobs(np.random.default_rng(0).normal(0, 3, (12, 2)), 20)
    once, often = (inertia(X, KnownCounts(12, n_init=n, random_state=0).fit(X).labels_) for n in (1, 20))
    assert often < once


@settings(max_examples=100, deadline=None, derandomize=True)
@given(X=TABLES, k=st.integers(1, 9))
def test_the_count_is_as_told_or_the_number_of_distinct_rows(X, k):
    fitted = KnownCounts(k, n_init=2, random_state=0).fit(X)
    assert fitted.n_components_ == min(k, len(np.unique(X, axis=0)))


def test_separated_groups_are_found(blobs):
    X, y = blobs([[0, 0], [9, 0], [0, 11], [10, 12]], 30)
    fitted = KnownCounts(4, random_state=0).fit(X)
    assert adjusted_rand_score(y, fitted.labels_) == 1
    np.testing.assert_array_equal(fitted.counts_, [30] * 4)


def test_one_cluster_is_reported_by_default(blobs):
    X, _ = blobs([[0, 0], [9, 0]], 30)
    fitted = KnownCounts().fit(X)
    assert fitted.n_components_ == 1
    np.testing.assert_allclose(fitted.means_, [X.mean(axis=0)])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (4, [4, 4]),
        ({"south": 7, "north": 2}, [2, 7]),
        ([3, 1], [3, 1]),
        ((5, 6), [5, 6]),
        (np.array([8, 9]), [8, 9]),
    ],
)
def test_each_client_is_reported_its_own_count(counts, expected):
    oracle = KnownCounts(counts, n_init=3, random_state=11)
    told = [oracle.for_client(name, position) for position, name in enumerate(["north", "south"])]
    assert [each.counts for each in told] == expected
    assert all(type(each.counts) is int and each.n_init == 3 and each.random_state == 11 for each in told)
    assert oracle.counts is counts


@pytest.mark.parametrize("counts", [{"north": 2}, [2, 3], (2, 3), np.array([2, 3])])
def test_one_table_needs_one_count(counts):
    with pytest.raises(ValueError, match=r"'counts' of KnownCounts must be one integer .*for_client\(name, position\)"):
        KnownCounts(counts).fit(np.eye(3))


def test_a_client_that_nobody_told_about_is_named():
    with pytest.raises(ValueError, match=r"'counts' of KnownCounts must hold client 'west'; it holds \['north'\]\."):
        KnownCounts({"north": 2}).for_client("west", 0)
    with pytest.raises(ValueError, match=r"'counts' of KnownCounts must hold client 2 \(from 0\); it holds 2\."):
        KnownCounts([2, 3]).for_client("west", 2)


@pytest.mark.parametrize(
    ("counts", "error"), [(0, ValueError), (2.5, TypeError), ("3", TypeError), (None, TypeError), (True, TypeError)]
)
def test_a_count_that_is_none_is_refused(counts, error):
    with pytest.raises(error, match="'counts' of KnownCounts must be"):
        KnownCounts(counts).fit(np.eye(3))
    with pytest.raises(error, match="'counts' of KnownCounts must be"):
        KnownCounts([counts]).for_client("north", 0)


def test_counts_of_clients_survive_a_clone():
    assert clone(KnownCounts({"north": 2})).counts == {"north": 2}
