"""The joint partition: no linear combination of a site's answers stands for fewer rows than its floor."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koncord import Consensus, FedKMeans, KFed, KnownCounts
from koncord.aggregate import consensus, fedkmeans, kfed
from koncord.aggregate.base import Local
from koncord.kernels.assign import nearest, sums_by_label
from koncord.protocol import setup
from koncord.protocol.dominance import KNOWN_BY_SQUARES, PERCENT, bounds_of, is_dominated, safe_cuts
from koncord.protocol.partition import BASE, JointPartition, divided, one_cell, rows_of, two_valued_as_sent
from koncord.protocol.surrogates import surrogate_rows
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.versions import first_version, next_version
from same_cells import turned

SEEDS = st.integers(0, 2**32 - 1)


def indicators(all_labels):
    """A row of the matrix for each group of each answer: which rows of the table it is a sum of."""
    return np.array([labels == label for labels in all_labels for label in np.unique(labels)], dtype=float)


def fewest_rows_told(answers, most):
    """The smallest number of rows, up to `most`, that some combination of the answers is a sum of; None if none is.

    A combination is zero outside of a set of rows if the answers lose rank when only the other rows are looked at.
    """
    rank = np.linalg.matrix_rank(answers)
    n = answers.shape[1]
    for size in range(1, most + 1):
        for rows in combinations(range(n), size):
            if np.linalg.matrix_rank(np.delete(answers, rows, axis=1)) < rank:
                return size
    return None


def hostile_label(rng, X):
    """A question: a plane through the rows, some that all but graze single ones, or any sorting of what it is given."""
    kind = rng.integers(3)
    direction = rng.normal(size=X.shape[1])
    if kind == 0:
        cut = rng.choice(X @ direction)
        return lambda rows: (rows @ direction > cut).astype(np.int64)
    if kind == 1:
        cuts = np.sort(rng.choice(X @ direction, min(3, len(X)), replace=False))
        return lambda rows: np.digitize(rows @ direction, cuts).astype(np.int64)
    seed = int(rng.integers(2**31))
    return lambda rows: np.random.default_rng(seed).integers(3, size=len(rows))


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, least=st.integers(2, 4), n_questions=st.integers(1, 25))
def test_no_combination_of_answers_to_any_questions_stands_for_fewer_rows_than_the_floor(seed, least, n_questions):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(least, 13)), 2)).round(int(rng.integers(3)))
    partition = JointPartition(rows_of(X, least), least)
    answers = [np.zeros(len(X), dtype=np.int64)]
    for _ in range(n_questions):
        cells = partition.cut(X * np.exp(rng.normal(size=2)))  # on a scale of its own
        assert np.bincount(cells.of_row).min() >= least
        local = local_of(surrogate_rows(X, cells.of_row), cells.of_row)
        answers.append(local.grouped(hostile_label(rng, X)).labels)
    assert fewest_rows_told(indicators(answers), least - 1) is None


def local_of(X, cells):
    return Local(X=X, phase1=lambda: None, stream=(0,), min_report=2, cells=cells)


def test_without_the_rule_the_same_questions_tell_single_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    answers = [hostile_label(rng, X)(X) for _ in range(10)]
    assert fewest_rows_told(indicators(answers), 2) == 1


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, least=st.integers(2, 20))
def test_cells_are_cut_once_in_groups_of_enough_rows_that_no_row_dominates(seed, least):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(1, 200)), 2)) ** 3
    rows = rows_of(X, least)
    partition = JointPartition(rows, least)
    cells = partition.cut(X)
    counts = np.bincount(cells.of_row)
    if len(cells) > 1:
        assert counts.min() >= least
        assert not any(rows.is_told(np.flatnonzero(cells.of_row == cell)) for cell in range(len(cells)))
    assert partition.cut(X[:, ::-1] * [1, 1000]) is cells


def test_a_group_of_rows_that_is_added_is_cut_among_itself():
    X = np.random.default_rng(0).normal(size=(300, 2))
    first = first_version(X[:200], 20)
    partition = JointPartition(first.rows(20), 20)
    first = replace(first, cells=partition.cut(X[:200]))
    second, _ = next_version(first, X, 20)
    assert second.cells.is_cut.sum() == len(first.cells) == len(second.cells) - 1
    after = JointPartition(second.rows(20), 20)
    after.store.cells = second.cells
    cells = after.cut(X)
    np.testing.assert_array_equal(cells.of_row[:200], first.cells.of_row)
    added = np.unique(cells.of_row[200:])
    assert len(added) > 3
    assert np.bincount(cells.of_row).min() >= 20
    assert cells.is_cut.all()


# --- surrogate rows ---


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, d=st.integers(1, 12), n_cells=st.integers(1, 5))
def test_surrogate_rows_have_the_moments_of_every_cell_and_are_no_rows(seed, d, n_cells):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20 * n_cells, d)) @ rng.normal(size=(d, d)) + 10
    cells = rng.permutation(np.repeat(np.arange(n_cells), 20))
    found = surrogate_rows(X, cells)
    for cell in range(n_cells):
        own, mine = X[cells == cell], found[cells == cell]
        np.testing.assert_allclose(mine.mean(axis=0), own.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(np.cov(mine.T, bias=True), np.cov(own.T, bias=True), atol=1e-9, rtol=1e-7)
    assert d == 1 or np.abs(found[:, None] - X).max(axis=2).min() > 1e-6


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, d=st.integers(1, 12))
def test_surrogate_rows_are_those_of_any_rows_with_the_same_moments_of_the_cells(seed, d):
    rng = np.random.default_rng(seed)
    X, cells = rng.normal(size=(60, d)), np.repeat(np.arange(2), 30)
    other = turned(X, cells, rng)
    assert np.abs(other - X).max() > 0.1
    np.testing.assert_allclose(surrogate_rows(other, cells), surrogate_rows(X, cells), atol=1e-6)


def test_a_column_that_is_constant_in_a_cell_stays_so_to_the_last_bit():
    X = np.random.default_rng(0).normal(size=(60, 4))
    X[:, 2] = -0.19092459023872171
    assert (surrogate_rows(X, np.repeat(np.arange(3), 20))[:, 2] == X[0, 2]).all()


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3)), np.arange(4.0)[:, None], np.empty((0, 2))])
def test_surrogates_of_few_rows_or_of_equal_ones(rows):
    found = surrogate_rows(rows, np.zeros(len(rows), dtype=np.int64))
    assert found.shape == rows.shape
    np.testing.assert_allclose(found.sum(axis=0), rows.sum(axis=0))
    np.testing.assert_allclose((found**2).sum(axis=0), (rows**2).sum(axis=0))


# --- what a site sends ---


def site_of(X, aggregator, floor):
    partition = JointPartition(rows_of(X, floor), floor)
    columns = tuple(f"x{at}" for at in range(X.shape[1]))
    policy = SitePolicy(min_report=floor)
    site = Site("s", X, columns, estimator=KnownCounts(3), aggregator=aggregator, policy=policy, partition=partition)
    site.answer(pack(setup.Describe()))
    d = len(columns)
    site.answer(pack(setup.Prepare(seed=1, columns=columns, means=np.zeros(d), scales=np.ones(d))))
    return site, partition


def asked(site, round_, message, kind):
    return unpack(site.answer(pack(message, round_=round_)), (kind,))[0]


def cells_behind(partition, centers):
    """Counts and sums of whole cells by the center nearest to their mean, as an honest site would tell of its rows."""
    cells, rows = partition.open(), partition.rows.X
    means = sums_by_label(rows, cells.of_row, len(cells)) / np.bincount(cells.of_row)[:, None]
    labels = nearest(means, centers)[cells.of_row]
    return np.bincount(labels, minlength=len(centers)), sums_by_label(rows, labels, len(centers))


@pytest.mark.parametrize("seed", range(4))
def test_all_that_consensus_and_the_end_of_a_run_tell_are_sums_over_the_cells_of_one_partition(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3))
    site, partition = site_of(X, Consensus(), 8)
    micro = asked(site, 1, consensus.Report(min_report=8), consensus.MicroClusters)
    cells = partition.open()
    assert np.bincount(cells.of_row).min() >= 8
    rows = partition.rows.X
    order = np.lexsort(micro.means.T)
    means = sums_by_label(rows, cells.of_row, len(cells)) / np.bincount(cells.of_row)[:, None]
    np.testing.assert_allclose(micro.means[order], means[np.lexsort(means.T)], atol=1e-9)
    np.testing.assert_allclose(micro.spread, ((rows - means[cells.of_row]) ** 2).sum(axis=0))
    centers = X[rng.choice(len(X), 4, replace=False)]
    held = asked(site, 2, setup.Attribute(centers=centers), setup.Holdings)
    np.testing.assert_array_equal(held.counts, cells_behind(partition, centers)[0])
    assert partition.open() is cells


@pytest.mark.parametrize("seed", range(4))
def test_means_by_nearest_center_are_of_whole_cells_of_one_partition(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3))
    site, partition = site_of(X, FedKMeans(4, n_rounds=6), 8)
    for round_ in range(1, 6):
        centers = X[rng.choice(len(X), 4, replace=False)]
        down = fedkmeans.Refine(centers=centers, local_iters=1, min_count=1, drop_empty=False)
        up = asked(site, round_, down, fedkmeans.LocalMeans)
        counts, sums = cells_behind(partition, centers)
        np.testing.assert_array_equal(up.counts, counts[counts > 0])
        np.testing.assert_allclose(up.counts[:, None] * up.centers, sums[counts > 0], atol=1e-9)


def test_micro_clusters_that_must_be_larger_than_cells_are_of_whole_cells():
    site, partition = site_of(np.random.default_rng(2).normal(size=(400, 3)), Consensus(), 10)
    micro = asked(site, 1, consensus.Report(min_report=50), consensus.MicroClusters)
    sizes = np.bincount(partition.open().of_row)
    assert micro.counts.min() >= 50
    assert micro.counts.sum() == 400
    assert len(micro) > 4
    assert sizes.max() < 50


@pytest.mark.parametrize(
    ("aggregator", "messages", "kind"),
    [
        (
            FedKMeans(3, n_rounds=4),
            [
                fedkmeans.Begin(n_clusters=3, local_iters=1, min_count=1),
                *(
                    fedkmeans.Refine(
                        centers=np.random.default_rng(at).normal(size=(3, 3)),
                        local_iters=2,
                        min_count=1,
                        drop_empty=False,
                    )
                    for at in range(3)
                ),
            ],
            fedkmeans.LocalMeans,
        ),
        (KFed(3), [kfed.SendCenters(n_init=2, min_count=1)], kfed.LocalCenters),
    ],
    ids=["fedkmeans", "kfed"],
)
def test_means_of_local_clusters_are_means_over_the_cells_of_one_partition(aggregator, messages, kind):
    site, partition = site_of(np.random.default_rng(3).normal(size=(150, 3)), aggregator, 10)
    told = [asked(site, at, message, kind) for at, message in enumerate(messages, 1)]
    cells, rows = partition.open(), partition.rows.X
    counts = np.bincount(cells.of_row)
    assert counts.min() >= 10
    sums = sums_by_label(rows, cells.of_row, len(cells))
    for center in [center for up in told for center in up.centers]:
        assert any(
            np.allclose(sums[list(some)].sum(axis=0) / counts[list(some)].sum(), center)
            for size in range(1, len(cells) + 1)
            for some in combinations(range(len(cells)), size)
        )


def test_labels_of_rows_are_not_taken():
    local = local_of(np.zeros((4, 2)), np.zeros(4, dtype=np.int64))
    with pytest.raises(TypeError, match="a function that labels rows"):
        local.grouped(np.zeros(4, dtype=np.int64))


# --- dominance ---


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, n=st.integers(20, 400), tail=st.floats(0, 4))
@example(seed=462406, n=20, tail=1.192092896e-07)  # rows close together, and one far away
def test_after_the_dominance_rule_no_row_makes_up_more_than_its_share_of_a_column(seed, n, tail):
    rng = np.random.default_rng(seed)
    X = np.exp(tail * rng.normal(size=(n, 2))) * rng.choice([-1, 1], size=(n, 2))
    low, high = bounds_of(X)
    clipped = np.clip(X, low, high)
    squares = (clipped - np.median(X, axis=0)) ** 2
    assert (squares.max(axis=0) <= max(PERCENT, 4 / n) * squares.sum(axis=0) * (1 + 1e-9)).all()
    untouched = (X - np.median(X, axis=0)) ** 2
    is_fine = untouched.max(axis=0) <= max(PERCENT, 4 / n) * untouched.sum(axis=0)
    np.testing.assert_array_equal(clipped[:, is_fine], X[:, is_fine])


def test_a_value_that_only_few_rows_have_at_all_is_no_longer_told():
    X = np.zeros((200, 3))
    X[:5, 0] = [7, 8, 9, 10, 11]  # fewer rows than ten make up all of the spread
    X[0, 1] = 1e9  # one of two values
    X[:, 2] = np.arange(200)
    rows = rows_of(X, 20)
    assert not rows.X[:, 0].any()
    assert not two_valued_as_sent(one_cell(rows), rows).any()
    np.testing.assert_array_equal(rows.X[:, 2], X[:, 2])


def plain_dominated(x):
    squares = (x - x.mean()) ** 2
    return squares.max() > 0 and squares.sum() < KNOWN_BY_SQUARES * squares.max()


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_cuts_are_safe_where_neither_side_is_dominated(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    X[rng.integers(30), 0] = 10.0 ** rng.integers(1, 4)
    sizes = np.arange(5, 26)
    plain = [not any(plain_dominated(x) for part in (X[:s], X[s:]) for x in part.T) for s in sizes]
    assert safe_cuts(X, sizes).tolist() == plain
    assert [safe_cuts(X, sizes[[at]]).tolist() for at in range(len(sizes))] == [[each] for each in plain]
    assert is_dominated(X) == any(plain_dominated(x) for x in X.T)


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_cut_is_as_safe_as_among_many_to_the_last_bit(order):
    """Of a value that all rows share nothing is left but rounding, which must be the same."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        X = np.array(rng.choice([0.1, 0.7, 1 / 3], (40, 3)) * (rng.random((40, 3)) < rng.random()), order=order)
        X[:20, 0], X[20:, 1] = 0.1, 0.7
        sizes = np.arange(5, 36)
        assert [safe_cuts(X, sizes[[at]])[0] for at in range(len(sizes))] == safe_cuts(X, sizes).tolist()


