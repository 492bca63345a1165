"""The analysis of when ASM splits one cluster, with its draws and cuts, and the page on it."""

import csv
import doctest
import re
from math import e
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord_reproduction import theory

PAGE = Path(__file__).parents[1] / "docs" / "theory.md"
SUMMARY = PAGE.parent / "figures" / "summary.csv"

dimensions = st.integers(1, 2000)
lengths = st.floats(0, 1)  # 0 is round, 1 a line


def clusters(n_draws, n, d, r=1.0):
    rng = np.random.default_rng([n, d, int(1000 * r)])
    return (theory.draw_cluster(n, d, r, rng) for _ in range(n_draws))


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
def test_a_longer_cluster_gains_more_and_is_split_earlier(d, one, other):
    short, long = 1 + min(one, other) * (d - 1), 1 + max(one, other) * (d - 1)
    assert theory.split_gain(long, d) >= theory.split_gain(short, d)
    assert theory.sample_critical_size(d, long) <= theory.critical_size(d, short)


def test_a_cluster_as_long_as_a_line_is_split_at_every_size():
    assert theory.predicts_split([1, 2, 3, 4, 5, 10, 100], 64, 64).tolist() == [False, *[True] * 6]


def test_one_row_is_never_split():
    assert theory.predicts_split(1, 64, 64) is False


def test_the_gain_is_two_r_over_pi_in_many_columns():
    assert theory.split_gain(3.0, 10**7) == pytest.approx(6 / np.pi, rel=1e-6)
    assert theory.split_gain(1.0, 8) == pytest.approx(-8 * np.log(1 - 2 / (8 * np.pi)))


def test_arrays_broadcast():
    assert theory.sample_critical_size([[8], [64]], [1, 2])[1, 1] == pytest.approx(theory.sample_critical_size(64, 2))
    assert theory.split_gain([1, 2], 8)[1] == theory.split_gain(2, 8)


@pytest.mark.parametrize("wrong", [0.5, 9.0, float("nan"), [1.0, 9.0]])
@pytest.mark.parametrize(
    "function",
    [
        lambda r: theory.split_gain(r, 8),
        lambda r: theory.sample_critical_size(8, r),
        lambda r: theory.predicts_split(100, 8, r),
    ],
)
def test_an_anisotropy_that_no_table_has_is_refused_with_a_sentence(function, wrong):
    with pytest.raises(
        ValueError, match=r"'anisotropy' of \w+ must lie between 1 \(round\) and .* 8 .*; got (0.5|9|nan)"
    ):
        function(wrong)


def test_a_line_is_no_gaussian_of_full_rank():
    with pytest.raises(ValueError, match=r"'anisotropy' of draw_cluster must be at least 1 and below .* 8; got 8"):
        theory.draw_cluster(5, 8, 8.0, np.random.default_rng(0))


def test_draws_have_the_anisotropy_asked_for():
    for d, r in ((8, 1.0), (8, 4.0), (16, 2.0)):
        (X,) = clusters(1, 60_000, d, r)
        assert theory.anisotropy(X) == pytest.approx(r, rel=0.03)


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


def test_the_hard_split_leaves_its_input_alone():
    X = np.random.default_rng(0).normal(size=(6, 3))
    before = X.copy()
    theory.hard_split_improves(X)
    assert (before == X).all()


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
