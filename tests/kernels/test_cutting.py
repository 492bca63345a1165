"""Groups of rows, and the cuts that make them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.kernels.cutting import cut_tree, group_labels, groups_of


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
