"""Intervals and tests against plain twins, and the laws they keep."""

import itertools
import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from koncord_reproduction.statistics import (
    NOTHING,
    Interval,
    coefficient_of_variation,
    deviation_of,
    elasticity,
    holm,
    is_equivalent,
    mean_of,
    median_bootstrap,
    moments,
    pearson_of,
    ranks,
    seed_bootstrap,
    seed_draws,
    share_interval,
    slope_of,
    spearman,
    summed,
    t_interval,
    variation_of,
    variation_ratio_of,
    wilcoxon_p,
)

small = st.integers(-5, 5).map(float)
real = st.floats(-100, 100, allow_subnormal=False).map(lambda value: round(value, 6))


# --- intervals ---


@given(st.lists(real, min_size=2, max_size=12), st.sampled_from([0.9, 0.95]))
def test_the_t_interval_is_the_one_of_the_textbook(values, level):
    mean, deviation = plain.fmean(values), plain.stdev(values)
    half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * deviation / math.sqrt(len(values))
    assert t_interval(values, level) == pytest.approx((mean, mean - half, mean + half), abs=1e-9)


def test_one_value_has_no_interval_and_none_has_nothing():
    value, low, high = t_interval([3.0])
    assert value == 3.0
    assert math.isnan(low)
    assert math.isnan(high)
    assert all(map(math.isnan, t_interval([])))
    assert all(map(math.isnan, NOTHING))


def test_equal_values_have_an_interval_without_width():
    assert t_interval([0.25] * 10) == (0.25, 0.25, 0.25)


@given(st.lists(real, min_size=2, max_size=8), real)
def test_a_shift_moves_the_interval_along(values, shift):
    moved = t_interval([value + shift for value in values])
    assert moved == pytest.approx([end + shift for end in t_interval(values)], abs=1e-6)


@pytest.mark.parametrize(("hits", "n"), [(10, 10), (0, 10), (6, 10), (1, 3)])
def test_the_interval_of_a_share_covers_each_tail_with_two_and_a_half_percent(hits, n):
    share, low, high = share_interval(hits, n)
    assert share == hits / n
    assert low == pytest.approx(0 if hits == 0 else stats.beta.ppf(0.025, hits, n - hits + 1))
    assert high == pytest.approx(1 if hits == n else stats.beta.ppf(0.975, hits + 1, n - hits))


# --- tests ---


def enumerated_p(values, alternative):
    """All signs are equally likely: count those with a sum of ranks as extreme."""
    values = [value for value in values if value != 0]
    order = stats.rankdata(np.abs(values))
    observed = sum(rank for rank, value in zip(order, values, strict=True) if value > 0)
    sums = [
        sum(rank for rank, s in zip(order, signs, strict=True) if s)
        for signs in itertools.product((0, 1), repeat=len(values))
    ]
    above = sum(total >= observed - 1e-9 for total in sums) / len(sums)
    below = sum(total <= observed + 1e-9 for total in sums) / len(sums)
    return min(1.0, {"greater": above, "less": below, "two-sided": 2 * min(above, below)}[alternative])


@given(st.lists(small, min_size=1, max_size=8), st.sampled_from(["two-sided", "greater", "less"]))
def test_the_signed_rank_test_counts_signs_with_ties_and_without_zeros(values, alternative):
    assert wilcoxon_p(values, alternative) == pytest.approx(enumerated_p(values, alternative))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("n", [5, 10, 40])
def test_without_ties_it_is_the_exact_test_of_scipy(n, alternative):
    values = np.random.default_rng(n).normal(0.3, size=n)
    assert wilcoxon_p(values, alternative) == pytest.approx(
        stats.wilcoxon(values, alternative=alternative, method="exact").pvalue
    )


def test_for_many_differences_it_is_near_the_normal_approximation():
    values = np.random.default_rng(0).integers(-6, 9, size=80).astype(float)
    assert wilcoxon_p(values) == pytest.approx(stats.wilcoxon(values, method="approx").pvalue, abs=0.003)


