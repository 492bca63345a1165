import csv
import doctest
import re
from math import e
from pathlib import Path

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

PAGE = Path(__file__).parents[1] / "docs" / "theory.md"
SUMMARY = PAGE.parent / "figures" / "summary.csv"

dimensions = st.integers(1, 2000)
lengths = st.floats(0, 1)  # 0 is round, 1 a line


def split_forest(X):
    return SplitForest(X, split_factors=[1.0], is_spherical=True, n_em_iter=15)


def is_split(X):
    return len(split_forest(X).cut(5, 2)[0]) == 2


def clusters(n_draws, n, d, r=1.0):
    rng = np.random.default_rng([n, d, int(1000 * r)])
    return (theory.draw_cluster(n, d, r, rng) for _ in range(n_draws))


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
@given(dimensions, lengths)
def test_sizes_above_the_critical_size_are_split_and_those_below_are_not(d, length):
    r = 1 + length * (d - 1)
    size = theory.critical_size(d, r)
    assert theory.predicts_split(size * 1.01, d, r)
    assert theory.predicts_split(size * 10, d, r)
    if size > 3:  # below that every size meets the criterion, or the two roots are too close to fall between
        assert not theory.predicts_split(max(size * 0.99, e), d, r)


@settings(deadline=None)
@given(dimensions, lengths, lengths)
def test_a_longer_cluster_has_a_smaller_critical_size(d, one, other):
    short, long = 1 + min(one, other) * (d - 1), 1 + max(one, other) * (d - 1)
    assert theory.split_gain(long, d) >= theory.split_gain(short, d)
    assert theory.critical_size(d, long) <= theory.critical_size(d, short)
    assert theory.sample_critical_size(d, long) <= theory.critical_size(d, short)


@settings(deadline=None)
@given(dimensions, dimensions, lengths)
def test_more_columns_raise_the_critical_size(one, other, length):
    few, many = min(one, other), max(one, other)
    r = 1 + length * (few - 1)
    assert theory.critical_size(many, r) >= theory.critical_size(few, r) * (1 - 1e-12)


def test_a_cluster_as_long_as_a_line_is_split_at_every_size():
    assert theory.critical_size(64, 64) == e
    assert theory.predicts_split([1, 2, 3, 4, 5, 10, 100], 64, 64).tolist() == [False, *[True] * 6]


def test_one_row_is_never_split():
    assert theory.predicts_split(1, 64, 64) is False


def test_the_gain_is_two_r_over_pi_in_many_columns():
    assert theory.split_gain(3.0, 10**7) == pytest.approx(6 / np.pi, rel=1e-6)
    assert theory.split_gain(1.0, 8) == pytest.approx(-8 * np.log(1 - 2 / (8 * np.pi)))


def test_numbers_give_floats_and_arrays_broadcast():
    assert type(theory.critical_size(16, 2)) is float
    sizes = theory.critical_size([[8], [16], [64]], [1, 2, 4, 8])
    assert sizes.shape == (3, 4)
    assert sizes[1, 2] == theory.critical_size(16, 4)
    assert theory.sample_critical_size([[8], [64]], [1, 2])[1, 1] == pytest.approx(theory.sample_critical_size(64, 2))
    assert theory.split_gain([1, 2], 8)[1] == theory.split_gain(2, 8)
    assert theory.merge_onset([1, 4]).tolist() == [0.8, 1.6]
    assert theory.sample_anisotropy([64, 256], 64).tolist() == [4.0, 2.25]


