from dataclasses import replace

import numpy as np
import pytest

from koncord.aggregate.afcl import (
    AFCL,
    Bounds,
    Heard,
    Pull,
    Pulls,
    Rest,
    Seeds,
    SendBounds,
    SendSeeds,
    Silence,
    Wins,
    balancing_weights,
    common_bounds,
    dispersion,
    distinct_seeds,
    interact,
    pull,
    rates_by_feature,
    rest,
    send_bounds,
    send_seeds,
    take_part,
)
from koncord.errors import DisclosureRefused, KoncordError, MessageError


def unscaled(d):
    return {"lowest": np.zeros(d), "widths": np.ones(d)}


def heard_from(local, X, seeds, rates, by_wins=False):
    down = Pull(seeds=seeds, rates=rates, by_wins=by_wins, **unscaled(X.shape[1]))
    return Heard(up=pull(local(X), None, down)[1], seeds=seeds, rates=rates)


def plain_interaction(seeds, heard, weights, rates, variant):
    """The two servers as they are written, one row after the other."""
    seeds = [seed.copy() for seed in seeds]
    wins = [1.0] * len(seeds)
    for reply, w in zip(heard, weights, strict=True):
        for v in range(len(seeds)):
            for row in np.flatnonzero(reply.up.winners == v):
                R = reply.up.pulls[row]
                if variant == "paper":
                    x_gap = w * R / reply.rates
                    own = seeds[v].copy()
                    near = [r for r, m in enumerate(seeds) if ((m - own) ** 2).sum() <= (x_gap**2).sum()]
                    for r in near:
                        seeds[r] = seeds[r] + w * R + w * rates * (own - seeds[r])
                else:
                    o = reply.seeds[v] + R / (reply.rates * w)
                    shares = [f / sum(wins) * ((o - m) ** 2).sum() for f, m in zip(wins, seeds, strict=True)]
                    c = shares.index(min(shares))
                    wins[c] += 1
                    reach = max(((o - seeds[c]) ** 2).sum(), 1e-4)
                    near = [r for r, m in enumerate(seeds) if ((m - seeds[c]) ** 2).sum() <= reach]
                    for r in near:
                        seeds[r] = seeds[r] + rates * w * (o - seeds[r])
    return np.array(seeds)


@pytest.mark.parametrize("variant", ["code", "paper"])
@pytest.mark.parametrize("seed", range(4))
def test_the_seeds_move_as_in_the_plain_loop(local, seed, variant):
    rng = np.random.default_rng(seed)
    seeds, earlier = rng.random((5, 2)), rng.random((5, 2))
    rates = np.array([0.02, 0.05])
    heard = [heard_from(local, rng.random((20, 2)), start, np.full(2, 0.03)) for start in (seeds, earlier, seeds)]
    weights = np.array([0.9, 0.6, 0.75])
    found = interact(seeds, heard, weights, rates, variant=variant)
    np.testing.assert_allclose(found, plain_interaction(seeds, heard, weights, rates, variant), atol=1e-12)
    assert np.abs(found - seeds).max() > 0.01


def test_a_row_pulls_along_the_seeds_that_are_as_near_to_its_own_as_itself(local):
    seeds = np.array([[0.0], [0.3], [0.9]])
    heard = heard_from(local, np.array([[-0.4]]), seeds, np.array([0.1]))
    np.testing.assert_allclose(
        interact(seeds, [heard], np.ones(1), np.array([0.1]), variant="code"), [[-0.04], [0.23], [0.9]]
    )
    np.testing.assert_allclose(
        interact(seeds, [heard], np.ones(1), np.array([0.1]), variant="paper"), [[-0.04], [0.23], [0.9]]
    )


