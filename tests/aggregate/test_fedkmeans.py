from itertools import pairwise

import numpy as np
import pytest
from sklearn.cluster import KMeans

from koncord import KnownCounts
from koncord.aggregate.fedkmeans import (
    Begin,
    FedKMeans,
    LocalMeans,
    Refine,
    begin,
    cluster_centers,
    matched_shift,
    refine,
    spread,
)
from koncord.errors import KoncordError, MessageError
from koncord.kernels.lloyd import cost, kmeans, kpp
from koncord.protocol.setup import Prepare
from koncord.protocol.wire import pack, unpack
from koncord.session.site import Site, client_stream


def plain_pass(X, centers):
    """Assignment and mean, once: the means and how many rows each is made of."""
    nearest = [int(np.argmin([((x - c) ** 2).sum() for c in centers])) for x in X]
    rows = [[x for x, label in zip(X, nearest, strict=True) if label == k] for k in range(len(centers))]
    return [np.mean(part, axis=0) if part else centers[k] for k, part in enumerate(rows)], [len(part) for part in rows]


def assert_means(up, centers, counts, min_count):
    kept = [k for k, count in enumerate(counts) if count >= min_count]
    np.testing.assert_allclose(up.centers, [centers[k] for k in kept], atol=1e-12)
    assert up.counts.tolist() == [counts[k] for k in kept]


@pytest.mark.parametrize("min_count", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_client_begins_with_one_pass_from_its_seeds(local, seed, min_count):
    X = np.random.default_rng(seed).normal(size=(30, 2))
    _, up = begin(local(X, seed=seed), None, Begin(n_clusters=7, local_iters=1, min_count=min_count))
    assert_means(up, *plain_pass(X, X[kpp(X, 7, np.random.default_rng(seed))]), min_count)


@pytest.mark.parametrize("drop_empty", [True, False])
@pytest.mark.parametrize("n_iter", [1, 3])
def test_a_client_refines_the_centers_it_is_given(local, n_iter, drop_empty):
    X = np.random.default_rng(0).normal(size=(40, 2))
    given = np.array([[0.0, 1.0], [90.0, 90.0], [1.0, -1.0], [-1.0, 0.0]])
    down = Refine(centers=given, local_iters=n_iter, min_count=2, drop_empty=drop_empty)
    _, up = refine(local(X), None, down)
    centers = list(given[[0, 2, 3]])
    for _ in range(n_iter):
        centers, counts = plain_pass(X, centers)
    assert_means(up, centers, counts, 2)


def test_no_mean_of_fewer_rows_than_the_floor_leaves_a_client(local):
    X = np.concatenate([np.full((30, 2), 0.0), np.full((25, 2), 10.0), np.full((3, 2), 12.0), np.full((2, 2), 14.0)])
    centers = np.array([[0.0, 0.0], [10.0, 10.0], [12.0, 12.0], [14.0, 14.0]])
    down = Refine(centers=centers, local_iters=1, min_count=1, drop_empty=False)
    site = Site("s", X, ("x", "y"), estimator=KnownCounts(1), aggregator=FedKMeans(4))
    site.answer(pack(Prepare(seed=0, columns=("x", "y"), means=np.zeros(2), scales=np.ones(2))))
    up, _ = unpack(site.answer(pack(down, round_=1)), (LocalMeans,))
    # The rows of the small ones, 5 together, go with the nearest.
    assert up.counts.tolist() == [30, 30]
    np.testing.assert_allclose(up.counts * up.centers[:, 0], [0, 314])
    _, up = refine(local(X), None, down)
    assert up.counts.tolist() == [30, 25, 3, 2]
    np.testing.assert_allclose(up.counts * up.centers[:, 0], [0, 250, 36, 28])


def test_an_empty_center_is_sent_only_on_request(local):
    X = np.zeros((4, 1))
    given = np.array([[0.0], [9.0]])
    for drop_empty, counts in ((True, [4]), (False, [4, 0])):
        down = Refine(centers=given, local_iters=1, min_count=0, drop_empty=drop_empty)
        assert refine(local(X), None, down)[1].counts.tolist() == counts


def test_one_client_with_the_global_k_gets_k_means_from_its_seeds(federate, blobs):
    X, _ = blobs([[0, 0], [5, 0], [0, 5], [5, 5]], 30)
    run = federate(FedKMeans(4, local_iters=300, n_rounds=3), {"only": X})
    seeds = X[kpp(X, 4, np.random.default_rng(client_stream(0, "only", 1)))]
    central = KMeans(4, init=seeds, n_init=1, tol=0).fit(X)
    assert matched_shift(run.centers, central.cluster_centers_) < 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_over_all_rows_never_rises(federate, seed):
    """With one local pass and nothing withheld: rows to local means to global centers only ever gets shorter."""
    rng = np.random.default_rng(seed)
    tables = {f"c{g}": rng.normal(size=(30, 2)) + rng.normal(size=2) for g in range(4)}
    X = np.concatenate(list(tables.values()))
    costs = []
    for n_rounds in range(1, 7):
        run = federate(FedKMeans(5, n_rounds=n_rounds, min_count=1, n_init=1), tables, seed=seed)
        costs.append(cost(X, run.centers))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(costs))
    assert costs[-1] < costs[0]


