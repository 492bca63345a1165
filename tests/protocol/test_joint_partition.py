"""The joint partition: no linear combination of a site's answers stands for fewer rows than its floor."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koncord import Consensus, FedKMeans, KFed, KnownCounts
from koncord.aggregate import consensus, fedkmeans, kfed
from koncord.kernels.assign import sums_by_label
from koncord.protocol import setup
from koncord.protocol.dominance import KNOWN_BY_SQUARES, PERCENT, bounds_of, is_dominated, safe_cuts
from koncord.protocol.partition import BASE, JointPartition, divided, one_cell, refined, rows_of, two_valued_as_sent
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

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


def hostile_labels(rng, X, cells):
    """A question: a plane through the rows, one that all but grazes a single row, any sorting, or one that isolates."""
    kind = rng.integers(4)
    along = X @ rng.normal(size=X.shape[1])
    if kind == 0:
        return (along > rng.choice(along)).astype(np.int64)
    if kind == 1:
        return np.digitize(along, np.sort(rng.choice(along, min(3, len(along)), replace=False))).astype(np.int64)
    if kind == 2:
        return rng.integers(3, size=len(X))
    labels = cells.copy()  # what is known already, but for one row
    labels[rng.integers(len(X))] = cells.max() + 1
    return labels


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, least=st.integers(2, 4), n_questions=st.integers(1, 25))
def test_no_combination_of_answers_to_any_questions_stands_for_fewer_rows_than_the_floor(seed, least, n_questions):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(least, 13)), 2)).round(int(rng.integers(3)))
    partition = JointPartition(rows_of(X, least), least)
    answers = [np.zeros(len(X), dtype=np.int64)]
    for _ in range(n_questions):
        labels, cells = partition.apart(hostile_labels(rng, X, partition.open().of_row))
        answers.append(labels)
        assert np.bincount(cells.of_row).min() >= least
        for asked in answers:  # every answer is a sorting of whole cells
            assert all(len(np.unique(asked[cells.of_row == cell])) == 1 for cell in range(len(cells)))
    assert fewest_rows_told(indicators(answers), least - 1) is None


def test_without_the_rule_the_same_questions_tell_single_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    answers = [hostile_labels(rng, X, np.zeros(12, dtype=np.int64)) for _ in range(10)]
    assert fewest_rows_told(indicators(answers), 2) == 1


def test_rows_leave_a_cell_in_groups_or_go_with_the_nearest():
    rows = rows_of(np.arange(10.0)[:, None], 3)
    cells = one_cell(rows)
    labels, cells = refined(cells, np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2]), rows, 3)
    assert labels.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]  # 8 and 9 are too few, and nearer to 5 to 7
    labels, same = refined(cells, np.array([5, 5, 5, 6, 6, 7, 7, 7, 8, 8]), rows, 3)
    assert labels.tolist() == [5, 5, 5, 5, 5, 7, 7, 7, 7, 7]  # neither 3 and 4 nor 8 and 9 leave their cells
    assert same is cells


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, least=st.integers(1, 5))
def test_the_same_question_has_the_same_answer(seed, least):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2))
    rows = rows_of(X, least)
    cells = one_cell(rows)
    for _ in range(4):
        labels = hostile_labels(rng, X, cells.of_row)
        told, after = refined(cells, labels, rows, least)
        again, same = refined(after, labels, rows, least)
        np.testing.assert_array_equal(told, again)
        assert same is after
        cells = after


# --- what a site sends ---


class Watched(JointPartition):
    """A partition that remembers the sorting of every answer."""

    def __init__(self, *given):
        super().__init__(*given)
        self.seen = []

    def apart(self, labels, least=1, *, of=None):
        allowed, cells = super().apart(labels, least, of=of)
        self.seen.append(allowed)
        return allowed, cells


def watched_site(X, aggregator, floor):
    partition = Watched(rows_of(X, floor), floor)
    columns = tuple(f"x{at}" for at in range(X.shape[1]))
    policy = SitePolicy(min_report=floor)
    site = Site("s", X, columns, estimator=KnownCounts(3), aggregator=aggregator, policy=policy, partition=partition)
    site.answer(pack(setup.Describe()))
    d = len(columns)
    site.answer(pack(setup.Prepare(seed=1, columns=columns, means=np.zeros(d), scales=np.ones(d))))
    return site, partition


def asked(site, round_, message, kind):
    return unpack(site.answer(pack(message, round_=round_)), (kind,))[0]


@pytest.mark.parametrize("seed", range(4))
def test_all_that_consensus_and_the_end_of_a_run_tell_are_sums_over_the_cells_of_one_partition(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3))
    site, partition = watched_site(X, Consensus(n_rounds=5), 8)
    told = [asked(site, 1, consensus.Report(min_report=8), consensus.MicroClusters)]
    for round_ in range(2, 7):
        centers = X[rng.choice(len(X), 4, replace=False)]
        told.append(asked(site, round_, consensus.Refine(centers=centers, min_report=1), consensus.Sums))
    told.append(asked(site, 7, setup.Attribute(centers=centers), setup.Holdings))
    rows, cells = partition.rows.X, partition.open()
    assert np.bincount(cells.of_row).min() >= 8
    for up, labels in zip(told, partition.seen, strict=True):
        assert all(len(np.unique(labels[cells.of_row == cell])) == 1 for cell in range(len(cells)))
        labels = np.unique(labels, return_inverse=True)[1] if hasattr(up, "means") else labels
        np.testing.assert_array_equal(up.counts, np.bincount(labels, minlength=len(up.counts)))
        if not isinstance(up, setup.Holdings):
            sums = up.sums if hasattr(up, "sums") else up.counts[:, None] * up.means
            np.testing.assert_allclose(sums, sums_by_label(rows, labels, len(up.counts)), atol=1e-9)


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
    site, partition = watched_site(np.random.default_rng(3).normal(size=(150, 3)), aggregator, 10)
    told = [(asked(site, at, message, kind), partition.seen[-1]) for at, message in enumerate(messages, 1)]
    cells = partition.open()
    assert np.bincount(cells.of_row).min() >= 10
    for up, labels in told:
        assert all(len(np.unique(labels[cells.of_row == cell])) == 1 for cell in range(len(cells)))
        present, numbers = np.unique(labels, return_inverse=True)
        means = sums_by_label(partition.rows.X, numbers, len(present)) / np.bincount(numbers)[:, None]
        np.testing.assert_allclose(up.centers, means, atol=1e-9)


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
    assert is_dominated(X) == any(plain_dominated(x) for x in X.T)


def test_a_row_far_from_a_tight_cloud_stays_in_a_group_in_which_it_is_not_told():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.01, (200, 2)), rng.normal(20, 8, (200, 2)), [[4.0, 4.0]]])
    rows = rows_of(X, 20)
    labels = np.zeros(len(X), dtype=np.int64)
    labels[:20], labels[-1] = 1, 1  # twenty rows of the tight cloud and the far one
    assert rows.is_told(np.flatnonzero(labels))
    told, cells = refined(one_cell(rows), labels, rows, 20)
    assert len(cells) == 1
    assert not told.any()


# --- columns with two values ---


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, share=st.floats(0.005, 0.995))
def test_of_two_valued_columns_cells_tell_multiples_of_three_that_add_up(seed, share):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 300))
    X = np.c_[rng.normal(size=(n, 2)), rng.random((n, 3)) < share]
    rows = rows_of(X, 20)
    cells = one_cell(rows)
    whole = cells.rarer[0]
    for _ in range(4):
        _, cells = refined(cells, hostile_labels(rng, X[:, :2], cells.of_row), rows, 20)
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
    site, partition = watched_site(X, Consensus(), 20)
    micro = asked(site, 1, consensus.Report(min_report=20), consensus.MicroClusters)
    counts = micro.counts * micro.means[:, 2]
    np.testing.assert_allclose(counts, BASE * np.rint(counts / BASE), atol=1e-9)
    true = np.array([X[label == partition.seen[0], 2].sum() for label in np.unique(partition.seen[0])])
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


def test_a_cell_that_is_not_divided_goes_where_its_mean_goes():
    """As a cut passes through a cell of 30 rows, its answer changes once, at its mean, whatever the rows are."""
    X = np.random.default_rng(0).normal(size=(30, 1)) ** 3
    partition = JointPartition(rows_of(X, 20), 20)
    moved = partition.rows.X[:, 0]
    cuts = np.sort(np.concatenate([moved - 1e-9, moved + 1e-9, [moved.mean() - 1e-9, moved.mean() + 1e-9]]))
    sides = []
    for cut in cuts:
        labels, cells = partition.apart(
            (moved > cut).astype(np.int64), of=lambda cells, cut=cut: (np.array([moved.mean()]) > cut).astype(np.int64)
        )
        assert len(cells) == len(np.unique(labels)) == 1
        sides.append(labels[0])
    assert np.flatnonzero(np.diff(sides)).tolist() == [int(np.searchsorted(cuts, moved.mean())) - 1]
