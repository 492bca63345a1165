"""FedGEM: federated generalised EM, clusters as groups of balls that meet (Ibrahim et al. 2026).

Every client fits `local k` unit Gaussians with equal weights by EM, one step a round, and sends each mean with a radius
inside which the step still counts as one of generalised EM. The server moves balls of different clients that meet
towards each other. After the last round the radii are set anew, balls that meet are grouped, and a global cluster is
the mean of a group.

`variant="corrected"` is the paper's reading; `variant="released"` behaves as the released program does.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import kmeans_plusplus

from koncord._random import draw_seed
from koncord._validation import check_count, check_number, check_option
from koncord.estimate.kmeans import means_of
from koncord.estimate.search import split_rows
from koncord.estimate.silhouette import HeldOut
from koncord.federate.balls import group, move_together
from koncord.federate.link import Aggregator, Local, Outcome, Replies, Sent, Server
from koncord.federate.released import released_final_means, released_move
from koncord.types import FloatArray, IntArray

# Tried when `upsilon` is left open: the values the paper uses on its data sets and what lies between them.
UPSILONS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5, 1e6)
HOLDOUT = 0.2
# The released program stops when no mean moved further than this.
RELEASED_TOLERANCE = 1e-3
# A component that no row is responsible for stays where it is.
NO_MASS = 1e-12

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Server to client: take your first means and one EM step from them."""

    start: str  # "counts": k-means++ with the local k; "means": those of phase 1; "given": the means below
    radius: str
    holds_out: bool  # leave out the rows that will judge candidates
    means: FloatArray | None  # (local_k, n_features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Server to client: one EM step from these means."""

    means: FloatArray  # (local_k, n_features)
    radius: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Server to client: one EM step from these means, the last; send the radii that group components."""

    means: FloatArray  # (local_k, n_features)
    spread_of: str  # smallest distance between means "before" or "after" the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Server to client: several global models, one after the other; score each on the rows you held out."""

    centers: FloatArray  # (sum of sizes, n_features)
    sizes: IntArray  # (n_models,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balls:
    """Client to server: one ball for each local component."""

    means: FloatArray  # (local_k, n_features)
    radii: FloatArray  # (local_k,); in the last round the square of the radius for upsilon = 1

    def __post_init__(self) -> None:
        if self.means.ndim != 2 or self.radii.shape != self.means.shape[:1]:
            raise ValueError("'radii' must have one entry for each row of 'means'.")
        if not np.isfinite(self.means).all() or not (self.radii >= 0).all():
            raise ValueError("'means' must be finite and 'radii' not negative.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Client to server: mean silhouette of the held-out rows under each model, 0 where there is none."""

    scores: FloatArray  # (n_models,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A client's state: the rows it leaves out of the fit. It stays at the client."""

    rows: IntArray


# --- client steps ---


def start_step(local: Local, state: Held | None, down: Start) -> tuple[Held, Balls]:
    n = len(local.X)
    held = split_rows(n, HOLDOUT, local.rng, owner="FedGEM")[1] if down.holds_out else np.empty(0, dtype=np.int64)
    fitted = fitted_rows(local, Held(rows=held))
    means = first_means(fitted, local, down)
    return Held(rows=held), em_ball_step(fitted, means, down.radius)


def fitted_rows(local: Local, state: Held) -> FloatArray:
    return np.delete(local.X, state.rows, axis=0) if len(state.rows) else local.X


def first_means(X: FloatArray, local: Local, down: Start) -> FloatArray:
    if down.start == "given" and down.means is not None:
        return down.means
    if down.start == "means":
        return local.estimate.means
    n_seeds = min(local.estimate.n_components, len(X))
    seeds, rows = kmeans_plusplus(X, n_seeds, n_local_trials=1, random_state=draw_seed(local.rng))
    is_new = [row not in rows[:at] for at, row in enumerate(rows)]  # where rows coincide, one may be drawn again
    return np.asarray(seeds[is_new], dtype=float)


def move_step(local: Local, state: Held, down: Move) -> tuple[Held, Balls]:
    return state, em_ball_step(fitted_rows(local, state), down.means, down.radius)


def finish_step(local: Local, state: Held, down: Finish) -> tuple[Held, Balls]:
    X = fitted_rows(local, state)
    means, _ = em_step(X, down.means)
    closest = smallest_distance(means if down.spread_of == "after" else down.means)
    return state, Balls(means=means, radii=np.full(len(means), closest * len(means) / np.sqrt(len(X))))


def judge_step(local: Local, state: Held, down: Judge) -> tuple[Held, Judgement]:
    held = HeldOut(local.X, state.rows)
    models = np.split(down.centers, np.cumsum(down.sizes)[:-1])
    scores = [held.score_nearest(centers) if len(state.rows) else np.nan for centers in models]
    return state, Judgement(scores=np.nan_to_num(scores, nan=0.0))


def em_ball_step(X: FloatArray, means: FloatArray, radius: str) -> Balls:
    moved, variances = em_step(X, means)
    steps = ((moved - means) ** 2).sum(axis=1)
    return Balls(means=moved, radii=RADII[radius](steps, variances))


def em_step(X: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One EM step of unit Gaussians with equal weights: new means, and the mean squared distance to them (v)."""
    origin = means.sum(axis=0) / len(means)
    Z, centers = X - origin, means - origin
    share = centers @ Z.T  # (local_k, n_samples)
    share -= 0.5 * np.vecdot(centers, centers)[:, None]
    share -= share.max(axis=0)
    np.exp(share, share)
    share /= share.sum(axis=0)
    masses = share.sum(axis=1)
    is_empty = masses <= NO_MASS
    masses[is_empty] = 1.0
    moved = share @ Z / masses[:, None]
    variances = share @ np.vecdot(Z, Z) / masses - np.vecdot(moved, moved)
    moved[is_empty] = centers[is_empty]
    variances[is_empty] = 0.0
    return moved + origin, np.maximum(variances, 0.0)


# The radius of a ball from D = |M - theta|^2, the squared step, and v, the mean squared distance of the rows to M.
# "program": the largest r the feasibility programme of the method allows; "exact": the largest r for which the expected
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
    clients = np.repeat(np.arange(len(balls)), [len(b.radii) for b in balls.values()])
    return np.concatenate([b.means for b in balls.values()]), np.concatenate([b.radii for b in balls.values()]), clients


def by_client(rows: Any, clients: IntArray, names: Sequence[str]) -> dict[str, Any]:
    return {name: rows[clients == at] for at, name in enumerate(names)}


def centers_of(means: FloatArray, groups: IntArray) -> FloatArray:
    """A global center is the plain mean of the members of its group."""
    return means_of(means, groups)


class FedGEM(Aggregator):
    """Federated generalised EM: neither the server nor the clients need the global number of clusters.

    Parameters
    ----------
    upsilon : scale of the squared radii that group components at the end, or None: chosen from `UPSILONS` without
        labels. Then every client first runs on 80 % of its rows; of the models the candidates give, the one with the
        largest silhouette of the clients' held-out rows, summed over clients, wins (ties: fewer clusters, then order)
    n_rounds : EM steps before the last one; in the released variant the most rounds after the first
    radius : "program", the radius the method's feasibility programme allows, or "exact", the largest one for which
        the expected log-likelihood does not fall inside the ball
    variant : "corrected", or "released": as the released program behaves
    start : "counts", k-means++ seeds with the local k of phase 1; "means", the means of phase 1; or a list with one
        array of means a client, in client order

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
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), koncord.FedGEM(upsilon=2), random_state=0)
    >>> clustering.fit(sites).n_clusters_
    3
    """

    name: ClassVar[str] = "fedgem"
    sends: ClassVar[tuple[Sent, ...]] = (
        Sent(message="Balls", field="means", shape="local_k x n_features"),
        Sent(message="Balls", field="radii", shape="local_k"),
        Sent(message="Judgement", field="scores", shape="number of candidates for upsilon"),
    )
    client_steps: ClassVar[Mapping[type[Any], Any]] = {
        Start: start_step,
        Move: move_step,
        Finish: finish_step,
        Judge: judge_step,
    }
    replies: ClassVar[tuple[type[Any], ...]] = (Balls, Judgement)

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

    def _serve(self, clients: tuple[str, ...], n_features: int) -> Server:
        info: dict[str, Any] = {"variant": self.variant, "label_rule": "nearest"}
        upsilon = self.upsilon
        if upsilon is None:
            upsilon, info["candidates"] = yield from self._choose_upsilon(clients, n_features)
        balls, n_rounds = yield from self._train(clients, n_features, holds_out=False)
        means, groups, all_meet = self._conclude(balls, upsilon)
        positions = gather(balls)[2]
        info |= {"upsilon": upsilon, "n_rounds": n_rounds, "all_balls_meet": all_meet}
        if all_meet and len(clients) > 1:
            info["note"] = "All final balls meet, so the order of the pairs alone decides the groups."
        return Outcome(
            centers=centers_of(means, groups),
            groups=by_client(groups, positions, clients),
            components=by_client(means, positions, clients),
            info=info,
        )

    def _train(
        self, clients: tuple[str, ...], n_features: int, *, holds_out: bool
    ) -> Generator[Any, Replies, tuple[Mapping[str, Balls], int]]:
        """All rounds and the last EM step; the final balls, and the rounds it took."""
        is_released = self.variant == "released"
        radius = "released" if is_released else self.radius
        balls: Mapping[str, Balls] = yield self._starts(clients, n_features, radius, holds_out)
        means = self._server_step(balls)
        n_more = self.n_rounds if is_released else max(self.n_rounds - 1, 0)
        n_rounds = 1
        for _ in range(n_more):
            before = np.concatenate(list(means.values()))
            balls = yield {client: Move(means=means[client], radius=radius) for client in clients}
            means = self._server_step(balls)
            n_rounds += 1
            step = np.concatenate(list(means.values())) - before
            if is_released and np.sqrt((step**2).sum(axis=1)).max() <= RELEASED_TOLERANCE:
                break
        spread_of = "before" if is_released else "after"
        final = yield {client: Finish(means=means[client], spread_of=spread_of) for client in clients}
        return final, n_rounds

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
        return by_client(move(centers, radii, clients), clients, list(balls))

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
    ) -> Generator[Any, Replies, tuple[float, list[dict[str, float]]]]:
        """The candidate whose global model has the largest silhouette of the clients' held-out rows."""
        balls, _ = yield from self._train(clients, n_features, holds_out=True)
        models = []
        for upsilon in UPSILONS:
            means, groups, _ = self._conclude(balls, upsilon)
            models.append(centers_of(means, groups))
        sizes = np.array([len(model) for model in models])
        judgements = yield Judge(centers=np.concatenate(models), sizes=sizes)
        scores = np.sum([judgement.scores for judgement in judgements.values()], axis=0)
        best = min(range(len(UPSILONS)), key=lambda at: (-scores[at], sizes[at], at))
        table = [
            {"upsilon": upsilon, "n_clusters": int(size), "score": float(score)}
            for upsilon, size, score in zip(UPSILONS, sizes, scores, strict=True)
        ]
        return UPSILONS[best], table
