"""A table that changes between runs: no combination of what was answered about all versions stands for few rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koncord.protocol.partition import JointPartition
from koncord.session.versions import (
    first_version,
    keep_version,
    matched,
    next_version,
    read_version,
)

LEAST = 4


def answered(version, rng, n_questions=3):
    """The version after some answers, and the rows that each group of each answer is a sum of."""
    if len(version.X) < LEAST:  # of which nothing is sent
        return version, []
    partition = JointPartition(version.rows(LEAST), LEAST)
    partition.store.cells = version.cells
    cells = partition.cut(version.X * np.exp(rng.normal(size=2))).of_row
    groups = [version.X]
    for _ in range(n_questions):
        labels = rng.integers(3, size=cells.max() + 1)[cells]
        groups += [version.X[labels == label] for label in np.unique(labels)]
    return replace(version, cells=partition.open()), groups


def as_vectors(groups, universe):
    """Each group of rows as a vector of 0 and 1 over all rows that ever were."""
    return np.array([[float((row == group).all(axis=1).any()) for row in universe] for group in groups])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=407)  # in which all rows go, and some come back
def test_answers_about_all_versions_of_a_table_are_sums_over_groups_of_enough_rows(seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(int(rng.integers(8, 20)), 2))
    universe, groups, away = [table], [], table[:0]
    version, told = answered(first_version(table, LEAST), rng)
    groups += told
    for _ in range(4):
        gone = rng.random(len(table)) < rng.choice([0.0, 0.05, 0.5])
        new = rng.normal(size=(int(rng.integers(0, 7)), 2))
        away = np.concatenate([away, table[gone]])
        returns = rng.random(len(away)) < rng.choice([0.0, 0.5, 1.0])  # rows that went may come back
        table = np.concatenate([table[~gone], new, away[returns]])
        away = away[~returns]
        universe.append(new)
        version, change = next_version(version, table, LEAST)
        assert len(version.X) == len(table) - change.n_waiting + change.n_stale
        version, told = answered(version, rng)
        groups += told
    rows = np.concatenate(universe)
    vectors = as_vectors(groups, rows)
    # Rows that all answers treat alike make an atom; every answer is a union of atoms, and every atom has enough rows.
    atoms, sizes = np.unique(vectors, axis=1, return_counts=True)
    assert (sizes[atoms.any(axis=0)] >= LEAST).all()


def test_a_row_more_waits_and_a_row_fewer_stays_until_enough_changed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    version = first_version(X, 20)
    one_more = np.concatenate([X, rng.normal(size=(1, 3))])
    same, change = next_version(version, one_more, 20)
    np.testing.assert_array_equal(same.X, X)
    assert (change.n_added, change.n_waiting, change.is_held_back) == (1, 1, True)
    same, change = next_version(version, X[1:], 20)
    np.testing.assert_array_equal(same.X, X)
    assert (change.n_removed, change.n_stale) == (1, 1)
    many = np.concatenate([X, rng.normal(size=(20, 3))])
    after, change = next_version(version, many, 20)
    np.testing.assert_array_equal(after.X, many)
    assert not change.is_held_back
    assert len(after.cells) == 2
    after, change = next_version(version, X[20:], 20)
    np.testing.assert_array_equal(after.X, X[20:])
    assert not change.is_held_back


def test_another_table_altogether_is_answered_about_as_it_is():
    X = np.random.default_rng(0).normal(size=(100, 3))
    after, change = next_version(first_version(X, 20), X + 1, 20)
    np.testing.assert_array_equal(after.X, X + 1)
    assert (change.n_added, change.n_removed, change.is_held_back) == (100, 100, False)
    # Back again with one row more: the row waits, the others come back as the group that they went in.
    back, change = next_version(after, np.concatenate([X, X[:1] + 2]), 20)
    np.testing.assert_array_equal(back.X, X)
    assert (change.n_added, change.n_waiting) == (101, 1)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_rows_are_matched_one_to_one_in_any_order(order):
    before = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [0.0, 5.0]])
    after = np.array([[1.0, 2.0], [-0.0, 5.0], [9.0, 9.0]])[order]
    is_kept, is_known = matched(before, after)
    assert is_kept.tolist() == [True, False, False, True]
    assert is_known[order].tolist() == [True, True, False]


def test_a_version_and_what_was_answered_of_it_come_back_from_the_disk(tmp_path):
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(60, 2)), rng.random(60) < 0.3]
    keep_version(tmp_path, first_version(X, 20), ("a", "b", "c"), is_answered=False)
    kept = read_version(tmp_path)
    assert not kept.is_answered
    cells = kept.partition(20).cut(X)
    again = read_version(tmp_path)
    assert again.is_answered
    np.testing.assert_array_equal(again.now(20).cells.of_row, cells.of_row)
    np.testing.assert_array_equal(again.now(20).cells.rarer, cells.rarer)
    np.testing.assert_array_equal(again.now(20).cells.is_cut, cells.is_cut)
    np.testing.assert_array_equal(again.partition(20).cut(X[:, ::-1]).of_row, cells.of_row)
    assert again.digest == kept.digest


def test_rows_with_gaps_are_known_again_and_may_be_added():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(60, 2)), rng.random(60) < 0.4]
    X[::7, 0] = np.nan
    X[::11, 2] = np.nan
    first = first_version(X, 20)
    assert matched(X, X)[0].all()
    added = np.c_[rng.normal(size=(25, 2)), rng.random(25) < 0.4]
    added[:4, 2] = np.nan
    after, change = next_version(first, np.concatenate([X, added]), 20)
    assert (change.n_added, change.n_waiting, len(after.X)) == (25, 0, 85)
    assert not np.isnan(after.moved).any()
    np.testing.assert_array_equal(after.moved[:60], first.moved)
    np.testing.assert_array_equal(after.rows(LEAST).gaps, np.isnan(after.X))
