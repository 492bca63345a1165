"""FedKMeans: clients move the server's centers over their rows, the server clusters the centers they send back.

Reference: S. Garst, M. Reinders, "Federated K-means clustering", 2023, arXiv 2310.01195.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from koncord._validation import check_count, check_number
from koncord.aggregate.base import Aggregator, ClientStep, Local, Outcome, PrivateStep, Replies, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.aggregate.private import PrivateClient
from koncord.errors import KoncordError
from koncord.kernels.assign import means_by_label
from koncord.kernels.lloyd import check_n_clusters, cost, kmeans, kpp, stacked_rows
from koncord.privacy.budget import CELLS, HOLDINGS, MOMENTS, ROUND, Plan
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, Array, Number
from koncord.types import FloatArray, IntArray

# Releases in which a client with a privacy budget looks for the cells of its rows, and what each release costs.
N_PASSES = 3
SHARES = {MOMENTS: 3.0, CELLS: 5.0, ROUND: 4.0, HOLDINGS: 1.0}

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Server to client: cluster your rows from seeds of your own and send the means."""

    n_clusters: Annotated[int, Number(least=1, size="global_k")]
    local_iters: Annotated[int, Number(least=1, most=100_000)]  # passes of Lloyd
    min_count: Annotated[int, Number(least=0, most=LARGEST["rows"])]  # rows a center must be the mean of to be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Refine:
    """Server to client: the global centers; move them over your rows and send the means."""

    centers: Annotated[FloatArray, Array("global_k", "n_features")]
    local_iters: Annotated[int, Number(least=1, most=100_000)]
    min_count: Annotated[int, Number(least=0, most=LARGEST["rows"])]
    drop_empty: bool  # leave out centers that attract no row before the first pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMeans:
    """Client to server: means of local clusters and how many rows each is the mean of; possibly none."""

    centers: Annotated[FloatArray, Array("at most global_k", "n_features")]
    counts: Annotated[IntArray, Array("at most global_k", least=0, total="rows")]


# --- client steps ---


