import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import koncord_reproduction.partitions
from koncord_reproduction import partition
from koncord_reproduction.partitions import decoupled, draw_class_sets

labels = st.builds(
    lambda seed, k, n: np.random.default_rng(seed).permutation(np.repeat(np.arange(k), n)),
    st.integers(0, 1000),
    st.integers(3, 12),
    st.integers(60, 150),
)


def class_sets(y, parts):
    return [frozenset(y[rows].tolist()) for rows in parts]


@settings(max_examples=8, deadline=None)
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


@settings(max_examples=8, deadline=None)
@given(labels, st.integers(4, 12), st.integers(0, 1000))
def test_regime_b_keeps_the_classes_of_regime_a_and_stays_disjoint(y, n_clients, seed):
    ours, theirs = partition(y, n_clients, "B", seed), partition(y, n_clients, "A", seed)
    assert class_sets(y, ours) == class_sets(y, theirs)
    rows = np.concatenate(ours)
    assert len(np.unique(rows)) == len(rows)
    for part in ours:
        assert np.unique(y[part], return_counts=True)[1].min() >= 2


unequal = st.builds(
    lambda seed, sizes: np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)),
    st.integers(0, 1000),
    st.lists(st.integers(20, 600), min_size=3, max_size=9),
)


@settings(max_examples=15, deadline=None)
@given(unequal, st.integers(4, 9), st.integers(0, 1000))
def test_classes_of_any_size_keep_the_promises_of_both_regimes(y, n_clients, seed):
    k = len(np.unique(y))
    coupled, free = partition(y, n_clients, "A", seed), partition(y, n_clients, "B", seed)
    assert sorted(np.concatenate(coupled).tolist()) == list(range(len(y)))
    for parts in (coupled, free):
        held = class_sets(y, parts)
        assert all(2 <= len(classes) <= k - 1 for classes in held)
        assert min(sum(label in classes for classes in held) for label in range(k)) >= 2
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
        assert all((np.diff(part) > 0).all() for part in parts)
    assert class_sets(y, free) == class_sets(y, coupled)


# --- regime A, line by line ---


@pytest.mark.parametrize(("k", "fewest", "most"), [(3, 2, 2), (8, 2, 6), (10, 4, 8), (47, 14, 38)])
def test_a_client_draws_055_k_classes_give_or_take_a_quarter(k, fewest, most):
    """With 400 clients every class has two owners already, so nothing is added."""
    counts = draw_class_sets(400, k, np.random.default_rng(0)).sum(axis=1)
    assert (counts.min(), counts.max()) == (fewest, most)
    share = np.bincount(counts, minlength=most + 1)[fewest:] / 400
    expected = 1 / (most - fewest + 1)
    assert np.abs(share - expected).max() < 4 * np.sqrt(expected * (1 - expected) / 400) + 1e-12


def test_classes_are_drawn_alike():
    holds = np.array([draw_class_sets(100, 10, np.random.default_rng(seed)).mean(axis=0) for seed in range(20)])
    assert np.abs(holds.mean(axis=0) - 0.6).max() < 4 * np.sqrt(0.24 / 2000)


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 6), st.integers(3, 40), st.integers(0, 10**6))
def test_a_class_with_too_few_owners_gets_them_where_there_is_room(n_clients, k, seed):
    holds = draw_class_sets(n_clients, k, np.random.default_rng(seed))
    assert holds.sum(axis=1).max() <= k - 1
    assert holds.sum(axis=1).min() >= 2
    for label in np.flatnonzero(holds.sum(axis=0) < 2):
        assert not (~holds[:, label] & (holds.sum(axis=1) < k - 1)).any()


def test_if_no_draw_is_large_enough_the_one_with_the_largest_smallest_client_is_kept(monkeypatch):
    y = np.repeat(np.arange(6), 40)
    seen = []
    deal = koncord_reproduction.partitions.deal_equally

    def watched(*args):
        parts = deal(*args)
        seen.append(min(len(part) for part in parts))
        return parts

    monkeypatch.setattr(koncord_reproduction.partitions, "deal_equally", watched)
    parts = partition(y, 5, "A", 3)
    assert (len(seen), max(seen) < 100) == (200, True)
    assert min(len(part) for part in parts) == max(seen)


# --- regime B, line by line ---


def many_of_each(holds, n_each):
    """Rows of as many classes as `holds` has, and a partition under A of which only sizes matter."""
    rows_of = list(np.arange(holds.shape[1] * n_each).reshape(holds.shape[1], n_each))
    return rows_of, [np.concatenate([rows_of[c][:200] for c in np.flatnonzero(held)]) for held in holds]


