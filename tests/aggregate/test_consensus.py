import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from koncord import Consensus, FederatedClustering, KnownCounts
from koncord.aggregate.base import Local
from koncord.aggregate.consensus import Report, hierarchies, mixture, nullmodel, report_micro_clusters
from koncord.aggregate.consensus.choosing import Choice, as_compact, choose, most_apart, ranking
from koncord.aggregate.consensus.confidence import STABILITY_DRAWS, best_overlaps, stabilities
from koncord.aggregate.consensus.hierarchies import (
    clustered,
    cost_of,
    cuts,
    grid,
    labelings,
    put_together,
    row_distances,
    silhouette_of,
)
from koncord.aggregate.consensus.looking import times_chance, with_apart
from koncord.aggregate.consensus.microclusters import (
    N_AXES,
    MicroClusters,
    micro_clusters_by,
    micro_clusters_of,
    stacked,
)
from koncord.aggregate.consensus.mixture import (
    Rows,
    are_cut,
    drawn_rows,
    fit_gaussians,
    fit_to_rows,
    joined,
    n_parameters,
    parts_of,
    rows_in,
    told_by_clients,
)
from koncord.aggregate.consensus.nullmodel import (
    Candidate,
    Null,
    by_chance,
    root_of_covariance,
)
from koncord.aggregate.consensus.separation import Shapes
from koncord.errors import KoncordError, MessageError
from koncord.kernels.assign import nearest
from koncord.kernels.cutting import MOST_GROUPS, best_cut
from koncord.types import LocalEstimate

CENTERS = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])


def local(X, min_report=1):
    estimate = LocalEstimate(n_components=1, means=X[:1])
    return Local(X=X, phase1=lambda: estimate, stream=(0, 0, 0), min_report=min_report)


