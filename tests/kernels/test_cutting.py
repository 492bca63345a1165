"""Groups of rows, and the cuts that make them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.kernels import cutting
from koncord.kernels.cutting import (
    MOST_OF_A_PEAK,
    ROUNDING,
    cut_tree,
    gains_of,
    group_labels,
    groups_of,
    most_explained,
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


def tables_of_columns(rng: np.random.Generator, n: int) -> np.ndarray:
    """Columns with one and two peaks, far values, few levels, one value; the last ones wide."""
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
def test_no_cut_of_a_column_explains_more_than_its_bins_allow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = tables_of_columns(rng, int(rng.integers(256, 3000)))
    centered, least = X - X.mean(axis=0), int(rng.integers(1, 60))
    gains = gains_of(np.sort(centered, axis=0), least)[1].max(axis=0)
    total = (centered**2).sum(axis=0)
    bound = most_explained(centered, least)
    assert (gains <= (bound + ROUNDING) * total).all()
    assert (bound[[0, 5]] < MOST_OF_A_PEAK + 0.05).all()  # and where there is one peak, they say so nearly always
    assert bound[4] == 0


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_those_of_all_columns_sorted(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = tables_of_columns(rng, 4000)[:, rng.permutation(10)[: seed % 10 + 1]]
    groups = groups_of(X, 20)
    screened = []
    monkeypatch.setattr(cutting, "most_explained", lambda *given: screened.append(given) or np.ones(X.shape[1]))
    monkeypatch.setattr(cutting, "stable_order", lambda values: np.argsort(values, kind="stable"))
    assert [group.tolist() for group in groups_of(X, 20)] == [group.tolist() for group in groups]
    assert screened


@pytest.mark.parametrize("n", [0, 5, 20_000])
def test_equal_values_stay_in_their_order(n: int) -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=n), rng.integers(0, 7, n).astype(float)):
        assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))
