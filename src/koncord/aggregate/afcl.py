"""AFCL: more seeds than clusters, pulled by the rows of all clients until those of one cluster coincide.

Reference: Y. Zhang, Y. Zhang, Y. Lu, M. Li, X. Chen, Y.-m. Cheung, "Asynchronous federated clustering with unknown
number of clusters", AAAI 2025, arXiv 2412.20341.

The server knows the seeds and the rate, and a client sends ``rate * (row - seed)`` for every row: the server can
rebuild every row, and the method needs it to. This is a benchmark, not a private method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from koncord._validation import check_count, check_number, check_option
from koncord.aggregate.base import Aggregator, ClientStep, Local, Outcome, Replies, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.errors import DisclosureRefused, MessageError
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.lloyd import kpp, stacked_rows
from koncord.protocol.schema import SMALLEST_FLOAT, Array, Number
from koncord.types import BoolArray, FloatArray, IntArray

SMALLEST_REACH = 1e-4  # squared, in units of the scaled rows; as released
CLOSEST = 1e-12  # centers no farther apart than this coincide
FARTHEST = 1e50  # that a scaled row may lie from the cube: a client may join after the bounds were made
RATE_ROOT = 7  # of the ratio of two features' pulls; as released

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBounds:
    """Server to client: send the bounds of your columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Client to server: least and largest value of every column."""

    lowest: Annotated[FloatArray, Array("n_features")]
    highest: Annotated[FloatArray, Array("n_features")]

    def __post_init__(self) -> None:
        if (self.lowest > self.highest).any():
            raise ValueError("'lowest' must be nowhere above 'highest'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSeeds:
    """Server to client: scale your rows by these bounds and send seeds."""

    lowest: Annotated[FloatArray, Array("n_features")]
    widths: Annotated[FloatArray, Array("n_features", least=SMALLEST_FLOAT)]
    n_seeds: Annotated[int, Number(least=1, size="n_seeds")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Client to server: scaled rows drawn by k-means++."""

    seeds: Annotated[FloatArray, Array("at most n_seeds", "n_features", holds_rows=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Server to client: the seeds; say how each of your rows pulls the one that wins it."""

    seeds: Annotated[FloatArray, Array("n_seeds", "n_features")]
    rates: Annotated[FloatArray, Array("n_features", least=0)]  # eta
    lowest: Annotated[FloatArray, Array("n_features")]
    widths: Annotated[FloatArray, Array("n_features", least=SMALLEST_FLOAT)]
    by_wins: bool  # whether distances count in proportion to a seed's wins so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulls:
    """Client to server: for every row the seed that won it and its pull; for every seed a summary of its rows."""

    winners: Annotated[IntArray, Array("rows", least=0)]
    pulls: Annotated[FloatArray, Array("rows", "n_features")]  # rates * (row - seed)
    counts: Annotated[IntArray, Array("n_seeds", least=0, total="rows")]
    means: Annotated[FloatArray, Array("n_seeds", "n_features")]  # of the rows a seed won; the seed itself if none
    distances: Annotated[FloatArray, Array("n_seeds", least=0)]  # mean, of these rows to their mean; 0 if none

    def __post_init__(self) -> None:
        if self.winners.max() >= len(self.counts):
            raise ValueError("'winners' must be indices of seeds.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Server to client: you are silent in this round of the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Client to server: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wins:
    """What a client remembers: how often each seed won one of its rows, starting from one."""

    counts: IntArray  # (n_seeds,)


# --- client steps ---


def send_bounds(local: Local, state: None, down: SendBounds) -> tuple[None, Bounds]:
    return None, Bounds(lowest=local.X.min(axis=0), highest=local.X.max(axis=0))


def in_the_cube(X: FloatArray, down: SendSeeds | Pull) -> FloatArray:
    """Rows scaled by the bounds of the clients; `MessageError` for bounds under which rows are no numbers."""
    with np.errstate(over="ignore"):
        scaled: FloatArray = (X - down.lowest) / down.widths
    if not np.abs(scaled).max() <= FARTHEST:
        raise MessageError("a client of AFCL was sent bounds that are not those of any rows.")
    return scaled


def send_seeds(local: Local, state: None, down: SendSeeds) -> tuple[None, Seeds]:
    X = in_the_cube(local.X, down)
    return None, Seeds(seeds=X[kpp(X, down.n_seeds, local.rng)])


def pull(local: Local, state: Wins | None, down: Pull) -> tuple[Wins, Pulls]:
    """Find the seed that wins each row and send the pull of every row on it."""
    X = in_the_cube(local.X, down)
    k = len(down.seeds)
    if state is not None and len(state.counts) != k:
        raise MessageError(f"a client of AFCL was sent {k} seeds after {len(state.counts)}.")
    wins = np.ones(k, dtype=np.int64) if state is None else state.counts
    winners = winners_of(X, down.seeds, wins if down.by_wins else None)
    counts = np.bincount(winners, minlength=k)
    means = means_by_label(X, winners, otherwise=down.seeds)
    distances = np.bincount(winners, np.linalg.norm(X - means[winners], axis=1), minlength=k)
    up = Pulls(
        winners=winners,
        pulls=down.rates * (X - down.seeds[winners]),
        counts=counts,
        means=means,
        distances=distances / np.maximum(counts, 1),
    )
    return Wins(counts=wins + counts), up


def rest(local: Local, state: Wins | None, down: Rest) -> tuple[Wins | None, Silence]:
    return state, Silence()


def winners_of(X: FloatArray, seeds: FloatArray, wins: IntArray | None) -> IntArray:
    """Seed of each row: the nearest, or the one with the least squared distance times its share of the wins."""
    if wins is None:
        return nearest(X, seeds)
    winners: IntArray = (wins * cdist(X, seeds, "sqeuclidean")).argmin(axis=1)
    return winners


# --- server steps ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The last reply of a client with the seeds and rates it answered to."""

    up: Pulls
    seeds: FloatArray  # (n_seeds, n_features)
    rates: FloatArray  # (n_features,)

    def rows(self) -> FloatArray:
        """The client's scaled rows, rebuilt from its reply."""
        return self.seeds[self.up.winners] + self.up.pulls / np.where(self.rates > 0, self.rates, 1.0)


def common_bounds(replies: Replies) -> tuple[FloatArray, FloatArray]:
    """Least value and width of every column over the clients; a constant column has width 1."""
    lowest = np.min([up.lowest for up in replies.values()], axis=0)
    widths = np.max([up.highest for up in replies.values()], axis=0) - lowest
    return lowest, np.where(widths > 0, widths, 1.0)


def balancing_weights(answers: IntArray) -> FloatArray:
    """Weight of each client, from 1/2 to 1: the larger the rarer it answered."""
    weights: FloatArray = 1 / (1 + answers / max(int(answers.sum()), 1))
    return weights


def take_part(is_answering: BoolArray, answers: IntArray) -> tuple[BoolArray, FloatArray, IntArray]:
    """Whose last reply is used in this round, everybody's weight, and everybody's number of answers with this round.

    Used are those who answer, and the silent ones who answered before but so rarely that they weigh more than the
    mean; a reply used again counts as an answer.
    """
    answers = answers + is_answering
    weights = balancing_weights(answers)
    is_repeated = ~is_answering & (answers >= 1) & (weights > weights.mean())
    answers = answers + is_repeated
    weights = np.where(is_repeated, balancing_weights(answers), weights)
    return is_answering | is_repeated, weights, answers


def dispersion(replies: Sequence[Pulls], weights: FloatArray) -> float:
    """Z: over the seeds that won rows, the mean of the largest ratio of two seeds' spreads to their distance."""
    counts = np.array([up.counts for up in replies])  # (clients, seeds)
    has_rows = counts.sum(axis=0) > 0
    share = weights[:, None] * counts / np.maximum(counts.sum(axis=0), 1)
    means = np.einsum("gr,grd->rd", share, np.array([up.means for up in replies]))[has_rows]
    spreads = np.einsum("gr,gr->r", share, np.array([up.distances for up in replies]))[has_rows]
    if len(means) < 2:
        return 0.0
    apart = cdist(means, means)
    np.fill_diagonal(apart, np.inf)
    ratio = (spreads[:, None] + spreads) / np.maximum(apart, CLOSEST)
    return float(ratio.max(axis=1).mean())


def interact(
    seeds: FloatArray, heard: Sequence[Heard], weights: FloatArray, rates: FloatArray, *, variant: str
) -> FloatArray:
    """Seeds after every row, in the order of clients, seeds and rows, has pulled its own and those around it."""
    move = interact_as_written if variant == "paper" else interact_as_released
    return move(seeds, [in_seed_order(reply) for reply in heard], weights, rates)


def in_seed_order(heard: Heard) -> Heard:
    order = np.argsort(heard.up.winners, kind="stable")
    up = replace(heard.up, winners=heard.up.winners[order], pulls=heard.up.pulls[order])
    return replace(heard, up=up)


# One row after the other moves the seeds that the next one meets, so these two cannot be a matrix product.


def interact_as_released(
    seeds: FloatArray, heard: Sequence[Heard], weights: FloatArray, rates: FloatArray
) -> FloatArray:
    """A row is drawn to the seed with the least squared distance times wins; it pulls all seeds as near as that."""
    seeds = seeds.copy()
    wins = np.ones(len(seeds))
    for reply, weight in zip(heard, weights, strict=True):
        step = rates * weight
        divisors = np.where(reply.rates > 0, reply.rates * weight, 1.0)
        for point in reply.seeds[reply.up.winners] + reply.up.pulls / divisors:
            gaps = point - seeds
            squared = np.vecdot(gaps, gaps)
            winner = (wins * squared).argmin()
            wins[winner] += 1
            apart = seeds - seeds[winner]
            is_pulled = np.vecdot(apart, apart) <= max(squared[winner], SMALLEST_REACH)
            seeds[is_pulled] += step * gaps[is_pulled]
    return seeds


def interact_as_written(
    seeds: FloatArray, heard: Sequence[Heard], weights: FloatArray, rates: FloatArray
) -> FloatArray:
    """A row pulls the seed that won it at the client, and draws all seeds as near to that one as itself along."""
    seeds = seeds.copy()
    for reply, weight in zip(heard, weights, strict=True):
        moves = weight * reply.up.pulls
        lengths = moves / np.where(reply.rates > 0, reply.rates, 1.0)
        reaches = np.vecdot(lengths, lengths)
        for winner, move, reach in zip(reply.up.winners, moves, reaches, strict=True):
            gaps = seeds[winner] - seeds
            is_pulled = np.vecdot(gaps, gaps) <= reach
            seeds[is_pulled] += move + weight * rates * gaps[is_pulled]
    return seeds


def rates_by_feature(replies: Sequence[Pulls], rate: float) -> FloatArray:
    """Rates that are the smaller the more a feature pulls; 0 for one that does not pull."""
    pulled = np.sum([np.abs(up.pulls).sum(axis=0) for up in replies], axis=0)
    rates = np.zeros(len(pulled))
    moving = pulled[pulled > 0]
    rates[pulled > 0] = rate * len(pulled) / ((moving[:, None] / moving) ** (1 / RATE_ROOT)).sum(axis=1)
    return rates


def distinct_seeds(seeds: FloatArray, merge_tol: float) -> FloatArray:
    """The first seed of each chain of seeds that differ by less than `merge_tol` in every coordinate."""
    group = connected_components(cdist(seeds, seeds, "chebyshev") < merge_tol, directed=False)[1]
    distinct: FloatArray = seeds[np.unique(group, return_index=True)[1]]
    return distinct


class AFCL(Aggregator):
    """AFCL, which finds the global number of clusters from above. It discloses every row to the server.

    The rows are scaled to the unit cube by bounds that the clients exchange. Clients send seeds, which are rows, and
    in every round the pull of each row on its seed, from which the server rebuilds the row. Seeds that end within
    `merge_tol` of each other are one cluster; a cluster that wins no row is dropped.

    Parameters
    ----------
    n_seeds : int or None, default None
        Seeds to start with, an upper bound of the global number of clusters.
    allow_disclosure : bool, default False
        Must be True, for the rows leave the clients.
    variant : str, default "code"
        "code" (the released server: a row chooses its seed anew, by distance and wins) or "paper".
    eta : float, default 0.001
        Rate, the share of the way that a row pulls a seed.
    n_rounds : int, default 100
        Most rounds.
    tol : float, default 0.0001
        A round is quiet if the dispersion of the clusters and all seeds moved by no more than this.
    patience : int, default 10
        Quiet rounds in a row after which it stops.
    merge_tol : float, default 0.001
        Coordinates, in the unit cube, closer than this are the same.
    participation : str, default "all"
        "all" or "random": every client answers with a probability of its own, drawn once (the simulation of the paper);
        rare clients weigh more and their last replies are used again.
    feature_rates : bool, default False
        Whether each feature gets its own rate from the pulls of the last round, as released.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (60, 2)) for m in each]) for each in held]
    >>> afcl = koncord.AFCL(3, allow_disclosure=True)
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), afcl, random_state=0, min_report=1)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "afcl"
    reads_rows: ClassVar[bool] = True
    count_parameter: ClassVar[str] = "n_seeds"
    count_is_bound: ClassVar[bool] = True
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {
        SendBounds: send_bounds,
        SendSeeds: send_seeds,
        Pull: pull,
        Rest: rest,
    }

    def __init__(
        self,
        n_seeds: int | None = None,
        allow_disclosure: bool = False,
        *,
        variant: str = "code",
        eta: float = 0.001,
        n_rounds: int = 100,
        tol: float = 1e-4,
        patience: int = 10,
        merge_tol: float = 1e-3,
        participation: str = "all",
        feature_rates: bool = False,
    ) -> None:
        self.n_seeds = n_seeds
        self.allow_disclosure = allow_disclosure
        self.variant = variant
        self.eta = eta
        self.n_rounds = n_rounds
        self.tol = tol
        self.patience = patience
        self.merge_tol = merge_tol
        self.participation = participation
        self.feature_rates = feature_rates

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        if self.n_seeds is None:
            raise ValueError("'n_seeds' of AFCL is missing: it needs an upper bound of the global number of clusters.")
        n_seeds = check_count("n_seeds", self.n_seeds, owner=self)
        check_option("variant", self.variant, ("code", "paper"), owner=self)
        check_number("eta", self.eta, owner=self, least=0, above=True)
        check_count("n_rounds", self.n_rounds, owner=self)
        check_number("tol", self.tol, owner=self, least=0)
        check_count("patience", self.patience, owner=self)
        check_number("merge_tol", self.merge_tol, owner=self, least=0)
        check_option("participation", self.participation, ("all", "random"), owner=self)
        if self.allow_disclosure is not True:
            raise DisclosureRefused(
                "AFCL sends every row of every client in a form the server can read; "
                "AFCL(..., allow_disclosure=True), with the floor of the sites at min_report=1, runs it all the same."
            )
        return self._rounds(clients, n_seeds, n_features, rng)

    def most_messages(self) -> Mapping[type[Any], int]:
        n_rounds = check_count("n_rounds", self.n_rounds, owner=self)
        return {SendBounds: 1, SendSeeds: 1, Pull: n_rounds, Rest: n_rounds}

    def most_rounds(self) -> int:
        """A client is asked to pull or to rest, not both."""
        return 2 + self.most_messages()[Pull]

    def _rounds(self, clients: tuple[str, ...], n_seeds: int, n_features: int, rng: np.random.Generator) -> Server:
        lowest, widths = common_bounds((yield SendBounds()))
        replies = yield SendSeeds(lowest=lowest, widths=widths, n_seeds=n_seeds)
        candidates = stacked_rows({client: up.seeds for client, up in replies.items()}, n_features)
        seeds = candidates[kpp(candidates, n_seeds, rng)]
        n_start = len(seeds)
        rates = np.full(n_features, float(self.eta))
        if self.feature_rates:
            rates = rng.random(n_features)
            rates *= self.eta * n_features / rates.sum()
        chances = rng.random(len(clients)) if self.participation == "random" else np.ones(len(clients))
        answers = np.zeros(len(clients), dtype=np.int64)
        last: dict[str, Heard] = {}
        dispersions: list[float] = []
        n_rounds = n_quiet = 0
        while n_rounds < self.n_rounds and n_quiet < self.patience:
            is_answering = rng.random(len(clients)) < chances
            down = Pull(seeds=seeds, rates=rates, lowest=lowest, widths=widths, by_wins=self.variant == "paper")
            replies = yield {
                client: down if answers_now else Rest()
                for client, answers_now in zip(clients, is_answering, strict=True)
            }
            n_rounds += 1
            last |= {
                client: Heard(up=up, seeds=seeds, rates=rates)
                for client, up in replies.items()
                if isinstance(up, Pulls)
            }
            is_answering &= np.array([client in replies for client in clients])  # a missing client is a silent one
            is_used, weights, answers = take_part(is_answering, answers)
            if not is_used.any():
                continue
            heard = [last[client] for client, used in zip(clients, is_used, strict=True) if used]
            ups = [reply.up for reply in heard]
            dispersions.append(dispersion(ups, weights[is_used]))
            previous = seeds
            seeds = interact(previous, heard, weights[is_used], rates, variant=self.variant)
            shift = float(np.linalg.norm(seeds - previous, axis=1).max())
            is_quiet = len(dispersions) > 1 and abs(dispersions[-1] - dispersions[-2]) <= self.tol
            n_quiet = n_quiet + 1 if is_quiet and shift <= self.tol else 0
            if self.feature_rates:
                rates = rates_by_feature(ups, self.eta)
        centers = distinct_seeds(seeds, self.merge_tol)
        n_distinct = len(centers)
        if last:
            rows = np.concatenate([reply.rows() for reply in last.values()])
            centers = centers[np.unique(nearest(rows, centers))]
        diagnostics = Diagnostics(
            rounds=2 + n_rounds,
            stopped="converged" if n_quiet >= self.patience else "round limit",
            objective=tuple(dispersions),
            notes=("AFCL disclosed every row to the server.",),
            extra={"seeds": n_start, "distinct_seeds": n_distinct},
        )
        return Outcome(centers=lowest + widths * centers, groups={}, diagnostics=diagnostics)
