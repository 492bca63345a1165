"""What the openings of a run tell of single rows: blocks of sorted values, and sums behind fences."""

import numpy as np
import pytest
from malicious import FLOOR, Malicious, columns_of, joined, state_folder

from koncord.aggregate import consensus
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack


def opened(coordinator, message):
    """The reply to one opening."""
    return unpack(coordinator.ask(message)[0], (setup.REPLIES[type(message)],))[0]


def measure_of(X, high=1e6, low=-1e6, logged=0):
    d = X.shape[1]
    return setup.Measure(
        columns=columns_of(X),
        means=np.zeros(d),
        scales=np.ones(d),
        logged=np.full(d, logged),
        least=np.zeros(d),
        low=np.full(d, float(low)),
        high=np.full(d, float(high)),
    )


def plan_of(measure):
    shape = {name: getattr(measure, name) for name in ("columns", "means", "scales", *setup.SHAPE)}
    return setup.Prepare(seed=0, **shape)


def micro_clusters(coordinator):
    return unpack(coordinator.ask(consensus.Report(min_report=1))[0], (consensus.MicroClusters,))[0]


@pytest.mark.parametrize("n", [99, 100, 199, 1000, 5000])
def test_every_block_of_a_sketch_is_a_mean_of_enough_rows_and_of_none_at_the_ends(n, tmp_path):
    X = np.random.default_rng(n).normal(size=(n, 2))
    sketch = opened(Malicious(state_folder(tmp_path, X), X), setup.Survey())
    for column in range(2):
        blocks = sketch.blocks[~np.isnan(sketch.blocks[:, column]), column]
        if n < 5 * FLOOR:
            assert not len(blocks)
            continue
        n_inner = n - 2 * sketch.ends[column]
        assert sketch.ends[column] >= FLOOR
        assert n_inner // len(blocks) >= FLOOR
        ordered = np.sort(X[:, column])
        # the outermost values that are sent are means of FLOOR rows or more, with as many beyond
        assert blocks[0] >= ordered[FLOOR : 2 * FLOOR].mean() - 0.06  # rounded to a tenth
        assert blocks[-1] <= ordered[-2 * FLOOR : -FLOOR].mean() + 0.06


def test_no_sum_of_blocks_and_micro_clusters_is_a_row(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    coordinator = Malicious(state_folder(tmp_path, X), X)
    sketch = opened(coordinator, setup.Survey())
    measure = measure_of(X)
    opened(coordinator, measure)
    opened(coordinator, plan_of(measure))
    micro = micro_clusters(coordinator)
    errors = []
    for column in range(3):
        blocks = sketch.blocks[:, column][~np.isnan(sketch.blocks[:, column])]
        n_inner = 1000 - 2 * sketch.ends[column]
        edges = np.linspace(0, n_inner, len(blocks) + 1).astype(int)
        # the totals of runs of blocks, against the totals of the micro-clusters that are nearest to them in size
        told = micro.counts * micro.means[:, column]
        for first in range(len(blocks)):
            for last in range(first + 1, min(first + 4, len(blocks)) + 1):
                count = edges[last] - edges[first]
                total = (np.diff(edges)[first:last] * blocks[first:last]).sum()
                for at in np.flatnonzero(np.abs(micro.counts - count) == 1):
                    guess = abs(total - told[at]) * np.sign(total - told[at]) * np.sign(count - micro.counts[at])
                    errors.append(np.abs(X[:, column] - guess).min() if abs(guess) < 4 else np.inf)
    # As good as a guess at random of the same number: values of 1,000 rows lie closer together than 0.01.
    random = [np.abs(X[:, 0] - guess).min() for guess in rng.normal(size=max(len(errors), 1))]
    near, usual = np.mean(np.array(errors) < 1e-6) if errors else 0.0, np.mean(np.array(random) < 1e-6)
    with capsys.disabled():
        print(f"\n  sketch against micro-clusters: {near:.3f} of {len(errors)} differences are a value", end=" ")
    assert near <= usual


def test_fences_that_differ_from_run_to_run_tell_no_value_between_them(tmp_path):
    X = np.random.default_rng(1).normal(size=(300, 2))
    second, largest = np.sort(X[:, 0])[-2:]
    coordinator = Malicious(state_folder(tmp_path, X), X)
    seen = []
    for high in (5.0, (second + largest) / 2, 5.0, second - 1e-3):
        measure = measure_of(X, high=high)
        sums = opened(coordinator, measure)
        opened(coordinator, plan_of(measure))
        seen.append((pack(sums), pack(micro_clusters(coordinator))))
        coordinator.new_run()
    assert len(set(seen)) == 1  # the first fence holds


def test_sums_without_a_fence_in_one_run_and_behind_one_in_the_next_are_over_the_same_values(tmp_path):
    X = np.random.default_rng(2).normal(size=(300, 2))
    place = state_folder(tmp_path, X)
    coordinator = Malicious(place, X)
    moments = coordinator.moments()
    coordinator.new_run()
    sums = opened(coordinator, measure_of(X, high=np.sort(X[:, 0])[-2] + 1e-3))
    np.testing.assert_allclose(sums.means, moments.means, atol=2e-3)  # rounded both
    np.testing.assert_allclose(sums.scatters, moments.scatters, rtol=2e-2)
    # and after rows were added
    added = np.random.default_rng(3).normal(size=(40, 2))
    joined(place.folder, np.concatenate([X, added]))
    coordinator.new_run()
    again = opened(coordinator, measure_of(X, high=0.0))
    np.testing.assert_allclose(again.means, np.concatenate([X, added]).mean(axis=0), atol=5e-3)


def test_added_rows_are_shaped_as_the_first_ones_and_those_stay_as_they_were(tmp_path):
    rng = np.random.default_rng(4)
    X = np.exp(2 * rng.normal(size=(200, 2)))
    place = state_folder(tmp_path, X)
    coordinator = Malicious(place, X)
    measure = measure_of(X, low=-4.0, high=4.0, logged=1)
    opened(coordinator, measure)
    coordinator.new_run()
    added = np.exp(2 * rng.normal(size=(60, 2)))
    joined(place.folder, np.concatenate([X, added]))
    sums = opened(coordinator, measure)
    pooled = np.clip(np.log(np.concatenate([X, added])), -4, 4)
    np.testing.assert_allclose(sums.means, pooled.mean(axis=0), atol=0.02)
    assert int(sums.counts[0]) == 260
