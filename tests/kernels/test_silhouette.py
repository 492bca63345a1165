import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from koncord.kernels.assign import nearest
from koncord.kernels.silhouette import MAX_SCORED, HeldOut, in_order_of_appearance, silhouette


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9))
def test_the_silhouette_is_that_of_scikit_learn(seed, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    labels = in_order_of_appearance(np.concatenate([np.arange(k), rng.integers(k, size=40 - k)]))
    assert abs(silhouette(cdist(X, X), labels) - silhouette_score(X, labels)) < 1e-12


def test_one_label_or_a_label_for_every_row_has_no_silhouette():
    X = np.random.default_rng(0).normal(size=(6, 2))
    held = HeldOut(X, np.arange(6))
    assert np.isnan(held.score(np.zeros(6, dtype=int)))
    assert np.isnan(held.score(np.arange(6)))


def test_coinciding_rows_give_a_finite_silhouette():
    held = HeldOut(np.zeros((6, 2)), np.arange(6))
    assert held.score(np.array([0, 0, 0, 1, 1, 1])) == 0.0


def test_equal_partitions_score_equal_to_the_last_bit_whatever_their_names():
    X = np.random.default_rng(1).normal(size=(50, 4))
    labels = np.random.default_rng(2).integers(5, size=50)
    rename = np.array([3, 0, 4, 2, 1])
    assert HeldOut(X, np.arange(50)).score(labels) == HeldOut(X, np.arange(50)).score(rename[labels])


def test_labels_are_renamed_in_order_of_appearance():
    assert in_order_of_appearance(np.array([7, 7, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]


def test_a_large_hold_out_is_cut_to_its_first_rows():
    X = np.arange(2.0 * MAX_SCORED)[:, None]
    rows = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(HeldOut(X, rows).X, X[rows[:MAX_SCORED]])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e6]))
def test_nearest_means_are_those_of_a_distance_matrix_in_blocks_of_any_size(seed, offset):
    rng = np.random.default_rng(seed)
    X, means = rng.normal(size=(30, 3)) + offset, rng.normal(size=(6, 3)) + offset
    expected = cdist(X, means).argmin(axis=1)
    np.testing.assert_array_equal(nearest(X, means), expected)
    np.testing.assert_array_equal(nearest(X, means, most_floats=7), expected)
