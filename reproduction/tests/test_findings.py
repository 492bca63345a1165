"""From rows to numbers with the paper's names."""

import math

import numpy as np
import pytest
from scipy import stats

from koncord_reproduction import synthetic, theory
from koncord_reproduction.findings import Findings, component_counts, halving, local_mean, mark, onsets, robustness
from koncord_reproduction.paper import Key, numbers

from .fabricated import SEEDS, any_rows, row


def federated(regime, ks, method="asm-s", dataset="abalone", **more):
    values = {"local_counts": [3, 4], "true_counts": [4, 4], "sizes": [50, 60], "phase1_ms": 10.0, **more}
    return [
        row(f"federated-{regime}", dataset, method, seed, ari=0.1 * at, k=k, **values)
        for at, (seed, k) in enumerate(zip(SEEDS, ks, strict=False))
    ]


def test_a_cell_is_the_mean_over_seeds_and_its_error_the_mean_of_errors():
    found = Findings(federated("a", [6, 12, 8]))
    ari = found.estimates[Key("federated-a", "abalone", "asm-s", "ari")]
    assert (ari.value, ari.n) == (pytest.approx(0.1), 3)
    assert ari.high - ari.value == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3))
    assert found.value("federated-a", "abalone", "asm-s", "k") == pytest.approx(26 / 3)
    assert found.value("federated-a", "abalone", "asm-s", "k_error") == pytest.approx((2 + 4 + 0) / 3)


def test_what_was_not_run_has_no_number():
    found = Findings([])
    assert math.isnan(found.value("pooled", "mnist", "asm-s", "ari"))
    assert {key.table for key in found.estimates} == {"synthetic"}  # predictions need no run


def test_runs_that_did_not_end_are_counted_and_not_averaged():
    rows = federated("a", [6, 8])
    rows += [row("federated-a", "abalone", "asm-s", 50, status="timed out", reason="3600 s")]
    rows += [row("federated-a", "abalone", "asm-s", 51, status="failed", reason="no memory")]
    runs = Findings(rows).runs("federated-a", "abalone", "asm-s")
    assert (len(runs.done), runs.n_timed_out, runs.n_failed, runs.n) == (2, 1, 1, 4)
    assert Findings(rows).value("federated-a", "abalone", "asm-s", "k") == 7


def test_of_a_run_with_two_rows_the_last_counts():
    rows = [row("pooled", "mnist", "kmeans", 42, status="failed"), row("pooled", "mnist", "kmeans", 42, ari=0.5, k=10)]
    assert Findings(rows).value("pooled", "mnist", "kmeans", "ari") == 0.5
    assert Findings(rows[::-1]).runs("pooled", "mnist", "kmeans").n_failed == 1


def test_the_order_of_rows_does_not_matter():
    rows = any_rows(seeds=SEEDS[:3])
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]
    assert same(Findings(rows).estimates, Findings(shuffled).estimates)


def same(one, other):
    """NaN is the same as NaN."""
    return {key: str(value) for key, value in one.items()} == {key: str(value) for key, value in other.items()}


def test_a_full_plan_gives_a_number_for_every_number_of_the_paper():
    found = Findings(any_rows(seeds=SEEDS[:2])).estimates
    given = {"k_true", "n"}
    absent = [
        key
        for key, number in numbers().items()
        if key not in found and key.quantity not in given and key.method != "published" and key.table != "datasets"
    ]
    assert absent == []


def test_the_count_halves_between_two_merge_factors():
    assert halving(np.array([0.0, 1.0, 2.0, 3.0]), np.array([16.0, 15.0, 8.0, 2.0])) == (1.0, 2.0)
    assert halving(np.array([0.0, 3.0]), np.array([16.0, 8.1])) == (3.0, math.inf)


def test_a_mark_needs_significance_and_has_the_sign_of_the_change():
    rise = np.linspace(0.01, 0.1, 10)
    assert (mark(rise), mark(-rise), mark(np.zeros(10))) == (1, -1, 0)
    assert mark(np.array([0.1, -0.1] * 5)) == 0


def test_the_change_between_regimes_is_paired_by_seed():
    rows = federated("a", [6, 10, 8, 8]) + federated("b", [8, 8, 10])
    seen = robustness(Findings(rows), "asm-s")
    assert seen.differences["abalone"] == pytest.approx([-2 / 8, -2 / 8, 2 / 8])
    assert seen.mean.value == pytest.approx(-2 / 24)
    assert seen.equivalent == {"abalone": False}
    assert list(seen.differences) == ["abalone"]


