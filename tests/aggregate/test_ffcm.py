from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.aggregate import fedkmeans
from koncord.aggregate.ffcm import (
    FFCM,
    Fuzzify,
    FuzzySums,
    averaged,
    clustered_centers,
    fuzzify,
    gathered,
    local_centers,
    memberships,
    stands_for_rows,
)
from koncord.errors import KoncordError, MessageError
from koncord.kernels.lloyd import kmeans, lloyd


def plain_memberships(X, centers, m):
    u = np.zeros((len(X), len(centers)))
    for i, x in enumerate(X):
        distances = [float(np.linalg.norm(x - c)) for c in centers]
        hits = [k for k, distance in enumerate(distances) if distance == 0]
        for k, distance in enumerate(distances):
            if hits:
                u[i, k] = (k in hits) / len(hits)
            else:
                u[i, k] = 1 / sum((distance / other) ** (2 / (m - 1)) for other in distances)
    return u


def plain_fuzzy_step(X, centers, m):
    """One pass of fuzzy c-means over all rows."""
    u = plain_memberships(X, centers, m) ** m
    return np.array([sum(w * x for w, x in zip(u[:, k], X, strict=True)) / u[:, k].sum() for k in range(len(centers))])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([1.2, 1.5, 2.0, 3.0]), st.booleans())
def test_memberships_are_those_of_the_definition(seed, k, m, coincide):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 2))
    centers = X[rng.integers(12, size=k)] if coincide else rng.normal(size=(k, 2))
    np.testing.assert_allclose(memberships(X, centers, m), plain_memberships(X, centers, m), atol=1e-12)


def test_a_row_on_two_centers_belongs_to_both_by_half():
    centers = np.array([[0.0], [0.0], [1.0]])
    assert memberships(np.array([[0.0]]), centers, 2.0).tolist() == [[0.5, 0.5, 0.0]]


def test_memberships_survive_extreme_distances():
    u = memberships(np.array([[0.0], [1e120]]), np.array([[1e-120], [1.0], [1e100]]), 1.05)
    np.testing.assert_allclose(u.sum(axis=1), 1.0)


@pytest.mark.parametrize(("fuzzifier", "min_count"), [(2.0, 2), (2.0, 1), (1.5, 1)])
def test_every_round_is_a_pass_over_the_pooled_rows(federate, six, fuzzifier, min_count):
    _, tables = six(n_each=15)
    X = np.concatenate(list(tables.values()))
    run = federate(FFCM(6, fuzzifier=fuzzifier, min_count=min_count, max_rounds=8, tol=0.0), tables)
    sent_down = [e.down.centers for e in run.exchanges if e.client == "c0" and isinstance(e.down, Fuzzify)]
    assert len(sent_down) == 8
    for before, after in zip(sent_down, [*sent_down[1:], run.centers], strict=True):
        np.testing.assert_allclose(after, plain_fuzzy_step(X, before, fuzzifier), atol=1e-10)


@pytest.mark.parametrize("averaging", ["avg1", "avg2"])
def test_one_client_is_central_fuzzy_c_means_from_the_same_start(federate, blobs, averaging):
    X, _ = blobs([[0, 0], [5, 0], [0, 5], [5, 5]], 30)
    run = federate(FFCM(4, averaging, tol=1e-10), {"only": X})
    centers = run.exchanges[1].down.centers
    for _ in range(80):
        centers = plain_fuzzy_step(X, centers, 2.0)
    assert fedkmeans.matched_shift(run.centers, centers) < 1e-4
    assert run.diagnostics.stopped == "converged"


def test_settled_memberships_no_longer_change(local, blobs):
    X, _ = blobs([[0, 0], [6, 0], [0, 6]], 20)
    start = X[[0, 20, 40]]
    down = Fuzzify(centers=start, fuzzifier=2.0, local_iters=None, min_count=1)
    _, up = fuzzify(local(X), None, down)
    centers = start
    for _ in range(200):
        centers = plain_fuzzy_step(X, centers, 2.0)
    np.testing.assert_allclose(up.sums / up.supports[:, None], centers, atol=1e-4)
    np.testing.assert_allclose(up.supports, plain_memberships(X, centers, 2.0).sum(axis=0), atol=1e-3)
    assert up.supports.sum() == pytest.approx(len(X))


