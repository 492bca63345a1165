"""The Dirichlet process with less arithmetic, beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

from koncord import DPGMM
from koncord_reproduction.process import SeededDPGMM, SharedDPGMM

SETTINGS = [
    {"concentration": concentration, "weight_threshold": threshold}
    for concentration in (0.001, 1, 100)
    for threshold in (0.001, 0.03)
]


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    return 1e3 + np.concatenate([rng.normal(center, width, (60, 4)) for center, width in ((0, 1), (4, 2), (9, 0.5))])


def test_every_setting_ends_where_scikit_learn_ends_after_as_many_iterations(table):
    ours, theirs = (
        list(kind(truncation=30, random_state=5).fit_each(table, SETTINGS)) for kind in (SharedDPGMM, DPGMM)
    )
    for found, wanted in zip(ours, theirs, strict=True):
        assert (found.n_iter_, found.converged_) == (wanted.n_iter_, wanted.converged_)
        np.testing.assert_array_equal(found.labels_, wanted.labels_)
        np.testing.assert_allclose(found.means_, wanted.means_, rtol=1e-9)
        np.testing.assert_allclose(found.variances_, wanted.variances_, rtol=1e-7)
        np.testing.assert_allclose(found.weights_, wanted.weights_, rtol=1e-7)


def test_a_seed_can_be_scikit_learns_own(table):
    literal = BayesianGaussianMixture(
        n_components=30, covariance_type="spherical", weight_concentration_prior=1, max_iter=200, random_state=7
    ).fit(table)
    found = SeededDPGMM(concentration=1, weight_threshold=1e-9, truncation=30, random_state=7).fit(table)
    kept = literal.weights_ >= 1e-9
    np.testing.assert_allclose(found.means_, literal.means_[kept], rtol=1e-6)
    drawn = SharedDPGMM(concentration=1, weight_threshold=1e-9, truncation=30, random_state=7).fit(table)
    assert drawn.means_.shape != found.means_.shape or not np.allclose(drawn.means_, found.means_)


def test_a_fit_alone_is_the_fit_among_several(table):
    alone = SharedDPGMM(**SETTINGS[-1], truncation=30, random_state=5).fit(table)
    among = list(SharedDPGMM(truncation=30, random_state=5).fit_each(table, SETTINGS))[-1]
    np.testing.assert_array_equal(alone.means_, among.means_)


def test_blocks_of_rows_do_not_change_what_is_found(table, monkeypatch):
    whole = SharedDPGMM(truncation=30, random_state=5).fit(table)
    monkeypatch.setattr("koncord_reproduction.process.BLOCK_FLOATS", 30 * 7)
    in_blocks = SharedDPGMM(truncation=30, random_state=5).fit(table)
    assert whole.n_iter_ == in_blocks.n_iter_
    np.testing.assert_allclose(whole.means_, in_blocks.means_, rtol=1e-9)


def test_a_table_that_is_one_point_is_one_component():
    assert SharedDPGMM().fit(np.full((5, 2), 3.0)).n_components_ == 1


def test_iterations_stop_at_the_limit(table):
    found = SharedDPGMM(truncation=30, max_iter=2, random_state=5).fit(table)
    assert (found.n_iter_, found.converged_) == (2, False)
