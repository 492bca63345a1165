"""What a coordinator makes of the shape of columns: fences, fills, products, silhouettes, cuts."""

from dataclasses import replace

import numpy as np
import pytest
from malicious import FLOOR, N_ROWS, Malicious, joined, state_folder, table
from test_preparation import measure_of, micro_clusters, opened, plan_of

from koncord.aggregate import fedkmeans
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.versions import read_version

EXACT = 1e-6


def said(capsys, text):
    with capsys.disabled():
        print(f"\n  {text}", end=" ")


# --- fences ---


def values_in_windows(coordinator, X, low, high):
    """Values that are told if one row of a micro-cluster lies inside the window and all others at its ends."""
    measure = replace(measure_of(X), low=low, high=high)
    opened(coordinator, measure)
    opened(coordinator, plan_of(measure))
    micro = micro_clusters(coordinator)
    width = high - low
    rests = (micro.counts[:, None] * (micro.means - low)) % width
    is_inside = (rests > EXACT * width) & (rests < (1 - EXACT) * width)
    gaps = np.abs((low + rests)[:, :, None] - X.T).min(axis=2)
    return int((gaps[is_inside] < EXACT).sum()), int(is_inside.sum())


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2, 0.6, 0.97])
def test_a_fence_is_no_window_through_which_single_values_are_seen(share, tmp_path, capsys, recovered):
    X = table()
    coordinator = Malicious(state_folder(tmp_path, X), X)
    low, high = np.quantile(X, [(1 - share) / 2, (1 + share) / 2], axis=0)
    n_told, n_guesses = values_in_windows(coordinator, X, low, high)
    said(capsys, f"fences around {share:.0%} of the values: {n_told} values told of {n_guesses} guesses")
    recovered(values=n_told)