def test_several_local_passes_follow_one_another(local):
    X = np.random.default_rng(0).normal(size=(25, 2))
    down = Fuzzify(centers=X[:3], fuzzifier=2.0, local_iters=3, min_count=1)
    _, up = fuzzify(local(X), None, down)
    centers = X[:3]
    for _ in range(3):
        last, centers = centers, plain_fuzzy_step(X, centers, 2.0)
    np.testing.assert_allclose(up.sums / up.supports[:, None], centers, atol=1e-12)
    np.testing.assert_allclose(up.supports, (plain_memberships(X, last, 2.0) ** 2).sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"averaging": "avg2"}, {"averaging": "avg2", "weights": "support"}])
def test_six_clusters_are_found_where_every_client_holds_three(federate, six, worst_error, options):
    for seed in range(5):
        centers, tables = six(seed)
        run = federate(FFCM(6, **options), tables, seed=seed)
        assert worst_error(centers, run.centers) < 0.3
        assert run.diagnostics.stopped == "converged"


def test_averaging_by_index_fails_when_clients_settle_first(federate, six, worst_error):
    """Why one local pass is the default of avg1."""
    centers, tables = six()
    assert worst_error(centers, federate(FFCM(6, local_iters=None, max_rounds=20), tables).centers) > 2


def test_averages_are_weighted_by_support():
    sums = np.array([[[4.0], [0.0]], [[30.0], [0.0]]])
    supports = np.array([[2.0, 0.0], [3.0, 0.0]])
    assert averaged(sums, supports, previous=np.array([[7.0], [9.0]])).tolist() == [[6.8], [9.0]]
    pool, weights = local_centers(sums, supports)
    assert pool.tolist() == [[2.0], [10.0]]
    assert weights.tolist() == [2.0, 3.0]


def test_avg2_seeds_anew_in_the_first_round_only():
    rng = np.random.default_rng(0)
    local, previous = rng.normal(size=(30, 2)), rng.normal(size=(4, 2))
    first = clustered_centers(local, None, np.random.default_rng(1), previous=previous, n_init=10)
    np.testing.assert_array_equal(first, kmeans(local, 4, np.random.default_rng(1), n_init=10).centers)
    later = clustered_centers(local, None, np.random.default_rng(1), previous=previous, n_init=0)
    np.testing.assert_array_equal(later, lloyd(local, previous).centers)
    few = clustered_centers(local[:2], None, np.random.default_rng(1), previous=previous, n_init=10)
    assert few.shape == previous.shape
    assert clustered_centers(local[:0], None, rng, previous=previous, n_init=10) is previous


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4))
def test_a_center_stands_for_rows_unless_too_few_hold_its_weight(seed, n, min_count):
    shares = np.random.default_rng(seed).random((n, 6)) ** 8
    expected = [sum(sorted(column)[::-1][: min_count - 1]) < 0.95 * sum(column) for column in shares.T]
    assert stands_for_rows(shares, min_count).tolist() == expected
    assert not stands_for_rows(np.zeros((3, 1)), min_count).any()


@pytest.mark.parametrize("options", [{}, {"averaging": "avg2"}, {"local_iters": None}])
def test_no_row_is_sent_while_centers_stand_for_two(federate, uneven, disclosed, options):
    def with_centers(run):
        """What the server can divide: each sum by its support."""
        seen = []
        for exchange in run.exchanges:
            seen.append(exchange)
            if isinstance(exchange.up, FuzzySums):
                has = exchange.up.supports > 0
                ratio = exchange.up.sums[has] / exchange.up.supports[has, None]
                seen.append(replace(exchange, up=FuzzySums(sums=ratio, supports=exchange.up.supports[has])))
        return replace(run, exchanges=seen)

    assert disclosed(with_centers(federate(FFCM(4, **options), uneven))) == set()
    assert ("rows1", 0) in disclosed(with_centers(federate(FFCM(4, min_count=1, **options), uneven)))


def test_a_client_with_one_row_and_a_lone_row_are_withheld(local):
    centers = np.array([[0.0], [50.0]])
    down = Fuzzify(centers=centers, fuzzifier=2.0, local_iters=1, min_count=2)
    one = fuzzify(local([[3.0]]), None, down)[1]
    assert one.supports.tolist() == [0.0, 0.0]
    assert one.sums.tolist() == [[0.0], [0.0]]
    lone = fuzzify(local([[0.1], [-0.2], [0.3], [49.0]]), None, down)[1]
    assert (lone.supports > 0).tolist() == [True, False]
    free = fuzzify(local([[0.1], [-0.2], [0.3], [49.0]]), None, replace(down, min_count=1))[1]
    assert (free.supports > 0).all()


def test_what_is_sent_does_not_grow_with_the_rows(federate, six):
    for n in (20, 100):
        run = federate(FFCM(6), six(n_each=n)[1])
        assert max(sum(array.size for array in exchange.arrays().values()) for exchange in run.exchanges) <= 6 * 3


