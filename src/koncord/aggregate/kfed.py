"""k-FED: every client clusters its own rows, the server clusters the centers they send, in one round.

Reference: D. K. Dennis, T. Li, V. Smith, "Heterogeneity for the win: one-shot federated clustering", ICML 2021,
arXiv 2103.00697. The local step is that of Awasthi and Sheffet (2012): project on the leading singular vectors, seed,
start from the cores of the seeds, then Lloyd.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from koncord._validation import check_count
from koncord.aggregate.base import Aggregator, ClientStep, Local, Outcome, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.errors import KoncordError
from koncord.kernels.assign import means_by_label
from koncord.kernels.lloyd import MAX_PASSES, Partition, check_n_clusters, cost, kpp, lloyd, stacked_rows, unstacked
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, Array, Number
from koncord.types import BoolArray, FloatArray, IntArray

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCenters:
    """Server to client: cluster your rows into your local k and send the centers."""

    n_init: Annotated[int, Number(least=1, most=1_000)]  # seedings to choose from
    min_count: Annotated[int, Number(least=0, most=LARGEST["rows"])]  # rows a center must be the mean of to be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCenters:
    """Client to server: the centers that stand for enough rows; possibly none."""

    centers: Annotated[FloatArray, Array("at most local_k", "n_features")]


# --- client steps ---


def send_centers(local: Local, state: None, down: SendCenters) -> tuple[None, LocalCenters]:
    """Cluster the rows into local k, or into as many clusters as can have enough rows, and send the centers."""
    least = max(down.min_count, local.min_report)
    k = min(local.estimate.n_components, len(local.X) // least)
    if k == 0:
        return None, LocalCenters(centers=np.empty((0, local.X.shape[1])))
    found = local_clusters(local.X, k, local.rng, down.n_init)
    groups = local.grouped_by(found.centers)
    centers = means_by_label(groups.X, groups.labels, otherwise=found.centers)
    return None, LocalCenters(centers=centers[np.bincount(groups.labels, minlength=k) >= least])


def local_clusters(X: FloatArray, k: int, rng: np.random.Generator, n_init: int) -> Partition:
    """Cheapest of `n_init` runs of Lloyd from the cores of a seeding in the span of k singular vectors."""
    axes = np.linalg.svd(X, full_matrices=False)[2][:k].T  # (n_features, at most k), of the rows as they are
    projected = X @ axes
    seedings = (projected[kpp(projected, k, rng)] for _ in range(n_init))
    found = [lloyd(X, core_means(projected, seeds) @ axes.T) for seeds in seedings]
    return min(found, key=lambda partition: cost(X, partition.centers))


def core_means(X: FloatArray, seeds: FloatArray) -> FloatArray:
    """Mean of the rows in the core of each seed; the seed itself if its core is empty."""
    distances = cdist(X, seeds)
    rows = is_core(distances)
    return means_by_label(X[rows], distances[rows].argmin(axis=1), otherwise=seeds)


def is_core(distances: FloatArray) -> BoolArray:
    """Rows at least three times as far from every other seed as from the nearest one, from distances to all seeds."""
    if distances.shape[1] == 1:
        return np.ones(len(distances), dtype=np.bool_)
    two = np.partition(distances, 1, axis=1)
    core: BoolArray = 3 * two[:, 0] <= two[:, 1]
    return core


# --- server steps ---


def spread_start(centers: FloatArray, first: IntArray, k: int) -> FloatArray:
    """k of `centers`: those of the rows `first`, then always the one farthest from its nearest chosen one.

    If `first` has more than k, k of them are chosen in the same manner, beginning with the first.
    """
    if len(first) > k:
        centers, first = centers[first], np.zeros(1, dtype=np.int64)
    chosen = list(first)
    distances = cdist(centers, centers[first]).min(axis=1)
    while len(chosen) < k:
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, cdist(centers, centers[chosen[-1:]])[:, 0])
    start: FloatArray = centers[chosen]
    return start


class KFed(Aggregator):
    """The method k-FED: one round, the global number of clusters given.

    A client sends the centers of its local clusters, as many as phase 1 found there. A center that is the mean of
    fewer than `min_count` rows is not sent, and no client makes more clusters than can have `min_count` rows. The
    server starts from the centers of the client that sent most, adds centers far from those it has until there are
    `n_clusters`, and runs Lloyd on all centers, each counted once.

    Parameters
    ----------
    n_clusters : int or None, default None
        Global number of clusters; the clients together must send at least as many distinct centers.
    server_iters : int or None, default None
        Passes of Lloyd at the server; 1 is the paper, None is until nothing changes, as in the released code.
    n_init : int, default 10
        Seedings a client chooses from, by the k-means cost of the result.
    min_count : int, default 2
        Rows a center must be the mean of to be sent; 1 may send a row itself.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (60, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), koncord.KFed(3), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "kfed"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {SendCenters: send_centers}

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        server_iters: int | None = None,
        n_init: int = 10,
        min_count: int = 2,
    ) -> None:
        self.n_clusters = n_clusters
        self.server_iters = server_iters
        self.n_init = n_init
        self.min_count = min_count

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        n_clusters = check_n_clusters(self.n_clusters, owner=self)
        max_iter = MAX_PASSES
        if self.server_iters is not None:
            max_iter = check_count("server_iters", self.server_iters, owner=self)
        down = SendCenters(
            n_init=check_count("n_init", self.n_init, owner=self),
            min_count=check_count("min_count", self.min_count, owner=self, least=0),
        )
        return self._one_round(down, n_clusters, n_features, max_iter)

    def _one_round(self, down: SendCenters, n_clusters: int, n_features: int, max_iter: int) -> Server:
        replies = yield down
        sent = {client: up.centers for client, up in replies.items()}
        centers = stacked_rows(sent, n_features)
        if not len(centers):
            raise KoncordError(
                f"No client sent a center: each has fewer than {down.min_count} rows, or than its floor. {LOWER_FLOOR}"
            )
        n_distinct = len(np.unique(centers, axis=0))
        if n_distinct < n_clusters:
            raise ValueError(
                f"'n_clusters' of KFed must be at most {n_distinct} (the clients sent only that many distinct "
                f"centers); got {n_clusters}."
            )
        sizes = [len(part) for part in sent.values()]
        most = int(np.argmax(sizes))
        first = np.arange(sizes[most]) + sum(sizes[:most])
        found = lloyd(centers, spread_start(centers, first, n_clusters), max_iter=max_iter)
        diagnostics = Diagnostics(
            rounds=1,
            stopped="one round",
            objective=(cost(centers, found.centers),),
            extra={"centers_received": len(centers)},
        )
        return Outcome(
            centers=found.centers, groups=unstacked(found.labels, sent), components=sent, diagnostics=diagnostics
        )
