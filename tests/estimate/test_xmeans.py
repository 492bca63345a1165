from math import log, pi, sqrt

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from koncord import XMeans
from koncord._random import draw_seed
from koncord.estimate.kmeans import seed_halves
from koncord.estimate.xmeans import XMEANS_PAPER, bic, halves_if_bic_improves, split_score

RING = [[0, 0], [9, 0], [0, 11], [10, 12], [-9, -10]]


def plain_score(clusters):
    """The score of pyclustering, cluster by cluster; its variance is not divided by the number of features."""
    d = clusters[0].shape[1]
    K, N = len(clusters), sum(len(rows) for rows in clusters)
    variance = sum(((rows - rows.mean(axis=0)) ** 2).sum() for rows in clusters) / (N - K)
    p = (K - 1) + d * K + 1
    score = 0.0
    for rows in clusters:
        n = len(rows)
        L = n * log(n) - n * log(N) - n / 2 * log(2 * pi) - n * d / 2 * log(variance) - (n - K) / 2
        score += L - p / 2 * log(N)
    return score


def plain_xmeans(X, max_components, seed):
    """X-means with scikit-learn's k-means and no shortcut, from two clusters; the same draws as `XMeans`."""
    rng = np.random.default_rng(seed)
    scaled = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())
    centers = kmeans_plusplus(scaled, 2, random_state=draw_seed(rng))[0]
    while True:
        labels = converged(scaled, centers)
        after = []
        room = max_components - len(centers)
        for k in range(len(centers)):
            rows = scaled[labels == k]
            mean = rows.mean(axis=0)
            if room and len(rows) > 2:
                halves = converged(rows - mean, seed_halves(rows - mean, rng))
                parts = [rows[halves == 0], rows[halves == 1]]
                if plain_score(parts) > plain_score([rows]):
                    after += [part.mean(axis=0) for part in parts]
                    room -= 1
                    continue
            after.append(mean)
        if len(after) == len(centers):
            return labels
        centers = np.array(after)


def converged(X, centers):
    return KMeans(len(centers), init=centers, n_init=1, tol=0, max_iter=1000).fit(X).labels_


def overlapping(seed):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(rng.normal(0, 4, 3), rng.uniform(0.3, 1.5), (50, 3)) for _ in range(6)])


@pytest.mark.parametrize("max_components", [200, 3, 2])
@pytest.mark.parametrize("seed", range(5))
def test_a_fit_equals_the_plain_algorithm(seed, max_components):
    X = overlapping(seed)
    fitted = XMeans(min_components=2, max_components=max_components, tolerance=0, random_state=seed).fit(X)
    np.testing.assert_array_equal(fitted.labels_, plain_xmeans(X, max_components, seed))
    assert 2 <= fitted.n_components_ <= max_components


def test_the_plain_algorithm_is_stopped_by_the_cap_as_well():
    counts = [len(set(plain_xmeans(overlapping(4), cap, 4))) for cap in (2, 3, 200)]
    assert counts[:2] == [2, 3]
    assert counts[2] > 3


@pytest.mark.parametrize("sizes", [(40, 60), (3, 200), (2, 2)])
def test_a_split_is_judged_as_by_the_published_program(sizes):
    rng = np.random.default_rng(sum(sizes))
    parts = [rng.normal(size=(n, 5)) for n in sizes]
    rows = np.concatenate(parts)
    one, two = (split_score(np.array([len(p) for p in k]), scatter_of(k), 5, 0.0) for k in ([rows], parts))
    assert two - one == pytest.approx(plain_score(parts) - plain_score([rows]))


def test_bic_is_the_likelihood_of_the_rows_less_the_penalty():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 4)) for n in (20, 30, 70)]
    variance = scatter_of(parts) / (4 * (120 - 3))
    likelihood = sum(
        len(rows) * log(len(rows) / 120) + norm.logpdf(rows, rows.mean(axis=0), sqrt(variance)).sum() for rows in parts
    )
    assert bic(np.array([20, 30, 70]), scatter_of(parts), 4, 0.0) == pytest.approx(likelihood - 15 / 2 * log(120))


def scatter_of(parts):
    return sum(((rows - rows.mean(axis=0)) ** 2).sum() for rows in parts)


@pytest.mark.parametrize("d", [1, 2, 20])
def test_one_round_cluster_is_one_and_far_apart_ones_are_not(d):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(300, d))
    for seed in range(3):
        assert XMeans(random_state=seed).fit(X).n_components_ == 1
        assert XMeans(random_state=seed).fit(X + 20 * rng.integers(0, 2, (300, 1))).n_components_ == 2