@pytest.mark.parametrize("averaging", ["avg1", "avg2"])
def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result, averaging):
    same_result(federate, FFCM(6, averaging), six(n_each=40)[1])


@pytest.mark.parametrize("averaging", ["avg1", "avg2"])
def test_one_cluster_is_the_mean(federate, averaging):
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(20, 2)), rng.normal(size=(20, 2))]
    np.testing.assert_allclose(federate(FFCM(1, averaging), tables).centers, [np.concatenate(tables).mean(axis=0)])


def test_too_few_distinct_centers_lower_the_number_of_clusters_and_the_result_says_so(federate):
    run = federate(FFCM(5), {"a": np.zeros((9, 2)), "b": np.ones((9, 2))})
    assert sorted(run.centers.tolist()) == [[0.0, 0.0], [1.0, 1.0]]
    assert run.diagnostics.notes == ("The number of clusters is 2, not 5: the clients sent only 2 distinct centers.",)


def test_too_few_rounds_are_no_convergence(federate, six):
    diagnostics = federate(FFCM(6, max_rounds=2, tol=1e-12), six(n_each=20)[1]).diagnostics
    assert diagnostics.stopped == "round limit"
    assert diagnostics.rounds == 3
    assert len(diagnostics.shifts) == 2


def test_clients_of_one_row_each_have_no_clustering(federate):
    with pytest.raises(KoncordError, match="No client sent a center: each has fewer than 2 rows"):
        federate(FFCM(2), [np.zeros((1, 2)), np.ones((1, 2))])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_clusters": 0}, "'n_clusters' of FFCM must be at least 1; got 0"),
        ({"n_clusters": None}, "'n_clusters' of FFCM is missing"),
        ({"averaging": "avg3"}, "'averaging' of FFCM must be 'avg1' or 'avg2'; got 'avg3'"),
        ({"fuzzifier": 1.0}, "'fuzzifier' of FFCM must be a finite number greater than 1"),
        ({"local_iters": 0}, "'local_iters' of FFCM must be at least 1"),
        ({"tol": -1.0}, "'tol' of FFCM must be a finite number at least 0"),
        ({"max_rounds": 0}, "'max_rounds' of FFCM must be at least 1"),
        ({"weights": "rows"}, "'weights' of FFCM must be 'uniform' or 'support'"),
        ({"n_init": 0}, "'n_init' of FFCM must be at least 1"),
        ({"min_count": 0}, "'min_count' of FFCM must be at least 1"),
    ],
)
def test_wrong_parameters_are_refused_when_the_server_starts(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        FFCM(**{"n_clusters": 3, **wrong}).server(("a",), 2, np.random.default_rng(0))


def test_messages_must_fit_together(carried):
    with pytest.raises(MessageError, match=r"'supports' .* must have 2 for global_k; it has 1"):
        carried(FuzzySums(sums=np.zeros((2, 3)), supports=np.zeros(1)))
    with pytest.raises(ValueError, match="'sums' must be 'supports' times centers"):
        FuzzySums(sums=np.ones((1, 3)), supports=np.zeros(1))
    with pytest.raises(MessageError, match=r"'centers' .* must be global_k x n_features"):
        carried(Fuzzify(centers=np.zeros(3), fuzzifier=2.0, local_iters=1, min_count=2))
    with pytest.raises(MessageError, match=r"client 'b' sent sums of shape \(2, 3\); \(2, 2\) was expected"):
        gathered({"b": FuzzySums(sums=np.zeros((2, 3)), supports=np.zeros(2))}, (2, 2))


def test_parameters_may_be_numbers_of_numpy(federate, six):
    assert (
        len(
            federate(
                FFCM(
                    np.int64(3),
                    fuzzifier=np.int64(2),
                    local_iters=np.int64(1),
                    max_rounds=np.int64(3),
                    min_count=np.int64(2),
                ),
                six(n_each=10)[1],
            ).centers
        )
        >= 1
    )


def test_it_declares_what_it_sends(declares_what_it_sends):
    declares_what_it_sends(FFCM)


def test_what_is_withheld_keeps_no_sign_of_the_rows(local):
    down = Fuzzify(centers=np.array([[-1.0], [5.0]]), fuzzifier=2.0, local_iters=1, min_count=2)
    few = replace(local([[-3.0], [-4.0], [-2.0]]), min_report=20)
    up = fuzzify(few, None, down)[1]
    assert not up.supports.any()
    assert not np.signbit(up.sums).any()