@pytest.mark.parametrize("by_wins", [False, True])
def test_a_client_tells_winner_pull_and_summary_of_its_rows(local, by_wins):
    rng = np.random.default_rng(0)
    X, seeds, rates = rng.random((30, 2)), rng.random((4, 2)), np.array([0.1, 0.2])
    state = Wins(counts=np.array([1, 9, 2, 4]))
    down = Pull(seeds=seeds, rates=rates, by_wins=by_wins, **unscaled(2))
    new_state, up = pull(local(X), state, down)
    for row, x in enumerate(X):
        share = state.counts / state.counts.sum() if by_wins else np.ones(4)
        winner = np.argmin([g * ((x - m) ** 2).sum() for g, m in zip(share, seeds, strict=True)])
        assert up.winners[row] == winner
        np.testing.assert_allclose(up.pulls[row], rates * (x - seeds[winner]))
    for r in range(4):
        own = X[up.winners == r]
        assert up.counts[r] == len(own)
        np.testing.assert_allclose(up.means[r], own.mean(axis=0) if len(own) else seeds[r])
        spread = np.linalg.norm(own - own.mean(axis=0), axis=1).mean() if len(own) else 0.0
        assert up.distances[r] == pytest.approx(spread)
    assert new_state.counts.tolist() == (state.counts + up.counts).tolist()