def clusters(held, n_each=60, seed=0, centers=CENTERS):
    """Rows of the clusters `held`, and the cluster of each."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(centers[k], 1, (n_each, centers.shape[1])) for k in held])
    return X, np.repeat(held, n_each)


def sites(n_sites=6, n_held=3, seed=0, **given):
    """Sites with some of the four clusters each, in turn."""
    held = [[(site + step) % len(CENTERS) for step in range(n_held)] for site in range(n_sites)]
    dealt = [clusters(each, seed=100 * seed + site, **given) for site, each in enumerate(held)]
    return {f"s{site}": X for site, (X, _) in enumerate(dealt)}, np.concatenate([y for _, y in dealt])


def single_rows(X):
    """Every row as a micro-cluster of its own."""
    d = X.shape[1]
    return MicroClusters(
        counts=np.ones(len(X), dtype=np.int64),
        means=X,
        scatters=np.zeros(len(X)),
        spread=np.zeros(d),
        axes=np.zeros((0, d)),
    )


def drive(aggregator, tables, missing=(), seed=0):
    """Run the server by hand, some sites `missing`; the outcome and the replies."""
    n_features = next(iter(tables.values())).shape[1]
    server = aggregator.server(tuple(sorted(tables)), n_features, np.random.default_rng(seed))
    down = next(server)
    heard = {
        name: report_micro_clusters(local(tables[name]), None, down)[1]
        for name in sorted(tables)
        if name not in missing
    }
    with pytest.raises(StopIteration) as finished:
        server.send(heard)
    return finished.value.value, heard


# --- micro-clusters ---


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 120), st.integers(1, 40))
def test_micro_clusters_are_disjoint_pieces_of_at_least_the_floor_that_make_up_the_table(seed, n, floor):
    X = np.random.default_rng(seed).normal(size=(n, 3)) * [1, 3, 9]
    micro = micro_clusters_of(X, floor)
    if n < floor:
        assert len(micro) == 0
        return
    assert micro.counts.min() >= floor
    assert micro.counts.sum() == n
    np.testing.assert_allclose(micro.counts @ micro.means / n, X.mean(axis=0), atol=1e-9)
    between = micro.counts @ ((micro.means - X.mean(axis=0)) ** 2).sum(axis=1)
    np.testing.assert_allclose(micro.scatters.sum() + between, ((X - X.mean(axis=0)) ** 2).sum(), rtol=1e-9)
    np.testing.assert_allclose(micro.spread.sum(), micro.scatters.sum(), rtol=1e-6, atol=1e-9)
    assert micro.axes.shape == (min(N_AXES, 3), 3)


@pytest.mark.parametrize("floor", [5, 20, 31])
def test_micro_clusters_hold_less_than_twice_the_floor_unless_they_are_too_many(floor):
    X = np.random.default_rng(floor).standard_t(3, size=(700, 3))
    counts = micro_clusters_of(X, floor).counts
    assert floor <= counts.min() <= counts.max() < 2 * floor


def test_the_best_cut_is_that_of_all_cuts_across_the_longest_axis():
    X = np.random.default_rng(3).normal(size=(60, 2)) * [5, 1]
    cut = best_cut(X, np.arange(60), 10)
    along = (X - X.mean(axis=0)) @ np.linalg.svd(X - X.mean(axis=0))[2][0]
    order = np.argsort(along)
    errors = [along[order[:at]].var() * at + along[order[at:]].var() * (60 - at) for at in range(10, 51)]
    assert min(cut.at, 60 - cut.at) == min(10 + int(np.argmin(errors)), 50 - int(np.argmin(errors)))
    assert cut.gain == pytest.approx(along.var() * 60 - min(errors))


@pytest.mark.parametrize("n", [200, 30_000])
def test_a_column_with_two_peaks_is_cut_where_the_longest_axis_tells_nothing(n):
    rng = np.random.default_rng(4)
    side = rng.integers(0, 2, n)
    X = np.c_[3 * rng.normal(size=(n, 4)), np.where(side, 4.0, -4.0) + rng.normal(size=n) / 2]
    X[:, 0] *= 2  # the longest axis
    cut = best_cut(X, np.arange(n), 20)
    assert len(np.unique(side[cut.rows[: cut.at]])) == len(np.unique(side[cut.rows[cut.at :]])) == 1
    flat = best_cut(X[:, :4], np.arange(n), 20)
    assert np.abs(np.corrcoef(X[flat.rows, 0], np.arange(n))[0, 1]) > 0.7  # one peak a column: across the longest axis


def test_equal_rows_are_not_cut():
    assert micro_clusters_of(np.ones((100, 2)), 20).counts.tolist() == [100]


def test_micro_clusters_do_not_depend_on_the_order_of_the_rows_but_for_their_own():
    X = np.random.default_rng(0).normal(size=(200, 3))
    one, other = micro_clusters_of(X, 20), micro_clusters_of(X[::-1], 20)
    np.testing.assert_allclose(np.sort(one.means, axis=0), np.sort(other.means, axis=0))


def test_the_micro_clusters_of_a_client_are_bounded_however_many_rows_it_has():
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    micro = micro_clusters_of(X, 20)
    assert 150 < len(micro) <= MOST_GROUPS
    assert micro.counts.sum() == 20_000


def test_the_covariance_of_all_rows_comes_back_from_the_micro_clusters_where_few_axes_are_long():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    tables = [(rng.normal(size=(300, 6)) * [9, 4, 1, 1, 1, 1]) @ turn for _ in range(5)]
    root = root_of_covariance(stacked([micro_clusters_of(X, 20) for X in tables], 6))
    covariance = np.cov(np.concatenate(tables).T, ddof=0)
    assert np.abs(root.T @ root - covariance).max() < 0.02 * np.linalg.eigvalsh(covariance)[-1]


# --- the criteria ---


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_the_silhouette_of_micro_clusters_of_one_row_is_that_of_scikit_learn(seed, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    labels = np.concatenate([np.arange(k), np.arange(k), rng.integers(k, size=40 - 2 * k)])
    ours = silhouette_of(row_distances(single_rows(X)), np.ones(40, dtype=np.int64), labels)
    assert ours == pytest.approx(silhouette_samples(squareform(pdist(X)), labels, metric="precomputed").mean())


def test_the_distance_between_micro_clusters_is_the_root_mean_squared_one_of_their_rows():
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(30, 4)), rng.normal(5, 2, size=(50, 4))
    micro = stacked([micro_clusters_of(one, 30), micro_clusters_of(other, 50)], 4)
    assert len(micro) == 2
    squared = ((one[:, None] - other) ** 2).sum(axis=2).mean()
    assert row_distances(micro)[0, 1] == pytest.approx(np.sqrt(squared))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_cost_of_a_clustering_of_micro_clusters_is_that_of_its_rows(seed):
    rng = np.random.default_rng(seed)
    tables = [rng.normal(m, 1, (25, 2)) for m in (0, 3, 6, 9)]
    micro = stacked([micro_clusters_of(X, 25) for X in tables], 2)
    labels = rng.permutation([0, 0, 1, 1])
    rows = [np.concatenate([X for X, label in zip(tables, labels, strict=True) if label == k]) for k in (0, 1)]
    assert cost_of(micro, labels) == pytest.approx(sum(((X - X.mean(axis=0)) ** 2).sum() for X in rows))


def test_a_tree_is_cut_into_k_clusters_for_every_k():
    tree = np.array([[0, 1, 1.0, 2], [2, 3, 2.0, 2], [4, 5, 3.0, 4]])
    found = cuts(tree, range(1, 5))
    assert {k: len(np.unique(labels)) for k, labels in found.items()} == {1: 1, 2: 2, 3: 3, 4: 4}
    assert found[2].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("method", ["ward", "average"])
@pytest.mark.parametrize("n", [2, 3, 40, 300])
def test_cuts_of_a_tree_are_those_of_merging_one_by_one(n, method):
    tree = linkage(np.random.default_rng(n).normal(size=(n, 2)).round(1), method)
    plain, labels = {n: np.arange(n)}, np.arange(n)
    for at, merged in enumerate(tree[:, :2].astype(int)):
        labels = np.where(np.isin(labels, merged), n + at, labels)
        plain[n - at - 1] = np.unique(labels, return_inverse=True)[1]
    for ks in (range(1, n + 1), range(2, 60), [2], [n], [n + 1], []):
        found = cuts(tree, ks)
        assert list(found) == sorted({k for k in ks if k <= n}, reverse=True)
        assert all(np.array_equal(found[k], plain[k]) for k in found)


def test_nothing_is_compared_with_a_null_model_of_no_k():
    assert Null.of([], [{}, {}]).compared({}) == []


def test_the_grid_holds_every_small_k_and_ends_at_the_most():
    ks = grid(100, every=30, step=1.05)
    assert ks[:29] == list(range(2, 31))
    assert ks[-1] == 100
    assert grid(1, every=30, step=1.05) == []


def candidate(k, separation, gap):
    return Candidate(hierarchy="ward", n_clusters=k, silhouette=0.5, separation=separation, gap=gap)


def test_separation_decides_where_it_differs_and_the_gap_where_it_does_not():
    apart = [candidate(3, 0.30, 0.1), candidate(8, 0.20, 0.9)]
    alike = [candidate(3, 0.300, 0.1), candidate(8, 0.295, 0.9)]
    assert [each.n_clusters for each in ranking(apart, slack=0.01, n_micro=100)] == [3, 8]
    assert [each.n_clusters for each in ranking(alike, slack=0.01, n_micro=100)] == [8, 3]


def test_more_clusters_must_raise_the_gap_by_a_third_of_it_for_e_times_as_many():
    hardly = [candidate(9, 0.06, 0.114), candidate(10, 0.06, 0.116), candidate(20, 0.06, 0.13)]
    knee = [candidate(9, 0.06, 0.114), candidate(10, 0.06, 0.120), candidate(11, 0.06, 0.122)]
    assert ranking(hardly, slack=1.0, n_micro=100)[0].n_clusters == 9
    assert [each.n_clusters for each in ranking(knee, slack=1.0, n_micro=100)] == [10, 9, 11]


def test_of_clusters_of_many_micro_clusters_those_that_do_not_stand_apart_must_add_more():
    """MNIST at ten sites, where digits were cut in two."""
    digits = [replace(candidate(11, 0.054, 0.127), apart=-3.17), replace(candidate(15, 0.045, 0.143), apart=-10.25)]
    assert [each.n_clusters for each in ranking(digits, slack=0.02, n_micro=1000)] == [11, 15]
    assert [each.n_clusters for each in ranking(digits, slack=0.02, n_micro=599)] == [15, 11]  # fewer than 40 each


def test_what_more_clusters_must_add_to_a_wide_gap_is_bounded():
    many = [candidate(16, 0.15, 0.89), candidate(50, 0.16, 1.35), candidate(90, 0.15, 1.42)]
    assert [each.n_clusters for each in ranking(many, slack=0.02, n_micro=100)] == [50, 90, 16]


def test_what_is_hardly_separated_at_all_is_no_tie_within_the_slack():
    hardly = [candidate(9, 0.06, 0.10), candidate(15, 0.044, 0.14)]
    clearly = [candidate(9, 0.26, 0.10), candidate(15, 0.244, 0.14)]
    assert ranking(hardly, slack=0.02, n_micro=100)[0].n_clusters == 9
    assert ranking(clearly, slack=0.02, n_micro=100)[0].n_clusters == 15


def test_certain_clusters_are_taken_before_hardly_more_that_are_not():
    def standing(k, apart, separation):
        return replace(candidate(k, separation, 0.0), apart=apart)

    # A plant with faults of 1 %: two pieces of the dominating state add a thirtieth of a cluster.
    faults, pieces = standing(6, 6.0, 0.33), standing(8, 6.03, 0.05)
    assert most_apart([faults, pieces]) is faults
    assert most_apart([faults, replace(pieces, apart=6.6)]).n_clusters == 8
    assert most_apart([replace(faults, separation=0.04), pieces]) is pieces  # hardly fewer, and less separated
    barely = replace(pieces, n_clusters=7, apart=6.09)  # certain, too, but for one cluster
    assert most_apart([faults, barely]) is faults
    assert most_apart([faults, replace(barely, apart=6.2)]).n_clusters == 7
    assert most_apart([standing(2, 0.9, 0.1)]) is None
    assert most_apart([]) is None


def test_a_far_cluster_that_leaves_all_others_together_is_not_as_compact():
    far, apart, pieces = candidate(2, 0.5, 0.1), candidate(4, 0.3, 0.4), candidate(9, 0.2, 0.6)
    assert as_compact([far, apart, pieces], chance=0.05) == [apart, pieces]
    assert as_compact([far], chance=0.05) == [far]
    assert as_compact([far], chance=0.2) == []
    assert as_compact([], chance=0.0) == []


def test_chance_is_the_most_by_which_a_draw_exceeds_the_others_as_a_root_mean_square():
    draws = np.array([[0.0, 1.0], [0.0, 4.0], [0.0, 1.0]])
    assert by_chance(draws) == pytest.approx(3.0 / np.sqrt(3))
    assert by_chance(np.zeros((3, 2))) == 0.0
    assert by_chance(np.zeros((3, 0))) == 0.0


def test_there_are_several_clusters_only_if_gap_and_separation_exceed_chance_together():
    draws = np.array([[0.0], [0.1], [0.0]])
    null = Null(n_clusters=np.array([2]), silhouettes=draws, log_costs=-draws)
    chance = null.gap_by_chance
    assert times_chance([candidate(2, 4 * chance, 4 * chance)], null, 50) == pytest.approx(4)
    assert times_chance([candidate(2, 0.0, 8 * chance)], null, 50) == pytest.approx(4)
    assert times_chance([candidate(2, 9 * chance, chance)], null, 50) == pytest.approx(1)
    assert times_chance([], null, 50) == 0.0


def test_nearly_as_many_clusters_as_micro_clusters_do_not_show_structure():
    null = Null(n_clusters=np.array([2]), silhouettes=np.array([[0.0], [0.1]]), log_costs=np.array([[0.0], [0.1]]))
    assert times_chance([candidate(80, 1.0, 1.0)], null, 81) == 0.0
    assert times_chance([candidate(60, 1.0, 1.0)], null, 81) > 0
    assert times_chance([candidate(7, 1.0, 1.0)], null, 9) > 0  # where there are few, they are all there is


def test_many_micro_clusters_are_put_together_without_loss_of_rows(monkeypatch):
    monkeypatch.setattr(hierarchies, "MOST_MICRO_CLUSTERS", 10)
    micro = single_rows(np.random.default_rng(0).normal(size=(60, 2)))
    coarse, belongs = put_together(micro, np.random.default_rng(0))
    assert len(coarse) <= 10
    assert coarse.counts.sum() == 60
    for at in range(len(coarse)):
        np.testing.assert_allclose(coarse.means[at], micro.means[belongs == at].mean(axis=0))
    one = np.zeros(60, dtype=np.int64)
    assert cost_of(coarse, one[: len(coarse)]) == pytest.approx(cost_of(micro, one))


def test_a_cluster_that_comes_back_whole_has_overlap_one():
    counts = np.array([10, 10, 20])
    np.testing.assert_allclose(best_overlaps(counts, np.array([0, 0, 1]), np.array([1, 1, 0])), [1.0, 1.0])
    np.testing.assert_allclose(best_overlaps(counts, np.array([0, 0, 1]), np.array([0, 1, 1])), [0.5, 20 / 30])


def overlapping(n_sites=12, apart=2.0, seed=0):
    """Micro-clusters of sites whose clusters run into each other, the site of each, and four clusters of them."""
    tables = [
        clusters([(at + step) % 4 for step in range(3)], seed=[seed, at], centers=apart / 9.0 * CENTERS)[0]
        for at in range(n_sites)
    ]
    each = [micro_clusters_of(X, 20) for X in tables]
    micro, owners = stacked(each, 3), np.repeat(np.arange(n_sites), [len(one) for one in each])
    choice = Choice(
        labels=clustered(micro, 4, "ward", np.random.default_rng(0)),
        chosen=candidate(4, 0.5, 0.5),
        runner_up=None,
        candidates=(),
        separation_by_chance=0.0,
        gap_by_chance=0.0,
        scales=np.ones(3),
        look=None,
    )
    return micro, owners, choice


def test_stability_is_that_of_halves_of_the_sites():
    micro, owners, choice = overlapping()
    same = clustered(micro, 4, "ward", np.random.default_rng(0))
    assert best_overlaps(micro.counts, choice.labels, same).tolist() == [1.0] * 4  # all sites give the choice again
    stable = stabilities(micro, owners, choice, np.random.default_rng(0))
    assert max(stable) < 1.0
    halves = []
    rng = np.random.default_rng(0)
    for _ in range(STABILITY_DRAWS):
        rows = np.flatnonzero(np.isin(owners, rng.permutation(12)[:6]))
        part, own = micro_clusters_of_rows(micro, rows), choice.labels[rows]
        again = clustered(part, 4, "ward", rng)
        halves.append([jaccard(part.counts, own == label, again) for label in range(4)])
    np.testing.assert_allclose(stable, np.mean(halves, axis=0))


def micro_clusters_of_rows(micro, rows):
    return MicroClusters(
        counts=micro.counts[rows],
        means=micro.means[rows],
        scatters=micro.scatters[rows],
        spread=micro.spread,
        axes=micro.axes,
    )


def jaccard(counts, is_member, other):
    """Of one cluster with the most similar of `other`, written out."""
    shares = [
        counts[is_member & (other == label)].sum() / counts[is_member | (other == label)].sum()
        for label in np.unique(other)
    ]
    return max(shares)


@pytest.mark.parametrize("seed", [0, 1])
def test_stability_keeps_to_the_cap_on_micro_clusters_and_hardly_changes_for_it(monkeypatch, seed):
    micro, owners, choice = overlapping(n_sites=60, seed=seed)
    clustered_micro = []

    def counting(given, *args):
        clustered_micro.append(len(given))
        return labelings(given, *args)

    monkeypatch.setattr(hierarchies, "labelings", counting)
    whole = np.mean([stabilities(micro, owners, choice, np.random.default_rng(draw)) for draw in range(4)], axis=0)
    assert min(clustered_micro) > 150
    clustered_micro.clear()
    monkeypatch.setattr(hierarchies, "MOST_MICRO_CLUSTERS", 100)
    capped = np.mean([stabilities(micro, owners, choice, np.random.default_rng(draw)) for draw in range(4)], axis=0)
    assert max(clustered_micro) <= 100
    np.testing.assert_allclose(capped, whole, atol=0.03)


# --- steps ---


def test_the_floor_of_the_site_counts_where_it_is_higher():
    X = clusters([0, 1])[0]
    _, micro = report_micro_clusters(local(X, min_report=50), None, Report(min_report=20))
    assert micro.counts.min() >= 50
    _, none = report_micro_clusters(local(X, min_report=500), None, Report(min_report=20))
    assert len(none) == 0


def test_a_report_with_bad_numbers_is_refused(carried):
    micro = micro_clusters_of(clusters([0])[0], 20)
    with pytest.raises(MessageError, match="counts"):
        carried(MicroClusters(**{**fields_of(micro), "counts": micro.counts * 0}))
    with pytest.raises(MessageError, match="means"):
        carried(MicroClusters(**{**fields_of(micro), "means": micro.means * np.nan}))


def fields_of(micro):
    return {name: getattr(micro, name) for name in ("counts", "means", "scatters", "spread", "axes")}


# --- recovery ---


def test_separated_clusters_are_found_whatever_a_site_holds():
    tables, y = sites()
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(tables)
    assert fitted.n_clusters_ == 4
    assert adjusted_rand_score(y, np.concatenate(fitted.labels_)) == 1.0
    told = fitted.model_.diagnostics
    assert told.choice.chosen.n_clusters == 4
    assert told.choice.runner_up.n_clusters != 4
    assert len(told.stabilities) == 4
    assert min(told.stabilities) > 0.9
    assert told.rounds == 1


@pytest.mark.parametrize("stretch", [1.0, 5.0])
def test_one_gaussian_over_many_sites_is_one_cluster(stretch):
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0] * np.array([stretch, 1, 1, 1, 1])[:, None]
    tables = [rng.normal(size=(60, 5)) @ turn for _ in range(12)]
    outcome, _ = drive(Consensus(), {f"s{at:02}": X for at, X in enumerate(tables)})
    np.testing.assert_allclose(outcome.centers, np.concatenate(tables).mean(axis=0)[None], atol=1e-9)


def test_one_gaussian_is_hardly_ever_taken_for_several():
    found = []
    for draw in range(20):
        rng = np.random.default_rng([20, draw])
        tables = {f"s{at}": rng.normal(size=(80, 4)) * [3, 1, 1, 1] for at in range(8)}
        found.append(len(drive(Consensus(), tables, seed=draw)[0].centers))
    assert found.count(1) >= 19


def test_a_large_cluster_is_not_cut_beside_small_ones():
    rng = np.random.default_rng(0)
    tables = {
        f"s{at}": np.concatenate(
            [rng.normal(0, 2, (600, 4)), rng.normal(12, 1, (60, 4)), rng.normal([12, -12, 12, -12], 1, (60, 4))]
        )
        for at in range(4)
    }
    assert len(drive(Consensus(), tables)[0].centers) == 3


def test_large_micro_clusters_of_unequal_sites_get_an_answer():
    rng = np.random.default_rng(0)
    tables = {f"s{n}": np.concatenate([rng.normal(m, 1, (n, 2)) for m in (0, 9)]) for n in (700, 1500, 4000)}
    assert len(drive(Consensus(min_report=600), tables)[0].centers) == 2


def test_a_floor_as_large_as_a_table_micro_clusters_one_micro_cluster_a_site_and_an_answer():
    tables, _ = sites(n_held=1)
    outcome, heard = drive(Consensus(min_report=60), tables)
    assert all(len(micro) == 1 for micro in heard.values())
    assert 1 <= len(outcome.centers) <= 4
    assert "1.0 micro-clusters on average" in outcome.diagnostics.notes[0]


# --- clients that are missing or small ---


def test_a_client_that_is_missing_is_left_out():
    tables, _ = sites()
    outcome, _ = drive(Consensus(), tables, missing=("s0",))
    assert "s0" not in outcome.groups
    assert len(outcome.centers) == 4


def test_a_site_below_the_floor_sends_no_micro_cluster_and_still_gets_labels():
    tables, _ = sites()
    tables["small"] = CENTERS[:1] + np.random.default_rng(0).normal(size=(7, 3))
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(tables)
    assert fitted.model_.diagnostics.micro_clusters["small"] == 0
    assert len(np.unique(fitted.labels_[fitted.sites_.index("small")])) == 1


def test_when_every_site_is_below_the_floor_the_error_says_so():
    with pytest.raises(KoncordError, match="fewer than 20 rows"):
        drive(Consensus(), {"a": np.zeros((5, 2)), "b": np.ones((5, 2))})


@pytest.mark.parametrize("X", [np.ones((50, 2)), np.repeat([[0.0, 0.0], [1.0, 1.0]], 40, axis=0)])
def test_equal_rows_are_all_right(X):
    outcome, _ = drive(Consensus(), {"a": X, "b": X.copy()})
    assert len(outcome.centers) == len(np.unique(X, axis=0))


def test_the_choice_does_not_depend_on_where_the_origin_is_or_on_the_unit():
    tables, _ = sites(seed=4)
    moved_tables = {name: 1e3 * X + 1e6 for name, X in tables.items()}
    one, other = (drive(Consensus(), each)[0] for each in (tables, moved_tables))
    np.testing.assert_allclose(other.centers, 1e3 * one.centers + 1e6, rtol=1e-6)


def test_more_clusters_than_are_looked_for_is_said():
    tables, _ = sites()
    outcome, _ = drive(Consensus(max_clusters=3), tables)
    assert len(outcome.centers) == 3
    assert "there may be more" in outcome.diagnostics.notes[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_report": 0}, "'min_report' of Consensus must be at least 1"),
        ({"max_clusters": 0}, "'max_clusters' of Consensus must be at least 1"),
        ({"slack": -1.0}, "'slack' of Consensus"),
    ],
)
def test_a_bad_parameter_is_named_before_any_site_works(given, message):
    with pytest.raises(ValueError, match=message):
        Consensus(**given).server(("a",), 2, np.random.default_rng(0))


def test_the_sends_of_consensus_are_its_messages(declares_what_it_sends):
    declares_what_it_sends(Consensus)


def test_the_same_micro_clusters_and_seed_give_the_same_choice():
    tables, _ = sites()
    micro = stacked([micro_clusters_of(X, 20) for X in tables.values()], 3)
    rows = np.array([len(X) for X in tables.values()])
    one, two = (choose(micro, rows, np.random.default_rng(5), max_clusters=20, slack=0.01) for _ in range(2))
    assert one.candidates == two.candidates
    np.testing.assert_array_equal(one.labels, two.labels)


# --- how far apart clusters stand ---


def halves_apart(gap, n=200_000, seed=0):
    """d' of two Gaussians that far apart, cut in the middle, from single rows."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, 1, n // 2), rng.normal(gap, 1, n // 2)])
    low, high = x[x < gap / 2], x[x >= gap / 2]
    return (high.mean() - low.mean()) / (high.std() + low.std())