@pytest.mark.parametrize("wrong", [0.5, 9.0, float("nan"), [1.0, 9.0]])
@pytest.mark.parametrize(
    "function",
    [
        lambda r: theory.split_gain(r, 8),
        lambda r: theory.critical_size(8, r),
        lambda r: theory.sample_critical_size(8, r),
        lambda r: theory.predicts_split(100, 8, r),
        lambda r: theory.sample_anisotropy(100, 8, r),
    ],
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
    theory.hard_split_improves(X)
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


def test_a_line_is_no_gaussian_of_full_rank():
    with pytest.raises(ValueError, match=r"'anisotropy' of draw_cluster must be at least 1 and below .* 8; got 8"):
        theory.draw_cluster(5, 8, 8.0, np.random.default_rng(0))


def test_draws_have_the_anisotropy_asked_for():
    for d, r in ((8, 1.0), (8, 4.0), (16, 2.0)):
        (X,) = clusters(1, 60_000, d, r)
        assert theory.anisotropy(X) == pytest.approx(r, rel=0.03)


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


def test_a_round_cluster_in_64_columns_is_split_from_250_rows_not_671():
    assert theory.critical_size(64, 1) == pytest.approx(671, abs=1)
    assert theory.sample_critical_size(64) == pytest.approx(250, abs=2)


@settings(deadline=None)
@given(st.integers(1, 300), lengths)
def test_the_sample_critical_size_is_the_largest_self_consistent_one(d, length):
    r = 1 + length * (d - 1)
    size, most = theory.sample_critical_size(d, r), theory.critical_size(d, r)
    assert size <= most * (1 + 1e-12)
    n = np.linspace(size * 1.001, most * 1.1, 50)
    n = n[n > size]
    assert theory.predicts_split(n, d, np.minimum(theory.sample_anisotropy(n, d, r), d)).all()


# --- the idealised split ---


def hard_split_in_plain_words(X):
    n, d = X.shape
    axis = np.linalg.svd(X - X.mean(axis=0))[2][0]
    is_right = (X - X.mean(axis=0)) @ axis > 0
    variances = [part.var(axis=0).mean() for part in (X, X[is_right], X[~is_right])]
    share = is_right.mean()
    if min(variances) < 1e-20:
        return True
    return n * d * np.log(variances[0] / (variances[1] ** share * variances[2] ** (1 - share))) > (d + 2) * np.log(n)


@pytest.mark.parametrize("d", [1, 2, 8, 40])
def test_the_hard_split_is_the_cut_through_the_mean(d):
    for n in (2, 3, 6, 10, 20, 50, 200):
        for X in clusters(8, n, d):
            assert theory.hard_split_improves(X + 7) == hard_split_in_plain_words(X)


def test_rows_without_spread_are_not_cut():
    assert theory.hard_split_improves([[1.0, 2.0]]) is False
    assert theory.hard_split_improves(np.full((9, 2), 0.1)) is False


@pytest.mark.parametrize("d", [8, 16, 64])
def test_the_closed_form_foresees_the_hard_split_better_with_the_sample_anisotropy(d):
    rows = []
    for n in np.geomspace(6, 5000, 18).round().astype(int):
        for r in np.geomspace(1, d / 2, 12):
            n_draws = 6 if n < 700 else 1
            for X in clusters(n_draws, n, d, r):
                hard = theory.hard_split_improves(X)
                by_sample = theory.predicts_split(n, d, theory.anisotropy(X)) == hard
                rows.append((n, by_sample, theory.predicts_split(n, d, r) == hard, 1 / n_draws))
    n, by_sample, by_population, weight = np.array(rows).T
    may_split = weight * (n >= 10)  # twice the minimum mass of the paper's experiment
    assert np.average(by_sample, weights=may_split) >= 0.93
    assert np.average(by_sample, weights=may_split) > np.average(by_population, weights=may_split) + 0.02
    assert np.average(by_sample, weights=weight) >= 0.87  # below that size the factor 2 / pi is too small
    assert np.average(by_sample, weights=weight) > np.average(by_population, weights=weight) + 0.02


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


def test_the_observed_onset_is_the_last_crossing_of_one_half():
    sizes = [10, 20, 40, 80]
    assert theory.observed_onset(sizes, [0.0, 0.8, 0.2, 0.8]) == pytest.approx(np.sqrt(40 * 80))
    assert theory.observed_onset(sizes, [0.0, 0.25, 0.75, 1.0]) == pytest.approx(np.sqrt(20 * 40))
    assert theory.observed_onset(sizes, [0.5, 0.9, 0.9, 0.9]) == 10
    assert np.isnan(theory.observed_onset(sizes, [0.5, 0.9, 0.9, 0.4]))


# --- the page ---


def test_the_examples_of_the_page_run():
    text = re.sub(r"^```.*$", "", PAGE.read_text(), flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert doctest.DocTestRunner().run(examples) == (0, 7)


def test_the_table_of_critical_sizes_on_the_page_is_right():
    def cell(d, r):
        return "-" if r > d else shown(theory.critical_size(d, r))

    def shown(size):
        return "any" if size == e else str(round(size))

    lines = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(lines) == 6
    for columns, cells in lines:
        d = int(columns)
        assert cells.split(" | ") == [*(cell(d, r) for r in (1, 2, 4, 8)), shown(theory.sample_critical_size(d))]


def test_the_page_tells_the_numbers_that_the_script_wrote():
    page = PAGE.read_text()
    with SUMMARY.open() as file:
        for row in csv.DictReader(file):
            assert f"| {row['what']} | {row['paper']} | {row['ours']} |" in page
