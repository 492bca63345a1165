from math import e

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import ortho_group

from koncord import theory
from koncord.estimate.merging import merge
from koncord.kernels.splitting import SplitForest
from koncord.types import Components, SphericalMixture

dimensions = st.integers(1, 2000)
lengths = st.floats(0, 1)  # 0 is round, 1 a line


def split_forest(X):
    return SplitForest(X, split_factors=[1.0], is_spherical=True, n_em_iter=15)


def is_split(X):
    return len(split_forest(X).cut(5, 2)[0]) == 2


def clusters(n_draws, n, d, r=1.0):
    """Draws of a Gaussian that is longer along its first axis: anisotropy r."""
    rng = np.random.default_rng([n, d, int(1000 * r)])
    lengths = np.ones(d)
    lengths[0] = np.sqrt(r * (d - 1) / (d - r))
    return (lengths * rng.standard_normal((n, d)) for _ in range(n_draws))


# --- the closed form ---


@settings(deadline=None)
@given(dimensions, lengths)
def test_the_critical_size_is_the_larger_root_of_the_criterion(d, length):
    r = 1 + length * (d - 1)
    c = (d + 2) / (-d * np.log(1 - 2 * r / (np.pi * d)))
    size = theory.critical_size(d, r)
    if c <= e:
        assert size == e
    else:
        assert size == pytest.approx(brentq(lambda n: n - c * np.log(n), e, 1e8, xtol=1e-12), rel=1e-6)


@settings(deadline=None)
@given(dimensions, lengths, lengths)
def test_a_longer_cluster_has_a_smaller_critical_size(d, one, other):
    short, long = 1 + min(one, other) * (d - 1), 1 + max(one, other) * (d - 1)
    assert theory.critical_size(d, long) <= theory.critical_size(d, short)


@settings(deadline=None)
@given(dimensions, dimensions, lengths)
def test_more_columns_raise_the_critical_size(one, other, length):
    few, many = min(one, other), max(one, other)
    r = 1 + length * (few - 1)
    assert theory.critical_size(many, r) >= theory.critical_size(few, r) * (1 - 1e-12)


def test_a_cluster_as_long_as_a_line_is_split_at_every_size():
    assert theory.critical_size(64, 64) == e


def test_numbers_give_floats_and_arrays_broadcast():
    assert type(theory.critical_size(16, 2)) is float
    sizes = theory.critical_size([[8], [16], [64]], [1, 2, 4, 8])
    assert sizes.shape == (3, 4)
    assert sizes[1, 2] == theory.critical_size(16, 4)
    assert theory.merge_onset([1, 4]).tolist() == [0.8, 1.6]
    assert theory.sample_anisotropy([64, 256], 64).tolist() == [4.0, 2.25]


@pytest.mark.parametrize("wrong", [0.5, 9.0, float("nan"), [1.0, 9.0]])
@pytest.mark.parametrize(
    "function",
    [lambda r: theory.critical_size(8, r), lambda r: theory.sample_anisotropy(100, 8, r)],
)
def test_an_anisotropy_that_no_table_has_is_refused_with_a_sentence(function, wrong):
    with pytest.raises(
        ValueError, match=r"'anisotropy' of \w+ must lie between 1 \(round\) and .* 8 .*; got (0.5|9|nan)"
    ):
        function(wrong)


def test_other_wrong_numbers_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="'n_features' of critical_size must be at least 1; got 0"):
        theory.critical_size(0, 1)
    with pytest.raises(ValueError, match="'n' of sample_anisotropy must be at least 1 row; got 0"):
        theory.sample_anisotropy(0, 8)
    with pytest.raises(ValueError, match="'anisotropy' of merge_onset must be at least 1"):
        theory.merge_onset(0.9)


# --- the anisotropy of a table ---


@pytest.mark.parametrize("shape", [(40, 5), (5, 40), (7, 7), (30, 1), (1, 4), (2, 3)])
def test_anisotropy_is_the_leading_share_of_the_covariance(shape):
    X = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1) + 5
    values = np.linalg.eigvalsh(np.atleast_2d(np.cov(X.T, bias=True)))
    wanted = values[-1] / values.mean() if shape[0] > 1 else 1.0
    assert theory.anisotropy(X) == pytest.approx(wanted)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(2, 8), st.floats(-100, 100), st.floats(-40, 40))
def test_anisotropy_ignores_place_rotation_scale_and_order(seed, n, d, shift, exponent):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d)
    rotated = (X + shift) @ ortho_group.rvs(d, random_state=rng) * 10.0**exponent
    assert theory.anisotropy(rng.permutation(rotated)) == pytest.approx(theory.anisotropy(X), rel=1e-6)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 30))