def test_differences_that_are_all_zero_say_nothing():
    assert wilcoxon_p([0.0] * 10) == 1.0
    assert wilcoxon_p([0.0] * 10, "greater") == 1.0
    assert math.isnan(wilcoxon_p([]))


def test_ten_seeds_cannot_give_less_than_the_papers_smallest_p():
    assert 8 * wilcoxon_p(range(1, 11), "greater") == pytest.approx(0.008, abs=0.0005)


@given(st.lists(small, min_size=1, max_size=9))
def test_a_test_of_the_opposite_sign_swaps_the_sides(values):
    opposite = [-value for value in values]
    assert wilcoxon_p(values, "greater") == pytest.approx(wilcoxon_p(opposite, "less"))
    assert wilcoxon_p(values) == pytest.approx(wilcoxon_p(opposite))


def plain_holm(p_values):
    ranked = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, largest = [0.0] * len(p_values), 0.0
    for step, at in enumerate(ranked):
        largest = max(largest, (len(p_values) - step) * p_values[at])
        corrected[at] = min(largest, 1.0)
    return corrected


chance = st.floats(0, 1)


@given(st.lists(chance, min_size=1, max_size=8))
def test_holm_is_the_step_down_procedure(p_values):
    assert holm(p_values) == pytest.approx(plain_holm(p_values))


@given(st.lists(chance, min_size=1, max_size=8))
def test_holm_never_lowers_a_p_and_never_exceeds_bonferroni(p_values):
    corrected = holm(p_values)
    assert (corrected >= np.array(p_values) - 1e-15).all()
    assert (corrected <= np.minimum(1, len(p_values) * np.array(p_values)) + 1e-12).all()


def test_an_undefined_p_is_not_a_test():
    assert holm([0.01, math.nan, 0.04])[[0, 2]] == pytest.approx([0.02, 0.04])
    assert math.isnan(holm([0.01, math.nan])[1])
    assert holm([]).shape == (0,)


@given(st.lists(real, min_size=2, max_size=10).filter(lambda values: max(values) - min(values) > 1e-3))
def test_equivalence_is_two_one_sided_t_tests_at_five_percent(values):
    values, margin = np.array(values) / 100, 0.2
    lower = stats.ttest_1samp(values, -margin, alternative="greater").pvalue
    upper = stats.ttest_1samp(values, margin, alternative="less").pvalue
    assert is_equivalent(values, margin) == (max(lower, upper) < 0.05)


def test_a_single_difference_shows_no_equivalence():
    assert not is_equivalent([0.0], 0.2)
    assert not is_equivalent([], 0.2)
    assert is_equivalent([0.1, 0.1, 0.1], 0.2)
    assert not Interval(0.0, -0.1, 0.2).lies_within(0.2)


# --- what is described ---

pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), min_size=3, max_size=20)


@given(pairs)
def test_the_rank_correlation_is_that_of_scipy_or_undefined(points):
    a, b = zip(*points, strict=True)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(spearman(a, b))
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_a_correlation_with_nothing_is_undefined():
    assert math.isnan(spearman([], []))
    assert math.isnan(spearman([1], [2]))


@given(pairs)
def test_the_elasticity_is_the_slope_of_the_logarithms_or_undefined(points):
    counts, sizes = zip(*points, strict=True)
    if len(set(counts)) == 1:
        assert math.isnan(elasticity(sizes, counts))
    else:
        slope, _ = np.polyfit(np.log(counts), np.log(sizes), 1)
        assert elasticity(sizes, counts) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("b", [0.0, 1.0, -0.5])
def test_sizes_that_follow_a_power_of_the_counts_have_it_as_their_elasticity(b):
    counts = np.arange(2, 30)
    assert elasticity(7.0 * counts**b, counts) == pytest.approx(b, abs=1e-9)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20))
def test_the_coefficient_of_variation_is_deviation_over_mean(values):
    assert coefficient_of_variation(values) == pytest.approx(plain.stdev(values) / plain.fmean(values), abs=1e-9)


def test_one_value_has_no_coefficient_of_variation():
    assert math.isnan(coefficient_of_variation([3.0]))


