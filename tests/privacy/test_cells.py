"""Cells found through noise: those that noise blurs join others that it does not tell them from."""

import numpy as np
import pytest

from koncord.privacy.cells import cells_of, look_for_cells, without_blurred
from koncord.privacy.mechanism import Ball, NoisySums

BALL = Ball(center=np.zeros(4), radius=32.0)


def noisy(counts, means, noise=300.0):
    counts, means = np.array(counts, dtype=float), np.array(means, dtype=float)
    return NoisySums(
        counts=counts,
        sums=counts[:, None] * means,
        squares=(counts * ((means**2).sum(axis=1) + 4))[:, None],
        count_noise=10.0,
        sum_noise=noise,
    )


AT = np.array([[0, 0, 0, 0], [20, 0, 0, 0], [3, 0, 0, 0], [-20, 0, 0, 0]], dtype=float)


def test_a_small_cell_joins_the_large_one_beside_it_and_not_one_far_away():
    found = noisy([1200, 1200, 100, 100], AT)  # noise moves the means of the last two by 6
    joined = without_blurred(found, np.arange(4), 4.8)
    assert joined.tolist() == [0, 1, 0, 3]
    cells = cells_of(found, BALL, joined)
    assert cells.counts[[0, 1, 3]].tolist() == [1300, 1200, 100]
    np.testing.assert_allclose(cells.means[0], [3 * 100 / 1300, 0, 0, 0])


def test_cells_that_noise_hardly_moves_stay_apart():
    assert without_blurred(noisy([1200, 1200, 400, 400], AT), np.arange(4), 4.8).tolist() == [0, 1, 2, 3]
    assert without_blurred(noisy([1200, 1200, 100, 100], AT, noise=3.0), np.arange(4), 4.8).tolist() == [0, 1, 2, 3]


def test_joined_cells_are_those_that_the_search_returns():
    passes = look_for_cells(AT, BALL, 1, 1, np.random.default_rng(0), most_blurred=0.3)
    next(passes)
    with pytest.raises(StopIteration) as finished:
        passes.send(noisy([1200, 1200, 100, 100], AT))
    assert sorted(finished.value.value.counts.tolist()) == [100, 1200, 1300]
