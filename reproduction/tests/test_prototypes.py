"""The aggregators that group the prototypes of all clients: FedKStarHC and FedHDBSCAN, and what they share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import HDBSCAN

from koncord import FederatedClustering
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.checks.aggregators import AGGREGATOR_CHECKS
from koncord.checks.failing import sentence_of
from koncord.errors import KoncordError
from koncord_reproduction.fedkstarhc import (
    FedKStarHC,
    hierarchical_groups,
    joined,
    least_density,
    n_natural,
    natural_links,
    partners,
)
from koncord_reproduction.hdbscan import FedHDBSCAN, dense_parts
from koncord_reproduction.prototypes import MOST_AXES, Prototypes, SendPrototypes, prototypes_of, shapes_by

BOTH = [FedKStarHC(), FedHDBSCAN()]


@pytest.mark.parametrize("check", AGGREGATOR_CHECKS, ids=sentence_of)
@pytest.mark.parametrize("aggregator", BOTH)
def test_the_aggregator_passes_the_check(aggregator, check):
    check(aggregator)


def test_a_run_finds_them_by_their_names():
    for aggregator in BOTH:
        assert AGGREGATORS[aggregator.name].package == "koncord-reproduction"
        assert aggregator_named(aggregator.name) is type(aggregator)


def points(seed, n=40, d=2):
    return np.random.default_rng(seed).normal(size=(n, d)), np.random.default_rng(seed + 1).integers(20, 40, n)


def slow_links(means, counts):
    """Natural neighbors by the definition, with lists."""
    n, d = means.shape
    gaps = np.linalg.norm(means[:, None] - means, axis=2)
    order = [sorted((j for j in range(n) if j != i), key=lambda j: gaps[i, j]) for i in range(n)]
    before = n
    for k in range(1, n):
        lonely = n - len({j for near in order for j in near[:k]})
        if lonely in (0, before):
            break
        before = lonely
    mutual = [(i, j) for i in range(n) for j in range(i + 1, n) if j in order[i][:k] and i in order[j][:k]]
    return mutual, [((counts[i] + counts[j]) / 2) ** (1 / d) / gaps[i, j] for i, j in mutual], k


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("d", [1, 2, 7])
def test_links_are_those_of_the_definition(seed, d):
    means, counts = points(seed, d=d)
    links = natural_links(means, counts)
    pairs, densities, k = slow_links(means, counts)
    assert links.n_neighbors == k
    assert links.pairs.tolist() == [list(pair) for pair in pairs]
    np.testing.assert_allclose(links.densities, densities, rtol=1e-12)


def test_neighbors_are_as_many_as_it_takes_until_everyone_is_somebodys():
    assert n_natural(np.array([[1, 2, 3], [0, 2, 3], [3, 0, 1], [2, 0, 1]])) == 1
    assert n_natural(np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 3, 1]])) == 2  # nobody finds the last two
    assert n_natural(np.array([[1, 3, 2], [0, 2, 3], [1, 0, 3], [1, 0, 2]])) == 2


def test_the_density_that_a_border_needs_is_that_inside_less_the_slack():
    ends = np.array([[0, 0], [0, 0], [0, 0], [1, 1], [0, 1], [2, 1]])
    densities = np.array([1.0, 2.0, 3.0, 5.0, 0.5, 0.1])
    few = max(5.0 - 0.5 * 5.0 * densities.std() / densities.mean(), 0)  # one link: the deviation of all of them
    np.testing.assert_allclose(least_density(ends, densities, 3, slack=0.5), [2 - 0.5 * np.sqrt(2 / 3), few, 0])


def test_joining_ends_where_no_two_are_each_others_densest_neighbor_and_may_join():
    means, counts = points(3, n=120)
    links = natural_links(means, counts)
    labels, n_passes = joined(len(means), links, slack=1.5)
    assert 1 <= n_passes < len(means)
    assert partners(labels, links, slack=1.5).tolist() == list(range(labels.max() + 1))
    more = joined(len(means), links, slack=50.0)[0]
    assert more.max() <= labels.max()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 60))
def test_the_order_of_prototypes_does_not_matter(seed, n):
    means, counts = points(seed, n=n)
    order = np.random.default_rng(seed).permutation(n)
    first = joined(n, natural_links(means, counts), slack=1.5)[0]
    second = joined(n, natural_links(means[order], counts[order]), slack=1.5)[0]
    pairs = {(a, b) for a, b in zip(first[order], second, strict=True)}
    assert len(pairs) == first.max() + 1 == second.max() + 1


def test_prototypes_in_one_place_are_in_one_cluster():
    means, counts = points(5)
    labels, extra = hierarchical_groups(np.tile(means, (3, 1)), np.tile(counts, 3), slack=1.5)
    alone, _ = hierarchical_groups(means, 3 * counts, slack=1.5)
    assert labels.tolist() == np.tile(alone, 3).tolist()
    assert extra["neighbors"] < 20
    assert hierarchical_groups(np.ones((150, 3)), np.full(150, 20), slack=1.5)[0].tolist() == [0] * 150


@pytest.mark.parametrize("seed", range(3))
def test_dense_parts_are_those_of_hdbscan_in_order_of_appearance(seed):
    means = np.concatenate([points(seed, n=25)[0] * 0.2 + place for place in ([5, 5], [0, 0], [9, -3])])
    found = dense_parts(means, min_cluster_size=5, min_samples=4, allow_single_cluster=False)
    same = HDBSCAN(min_cluster_size=5, min_samples=4, copy=True).fit_predict(means)
    assert ((found < 0) == (same < 0)).all()
    assert len({(a, b) for a, b in zip(found, same, strict=True)}) == len(set(found))
    first = [int(np.flatnonzero(found == part)[0]) for part in range(found.max() + 1)]
    assert first == sorted(first)


def test_fewer_prototypes_than_hdbscan_needs_are_noise():
    assert dense_parts(np.eye(4), min_cluster_size=4, min_samples=2, allow_single_cluster=False).tolist() == [-1] * 4


@pytest.mark.parametrize("aggregator", BOTH)
def test_prototypes_stand_for_all_rows_and_each_for_enough(federate, blobs, aggregator):
    X, _ = blobs([[0, 0], [9, 0]], 90)
    (exchange,) = federate(aggregator, {"only": X}).exchanges
    assert exchange.down == SendPrototypes(min_rows=20)
    up = exchange.up
    assert up.counts.min() >= 20
    assert up.counts.sum() == len(X)
    np.testing.assert_allclose(up.counts @ up.means / len(X), X.mean(axis=0))
    inside = up.spread + up.counts @ (up.means - X.mean(axis=0)) ** 2
    np.testing.assert_allclose(inside, len(X) * X.var(axis=0))


@pytest.mark.parametrize("d", [1, 3, 20])
def test_the_shape_of_one_cluster_is_the_covariance_of_its_rows(d):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(400, d)) * np.arange(1, d + 1)
    sent = prototypes_of(X, rng.integers(0, 30, 400))
    shapes = shapes_by(sent, np.zeros(30, dtype=np.int64))
    np.testing.assert_allclose(shapes.centers[0], X.mean(axis=0))
    assert len(shapes.axes) == min(d, MOST_AXES)
    if d <= MOST_AXES:  # what the prototypes tell of the covariance: between them in full, inside them by column
        between = np.cov(sent.means.T, fweights=sent.counts, bias=True).reshape(d, d)
        whole = shapes.axes @ (between + np.diag(sent.spread / 400)) @ shapes.axes.T
        np.testing.assert_allclose(shapes.covariances[0], whole, rtol=1e-4, atol=1e-5 * np.trace(whole))


def test_a_prototype_in_no_cluster_moves_no_center():
    sent = Prototypes(counts=np.array([20, 20, 30]), means=np.array([[0.0], [2.0], [50.0]]), spread=np.array([7.0]))
    shapes = shapes_by(sent, np.array([0, 0, -1]))
    assert shapes.centers.tolist() == [[1.0]]


@pytest.mark.parametrize("aggregator", BOTH)
def test_six_clusters_are_found_where_every_client_holds_three(federate, six, aggregator):
    for seed in range(3):
        centers, tables = six(seed, n_each=80)
        outcome = federate(aggregator, tables, seed=seed).outcome
        assert 6 <= len(outcome.centers) <= 10  # some are found in parts
        for client, group in outcome.groups.items():
            true = np.linalg.norm(outcome.components[client][:, None] - centers, axis=2).argmin(axis=1)
            assert len(set(zip(group, true, strict=True))) == len(set(group))  # and no part is of two


def test_a_cluster_may_have_any_shape():
    """Two rings, one inside the other: the groups of prototypes are pure, though one center lies in the other."""
    rng = np.random.default_rng(0)
    tables = {}
    for site in "ab":
        angles = rng.uniform(0, 2 * np.pi, 3000)
        radii = np.repeat([3.0, 12.0], 1500) + rng.normal(0, 0.15, 3000)
        tables[site] = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    clustering = FederatedClustering(aggregator=FedHDBSCAN(), random_state=0, standardize=False).fit(tables)
    model = clustering.model_
    assert model.n_clusters == 2
    inner = {model.groups[site][at] for site in "ab" for at in np.flatnonzero(radius_of(model.components[site]) < 6)}
    outer = {model.groups[site][at] for site in "ab" for at in np.flatnonzero(radius_of(model.components[site]) > 9)}
    assert len(inner) == len(outer) == 1
    assert inner.isdisjoint(outer)


def radius_of(means):
    return np.linalg.norm(means, axis=1)


def test_noise_alone_is_one_cluster_and_is_said(federate):
    X = np.random.default_rng(0).normal(size=(60, 2))
    run = federate(FedHDBSCAN(), {"a": X})
    assert len(run.centers) == 1
    assert "no dense part" in run.outcome.diagnostics.notes[0]


@pytest.mark.parametrize("aggregator", BOTH)
def test_rows_that_are_one_point_are_one_cluster(federate, aggregator):
    run = federate(aggregator, {"a": np.full((60, 2), 7.0)})
    assert run.centers.tolist() == [[7.0, 7.0]]


@pytest.mark.parametrize("aggregator", BOTH)
@pytest.mark.parametrize(("scale", "offset"), [(1e-4, 0.0), (1e4, 0.0), (1.0, 1e6)])
def test_units_and_origin_do_not_matter(federate, six, aggregator, scale, offset):
    _, tables = six(n_each=60)
    first = federate(aggregator, tables)
    second = federate(aggregator, {name: scale * X + offset for name, X in tables.items()})
    np.testing.assert_allclose(second.centers, scale * first.centers + offset, rtol=1e-7)


@pytest.mark.parametrize("aggregator", BOTH)
def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result, aggregator):
    same_result(federate, aggregator, six(n_each=60)[1])


@pytest.mark.parametrize("aggregator", BOTH)
def test_no_row_is_sent(federate, uneven, disclosed, aggregator):
    assert disclosed(federate(aggregator, uneven)) == set()


@pytest.mark.parametrize("aggregator", BOTH)
def test_nothing_sent_is_a_sentence(federate, aggregator):
    with pytest.raises(KoncordError, match="No client sent a micro-cluster"):
        federate(aggregator, [np.zeros((3, 2)), np.ones((3, 2))])


@pytest.mark.parametrize(
    "wrong",
    [
        FedKStarHC(slack=-1.0),
        FedKStarHC(min_rows=0),
        FedHDBSCAN(min_cluster_size=1),
        FedHDBSCAN(min_samples=0),
        FedHDBSCAN(min_rows=0),
    ],
)
def test_wrong_parameters_are_refused_when_the_server_starts(wrong):
    with pytest.raises(ValueError, match=f"of {type(wrong).__name__} must be"):
        wrong.server(("a",), 2, np.random.default_rng(0))


@pytest.mark.parametrize("aggregator", BOTH)
def test_it_declares_what_it_sends(declares_what_it_sends, aggregator):
    declares_what_it_sends(type(aggregator))