@pytest.mark.parametrize(("gap", "expected"), [(0.0, 1.32), (2.0, 1.46), (3.0, 1.72), (4.0, 2.09)])
def test_d_prime_has_the_values_that_the_rule_is_built_on(gap, expected):
    assert halves_apart(gap) == pytest.approx(expected, abs=0.01)
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(0, 1, (1500, 1)), rng.normal(gap, 1, (1500, 1))])
    micro = micro_clusters_of(X, 20)
    shapes = Shapes(micro, micro.covariance_inside())
    assert shapes.apart((micro.means[:, 0] >= gap / 2).astype(int)).min() == pytest.approx(expected, abs=0.12)


def test_d_prime_does_not_see_units_turns_or_irrelevant_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3)) + 6 * (np.arange(800) % 2)[:, None] * [1, 0, 0]
    micro = single_rows(X)
    labels = np.arange(800) % 2
    inside = np.eye(3)
    plain = Shapes(micro, inside).apart(labels)
    turned = Shapes(single_rows(X @ rng.normal(size=(3, 3))), inside).apart(labels)
    wider = Shapes(single_rows(np.c_[X, 40 * rng.normal(size=(800, 2))]), np.eye(5)).apart(labels)
    np.testing.assert_allclose(turned, plain, rtol=0.01)
    np.testing.assert_allclose(wider, plain, rtol=0.05)