@pytest.mark.parametrize("is_weighted", [True, False])
def test_a_server_step_never_gets_worse_than_the_previous_centers(is_weighted):
    rng = np.random.default_rng(0)
    for seed in range(20):
        means, previous = rng.normal(size=(40, 3)), rng.normal(size=(6, 3))
        weights = rng.integers(1, 50, size=40).astype(float) if is_weighted else None
        found = cluster_centers(means, weights, 6, np.random.default_rng(seed), n_init=1, previous=previous)
        assert cost(means, found, weights) <= cost(means, previous, weights)


def test_the_objective_is_the_weighted_cost_of_what_was_sent_last(federate, six):
    run = federate(FedKMeans(6, n_rounds=4), six()[1])
    last = [exchange.up for exchange in run.exchanges if exchange.round_ == 4]
    means, counts = np.concatenate([up.centers for up in last]), np.concatenate([up.counts for up in last])
    assert len(run.diagnostics.objective) == run.diagnostics.rounds == 4
    assert run.diagnostics.objective[-1] == pytest.approx(cost(means, run.centers, counts))


def test_weights_move_a_center_toward_the_client_with_more_rows(federate):
    tables = {"few": np.full((2, 1), 0.0), "many": np.full((6, 1), 8.0)}
    assert federate(FedKMeans(1), tables).centers.tolist() == [[6.0]]
    assert federate(FedKMeans(1, weighted=False), tables).centers.tolist() == [[4.0]]


def test_six_clusters_are_found_where_every_client_holds_three(federate, six, worst_error):
    for seed in range(6):
        centers, tables = six(seed)
        run = federate(FedKMeans(6), tables, seed=seed)
        assert worst_error(centers, run.centers) < 0.3
        assert run.diagnostics.stopped == "converged"


def test_a_tolerance_stops_it_early(federate, six):
    _, tables = six()
    run = federate(FedKMeans(6, n_rounds=50, tol=1e-3), tables)
    assert run.diagnostics.rounds < 10
    assert run.diagnostics.stopped == "converged"
    assert federate(FedKMeans(6, n_rounds=3), tables).diagnostics.rounds == 3


def test_the_shift_is_that_of_the_best_matching():
    before = np.array([[0.0], [10.0], [20.0]])
    assert matched_shift(before, np.array([[20.5], [0.0], [9.0]])) == 1.0
    assert matched_shift(before, before[::-1]) == 0.0
    assert matched_shift(before, before[:2]) == np.inf
    assert spread(before) == pytest.approx(before.std())


def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result):
    same_result(federate, FedKMeans(6), six()[1])


def test_no_row_is_sent_while_means_stand_for_two(federate, uneven, disclosed):
    assert disclosed(federate(FedKMeans(4), uneven)) == set()
    assert ("rows1", 0) in disclosed(federate(FedKMeans(4, min_count=1), uneven))


