"""Gaps, columns of two values, and cuts that creep: what moves when one row has it, and what that tells."""

from dataclasses import replace

import numpy as np
import pytest
from malicious import FLOOR, N_ROWS, Malicious, joined, state_folder, table
from test_preparation import measure_of, micro_clusters, opened, plan_of
from test_shaping import said

from koncord.protocol import setup

# --- gaps ---


def test_a_gap_that_is_filled_in_each_month_tells_no_value(tmp_path, capsys):
    """The sum of a column moves by the value that came, less what stood there before."""
    rng = np.random.default_rng(0)
    whole = table()[:, :5]
    with_gap = rng.permutation(N_ROWS)[:60]
    place, seen = None, []
    for month in range(20):
        X = whole.copy()
        X[with_gap[month:], 0] = np.nan
        place = joined(tmp_path / "north", X)
        coordinator = Malicious(place, X)
        coordinator.run = f"run-{month + 1}"
        measure = replace(measure_of(X), low=None, high=None)
        sums = opened(coordinator, measure)
        opened(coordinator, replace(plan_of(measure), missing="mean", fill=np.zeros(5)))
        micro = micro_clusters(coordinator)
        seen.append(np.r_[sums.counts, sums.counts * sums.means, micro.counts.sum(), micro.counts @ micro.means])
    n_moved = int((np.diff(np.array(seen), axis=0) != 0).any(axis=1).sum())
    said(capsys, f"a gap filled in each month: sums moved in {n_moved} of 19 months")
    assert n_moved == 0


@pytest.mark.parametrize("n_gaps", [1, 5, FLOOR - 1, FLOOR, 3 * FLOOR])
def test_how_many_values_are_missing_is_sent_in_multiples_of_the_floor(n_gaps, tmp_path, capsys):
    X = table()[:, :4].copy()
    X[np.random.default_rng(1).permutation(N_ROWS)[:n_gaps], 2] = np.nan
    coordinator = Malicious(state_folder(tmp_path, X), X)
    sketch = opened(coordinator, setup.Survey())
    sums = opened(coordinator, replace(measure_of(X), low=None, high=None, paired=True))
    told = {int(sketch.available[2]), int(sums.counts[2]), *sums.pairs[2].astype(int).tolist()}
    said(capsys, f"{n_gaps} values missing: {sorted(told)} of {N_ROWS} are said to be there")
    assert N_ROWS - n_gaps not in told or n_gaps % FLOOR == 0


def test_rows_with_a_gap_are_not_set_apart_by_a_scale_on_which_only_their_fill_is_far(tmp_path, capsys):
    """All gaps are filled in with the largest value of the column, and the column alone counts: a cell of gaps?"""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 3))
    is_gap = np.zeros(600, dtype=bool)
    is_gap[rng.permutation(600)[:30]] = True
    X[is_gap, 0] = np.nan
    coordinator = Malicious(state_folder(tmp_path, X), X)
    measure = replace(measure_of(X), low=None, high=None, scales=np.array([1e-3, 1e3, 1e3]))
    opened(coordinator, measure)
    opened(coordinator, replace(plan_of(measure), missing="mean", fill=np.array([1e6, 0.0, 0.0])))
    micro = micro_clusters(coordinator)
    top = micro.means[:, 0].argmax()
    rest = np.sort(X[~is_gap, 0])[-1]
    said(
        capsys,
        f"30 rows with a gap: the micro-cluster at the fill has {micro.counts[top]} rows, "
        f"mean {micro.means[top, 0] * 1e-3:.2f}, the largest value is {rest:.2f}",
    )
    assert micro.counts.min() >= FLOOR


# --- two values ---


@pytest.mark.parametrize("n_positive", [1, 2, 5, FLOOR - 1, FLOOR + 3])
def test_a_cut_along_a_column_of_two_values_tells_no_small_count(n_positive, tmp_path, capsys):
    rng = np.random.default_rng(n_positive)
    X = np.c_[table()[:, :3], np.zeros(N_ROWS)]
    X[rng.permutation(N_ROWS)[:n_positive], 3] = 1
    parameters = {"n_clusters": 4, "n_rounds": 9}
    place = state_folder(tmp_path, X)
    coordinator = Malicious(place, X, aggregator="fedkmeans", parameters=parameters)
    told = set()
    for run in range(4):
        scales = np.array([1e3, 1e3, 1e3, 1e-3]) if run % 2 else np.ones(4)
        assert coordinator.prepare(scales=scales), coordinator.seen
        for _ in range(8):
            centers = X[rng.permutation(N_ROWS)[:4]] / scales
            centers[:2, 3] = 0.0, 1 / scales[3]
            up = coordinator.refine(centers)[0]
            has = up.counts > 0
            told |= set(np.round(up.sums[has, 3] * scales[3], 6).tolist())
            assert up.counts[has].min() >= FLOOR
        coordinator.new_run()
    said(capsys, f"{n_positive} positives of {N_ROWS}: groups are said to have {sorted(told)}")
    assert not told & {1.0, 2.0}
    assert all(abs(each / 3 - round(each / 3)) < 1e-6 for each in told)


# --- cuts that creep ---


def crossings(coordinator, column, start, stop, n_questions):
    """Where a group first leaves as a cut goes from one end to the other, a question each; eight in a run."""
    found, before, d = [], None, coordinator.n_features
    for at, cut in enumerate(np.linspace(start, stop, n_questions)):
        if at % 8 == 0:
            coordinator.new_run()
            coordinator.prepare()
        centers = np.zeros((2, d))
        centers[:, column] = cut - 9, cut + 9
        counts = coordinator.refine(centers)[0].counts.tolist()
        if before is not None and counts != before:
            found.append(cut)
        before = counts
    return np.array(found)


def test_what_creeping_cuts_tell_is_at_most_a_value_for_each_cell_and_no_row(tmp_path, capsys):
    """450 questions along each of two columns: each time a group leaves, the cut is where its last row lies."""
    X = np.random.default_rng(7).normal(size=(400, 2))
    parameters = {"n_clusters": 2, "n_rounds": 9}
    coordinator = Malicious(state_folder(tmp_path, X), X, aggregator="fedkmeans", parameters=parameters)
    step = 5.0 / 449
    found = [crossings(coordinator, column, 2.5, -2.5, 450) for column in (0, 1)]
    near = [np.abs(each[:, None] + step / 2 - X[:, at]).min(axis=1) <= step for at, each in enumerate(found)]
    pairs = np.array([(a, b) for a in found[0] for b in found[1]]).reshape(-1, 2) + step / 2
    gaps = np.abs(pairs[:, None] - X).max(axis=2).min(axis=1)
    by_chance = np.abs(np.random.default_rng(8).normal(size=(len(pairs), 1, 2)) - X).max(axis=2).min(axis=1)
    n_rows, n_chance = int((gaps <= step).sum()), int((by_chance <= step).sum())
    said(
        capsys,
        f"creeping cuts, 900 questions, 400 rows: {[len(each) for each in found]} values to within {step:.3f}; "
        f"{n_rows} of {len(pairs)} pairs of them are rows ({n_chance} of as many drawn ones)",
    )
    assert sum(map(len, found)) <= len(X) // FLOOR
    assert all(each.all() for each in near)  # each is a value of some row: docs/security.md
    assert n_rows <= n_chance + 3 * np.sqrt(n_chance) + 2
