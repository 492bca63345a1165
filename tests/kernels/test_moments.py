"""Moments of rows that come batch by batch against those of the rows at once."""

import numpy as np
import pytest

from koncord import theory
from koncord.kernels.moments import moments_by_label


@pytest.mark.parametrize("size", [1, 7, 100])
def test_moments_are_those_of_the_rows_whatever_the_batches(size: int) -> None:
    rng = np.random.default_rng(0)
    X, labels = 1e6 + rng.normal(size=(100, 3)) * [1, 2, 5], rng.integers(0, 3, 100)
    near = np.full((4, 3), 1e6)  # the last label has no rows
    found = moments_by_label(((X[at : at + size], labels[at : at + size]) for at in range(0, 100, size)), near)
    assert found.counts.tolist() == [*np.bincount(labels), 0]
    for label in range(3):
        own = X[labels == label]
        np.testing.assert_allclose(found.means[label], own.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.covariances[label], np.cov(own.T, bias=True), rtol=1e-8, atol=1e-8)
        assert found.anisotropies[label] == pytest.approx(theory.anisotropy(own))
    assert found.anisotropies[3] == 1
    assert np.array_equal(found.means[3], near[3])


def test_rows_without_spread_are_round() -> None:
    found = moments_by_label([(np.ones((5, 2)), np.zeros(5, dtype=np.int64))], np.ones((1, 2)))
    assert found.anisotropies.tolist() == [1.0]
    assert found.variances.tolist() == [0.0]
