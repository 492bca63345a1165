"""Differencing between runs: month after month the same question about a table that grew by a row."""

import json

import numpy as np
import pytest
from malicious import FLOOR, N_ROWS, Malicious, joined, n_told_between, state_folder, table

from koncord.aggregate import consensus
from koncord.errors import NotAllowed
from koncord.protocol import setup
from koncord.protocol.wire import unpack

N_RUNS = 20


def joined_again(place, X, **options):
    return joined(place.folder, X, **options)


def micro_clusters(coordinator):
    return unpack(coordinator.ask(consensus.Report(min_report=1))[0], (consensus.MicroClusters,))[0]


@pytest.mark.parametrize("leaves", [False, True], ids=["a row more", "a row fewer"])
def test_twenty_monthly_runs_over_a_changing_table_tell_no_row(leaves, tmp_path, capsys, recovered):
    X = table()
    months = [X[: N_ROWS - at] if leaves else X[: N_ROWS - N_RUNS + at] for at in range(N_RUNS)]
    place = state_folder(tmp_path, months[0])
    coordinator = Malicious(place, X)
    seen = []
    for month in months:
        joined_again(place, month)
        moments = coordinator.moments()
        seen.append((np.array([moments.count]), (moments.count * moments.means)[None]))
        coordinator.prepare()
        micro = micro_clusters(coordinator)
        seen.append((micro.counts, micro.counts[:, None] * micro.means))
        coordinator.new_run()
    n_rows, n_wrong = n_told_between(seen, X)
    with capsys.disabled():
        print(f"\n  differencing of {N_RUNS} runs: {n_rows} rows told exactly, {n_wrong} wrong guesses", end=" ")
    assert coordinator.n_refused == 0
    recovered(rows=n_rows)


def test_what_an_added_row_changes_is_seen_by_nobody_before_enough_are_added(tmp_path):
    X = table()
    place = state_folder(tmp_path, X[:900])
    coordinator = Malicious(place, X)
    first = coordinator.moments()
    joined_again(place, X[:919])
    coordinator.new_run()
    assert coordinator.moments().count == first.count == 900
    joined_again(place, X[:920])
    coordinator.new_run()
    assert coordinator.moments().count == 920


def test_twenty_runs_with_scales_and_methods_of_their_own_tell_no_row(tmp_path, capsys, recovered):
    X = table()
    place = state_folder(tmp_path, X)
    rng = np.random.default_rng(0)
    seen, n_refused = [], 0
    coordinator = Malicious(place, X)
    for at in range(N_RUNS):
        methods = ("consensus", {}), ("fedkmeans", {"n_clusters": 24})
        aggregator, parameters = methods[at % 2]
        told = {"aggregator": aggregator, "estimator": {"name": "xmeans"}, "parameters": parameters}
        coordinator.method = json.dumps(told)
        scales = np.exp(rng.normal(size=X.shape[1]))
        assert coordinator.prepare(scales=scales)
        if aggregator == "consensus":
            micro = micro_clusters(coordinator)
            seen.append((micro.counts, micro.counts[:, None] * micro.means * scales))
        else:
            coordinator.ask(fedkmeans_begin())
            for _ in range(9):
                centers = X[rng.choice(len(X), 24, replace=False)] / scales  # as near to rows as can be
                up = coordinator.refine(centers)[0]
                seen.append((up.counts[up.counts > 0], up.sums[up.counts > 0] * scales))
        coordinator.new_run()
    n_rows, n_wrong = n_told_between(seen, X)
    with capsys.disabled():
        print(
            f"\n  {N_RUNS} runs of two methods on scales of their own: {n_rows} rows, {n_wrong} wrong guesses", end=" "
        )
    assert coordinator.n_refused == n_refused
    recovered(rows=n_rows)


def fedkmeans_begin():
    from koncord.aggregate.fedkmeans import Begin

    return Begin(n_clusters=24, local_iters=1, min_count=1)


