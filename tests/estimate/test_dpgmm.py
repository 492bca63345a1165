import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from koncord import DPGMM, LabelFreeSearch
from koncord.estimate import dpgmm
from koncord.estimate.dpgmm import DPGMM_GRID, heavy_components, relabel
from koncord.estimate.search import combinations


def unit_table(seed=0):
    """Six overlapping groups, scaled to mean zero and mean variance one, where scikit-learn sees the same numbers."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(rng.normal(0, 3, 3), rng.uniform(0.4, 1.5), (50, 3)) for _ in range(6)])
    X -= X.mean(axis=0)
    return X / np.sqrt((X**2).mean())


def plain_process(X, concentration, truncation, random_state):
    seed = int(np.random.default_rng(random_state).integers(2**31))
    process = BayesianGaussianMixture(
        n_components=truncation,
        covariance_type="spherical",
        weight_concentration_prior=concentration,
        max_iter=200,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(X)


@pytest.mark.parametrize("threshold", [0.001, 0.02, 0.1])
def test_a_fit_is_scikit_learns_mixture_without_its_light_components(threshold):
    X = unit_table()
    fitted = DPGMM(1.0, threshold, truncation=30, random_state=3).fit(X)
    process = plain_process(X, 1.0, 30, 3)
    heavy = np.flatnonzero(process.weights_ >= threshold)
    assert 1 < fitted.n_components_ == len(heavy) < 30
    np.testing.assert_allclose(fitted.means_, process.means_[heavy], atol=1e-7)
    np.testing.assert_allclose(fitted.variances_, process.covariances_[heavy], rtol=1e-6)
    np.testing.assert_allclose(fitted.weights_, process.weights_[heavy] / process.weights_[heavy].sum(), rtol=1e-6)
    for row, component, label in zip(X, process.predict(X), fitted.labels_, strict=True):
        if component in heavy:
            assert heavy[label] == component
        else:
            assert label == np.linalg.norm(process.means_[heavy] - row, axis=1).argmin()


def test_rows_of_removed_components_go_to_the_nearest_mean_that_is_left():
    X = np.array([[0.0], [5.1], [9.0], [1.0]])
    kept = np.array([1, 3])
    means = np.array([[0.0], [9.0]])
    np.testing.assert_array_equal(relabel(X, np.array([1, 0, 3, 2]), kept, means), [0, 1, 1, 0])


def test_a_threshold_above_all_weights_leaves_the_heaviest_alone():
    np.testing.assert_array_equal(heavy_components(np.array([0.2, 0.4, 0.4]), 0.4), [1, 2])
    np.testing.assert_array_equal(heavy_components(np.array([0.2, 0.4, 0.4]), 0.41), [1])
    X = unit_table()
    fitted = DPGMM(weight_threshold=2.0, random_state=0).fit(X)
    assert fitted.n_components_ == 1
    np.testing.assert_array_equal(fitted.labels_, 0)


def test_a_higher_threshold_never_leaves_more():
    X = unit_table(1)
    counts = [
        DPGMM(10.0, threshold, random_state=0).fit(X).n_components_ for threshold in DPGMM_GRID["weight_threshold"]
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_the_grid_is_that_of_the_paper_in_its_order():
    configurations = combinations(DPGMM_GRID)
    assert len(configurations) == 24
    assert configurations[0] == {"concentration": 0.001, "weight_threshold": 0.001}
    assert configurations[1] == {"concentration": 0.001, "weight_threshold": 0.01}
    assert configurations[-1] == {"concentration": 100, "weight_threshold": 0.1}


@pytest.fixture
def n_mixtures(monkeypatch):
    """How many mixtures have been fitted so far."""
    fits = []
    plain = dpgmm.fit_mixture
    monkeypatch.setattr(dpgmm, "fit_mixture", lambda *args, **kwargs: fits.append(1) or plain(*args, **kwargs))
    return lambda: len(fits)


def test_the_24_settings_of_the_grid_need_6_mixtures_and_equal_24_fits(n_mixtures):
    X = unit_table()[::4]
    estimator = DPGMM(truncation=20, random_state=0)
    together = list(estimator.fit_each(X, combinations(DPGMM_GRID)))
    assert n_mixtures() == 6
    for settings, fitted in zip(combinations(DPGMM_GRID), together, strict=True):
        alone = DPGMM(truncation=20, random_state=0, **settings).fit(X)
        assert fitted.get_params() == alone.get_params()
        assert fitted.n_features_in_ == 3
        for name in ("n_components_", "means_", "variances_", "weights_", "counts_", "labels_", "converged_"):
            np.testing.assert_array_equal(getattr(fitted, name), getattr(alone, name))


def test_settings_that_change_the_mixture_are_fitted_apart(n_mixtures):
    settings = [{"truncation": 5}, {"truncation": 6}, {"random_state": 1}, {"max_iter": 9}, {"weight_threshold": 0.5}]
    fitted = list(DPGMM(truncation=8, random_state=0).fit_each(unit_table()[::6], settings))
    assert n_mixtures() == 5
    assert [each.truncation for each in fitted] == [5, 6, 8, 8, 8]


def test_a_search_over_the_grid_finds_separated_groups(blobs):
    X, y = blobs([[0, 0], [12, 0], [0, 15]], 40)
    search = LabelFreeSearch(DPGMM(truncation=30), DPGMM_GRID, random_state=0).fit(X)
    assert search.n_components_ == 3
    assert adjusted_rand_score(y, search.labels_) == 1
    assert [candidate.params for candidate in search.results_] == combinations(DPGMM_GRID)


def test_fewer_rows_than_the_truncation_are_all_right():
    X = unit_table()[:7]
    fitted = DPGMM(truncation=200, weight_threshold=1e-6, random_state=0).fit(X)
    assert fitted.n_components_ <= 7
    assert fitted.counts_.sum() == 7


def test_a_mixture_that_has_not_converged_says_so_without_a_warning():
    X = unit_table()
    short = DPGMM(max_iter=1, random_state=0).fit(X)
    long = DPGMM(truncation=3, max_iter=2000, random_state=0).fit(X)
    assert (short.converged_, short.n_iter_) == (False, 1)
    assert long.converged_ is True
    assert 1 < long.n_iter_ < 2000


def test_identical_rows_are_one_component_without_a_fit(n_mixtures):
    fitted = DPGMM().fit(np.full((9, 2), 0.1))
    assert (fitted.n_components_, fitted.n_iter_, fitted.converged_) == (1, 0, True)
    np.testing.assert_array_equal(fitted.variances_, [1.0])


def test_separated_groups_are_found(blobs):
    X, y = blobs([[0, 0, 0, 0], [9, 0, 0, 0], [0, 11, 0, 0], [0, 0, -14, 3]], 60)
    fitted = DPGMM(random_state=0).fit(X)
    assert fitted.n_components_ == 4
    assert adjusted_rand_score(y, fitted.labels_) == 1


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"concentration": 0}, ValueError, "'concentration' of DPGMM must be a finite number greater than 0; got 0."),
        ({"weight_threshold": 0.0}, ValueError, "'weight_threshold' of DPGMM must be .* greater than 0; got 0.0."),
        ({"truncation": 0}, ValueError, "'truncation' of DPGMM must be at least 1; got 0."),
        ({"max_iter": "many"}, TypeError, "'max_iter' of DPGMM must be an integer of at least 1; got 'many'."),
    ],
)
def test_a_wrong_parameter_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        DPGMM(**wrong).fit(np.eye(4))
