import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FederatedClustering, KnownCounts
from koncord.aggregate.consensus import finishing, hidden
from koncord.aggregate.consensus.hidden import Pair, hidden_in
from koncord.aggregate.consensus.microclusters import micro_clusters_by, micro_clusters_of, stacked, taken
from koncord.aggregate.consensus.separation import Shapes
from koncord.kernels.cutting import groups_of
from plants import far_cluster, flat_plant, other_plant, plant


def reported(tables):
    return stacked([micro_clusters_of(X, 20) for X in tables], tables[0].shape[1])


def rare_state(rng, off, n_sites=5, n_rows=2000, d=9):
    """Sites of one state; two of them have another one in 3 % of their rows, `off` standard deviations away."""
    tables, states = [], []
    for site in range(n_sites):
        is_rare = rng.random(n_rows) < (0.03 if site < 2 else 0.0)
        X = rng.standard_normal((n_rows, d))
        X[is_rare, :2] += off / np.sqrt(2)
        tables.append(X)
        states.append(is_rare)
    return tables, states


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_state_is_found_inside_a_frequent_one(seed):
    tables, states = rare_state(np.random.default_rng(seed), off=6.0)
    cut = [groups_of(X, 20) for X in tables]
    micro = stacked([micro_clusters_by(X, groups) for X, groups in zip(tables, cut, strict=True)], 9)
    share = np.concatenate(
        [[is_rare[rows].mean() for rows in groups] for groups, is_rare in zip(cut, states, strict=True)]
    )
    is_hidden = hidden_in(micro)
    assert is_hidden is not None
    np.testing.assert_array_equal(is_hidden, share > 0.5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "cloud",
    [
        lambda rng, n: rng.standard_normal((n, 2)),
        lambda rng, n: rng.standard_normal((n, 9)) @ np.diag(np.arange(1, 10)),
        lambda rng, n: rng.standard_normal((n, 8)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3),
        lambda rng, n: rng.standard_t(3, (n, 4)),
        lambda rng, n: rng.exponential(size=(n, 3)),
        lambda rng, n: np.c_[rng.standard_normal((n, 8)), rng.exponential(size=(n, 3))],
        lambda rng, n: rng.random((n, 2)),
    ],
    ids=["Gaussian", "stretched Gaussian", "t3", "t3 by column", "exponential", "some exponential", "uniform"],
)
def test_nothing_is_hidden_in_a_single_cloud(cloud, seed):
    rng = np.random.default_rng(seed)
    assert hidden_in(reported([cloud(rng, 1500) for _ in range(3)])) is None


def test_pieces_of_heavy_tails_are_hardly_ever_hidden_though_they_are_far(monkeypatch):
    rng = np.random.default_rng(1)
    clouds = [reported([rng.standard_t(5, (4000, 8)) for _ in range(3)]) for _ in range(5)]

    def n_found():
        return sum(hidden_in(micro) is not None for micro in clouds)

    assert n_found() <= 1
    monkeypatch.setattr(hidden, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(hidden, "LEAST_GAIN_OF_COMPACT", 0.0)
    assert n_found() >= 3  # so the distance alone does not tell


def test_a_piece_as_compact_as_the_cloud_may_be_nearer_than_a_wide_one():
    tables, _ = rare_state(np.random.default_rng(0), off=5.0)
    micro = reported(tables)
    assert hidden_in(micro) is not None
    wide = [X + np.where(X[:, :1] + X[:, 1:2] > 5.0, np.random.default_rng(1).normal(0, 2, X.shape), 0) for X in tables]
    assert hidden_in(reported(wide)) is None


@pytest.mark.parametrize("widths", [(1.0, 1.0), (1.0, 3.0), (2.0, 0.5)])
def test_how_many_times_as_wide_is_a_ratio_of_standard_deviations(widths):
    rng = np.random.default_rng(0)
    tables = [rng.normal(at, width, (4000, 3)) for at, width in zip((0, 50), widths, strict=True)]
    micro = reported(tables)
    assert Pair.of(micro).width(micro.means[:, 0] > 25) == pytest.approx(widths[1] / widths[0], rel=0.05)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_nothing_is_hidden_in_few_micro_clusters_or_in_equal_rows(n):
    assert hidden_in(reported([np.random.default_rng(0).standard_normal((20 * n, 2))])) is None
    assert hidden_in(reported([np.zeros((20, 2)) for _ in range(6)])) is None


def test_tails_of_skewed_columns_are_not_hidden_though_they_are_as_wide_as_the_cloud(monkeypatch):
    """An exponential tail is as wide as the whole: only that the density does not rise towards it tells."""
    tables, states = other_plant(1000, 3, 2000, irrelevant=("exponential", 3))

    def found():
        return FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))

    assert found().n_clusters_ == 6
    assert adjusted_rand_score(states, np.concatenate(found().labels_)) > 0.98
    monkeypatch.setattr(hidden, "LEAST_RISE", 0.0)
    assert found().n_clusters_ == 7


