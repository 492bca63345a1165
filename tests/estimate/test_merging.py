import numpy as np
import pytest
from plain_asm import Component, plain_merge

from koncord.estimate.merging import merge
from koncord.types import Components, SphericalMixture


def components_of_rows(X, parts):
    return Components(
        counts=np.array([len(rows) for rows in parts]),
        means=np.array([X[rows].mean(axis=0) for rows in parts]),
        scatters=np.array([((X[rows] - X[rows].mean(axis=0)) ** 2).sum() for rows in parts]),
    )


@pytest.mark.parametrize("merge_factor", [0.3, 0.8, 1.2, 2.0, 5.0])
@pytest.mark.parametrize("seed", range(8))
def test_merging_sums_equals_merging_rows_pair_by_pair(seed, merge_factor):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 3)) + 3 * rng.normal(size=(5, 3))[rng.integers(5, size=200)]
    parts = [rows for rows in np.split(rng.permutation(200), np.sort(rng.choice(200, 20))) if len(rows)]
    sums = components_of_rows(X, parts)
    # A fit differs from the rows that went to it: the soft rows of its neighbors count, too.
    means = sums.means + rng.normal(scale=0.2, size=sums.means.shape)
    variances = sums.variances * rng.uniform(0.7, 1.4, len(parts)) + 1e-3
    merged, group = merge(SphericalMixture(means=means, variances=variances, rows=sums), merge_factor)
    fitted = [Component(*each) for each in zip(parts, means, variances, strict=True)]
    expected = plain_merge(X, fitted, merge_factor)
    assert merged.rows.counts.tolist() == [len(each.rows) for each in expected]
    np.testing.assert_allclose(merged.means, [each.mean for each in expected])
    np.testing.assert_allclose(merged.variances, [each.variance for each in expected])
    np.testing.assert_allclose(merged.rows.means, [X[each.rows].mean(axis=0) for each in expected])
    for part, went_into in zip(parts, group, strict=True):
        assert set(part) <= set(expected[went_into].rows)


def test_the_lowest_pair_merges_first():
    """1 meets both 0 and 2; joined to 0 first, the pair no longer reaches 2."""
    means = np.array([[0.0], [2.0], [4.1]])
    three = Components(counts=np.array([10, 10, 10]), means=means, scatters=np.array([10.0, 10.0, 11.0]))
    merged, group = merge(SphericalMixture.of_rows(three), 1.05)
    assert group.tolist() == [0, 0, 1]
    np.testing.assert_allclose(merged.means, [[1.0], [4.1]])


def test_a_factor_of_zero_never_merges_and_one_component_stays():
    same = Components(counts=np.array([3, 4]), means=np.zeros((2, 2)), scatters=np.array([1.0, 2.0]))
    assert merge(SphericalMixture.of_rows(same), 0)[1].tolist() == [0, 1]
    one = Components(counts=np.array([3]), means=np.zeros((1, 2)), scatters=np.array([1.0]))
    assert merge(SphericalMixture.of_rows(one), 2.0)[1].tolist() == [0]


def test_points_without_spread_merge_only_where_they_coincide():
    points = Components(counts=np.array([3, 4, 5]), means=np.array([[0.0], [1.0], [0.0]]), scatters=np.zeros(3))
    merged, group = merge(SphericalMixture.of_rows(points), 2.0)
    assert group.tolist() == [0, 1, 0]
    assert merged.rows.counts.tolist() == [8, 4]