def test_rows_are_scaled_to_the_unit_cube_by_exchanged_bounds(local):
    tables = {"a": np.array([[0.0, 5.0], [2.0, 5.0]]), "b": np.array([[-2.0, 5.0], [1.0, 5.0]])}
    lowest, widths = common_bounds({name: send_bounds(local(X), None, SendBounds())[1] for name, X in tables.items()})
    assert lowest.tolist() == [-2.0, 5.0]
    assert widths.tolist() == [4.0, 1.0]
    _, up = send_seeds(local(tables["a"]), None, SendSeeds(lowest=lowest, widths=widths, n_seeds=5))
    assert sorted(up.seeds.tolist()) == [[0.5, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_the_server_can_rebuild_every_row(federate, uneven, variant):
    """Nobody should take this method for a private one."""
    run = federate(AFCL(4, allow_disclosure=True, n_rounds=2, variant=variant), uneven)
    for exchange in run.exchanges:
        if isinstance(exchange.up, Pulls):
            seeds, rates = exchange.down.seeds, exchange.down.rates
            scaled = seeds[exchange.up.winners] + exchange.up.pulls / rates
            rows = exchange.down.lowest + exchange.down.widths * scaled
            np.testing.assert_allclose(rows, uneven[exchange.client], atol=1e-9)
    assert run.diagnostics.notes == ("AFCL disclosed every row to the server.",)


def test_its_messages_grow_with_the_rows_and_it_says_so(federate, six):
    sizes = []
    for n in (10, 30):
        run = federate(AFCL(8, allow_disclosure=True, n_rounds=1), six(n_each=n)[1])
        last = run.exchanges[-1]
        sizes.append({name: array.size for name, array in last.arrays().items()})
    grown = {("Pulls", name) for name in sizes[0] if sizes[1][name] > sizes[0][name]}
    assert grown == {(s.message, s.field) for s in AFCL.sends if s.grows_with_rows and s.message == "Pulls"}


def test_it_refuses_to_disclose_unasked():
    with pytest.raises(DisclosureRefused, match="AFCL sends every row of every client in a form the server can read"):
        AFCL(4).server(("a",), 2, np.random.default_rng(0))
    assert issubclass(DisclosureRefused, KoncordError)


def test_rare_clients_weigh_more_and_are_heard_again():
    """Ten answers of the first, one of the second, none of the third; only the first answers now."""
    is_used, weights, answers = take_part(np.array([True, False, False]), np.array([10, 1, 0]))
    assert is_used.tolist() == [True, True, False]
    assert answers.tolist() == [11, 2, 0]
    np.testing.assert_allclose(weights, [1 / (1 + 11 / 12), 1 / (1 + 2 / 13), 1.0])
    is_used, _, answers = take_part(np.array([False, True]), np.array([3, 2]))
    assert is_used.tolist() == [False, True]
    assert answers.tolist() == [3, 3]
    assert balancing_weights(np.zeros(2, dtype=int)).tolist() == [1.0, 1.0]


def test_the_dispersion_is_that_of_the_definition():
    rng = np.random.default_rng(1)
    replies, weights = [], np.array([0.8, 0.6])
    for _ in range(2):
        counts = np.array([*rng.integers(1, 9, size=3), 0])
        replies.append(
            Pulls(
                winners=np.repeat(np.arange(4), counts),
                pulls=np.zeros((counts.sum(), 2)),
                counts=counts,
                means=rng.random((4, 2)),
                distances=rng.random(4),
            )
        )
    n = replies[0].counts + replies[1].counts
    b, z = [], []
    for r in range(3):
        b.append(sum(w * up.counts[r] / n[r] * up.means[r] for w, up in zip(weights, replies, strict=True)))
        z.append(sum(w * up.counts[r] / n[r] * up.distances[r] for w, up in zip(weights, replies, strict=True)))
    worst = [max((z[r] + z[s]) / np.linalg.norm(b[r] - b[s]) for s in range(3) if s != r) for r in range(3)]
    assert dispersion(replies, weights) == pytest.approx(np.mean(worst))
    alone = replace(replies[0], winners=np.zeros(5, dtype=int), pulls=np.zeros((5, 2)), counts=np.array([5, 0, 0, 0]))
    assert dispersion([alone], np.ones(1)) == 0.0


def test_rates_fall_with_the_pull_of_a_feature():
    up = Pulls(
        winners=np.zeros(2, dtype=int),
        pulls=np.array([[1.0, 0.0, -2.0], [-1.0, 0.0, 4.0]]),
        counts=np.array([2]),
        means=np.zeros((1, 3)),
        distances=np.zeros(1),
    )
    ratio = 3 ** (1 / 7)
    np.testing.assert_allclose(rates_by_feature([up], 0.01), [0.03 / (1 + 1 / ratio), 0.0, 0.03 / (1 + ratio)])


def test_seeds_in_a_chain_are_one():
    seeds = np.array([[0.0, 0.0], [0.5, 0.5], [0.0008, 0.0], [0.0016, 0.0], [0.5, 0.502]])
    assert distinct_seeds(seeds, 1e-3).tolist() == [[0.0, 0.0], [0.5, 0.5], [0.5, 0.502]]


def test_seeds_of_far_clusters_meet(federate, blobs, worst_error):
    centers = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
    X, _ = blobs(centers, 100)
    X = X[np.random.default_rng(0).permutation(300)]
    run = federate(AFCL(5, allow_disclosure=True, eta=0.01, n_rounds=40), np.array_split(X, 3))
    assert len(run.centers) == 3
    assert worst_error(centers, run.centers) < 0.5
    assert run.diagnostics.extra["seeds"] == 5
    assert run.diagnostics.extra["distinct_seeds"] == 3


def test_it_stops_after_ten_quiet_rounds(federate, blobs):
    X, _ = blobs([[0.0, 0.0], [30.0, 0.0]], 30)
    run = federate(AFCL(2, allow_disclosure=True, eta=0.01, n_rounds=100), [X[::2], X[1::2]])
    assert run.diagnostics.stopped == "converged"
    assert run.diagnostics.rounds < 60
    short = federate(AFCL(2, allow_disclosure=True, eta=0.01, n_rounds=5), [X[::2], X[1::2]])
    assert short.diagnostics.stopped == "round limit"
    assert short.diagnostics.rounds == 2 + 5


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}, {"participation": "random"}, {"feature_rates": True}])
def test_neither_the_order_of_clients_nor_the_number_of_threads_matters(federate, six, same_result, options):
    same_result(federate, AFCL(8, allow_disclosure=True, n_rounds=4, **options), six(n_each=10)[1])


