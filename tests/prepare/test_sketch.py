"""A column in blocks: how near its quantiles are, and what its ends do not tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.prepare.sketch import Distribution, rounded_down, sketch_of


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_every_block_and_both_ends_stand_for_the_floor_at_least(n, floor, seed):
    values = np.random.default_rng(seed).normal(size=n)
    sketch = sketch_of(values, floor)
    assert sketch.n_values == n
    if n < 5 * floor:
        assert not len(sketch.means)
        return
    assert sketch.n_end >= floor
    assert sketch.weight >= floor
    inner = np.sort(values)[sketch.n_end : n - sketch.n_end]
    assert (np.diff(sketch.means) >= 0).all()
    assert inner[0] <= sketch.means[0] <= sketch.means[-1] <= inner[-1]


@pytest.mark.parametrize(("n", "worst"), [(2000, 0.04), (400, 0.15)])
def test_quantiles_of_all_sites_are_those_of_the_pooled_values(n, worst):
    rng = np.random.default_rng(0)
    parts = [np.exp(rng.normal(shift, 0.5, n)) for shift in (0, 0.3, 0.6, 0.1)]
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    found = Distribution([sketch_of(part, 20) for part in parts]).quantiles(*shares)
    exact = np.quantile(np.concatenate(parts), shares)
    assert np.abs(found - exact).max() < worst * (exact[3] - exact[1])


def test_extreme_values_change_nothing_that_is_sent():
    values = np.random.default_rng(1).normal(size=500)
    far = values.copy()
    far[np.argsort(values)[-20:]] *= 1e6
    np.testing.assert_array_equal(sketch_of(values, 20).means, sketch_of(far, 20).means)


def test_counts_of_few_rows_are_not_told_apart():
    assert rounded_down(np.array([100, 99, 85, 80, 19, 0]), 100, 20).tolist() == [100, 80, 80, 80, 0, 0]