def test_what_is_sent_does_not_grow_with_the_rows(federate, six):
    for n in (20, 200):
        run = federate(FedKMeans(6), six(n_each=n)[1])
        assert max(sum(array.size for array in exchange.arrays().values()) for exchange in run.exchanges) <= 6 * 3


def test_a_client_with_one_row_takes_no_part(federate, uneven):
    run = federate(FedKMeans(3), uneven)
    assert {len(exchange.up.centers) for exchange in run.exchanges if exchange.client == "rows1"} == {0}


def test_one_cluster_is_the_mean_of_all_rows(federate, six):
    _, tables = six()
    run = federate(FedKMeans(1), tables)
    np.testing.assert_allclose(run.centers, [np.concatenate(list(tables.values())).mean(axis=0)])


def test_too_few_distinct_means_lower_the_number_of_clusters_and_the_result_says_so(federate):
    run = federate(FedKMeans(5), {"a": np.zeros((9, 2)), "b": np.ones((9, 2))})
    assert sorted(run.centers.tolist()) == [[0.0, 0.0], [1.0, 1.0]]
    assert run.diagnostics.notes == ("The number of clusters is 2, not 5: the clients sent only 2 distinct centers.",)
    assert federate(FedKMeans(2), {"a": np.zeros((9, 2)), "b": np.ones((9, 2))}).diagnostics.notes == ()


def test_clients_of_one_row_each_have_no_clustering(federate):
    with pytest.raises(KoncordError, match="No client sent a center: each has fewer than 2 rows"):
        federate(FedKMeans(2), [np.zeros((1, 2)), np.ones((1, 2))])
    assert len(federate(FedKMeans(2, min_count=1), [np.zeros((1, 2)), np.ones((1, 2))]).centers) == 2


@pytest.mark.parametrize(
    "wrong", [{"n_clusters": 0}, {"n_rounds": 0}, {"local_iters": 0}, {"min_count": -1}, {"n_init": 0}, {"tol": -1.0}]
)
def test_wrong_parameters_are_refused_when_the_server_starts(wrong):
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"'{name}' of FedKMeans must be .*at least"):
        FedKMeans(**{"n_clusters": 3, **wrong}).server(("a",), 2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="'n_clusters' of FedKMeans is missing"):
        FedKMeans().server(("a",), 2, np.random.default_rng(0))


def test_messages_must_fit_together(carried):
    with pytest.raises(MessageError, match=r"'counts' .* must have 2 for at most global_k; it has 3"):
        carried(LocalMeans(centers=np.zeros((2, 3)), counts=np.array([1, 2, 3])))
    with pytest.raises(MessageError, match=r"'counts' .* must hold numbers from 0"):
        carried(LocalMeans(centers=np.zeros((1, 3)), counts=np.array([-1])))
    with pytest.raises(MessageError, match=r"'centers' .* must hold numbers from"):
        carried(LocalMeans(centers=np.array([[np.inf]]), counts=np.array([1])))
    with pytest.raises(MessageError, match=r"'centers' .* must be global_k x n_features"):
        carried(Refine(centers=np.zeros(3), local_iters=1, min_count=1, drop_empty=True))


def test_parameters_may_be_numbers_of_numpy(federate, six):
    assert (
        len(
            federate(
                FedKMeans(
                    np.int64(3),
                    n_rounds=np.int64(2),
                    local_iters=np.int64(1),
                    min_count=np.int64(2),
                    n_init=np.int64(2),
                ),
                six(n_each=10)[1],
            ).centers
        )
        >= 1
    )


def test_it_declares_what_it_sends(declares_what_it_sends):
    declares_what_it_sends(FedKMeans)


def test_the_first_round_clusters_until_nothing_moves_and_the_later_ones_pass_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    for given, first, later in (({}, 100, 1), ({"first_iters": 1, "local_iters": 3}, 1, 3)):
        server = FedKMeans(5, **given).server(("a",), 2, rng)
        begin = next(server)
        assert begin.local_iters == first
        found = kmeans(X, 5, rng, max_iter=first)
        assert server.send({"a": LocalMeans(centers=found.centers, counts=found.counts)}).local_iters == later
