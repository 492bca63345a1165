"""X-means and G-means of pyclustering: against figures of its own run, and against itself where it is installed."""

import random
import warnings

import numpy as np
import pytest

from koncord_reproduction.pyclustered import Draws, PyGMeans, PyXMeans, bic_halves, first_two, normality_statistic

# Table, seed, and rows of each cluster that pyclustering 0.10.1.2 found, in its order: xmeans(X, None, kmax=200,
# random_state=seed) and gmeans(X, k_max=40, random_state=seed), in its compiled core for Linux.
STORED = [
    (
        (1, 240, 2, 6.0),
        42,
        [63, 85, 85, 7],
        [10, 24, 11, 4, 4, 6, 4, 1, 1, 1, 9, 38, 6, 5, 6, 6, 5, 4, 5, 49, 14, 7, 10, 5, 5],
    ),
    ((1, 240, 2, 6.0), 7, [86, 64, 90], [13, 38, 7, 4, 1, 1, 1, 39, 7, 12, 8, 4, 4, 6, 4, 49, 14, 7, 10, 5, 6]),
    (
        (2, 300, 5, 2.0),
        42,
        [107, 74, 119],
        [
            6,
            11,
            46,
            5,
            4,
            9,
            1,
            1,
            10,
            1,
            1,
            1,
            1,
            1,
            9,
            4,
            35,
            3,
            1,
            8,
            4,
            1,
            3,
            9,
            1,
            1,
            1,
            1,
            1,
            53,
            11,
            11,
            11,
            5,
            6,
            5,
            5,
            4,
            8,
            1,
        ],
    ),
    (
        (2, 300, 5, 2.0),
        7,
        [105, 118, 76, 1],
        [
            60,
            3,
            12,
            1,
            1,
            7,
            1,
            9,
            8,
            5,
            36,
            1,
            4,
            7,
            6,
            1,
            1,
            1,
            1,
            12,
            1,
            1,
            1,
            1,
            1,
            8,
            58,
            2,
            1,
            1,
            7,
            10,
            5,
            1,
            4,
            4,
            1,
            5,
            7,
            4,
        ],
    ),
    (
        (3, 400, 3, 0.0),
        42,
        [348, 21, 31],
        [
            11,
            4,
            79,
            8,
            29,
            12,
            9,
            18,
            18,
            16,
            27,
            16,
            9,
            13,
            11,
            5,
            21,
            12,
            5,
            12,
            1,
            1,
            1,
            1,
            6,
            5,
            1,
            7,
            1,
            12,
            6,
            5,
            1,
            1,
            4,
            5,
            4,
            1,
            1,
            1,
        ],
    ),
    (
        (3, 400, 3, 0.0),
        7,
        [378, 22],
        [
            7,
            1,
            1,
            11,
            18,
            5,
            13,
            3,
            23,
            96,
            32,
            23,
            15,
            1,
            11,
            3,
            18,
            7,
            9,
            6,
            16,
            3,
            11,
            10,
            5,
            19,
            10,
            4,
            4,
            5,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
        ],
    ),
    ((4, 60, 8, 4.0), 42, [19, 22, 19], [1, 1, 12, 1, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1, 11, 1, 1, 1, 1, 1]),
    (
        (4, 60, 8, 4.0),
        7,
        [22, 19, 19],
        [
            1,
            1,
            1,
            11,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            7,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            7,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
        ],
    ),
]


def made(seed, n, d, spread):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.gamma(1.0, size=(n, 1)) + spread * rng.integers(0, 3, (n, 1))


@pytest.mark.parametrize(("case", "seed", "by_xmeans", "by_gmeans"), STORED)
def test_clusters_are_those_that_pyclustering_found(case, seed, by_xmeans, by_gmeans):
    X = made(*case)
    assert PyXMeans(random_state=seed).fit(X).counts_.tolist() == by_xmeans
    assert PyGMeans(max_components=40, random_state=seed).fit(X).counts_.tolist() == by_gmeans


@pytest.mark.parametrize("seed", range(42, 46))
def test_labels_are_those_of_pyclustering_where_it_is_installed(seed, monkeypatch):
    monkeypatch.setattr(np, "warnings", warnings, raising=False)  # it was written for an older NumPy
    xmeans = pytest.importorskip("pyclustering.cluster.xmeans").xmeans
    gmeans = pytest.importorskip("pyclustering.cluster.gmeans").gmeans
    X = made(seed, 150, 4, 3.0)
    for found, ours in (
        (xmeans(X, None, kmax=200, random_state=seed), PyXMeans(random_state=seed)),
        (gmeans(X.tolist(), k_max=40, random_state=seed), PyGMeans(max_components=40, random_state=seed)),
    ):
        labels = np.empty(len(X), dtype=int)
        for at, rows in enumerate(found.process().get_clusters()):
            labels[rows] = at
        np.testing.assert_array_equal(ours.fit(X).labels_, labels)


def test_words_are_those_of_the_standard_generator():
    """The 10,000th word of mt19937 with its default seed, by the C++ standard."""
    draws = Draws(5489)
    words = [draws.word() for _ in range(10_000)]
    assert words[-1] == 4123659995


def test_draws_have_their_range_and_the_seed_decides_them():
    draws = Draws(3)
    assert {draws.below(5) for _ in range(200)} == set(range(5))
    assert all(0 <= draws.unit() < 1 for _ in range(100))
    assert [Draws(9).below(1000) for _ in range(3)] == [Draws(9).below(1000)] * 3


def test_x_means_begins_with_two_rows_of_pythons_generator():
    X = made(0, 50, 2, 1.0)
    first, second = first_two(X, 42)
    assert first == random.Random(42).randint(0, 49)
    assert second != first


def test_a_pair_splits_and_equal_rows_do_not():
    pair = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
    assert bic_halves(pair, np.array([0, 1]), 1) is not None
    assert PyXMeans(random_state=1).fit(np.ones((20, 2))).n_components_ == 1
    assert PyGMeans(random_state=1).fit(np.ones((20, 2))).n_components_ == 1
    assert PyGMeans(random_state=1).fit(np.ones((1, 2))).n_components_ == 1


def test_a_value_beyond_eight_deviations_is_no_gaussian():
    values = np.concatenate([np.random.default_rng(0).normal(size=2000), [200.0]])
    assert normality_statistic(values) == np.inf
    assert normality_statistic(values[:-1]) < 1.0


def test_no_more_clusters_than_allowed():
    X = made(2, 300, 5, 2.0)
    assert PyGMeans(max_components=7, random_state=42).fit(X).n_components_ <= 7
    assert PyXMeans(max_components=2, random_state=42).fit(X).n_components_ == 2