def test_there_is_a_valley_between_clusters_and_none_in_one_gaussian():
    rng = np.random.default_rng(0)
    for gap, low, high in ((0.0, 0.0, 0.2), (6.0, 0.7, 1.0)):
        X = np.concatenate([rng.normal(0, 1, (600, 2)), rng.normal(gap, 1, (600, 2))])
        micro = micro_clusters_of(X, 20)
        labels = (micro.means.sum(axis=1) >= gap).astype(int)
        assert low <= Shapes(micro, micro.covariance_inside()).valleys(labels).max() <= high


def test_the_valley_before_a_rare_cluster_is_seen_though_the_middle_of_the_line_is_higher():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (6000, 1)), rng.normal(5, 0.7, (120, 1))])
    micro = micro_clusters_of(X, 20)
    labels = (micro.means[:, 0] >= 3.5).astype(int)
    assert Shapes(micro, micro.covariance_inside()).valleys(labels).max() > 0.3
    one = micro_clusters_of(X[:6000], 20)
    tail = (one.means[:, 0] >= 2).astype(int)
    assert Shapes(one, one.covariance_inside()).valleys(tail).max() < 0.15


# --- clusters that the silhouette does not see ---


def plant(share, n_rows, seed=0, n_irrelevant=0, far=(4.5, 7)):
    """Five sites, a dominating state, five faults at two or three of the sites each; and the state of each row."""
    rng = np.random.default_rng([seed, 8])
    faults = np.zeros((6, 8))
    for fault in range(1, 6):
        sensors = rng.choice(8, rng.integers(1, 4), replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], len(sensors)) * rng.uniform(*far, len(sensors))
    owners = [rng.choice(5, rng.integers(2, 4), replace=False) for _ in range(5)]
    tables, states = {}, []
    for site in range(5):
        state = np.zeros(n_rows, dtype=int)
        for fault in range(1, 6):
            if site in owners[fault - 1]:
                normal = np.flatnonzero(state == 0)
                state[rng.choice(normal, int(share * n_rows), replace=False)] = fault
        X = rng.normal(size=(n_rows, 8)) + faults[state]
        tables[f"s{site}"] = np.c_[X, rng.normal(size=(n_rows, n_irrelevant))]
        states.append(state)
    return tables, np.concatenate(states)


