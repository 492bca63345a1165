"""The paper's numbers: how many there are, some typed by hand, and what must fit together."""

from collections import Counter
from math import sqrt

import pytest

from koncord_reproduction.paper import (
    COMPARABLE,
    DIFFERENCES,
    LABEL_FREE,
    METHODS,
    N_CLUSTERS,
    SETS,
    find,
    numbers,
    value_of,
)

# Sets x methods x quantities of each table, and what is left out or added.
CELLS = {
    "pooled": 8 * (1 + 5 * 2),
    "mechanisms": 8 * 8 + 4 * 3,
    "merge-sweep": 8 * (8 * 2 + 7) + 6 + 2,
    "federated-a": 8 * 5 * 3 + 5 + 2,
    "federated-b": 8 * 5 * 3,
    "runtime": 9 * 4,
    "true-counts": 8 * (1 + 3 * 2 + 1) - 2 + 1,
    "datasets": 7 * 5,
    "points-per-cluster": 8 * 9 - 2,
    "points-per-cluster-tests": 8 * 7 - 2,
    "partition-robustness": 6 * 4 + 5 * 6,
    "synthetic": 18,
}

TYPED_BY_HAND = [
    (("pooled", "waveform", "asm-s", "ari"), 0.256, 0.250, 0.262),
    (("pooled", "mnist", "gmeans", "k"), 200.0, None, None),
    (("pooled", "abalone", "gmeans", "ari"), 0.023, 0.020, 0.026),
    (("mechanisms", "cifar10", "asm-s", "k_quarter"), 17.3, None, None),
    (("mechanisms", "fmnist", "", "r_med"), 21.12, None, None),
    (("mechanisms", "emnist", "kmeans", "ari_quarter"), 0.315, None, None),
    (("merge-sweep", "frog_species", "3", "ari"), 0.497, None, None),
    (("merge-sweep", "frog_genus", "1.5", "mark"), -1, None, None),
    (("merge-sweep", "mnist", "selected", "alpha"), 1.1, None, None),
    (("federated-a", "frog_species", "asm-s", "ari"), 0.634, 0.516, 0.752),
    (("federated-a", "emnist", "gmeans", "k_error"), 262.9, None, None),
    (("federated-a", "mean", "oracle", "ari"), 0.361, None, None),
    (("federated-b", "emnist", "gmeans", "k"), 364.8, None, None),
    (("federated-b", "waveform", "oracle", "ari"), 0.340, 0.329, 0.351),
    (("runtime", "mean", "xmeans", "ms"), 1943, None, None),
    (("true-counts", "fmnist", "released", "k"), 90.0, None, None),
    (("true-counts", "cifar10", "published", "personalised_ari"), 0.286, 0.277, 0.295),
    (("datasets", "emnist", "", "n"), 131600, None, None),
    (("points-per-cluster", "frog_genus", "b", "rho"), -0.08, None, None),
    (("points-per-cluster-tests", "emnist", "", "cv_ratio"), 11.17, 9.41, 14.80),
    (("points-per-cluster-tests", "frog_species", "b", "b"), 0.16, -0.33, 0.59),
    (("partition-robustness", "all", "gmeans", "D"), -1.357, -2.226, -0.488),
    (("partition-robustness", "all", "xmeans", "rho_size_b"), 0.58, None, None),
    (("synthetic", "gauss-16", "n5000", "components"), 320, None, None),
    (("synthetic", "gauss-64", "", "agree_population"), 0.92, None, None),
]


def test_every_cell_of_every_table_is_there():
    assert Counter(key.table for key in numbers()) == CELLS


@pytest.mark.parametrize(("names", "value", "low", "high"), TYPED_BY_HAND, ids=lambda value: str(value))
def test_numbers_typed_by_hand_are_those_of_the_file(names, value, low, high):
    number = find(*names)
    assert number.value == value
    assert number.low == (None if low is None else pytest.approx(low))
    assert number.high == (None if high is None else pytest.approx(high))


def test_an_interval_may_have_no_upper_end():
    number = find("mechanisms", "fmnist", "", "alpha_half")
    assert (number.value, number.low, number.high, number.has_interval) == (None, 3.0, None, True)


def test_rounding_is_half_a_unit_of_the_last_printed_digit():
    assert find("pooled", "waveform", "asm-s", "ari").rounding == pytest.approx(0.0005)
    assert find("pooled", "waveform", "asm-s", "k").rounding == pytest.approx(0.05)
    assert find("runtime", "abalone", "asm-s", "ms").rounding == 0.5


def test_what_the_paper_does_not_give_is_none():
    assert find("true-counts", "cifar10", "released", "k") is None
    assert find("points-per-cluster", "waveform", "a", "rho") is None


def test_the_sets_of_a_number_are_known():
    others = {"mean", "all", "gauss-8", "gauss-16", "gauss-64"}
    assert {key.dataset for key in numbers()} == {*SETS, *others}
    assert {*COMPARABLE, *DIFFERENCES} == set(SETS)
    assert set(LABEL_FREE) < set(METHODS)


@pytest.mark.parametrize("dataset", SETS)
def test_numbers_that_two_tables_print_are_the_same(dataset):
    for method, quantity in (("asm-s", "k"), ("asm-s", "ari"), ("kmeans", "ari")):
        assert value_of("mechanisms", dataset, method, quantity) == value_of("pooled", dataset, method, quantity)
    for quantity in ("ari", "k"):
        assert value_of("true-counts", dataset, "oracle", quantity) == value_of(
            "federated-a", dataset, "oracle", quantity
        )
    assert value_of("pooled", dataset, "", "k_true") == N_CLUSTERS[dataset]


@pytest.mark.parametrize("dataset", SETS)
def test_the_predicted_onset_is_that_of_the_printed_anisotropy(dataset):
    r_med = value_of("mechanisms", dataset, "", "r_med")
    assert value_of("mechanisms", dataset, "", "onset") == pytest.approx(0.8 * sqrt(r_med), abs=0.006)


@pytest.mark.parametrize("table", ["federated-a", "federated-b"])
def test_the_mean_error_of_a_count_is_no_smaller_than_the_error_of_its_mean(table):
    for dataset in SETS:
        for method in (*LABEL_FREE, "oracle"):
            k, error = (value_of(table, dataset, method, quantity) for quantity in ("k", "k_error"))
            assert error >= abs(k - N_CLUSTERS[dataset]) - 0.11, (dataset, method)


def test_the_means_of_the_text_are_those_of_the_table():
    for method in (*LABEL_FREE, "oracle"):
        mean = sum(value_of("federated-a", dataset, method, "ari") for dataset in SETS) / 8
        assert value_of("federated-a", "mean", method, "ari") == pytest.approx(mean, abs=0.001)


def test_the_mean_time_is_that_of_the_table():
    for method in LABEL_FREE:
        mean = sum(value_of("runtime", dataset, method, "ms") for dataset in SETS) / 8
        assert value_of("runtime", "mean", method, "ms") == pytest.approx(mean, abs=0.6)


def test_one_column_of_the_sweep_is_selected_on_five_sets_and_mnist_has_another():
    selected = [key.dataset for key, number in numbers().items() if number.note == "selected"]
    assert selected == ["waveform", "abalone", "frog_species", "frog_genus", "cifar10"]
    marks = Counter(number.value for key, number in numbers().items() if key.quantity == "mark")
    assert marks == {0: 32, 1: 17, -1: 7}