def test_silent_clients_send_nothing(federate, six, local):
    run = federate(AFCL(8, allow_disclosure=True, n_rounds=6, participation="random"), six(n_each=10)[1])
    kinds = {(type(e.down), type(e.up)) for e in run.exchanges if e.round_ > 2}
    assert kinds == {(Pull, Pulls), (Rest, Silence)}
    state = Wins(counts=np.array([1]))
    assert rest(local(np.zeros((1, 1))), state, Rest())[0] is state


def test_every_feature_gets_its_own_rate(federate, six):
    run = federate(AFCL(8, allow_disclosure=True, n_rounds=3, feature_rates=True), six(n_each=10)[1])
    for exchange in run.exchanges:
        if isinstance(exchange.down, Pull):
            assert exchange.down.rates[0] != exchange.down.rates[1]
    first = next(e.down for e in run.exchanges if isinstance(e.down, Pull))
    assert first.rates.sum() == pytest.approx(2 * 0.001)


def test_one_seed_is_one_cluster_and_one_row_is_enough(federate):
    run = federate(AFCL(1, allow_disclosure=True, n_rounds=2), {"only": np.array([[3.0, 4.0]])}, k=1)
    assert run.centers.tolist() == [[3.0, 4.0]]
    two = federate(AFCL(5, allow_disclosure=True, n_rounds=2), [np.zeros((1, 2)), np.ones((1, 2))], k=1)
    assert len(two.centers) == 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_seeds": None}, "'n_seeds' of AFCL is missing: it needs an upper bound of the global number of clusters"),
        ({"n_seeds": 0}, "'n_seeds' of AFCL must be at least 1"),
        ({"variant": "mine"}, "'variant' of AFCL must be 'code' or 'paper'"),
        ({"eta": 0.0}, "'eta' of AFCL must be a finite number greater than 0"),
        ({"n_rounds": 0}, "'n_rounds' of AFCL must be at least 1"),
        ({"tol": -1.0}, "'tol' of AFCL must be a finite number at least 0"),
        ({"patience": 0}, "'patience' of AFCL must be at least 1"),
        ({"merge_tol": -1.0}, "'merge_tol' of AFCL must be a finite number at least 0"),
        ({"participation": "some"}, "'participation' of AFCL must be 'all' or 'random'"),
    ],
)
def test_wrong_parameters_are_refused_when_the_server_starts(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        AFCL(**{"n_seeds": 4, "allow_disclosure": True, **wrong}).server(("a",), 2, np.random.default_rng(0))


def test_messages_must_fit_together(carried):
    with pytest.raises(ValueError, match="'lowest' must be nowhere above 'highest'"):
        Bounds(lowest=np.ones(2), highest=np.zeros(2))
    with pytest.raises(MessageError, match=r"'highest' .* must have 1 for n_features; it has 3"):
        carried(Bounds(lowest=np.ones(1), highest=np.ones(3)))
    with pytest.raises(MessageError, match=r"'seeds' .* must be at most n_seeds x n_features"):
        carried(Seeds(seeds=np.zeros(2)))
    good = {"winners": np.array([0]), "pulls": np.zeros((1, 2)), "counts": np.array([1])}
    per_seed = {"means": np.zeros((1, 2)), "distances": np.zeros(1)}
    with pytest.raises(MessageError, match=r"'pulls' .* must have 2 for rows; it has 1"):
        carried(Pulls(**{**good, **per_seed, "winners": np.array([0, 0])}))
    with pytest.raises(MessageError, match=r"'distances' .* must have 1 for n_seeds; it has 2"):
        carried(Pulls(**{**good, **per_seed, "distances": np.zeros(2)}))
    with pytest.raises(ValueError, match="'winners' must be indices of seeds"):
        Pulls(**{**good, **per_seed, "winners": np.array([1])})


def test_parameters_may_be_numbers_of_numpy(federate, six):
    assert (
        len(federate(AFCL(np.int64(3), True, n_rounds=np.int64(2), eta=np.float64(0.01)), six(n_each=10)[1]).centers)
        >= 1
    )


def test_it_declares_what_it_sends(declares_what_it_sends):
    declares_what_it_sends(AFCL)