@pytest.mark.parametrize("n_irrelevant", [0, 3])
def test_rare_faults_beside_a_dominating_state_are_found(n_irrelevant):
    tables, states = plant(0.03, 2000, seed=5, n_irrelevant=n_irrelevant)
    fitted = FederatedClustering(KnownCounts(1), Consensus(), standardize=True, random_state=0).fit(tables)
    assert fitted.n_clusters_ == 6
    assert adjusted_rand_score(states, np.concatenate(fitted.labels_)) > 0.95


def test_faults_in_correlated_sensors_are_found_where_not_all_of_them_are_certain():
    """One clustering has the most clusters apart, one of them barely; coarser ones are certain."""
    rng = np.random.default_rng(900)
    mixing = rng.normal(size=(8, 8)) * 0.4 + np.eye(8)
    tables, states = plant(0.03, 1200, seed=9, far=(3.2, 4.6))
    turned = {site: X @ mixing.T for site, X in tables.items()}
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(turned)
    assert adjusted_rand_score(states, np.concatenate(fitted.labels_)) > 0.8


def test_two_clusters_that_run_into_each_other_are_found_at_small_sites_and_said_to_be_unsure():
    X, y = load_breast_cancer(return_X_y=True)
    site = np.random.default_rng(1).integers(0, 5, len(y))
    fitted = FederatedClustering(random_state=1).fit([X[site == at] for at in range(5)])
    assert fitted.n_clusters_ == 2
    assert (
        adjusted_rand_score(np.concatenate([y[site == at] for at in range(5)]), np.concatenate(fitted.labels_)) > 0.35
    )
    assert any("shape of the cloud" in note for note in fitted.model_.diagnostics.notes)


