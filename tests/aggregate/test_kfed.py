import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from koncord.aggregate.kfed import (
    KFed,
    LocalCenters,
    SendCenters,
    core_means,
    local_clusters,
    send_centers,
    spread_start,
)
from koncord.errors import MessageError
from koncord.kernels.lloyd import cost, kpp
from koncord.protocol.wire import pack, unpack


def in_order(centers):
    return centers[np.lexsort(centers.T)]


def plain_core_means(X, seeds):
    means = []
    for r, seed in enumerate(seeds):
        core = [
            x
            for x in X
            if all(3 * np.linalg.norm(x - seed) <= np.linalg.norm(x - other) for s, other in enumerate(seeds) if s != r)
        ]
        means.append(np.mean(core, axis=0) if core else seed)
    return np.array(means)


def plain_spread(centers, first, k):
    members = [centers[i] for i in first]
    pool = [center for i, center in enumerate(centers) if i not in set(first)]
    while len(members) < k:
        distances = [min(np.linalg.norm(c - m) for m in members) for c in pool]
        members.append(pool.pop(distances.index(max(distances))))
    return np.array(members)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_core_means_are_those_of_the_definition(seed, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    np.testing.assert_allclose(core_means(X, X[:k]), plain_core_means(X, X[:k]), atol=1e-12)


def test_a_seed_with_an_empty_core_stays_a_seed():
    X = np.array([[0.0], [1.0], [2.0]])
    assert core_means(X, np.array([[0.9], [1.1]])).tolist() == [[0.9], [1.1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(4, 9))
def test_the_start_of_the_server_is_that_of_the_plain_loop(seed, n_first, k):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(12, 3))
    first = np.arange(n_first) + 5
    np.testing.assert_array_equal(spread_start(centers, first, k), plain_spread(centers, first, k))


def test_too_many_first_centers_are_thinned_to_far_ones():
    centers = np.array([[50.0], [0.0], [1.0], [10.0], [11.0], [5.0]])
    assert spread_start(centers, np.arange(1, 6), 3).tolist() == [[0.0], [11.0], [5.0]]


@pytest.mark.parametrize("seed", range(5))
def test_the_local_step_is_k_means_from_the_cores_in_the_span_of_the_singular_vectors(seed, blobs):
    X, _ = blobs(6 * np.eye(5)[:3] + 2, 20, seed=seed)
    found = local_clusters(X, 3, np.random.default_rng(seed), n_init=1)
    values, vectors = np.linalg.eigh(X.T @ X)
    axes = vectors[:, np.argsort(-values)[:3]]
    projected = X @ axes
    seeds = X[kpp(X @ np.linalg.svd(X, full_matrices=False)[2][:3].T, 3, np.random.default_rng(seed))] @ axes
    start = plain_core_means(projected, seeds) @ axes.T
    central = KMeans(3, init=start, n_init=1, tol=0).fit(X)
    np.testing.assert_allclose(found.centers, central.cluster_centers_, atol=1e-9)
    assert found.labels.tolist() == central.labels_.tolist()


def test_one_client_with_the_global_k_gets_its_own_k_means(federate, blobs):
    X, _ = blobs([[0, 0], [5, 0], [0, 5], [5, 5]], 30)
    run = federate(KFed(4), {"only": X}, k=4)
    central = KMeans(4, init=run.centers, n_init=1, tol=0).fit(X)
    np.testing.assert_allclose(run.centers, central.cluster_centers_, atol=1e-12)
    assert run.outcome.groups["only"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(run.exchanges[0].up.centers, run.centers)


def test_global_centers_are_the_means_of_the_groups_of_what_was_sent(federate, six):
    _, tables = six()
    outcome = federate(KFed(6), tables).outcome
    sent = np.concatenate(list(outcome.components.values()))
    group = np.concatenate(list(outcome.groups.values()))
    for k in range(6):
        np.testing.assert_allclose(outcome.centers[k], sent[group == k].mean(axis=0))


@pytest.mark.parametrize("server_iters", [None, 1])
def test_six_clusters_are_found_where_every_client_holds_three(federate, six, worst_error, server_iters):
    errors = []
    for seed in range(8):
        centers, tables = six(seed)
        errors.append(worst_error(centers, federate(KFed(6, server_iters=server_iters), tables, seed=seed).centers))
    assert np.sum(np.array(errors) < 0.3) >= 6


def test_more_seedings_never_cost_more(blobs):
    X, _ = blobs(4 * np.random.default_rng(0).normal(size=(8, 2)), 15)
    costs = [cost(X, local_clusters(X, 8, np.random.default_rng(0), n_init=n).centers) for n in (1, 3, 10)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]


def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result):
    same_result(federate, KFed(6), six()[1])


def test_no_row_is_sent_while_centers_stand_for_two(federate, uneven, disclosed):
    assert disclosed(federate(KFed(3), uneven)) == set()
    assert ("rows1", 0) in disclosed(federate(KFed(3, min_count=1), uneven))


def test_a_client_with_one_row_sends_nothing(federate, uneven):
    run = federate(KFed(2), uneven)
    sizes = {exchange.client: len(exchange.up.centers) for exchange in run.exchanges}
    assert sizes == {"lone": 2, "many": 3, "rows1": 0, "rows2": 1, "rows3": 1}
    assert {name: len(group) for name, group in run.outcome.groups.items()} == sizes


def test_every_center_sent_is_the_mean_of_enough_rows(local):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    for min_count in (2, 5, 10):
        down = SendCenters(n_init=3, min_count=min_count)
        _, up = send_centers(local(X, X[:12]), None, down)
        found = local_clusters(X, min(12, 50 // min_count), np.random.default_rng(0), 3)
        assert up.centers.tolist() == found.centers[found.counts >= min_count].tolist()
        assert len(up.centers) > 0


def test_what_is_sent_does_not_grow_with_the_rows(federate, six):
    sizes = [{e.up.centers.shape for e in federate(KFed(6), six(n_each=n)[1]).exchanges} for n in (20, 200)]
    assert sizes[0] == sizes[1] == {(3, 2)}


def test_one_cluster_is_the_mean_of_all_centers(federate, six):
    run = federate(KFed(1), six()[1])
    np.testing.assert_allclose(run.centers, [np.concatenate([e.up.centers for e in run.exchanges]).mean(axis=0)])


def test_coinciding_rows_are_one_center(federate):
    run = federate(KFed(2), {"a": np.zeros((5, 2)), "b": np.ones((4, 2))})
    assert in_order(run.centers).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_more_clusters_than_centers_is_a_sentence(federate, six):
    with pytest.raises(ValueError, match=r"'n_clusters' of KFed must be at most 24 \(the clients sent only that many"):
        federate(KFed(25), six()[1])
    with pytest.raises(ValueError, match="must be at most 1"):
        federate(KFed(2), [np.zeros((5, 2)), np.zeros((4, 2))])


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"server_iters": 0}, {"n_init": 0}, {"min_count": -1}])
def test_wrong_parameters_are_refused_when_the_server_starts(wrong):
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"'{name}' of KFed must be at least"):
        KFed(**{"n_clusters": 3, **wrong}).server(("a",), 2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="'n_clusters' of KFed is missing"):
        KFed().server(("a",), 2, np.random.default_rng(0))


def test_a_message_must_be_a_matrix_of_numbers(carried):
    for centers in (np.zeros(3), np.full((1, 2), np.nan)):
        with pytest.raises(MessageError, match=r"'centers' of a message kfed.LocalCenters must"):
            carried(LocalCenters(centers=centers))
    good = pack(LocalCenters(centers=np.empty((0, 4))))
    assert unpack(good, (LocalCenters,))[0].centers.shape == (0, 4)
    with pytest.raises(MessageError):
        unpack(good, (SendCenters,))


def test_parameters_may_be_numbers_of_numpy(federate, six):
    assert (
        len(
            federate(
                KFed(np.int64(3), server_iters=np.int64(2), n_init=np.int64(2), min_count=np.int64(2)),
                six(n_each=10)[1],
            ).centers
        )
        >= 1
    )


def test_it_declares_what_it_sends(declares_what_it_sends):
    declares_what_it_sends(KFed)