def test_an_owner_who_wants_no_answers_from_old_rows_is_asked_again(tmp_path):
    X = table()
    place = state_folder(tmp_path, X[:900])
    Malicious(place, X).moments()
    with pytest.raises(NotAllowed, match="1 rows more and 0 fewer"):
        joined_again(place, X[:901], changed="refuse")
    assert len(np.load(place.folder / "table.npy")) == 900
    joined_again(place, X[:950], changed="refuse")
    with pytest.raises(NotAllowed, match="other columns"):
        joined_again(place, X[:950, :5])


def category_table(names):
    """A column of numbers and one of positions in sorted levels, as a file of these names is read."""
    levels = tuple(sorted(set(names)))
    numbers = table()[: len(names), :1]
    return np.column_stack([numbers, [float(levels.index(name)) for name in names]]), {"x1": levels}


def sums_of(coordinator, n_columns):
    """Count and sum of the column of numbers."""
    measure = setup.Measure(columns=("x0",), means=np.zeros(1), scales=np.full(1, 1e-6))
    sketch = unpack(coordinator.ask(setup.Survey())[0], (setup.Sketch,))[0]
    measured = unpack(coordinator.ask(measure)[0], (setup.Measured,))[0]
    coordinator.new_run()
    assert len(sketch.inputs) == n_columns
    return sketch, measured


def test_a_new_level_does_not_make_all_rows_new_ones(tmp_path, capsys):
    """Positions in sorted levels move with a level that sorts first: the table would be answered about anew."""
    names = ["b"] * 150 + ["c"] * 100 + ["d"] * 50
    X, levels = category_table(names)
    place = joined(tmp_path / "north", X, levels)
    coordinator = Malicious(place, X)
    first, sums = sums_of(coordinator, 2)
    X, levels = category_table([*names, "a"])
    joined(place.folder, X, levels)
    second, again = sums_of(coordinator, 2)
    with capsys.disabled():
        print(f"\n  a new level: {second.count - first.count} rows more are answered about", end=" ")
    assert (first.count, second.count) == (300, 300)
    assert again.means.tolist() == sums.means.tolist()
    X, levels = category_table([*names, *["a"] * FLOOR])
    joined(place.folder, X, levels)
    third, _ = sums_of(coordinator, 2)
    assert third.count == 300 + FLOOR
    assert dict(zip(third.levels, third.level_rows.tolist(), strict=True)) == {
        "0:b": 150,
        "0:c": 100,
        "0:d": 50,
        "0:a": FLOOR,
    }


def test_levels_that_are_too_rare_to_be_sent_are_not_told_by_a_plan_that_names_them(tmp_path, capsys):
    """Whoever guesses the name of a level asks for its feature: how many rows of a cell have it?"""
    rng = np.random.default_rng(1)
    names = ["healthy"] * 280 + ["ill"] * 20
    rare = [int(at) for at in rng.permutation(280)[:7]]
    for at in rare:
        names[at] = "rare"
    X, levels = category_table(names)
    coordinator = Malicious(joined(tmp_path / "north", X, levels), X)
    measure = setup.Measure(columns=("x0",), means=np.zeros(1), scales=np.ones(1))
    assert coordinator.ask(measure) is not None
    plan = setup.Prepare(
        seed=0,
        columns=("x0",),
        means=np.zeros(1),
        scales=np.ones(1),
        categories=("x1",),
        levels=("0:rare", "0:healthy"),
        shares=np.array([0.5, 0.5]),
    )
    assert coordinator.ask(plan) is not None, coordinator.seen
    micro = micro_clusters(coordinator)
    n_rare = micro.counts * (micro.means[:, 1] * np.sqrt(0.5) + 0.5)
    with capsys.disabled():
        print(f"\n  rows of a rare level that is asked for by name: {n_rare.sum():.0f} of {len(rare)}", end=" ")
    np.testing.assert_allclose(n_rare, 0, atol=1e-9)
