"""What every estimator of phase 1 promises, whatever its method."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from koncord import ASM, DPGMM, GMeans, KnownCounts, LabelFreeSearch, XMeans
from koncord.estimate import dpgmm, gmeans, xmeans

ESTIMATORS = [
    ASM(random_state=0),
    ASM("identity", random_state=0),
    XMeans(random_state=0),
    XMeans(**xmeans.PAPER, random_state=0),
    GMeans(random_state=0),
    GMeans(**gmeans.PAPER, random_state=0),
    DPGMM(random_state=0),
    KnownCounts(3, random_state=0),
]
# What a search can choose from, for each kind of estimator; X-means and the oracle have nothing to choose.
GRIDS = {
    "ASM": {"min_mass": [20, 30], "merge_factor": [0.75, 1.5]},
    "XMeans": {},
    "GMeans": {"significance": [1e-4, 0.05]},
    "DPGMM": {"concentration": dpgmm.GRID["concentration"][:2], "weight_threshold": dpgmm.GRID["weight_threshold"]},
    "KnownCounts": {},
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)

FEW = st.floats(-3, 3, width=16)  # so few values that duplicates and constant columns are common
TABLES = st.tuples(st.integers(1, 30), st.integers(1, 4)).flatmap(lambda shape: arrays(float, shape, elements=FEW))


def three_groups():
    rng = np.random.default_rng(7)
    return np.concatenate([rng.normal(center, 1, (40, 3)) for center in ([0, 0, 0], [9, 0, 0], [0, 12, 3])])


def assert_is_an_estimate(fitted, X):
    n, d = X.shape
    k = fitted.n_components_
    assert isinstance(k, int)
    assert 1 <= k <= n
    assert fitted.means_.shape == (k, d)
    assert fitted.variances_.shape == fitted.counts_.shape == fitted.weights_.shape == (k,)
    for learnt in (fitted.means_, fitted.variances_, fitted.weights_):
        assert np.isfinite(learnt).all()
    assert (fitted.variances_ > 0).all()
    assert (fitted.weights_ > 0).all()
    assert fitted.weights_.sum() == pytest.approx(1)
    np.testing.assert_array_equal(fitted.counts_, np.bincount(fitted.labels_, minlength=k))
    assert fitted.counts_.sum() == n
    assert fitted.labels_.shape == (n,)
    assert np.issubdtype(fitted.labels_.dtype, np.integer)
    assert 0 <= fitted.labels_.min() <= fitted.labels_.max() < k
    probability = fitted.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert np.isfinite(fitted.score_samples(X)).all()


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@every_estimator
def test_an_estimate_on_three_groups_is_complete_and_right(estimator):
    X = three_groups()
    fitted = clone(estimator).fit(X)
    assert_is_an_estimate(fitted, X)
    assert fitted.n_components_ == 3
    np.testing.assert_array_equal(np.sort(fitted.counts_), [40, 40, 40])
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)


@every_estimator
def test_fit_and_predict_leave_the_table_as_it_was(estimator):
    X = three_groups()
    before = X.copy()
    X.setflags(write=False)
    clone(estimator).fit(X).predict(X)
    np.testing.assert_array_equal(X, before)


@every_estimator
def test_the_same_seed_gives_the_same_result_to_the_last_bit(estimator):
    X = three_groups() + np.random.default_rng(5).standard_t(2, size=(120, 3))
    first, second = clone(estimator).fit(X), clone(estimator).fit(X)
    assert first.n_components_ > 1
    for name in ("means_", "variances_", "weights_", "counts_", "labels_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@every_estimator
def test_a_single_row_is_one_cluster_at_that_row(estimator):
    X = np.array([[3.0, -2.0, 0.5]])
    fitted = clone(estimator).fit(X)
    assert_is_an_estimate(fitted, X)
    np.testing.assert_array_equal(fitted.means_, X)


@every_estimator
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e140, 1e-140])
def test_identical_rows_are_one_cluster(estimator, value):
    X = np.full((57, 3), value) * [1, 3, 7]
    fitted = clone(estimator).fit(X)
    assert_is_an_estimate(fitted, X)
    assert fitted.n_components_ == 1
    np.testing.assert_allclose(fitted.means_, X[:1], rtol=1e-12)


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
@pytest.mark.parametrize("shape", [(2, 1), (2, 9), (6, 40), (30, 100)])
def test_fewer_rows_than_columns_give_a_complete_estimate(estimator, shape):
    X = np.random.default_rng(1).normal(size=shape)
    X[:, -1] = 4.0
    assert_is_an_estimate(clone(estimator).fit(X), X)


@every_estimator
def test_no_more_clusters_than_distinct_rows_are_found(estimator):
    X = np.repeat([[0.0, 0.0], [5.0, 1.0]], 40, axis=0)
    fitted = clone(estimator).fit(X)
    assert_is_an_estimate(fitted, X)
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
