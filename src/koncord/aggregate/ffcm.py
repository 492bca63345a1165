"""Federated fuzzy c-means: clients send fuzzy centers and their supports, the server averages or clusters them.

Reference: M. Stallmann, A. Wilbik, "Towards federated clustering: a federated fuzzy c-means algorithm (FFCM)", 2022,
arXiv 2201.07316. Fuzzy c-means is that of Bezdek (1981).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from koncord._validation import LARGEST_VALUE, check_count, check_number, check_option
from koncord.aggregate import fedkmeans
from koncord.aggregate.base import Aggregator, ClientStep, Local, Outcome, Replies, Server
from koncord.aggregate.diagnostics import Diagnostics
from koncord.errors import KoncordError, MessageError
from koncord.kernels.lloyd import MAX_PASSES, check_n_clusters, kmeans, lloyd
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, LARGEST_FLOAT, Array, Number
from koncord.types import BoolArray, FloatArray

LOCAL_TOL = 1e-4  # of the memberships, in the Frobenius norm; as released
LOCAL_MAX_ITER = 1000  # as released
SERVER_MAX_ITER = 500  # passes of Lloyd over the clients' centers; as released

# A center with more of its weight than this in fewer than `min_count` rows is all but one of them.
MOST_WEIGHT = 0.95

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzify:
    """Server to client: the global centers; move them by fuzzy memberships of your rows."""

    centers: Annotated[FloatArray, Array("global_k", "n_features")]
    fuzzifier: Annotated[float, Number(least=1 + 1e-9)]
    local_iters: Annotated[int | None, Number(least=1, most=100_000)]  # passes, None until the memberships settle
    min_count: Annotated[int, Number(least=1, most=LARGEST["rows"])]  # rows that must share the weight of a center


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzySums:
    """Client to server: for every global center the local one times its support, and the support; 0 where withheld."""

    sums: Annotated[FloatArray, Array("global_k", "n_features", least=-LARGEST_FLOAT, most=LARGEST_FLOAT)]
    supports: Annotated[FloatArray, Array("global_k", least=0, total="rows")]

    def __post_init__(self) -> None:
        if (np.abs(self.sums) > LARGEST_VALUE * self.supports[:, None]).any():
            raise ValueError(f"'sums' must be 'supports' times centers of at most {LARGEST_VALUE:g}.")


# --- client steps ---


def fuzzify(local: Local, state: None, down: Fuzzify) -> tuple[None, FuzzySums]:
    """Move the centers over the rows and send them as sums, but those that stand for too few rows."""
    if down.local_iters is None:
        centers, shares, supports = settled(local.X, down.centers, down.fuzzifier)
    else:
        centers, shares = passes(local.X, down.centers, down.fuzzifier, down.local_iters)
        supports = shares.sum(axis=0)
    sent = stands_for_rows(shares, down.min_count) & no_row_weighs_more(shares, local.min_report)
    supports = np.where(sent, supports, 0.0)
    sums = np.where(sent[:, None], supports[:, None] * centers, 0.0)  # 0 times a center would keep its signs
    return None, FuzzySums(sums=sums, supports=supports)


def passes(X: FloatArray, centers: FloatArray, fuzzifier: float, n_iter: int) -> tuple[FloatArray, FloatArray]:
    """Centers after `n_iter` passes of fuzzy c-means, and the shares ``u^m`` of the rows that made them."""
    for _ in range(n_iter):
        shares = memberships(X, centers, fuzzifier) ** fuzzifier
        centers = fuzzy_means(X, shares, otherwise=centers)
    return centers, shares


def settled(X: FloatArray, centers: FloatArray, fuzzifier: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centers once the memberships no longer change, the shares that made them, and the summed memberships.

    The sums of ``u``, not of ``u^m``, are the released support.
    """
    u = memberships(X, centers, fuzzifier)
    for _ in range(LOCAL_MAX_ITER):
        before = u
        shares = before**fuzzifier
        centers = fuzzy_means(X, shares, otherwise=centers)
        u = memberships(X, centers, fuzzifier)
        if np.linalg.norm(u - before) < LOCAL_TOL:
            break
    return centers, shares, u.sum(axis=0)


