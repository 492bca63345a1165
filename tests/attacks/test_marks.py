"""Gaps, columns of two values, and cuts that creep: what moves when one row has it, and what that tells."""

from dataclasses import replace

import numpy as np
import pytest
from malicious import FLOOR, N_ROWS, Malicious, joined, state_folder, streamed_folder, table
from test_preparation import measure_of, micro_clusters, opened, plan_of
from test_shaping import said

from koncord.protocol import setup
from koncord.protocol.wire import unpack
from koncord.session.versions import read_version

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


# --- cuts ---


class Sides:
    """Asks on which side of a cut anything lies, by sums (FedKMeans) or by rows of each cluster (the last message)."""

    def __init__(self, place, X, by):
        self.by = by
        self.coordinator = (
            Malicious(place, X, aggregator="fedkmeans", parameters={"n_clusters": 2, "n_rounds": 9})
            if by == "sums"
            else Malicious(place, X)
        )
        self.coordinator.run = "run-2"
        self.n_left = 0

    def counts(self, direction, cut):
        """Rows before and beyond a cut across a direction."""
        if not self.n_left:
            self.coordinator.new_run()
            self.coordinator.moments()
            assert self.coordinator.prepare(), self.coordinator.seen
            self.n_left = 8 if self.by == "sums" else 1
        self.n_left -= 1
        centers = np.array([direction * (cut - 50), direction * (cut + 50)])
        if self.by == "sums":
            return self.coordinator.refine(centers)[0].counts
        return unpack(self.coordinator.ask(setup.Attribute(centers=centers))[0], (setup.Holdings,))[0].counts

    def farthest(self, direction):
        """How far along a direction a cut lies beyond which there is something, by bisection."""
        low, high = -6.0, 6.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.counts(direction, middle)[1] > 0 else (low, middle)
        return low


@pytest.mark.parametrize(
    ("is_streamed", "by"), [(False, "sums"), (False, "rows of clusters"), (True, "rows of clusters")]
)
def test_where_a_cell_goes_tells_no_row_of_it(is_streamed, by, tmp_path, capsys, recovered):
    """With the most of its rows it told the middle one, exactly: 8 of 8 rows that were tried, 162 questions each."""
    X = np.random.default_rng(7).normal(size=(300, 2))
    place = streamed_folder(tmp_path / "site", X) if is_streamed else state_folder(tmp_path, X)
    first = Malicious(place, X)
    first.moments()
    first.prepare()
    micro = micro_clusters(first)
    sides, found = Sides(place, X, by), []
    for angle in (0.3, 2.0):
        directions = np.array([[np.cos(angle + more), np.sin(angle + more)] for more in (-1e-4, 0.0, 1e-4)])
        ends = np.array([sides.farthest(direction) for direction in directions])
        row, *_ = np.linalg.lstsq(directions, ends, rcond=None)
        if np.abs(directions @ row - ends).max() < 1e-7:
            found.append(row)
    n_rows = int((np.abs(np.array(found)[:, None] - X).max(axis=2).min(axis=1) < 1e-6).sum())
    n_means = int((np.abs(np.array(found)[:, None] - micro.means).max(axis=2).min(axis=1) < 1e-6).sum())
    asked = sides.coordinator.n_asked
    said(capsys, f"where cells go, {asked} questions: {n_rows} rows, {n_means} means that were sent, of {len(found)}")
    recovered(rows=n_rows)
    assert is_streamed or n_means == len(found) == 2  # micro-clusters of batches are of several cells


def crossings(sides, direction, start, stop, n_questions):
    """Where an answer changes as a cut goes from one end to the other, found more nearly by bisection."""
    found, before, last = [], None, start
    for cut in np.linspace(start, stop, n_questions):
        counts = sides.counts(direction, cut).tolist()
        if before is not None and counts != before:
            near, far = last, cut
            for _ in range(20):
                middle = (near + far) / 2
                near, far = (middle, far) if sides.counts(direction, middle).tolist() == before else (near, middle)
            found.append(far)
        before, last = counts, cut
    return np.array(found)


def test_a_creeping_cut_tells_means_of_cells_and_no_value(tmp_path, capsys, recovered):
    """Cells that were cut where somebody asks told the row at the edge of each: 18 values of one column."""
    X = np.random.default_rng(7).normal(size=(400, 2))
    place = state_folder(tmp_path, X)
    sides = Sides(place, X, "sums")
    found = [crossings(sides, direction, 2.5, -2.5, 250) for direction in np.eye(2)]
    of_row = read_version(place.folder).store.read().of_row
    n_values = n_means = 0
    for column, cuts in enumerate(found):
        means = np.bincount(of_row, X[:, column]) / np.bincount(of_row)
        n_values += int((np.abs(cuts[:, None] - X[:, column]).min(axis=1) < 1e-5).sum())
        n_means += int((np.abs(cuts[:, None] - means).min(axis=1) < 1e-5).sum())
    n_found = sum(map(len, found))
    said(
        capsys,
        f"creeping cuts, {sides.coordinator.n_asked} questions, 400 rows: {n_values} values of a column, {n_means} of "
        f"{n_found} are means of cells",
    )
    assert n_found > 20
    recovered(values=n_values)
    assert n_means == n_found