def test_a_row_far_from_a_tight_cloud_stays_in_a_group_in_which_it_is_not_told():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.01, (200, 2)), rng.normal(20, 8, (200, 2)), [[4.0, 4.0]]])
    rows = rows_of(X, 20)
    labels = np.zeros(len(X), dtype=np.int64)
    labels[:20], labels[-1] = 1, 1  # twenty rows of the tight cloud and the far one
    assert rows.is_told(np.flatnonzero(labels))
    order = np.argsort(-labels, kind="stable")
    assert not rows.safe_cuts(order, np.array([21]))[0]


# --- columns with two values ---


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, share=st.floats(0.005, 0.995))
def test_of_two_valued_columns_cells_tell_multiples_of_three_that_add_up(seed, share):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 300))
    X = np.c_[rng.normal(size=(n, 2)), rng.random((n, 3)) < share]
    rows = rows_of(X, 20)
    whole = one_cell(rows).rarer[0]
    for _ in range(4):
        cells = JointPartition(rows, 20).cut(X * np.exp(rng.normal(size=5)))
        assert (cells.rarer % BASE == 0).all()
        assert (cells.rarer <= np.bincount(cells.of_row)[:, None]).all()
        assert (cells.rarer.sum(axis=0) <= whole).all()
        told = two_valued_as_sent(cells, rows)
        rarer = rows.values[1]
        for cell in range(len(cells)):
            own = cells.of_row == cell
            np.testing.assert_array_equal((told[own] == rarer).sum(axis=0), cells.rarer[cell])
            off = np.abs(cells.rarer[cell] - rows.has_rarer[own].sum(axis=0))
            assert (off <= 2 * BASE).all()


