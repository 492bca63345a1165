from math import erf, log, sqrt

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from koncord import GMeans
from koncord.estimate.gmeans import GMEANS_PAPER, LEAST_ROWS, anderson_darling, p_value

RING = [[0, 0, 0], [9, 0, 0], [0, 11, 0], [3, 4, 12], [-9, -10, -8]]


def plain_anderson_darling(values):
    ordered = sorted(values)
    n = len(ordered)
    mean = sum(ordered) / n
    deviation = sqrt(sum((value - mean) ** 2 for value in ordered) / (n - 1))
    below = [0.5 * (1 + erf((value - mean) / deviation / sqrt(2))) for value in ordered]
    return -n - sum((2 * i + 1) / n * (log(below[i]) + log(1 - below[n - 1 - i])) for i in range(n))


def plain_gmeans(X, significance, max_components):
    """G-means with scikit-learn's k-means, the whole covariance and no shortcut."""
    X = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())
    centers = X.mean(axis=0)[None]
    while True:
        labels = converged(X, centers)
        after = []
        room = max_components - len(centers)
        for k in range(len(centers)):
            rows = X[labels == k]
            mean = rows.mean(axis=0)
            if room and len(rows) >= LEAST_ROWS:
                values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
                axis = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
                step = axis * sqrt(2 * values[-1] / np.pi)
                halves = converged(rows, np.array([mean - step, mean + step]))
                children = [rows[halves == half].mean(axis=0) for half in (0, 1)]
                statistic = plain_anderson_darling(rows @ (children[1] - children[0]))
                if p_value(statistic, len(rows)) < significance:
                    after += children
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
    return np.concatenate([rng.normal(rng.normal(0, 5, 3), rng.uniform(0.3, 1.5), (60, 3)) for _ in range(6)])


@pytest.mark.parametrize("max_components", [200, 3, 1])
@pytest.mark.parametrize("seed", range(5))
def test_a_fit_equals_the_plain_algorithm(seed, max_components):
    X = overlapping(seed)
    fitted = GMeans(significance=0.01, max_components=max_components, tolerance=0).fit(X)
    np.testing.assert_array_equal(fitted.labels_, plain_gmeans(X, 0.01, max_components))
    if max_components < 200:
        assert fitted.n_components_ == max_components


@pytest.mark.parametrize("n", [8, 9, 50, 301])
def test_the_statistic_equals_its_definition(n):
    values = np.random.default_rng(n).normal(3, 2, n)
    assert anderson_darling(values) == pytest.approx(plain_anderson_darling(values.tolist()), abs=1e-9)


def test_the_statistic_stays_finite_for_values_far_out_in_the_tails():
    values = np.concatenate([np.random.default_rng(0).normal(size=5000), [1e6]])
    assert 1000 < anderson_darling(values) < 1e5


@pytest.mark.parametrize("n", [8, 20, 100])
@pytest.mark.parametrize("significance", [0.05, 0.2])
def test_gaussian_values_are_rejected_as_often_as_the_significance_says(n, significance):
    rng = np.random.default_rng(n)
    rejected = [p_value(anderson_darling(rng.normal(size=n)), n) < significance for _ in range(4000)]
    assert np.mean(rejected) == pytest.approx(significance, rel=0.2)


@pytest.mark.parametrize(("critical", "significance"), [(0.631, 0.1), (0.752, 0.05), (1.035, 0.01)])
def test_p_values_agree_with_the_tabulated_critical_values(critical, significance):
    """D'Agostino and Stephens 1986, table 4.7, for many rows."""
    assert p_value(critical, 10**6) == pytest.approx(significance, rel=0.02)


def test_the_critical_value_of_hamerly_and_elkan_is_one_in_ten_thousand():
    assert p_value(1.8692, 10**6) == pytest.approx(1e-4, rel=0.15)


def test_the_level_of_the_paper_is_that_of_the_critical_value_of_its_program():
    assert p_value(1.092, 10**6) == pytest.approx(GMEANS_PAPER["significance"], rel=0.01)


def test_the_p_value_falls_as_the_statistic_grows_and_never_rises_again():
    p = np.array([p_value(statistic, 1000) for statistic in np.concatenate([np.arange(0.05, 5, 0.01), [50, 150, 400]])])
    assert (np.diff(p) < 1e-3).all()  # the four pieces of the approximation meet within this
    assert p[0] > 0.99
    assert p_value(1e6, 1000) == p_value(400, 1000) < 1e-180


@pytest.mark.parametrize("start", ["axis", "k-means++"])
@pytest.mark.parametrize("seed", range(3))
def test_separated_groups_are_found(blobs, seed, start):
    X, y = blobs(RING, 60, seed=seed)
    fitted = GMeans(start=start, random_state=seed).fit(X)
    assert fitted.n_components_ == 5
    assert adjusted_rand_score(y, fitted.labels_) == 1


def test_one_gaussian_of_any_shape_is_one_cluster():
    X = np.random.default_rng(0).normal(size=(800, 4)) @ np.diag([1, 2, 5, 30])
    assert GMeans().fit(X).n_components_ == 1


def test_a_uniform_line_is_cut_again_and_again():
    X = np.random.default_rng(0).uniform(size=(3000, 1))
    counts = [GMeans(significance=level).fit(X).n_components_ for level in (1e-12, 1e-4, 0.01)]
    assert counts == sorted(counts)
    assert counts[0] > 1


def test_fewer_rows_than_the_test_needs_never_split():
    X = np.array([[0.0]] * 3 + [[50.0]] * 4)
    assert len(X) == LEAST_ROWS - 1
    assert GMeans(significance=0.5).fit(X).n_components_ == 1
    assert GMeans(significance=0.5).fit(np.append(X, [[50.0]], axis=0)).n_components_ == 2


def test_the_axis_start_takes_nothing_from_the_seed():
    X = overlapping(1)
    np.testing.assert_array_equal(GMeans(random_state=0).fit(X).labels_, GMeans(random_state=1).fit(X).labels_)


def test_the_order_of_the_rows_does_not_change_the_clusters():
    X = overlapping(2)
    order = np.random.default_rng(0).permutation(len(X))
    first, second = GMeans(tolerance=0).fit(X), GMeans(tolerance=0).fit(X[order])
    assert first.n_components_ > 1
    np.testing.assert_array_equal(first.labels_[order], second.labels_)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"significance": 0}, "'significance' of GMeans must be a finite number greater than 0; got 0."),
        ({"start": "random"}, r"'start' of GMeans must be 'axis' or 'k-means\+\+'; got 'random'."),
        ({"max_components": 0}, "'max_components' of GMeans must be at least 1; got 0."),
        ({"tolerance": float("nan")}, "'tolerance' of GMeans must be a finite number at least 0; got nan."),
    ],
)
def test_a_wrong_parameter_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        GMeans(**wrong).fit(np.zeros((4, 2)))


@pytest.mark.parametrize(("name", "low", "high"), [("abalone", 60, 199), ("frogs", 200, 200)])
def test_counts_on_benchmark_sets_are_near_the_published_ones(benchmark_set, name, low, high):
    """Table of the pooled benchmark: 129.1 and 200.0 on average; single runs on Abalone end anywhere in the range."""
    X, y = benchmark_set(name, "X", "y")
    X, _ = train_test_split(StandardScaler().fit_transform(X.astype(float)), test_size=0.3, stratify=y, random_state=42)
    assert low <= GMeans(**GMEANS_PAPER, random_state=42).fit(X).n_components_ <= high