def test_a_target_is_drawn_within_half_and_twice_the_median_and_split_equally():
    holds = draw_class_sets(200, 8, np.random.default_rng(1))
    rows_of, parts = many_of_each(holds, 90_000)
    median = np.median([len(part) for part in parts])
    drawn = decoupled(rows_of, holds, parts, np.random.default_rng(2))
    counts = np.array([np.bincount(rows // 90_000, minlength=8) for rows in drawn])
    for held, count in zip(holds, counts, strict=True):
        assert len(set(count[held].tolist())) == 1
        assert not count[~held].any()
    logs = np.log([len(rows) / median for rows in drawn])
    assert np.abs(logs).max() <= np.log(2) + 0.05  # rounding moves a size by half a row a class
    assert abs(logs.mean()) < 4 * np.log(4) / np.sqrt(12 * 200)
    assert abs(logs.std() - np.log(4) / np.sqrt(12)) < 0.05
    assert abs(np.corrcoef(logs, holds.sum(axis=1))[0, 1]) < 0.25


def test_requests_for_a_class_that_is_too_small_are_scaled_down_by_one_factor():
    holds = draw_class_sets(30, 6, np.random.default_rng(1))
    rows_of, parts = many_of_each(holds, 20_000)
    scarce = rows_of[0][:600]
    drawn = decoupled([scarce, *rows_of[1:]], holds, parts, np.random.default_rng(2))
    owners = np.flatnonzero(holds[:, 0])
    got = np.array([np.isin(drawn[at], scarce).sum() for at in owners])
    request = np.array([(len(drawn[at]) - n) / (holds[at].sum() - 1) for at, n in zip(owners, got, strict=True)])
    assert request.sum() > 600
    assert abs(got.sum() - 600) <= len(owners) / 2
    assert np.abs(got - request * 600 / request.sum()).max() <= 1


def test_a_client_gets_two_rows_of_each_of_its_classes_however_few_there_are():
    holds = draw_class_sets(30, 6, np.random.default_rng(1))
    rows_of, parts = many_of_each(holds, 20_000)
    owners = int(holds[:, 0].sum())
    scarce = rows_of[0][: 2 * owners]
    drawn = decoupled([scarce, *rows_of[1:]], holds, parts, np.random.default_rng(2))
    assert [int(np.isin(rows, scarce).sum()) for rows in drawn] == (2 * holds[:, 0]).tolist()


def test_a_client_that_would_get_fewer_than_sixty_keeps_its_rows():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 100))
    n_kept = 0
    for seed in range(4):
        coupled, free = partition(y, 6, "A", seed), partition(y, 6, "B", seed)
        for before, after in zip(coupled, free, strict=True):
            if np.array_equal(before, after):
                n_kept += 1
            else:
                assert len(after) >= 60 - 6  # rows kept by others may be missing in the pools
    assert n_kept > 1


def test_the_sizes_are_those_of_the_paper_on_ten_classes_of_equal_size():
    """Its table of points per cluster has 81 points and CV 0.04 under A, 83 and 0.48 under B, for MNIST."""
    y = np.repeat(np.arange(10), 4900)

    def per_class(regime):
        parts = [part for seed in range(42, 52) for part in partition(y, 100, regime, seed)]
        return np.array([len(part) / len(np.unique(y[part])) for part in parts])

    realistic, free = per_class("A"), per_class("B")
    assert abs(realistic.mean() - 81) < 1.5
    assert realistic.std() / realistic.mean() < 0.045
    assert abs(free.mean() - 83) < 3
    assert abs(free.std() / free.mean() - 0.48) < 0.02


# --- all of it ---


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


@pytest.mark.parametrize(
    ("y", "n_clients", "message"),
    [
        (np.arange(9) // 3, 40, "too few rows, 9 of 3 classes, to give each of 40 clients rows of two classes"),
        (np.arange(12), 4, "too few rows, 12 of 12 classes"),
        (np.repeat(np.arange(8), 90), 2, "'n_clients' of partition is too small: 2 clients cannot give each of 8"),
        ([], 3, "at least 3 classes, as no client may hold all; got 0"),
    ],
)
@pytest.mark.parametrize("regime", ["A", "B"])
def test_what_cannot_be_dealt_is_refused(y, n_clients, message, regime):
    with pytest.raises(ValueError, match="of partition") as caught:
        partition(y, n_clients, regime)
    assert message in str(caught.value)


def test_two_classes_cannot_be_dealt_to_clients_that_hold_a_strict_part():
    with pytest.raises(ValueError, match="at least 3 classes"):
        partition(np.repeat([0, 1], 50), 3)
