"""Rows with gaps are judged by what they have: a plain twin, laws, and clusters that one column alone tells apart."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from koncord.kernels.gaussians import Gaussians


def mixture(k=4, d=5, q=5, seed=0):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0][:q] * rng.uniform(0.5, 2, (q, 1))
    roots = rng.normal(size=(k, q, q))
    return Gaussians(
        centers=rng.normal(size=(k, d)),
        axes=axes,
        covariances=roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(q),
        weights=rng.dirichlet(np.ones(k)),
    )


def with_gaps(n, d, share=0.4, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return np.where(rng.random((n, d)) < share, np.nan, X)


@pytest.mark.parametrize(("d", "q"), [(5, 5), (5, 3), (2, 2)])
def test_distances_and_densities_of_rows_with_gaps_are_those_of_the_marginal_gaussians(d, q):
    shapes, X = mixture(d=d, q=q), with_gaps(60, d)
    squared, joint = shapes.judged(X)
    inverse = np.linalg.pinv(shapes.axes)
    in_axes = [inverse @ own @ inverse.T for own in shapes.covariances]
    variance = sum(w * np.trace(own) for w, own in zip(shapes.weights, in_axes, strict=True)) / q
    beyond = variance * (np.eye(d) - inverse @ shapes.axes)
    for row, own_squared, own_joint in zip(X, squared, joint, strict=True):
        has = ~np.isnan(row)
        if has.all():
            continue
        for at, (weight, center, covariance) in enumerate(zip(shapes.weights, shapes.centers, in_axes, strict=True)):
            density, distance = 0.0, 0.0
            if has.any():
                marginal = (covariance + beyond)[np.ix_(has, has)]
                density = multivariate_normal(center[has], marginal).logpdf(row[has])
                distance = (row - center)[has] @ np.linalg.solve(marginal, (row - center)[has])
            assert own_joint[at] == pytest.approx(np.log(weight) + density)
            assert own_squared[at] == pytest.approx(distance)


def test_rows_without_gaps_are_not_changed_by_others_that_have_some():
    shapes, X = mixture(), with_gaps(50, 5, share=0.1)
    whole = ~np.isnan(X).any(axis=1)
    assert 0 < whole.sum() < len(X)
    np.testing.assert_array_equal(shapes.judged(X).joint[whole], shapes.judged(X[whole]).joint)
    np.testing.assert_array_equal(shapes.assign(X)[whole], shapes.assign(X[whole]))


def test_a_row_without_any_value_is_of_the_largest_cluster():
    shapes = mixture()
    assert shapes.assign(np.full((1, 5), np.nan)).tolist() == [int(shapes.weights.argmax())]


def test_distances_to_the_own_cluster_are_those_to_all_at_the_label():
    shapes, X = mixture(), with_gaps(50, 5)
    labels = shapes.assign(X)
    expected = shapes.squared_distances(X)[np.arange(len(X)), labels]
    np.testing.assert_allclose(shapes.own_squared_distances(X, labels), expected)


def test_a_gap_in_the_column_that_tells_two_clusters_apart_leaves_the_larger_one():
    for large in (0, 1):
        shapes = Gaussians(
            centers=np.array([[0.0, 0.0], [0.0, 6.0]]),
            axes=np.eye(2),
            covariances=np.array([np.eye(2)] * 2),
            weights=np.where(np.arange(2) == large, 0.9, 0.1),
        )
        assert shapes.assign(np.array([[0.1, np.nan], [-0.2, np.nan], [0.0, 6.0]])).tolist() == [large, large, 1]


def test_correlated_columns_tell_the_cluster_of_a_row_with_a_gap():
    """Two long clusters side by side: the difference of two columns tells them apart, neither column does alone."""
    rng = np.random.default_rng(0)
    covariance = np.array([[4.0, 3.9, 0], [3.9, 4.0, 0], [0, 0, 1]])
    centers = np.array([[1.0, -1.0, 0], [-1.0, 1.0, 0]])
    shapes = Gaussians(centers=centers, axes=np.eye(3), covariances=np.array([covariance] * 2), weights=np.full(2, 0.5))
    y = np.repeat([0, 1], 200)
    X = centers[y] + rng.multivariate_normal(np.zeros(3), covariance, 400)
    X[:, 2] = np.nan
    assert (shapes.assign(X) == y).mean() > 0.99
