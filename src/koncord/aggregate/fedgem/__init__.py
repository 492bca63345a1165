"""FedGEM: federated generalized EM, clusters as groups of balls that meet (Ibrahim et al. 2026).

Every client fits `local k` unit Gaussians with equal weights by EM, one step a round, and sends each mean with a radius
inside which the step still counts as one of generalized EM. The server moves balls of different clients that meet
toward each other. After the last round the radii are set anew, balls that meet are grouped, and a global cluster is
the mean of a group.

`variant="corrected"` is the paper's reading; `variant="released"` behaves as the released program does.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.cluster import kmeans_plusplus

from koncord._random import draw_seed
from koncord._validation import check_count, check_number, check_option
from koncord.aggregate.base import Aggregator, Batch, Local, Outcome, Server
from koncord.aggregate.diagnostics import Diagnostics, UpsilonCandidate, UpsilonChoice
from koncord.aggregate.fedgem.balls import group, move_together
from koncord.aggregate.fedgem.released import released_final_means, released_move
from koncord.errors import KoncordError, MessageError
from koncord.estimate.kmeans import partition_means
from koncord.estimate.search import split_rows
from koncord.kernels.silhouette import HeldOut
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, Array, Word
from koncord.types import FloatArray, IntArray

# Tried when `upsilon` is left open: the values the paper uses on its data sets and what lies between them.
UPSILONS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5, 1e6)
UPSILON_HOLDOUT = 0.2
# The released program stops when no mean moved further than this.
RELEASED_TOLERANCE = 1e-3
ALL_MEET = "All final balls meet, so the order of the pairs alone decides the groups."
# A component that no row is responsible for stays where it is.
NO_MASS = 1e-12

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Server to client: take your first means and one EM step from them."""

    start: Annotated[str, Word("counts", "means", "given")]  # k-means++ with the local k; phase 1; the means below
    radius: Annotated[str, Word("program", "exact", "released")]
    holds_out: bool  # leave out the rows that will judge candidates
    means: Annotated[FloatArray | None, Array("at most local_k", "n_features")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Server to client: one EM step from these means."""

    means: Annotated[FloatArray, Array("at most local_k", "n_features")]
    radius: Annotated[str, Word("program", "exact", "released")]
    holds_out: bool = False  # leave out the rows that judge candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Server to client: one EM step from these means, the last; send the radii that group components."""

    means: Annotated[FloatArray, Array("at most local_k", "n_features")]
    spread_of: Annotated[str, Word("before", "after")]  # the step: smallest distance between means
    holds_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Server to client: several global models, one after the other; score each on the rows you held out."""

    centers: Annotated[FloatArray, Array("judged_k", "n_features")]  # judged_k is the sum of sizes
    sizes: Annotated[IntArray, Array("n_candidates", least=1, most=LARGEST["global_k"])]

    def __post_init__(self) -> None:
        if self.sizes.sum() != len(self.centers):
            raise ValueError("'sizes' must sum to the number of centers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Balls:
    """Client to server: one ball for each local component."""

    means: Annotated[FloatArray, Array("at most local_k", "n_features")]
    radii: Annotated[
        FloatArray, Array("at most local_k", least=0, most=np.inf)
    ]  # in the last round the square of the radius for upsilon = 1

    def __post_init__(self) -> None:
        if len(self.radii) > 1 and np.maximum.reduce(self.radii) == np.inf:
            raise ValueError("'radii' may be infinite for a single component only.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Client to server: mean silhouette of the held-out rows under each model, 0 where there is none."""

    scores: Annotated[FloatArray, Array("n_candidates", least=-1, most=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A client's state: the rows that judge candidates, left out of the fit of these. It stays at the client."""

    rows: IntArray


# --- client steps ---


def start_step(local: Local, state: Held | None, down: Start) -> tuple[Held, Balls]:
    if down.holds_out:
        state = Held(rows=split_rows(len(local.X), UPSILON_HOLDOUT, local.rng, owner="FedGEM")[1])
    state = state or Held(rows=np.empty(0, dtype=np.int64))
    fitted = fitted_rows(local, state, holds_out=down.holds_out)
    means = with_enough_rows(fitted, first_means(fitted, local, down), local.min_report)
    return state, em_ball_step(fitted, means, down.radius)


def fitted_rows(local: Local, state: Held, *, holds_out: bool) -> FloatArray:
    return np.delete(local.X, state.rows, axis=0) if holds_out else local.X


def first_means(X: FloatArray, local: Local, down: Start) -> FloatArray:
    if down.start == "given" and down.means is not None:
        return down.means
    if down.start == "means":
        return local.estimate.means
    n_seeds = min(local.estimate.n_components, len(X))
    seeds, rows = kmeans_plusplus(X, n_seeds, n_local_trials=1, random_state=draw_seed(local.rng))
    is_new = [row not in rows[:at] for at, row in enumerate(rows)]  # where rows coincide, one may be drawn again
    return np.asarray(seeds[is_new], dtype=float)


def with_enough_rows(X: FloatArray, means: FloatArray, min_report: int) -> FloatArray:
    """The means whose components get the mass of at least `min_report` rows in an EM step: no row is more of a mean.

    The lightest component is left out, its rows go to the others, and so on until all have enough. A table with fewer
    rows keeps none.
    """
    if len(X) < min_report:
        return means[:0]
    while min_report > 1 and len(means) > 1:
        masses = shares_of(X - means.mean(axis=0), means - means.mean(axis=0)).sum(axis=1)
        if masses.min() >= min_report:
            break
        means = np.delete(means, masses.argmin(), axis=0)
    return means


def move_step(local: Local, state: Held | None, down: Move) -> tuple[Held, Balls]:
    state = started(state, down)
    X = fitted_rows(local, state, holds_out=down.holds_out)
    return state, em_ball_step(X, with_enough_rows(X, down.means, local.min_report), down.radius)


def started(state: Held | None, down: Move | Finish | Judge) -> Held:
    if state is None:
        raise MessageError(f"a client of FedGEM was sent {type(down).__name__} before Start.")
    return state


def finish_step(local: Local, state: Held | None, down: Finish) -> tuple[Held, Balls]:
    state = started(state, down)
    X = fitted_rows(local, state, holds_out=down.holds_out)
    before = with_enough_rows(X, down.means, local.min_report)
    if not len(before):
        return state, Balls(means=before, radii=np.empty(0))
    means, _ = em_step(X, before)
    closest = smallest_distance(means if down.spread_of == "after" else before)
    return state, Balls(means=means, radii=np.full(len(means), closest * len(means) / np.sqrt(len(X))))


def judge_step(local: Local, state: Held | None, down: Judge) -> tuple[Held, Judgement]:
    state = started(state, down)
    held = HeldOut(local.X, state.rows)
    models = np.split(down.centers, np.cumsum(down.sizes)[:-1])
    is_reported = len(state.rows) >= local.min_report
    scores = [held.score_nearest(centers) if is_reported else np.nan for centers in models]
    return state, Judgement(scores=np.nan_to_num(scores, nan=0.0))


def em_ball_step(X: FloatArray, means: FloatArray, radius: str) -> Balls:
    if not len(means):
        return Balls(means=means, radii=np.empty(0))
    moved, variances = em_step(X, means)
    steps = ((moved - means) ** 2).sum(axis=1)
    return Balls(means=moved, radii=RADII[radius](steps, variances))


def em_step(X: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One EM step of unit Gaussians with equal weights: new means, and the mean squared distance to them (v)."""
    origin = means.sum(axis=0) / len(means)
    Z, centers = X - origin, means - origin
    share = shares_of(Z, centers)
    masses = share.sum(axis=1)
    is_empty = masses <= NO_MASS
    masses[is_empty] = 1.0
    moved = share @ Z / masses[:, None]
    variances = share @ np.vecdot(Z, Z) / masses - np.vecdot(moved, moved)
    moved[is_empty] = centers[is_empty]
    variances[is_empty] = 0.0
    return moved + origin, np.maximum(variances, 0.0)


def shares_of(Z: FloatArray, centers: FloatArray) -> FloatArray:
    """What each unit Gaussian with equal weights has of each row, (local_k, n_samples)."""
    share: FloatArray = centers @ Z.T
    share -= 0.5 * np.vecdot(centers, centers)[:, None]
    share -= share.max(axis=0)
    np.exp(share, share)
    share /= share.sum(axis=0)
    return share


# The radius of a ball from D = |M - theta|^2, the squared step, and v, the mean squared distance of the rows to M.
# "program": the largest r the feasibility program of the method allows; "exact": the largest r for which the expected
# log-likelihood does not fall anywhere in the ball; "released": what the released program uses.
RADII = {
    "program": lambda steps, variances: np.sqrt(variances + steps) - np.sqrt(variances),
    "exact": lambda steps, variances: np.sqrt(steps),
    "released": lambda steps, variances: np.sqrt(steps / 2),
}


def smallest_distance(means: FloatArray) -> float:
    """Smallest distance between two of a client's means; a client with one has none: its ball is unbounded."""
    gaps = np.sqrt(((means[:, None] - means) ** 2).sum(axis=2))
    return float(gaps[np.triu_indices(len(means), k=1)].min(initial=np.inf))


# --- server steps ---


def gather(balls: Mapping[str, Balls]) -> tuple[FloatArray, FloatArray, IntArray]:
    """Centers, radii and the client's position of all balls, in client order."""
    if not any(len(b.radii) for b in balls.values()):
        raise KoncordError(f"No client sent a component: each has fewer rows than it reports at least. {LOWER_FLOOR}")
    clients = np.repeat(np.arange(len(balls)), [len(b.radii) for b in balls.values()])
    return np.concatenate([b.means for b in balls.values()]), np.concatenate([b.radii for b in balls.values()]), clients


def rows_by_client(rows: Any, clients: IntArray, names: Sequence[str]) -> dict[str, Any]:
    return {name: rows[clients == at] for at, name in enumerate(names)}


def longest_step(before: Mapping[str, FloatArray], after: Mapping[str, FloatArray]) -> float:
    """Farthest that a mean moved; infinite if one came or went."""
    if any(len(means) != len(before.get(client, ())) for client, means in after.items()):
        return float("inf")
    return max(float(np.sqrt(((after[c] - before[c]) ** 2).sum(axis=1)).max(initial=0.0)) for c in after)


def centers_of(means: FloatArray, groups: IntArray) -> FloatArray:
    """A global center is the plain mean of the members of its group."""
    return partition_means(means, groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the server knows after the last EM step."""

    balls: Mapping[str, Balls]  # final, of the clients that took the last step
    n_rounds: int
    has_converged: bool  # no mean moved any more; the corrected variant does not ask
    clients: tuple[str, ...]  # that took part in any round


Training = Generator[Any, Any, Trained]


class FedGEM(Aggregator):
    """Federated generalized EM: neither the server nor the clients need the global number of clusters.

    Parameters
    ----------
    upsilon : float or None, default None
        Scale of the squared radii that group components at the end, or None: chosen from `UPSILONS` without labels.
        Then every client first runs on 80 % of its rows; of the models the candidates give, the one with the largest
        silhouette of the clients' held-out rows, summed over clients, wins (ties: fewer clusters, then order).
    n_rounds : int, default 10
        EM steps before the last one; in the released variant the most rounds after the first.
    radius : str, default "program"
        "program", the radius the method's feasibility program allows, or "exact", the largest one for which the
        expected log-likelihood does not fall inside the ball.
    variant : str, default "corrected"
        "corrected", or "released": as the released program behaves.
    start : str or sequence of ndarray, default "counts"
        "counts", k-means++ seeds with the local k of phase 1; "means", the means of phase 1; or a list with one array
        of means a client, in client order.

    Notes
    -----
    Balls of one client never join one group, so a client that splits a cluster in two splits it for all. With a large
    `upsilon` all balls meet, and the order of the pairs alone decides: the outcome then says ``all_balls_meet``.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: np.concatenate([rng.normal(m, 1, (80, 3)) for m in held])
    ...          for name, held in {"north": (0, 9), "south": (9, 18), "west": (0, 18)}.items()}
    >>> clustering = koncord.FederatedClustering(
    ...     koncord.KnownCounts(2), koncord.FedGEM(upsilon=2), standardize=False, random_state=0
    ... )
    >>> clustering.fit(sites).n_clusters_
    3
    """

    name: ClassVar[str] = "fedgem"
    reads_rows: ClassVar[bool] = True
    client_steps: ClassVar[Mapping[type[Any], Any]] = {
        Start: start_step,
        Move: move_step,
        Finish: finish_step,
        Judge: judge_step,
    }
    most_parts: ClassVar[int] = 2  # where upsilon is open, two fits share their exchanges

    def __init__(
        self,
        upsilon: float | None = None,
        n_rounds: int = 10,
        radius: str = "program",
        variant: str = "corrected",
        start: str | Sequence[FloatArray] = "counts",
    ) -> None:
        self.upsilon = upsilon
        self.n_rounds = n_rounds
        self.radius = radius
        self.variant = variant
        self.start = start

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        check_count("n_rounds", self.n_rounds, owner=self, least=0)
        check_option("variant", self.variant, ("corrected", "released"), owner=self)
        check_option("radius", self.radius, ("program", "exact"), owner=self)
        self._starts(clients, n_features, self.radius, holds_out=False)
        if self.upsilon is not None:
            check_number("upsilon", self.upsilon, owner=self, least=0)
        return self._serve(clients, n_features)

    def most_messages(self) -> Mapping[type[Any], int]:
        """A client that was away starts in the place of a move, and one whose reply was lost starts again."""
        n_moves, n_trainings = self._most_moves(), 1 if self.upsilon is not None else 2
        return {
            Start: n_trainings * (1 + n_moves),
            Move: n_trainings * n_moves,
            Finish: n_trainings,
            Judge: n_trainings - 1,
        }

    def most_rounds(self) -> int:
        n_trainings = 1 if self.upsilon is not None else 2
        return n_trainings * (1 + self._most_moves() + 1) + n_trainings - 1

    def _most_moves(self) -> int:
        """EM steps between the first and the last one, at most."""
        check_count("n_rounds", self.n_rounds, owner=self, least=0)
        return self.n_rounds if self.variant == "released" else self._n_moves()

    def _serve(self, clients: tuple[str, ...], n_features: int) -> Server:
        if self.upsilon is None:
            choice, trained = yield from self._choose_upsilon(clients, n_features)
        else:
            choice = UpsilonChoice(upsilon=float(self.upsilon))
            trained = yield from self._train(clients, n_features, holds_out=False)
        balls = trained.balls
        means, groups, all_meet = self._conclude(balls, choice.upsilon)
        positions = gather(balls)[2]
        return Outcome(
            centers=centers_of(means, groups),
            groups=rows_by_client(groups, positions, list(balls)),
            components=rows_by_client(means, positions, list(balls)),
            diagnostics=Diagnostics(
                rounds=trained.n_rounds,
                stopped="converged" if trained.has_converged else "round limit",
                choice=choice,
                notes=(ALL_MEET,) if all_meet and len(balls) > 1 else (),
                extra={"variant": self.variant, "all_balls_meet": all_meet},
            ),
        )

    def _train(self, clients: tuple[str, ...], n_features: int, *, holds_out: bool) -> Training:
        """All rounds and the last EM step.

        A client that is missing from a round has no balls in it, and goes on from its last means when it is back. One
        that never started starts when it comes; one that is missing from the last step is in no group.
        """
        is_released = self.variant == "released"
        radius = "released" if is_released else self.radius
        starts = self._starts(clients, n_features, radius, holds_out)
        balls: Mapping[str, Balls] = yield starts
        means = self._server_step(balls)
        n_more = self._most_moves()
        n_rounds, has_converged = 1, False
        for _ in range(n_more):
            before = means
            balls = yield {
                client: Move(means=means[client], radius=radius, holds_out=holds_out)
                if client in means
                else starts[client]
                for client in clients
            }
            means = {**means, **self._server_step(balls)}
            n_rounds += 1
            has_converged = is_released and longest_step(before, means) <= RELEASED_TOLERANCE
            if has_converged:
                break
        spread_of = "before" if is_released else "after"
        final = yield {
            client: Finish(means=means[client], spread_of=spread_of, holds_out=holds_out)
            for client in clients
            if client in means
        }
        return Trained(
            balls=final,
            n_rounds=n_rounds,
            has_converged=has_converged,
            clients=tuple(client for client in clients if client in means),
        )

    def _n_moves(self) -> int:
        """EM steps of the corrected variant between the first and the last one."""
        return max(self.n_rounds - 1, 0)

    def _starts(self, clients: tuple[str, ...], n_features: int, radius: str, holds_out: bool) -> dict[str, Start]:
        if isinstance(self.start, str):
            check_option("start", self.start, ("counts", "means"), owner=self)
            return dict.fromkeys(clients, Start(start=self.start, radius=radius, holds_out=holds_out, means=None))
        given = [np.asarray(means, dtype=float) for means in self.start]
        if len(given) != len(clients) or any(means.ndim != 2 or means.shape[1] != n_features for means in given):
            raise ValueError(
                f"'start' of FedGEM must hold one array of means with {n_features} columns for each of the "
                f"{len(clients)} clients; got shapes {[means.shape for means in given]}."
            )
        return {
            client: Start(start="given", radius=radius, holds_out=holds_out, means=means)
            for client, means in zip(clients, given, strict=True)
        }

    def _server_step(self, balls: Mapping[str, Balls]) -> dict[str, FloatArray]:
        """Where the means of every client go next."""
        centers, radii, clients = gather(balls)
        move = released_move if self.variant == "released" else move_together
        return rows_by_client(move(centers, radii, clients), clients, list(balls))

    def _conclude(self, balls: Mapping[str, Balls], upsilon: float) -> tuple[FloatArray, IntArray, bool]:
        """Final means of the components, their groups, and whether all balls meet."""
        centers, squared, clients = gather(balls)
        radii = np.where(np.isinf(squared), np.inf, np.sqrt(upsilon * np.where(np.isinf(squared), 0.0, squared)))
        groups, all_meet = group(centers, radii, clients)
        if self.variant == "released":
            centers = released_final_means(centers, radii, clients)
        return centers, groups, all_meet

    def _choose_upsilon(
        self, clients: tuple[str, ...], n_features: int
    ) -> Generator[Any, Any, tuple[UpsilonChoice, Trained]]:
        """The candidate whose global model has the largest silhouette of the clients' held-out rows.

        Also the fit to all rows. Neither fit needs the other, so the two share their exchanges where both take as many.
        """
        trial = self._train(clients, n_features, holds_out=True)
        full = self._train(clients, n_features, holds_out=False)
        if self.variant == "released":
            choice = yield from self._judge((yield from trial))
            return choice, (yield from full)
        n_exchanges = self._n_moves() + 2
        tried, trained = yield from side_by_side(trial, full, n_exchanges)
        choice = yield from self._judge(tried, n_exchanges + 1)
        return choice, trained

    def _judge(self, tried: Trained, round_: int | None = None) -> Generator[Any, Any, UpsilonChoice]:
        """The best candidate for upsilon, and how all of them fared."""
        sizes, judgements = yield from self._judgements(tried, UPSILONS, round_)
        scores = judgements.sum(axis=0)
        best = min(range(len(UPSILONS)), key=lambda at: (-scores[at], sizes[at], at))
        candidates = tuple(
            UpsilonCandidate(upsilon=upsilon, n_clusters=int(size), score=float(score))
            for upsilon, size, score in zip(UPSILONS, sizes, scores, strict=True)
        )
        return UpsilonChoice(upsilon=UPSILONS[best], candidates=candidates)

    def _judgements(
        self, tried: Trained, upsilons: Sequence[float], round_: int | None = None
    ) -> Generator[Any, Any, tuple[IntArray, FloatArray]]:
        """Number of clusters that each upsilon gives, and the score of each (columns) with every client (rows)."""
        models = []
        for upsilon in upsilons:
            means, groups, _ = self._conclude(tried.balls, upsilon)
            models.append(centers_of(means, groups))
        sizes = np.array([len(model) for model in models])
        down = dict.fromkeys(tried.clients, Judge(centers=np.concatenate(models), sizes=sizes))
        judgements = (yield down) if round_ is None else (yield Batch(parts=((round_, down),)))[0]
        return sizes, np.array([judgement.scores for judgement in judgements.values()])


def side_by_side(trial: Training, full: Training, n_exchanges: int) -> Generator[Any, Any, tuple[Trained, Trained]]:
    """Both trainings in the same `n_exchanges`; the rounds of `full` are numbered as if it came after the judgement."""
    downs: list[Any] = [next(trial), next(full)]
    ends: list[Any] = [None, None]
    for round_ in range(1, n_exchanges + 1):
        replies = yield Batch(parts=((round_, downs[0]), (n_exchanges + 1 + round_, downs[1])))
        for at, training in enumerate((trial, full)):
            try:
                downs[at] = training.send(replies[at])
            except StopIteration as finished:
                ends[at] = finished.value
    return ends[0], ends[1]
