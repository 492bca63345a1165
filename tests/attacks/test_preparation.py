"""What the openings of a run tell of single rows: blocks of sorted values, and sums behind fences."""

from dataclasses import replace
from itertools import pairwise

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


def test_fences_that_bisect_from_run_to_run_tell_no_value(tmp_path, capsys):
    """How many values lie beyond a fence is sent in steps of the floor: where it jumps, a value lies."""
    X = np.random.default_rng(5).normal(size=(400, 2))
    coordinator = Malicious(state_folder(tmp_path, X), X)
    low, high, seen = 0.0, 4.0, set()
    for _ in range(40):
        middle = (low + high) / 2
        fenced = int(opened(coordinator, measure_of(X, high=middle)).fenced[0])
        seen.add(fenced)
        low, high = (middle, high) if fenced else (low, middle)
        coordinator.new_run()
    error = np.abs(X[:, 0] - (low + high) / 2).min()
    with capsys.disabled():
        print(f"\n  bisection by fences, 40 runs: the nearest value is {error:.3f} away", end=" ")
    assert len(seen) == 1  # the first fence holds, and is the one that is counted by
    assert error > 1e-6


@pytest.mark.parametrize("fill", [0.0, 1e6, -1e6])
def test_what_stands_in_for_gaps_hides_no_row_that_dominates(fill, tmp_path, capsys, recovered):
    """Half of a column is missing and one value is far from the others: is it in a sum that it makes up?"""
    rng, n_found = np.random.default_rng(6), 0
    for draw in range(5):
        X = rng.normal(size=(400, 3))
        X[:, 0] *= 0.01
        X[7, 0] = largest = 40 + rng.normal()
        X[rng.permutation(np.delete(np.arange(400), 7))[:200], 0] = np.nan
        (tmp_path / f"{draw}").mkdir()
        coordinator = Malicious(state_folder(tmp_path / f"{draw}", X), X)
        opened(coordinator, setup.Survey())
        measure = replace(measure_of(X), low=None, high=None)
        opened(coordinator, measure)
        opened(coordinator, replace(plan_of(measure), missing="mean", fill=np.array([fill, 0.0, 0.0])))
        micro = micro_clusters(coordinator)
        totals = micro.counts * micro.means[:, 0]
        guesses = totals - fill * np.rint(totals / fill) if fill else totals
        n_found += int((np.abs(guesses / largest - 1) < 0.1).any())
    with capsys.disabled():
        print(f"\n  largest value of a column with gaps, filled by {fill:g}: {n_found} of 5 found", end=" ")
    recovered(values=n_found)


def test_a_table_that_changed_by_fewer_rows_than_the_floor_gives_the_same_sketch(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 2))
    place = state_folder(tmp_path, X)
    coordinator = Malicious(place, X)
    before = opened(coordinator, setup.Survey())
    for added in (rng.normal(size=(1, 2)), rng.normal(size=(FLOOR - 2, 2))):
        X = np.concatenate([X, added])
        joined(place.folder, X)
        coordinator.new_run()
        assert pack(opened(coordinator, setup.Survey())) == pack(before)
    joined(place.folder, np.concatenate([X, rng.normal(size=(1, 2))]))
    coordinator.new_run()
    after = opened(coordinator, setup.Survey())
    assert after.count == before.count + FLOOR  # a group of their own


@pytest.mark.parametrize("n", [200, 1000])
def test_who_knows_all_rows_but_one_learns_from_a_sketch_in_which_stretch_the_last_one_lies(n, capsys):
    rng = np.random.default_rng(n)
    most = 0
    for _ in range(5):
        others = rng.normal(size=(n - 1, 1))
        guesses = np.linspace(*np.quantile(others, (0.05, 0.95)), 300)
        tables = (np.append(others, [[guess]], axis=0) for guess in guesses)
        seen = [pack(setup.rounded_sketch(setup.survey(X, ("a",), {}, FLOOR))) for X in tables]
        most = max(most, 1 + sum(one != other for one, other in pairwise(seen)))
    with capsys.disabled():
        print(f"\n  {n} rows: {most} stretches of nine tenths of a column", end=" ")
    assert most <= 25