def memberships(X: FloatArray, centers: FloatArray, fuzzifier: float) -> FloatArray:
    """``u_ik = 1 / sum_j (|x_i - c_k| / |x_i - c_j|)^(2 / (m - 1))``, (n_samples, k).

    A row that coincides with q centers belongs to each of these by 1/q.
    """
    squared = cdist(X, centers, "sqeuclidean")
    least = squared.min(axis=1, keepdims=True)
    ratio = np.where(least > 0, least / np.where(squared > 0, squared, 1.0), squared == 0)
    closeness = ratio ** (1 / (fuzzifier - 1))
    u: FloatArray = closeness / closeness.sum(axis=1, keepdims=True)
    return u


def fuzzy_means(X: FloatArray, shares: FloatArray, *, otherwise: FloatArray) -> FloatArray:
    """Means of the rows weighted by each column of `shares`; the row of `otherwise` where a column is all 0."""
    totals = shares.sum(axis=0)[:, None]
    means: FloatArray = np.where(totals > 0, shares.T @ X / np.where(totals > 0, totals, 1.0), otherwise)
    return means


def stands_for_rows(shares: FloatArray, min_count: int) -> BoolArray:
    """Columns of `shares` whose weight does not lie in fewer than `min_count` rows, (k,)."""
    few = min(min_count - 1, len(shares))
    largest = np.partition(shares, len(shares) - few, axis=0)[len(shares) - few :] if few else shares[:0]
    stands: BoolArray = largest.sum(axis=0) < MOST_WEIGHT * shares.sum(axis=0)
    return stands


def no_row_weighs_more(shares: FloatArray, min_report: int) -> BoolArray:
    """Columns of `shares` of which no row has more than one part in `min_report`, (k,): that many rows stand behind."""
    weighs: BoolArray = shares.max(axis=0) * min_report <= shares.sum(axis=0)
    return weighs


# --- server steps ---


