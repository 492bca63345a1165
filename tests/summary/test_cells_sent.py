"""Cells of rows: beside a slow plain twin, the laws, and what one or two rows can change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord.kernels.cutting import cut_tree
from koncord.summary.cells import Cells, cells_of, n_winsorized, rounded, widened
from koncord.summary.summarize import MOST_NUMBERS, sample_of, summarized

FLOOR = 20


def plain_cells(X, tree, floor):
    """Cells by sorting each column of each group, written out."""
    labels, n_ends = tree.assign(X), int(0.1 * floor)
    counts, means, variances = [], [], []
    for cell in range(tree.n_groups):
        own = np.sort(X[labels == cell], axis=0)
        own[:n_ends], own[len(own) - n_ends :] = own[n_ends], own[-1 - n_ends]
        counts.append(len(own))
        means.append(own.mean(axis=0))
        variances.append(own.var(axis=0) * widened(len(own), n_ends))
    return np.array(counts), np.array(means), np.array(variances)


def table(seed, n=400, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d) + rng.normal(scale=5, size=d)
    X[:, 0] = np.round(X[:, 0])  # whole numbers
    X[:, 1] *= rng.random(n) < 0.3  # mostly zero
    return X


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_those_of_the_plain_twin(seed):
    X = table(seed)
    tree = cut_tree(X, FLOOR)
    found = cells_of([X], tree, FLOOR)
    counts, means, variances = plain_cells(X, tree, FLOOR)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.means, means, atol=1e-12)
    np.testing.assert_allclose(found.variances, variances, atol=1e-9)
    assert (found.counts >= FLOOR).all()


@given(st.lists(st.integers(1, 399), max_size=6), st.integers(0, 3))
def test_batches_make_no_difference(ends, seed):
    X = table(seed)
    tree = cut_tree(X, FLOOR)
    whole, parts = cells_of([X], tree, FLOOR), cells_of(np.split(X, sorted(ends)), tree, FLOOR)
    np.testing.assert_array_equal(whole.counts, parts.counts)
    np.testing.assert_allclose(whole.means, parts.means, atol=1e-12)
    np.testing.assert_allclose(whole.variances, parts.variances, atol=1e-9)


@given(st.lists(st.integers(1, 999), max_size=6), st.integers(1, 999))
def test_the_sample_does_not_depend_on_batches(ends, most):
    X = np.arange(1000.0)[:, None]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("koncord.summary.summarize.SAMPLE", most)
        n, whole = sample_of([X])
        _, parts = sample_of(np.split(X, sorted(ends)))
    assert n == 1000
    assert len(whole) <= most
    np.testing.assert_array_equal(whole, parts)
    gaps = np.diff(whole[:, 0])
    assert len(set(gaps)) <= 1  # evenly taken


def test_one_or_two_rows_far_off_change_nothing():
    X = table(1)
    tree = cut_tree(X, FLOOR)
    before = cells_of([X], tree, FLOOR)
    far = X.copy()
    labels = tree.assign(X)
    for cell in range(tree.n_groups):
        rows = np.flatnonzero(labels == cell)
        top = rows[np.argsort(X[rows, 2])[-n_winsorized(FLOOR) :]]
        far[top, 2] += 1000.0
    groups = [np.flatnonzero(labels == cell) for cell in range(tree.n_groups)]
    after = cells_by(far, groups)
    np.testing.assert_allclose(after.means, before.means, atol=1e-9)
    np.testing.assert_allclose(after.variances, before.variances, atol=1e-6)


def cells_by(X, groups):
    """Cells of given groups: the tree of one column that numbers them."""
    labels = np.empty(len(X), dtype=int)
    for number, rows in enumerate(groups):
        labels[rows] = number

    class ByLabel:
        n_groups = len(groups)

        def assign(self, rows):
            return labels

    return cells_of([X], ByLabel(), FLOOR)


@pytest.mark.parametrize("n_positive", [1, 2, 18, 19])
def test_a_few_positives_of_a_cell_are_not_seen(n_positive):
    X = np.zeros((20, 1))
    X[:n_positive] = 1.0
    cells = rounded(cells_by(X, [np.arange(20)]), FLOOR)
    assert cells.variances[0, 0] == 0
    assert cells.means[0, 0] == (n_positive > 10)


def test_variances_are_those_of_a_gaussian_before_winsorizing():
    rng = np.random.default_rng(0)
    for n in (20, 35, 200):
        X = rng.normal(size=(n * 3000, 1))
        found = cells_by(X, np.split(np.arange(len(X)), 3000))
        assert found.variances.mean() == pytest.approx(1, abs=0.08)


@given(st.integers(20, 4000), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_half_a_floor_of_rows_at_one_deviation_moves_a_sent_mean_by_a_step_at_most(count, deviation, mean):
    def sent(at):
        own = Cells(counts=np.array([count]), means=np.array([[at]]), variances=np.array([[deviation**2]]))
        return rounded(own, FLOOR)

    here = sent(mean)
    step = np.sqrt(here.variances[0, 0]) * FLOOR / 2 / count
    assert abs(here.means[0, 0] - mean) <= step / 2 * (1 + 1e-9)
    assert 0.5 <= here.variances[0, 0] / deviation**2 <= 2
    moved = sent(mean + deviation * FLOOR / 2 / count)
    assert abs(moved.means[0, 0] - here.means[0, 0]) <= 2 * step * (1 + 1e-9)


# --- the whole summary ---


@pytest.mark.parametrize(("n", "d"), [(0, 3), (19, 3), (25, 30), (40, 2), (300, 4), (300, 200), (5000, 16)])
def test_a_summary_has_a_third_as_many_numbers_as_the_table(n, d):
    X = np.random.default_rng(n).normal(size=(n, d))
    found = summarized(lambda: [X], d, FLOOR)
    assert found.rows == n
    assert found.n_numbers <= max(MOST_NUMBERS * X.size, 1)
    assert found.cells.counts.sum() == (n if len(found.cells) else 0)
    assert len(found.cells) > 0 or n <= 40


def test_what_was_released_before_leaves_fewer_axes_then_fewer_cells():
    X = np.random.default_rng(0).normal(size=(400, 10))
    sizes = []
    for released in (0, 700, 900, 1200, 1300):
        found = summarized(lambda: [X], 10, FLOOR, n_released=released)
        assert found.n_numbers + released <= MOST_NUMBERS * X.size + 1
        sizes.append((len(found.axes), len(found.cells)))
    axes, cells = zip(*sizes, strict=True)
    assert list(cells) == sorted(cells, reverse=True)
    assert axes[0] == axes[1] == 10
    assert (cells[0], max(axes[-2:])) == (cells[1], 1)
    assert cells[-1] < cells[0]


def test_the_same_rows_give_the_same_bytes():
    X = table(3)
    one, again = (summarized(lambda: [X.copy()], 3, FLOOR) for _ in range(2))
    for name in ("counts", "means", "variances"):
        assert getattr(one.cells, name).tobytes() == getattr(again.cells, name).tobytes()
    assert one.axes.tobytes() == again.axes.tobytes()


def test_axes_are_the_covariance_inside_cells():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)) @ np.diag([1, 0.5, 0.2, 0.1]) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    X[::2] += [8, 0, 0, 0]
    found = summarized(lambda: [X], 4, FLOOR)
    labels = cut_tree(X, FLOOR).assign(X)
    inside = X - np.array([X[labels == cell].mean(axis=0) for cell in range(labels.max() + 1)])[labels]
    np.testing.assert_allclose(found.axes.T @ found.axes, inside.T @ inside / len(X), atol=0.02)
