"""The null model: how well clusterings do of the micro-clusters of one Gaussian.

Rows of a Gaussian with the covariance of all rows are split into micro-clusters and clustered as those of the clients
are. A clustering is compared with these of the same K: it should be more separated, and more compact.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from koncord.aggregate.consensus.hierarchies import WARD, Hierarchy, Judged, Key, judged, labelings
from koncord.aggregate.consensus.microclusters import MicroClusters, micro_clusters_by
from koncord.kernels.cutting import groups_of
from koncord.types import FloatArray, IntArray

# Rows drawn from the Gaussian: in one draw, and for one micro-cluster of a large client, in smallest micro-clusters.
NULL_ROWS, NULL_ROWS_A_MICRO_CLUSTER = 20_000, 3
# Rows of a draw at most: those of one very large client are thinned, and its smallest micro-cluster with them.
MOST_NULL_ROWS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One clustering of the micro-clusters, compared with one Gaussian; for one cluster all is 0."""

    hierarchy: Hierarchy
    n_clusters: int
    silhouette: float
    separation: float  # silhouette, less that of the Gaussian
    gap: float  # logarithm of the squared distances to the centers: that of the Gaussian, less this one's
    apart: float = 0.0  # clusters that stand apart by d', less those that do not, in units of `MOST_GAINED`
    least_apart: float = 0.0  # smallest d' of a cluster from one of its nearest

    @property
    def certainty(self) -> float:
        """1 if all clusters stand apart by a margin."""
        return self.apart / self.n_clusters


