"""Other readings of ASM-S."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from koncord import ASM
from koncord.estimate.asm import ASM_GRID
from koncord.estimate.merging import merge
from koncord.kernels.splitting import mixture_of
from koncord.types import Components, SphericalMixture
from koncord_reproduction.readings import (
    READINGS,
    ReadASM,
    ReadForest,
    Reading,
    hold_out,
    lapack_axis,
    leaves_of,
    merge_closest,
    pooled_hold_out,
    reading_of,
)


@pytest.fixture
def table():
    rng = np.random.default_rng(2)
    return np.concatenate([rng.normal(center, 1, (120, 3)) for center in (0, 7, 14)])


def test_the_reading_of_koncord_is_its_own_asm_to_the_letter(table):
    wanted = ASM(min_mass=ASM_GRID["min_mass"], random_state=4).fit(table)
    found = ReadASM(random_state=4).fit(table)
    assert found.config_ == wanted.config_
    np.testing.assert_array_equal(found.means_, wanted.means_)


@pytest.mark.parametrize("name", READINGS)
def test_every_reading_finds_three_separated_clusters_twice_the_same(table, name):
    given = {"min_mass": 50, "split_factor": (0.5, 1.0), "merge_factor": 2.0}
    one, other = (ReadASM(READINGS[name], **given, seed=3, random_state=4).fit(table) for _ in range(2))
    assert one.n_components_ == 3
    np.testing.assert_array_equal(one.means_, other.means_)


def test_the_first_split_by_scikit_learn_is_a_mixture_that_it_fits(table):
    rows = np.arange(len(table))
    forest = ReadForest(table, rows, split_factors=[0.5], reading=READINGS["sklearn"], seed=3)
    forest._test(forest.roots, 20)
    axis = lapack_axis(table)
    axis *= 0.5 * np.sign(axis[np.abs(axis).argmax()])
    means = np.array([table.mean(axis=0) + axis, table.mean(axis=0) - axis])
    wanted = GaussianMixture(2, covariance_type="spherical", means_init=means, max_iter=15, random_state=3).fit(table)
    children = forest.roots[0].children
    assert children is not None
    np.testing.assert_allclose([child.fitted_mean for child in children], wanted.means_, atol=1e-9)
    np.testing.assert_allclose([child.fitted_variance for child in children], wanted.covariances_, atol=1e-9)


def test_a_reading_with_a_seed_of_its_own_starts_from_it_in_every_run():
    table = np.random.default_rng(2).normal(size=(300, 3))
    axis = 0.5 * lapack_axis(table)
    means = np.array([table.mean(axis=0) + axis, table.mean(axis=0) - axis])
    fits = {
        seed: GaussianMixture(2, covariance_type="spherical", means_init=means, max_iter=15, random_state=seed).fit(
            table
        )
        for seed in (3, 42)
    }
    assert abs(fits[3].means_ - fits[42].means_).max() > 0.01
    for name, used in (("sklearn-42", 42), ("sklearn", 3)):
        reading = replace(READINGS[name], sign="lapack")
        forest = ReadForest(table, np.arange(len(table)), split_factors=[0.5], reading=reading, seed=3)
        forest._test(forest.roots, 20)
        children = forest.roots[0].children
        assert children is not None
        np.testing.assert_allclose([child.fitted_mean for child in children], fits[used].means_, atol=1e-9)


def test_a_reversed_axis_swaps_the_first_children(table):
    config = {"split_factor": 0.5, "min_mass": 100}
    two = table[:240]
    one, other = (
        leaves_of(reading, two, np.arange(len(two)), config, 0) for reading in (Reading(), READINGS["reversed"])
    )
    assert len(one) == len(other) == 2
    np.testing.assert_allclose(one[0].mean, other[1].mean)


def test_the_closest_pair_merges_first():
    """In a row of three the first two may merge, and the last two are closer."""
    means = np.array([[0.0], [2.9], [5.7]])
    rows = Components(counts=np.array([50, 50, 50]), means=means, scatters=np.full(3, 50.0))
    mixture = SphericalMixture(means=means, variances=np.ones(3), rows=rows)
    np.testing.assert_allclose(merge(mixture, 1.5)[0].means, [[1.45], [5.7]])
    np.testing.assert_allclose(merge_closest(mixture, 1.5).means, [[0.0], [4.3]])
    assert len(merge_closest(mixture, 0)) == 3


def test_closest_and_first_are_the_same_where_one_pair_alone_may_merge(table):
    leaves = leaves_of(Reading(), table, np.arange(len(table)), {"split_factor": 0.5, "min_mass": 50}, 0)
    mixture = mixture_of(leaves)
    np.testing.assert_allclose(merge_closest(mixture, 0.1).means, merge(mixture, 0.1)[0].means)


@pytest.mark.parametrize("name", ["drawn", "lapack"])
def test_a_hold_out_is_a_fifth_and_no_row_is_in_both(name):
    reading = reading_of(f"asm-s@{name}")
    for n, (fit_rows, held_rows) in {
        100: hold_out(reading, 100, 7, np.random.default_rng(7)),
        50: pooled_hold_out(reading, 100, 7, most=50),
        60: pooled_hold_out(reading, 60, 7, most=99),
    }.items():
        assert (len(fit_rows), len(held_rows)) == (n - n // 5, n // 5)
        assert len(np.unique([*fit_rows, *held_rows])) == n


def test_a_pooled_hold_out_is_the_head_of_a_permutation():
    fit_rows, held_rows = pooled_hold_out(Reading(), 60, 7, most=99)
    np.testing.assert_array_equal([*held_rows, *fit_rows], np.random.RandomState(7).permutation(60))