def test_no_cell_has_a_few_values_beside_others_at_a_fence(tmp_path, capsys):
    """Sum and squares of a cell tell two unknown values if all others are at the fence, and so known."""
    rng, n_few = np.random.default_rng(0), 0
    for draw in range(5):
        X = rng.normal(size=(400, 2))
        (tmp_path / f"{draw}").mkdir()
        place = state_folder(tmp_path / f"{draw}", X)
        parameters = {"n_clusters": 2, "n_rounds": 9}
        coordinator = Malicious(place, X, aggregator="fedkmeans", parameters=parameters)
        fence = np.sort(X[:, 0])[-18:-16].mean()  # 17 values beyond
        measure = replace(measure_of(X), high=np.array([fence, 1e6]))
        opened(coordinator, measure)
        opened(coordinator, plan_of(measure))
        coordinator.ask(fedkmeans.Begin(n_clusters=2, local_iters=1, min_count=1))
        for cut in np.linspace(fence, fence - 0.4, 8):
            assert coordinator.refine(np.array([[cut - 9, 0.0], [cut + 9, 0.0]])) is not None
        cells = read_version(place.folder).store.read()
        n_open = np.bincount(cells.of_row, X[:, 0] < fence, minlength=len(cells))
        n_few += int(((n_open > 0) & (n_open < FLOOR // 2)).sum())
    said(capsys, f"cells of values at a fence and a few others: {n_few} in 5 tables")
    assert n_few == 0


def test_a_sketch_is_the_same_before_and_behind_any_fence(tmp_path):
    X = np.random.default_rng(3).normal(size=(500, 2))
    coordinator = Malicious(state_folder(tmp_path, X), X)
    before = pack(opened(coordinator, setup.Survey()))
    opened(coordinator, replace(measure_of(X), low=np.full(2, -0.9), high=np.full(2, 0.9)))
    coordinator.new_run()
    assert pack(opened(coordinator, setup.Survey())) == before


# --- sums of products ---


def products_asked(coordinator, X, about, scales):
    measure = replace(measure_of(X), low=None, high=None, means=about, scales=scales, paired=True)
    sent = opened(coordinator, measure)
    coordinator.new_run()
    return sent.products * np.outer(scales, scales)


@pytest.mark.parametrize("n_rows", [200, N_ROWS])
def test_products_of_columns_about_chosen_means_tell_no_row_with_a_gap(n_rows, tmp_path, capsys):
    """Sums over the rows that have both columns, less sums over those that have one, are the row that lacks one."""
    X = table()[:n_rows].copy()
    d = X.shape[1]
    X[17, 3] = np.nan
    coordinator = Malicious(state_folder(tmp_path, X), X)
    scales = np.full(d, 1e-6)
    plain = products_asked(coordinator, X, np.zeros(d), scales)
    sums = [plain - products_asked(coordinator, X, about, scales) for about in np.eye(d)[[3, 5]]]
    guess = (sums[1][5] - sums[0][3])[np.delete(np.arange(d), [3, 5])]
    error = np.abs(guess - np.delete(X[17], [3, 5])).max()
    said(capsys, f"products about chosen means: the row with a gap to within {error:.2g}")
    assert error > 0.5


def test_sums_tell_the_same_on_whatever_scale_they_are_asked(tmp_path):
    X = np.random.default_rng(4).normal(3, 2, size=(300, 3))
    coordinator = Malicious(state_folder(tmp_path, X), X)
    seen = []
    for about, scale in ((0.0, 1.0), (2.9, 0.017), (3.0004, 1.7e-6)):
        measure = replace(measure_of(X), low=None, high=None, means=np.full(3, about), scales=np.full(3, scale))
        sums = opened(coordinator, replace(measure, paired=True))
        covariances = sums.products / sums.pairs - np.outer(sums.means, sums.means)
        spreads = np.sqrt(sums.scatters / sums.counts)
        seen.append(np.concatenate([about + scale * sums.means, scale * spreads, (covariances * scale**2).ravel()]))
        coordinator.new_run()
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-6)
    np.testing.assert_allclose(seen[2], seen[0], rtol=1e-3)  # floats, about a mean that is large beside the scale


# --- what stands in for gaps ---


class Filling:
    """Runs that differ in what stands in for the gaps of one column, whose scale hides it from the cells."""

    def __init__(self, place, X, rng):
        self.X, d = X, X.shape[1]
        self.coordinator = Malicious(place, X, aggregator="fedkmeans", parameters={"n_clusters": 50, "n_rounds": 9})
        self.scales = np.where(np.arange(d) == 0, 1e6, 1.0)
        self.centers = np.nan_to_num(X[rng.permutation(len(X))[:50]]) / self.scales
        self.centers[:, 0] = 0

    def sums(self, covariances, fill, missing="gaussian"):
        """Sums of the column with gaps by nearest center."""
        measure = replace(measure_of(self.X), low=None, high=None, scales=self.scales)
        opened(self.coordinator, measure)
        plan = replace(plan_of(measure), missing=missing, fill=fill, covariances=covariances)
        assert self.coordinator.ask(plan) is not None, self.coordinator.seen
        self.coordinator.ask(fedkmeans.Begin(n_clusters=50, local_iters=1, min_count=1))
        found = self.coordinator.refine(self.centers)[0].sums[:, 0] * self.scales[0]
        self.coordinator.new_run()
        return found


@pytest.mark.parametrize("grows", [False, True], ids=["one table", "a table that grows"])
def test_what_stands_in_for_gaps_tells_nothing_of_the_rows_that_have_them(grows, tmp_path, capsys, recovered):
    """The fill of a gap is another column of its row, in one run after the other: the difference is the row."""
    rng = np.random.default_rng(0)
    X = table()[:, :5].copy()
    d = X.shape[1]
    X[rng.permutation(len(X))[:50], 0] = np.nan
    place = state_folder(tmp_path, X[:900] if grows else X)
    attack = Filling(place, X, rng)
    base = attack.sums(np.eye(d), np.zeros(d))
    if grows:
        joined(place.folder, X)
        base = attack.sums(np.eye(d), np.zeros(d))
    n_gaps = np.rint(attack.sums(np.eye(d), np.eye(d)[0] / attack.scales[0]) - base)
    guesses = np.zeros((len(n_gaps), d))
    for column in range(1, d):
        covariances = np.eye(d)
        covariances[0, 0] = 100
        covariances[0, column] = covariances[column, 0] = 1.0
        guesses[:, column] = (attack.sums(covariances, np.zeros(d)) - base) / attack.scales[0]
    attack.sums(None, np.zeros(d), missing="neighbors")
    errors = np.abs(guesses[:, None, 1:] - X[:, 1:]).max(axis=2).min(axis=1)
    n_told = int((errors[n_gaps == 1] < EXACT).sum())
    said(capsys, f"fills that are other columns of the row: {n_told} rows of {int((n_gaps == 1).sum())} single gaps")
    recovered(values=n_told)
    assert not n_gaps.any()  # the first plan fills in, whatever others say
    assert not guesses.any()


def test_a_fill_far_from_all_values_is_no_mark(tmp_path):
    X = np.random.default_rng(1).normal(size=(300, 3))
    X[:40, 0] = np.nan
    coordinator = Malicious(state_folder(tmp_path, X), X)
    measure = replace(measure_of(X), low=None, high=None)
    opened(coordinator, measure)
    plan = replace(plan_of(measure), missing="mean", fill=np.array([1e9, 0.0, 0.0]))
    opened(coordinator, plan)
    micro = micro_clusters(coordinator)
    assert np.abs(micro.means[:, 0]).max() <= np.nanmax(np.abs(X[:, 0]))


def test_a_column_that_hardly_a_row_has_is_not_answered_about(tmp_path):
    X = np.random.default_rng(2).normal(size=(300, 3))
    X[5:, 1] = np.nan
    coordinator = Malicious(state_folder(tmp_path, X), X)
    assert coordinator.ask(replace(measure_of(X), low=None, high=None)) is None
    assert "hardly a row" in coordinator.seen


# --- silhouettes ---


def test_silhouettes_are_the_same_for_all_rows_with_the_same_sums_over_cells(tmp_path):
    """A silhouette of rows would be an equation for them, another one on every scale; it is one of cells."""
    rng = np.random.default_rng(5)
    parts = [rng.normal(0, 1, (25, 2)), rng.normal(6, 1, (25, 2))]
    turned = [2 * part.mean(axis=0) - part for part in parts]  # other rows, the same count, mean and scatter
    seen = []
    for name, rows in (("one", parts), ("other", turned)):
        X = np.concatenate(rows)
        (tmp_path / name).mkdir()
        coordinator = Malicious(state_folder(tmp_path / name, X), X)
        own = []
        for scale in (1.0, 0.3, 7.0):
            coordinator.prepare(scales=np.array([1.0, scale]))
            centers = np.array([[0.0, 0.0], [6.0, 6.0 / scale]])
            reply = coordinator.ask(setup.Attribute(centers=centers))
            own.append(unpack(reply[0], (setup.Holdings,))[0].silhouettes)
            coordinator.new_run()
        seen.append(np.array(own))
    assert not np.isnan(seen[0]).any()
    np.testing.assert_array_equal(seen[0], seen[1])


# --- retries ---


def test_sums_that_are_asked_for_again_after_the_plan_are_the_same(tmp_path):
    X = np.exp(np.random.default_rng(6).normal(size=(300, 2)))
    coordinator = Malicious(state_folder(tmp_path, X), X)
    measure = measure_of(X, logged=1)
    first = coordinator.ask(measure)
    opened(coordinator, replace(plan_of(measure), means=np.full(2, 0.5)))
    assert coordinator.ask(measure) == first
    coordinator.new_run()
    assert coordinator.ask(measure) == first