def test_significance_across_regimes_is_corrected_over_the_sets_that_were_run():
    rows = federated("a", [8] * 10) + federated("b", range(9, 19))
    alone = robustness(Findings(rows), "asm-s")
    assert alone.p["abalone"] == pytest.approx(2 / 2**10)
    rows += federated("a", [10] * 10, dataset="mnist") + federated("b", [10] * 10, dataset="mnist")
    both = robustness(Findings(rows), "asm-s")
    assert both.p == pytest.approx({"abalone": 4 / 2**10, "mnist": 1.0})
    assert both.changed == ["abalone"]


def test_a_local_correlation_that_is_undefined_is_left_out_of_the_mean():
    rows = (
        federated("a", [6], local_counts=[1, 1]) + federated("a", [6, 6], local_counts=[2, 5], true_counts=[3, 4])[1:]
    )
    found = Findings(rows)
    assert local_mean(found, "a", "abalone", "asm-s", "rho_true") == pytest.approx(1.0)
    assert local_mean(found, "a", "abalone", "asm-s", "local_error") == pytest.approx((0.75 + (1 / 3 + 1 / 4) / 2) / 2)
    assert math.isnan(local_mean(found, "b", "abalone", "asm-s", "rho_true"))


def test_points_per_cluster_are_described_over_all_clients_of_all_seeds():
    rows = [
        row("partition-a", "abalone", "partition", 42, sizes=[100, 300], counts=[2, 3]),
        row("partition-a", "abalone", "partition", 43, sizes=[240, 90], counts=[4, 3]),
    ]
    found = Findings(rows)
    points = np.array([50, 100, 60, 30])
    assert found.value("points-per-cluster", "abalone", "a", "mean") == pytest.approx(points.mean())
    assert found.value("points-per-cluster", "abalone", "a", "sd") == pytest.approx(points.std(ddof=1))
    rho = stats.spearmanr([100, 300, 240, 90], [2, 3, 4, 3]).statistic
    assert found.value("points-per-cluster", "abalone", "a", "rho") == pytest.approx(rho)
    assert found.value("points-per-cluster", "abalone", "", "cases") == 4
    assert found.value("datasets", "abalone", "", "mean_k_g") == 3
    within = [np.std([50, 100], ddof=1) / 75, np.std([60, 30], ddof=1) / 45]
    assert found.value("points-per-cluster-tests", "abalone", "a", "cv_median") == pytest.approx(np.mean(within))


def test_the_dispersion_test_is_one_sided_and_paired():
    rows = []
    for at, seed in enumerate(SEEDS):
        rows += [row("partition-a", "mnist", "partition", seed, sizes=[200, 202 + at], counts=[2, 2])]
        rows += [row("partition-b", "mnist", "partition", seed, sizes=[200, 300 + 9 * at], counts=[2, 2])]
    found = Findings(rows)
    assert found.value("points-per-cluster-tests", "mnist", "", "seeds_higher") == 10
    assert found.value("points-per-cluster-tests", "mnist", "", "p") == pytest.approx(2**-10)
    ratio = found.estimates[Key("points-per-cluster-tests", "mnist", "", "cv_ratio")]
    assert 1 < ratio.low < ratio.value < ratio.high
    assert math.isnan(found.value("points-per-cluster-tests", "mnist", "a", "b"))  # every client holds two classes


def test_onsets_and_components_are_read_off_the_synthetic_runs():
    found = Findings(any_rows(seeds=SEEDS[:1]))
    (first, *rest) = onsets(found, "gauss-64")
    assert (first.r, len(rest)) == (1.0, 11)
    shares = np.linspace(0, 1, len(synthetic.SIZES))
    assert first.size == theory.observed_onset(synthetic.SIZES, shares)
    assert found.value("synthetic", "gauss-64", "round", "onset") == first.size
    can_split = np.array(synthetic.SIZES) >= 2 * synthetic.MIN_MASS
    assert found.value("synthetic", "gauss-16", "", "agree_sample") == pytest.approx(shares[can_split].mean())
    counts = component_counts(found, "gauss-8")
    assert list(counts) == sorted(counts)
    assert found.value("synthetic", "gauss-8", "n5000", "components") == pytest.approx(500)
    assert found.value("synthetic", "gauss-8", "n500", "components") == pytest.approx(50, rel=0.05)


def test_five_hundred_rows_are_not_guessed_from_far_neighbours():
    rows = [row("synthetic-components", "gauss-8", f"n{n}", 0, d=8, n=n, components=[n // 10]) for n in (100, 5000)]
    found = Findings(rows)
    assert math.isnan(found.value("synthetic", "gauss-8", "n500", "components"))
    assert found.value("synthetic", "gauss-8", "n5000", "components") == pytest.approx(500)