def test_a_rare_fault_beside_stronger_ones_is_found_and_named():
    """The weakest of five faults, five standard deviations off, is hidden in the usual state."""
    tables, states = plant(4, 3, 2000, 1)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.95
    assert any("looked at on its own" in note for note in found.model_.diagnostics.notes)


@pytest.mark.parametrize("seed", [440, 454, 460])
def test_faults_four_standard_deviations_off_are_found_beside_irrelevant_columns(seed):
    tables, states = plant(seed, 3, 2000, 5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6  # it was 4, 5 and 4; in the first, one lies along the last of 13 axes
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.93


def test_clear_clusters_are_taken_before_twice_as_many_uncertain_ones_far_less_separated():
    """The others are halves of the usual state, which two common causes make long, and of each fault."""
    tables, states = other_plant(430, 3, 2000, n_common=2)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.85  # it was 0.18


def test_a_few_faults_that_are_farther_apart_are_not_taken_before_more_that_are_clear():
    """Three of the states are as far apart as can be; the two besides have no gap, but a valley to each other."""
    tables, states = plant(501, 10, 2000, 0)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.8  # it was 0.67


def test_rare_faults_are_told_apart_that_lie_along_the_last_of_fifteen_axes():
    """Standardized columns are equally wide: where there are more than axes, what is left out may tell most."""
    tables, states = other_plant(602, 1, 8000, n_sensors=15)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6  # it was 13, eight of them pieces of the usual state
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.95


def test_a_far_cluster_in_a_column_of_its_own_does_not_hide_those_that_are_certain():
    """Uncertain at first; weighed by that column six clusters are certain, of which only the far one is clear."""
    tables, classes = far_cluster(207, 4.5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6  # it was 2, and the score 0.04
    assert adjusted_rand_score(classes, np.concatenate(found.labels_)) > 0.9


def test_the_answer_does_not_depend_on_the_seed_of_the_run():
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal((400, 2)) + rng.integers(0, 3, (400, 1)) * 2.2 for _ in range(4)]
    one, *others = (FederatedClustering(random_state=seed).fit(tables) for seed in range(4))
    for other in others:
        assert other.n_clusters_ == one.n_clusters_ > 1
        np.testing.assert_array_equal(other.model_.centers, one.model_.centers)


def test_clear_clusters_are_taken_before_pieces_of_heavy_tails():
    """More clusters stand apart, and others exceed the null model: pieces of the usual state, none of them certain."""
    tables, states = other_plant(2, 1, 8000, tail=5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.5


def test_pieces_with_next_to_no_separation_are_not_as_separated_as_the_clusters():
    """Of 0.02 and 0.06 both are small: less by 0.04 is not as good. The pieces have the larger gap."""
    tables, states = other_plant(654, 3, 2000, tail=5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ <= 7  # it was 13, and the score 0.04
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.7


def test_a_rare_cluster_does_not_grow_into_a_frequent_one_that_is_no_gaussian():
    tables, states = other_plant(1, 3, 2000, irrelevant=("exponential", 3))
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.9


@pytest.mark.parametrize(("seed", "lost"), [(718, 0.81), (720, 0.78)])
def test_a_frequent_cluster_that_one_gaussian_holds_nearly_as_well_is_found(seed, lost):
    """A fault of one row in ten, 4.2 and 4.5 standard deviations off: two Gaussians are hardly likelier."""
    tables, states = plant(seed, 10, 2000, 0)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > lost + 0.1


def test_a_tail_is_as_long_on_the_other_side_and_a_cluster_is_not():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_t(5, (20_000, 3)), rng.normal([6, 0, 0], 0.5, (500, 3))])
    micro = micro_clusters_of(X, 20)
    far = micro.means[:, :2]
    labels = np.select([far[:, 0] > 4, far[:, 1] > 3.2], [1, 2], 0)
    fault, tail = Shapes(micro, micro.covariance_inside()).as_long_beyond(labels, 0, np.array([1, 2]))
    # The plain twin: rows beyond half a standard deviation before the mean of the piece, on both sides.
    edge = far[labels == 2, 1].mean() - 0.2
    plain = (X[:, 1] < -edge).sum() / (X[:, 1] > edge).sum()
    assert fault < 0.1  # the other tail alone
    assert abs(tail - plain) < 0.35
    assert tail > 0.5


def test_a_piece_of_equal_rows_has_no_like_on_the_other_side():
    micro = micro_clusters_of(np.repeat([[0.0, 0.0], [1.0, 0.0]], [400, 40], axis=0), 20)
    labels = (micro.means[:, 0] > 0.5).astype(np.int64)
    shapes = Shapes(micro, micro.covariance_inside())
    np.testing.assert_array_equal(shapes.as_long_beyond(labels, 0, np.array([1])), [0.0])
    assert len(shapes.as_long_beyond(labels, 0, np.array([], dtype=np.int64))) == 0


def test_a_piece_of_a_tail_gains_little_as_a_gaussian_of_its_own_and_a_cluster_much():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_t(5, (10_000, 4)), rng.normal([6, 0, 0, 0], 1, (300, 4))])
    micro = micro_clusters_of(X, 20)
    is_fault, is_tail = micro.means[:, 0] > 4, micro.means[:, 1] > 2.5
    fault = Pair.of(taken(micro, np.flatnonzero(~is_tail)))
    tail = Pair.of(taken(micro, np.flatnonzero(~is_fault)))
    assert fault.gain(is_fault[~is_tail]) > 3
    assert tail.gain(is_tail[~is_fault]) < 1 < tail.distance(is_tail[~is_fault])
    assert not tail.is_frequent(is_tail[~is_fault])  # of a few rows in a hundred, and the density only falls