def test_a_column_with_clear_clusters_outweighs_three_that_have_none():
    rng = np.random.default_rng(3)
    states = rng.integers(0, 3, 2700)
    X = np.c_[np.array([0, 12, 30])[states] + rng.normal(size=2700), rng.normal(size=(2700, 3))]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(np.split(X, 3))
    assert fitted.n_clusters_ == 3
    assert adjusted_rand_score(states, np.concatenate(fitted.labels_)) > 0.99


def test_micro_clusters_between_two_clusters_make_no_cluster_of_their_own():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(12, 16)) * 4
    tables = [centers[rng.integers(0, 12, 3000)] + rng.normal(size=(3000, 16)) for _ in range(3)]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(tables)
    assert fitted.n_clusters_ == 12


@pytest.mark.parametrize("n_irrelevant", [1, 2, 5])
def test_irrelevant_columns_of_small_sites_do_not_hide_clusters(n_irrelevant):
    rng = np.random.default_rng(n_irrelevant)
    centers = np.array([[0, 0], [7, 0], [0, 7], [7, 7]])
    classes = [rng.integers(0, 4, 200) for _ in range(5)]
    tables = [np.c_[centers[own] + rng.normal(size=(200, 2)), rng.normal(size=(200, n_irrelevant))] for own in classes]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), standardize=True, random_state=0).fit(tables)
    assert fitted.n_clusters_ == 4
    assert adjusted_rand_score(np.concatenate(classes), np.concatenate(fitted.labels_)) > 0.95


def test_a_cluster_of_a_single_micro_cluster_adds_nothing_and_still_takes_away():
    candidate = Candidate(hierarchy="ward", n_clusters=3, silhouette=0.0, separation=0.0, gap=0.0)

    def gained(places, counts):
        """What clusters on a line add, that have so many micro-clusters each."""
        labels = np.repeat(np.arange(3), counts)
        means = np.array(places, dtype=float)[labels, None] + 0.01 * np.arange(len(labels))[:, None]
        micro = MicroClusters(
            counts=np.full(len(labels), 20),
            means=np.hstack([means, np.zeros_like(means)]),
            scatters=np.full(len(labels), 40.0),
            spread=np.full(2, 20.0 * len(labels)),
            axes=np.empty((0, 2)),
        )
        shapes = Shapes(micro, micro.covariance_inside())
        return with_apart(candidate, shapes, labels, np.arange(len(labels)))

    assert gained([0, 20, 40], [2, 2, 2]).apart == pytest.approx(3)
    assert gained([0, 20, 40], [2, 2, 1]).apart == pytest.approx(2)
    near = gained([0, 20, 20.5], [2, 2, 1])
    assert near.apart < 2
    assert near.least_apart < 1


def test_penguins_of_three_islands_are_three_species_whatever_the_seed():
    path = Path(os.environ.get("KONCORD_DATA", ".")) / "natural" / "penguins.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["body_mass_g"] not in ("", "NA")]
    names = [name for name in rows[0] if name.endswith(("_mm", "_g"))]
    islands = {row["island"]: [each for each in rows if each["island"] == row["island"]] for row in rows}
    tables = {name: np.array([[float(row[at]) for at in names] for row in own]) for name, own in islands.items()}
    species = [row["species"] for own in islands.values() for row in own]
    for seed in range(3):
        fitted = FederatedClustering(KnownCounts(1), Consensus(), standardize=True, random_state=seed).fit(tables)
        assert fitted.n_clusters_ in (3, 4)
        assert adjusted_rand_score(species, np.concatenate(fitted.labels_)) > 0.8


def test_an_elongated_cluster_beside_a_round_one_is_found_by_its_shape():
    rng = np.random.default_rng(0)
    long = rng.normal(size=(400, 2)) * [8, 0.5]
    ball = rng.normal(size=(400, 2)) * 0.5 + [6, 4]
    tables = [np.concatenate([long[at::4], ball[at::4]]) for at in range(4)]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(tables)
    labels = np.concatenate(fitted.labels_)
    truth = np.concatenate([np.repeat([0, 1], 100)] * 4)
    assert adjusted_rand_score(truth, labels) > adjusted_rand_score(
        truth, nearest(np.concatenate(tables), fitted.cluster_centers_)
    )


@pytest.mark.parametrize("shape", ["square", "cube", "log-normal", "t", "Gaussian"])
def test_a_cloud_without_clusters_is_one_cluster_or_is_said_to_be_without_gaps(shape):
    cloud = {
        "square": lambda rng, n: rng.random((n, 2)),
        "cube": lambda rng, n: rng.random((n, 8)),
        "log-normal": lambda rng, n: np.exp(rng.normal(size=(n, 4)) / 2),
        "t": lambda rng, n: rng.standard_t(3, size=(n, 3)),
        "Gaussian": lambda rng, n: rng.normal(size=(n, 5)) * [1, 2, 3, 4, 5],
    }[shape]
    for n_sites, n_rows in ((10, 200), (5, 2000)):
        said = []
        for seed in range(3):
            X = cloud(np.random.default_rng(seed), n_sites * n_rows)
            fitted = FederatedClustering(KnownCounts(1), Consensus(), log=False, fence=False, random_state=0)
            fitted.fit(np.split(X, n_sites))
            said.append(
                fitted.n_clusters_ == 1 or "cloud without any clusters" in " ".join(fitted.model_.diagnostics.notes)
            )
            if shape == "Gaussian":
                assert fitted.n_clusters_ == 1
        assert all(said)


def test_pieces_of_heavy_tails_at_large_sites_are_said_to_be_no_more_than_that():
    X = np.random.default_rng([300, 3, 5, 2]).standard_t(3, size=(40_000, 3))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    fitted = FederatedClustering(KnownCounts(1), Consensus(), standardize=False, random_state=0)
    fitted.fit(np.split(X, 5))
    assert fitted.n_clusters_ > 1  # their arms stand apart by d', so that alone does not tell
    assert "no structure beyond the shape of the cloud" in " ".join(fitted.model_.diagnostics.notes)


# --- Gaussian clusters from micro-clusters ---