ONE_CLUSTER = Candidate(hierarchy=WARD, n_clusters=1, silhouette=0.0, separation=0.0, gap=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaussian:
    """One Gaussian with the covariance of all rows, and how many rows of it to give to whom."""

    root: FloatArray  # (n_features, n_features) turns standard normal rows into rows of it
    sizes: IntArray  # rows of each client
    least: int  # rows of the smallest micro-cluster

    @classmethod
    def of(cls, micro: MicroClusters, rows: IntArray, rng: np.random.Generator) -> "Gaussian":
        sizes, least = null_sizes(micro, rows, rng), int(micro.counts.min())
        kept = min(MOST_NULL_ROWS / sizes.sum(), 1.0)
        if kept < 1:
            sizes, least = np.ceil(kept * sizes).astype(np.int64), max(int(kept * least), 1)
        return cls(root=root_of_covariance(micro), sizes=sizes, least=least)

    def draws(
        self, rng: np.random.Generator, ks: Sequence[int], n_draws: tuple[int, int], n_rows: int
    ) -> list[Callable[[], dict[Key, Judged]]]:
        """What finds how its micro-clusters do at each K, one for each of the fewest to the most draws, which are made.

        They have about `n_rows` in all.
        """
        fewest, most = n_draws
        n = self.n_draws(fewest, most, n_rows)
        return [partial(self._judged, self.drawn(rng), ks) for _ in range(n)]

    def n_draws(self, fewest: int, most: int, n_rows: int) -> int:
        """Draws that have about `n_rows` in all."""
        return int(np.clip(n_rows // self.sizes.sum(), fewest, most))

    def drawn(self, rng: np.random.Generator) -> Any:
        """All that is random in a draw."""
        return rng.standard_normal((self.sizes.sum(), len(self.root)))

    def described(self, drawn: Any) -> MicroClusters:
        """One draw, split into micro-clusters as the rows of the clients are."""
        X = drawn @ self.root
        parts = np.split(np.arange(len(X)), np.cumsum(self.sizes)[:-1])
        groups = [part[rows] for part in parts for rows in groups_of(X[part], self.least)]
        return micro_clusters_by(X, groups)

    def _judged(self, drawn: Any, ks: Sequence[int]) -> dict[Key, Judged]:
        """One draw, clustered as the micro-clusters of the clients are."""
        micro = self.described(drawn)
        return judged(micro, labelings(micro, [k for k in ks if k <= len(micro)]))


# Makes the null model of micro-clusters whose columns were multiplied by the last argument.
NullOf = Callable[[MicroClusters, IntArray, np.random.Generator, FloatArray], Gaussian]


def split_into_micro_clusters(
    micro: MicroClusters, rows: IntArray, rng: np.random.Generator, scales: FloatArray
) -> Gaussian:
    return Gaussian.of(micro, rows, rng)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Null:
    """The best silhouette and cost at each K in each draw of one Gaussian."""

    n_clusters: IntArray  # (n_ks,) increasing; at least 2
    silhouettes: FloatArray  # (n_draws, n_ks)
    log_costs: FloatArray  # (n_draws, n_ks)

    @classmethod
    def of(cls, ks: Sequence[int], draws: Sequence[Mapping[Key, Judged]]) -> "Null":
        """The best at each K in each draw."""
        silhouettes, log_costs = np.zeros((len(draws), len(ks))), np.zeros((len(draws), len(ks)))
        for draw, values in enumerate(draws):
            for at, k in enumerate(ks):
                same = [each for (_, n_clusters), each in values.items() if n_clusters == k]
                before = max(at - 1, 0)  # a draw with fewer micro-clusters than K stays where it was
                silhouettes[draw, at] = max((each.silhouette for each in same), default=silhouettes[draw, before])
                log_costs[draw, at] = min((each.log_cost for each in same), default=log_costs[draw, before])
        return cls(n_clusters=np.array(ks, dtype=np.int64), silhouettes=silhouettes, log_costs=log_costs)

    def and_more(self, other: "Null") -> "Null":
        return Null(
            n_clusters=self.n_clusters,
            silhouettes=np.concatenate([self.silhouettes, other.silhouettes]),
            log_costs=np.concatenate([self.log_costs, other.log_costs]),
        )

    def compared(self, values: Mapping[Key, Judged]) -> list[Candidate]:
        if not values:
            return []
        ks = np.array([k for _, k in values], dtype=np.int64)
        silhouettes, log_costs = (self._at(ks, curves).tolist() for curves in (self.silhouettes, self.log_costs))
        return [
            Candidate(
                hierarchy=hierarchy,
                n_clusters=k,
                silhouette=value.silhouette,
                separation=value.silhouette - silhouette,
                gap=log_cost - value.log_cost,
            )
            for ((hierarchy, k), value), silhouette, log_cost in zip(
                values.items(), silhouettes, log_costs, strict=True
            )
        ]

    def _at(self, ks: IntArray, curves: FloatArray) -> FloatArray:
        """Mean of the curves at each K, on straight lines over log K."""
        found: FloatArray = np.interp(np.log(ks), np.log(self.n_clusters), curves.mean(axis=0))
        return found

    @property
    def separation_by_chance(self) -> float:
        return by_chance(self.silhouettes)

    @property
    def gap_by_chance(self) -> float:
        return by_chance(-self.log_costs)


def by_chance(curves: FloatArray) -> float:
    """The most by which a curve (n_draws, n_ks) exceeds the mean of the others anywhere, as a root mean square."""
    n_draws = len(curves)
    others = (curves.sum(axis=0) - curves) / max(n_draws - 1, 1)
    most = np.maximum((curves - others).max(axis=1, initial=0.0), 0.0)
    return float(np.sqrt((most**2).mean()))


def null_sizes(micro: MicroClusters, rows: IntArray, rng: np.random.Generator) -> IntArray:
    """Rows to draw for each client: its own number, fewer where micro-clusters are large; only some of many clients."""
    a_micro_cluster, least = micro.counts.mean(), micro.counts.min()
    thinned = np.ceil(rows * min(NULL_ROWS_A_MICRO_CLUSTER * least / a_micro_cluster, 1.0)).astype(np.int64)
    sizes = rng.permutation(np.maximum(thinned, least)[rows > 0])  # enough for a micro-cluster
    return sizes[np.cumsum(sizes) - sizes < NULL_ROWS]


def root_of_covariance(micro: MicroClusters) -> FloatArray:
    """A matrix (n_features, n_features) that turns standard normal rows into rows with the covariance of all rows.

    Between the micro-clusters it is known; inside them, along the longest axes and, for the rest, feature by feature.
    """
    weights = micro.counts / micro.counts.sum()
    gaps = micro.means - weights @ micro.means
    covariance = (gaps * weights[:, None]).T @ gaps + micro.covariance_inside()
    values, axes = np.linalg.eigh(covariance)
    root: FloatArray = np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T
    return root