def gathered(replies: Replies, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Sums (clients, k, n_features) and supports (clients, k); `MessageError` for a client with another shape."""
    for client, up in replies.items():
        if up.sums.shape != shape:
            raise MessageError(f"client {client!r} sent sums of shape {up.sums.shape}; {shape} was expected.")
    return np.array([up.sums for up in replies.values()]), np.array([up.supports for up in replies.values()])


def averaged(sums: FloatArray, supports: FloatArray, *, previous: FloatArray) -> FloatArray:
    """avg1: support-weighted mean of each center over the clients; the previous center where nobody supports one."""
    totals = supports.sum(axis=0)[:, None]
    means: FloatArray = np.where(totals > 0, sums.sum(axis=0) / np.where(totals > 0, totals, 1.0), previous)
    return means


def local_centers(sums: FloatArray, supports: FloatArray) -> tuple[FloatArray, FloatArray]:
    """All centers the clients sent, whatever their index, and their supports."""
    sent: BoolArray = supports > 0
    return sums[sent] / supports[sent][:, None], supports[sent]


def clustered_centers(
    local: FloatArray,
    weights: FloatArray | None,
    rng: np.random.Generator,
    *,
    previous: FloatArray,
    n_init: int,
) -> FloatArray:
    """avg2: k-means of the clients' centers, from `n_init` seedings; with 0, or too few centers, from the previous."""
    if n_init and len(np.unique(local, axis=0)) >= len(previous):
        return kmeans(local, len(previous), rng, weights=weights, n_init=n_init, max_iter=SERVER_MAX_ITER).centers
    if not len(local):
        return previous
    return lloyd(local, previous, weights, max_iter=SERVER_MAX_ITER).centers


class FFCM(Aggregator):
    """Federated fuzzy c-means, the global number of clusters given.

    The start takes one round: clients send k-means centers of their rows with counts, as in the first round of
    `FedKMeans`, and the server clusters these. (Bounds of the columns would disclose coordinates of extreme rows.)
    From then on a client moves the server's centers by the fuzzy memberships of its rows and sends, for each center,
    the sum of its rows weighted by membership and the sum of these weights.

    "avg1" takes the mean of each center over the clients. With one local pass this is exactly the pass of fuzzy
    c-means over the pooled rows, but for what is withheld. After more local passes the same index may mean different
    clusters at different clients, and averaging fails where clients lack clusters. "avg2" clusters all local centers
    by k-means, whatever their index, and wants clients that settle first.

    Parameters
    ----------
    n_clusters : int or None, default None
        Global number of clusters; lowered, and the result says so, if the start finds fewer distinct centers.
    averaging : str, default "avg1"
        "avg1" or "avg2".
    fuzzifier : float, default 2.0
        M, above 1.
    local_iters : int, str or None, default "auto"
        Passes of a client in each round, None until its memberships settle (as released); "auto" is 1 for avg1 and None
        for avg2.
    tol : float, default 0.0001
        Stop when the centers' shift, in the Frobenius norm, falls below.
    max_rounds : int, default 1000
        Most rounds, the start not counted.
    weights : str, default "uniform"
        "uniform" (as released) or "support": how avg2 weights the local centers.
    n_init : int, default 10
        Seedings the server chooses from, in the start and in the first round of avg2.
    min_count : int, default 2
        A local center of whose weight fewer than `min_count` rows hold 95 % or more is withheld: it would all but be
        one of them. 1 withholds nothing, and one local pass of avg1 is then exact whatever the rows.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (60, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(koncord.KnownCounts(2), koncord.FFCM(3), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "ffcm"
    reads_rows: ClassVar[bool] = True
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {
        fedkmeans.Begin: fedkmeans.begin,
        Fuzzify: fuzzify,
    }

    def __init__(
        self,
        n_clusters: int | None = None,
        averaging: str = "avg1",
        *,
        fuzzifier: float = 2.0,
        local_iters: int | str | None = "auto",
        tol: float = 1e-4,
        max_rounds: int = 1000,
        weights: str = "uniform",
        n_init: int = 10,
        min_count: int = 2,
    ) -> None:
        self.n_clusters = n_clusters
        self.averaging = averaging
        self.fuzzifier = fuzzifier
        self.local_iters = local_iters
        self.tol = tol
        self.max_rounds = max_rounds
        self.weights = weights
        self.n_init = n_init
        self.min_count = min_count

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        n_clusters = check_n_clusters(self.n_clusters, owner=self)
        check_option("averaging", self.averaging, ("avg1", "avg2"), owner=self)
        check_option("weights", self.weights, ("uniform", "support"), owner=self)
        check_number("fuzzifier", self.fuzzifier, owner=self, least=1, above=True)
        check_number("tol", self.tol, owner=self, least=0)
        check_count("max_rounds", self.max_rounds, owner=self)
        check_count("n_init", self.n_init, owner=self)
        min_count = check_count("min_count", self.min_count, owner=self)
        if self.local_iters == "auto":
            local_iters = 1 if self.averaging == "avg1" else None
        elif self.local_iters is None:
            local_iters = None
        else:
            local_iters = check_count("local_iters", self.local_iters, owner=self)
        begin = fedkmeans.Begin(n_clusters=n_clusters, local_iters=MAX_PASSES, min_count=min_count)
        return self._rounds(begin, local_iters, n_features, rng)

    def most_messages(self) -> Mapping[type[Any], int]:
        return {fedkmeans.Begin: 1, Fuzzify: check_count("max_rounds", self.max_rounds, owner=self)}

    def _rounds(
        self, begin: fedkmeans.Begin, local_iters: int | None, n_features: int, rng: np.random.Generator
    ) -> Server:
        replies = yield begin
        means, counts = fedkmeans.pooled(replies, n_features)
        if not len(means):
            raise KoncordError(
                f"No client sent a center: each has fewer than {begin.min_count} rows, or than its floor. {LOWER_FLOOR}"
            )
        centers = kmeans(means, begin.n_clusters, rng, weights=counts, n_init=self.n_init).centers
        shifts: list[float] = []
        while len(shifts) < self.max_rounds and not (shifts and shifts[-1] < self.tol):
            replies = yield Fuzzify(
                centers=centers, fuzzifier=float(self.fuzzifier), local_iters=local_iters, min_count=begin.min_count
            )
            sums, supports = gathered(replies, centers.shape)
            previous = centers
            if self.averaging == "avg1":
                centers = averaged(sums, supports, previous=previous)
            else:
                local, weights = local_centers(sums, supports)
                centers = clustered_centers(
                    local,
                    weights if self.weights == "support" else None,
                    rng,
                    previous=previous,
                    n_init=0 if shifts else self.n_init,
                )
            shifts.append(float(np.linalg.norm(centers - previous)))
        diagnostics = Diagnostics(
            rounds=1 + len(shifts),
            stopped="converged" if shifts[-1] < self.tol else "round limit",
            shifts=tuple(shifts),
            notes=tuple(fedkmeans.lowered(begin.n_clusters, len(centers))),
        )
        return Outcome(centers=centers, groups={}, diagnostics=diagnostics)