@pytest.mark.parametrize(("seed", "percent", "how"), [(1230, 3, {"tail": 5}), (1226, 10, {"tail": 5})])
def test_what_runs_into_a_frequent_cluster_and_gains_little_is_of_it(monkeypatch, seed, percent, how):
    """Pieces of tails of one row in seventy, on one side each: 8 or 9 clusters for 6."""
    tables, states = other_plant(seed, percent, 2000, **how)

    def found():
        return FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))

    fitted = found()
    assert fitted.n_clusters_ == 6
    assert adjusted_rand_score(states, np.concatenate(fitted.labels_)) > 0.9
    assert any("at the edge of the largest cluster" in note for note in fitted.model_.diagnostics.notes)
    monkeypatch.setattr(finishing, "LEAST_GAIN_OF_PIECE", -np.inf)
    assert found().n_clusters_ >= 8


def test_pieces_of_heavy_tails_on_both_sides_are_of_the_frequent_cluster():
    tables, states = other_plant(705, 1, 8000, tail=5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 5  # it was 10: five tails beside four of the faults
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.8
    assert any("5 groups of rows at the edge" in note for note in found.model_.diagnostics.notes)
    shares = {each.n_clusters: each.share for each in found.model_.confidence.resampled}
    assert max(shares, key=shares.get) == 5  # draws of sites count them with it as well: all had 10 and more


@pytest.mark.parametrize(
    ("state", "seed"),
    [("uniform", 800), ("uniform along two", 800), ("moved by a load", 800), ("moved by a load", 801)],
)
def test_a_flat_usual_state_beside_faults_is_one_cluster(state, seed):
    """A mixture of Gaussians is likelier with the state in pieces; these are 1.5 to 1.75 apart."""
    tables, states = flat_plant(seed, state, 2, 2, 0.05)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 3
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.99  # it was 0.1 to 0.3


def test_clusters_that_touch_beside_a_far_one_are_no_pieces():
    """Each is 4.5 standard deviations from the next: farther apart than pieces of one peak."""
    tables, _ = far_cluster(700, 4.5)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6


def test_clusters_no_more_compact_than_by_chance_do_not_outweigh_clear_ones_by_their_gap():
    tables, states = other_plant(700, 1, 8000, n_common=2)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.6  # it was 0.04: 11 for 6


def test_odd_rows_that_sites_had_left_over_are_no_seventh_state():
    tables, states = plant(427, 3, 2000, 0)
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(list(tables))
    assert found.n_clusters_ == 6  # it was 7
    assert adjusted_rand_score(states, np.concatenate(found.labels_)) > 0.95
    assert any("odd rows" in note for note in found.model_.diagnostics.notes)
