"""What every estimator of phase 1 promises, whatever its method."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import parametrize_with_checks

from koncord import ASM, DPGMM, GMeans, KnownCounts, LabelFreeSearch, XMeans
from koncord.checks.estimators import ESTIMATOR_CHECKS, assert_is_an_estimate, check_local_estimator, three_groups
from koncord.checks.failing import sentence_of
from koncord.estimate import dpgmm, gmeans, xmeans
from koncord.estimate.named import estimator_named
from koncord.estimate.registry import ESTIMATORS as REGISTERED

ESTIMATORS = [
    ASM(random_state=0),
    ASM("identity", random_state=0),
    XMeans(random_state=0),
    XMeans(**xmeans.XMEANS_PAPER, random_state=0),
    GMeans(random_state=0),
    GMeans(**gmeans.GMEANS_PAPER, random_state=0),
    DPGMM(random_state=0),
    KnownCounts(3, random_state=0),
]
# What a search can choose from, for each kind of estimator; X-means and the oracle have nothing to choose.
GRIDS = {
    "ASM": {"min_mass": [20, 30], "merge_factor": [0.75, 1.5]},
    "XMeans": {},
    "GMeans": {"significance": [1e-4, 0.05]},
    "DPGMM": {
        "concentration": dpgmm.DPGMM_GRID["concentration"][:2],
        "weight_threshold": dpgmm.DPGMM_GRID["weight_threshold"],
    },
    "KnownCounts": {},
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)

FEW = st.floats(-3, 3, width=16)  # so few values that duplicates and constant columns are common
TABLES = st.tuples(st.integers(1, 30), st.integers(1, 4)).flatmap(lambda shape: arrays(float, shape, elements=FEW))


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@every_estimator
@pytest.mark.parametrize("check", ESTIMATOR_CHECKS, ids=sentence_of)
def test_the_estimator_passes_the_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", REGISTERED.own)
def test_an_estimator_of_the_registry_is_one_of_these(name):
    assert check_local_estimator(estimator_named(name)) is None


@every_estimator
def test_an_estimate_on_three_groups_is_complete_and_right(estimator):
    X = three_groups()
    fitted = clone(estimator).fit(X)
    assert_is_an_estimate(fitted, X)
    assert isinstance(fitted.n_components_, int)
    for name in ("means_", "variances_", "counts_", "weights_", "labels_", "predict_proba", "score_samples"):
        assert hasattr(fitted, name)
    assert fitted.n_components_ == 3
    np.testing.assert_array_equal(np.sort(fitted.counts_), [40, 40, 40])
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)


@every_estimator
def test_one_round_cluster_can_be_the_answer(estimator):
    if isinstance(estimator, KnownCounts):
        estimator = clone(estimator).set_params(counts=1)
    n_found = [
        clone(estimator).fit(np.random.default_rng(seed).normal(size=(60, 2))).n_components_ for seed in range(3)
    ]
    never_one = isinstance(estimator, XMeans) and estimator.min_components == 2
    assert (1 in n_found) is not never_one


@every_estimator
@settings(max_examples=25, deadline=None, derandomize=True)
@given(X=TABLES)
def test_duplicates_and_constant_columns_give_a_complete_estimate(estimator, X):
    assert_is_an_estimate(clone(estimator).fit(X), X)


@every_estimator
def test_no_more_clusters_than_distinct_rows_are_found(estimator):
    X = np.repeat([[0.0, 0.0], [5.0, 1.0]], 40, axis=0)
    fitted = clone(estimator).fit(X)
    assert fitted.n_components_ == 2


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if "identity" not in repr(e)], ids=repr)
@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e6), (1e-3, -50.0)])
def test_the_units_and_the_origin_of_the_table_do_not_matter(estimator, scale, shift):
    """But for ASM-I, whose unit variance is in the units of the table."""
    X = three_groups()
    plain, moved = clone(estimator).fit(X), clone(estimator).fit(scale * X + shift)
    np.testing.assert_array_equal(plain.labels_, moved.labels_)
    np.testing.assert_allclose(moved.means_, scale * plain.means_ + shift, rtol=1e-9, atol=1e-7 * scale)
    np.testing.assert_allclose(moved.variances_, scale**2 * plain.variances_, rtol=1e-5)


@every_estimator
def test_values_whose_squares_overflow_are_refused_with_the_column(estimator):
    X = np.ones((10, 2))
    X[3, 1] = 1e200
    with pytest.raises(ValueError, match=f"Column 1 of X for {type(estimator).__name__} holds values up to 1e\\+200"):
        clone(estimator).fit(X)


@every_estimator
def test_a_search_can_choose_its_parameters(estimator):
    grid = GRIDS[type(estimator).__name__]
    search = LabelFreeSearch(estimator, grid, random_state=0).fit(three_groups())
    assert search.n_components_ == 3
    assert len(search.results_) == np.prod([len(values) for values in grid.values()])
    assert search.best_estimator_.get_params().items() >= search.best_params_.items()


def test_a_check_that_fails_is_named_in_a_sentence():
    with pytest.raises(AssertionError, match="KMeans fails the check 'a single row is one component at that row'"):
        check_local_estimator(KMeans(3))


def test_what_is_no_estimator_is_refused_before_any_check():
    with pytest.raises(TypeError, match="'estimator' of check_local_estimator must be an estimator"):
        check_local_estimator("asm")