# --- the seed bootstrap ---

seeds_of_clients = st.lists(
    st.lists(st.tuples(st.integers(2, 9), st.integers(50, 900)), min_size=3, max_size=6), min_size=2, max_size=5
)


def drawn_clients(by_seed, weights):
    """The clients of all seeds, each as often as its seed was drawn."""
    return [client for clients, times in zip(by_seed, weights, strict=True) for client in clients * int(times)]


@given(seeds_of_clients, st.integers(0, 5))
@settings(max_examples=25)
def test_the_bootstrap_of_sums_is_the_bootstrap_of_the_clients_themselves(by_seed, random_state):
    n_draws = 40
    weights = seed_draws(len(by_seed), n_draws, random_state)
    for statistic, twin, make in (
        (mean_of, lambda c: plain.fmean(n / k for k, n in c), ratios),
        (deviation_of, lambda c: plain.stdev([n / k for k, n in c]), ratios),
        (variation_of, lambda c: coefficient_of_variation([n / k for k, n in c]), ratios),
        (slope_of, lambda c: elasticity([n for _, n in c], [k for k, _ in c]), logs),
    ):
        sums = summed([make(clients) for clients in by_seed])
        found = seed_bootstrap(sums, statistic, n_draws=n_draws, random_state=random_state)
        draws = [twin(drawn_clients(by_seed, row)) for row in weights]
        draws = [value for value in draws if not math.isnan(value)]
        whole = twin([client for clients in by_seed for client in clients])
        if math.isnan(whole):
            assert math.isnan(found.value)
        else:
            assert found.value == pytest.approx(whole, abs=1e-6)
            assert (found.low, found.high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=1e-5)


def ratios(clients):
    return moments([n / k for k, n in clients])


def logs(clients):
    return moments(np.log([k for k, _ in clients]), np.log([n for _, n in clients]))


def test_the_ratio_of_two_variations_draws_the_same_seeds_for_both():
    rng = np.random.default_rng(0)
    points = [rng.uniform(50, 150, 20) for _ in range(6)]
    sums = summed([moments(each) for each in points])
    found = seed_bootstrap(np.hstack([sums, sums]), variation_ratio_of)
    assert found == pytest.approx((1.0, 1.0, 1.0))


def test_the_bootstrap_covers_a_known_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        sums = summed([moments(rng.normal(10, 2, 30)) for _ in range(10)])
        _, low, high = seed_bootstrap(sums, mean_of, n_draws=400)
        hits += low <= 10 <= high
    assert 170 <= hits <= 198  # percentile intervals of ten seeds are a little short


def test_same_seed_same_interval_and_no_seeds_nothing():
    sums = summed([moments(np.arange(5.0) + at) for at in range(4)])
    assert seed_bootstrap(sums, mean_of) == seed_bootstrap(sums, mean_of)
    assert all(map(math.isnan, seed_bootstrap(np.empty((0, 3)), mean_of)))
    assert math.isnan(seed_bootstrap(sums[:1], mean_of).low)


def test_what_never_varies_has_no_slope_and_no_correlation():
    flat = summed([moments(np.log([2.0, 2.0, 2.0]), np.log([10.0, 20.0, 30.0])) for _ in range(3)])
    assert math.isnan(seed_bootstrap(flat, slope_of).value)
    assert math.isnan(seed_bootstrap(flat, pearson_of).value)


def test_the_median_of_seeds_lies_in_its_interval():
    found = median_bootstrap([0.1, 0.5, 0.2, 0.9, 0.4])
    assert found.value == 0.4
    assert found.low <= 0.4 <= found.high
    assert found.low >= 0.1
    assert found.high <= 0.9
    assert all(map(math.isnan, median_bootstrap([])))
    assert all(map(math.isnan, median_bootstrap([0.1, math.nan])))
    assert math.isnan(median_bootstrap([0.3]).low)


def test_equal_values_share_a_rank():
    assert ranks([3, 1, 3]).tolist() == [2.5, 1.0, 2.5]
