"""Groups of rows, and the cuts that make them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.kernels import cutting
from koncord.kernels.cutting import (
    MOST_OF_A_PEAK,
    cut_tree,
    cutting_axis,
    evidence_of_peaks,
    gains_of,
    group_labels,
    groups_of,
    may_be_cut,
    share_due,
    stable_order,
)


@given(n=st.integers(1, 250), d=st.integers(1, 5), least=st.integers(1, 30), seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_cuts_sort_their_own_rows_into_the_groups(n: int, d: int, least: int, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(n, d)) * 10.0 ** np.arange(d)
    tree = cut_tree(X, least)
    groups = groups_of(X, least)
    assert tree.n_groups == len(groups)
    assert np.array_equal(tree.assign(X), group_labels(groups, n))


def test_rows_that_were_not_among_them_go_to_the_side_they_lie_on() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 0.1, (50, 2)) for m in (0, 5, 10)])
    tree = cut_tree(X, 40)
    known = tree.assign(X)
    assert tree.n_groups == 3
    new = np.array([[0.3, -0.3], [5.2, 4.9], [40.0, 40.0]])
    assert tree.assign(new).tolist() == [known[0], known[50], known[100]]


@pytest.mark.parametrize("n", [0, 1, 7])
def test_one_group_has_no_cut(n: int) -> None:
    tree = cut_tree(np.ones((5, 3)), 2)
    assert tree.n_groups == 1
    assert tree.assign(np.zeros((n, 3))).tolist() == [0] * n


def plain_evidence(values: np.ndarray, size: int) -> float:
    """The logarithm by which two normal densities of one width are likelier than one, sides known, less the penalty."""
    sides = values[:size], values[size:]
    at = (values[size - 1] + values[size]) / 2
    if min(map(len, sides)) < 10 or min(abs(side.mean() - at) / side.std() for side in sides) <= 1.9:
        return 0.0
    within = sum(((side - side.mean()) ** 2).sum() for side in sides)
    entropy = -sum(len(side) * np.log(len(side) / len(values)) for side in sides)
    found = len(values) / 2 * np.log(((values - values.mean()) ** 2).sum() / within) - 1.1 * entropy
    return float(found) if found > 12 else 0.0


@given(n=st.integers(40, 120), share=st.floats(0.1, 0.5), gap=st.floats(0, 8), seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_evidence_of_peaks_is_that_of_its_plain_twin(n: int, share: float, gap: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(size=n) + gap * (rng.random(n) < share))
    x -= x.mean()
    sizes = np.arange(5, n - 4)
    found = evidence_of_peaks(x, sizes)
    assert np.allclose(found, [plain_evidence(x, size) for size in sizes], atol=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.03])
def test_a_cluster_is_cut_off_in_the_one_column_that_shows_it(share: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 8)) * ([1.4] + [1.0] * 7)
    is_rare = rng.random(len(X)) < share
    X[is_rare, 5] += 6.0
    axis, has_peaks = cutting_axis(X, 20)
    assert has_peaks
    assert np.array_equal(axis, np.eye(8)[5])
    mixed = [min(is_rare[group].sum(), (~is_rare[group]).sum()) for group in groups_of(X, 20, 1000)]
    assert np.sum(mixed) <= 0.005 * len(X)


@pytest.mark.parametrize("shape", ["normal", "uniform", "exponential", "t3", "lognormal"])
@pytest.mark.parametrize("n", [200, 600, 6000])
def test_one_peak_is_none_of_two(shape: str, n: int) -> None:
    rng = np.random.default_rng(2)
    draw = {
        "normal": lambda: rng.normal(size=(n, 4)),
        "uniform": lambda: rng.random((n, 4)),
        "exponential": lambda: rng.exponential(size=(n, 4)),
        "t3": lambda: rng.standard_t(3, (n, 4)),
        "lognormal": lambda: rng.lognormal(sigma=0.8, size=(n, 4)),
    }[shape]
    assert sum(cutting_axis(draw(), 20)[1] for _ in range(20)) <= 2


def test_columns_that_are_constant_have_no_peaks() -> None:
    X = np.column_stack([np.random.default_rng(3).normal(size=100), np.ones(100)])
    with np.errstate(all="raise"):
        assert not cutting_axis(X, 20)[1]
        assert not cutting_axis(np.ones((60, 2)), 20)[1]


def test_a_cut_between_peaks_that_is_not_safe_gives_way_to_one_that_is() -> None:
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.normal(0, 1, (100, 2)), rng.normal(9, 1, (100, 2))])
    groups = groups_of(X, 20, is_safe=lambda rows, sizes: np.abs(sizes - 100) > 15)
    assert len(groups) > 2


def tables_of_columns(rng: np.random.Generator, n: int) -> np.ndarray:
    """Columns with one and two peaks, far values, few levels, one value, nothing but rounding; some wide."""
    side = rng.random(n) < rng.choice([0.02, 0.2, 0.5])
    columns = [
        rng.normal(size=n),
        rng.normal(size=n) + rng.uniform(2, 8) * side,
        rng.standard_cauchy(n),
        rng.integers(0, 3, n),
        np.zeros(n),
        rng.uniform(size=n),
        np.where(side, 1e6, 0.0) + rng.normal(size=n),
        np.full(n, 0.1),
        np.where(np.arange(n) == n // 2, 0.7, np.nextafter(0.7, 1)),
        np.where(side, 5e-324, 0.0),
    ]
    return np.column_stack(columns).astype(float) * 10.0 ** rng.integers(-2, 3, len(columns))


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_explains_enough_of_a_column_that_bins_rule_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = tables_of_columns(rng, int(rng.integers(256, 3000)))
    centered, least = X - X.mean(axis=0), int(rng.integers(5, 60))
    sizes = np.arange(least, len(X) - least + 1)
    due = np.minimum(share_due(len(X), sizes), MOST_OF_A_PEAK)[:, None]
    is_enough = (gains_of(np.sort(centered, axis=0), sizes) > due * (centered**2).sum(axis=0)).any(axis=0)
    may = may_be_cut(centered, least)
    assert not (is_enough & ~may).any()
    assert not may[[0, 4]].any()  # and where there is one peak, or one value, they do


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_those_of_all_columns_sorted(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = tables_of_columns(rng, 4000)[:, rng.permutation(10)[: seed % 10 + 1]]
    groups = groups_of(X, 20)
    screened = []
    monkeypatch.setattr(
        cutting, "may_be_cut", lambda *given: screened.append(given) or np.ones(X.shape[1], dtype=np.bool_)
    )
    monkeypatch.setattr(cutting, "stable_order", lambda values: np.argsort(values, kind="stable"))
    assert [group.tolist() for group in groups_of(X, 20)] == [group.tolist() for group in groups]
    assert screened


@pytest.mark.parametrize("n", [0, 5, 20_000])
def test_equal_values_stay_in_their_order(n: int) -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=n), rng.integers(0, 7, n).astype(float)):
        assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))