def test_a_mixture_of_single_rows_without_tails_is_that_of_plain_em(monkeypatch):
    monkeypatch.setattr(mixture, "TAIL", 1e9)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (150, 2)) @ [[2, 1], [0, 1]], rng.normal(5, 1, (150, 2))])
    labels = np.repeat([0, 1], 150)
    micro = replace(single_rows(X), spread=np.zeros(2), axes=np.zeros((1, 2)))
    fitted, _ = fit_gaussians(parts_of([micro], np.ones(2)), labels, rng)
    means, covariances, weights = plain_em(X, labels)
    np.testing.assert_allclose(fitted.centers, means, atol=1e-3)
    np.testing.assert_allclose(fitted.weights, weights, atol=1e-3)
    along = np.einsum("qd,kde,pe->kqp", fitted.axes, covariances, fitted.axes)
    np.testing.assert_allclose(fitted.covariances, along, atol=1e-2)


def test_drawn_rows_have_the_moments_of_their_micro_clusters():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 3)) @ [[2, 0, 0], [1, 1, 0], [0, 0.5, 1]]
    parts = parts_of([micro_clusters_of(X, 20)], np.ones(3))
    rows = drawn_rows(parts, rng, 24_000)
    means = rows.X.reshape(len(parts.counts), -1, 3).mean(axis=1)
    np.testing.assert_allclose(means, parts.means, atol=1e-9)
    assert rows.weights.sum() == pytest.approx(400)
    drawn = np.cov(rows.X.T, aweights=rows.weights)
    np.testing.assert_allclose(drawn, parts.axes @ np.cov(X.T) @ parts.axes.T, atol=0.15)


def test_micro_clusters_between_two_clusters_do_not_blur_them():
    rng = np.random.default_rng(4)
    classes = np.repeat([0, 1], 2000)
    X = rng.normal(size=(4000, 10)) + np.where(classes[:, None] == 1, 1.2, -1.2) * (np.arange(10) < 3)
    micro = micro_clusters_of(X, 20)
    parts = parts_of([micro], np.ones(10))
    fitted, shares = fit_gaussians(parts, (micro.means[:, 0] > 0).astype(int), rng)
    truth = np.stack([X[classes == own].mean(axis=0) for own in (0, 1)])
    np.testing.assert_allclose(fitted.centers, truth, atol=0.35)
    np.testing.assert_allclose(fitted.weights, 0.5, atol=0.05)
    assert adjusted_rand_score(classes, fitted.assign(X)) > 0.8
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_a_fit_from_drawn_clusters_finds_what_no_step_from_the_chosen_ones_leads_to(monkeypatch):
    rng = np.random.default_rng(6)
    X = np.concatenate([rng.normal([at, 0], 1, (600, 2)) for at in (0, 6, 30)])
    classes = np.repeat([0, 1, 2], 600)
    micro = micro_clusters_of(X, 20)
    parts, labels = (
        parts_of([micro], np.ones(2)),
        np.searchsorted([20, 30], micro.means[:, 0]),
    )  # one in two, two in one

    def score(is_apart=None):
        return adjusted_rand_score(
            classes, fit_gaussians(parts, labels, np.random.default_rng(0), is_apart)[0].assign(X)
        )

    assert score() > 0.95
    halves_apart = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]], dtype=bool)
    assert score(halves_apart) < 0.6  # it would join two clusters that are said to be clearly apart
    monkeypatch.setattr(mixture, "MOST_STARTS", 0)
    assert score() < 0.6


def test_no_mixture_is_fitted_with_more_parameters_than_rows(monkeypatch):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 12))  # two Gaussians along 12 axes have 181 parameters
    micro = micro_clusters_of(X, 20)
    parts, labels = parts_of([micro], np.ones(12)), (micro.means[:, 0] > 0).astype(int)

    def is_as_chosen(of_rows):
        _, shares = fit_gaussians(replace(parts, counts=parts.counts * of_rows), labels, np.random.default_rng(0))
        return np.array_equal(shares, np.eye(2)[labels])

    assert n_parameters(2, 12) == 181
    assert is_as_chosen(180 / 400)
    assert not is_as_chosen(182 / 400)


def test_two_clusters_are_joined_where_one_of_the_fit_has_most_of_both():
    micro = single_rows(np.arange(6.0)[:, None])
    parts = parts_of([micro], np.ones(1))
    labels = np.array([0, 0, 1, 1, 2, 2])
    shares = np.eye(3)[[0, 0, 0, 0, 1, 2]]
    assert joined(rows_in(parts, labels, shares)).tolist() == [[False, True, False], [True, False, False], [False] * 3]


