import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.data import partition

labels = st.builds(
    lambda seed, k, n: np.random.default_rng(seed).permutation(np.repeat(np.arange(k), n)),
    st.integers(0, 1000),
    st.integers(3, 12),
    st.integers(60, 150),
)


def class_sets(y, parts):
    return [frozenset(y[rows].tolist()) for rows in parts]


@settings(max_examples=40, deadline=None)
@given(labels, st.integers(4, 12), st.integers(0, 1000))
def test_regime_a_deals_every_row_once_and_every_class_to_two_clients(y, n_clients, seed):
    parts = partition(y, n_clients, "A", seed)
    assert len(parts) == n_clients
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    k = len(np.unique(y))
    held = class_sets(y, parts)
    assert all(2 <= len(classes) <= k - 1 for classes in held)
    for label in range(k):
        owners = [rows for rows, classes in zip(parts, held, strict=True) if label in classes]
        assert len(owners) >= 2
        sizes = [int((y[rows] == label).sum()) for rows in owners]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=40, deadline=None)
@given(labels, st.integers(4, 12), st.integers(0, 1000))
def test_regime_b_keeps_the_classes_of_regime_a_and_stays_disjoint(y, n_clients, seed):
    ours, theirs = partition(y, n_clients, "B", seed), partition(y, n_clients, "A", seed)
    assert class_sets(y, ours) == class_sets(y, theirs)
    rows = np.concatenate(ours)
    assert len(np.unique(rows)) == len(rows)
    for part in ours:
        assert np.unique(y[part], return_counts=True)[1].min() >= 2


def test_sizes_follow_the_number_of_classes_under_a_and_not_under_b():
    y = np.repeat(np.arange(10), 4900)

    def correlation(regime):
        parts = [part for seed in range(42, 47) for part in partition(y, 100, regime, seed)]
        return np.corrcoef([len(part) for part in parts], [len(np.unique(y[part])) for part in parts])[0, 1]

    assert correlation("A") > 0.95
    assert abs(correlation("B")) < 0.15


def test_with_three_classes_every_client_holds_two():
    parts = partition(np.repeat([0, 1, 2], 1200), 5, "A", 42)
    assert all(len(classes) == 2 for classes in class_sets(np.repeat([0, 1, 2], 1200), parts))


def test_clients_are_redrawn_until_each_has_a_hundred_rows():
    y = np.repeat(np.arange(8), [800, 700, 600, 500, 60, 50, 40, 30])
    for seed in range(5):
        assert min(len(part) for part in partition(y, 5, "A", seed)) >= 100


def test_the_same_seed_deals_alike_and_another_does_not():
    y = np.repeat(np.arange(5), 200)
    one, two, other = (partition(y, 5, "B", seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_labels_may_be_of_any_kind():
    assert len(partition(np.repeat(["x", "y", "z"], 300), 4)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clients": 1}, "'n_clients' of partition must be at least 2; got 1"),
        ({"n_clients": 4, "regime": "C"}, "'regime' of partition must be 'A' or 'B'; got 'C'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match="of partition") as caught:
        partition(np.repeat(np.arange(4), 50), **arguments)
    assert message in str(caught.value)


def test_two_classes_cannot_be_dealt_to_clients_that_hold_a_strict_part():
    with pytest.raises(ValueError, match="at least 3 classes"):
        partition(np.repeat([0, 1], 50), 3)
