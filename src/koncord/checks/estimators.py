"""What every local estimator keeps to: the checks behind `koncord.check_local_estimator`.

A check is a function of an estimator whose name is the sentence it checks. It reads the estimator as phase 1 does
(`koncord.estimate.base`): the number of components and their means. What else a fitted estimator says of them, it must
say consistently.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from koncord._random import seeded
from koncord.checks.failing import check_clone, run_checks
from koncord.estimate.base import adapted, local_estimate
from koncord.types import FloatArray

BLOB_CENTERS = ([0, 0, 0], [9, 0, 0], [0, 12, 3])
BLOB_ROWS = 40

EstimatorCheck = Callable[[Any], None]


def check_local_estimator(estimator: Any) -> None:
    """Run every check that koncord holds its own estimators to.

    Parameters
    ----------
    estimator : LocalEstimator
        An instance: one of koncord's, a clusterer or mixture of scikit-learn, or one's own.

    Raises
    ------
    AssertionError
        The sentence names the check that failed.

    Examples
    --------
    >>> import koncord
    >>> koncord.check_local_estimator(koncord.XMeans())
    """
    adapted(estimator, owner="check_local_estimator")
    run_checks(ESTIMATOR_CHECKS, estimator)


def it_is_cloned_with_the_same_parameters(estimator: Any) -> None:
    check_clone(estimator)


def three_groups_give_components_near_them(estimator: Any) -> None:
    X = three_groups()
    estimate = local_estimate(fitted_on(X, estimator), X)
    distances = np.linalg.norm(np.array(BLOB_CENTERS)[:, None] - estimate.means, axis=2)
    assert estimate.n_components > 1, "it finds one component in three separated groups"
    assert distances.min() < 1, "no component is near a group"


def what_it_says_of_its_components_is_consistent(estimator: Any) -> None:
    X = three_groups()
    assert_is_an_estimate(fitted_on(X, estimator), X)


def fit_and_predict_leave_the_table_as_it_was(estimator: Any) -> None:
    X = three_groups()
    before = X.copy()
    X.setflags(write=False)
    fitted = fitted_on(X, estimator)
    if hasattr(fitted, "predict"):
        fitted.predict(X)
    np.testing.assert_array_equal(X, before)


def the_same_seed_gives_the_same_result_to_the_last_bit(estimator: Any) -> None:
    X = three_groups() + np.random.default_rng(5).standard_t(2, size=(3 * BLOB_ROWS, 3))
    first, second = fitted_on(X, estimator), fitted_on(X, estimator)
    one, two = local_estimate(first, X), local_estimate(second, X)
    assert one.n_components == two.n_components
    np.testing.assert_array_equal(one.means, two.means)
    for name in ("variances_", "weights_", "counts_", "labels_"):
        if hasattr(first, name):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def a_single_row_is_one_component_at_that_row(estimator: Any) -> None:
    X = np.array([[3.0, -2.0, 0.5]])
    fitted = fitted_on(X, estimator)
    assert_is_an_estimate(fitted, X)
    np.testing.assert_array_equal(local_estimate(fitted, X).means, X)


def identical_rows_are_one_component(estimator: Any) -> None:
    for value in (0.0, 0.1, -1e9, 1e140, 1e-140):
        X = np.full((57, 3), value) * [1, 3, 7]
        fitted = fitted_on(X, estimator)
        assert_is_an_estimate(fitted, X)
        estimate = local_estimate(fitted, X)
        assert estimate.n_components == 1, f"{estimate.n_components} components in 57 times the same row"
        np.testing.assert_allclose(estimate.means, X[:1], rtol=1e-12)


def fewer_rows_than_columns_give_an_estimate(estimator: Any) -> None:
    for shape in ((2, 1), (2, 9), (6, 40), (30, 100)):
        X = np.random.default_rng(1).normal(size=shape)
        X[:, -1] = 4.0
        assert_is_an_estimate(fitted_on(X, estimator), X)


def there_are_no_more_components_than_distinct_rows(estimator: Any) -> None:
    X = np.repeat([[0.0, 0.0], [5.0, 1.0]], BLOB_ROWS, axis=0)
    fitted = fitted_on(X, estimator)
    assert_is_an_estimate(fitted, X)
    assert local_estimate(fitted, X).n_components <= 2


ESTIMATOR_CHECKS: tuple[EstimatorCheck, ...] = (
    it_is_cloned_with_the_same_parameters,
    three_groups_give_components_near_them,
    what_it_says_of_its_components_is_consistent,
    fit_and_predict_leave_the_table_as_it_was,
    the_same_seed_gives_the_same_result_to_the_last_bit,
    a_single_row_is_one_component_at_that_row,
    identical_rows_are_one_component,
    fewer_rows_than_columns_give_an_estimate,
    there_are_no_more_components_than_distinct_rows,
)


def three_groups() -> FloatArray:
    rng = np.random.default_rng(7)
    return np.concatenate([rng.normal(center, 1, (BLOB_ROWS, 3)) for center in BLOB_CENTERS])


def fitted_on(X: FloatArray, estimator: Any) -> Any:
    """A clone fitted on X, with a seed if it takes one and has none."""
    return seeded(clone(estimator), 0).fit(X)


def assert_is_an_estimate(fitted: Any, X: FloatArray) -> None:
    """What a fitted estimator says of its components is finite and of one shape, as far as it says it."""
    n = len(X)
    k = local_estimate(fitted, X).n_components  # checks the means
    assert 1 <= k <= n, f"{k} components in {n} rows"
    own_count = hasattr(fitted, "n_components_")  # else components without rows may have a weight, and do not count
    for name in ("variances_", "weights_"):
        if own_count and hasattr(fitted, name):
            values = getattr(fitted, name)
            assert values.shape == (k,), f"{name!r} has the shape {values.shape} for {k} components"
            assert np.isfinite(values).all(), f"{name!r} is not finite"
            assert (values > 0).all(), f"{name!r} is not positive"
    if hasattr(fitted, "weights_"):
        np.testing.assert_allclose(fitted.weights_.sum(), 1)
    if hasattr(fitted, "labels_"):
        assert fitted.labels_.shape == (n,), "'labels_' has not one label a row"
        assert np.issubdtype(fitted.labels_.dtype, np.integer), "'labels_' are no integers"
    if hasattr(fitted, "counts_"):
        np.testing.assert_array_equal(fitted.counts_, np.bincount(fitted.labels_, minlength=k))
    if hasattr(fitted, "predict_proba"):
        np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1)
    if hasattr(fitted, "score_samples"):
        assert np.isfinite(fitted.score_samples(X)).all(), "'score_samples' is not finite"