def test_what_was_told_is_divided_among_the_parts():
    told = divided(np.array([9, 3]), [np.array([6, 1]), np.array([2, 1]), np.array([1, 1])], [20, 20, 20])
    assert told.tolist() == [[6, 3], [3, 0], [0, 0]]


def test_a_site_tells_no_count_of_one_or_two_in_a_two_valued_column():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(400, 2)), rng.random(400) < 0.05]
    site, partition = site_of(X, Consensus(), 20)
    micro = asked(site, 1, consensus.Report(min_report=20), consensus.MicroClusters)
    counts = micro.counts * micro.means[:, 2]
    np.testing.assert_allclose(counts, BASE * np.rint(counts / BASE), atol=1e-9)
    true = np.bincount(partition.open().of_row, X[:, 2])
    assert ((true == 1) | (true == 2)).sum() > 3
    assert abs(counts.sum() - X[:, 2].sum()) < BASE


def test_moments_are_told_in_three_digits_of_the_deviation():
    rng = np.random.default_rng(0)
    X = rng.normal([0, 1e6, 5], [2, 2, 0], size=(500, 3))
    exact = setup.describe(X, ("a", "b", "c"))
    told = setup.rounded(exact)
    np.testing.assert_allclose(told.means, exact.means, atol=0.006)
    assert told.means[2] == exact.means[2] == 5
    deviations = np.sqrt(told.scatters / 500)
    np.testing.assert_allclose(deviations, np.sqrt(exact.scatters / 500), rtol=0.006)
    assert (np.abs(100 * told.means[:2] - np.rint(100 * told.means[:2])) < 1e-5).all()
    assert told.scatters[2] == 0


def test_a_cell_goes_where_its_mean_goes():
    """As a cut passes through a cell of 30 rows, its answer changes once, at its mean, whatever the rows are."""
    X = np.random.default_rng(0).normal(size=(30, 1)) ** 3
    partition = JointPartition(rows_of(X, 20), 20)
    cells, moved = partition.cut(X).of_row, partition.rows.X
    local = local_of(surrogate_rows(moved, cells), cells)
    mean = moved.mean()
    cuts = np.sort(np.concatenate([moved[:, 0] - 1e-9, moved[:, 0] + 1e-9, [mean - 1e-9, mean + 1e-9]]))
    sides = [local.grouped(lambda rows, cut=cut: (rows[:, 0] > cut).astype(np.int64)).labels for cut in cuts]
    assert all(len(np.unique(each)) == 1 for each in sides)
    assert np.flatnonzero(np.diff([each[0] for each in sides])).tolist() == [int(np.searchsorted(cuts, mean)) - 1]