def begin(local: Local, state: None, down: Begin) -> tuple[None, LocalMeans]:
    """Cluster from k-means++ seeds, into no more clusters than can have enough rows."""
    least = max(down.min_count, local.min_report)
    k = min(down.n_clusters, len(local.X) // least)
    if k == 0:
        return None, LocalMeans(centers=np.empty((0, local.X.shape[1])), counts=np.empty(0, dtype=np.int64))
    seeds = local.X[kpp(local.X, k, local.rng)]
    return None, moved_by_groups(local, seeds, down.local_iters, least)


def refine(local: Local, state: None, down: Refine) -> tuple[None, LocalMeans]:
    """Cluster from the server's centers."""
    start = down.centers
    if down.drop_empty:
        start = start[np.unique(local.grouped_by(start).labels)]
    floor = local.min_report if local.min_report > 1 else 0  # without a floor, an empty center may be sent
    return None, moved_by_groups(local, start, down.local_iters, max(down.min_count, floor))


def moved_by_groups(local: Local, centers: FloatArray, max_iter: int, min_count: int) -> LocalMeans:
    """Lloyd's passes from these centers, each over whole cells of the joint partition; those with rows enough."""
    labels = None
    for _ in range(max_iter):
        groups = local.grouped_by(centers)
        if labels is not None and np.array_equal(groups.labels, labels):
            break
        labels = groups.labels
        centers = means_by_label(groups.X, labels, otherwise=centers)
    assert labels is not None
    counts = np.bincount(labels, minlength=len(centers))
    kept = counts >= min_count
    return LocalMeans(centers=centers[kept], counts=counts[kept])


# --- steps of a client with a privacy budget ---


def private_begin(client: PrivateClient, down: Begin, rng: np.random.Generator) -> LocalMeans:
    """Means and counts of the client's cells, put together into at most `n_clusters`."""
    cells = client.own_cells(N_PASSES, rng)
    if not len(cells):
        return LocalMeans(centers=cells.means, counts=cells.counts)
    weights = cells.counts.astype(float)
    found = kmeans(cells.means, min(down.n_clusters, len(cells)), rng, weights=weights, n_init=10)
    counts = np.bincount(found.labels, weights, minlength=len(found.centers)).astype(np.int64)
    kept = counts >= max(down.min_count, client.min_report, 1)
    return LocalMeans(centers=found.centers[kept], counts=counts[kept])


def private_refine(client: PrivateClient, down: Refine, rng: np.random.Generator) -> LocalMeans:
    """Means of the rows by nearest center, through noise."""
    counts, sums = client.sums(down.centers, max(down.min_count, client.min_report))
    is_reported = counts > 0
    return LocalMeans(centers=sums[is_reported] / counts[is_reported, None], counts=counts[is_reported])


# --- server steps ---


def pooled(replies: Replies, n_features: int) -> tuple[FloatArray, FloatArray]:
    """Centers of all clients in name order, and the rows behind each."""
    centers = stacked_rows({client: up.centers for client, up in replies.items()}, n_features)
    return centers, np.concatenate([np.empty(0), *(up.counts for up in replies.values())])


def cluster_centers(
    centers: FloatArray,
    weights: FloatArray | None,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int,
    previous: FloatArray,
) -> FloatArray:
    """Weighted k-means of the clients' centers; the previous centers are one of the starts, so it never gets worse."""
    starts = [previous] if len(previous) else []
    return kmeans(centers, k, rng, weights=weights, n_init=n_init, starts=starts).centers


def matched_shift(before: FloatArray, after: FloatArray) -> float:
    """Largest distance between centers of two rounds, matched one to one; infinite if their numbers differ."""
    if len(before) != len(after):
        return float("inf")
    squared = cdist(before, after, "sqeuclidean")
    return float(np.sqrt(squared[linear_sum_assignment(squared)].max()))


def spread(centers: FloatArray) -> float:
    """Root mean squared distance of the centers to their mean."""
    return float(np.sqrt(centers.var(axis=0).sum())) if len(centers) else 0.0


def lowered(asked: int, found: int) -> list[str]:
    """What a reader should know if there are fewer clusters than were asked for."""
    if found == asked:
        return []
    return [f"The number of clusters is {found}, not {asked}: the clients sent only {found} distinct centers."]


class FedKMeans(Aggregator):
    """Federated k-means, the global number of clusters given.

    In the first round a client clusters its rows from its own k-means++ seeds until nothing moves, later it moves
    the server's centers, and sends the means with their numbers of rows. The server clusters all means, weighted by
    rows, into `n_clusters`. A mean of fewer than `min_count` rows is not sent; in the first round no client makes
    more clusters than can have `min_count` rows. Where the clients send fewer distinct means than `n_clusters`,
    there are fewer clusters, and the result says so.

    Parameters
    ----------
    n_clusters : int or None, default None
        Global number of clusters.
    n_rounds : int, default 10
        Rounds, the first included.
    local_iters : int, default 1
        Passes of Lloyd at a client in each round but the first.
    first_iters : int, default 100
        Passes of Lloyd at a client in the first round, at most: it ends when nothing moves. With a single pass, as in
        the paper, the means lie near their random seeds, and later rounds do not make up for such a start.
    min_count : int, default 2
        Rows a center must be the mean of to be sent; 1 may send a row itself.
    weighted : bool, default True
        Whether the server weights a mean by its rows.
    drop_empty : bool, default True
        Whether a client leaves out the server's centers that attract none of its rows.
    n_init : int, default 10
        Seedings the server chooses from in each round, beside its previous centers.
    tol : float or None, default None
        Stop before `n_rounds` when no center moved farther than this share of the root mean squared distance of the
        means to their mean; None never does.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (60, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), koncord.FedKMeans(3), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "fedkmeans"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {Begin: begin, Refine: refine}
    private_steps: ClassVar[Mapping[type[Any], PrivateStep]] = {Begin: private_begin, Refine: private_refine}

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        n_rounds: int = 10,
        local_iters: int = 1,
        first_iters: int = 100,
        min_count: int = 2,
        weighted: bool = True,
        drop_empty: bool = True,
        n_init: int = 10,
        tol: float | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_rounds = n_rounds
        self.local_iters = local_iters
        self.first_iters = first_iters
        self.min_count = min_count
        self.weighted = weighted
        self.drop_empty = drop_empty
        self.n_init = n_init
        self.tol = tol

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        n_clusters = check_n_clusters(self.n_clusters, owner=self)
        check_count("n_rounds", self.n_rounds, owner=self)
        check_count("n_init", self.n_init, owner=self)
        local_iters = check_count("local_iters", self.local_iters, owner=self)
        if self.tol is not None:
            check_number("tol", self.tol, owner=self, least=0)
        down = Begin(
            n_clusters=n_clusters,
            local_iters=check_count("first_iters", self.first_iters, owner=self),
            min_count=check_count("min_count", self.min_count, owner=self, least=0),
        )
        return self._rounds(down, local_iters, n_features, rng)

    def most_messages(self) -> Mapping[type[Any], int]:
        return {Begin: 1, Refine: check_count("n_rounds", self.n_rounds, owner=self) - 1}  # its first round counts

    def private_plan(self, n_rounds: int | None) -> Plan:
        rounds = self.most_messages()[Refine] if n_rounds is None else n_rounds
        return Plan(shares=SHARES, times={MOMENTS: 1, CELLS: N_PASSES, ROUND: rounds, HOLDINGS: 1})

    def _rounds(self, first: Begin, local_iters: int, n_features: int, rng: np.random.Generator) -> Server:
        down: Begin | Refine = first
        centers = np.empty((0, n_features))
        objective: list[float] = []
        has_converged = False
        while len(objective) < self.n_rounds and not (has_converged and self.tol is not None):
            means, counts = pooled((yield down), n_features)
            weights = counts if self.weighted else None
            previous = centers
            if len(means):
                centers = cluster_centers(means, weights, first.n_clusters, rng, n_init=self.n_init, previous=previous)
            elif not len(centers):
                raise KoncordError(
                    f"No client sent a center: each has fewer than {first.min_count} rows, or than its floor. "
                    f"{LOWER_FLOOR}"
                )
            objective.append(cost(means, centers, weights))
            has_converged = matched_shift(previous, centers) <= (self.tol or 0.0) * spread(means)
            down = Refine(
                centers=centers,
                local_iters=local_iters,
                min_count=first.min_count,
                drop_empty=bool(self.drop_empty),
            )
        diagnostics = Diagnostics(
            rounds=len(objective),
            stopped="converged" if has_converged else "round limit",
            objective=tuple(objective),
            notes=tuple(lowered(first.n_clusters, len(centers))),
        )
        return Outcome(centers=centers, groups={}, diagnostics=diagnostics)