def test_a_cluster_between_two_others_is_mixed_where_its_rows_scatter_as_far_as_both():
    rng = np.random.default_rng(0)
    left, right, third = (at + rng.standard_normal((200, 2)) for at in ([0, 0], [30, 0], [15, 60]))
    between = np.array([15, 0]) + rng.standard_normal((200, 2))
    both = np.concatenate([left[:100], right[:100]])
    wide = 12 * rng.standard_normal((200, 2)) + [-10, -70]

    def are_mixed(*clusters):
        X = np.concatenate(clusters)
        groups = np.array_split(np.arange(len(X)), len(X) // 20)
        labels = np.repeat(np.arange(len(clusters)), 10)
        order = np.concatenate([np.r_[0:200:2, 1:200:2] + 200 * at for at in range(len(clusters))])
        micro = micro_clusters_by(X, [order[rows] for rows in groups])
        return Shapes(micro, micro.covariance_inside()).are_mixed(labels).tolist()

    shuffled = rng.permutation(both)
    assert are_mixed(left, right, third, shuffled) == [False, False, False, True]
    assert are_mixed(left, right, third, between) == [False] * 4  # rows of its own
    assert are_mixed(left, right, third, wide) == [False] * 4  # wide, but not between two others
    assert are_mixed(left, shuffled) == [False, False]


@pytest.mark.parametrize("seed", range(3))
def test_clusters_far_apart_are_counted_though_small_sites_cannot_tell_all_of_them_apart(seed):
    rng = np.random.default_rng([seed, 6])
    centers = rng.normal(0, 3, (8, 10))
    classes = [rng.integers(0, 8, 300) for _ in range(30)]
    tables = [centers[y] + rng.standard_normal((300, 10)) for y in classes]
    found = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(tables)
    assert found.n_clusters_ == 8
    assert adjusted_rand_score(np.concatenate(classes), np.concatenate(found.labels_)) > 0.95


def test_a_cluster_is_cut_where_a_fit_does_not_keep_nearly_all_of_it_together():
    rows = np.array([[90.0, 0.0], [80.0, 10.0], [96.0, 4.0], [0.0, 0.0]])
    np.testing.assert_array_equal(are_cut(rows), [False, True, False, False])
    grown = np.array([[3800.0, 103.0], [1.0, 40.0]])  # the rare cluster of the fit is mostly of the frequent one
    np.testing.assert_array_equal(are_cut(grown), [True, False])
    np.testing.assert_array_equal(are_cut(np.array([[3800.0, 30.0], [1.0, 40.0]])), [False, False])


def test_far_rows_do_not_shape_a_cluster_but_its_size():
    rng = np.random.default_rng(8)
    X = np.concatenate([rng.normal(size=(1900, 2)) * [1, 4], rng.normal(size=(100, 2)) * [15, 1]])
    rows = Rows(X, np.ones(len(X)), np.zeros(len(X), dtype=int))
    covariance = fit_to_rows(rows, np.ones((len(X), 1)), float(X.var(axis=0).mean())).covariances[0]
    plain = np.cov(X.T)
    assert plain[1, 1] < 2 * plain[0, 0]  # by the far rows it is hardly longer one way than the other
    assert covariance[1, 1] > 4 * covariance[0, 0]
    assert np.trace(covariance) > np.trace(plain)


def test_a_cluster_that_no_micro_cluster_is_most_of_is_none():
    """Ten rows between the usual state and a fault, of 40,000: no site reported a micro-cluster of them."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.concatenate([rng.normal(size=(1500, 3)), rng.normal(3.5, 1, (60, 3))])
        micro = micro_clusters_of(X, 20)
        along = micro.means.sum(axis=1)
        labels = np.digitize(along, [2.5, 5.5])  # the second is what lies between
        labels = np.unique(labels, return_inverse=True)[1]
        gaussians, shares = fit_gaussians(parts_of([micro], np.ones(3)), labels, rng)
        assert set(shares.argmax(axis=1)) == set(range(len(gaussians.centers)))
        np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_where_each_client_holds_one_cluster_the_clusters_stay_as_they_were_chosen():
    rng = np.random.default_rng(5)
    tables = [rng.normal(2 * (at % 3), 1, (100, 2)) for at in range(9)]  # they overlap, so a density would move some
    reports = [micro_clusters_of(X, 20) for X in tables]
    labels = np.repeat(np.arange(9) % 3, [len(each) for each in reports])
    parts = parts_of(reports, np.ones(2))
    assert told_by_clients(parts, np.eye(3)[labels]) == 1.0
    fitted, shares = fit_gaussians(parts, labels, rng)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)
    means = [np.concatenate(tables[at::3]).mean(axis=0) for at in range(3)]
    np.testing.assert_allclose(fitted.centers, means)


@pytest.mark.parametrize(
    ("rows", "expected"), [([[50, 0], [0, 50]], 1.0), ([[50, 50], [50, 50]], 0.0), ([[95, 5], [95, 5]], 0.0)]
)
def test_what_clients_tell_of_clusters_is_lambda(rows, expected):
    counts = np.array(rows)
    at = np.argwhere(counts)
    micro = [
        MicroClusters(
            counts=own[own > 0],
            means=np.zeros(((own > 0).sum(), 2)),
            scatters=np.ones((own > 0).sum()),
            spread=np.ones(2),
            axes=np.eye(2),
        )
        for own in counts
    ]
    assert told_by_clients(parts_of(micro, np.ones(2)), np.eye(2)[at[:, 1]]) == pytest.approx(expected)


def plain_em(X, labels):
    """Expectation-maximization with full covariances, each with 5 (d + 1) rows of the common one, written out."""
    n, d = X.shape
    shares = np.eye(2)[labels]
    for _ in range(31):
        counts = shares.sum(axis=0)
        means = shares.T @ X / counts[:, None]
        scatters = [((X - m).T * shares[:, k]) @ (X - m) for k, m in enumerate(means)]
        tied = sum(scatters) / n
        tied = tied + 1e-3 * np.trace(tied) / d * np.eye(d)
        prior = 5 * (d + 1)
        covariances = np.array([(s + prior * tied) / (c + prior) for s, c in zip(scatters, counts, strict=True)])
        weights = counts / n
        joint = np.stack(
            [
                multivariate_normal(m, c).logpdf(X) + np.log(w)
                for m, c, w in zip(means, covariances, weights, strict=True)
            ],
            axis=1,
        )
        before, shares = shares, np.exp(joint - joint.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        if np.abs(shares - before).max() < 1e-4:
            break
    return means, covariances, weights


def test_the_null_model_of_a_very_large_client_draws_no_more_rows_than_it_may():
    rng = np.random.default_rng(0)
    counts, means = np.full(200, 500_000), rng.normal(size=(200, 3))
    micro = MicroClusters(counts=counts, means=means, scatters=counts * 0.1, spread=np.full(3, 1e6), axes=np.eye(3))
    large = nullmodel.Gaussian.of(micro, np.array([10**8]), np.random.default_rng(1))
    assert large.sizes.sum() == nullmodel.MOST_NULL_ROWS
    assert large.least / large.sizes.sum() == 500_000 / 10**8  # as many micro-clusters as of all rows
    small = nullmodel.Gaussian.of(replace(micro, counts=counts // 1000), np.array([10**5]), np.random.default_rng(1))
    assert (small.sizes.tolist(), small.least) == ([100_000], 500)


def fitted(tables, **parameters):
    return FederatedClustering(aggregator=Consensus(), random_state=0, standardize=False, **parameters).fit(tables)


def dominated(seed, rows_of_state):
    """A state of 88 % of the rows beside four faults of 3 %, nine standard deviations off in a column each."""
    rng = np.random.default_rng(seed)
    tables, classes = [], []
    for _ in range(5):
        y = rng.choice(5, 1000, p=[0.88] + [0.03] * 4)
        X = rng.standard_normal((1000, 6))
        X[y == 0] = rows_of_state(rng, (y == 0).sum())
        X[y > 0, y[y > 0] - 1] += 9
        tables.append(X)
        classes.append(y)
    return tables, np.concatenate(classes)


@pytest.mark.parametrize(
    ("state", "least"),
    [
        (lambda rng, n: rng.uniform(-1.7, 1.7, (n, 6)), 0.99),
        (lambda rng, n: 0.6 * rng.standard_normal((n, 6)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3), 0.8),
    ],
    ids=["uniform", "heavy-tailed"],
)
def test_a_dominating_state_of_another_shape_is_not_cut_and_keeps_its_rows(state, least):
    tables, classes = dominated(0, state)
    found = fitted(tables)
    assert found.n_clusters_ == 5
    assert adjusted_rand_score(classes, np.concatenate(found.labels_)) > least