def test_anisotropy_lies_between_one_and_the_number_of_columns(seed, n, d):
    assert 1 <= theory.anisotropy(np.random.default_rng(seed).standard_cauchy((n, d))) <= d


def test_one_row_and_equal_rows_are_round():
    assert theory.anisotropy([[3.0, 4.0, 5.0]]) == 1.0
    assert theory.anisotropy(np.full((7, 3), 0.1)) == 1.0
    assert theory.anisotropy(np.full((3, 7), 0.1)) == 1.0


def test_points_on_a_line_have_the_number_of_columns():
    assert theory.anisotropy(np.outer(np.arange(9.0), [1, 2, 3, 4])) == pytest.approx(4)
    assert theory.anisotropy(np.outer(np.arange(3.0), np.ones(50))) == pytest.approx(50)


def test_anisotropy_leaves_its_input_alone():
    X = np.random.default_rng(0).normal(size=(6, 3))
    before = X.copy()
    theory.anisotropy(X)
    assert (before == X).all()


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ([1.0, 2.0], "must be a table"),
        (np.empty((0, 3)), "at least one row"),
        ([[1.0, np.nan]], "finite numbers; got nan"),
        ([[1e200, 0.0]], "rescale it"),
    ],
)
def test_what_is_no_table_is_refused_with_a_sentence(X, sentence):
    with pytest.raises(ValueError, match=sentence):
        theory.anisotropy(X)


# --- the sample looks longer than the cluster ---


def test_the_expected_sample_anisotropy_of_a_round_cluster_is_johnstones():
    assert theory.sample_anisotropy(250, 64) == pytest.approx((1 + np.sqrt(64 / 250)) ** 2)
    assert theory.sample_anisotropy(10, 1) == pytest.approx((1 + np.sqrt(1 / 10)) ** 2)


@pytest.mark.parametrize(("n", "d", "r"), [(250, 64, 1.0), (500, 64, 1.3), (250, 64, 4.0), (100, 64, 16.0)])
def test_samples_have_the_expected_anisotropy(n, d, r):
    seen = np.mean([theory.anisotropy(X) for X in clusters(40, n, d, r)])
    assert seen == pytest.approx(theory.sample_anisotropy(n, d, r), rel=0.06)


@settings(deadline=None)
@given(st.integers(1, 300), lengths, st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_sample_anisotropy_falls_to_that_of_the_cluster(d, length, one, other):
    r = 1 + length * (d - 1)
    few, many = (theory.sample_anisotropy(n, d, r) for n in sorted((one, other)))
    assert few >= many * (1 - 1e-12)
    assert many >= r * (1 - 1e-12)
    assert theory.sample_anisotropy(1e12, d, r) == pytest.approx(r, rel=1e-4)


def test_the_critical_size_of_a_round_cluster_in_64_columns_is_671_rows():
    assert theory.critical_size(64, 1) == pytest.approx(671, abs=1)


# --- the split stage of ASM itself ---


def test_a_round_cluster_in_64_columns_is_split_between_400_and_520_rows():
    assert np.mean([is_split(X) for X in clusters(100, 400, 64)]) < 0.4
    assert np.mean([is_split(X) for X in clusters(100, 520, 64)]) > 0.6


@pytest.mark.parametrize(("d", "wanted", "within", "n_draws"), [(8, 470, 47, 4), (16, 320, 32, 4), (64, 16, 3, 8)])
def test_one_round_cluster_of_5000_rows_becomes_many_components(d, wanted, within, n_draws):
    counts = [len(split_forest(X).cut(5, 5000)[0]) for X in clusters(n_draws, 5000, d)]
    assert np.mean(counts) == pytest.approx(wanted, abs=within)


@pytest.mark.parametrize("r", [1.0, 4.0])
def test_the_halves_of_a_cluster_merge_from_the_merge_onset_on(r):
    (X,) = clusters(1, 40_000, 64, r)
    halves = [X[X[:, 0] > 0], X[X[:, 0] <= 0]]
    components = Components(
        counts=np.array([len(half) for half in halves]),
        means=np.array([half.mean(axis=0) for half in halves]),
        scatters=np.array([((half - half.mean(axis=0)) ** 2).sum() for half in halves]),
    )
    assert len(merge(SphericalMixture.of_rows(components), 1.05 * theory.merge_onset(r))[0]) == 1
    assert len(merge(SphericalMixture.of_rows(components), 0.95 * theory.merge_onset(r))[0]) == 2