def test_groups_of_which_two_halves_are_no_better_than_one_cluster_are_found():
    """Five groups cut in two can pay less than it costs: a search from one cluster would end there."""
    X = np.concatenate([np.random.default_rng(k).normal(center, 1, (60, 2)) for k, center in enumerate(RING)])
    halves = [halves_if_bic_improves(X - X.mean(axis=0), 0.0, np.random.default_rng(seed)) for seed in range(20)]
    counts = [XMeans(random_state=seed).fit(X).n_components_ for seed in range(20)]
    assert sum(half is None for half in halves) > 2
    assert min(counts) > 1
    assert counts.count(5) >= 18


def test_a_cap_of_one_is_one_cluster(blobs):
    X, _ = blobs(RING, 20)
    fitted = XMeans(max_components=1).fit(X)
    np.testing.assert_allclose(fitted.means_, X.mean(axis=0, keepdims=True))


def test_three_copies_of_a_point_and_one_apart_split_in_spite_of_zero_variance():
    X = np.array([[0.0, 0.0]] * 3 + [[8.0, 0.0]])
    centers = halves_if_bic_improves(X - X.mean(axis=0), 0.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(centers[:, 0] + 2), [0, 8], atol=1e-12)


def test_two_rows_never_split():
    assert halves_if_bic_improves(np.array([[-4.0], [4.0]]), 0.0, np.random.default_rng(0)) is None
    assert XMeans(random_state=0).fit([[0.0], [8.0]]).n_components_ == 1


@pytest.mark.parametrize("seed", range(4))
def test_separated_groups_are_found(blobs, seed):
    X, y = blobs(RING, 60, seed=seed)
    fitted = XMeans(random_state=seed).fit(X)
    assert fitted.n_components_ == 5
    assert adjusted_rand_score(y, fitted.labels_) == 1


def test_the_labels_are_the_partition_of_the_means_and_counts(blobs):
    X, _ = blobs(RING, 30, spread=4.0)
    fitted = XMeans(random_state=1).fit(X)
    for k in range(fitted.n_components_):
        rows = X[fitted.labels_ == k]
        np.testing.assert_allclose(fitted.means_[k], rows.mean(axis=0))
        assert fitted.counts_[k] == len(rows)
        assert fitted.variances_[k] == pytest.approx(rows.var(axis=0).mean())


def test_the_start_of_the_paper_never_says_one(blobs):
    X, _ = blobs([[0, 0, 0, 0]], 200)
    assert XMeans(random_state=0).fit(X).n_components_ == 1
    assert XMeans(**XMEANS_PAPER, random_state=0).fit(X).n_components_ == 2


def test_the_order_of_the_rows_does_not_change_the_count_on_separated_groups(blobs):
    X, _ = blobs(RING, 40)
    shuffled = X[np.random.default_rng(0).permutation(len(X))]
    first, second = XMeans(random_state=3).fit(X), XMeans(random_state=3).fit(shuffled)
    np.testing.assert_allclose(
        first.means_[np.lexsort(first.means_.T)], second.means_[np.lexsort(second.means_.T)], atol=1e-9
    )


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"min_components": 0}, ValueError, "'min_components' of XMeans must be at least 1; got 0."),
        ({"max_components": 2.5}, TypeError, "'max_components' of XMeans must be an integer"),
        ({"tolerance": -1}, ValueError, "'tolerance' of XMeans must be a finite number at least 0; got -1."),
        (
            {"min_components": 5, "max_components": 4},
            ValueError,
            r"'min_components' of XMeans must be at most 'max_components' \(4\); got 5.",
        ),
    ],
)
def test_a_wrong_parameter_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        XMeans(**wrong).fit(np.zeros((4, 2)))


@pytest.mark.parametrize(("name", "low", "high"), [("waveform", 6, 7), ("abalone", 25, 42), ("mnist_vae10", 2, 2)])
def test_counts_on_benchmark_sets_are_near_the_published_ones(benchmark_set, name, low, high):
    """Table of the pooled benchmark: 6.2, 28.3 and 2.0 on average."""
    X, y = benchmark_set(name, "X", "y")
    X = X.astype(float) if name == "mnist_vae10" else StandardScaler().fit_transform(X.astype(float))
    X, _ = train_test_split(X, test_size=0.3, stratify=y, random_state=42)
    assert low <= XMeans(**XMEANS_PAPER, random_state=42).fit(X).n_components_ <= high
