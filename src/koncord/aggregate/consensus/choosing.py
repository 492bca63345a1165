"""How many clusters the leaves of all clients make, told from the leaves alone.

Two hierarchies of the leaves give a clustering for every number of clusters K: Ward's, each level polished by k-means,
and average linkage, which lets a large cluster stand beside small ones. Every clustering is judged twice: by its
*separation*, the mean silhouette of the rows as far as the leaves tell it, and by its *compactness*, the logarithm of
the squared distances to the centers. Both are compared with what the same report would give if all rows came from one
Gaussian: rows are drawn from it, split into leaves in the same way, and clustered in the same way.

Of the clusterings whose separation exceeds that of the Gaussian by almost as much as the best one does, the one that
exceeds its compactness most is chosen. Where clusters stand apart, few are almost as good as the best and the
silhouette decides; where they run into each other, its differences mean little and the compactness decides (the gap
statistic of Tibshirani, Walther and Hastie, 2001). If neither exceeds what chance does to it, there is one cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

from koncord.aggregate.consensus.leaves import Leaves, pieces_of, taken, told
from koncord.kernels.assign import means_by_label, sums_by_label
from koncord.kernels.lloyd import kmeans, lloyd
from koncord.types import FloatArray, IntArray

# Up to here every K is looked at; beyond, steps of a twentieth, and then every K beside the chosen one.
EVERY_K, STEP = 30, 1.05
# Values of K at which the Gaussian is looked at: between them its curves are smooth.
EVERY_NULL_K, NULL_STEP = 4, 1.4
# More leaves than this are put together first, because distances between all pairs are held.
MOST_LEAVES = 1500
# Rows drawn from the Gaussian: in one draw, and for one leaf of a large client, in smallest leaves.
NULL_ROWS, NULL_ROWS_A_LEAF = 20_000, 3
# In how many draws, and their rows; and how many more where it is in doubt whether there is more than one cluster.
DRAWS, DRAWN_ROWS = (3, 8), 16_000
MORE_DRAWS, MORE_ROWS = (3, 5), 15_000
# How many times the chance of a draw of the Gaussian the leaves must show to be several clusters; what is in doubt, and
# what is still in doubt after more draws.
TIMES_CHANCE = 3.0
IN_DOUBT = ((2.0, 4.0), (2.3, 3.6))
# Leaves cannot tell much beyond their own number, so the gap flattens: a gap that lacks no more than this is as good.
SHARE_OF_GAP = 0.1
STABILITY_DRAWS = 10
Hierarchy = Literal["ward", "average"]  # as scipy calls them
WARD: Hierarchy = "ward"
AVERAGE: Hierarchy = "average"

Key = tuple[Hierarchy, int]  # hierarchy and K
Labelings = Mapping[Key, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One clustering of the leaves, compared with one Gaussian; for one cluster all is 0."""

    hierarchy: Hierarchy
    n_clusters: int
    silhouette: float
    separation: float  # silhouette, less that of the Gaussian
    gap: float  # logarithm of the squared distances to the centers: that of the Gaussian, less this one's


ONE_CLUSTER = Candidate(hierarchy=WARD, n_clusters=1, silhouette=0.0, separation=0.0, gap=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What was chosen, what was looked at, and why."""

    labels: IntArray  # (n_leaves,) cluster of each leaf
    chosen: Candidate
    runner_up: Candidate | None  # the best of another K
    candidates: tuple[Candidate, ...]  # by K
    separation_by_chance: float  # the largest that a draw of the Gaussian shows against the others, on average
    gap_by_chance: float


class Judged(NamedTuple):
    """How well a clustering of leaves does."""

    silhouette: float
    log_cost: float  # of the squared distances to the centers, as a share of those to the mean


def choose(leaves: Leaves, rows: IntArray, rng: np.random.Generator, *, max_clusters: int, slack: float) -> Choice:
    """Choose a clustering of `leaves`, which clients with so many `rows` reported."""
    coarse, belongs = put_together(leaves, rng)
    most = min(max_clusters, len(coarse))
    ks = grid(most, every=EVERY_K, step=STEP)
    found = labelings(coarse, ks)
    values = judged(coarse, found)
    gaussian = Gaussian.of(leaves, rows, rng)
    null_ks = grid(most, every=EVERY_NULL_K, step=NULL_STEP)
    null = gaussian.drawn(rng, null_ks, DRAWS, DRAWN_ROWS)
    candidates = null.compared(values)
    for low, high in IN_DOUBT:
        if low < times_chance(candidates, null) < high:
            null = null.and_more(gaussian.drawn(rng, null_ks, MORE_DRAWS, MORE_ROWS))
            candidates = null.compared(values)
    chosen, runner_up = best_of(candidates, null, slack)
    missing = beside(chosen.n_clusters, ks)
    if missing:
        more = labelings(coarse, missing)
        found |= more
        candidates += null.compared(judged(coarse, more))
        chosen, runner_up = best_of(candidates, null, slack)
    one = np.zeros(len(coarse), dtype=np.int64)
    return Choice(
        labels=found.get((chosen.hierarchy, chosen.n_clusters), one)[belongs],
        chosen=chosen,
        runner_up=runner_up,
        candidates=tuple(sorted([ONE_CLUSTER, *candidates], key=lambda each: (each.n_clusters, each.hierarchy))),
        separation_by_chance=null.separation_by_chance,
        gap_by_chance=null.gap_by_chance,
    )


def grid(most: int, *, every: int, step: float) -> list[int]:
    """Values of K from 2 to `most`: all up to `every`, then in steps."""
    ks = list(range(2, min(every, most) + 1))
    while ks and ks[-1] < most:
        ks.append(min(max(ks[-1] + 1, round(ks[-1] * step)), most))
    return ks


def beside(k: int, ks: Sequence[int]) -> list[int]:
    """The values between `k` and its neighbours in `ks`."""
    if k not in ks:
        return []
    at = ks.index(k)
    low, high = ks[max(at - 1, 0)], ks[min(at + 1, len(ks) - 1)]
    return [each for each in range(low + 1, high) if each != k]


def best_of(candidates: Sequence[Candidate], null: "Null", slack: float) -> tuple[Candidate, Candidate | None]:
    """The best candidate, and the best one of another K."""
    is_structured = times_chance(candidates, null) > TIMES_CHANCE
    best = ranking(candidates, null.gap_by_chance, slack)[0] if is_structured else ONE_CLUSTER
    others = [each for each in candidates if each.n_clusters != best.n_clusters]
    if not others:
        return best, ONE_CLUSTER if is_structured else None
    return best, ranking(others, null.gap_by_chance, slack)[0]


def times_chance(candidates: Sequence[Candidate], null: "Null | Choice") -> float:
    """How many times what chance gives the leaves show: of the gap, or of gap and separation on average if less."""
    gap = ratio(max((each.gap for each in candidates), default=0.0), null.gap_by_chance)
    separation = ratio(max((each.separation for each in candidates), default=0.0), null.separation_by_chance)
    return min(gap, (gap + separation) / 2)


def ratio(value: float, chance: float) -> float:
    if chance == 0.0:
        return inf if value > 0.0 else 0.0
    return value / chance


def ranking(candidates: Sequence[Candidate], chance: float, slack: float) -> list[Candidate]:
    """Best first: of those nearly as separated as the best, the fewest clusters with nearly the largest gap.

    Then the others of these by their gap, and all others by their separation.
    """
    most = max(each.separation for each in candidates)
    close = [each for each in candidates if each.separation >= most - slack]
    widest = max(each.gap for each in close)
    nearly = widest - max(chance, min(slack, SHARE_OF_GAP * widest))
    as_good = [each for each in close if each.gap >= nearly]
    return [
        *sorted(as_good, key=lambda each: (each.n_clusters, -each.gap)),
        *sorted((each for each in close if each not in as_good), key=lambda each: -each.gap),
        *sorted((each for each in candidates if each not in close), key=lambda each: -each.separation),
    ]


# --- clusterings of leaves ---


def put_together(leaves: Leaves, rng: np.random.Generator) -> tuple[Leaves, IntArray]:
    """At most `MOST_LEAVES` leaves, and the one that each of the given went into."""
    if len(leaves) <= MOST_LEAVES:
        return leaves, np.arange(len(leaves))
    weights = leaves.counts.astype(float)
    near = kmeans(leaves.means, MOST_LEAVES, rng, weights=weights, max_iter=3).labels
    _, belongs = np.unique(near, return_inverse=True)
    k = int(belongs.max()) + 1
    means = means_by_label(leaves.means, belongs, weights, otherwise=np.zeros((k, leaves.means.shape[1])))
    gaps = leaves.means - means[belongs]
    scatters = np.bincount(belongs, leaves.scatters + weights * np.vecdot(gaps, gaps)).astype(np.float64)
    counts = np.bincount(belongs, weights).astype(np.int64)
    return Leaves(counts=counts, means=means, scatters=scatters, spread=leaves.spread, axes=leaves.axes), belongs


def labelings(
    leaves: Leaves, ks: Sequence[int], hierarchies: Sequence[Hierarchy] = (WARD, AVERAGE)
) -> dict[Key, IntArray]:
    """The clustering of the leaves by each hierarchy for each K, where it has K clusters."""
    found: dict[Key, IntArray] = {}
    if len(leaves) < 2:
        return found
    distances = pdist(leaves.means)
    for hierarchy in hierarchies:
        for k, labels in cuts(linkage(distances, hierarchy), ks).items():
            if hierarchy == WARD:
                labels = polished(leaves, labels, k)
            if len(np.unique(labels)) == k:  # k-means may leave a center empty
                found[hierarchy, k] = labels
    return found


def polished(leaves: Leaves, labels: IntArray, k: int) -> IntArray:
    """The clustering that k-means makes of another one; it may leave a cluster empty."""
    weights = leaves.counts.astype(float)
    start = means_by_label(leaves.means, labels, weights, otherwise=np.zeros((k, leaves.means.shape[1])))
    return lloyd(leaves.means, start, weights).labels


def cuts(tree: FloatArray, ks: Iterable[int]) -> dict[int, IntArray]:
    """Labels at each K of a tree of merges, as `linkage` gives it, from the finest to the coarsest."""
    wanted = set(ks)
    n = len(tree) + 1
    labels = np.arange(n)
    found = {n: labels.copy()} if n in wanted else {}
    for at, (one, other) in enumerate(tree[:, :2].astype(np.int64)):
        labels[(labels == one) | (labels == other)] = n + at
        if n - at - 1 in wanted:
            found[n - at - 1] = np.unique(labels, return_inverse=True)[1]
    return found


def judged(leaves: Leaves, found: Labelings) -> dict[Key, Judged]:
    distances = row_distances(leaves)
    total = cost_of(leaves, np.zeros(len(leaves), dtype=np.int64))
    return {
        key: Judged(silhouette_of(distances, leaves.counts, labels), float(np.log(cost_of(leaves, labels) / total)))
        for key, labels in found.items()
    }


def row_distances(leaves: Leaves) -> FloatArray:
    """Root mean squared distance between a row of one leaf and a row of another, or another row of the same."""
    inside = leaves.variances
    squared: FloatArray = cdist(leaves.means, leaves.means, "sqeuclidean")
    return np.sqrt(squared + inside[:, None] + inside)


def silhouette_of(distances: FloatArray, counts: IntArray, labels: IntArray) -> float:
    """Mean silhouette of the rows, each at the distances of its leaf."""
    n, k = len(labels), int(labels.max()) + 1
    at = np.arange(n)
    membership = np.zeros((n, k))
    membership[at, labels] = counts
    sums = distances @ membership
    sizes = membership.sum(axis=0)
    own = (sums[at, labels] - np.diagonal(distances)) / np.maximum(sizes[labels] - 1, 1)
    sums /= sizes
    sums[at, labels] = np.inf
    other = sums.min(axis=1)
    widest = np.maximum(own, other)
    values = np.where(widest > 0, (other - own) / np.where(widest > 0, widest, 1.0), 0.0)
    return float(counts @ values / counts.sum())


def cost_of(leaves: Leaves, labels: IntArray) -> float:
    """Summed squared distance of the rows to the mean of their cluster; never quite 0."""
    k = int(labels.max()) + 1
    weights = leaves.counts.astype(float)
    means = sums_by_label(leaves.means, labels, k, weights) / np.bincount(labels, weights, minlength=k)[:, None]
    gaps = leaves.means - means[labels]
    return float(leaves.scatters.sum() + weights @ np.vecdot(gaps, gaps)) + float(np.finfo(float).tiny)


# --- what one Gaussian would give ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaussian:
    """One Gaussian with the covariance of all rows, and how many rows of it to give to whom."""

    root: FloatArray  # (n_features, n_features) turns standard normal rows into rows of it
    sizes: IntArray  # rows of each client
    least: int  # rows of the smallest leaf

    @classmethod
    def of(cls, leaves: Leaves, rows: IntArray, rng: np.random.Generator) -> "Gaussian":
        sizes = null_sizes(leaves, rows, rng)
        return cls(root=root_of_covariance(leaves), sizes=sizes, least=int(leaves.counts.min()))

    def drawn(self, rng: np.random.Generator, ks: Sequence[int], n_draws: tuple[int, int], n_rows: int) -> "Null":
        """What its leaves give at each K, in the fewest to the most draws, about `n_rows` in all."""
        fewest, most = n_draws
        n = int(np.clip(n_rows // self.sizes.sum(), fewest, most))
        silhouettes, log_costs = np.zeros((n, len(ks))), np.zeros((n, len(ks)))
        for draw in range(n):
            values = self._judged(rng, ks)
            for at, k in enumerate(ks):
                same = [each for (_, n_clusters), each in values.items() if n_clusters == k]
                before = max(at - 1, 0)  # a draw with fewer leaves than K stays where it was
                silhouettes[draw, at] = max((each.silhouette for each in same), default=silhouettes[draw, before])
                log_costs[draw, at] = min((each.log_cost for each in same), default=log_costs[draw, before])
        return Null(n_clusters=np.array(ks, dtype=np.int64), silhouettes=silhouettes, log_costs=log_costs)

    def _judged(self, rng: np.random.Generator, ks: Sequence[int]) -> dict[Key, Judged]:
        """One draw, split into leaves and clustered as those of the clients are."""
        X = rng.standard_normal((self.sizes.sum(), len(self.root))) @ self.root
        groups = np.split(np.arange(len(X)), np.cumsum(self.sizes)[:-1])
        nodes = [node for pieces in pieces_of(X, groups, self.least) for node in pieces]
        leaves = told(nodes, spread=np.zeros(X.shape[1]), axes=np.empty((0, X.shape[1])))
        return judged(leaves, labelings(leaves, [k for k in ks if k <= len(leaves)]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Null:
    """The best silhouette and cost at each K in each draw of one Gaussian."""

    n_clusters: IntArray  # (n_ks,) increasing; at least 2
    silhouettes: FloatArray  # (n_draws, n_ks)
    log_costs: FloatArray  # (n_draws, n_ks)

    def and_more(self, other: "Null") -> "Null":
        return Null(
            n_clusters=self.n_clusters,
            silhouettes=np.concatenate([self.silhouettes, other.silhouettes]),
            log_costs=np.concatenate([self.log_costs, other.log_costs]),
        )

    def compared(self, values: Mapping[Key, Judged]) -> list[Candidate]:
        return [
            Candidate(
                hierarchy=hierarchy,
                n_clusters=k,
                silhouette=value.silhouette,
                separation=value.silhouette - self._at(k, self.silhouettes),
                gap=self._at(k, self.log_costs) - value.log_cost,
            )
            for (hierarchy, k), value in values.items()
        ]

    def _at(self, k: int, curves: FloatArray) -> float:
        """Mean of the curves at K, on straight lines over log K."""
        return float(np.interp(np.log(k), np.log(self.n_clusters), curves.mean(axis=0)))

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


def null_sizes(leaves: Leaves, rows: IntArray, rng: np.random.Generator) -> IntArray:
    """Rows to draw for each client: its own number, less if that is many to a leaf; only some clients of many."""
    a_leaf, least = leaves.counts.mean(), leaves.counts.min()
    thinned = np.ceil(rows * min(NULL_ROWS_A_LEAF * least / a_leaf, 1.0)).astype(np.int64)
    sizes = rng.permutation(np.maximum(thinned, least)[rows > 0])  # enough for a leaf
    return sizes[np.cumsum(sizes) - sizes < NULL_ROWS]


def root_of_covariance(leaves: Leaves) -> FloatArray:
    """A matrix (n_features, n_features) that turns standard normal rows into rows with the covariance of all rows.

    Between the leaves it is known; inside them, along the longest axes and, for the rest, feature by feature.
    """
    total = leaves.counts.sum()
    weights = leaves.counts / total
    gaps = leaves.means - weights @ leaves.means
    rest = np.maximum(leaves.spread - (leaves.axes**2).sum(axis=0), 0.0)
    covariance = (gaps * weights[:, None]).T @ gaps + (leaves.axes.T @ leaves.axes + np.diag(rest)) / total
    values, axes = np.linalg.eigh(covariance)
    root: FloatArray = np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T
    return root


# --- how sure ---


def stabilities(leaves: Leaves, clients: IntArray, choice: Choice, rng: np.random.Generator) -> list[float | None]:
    """How much of each cluster comes back when the leaves of half the clients are clustered on their own.

    The share of rows in common with the most similar cluster (Jaccard), averaged over random halves; None for a
    cluster that no half held (Hennig, 2007).
    """
    k = choice.chosen.n_clusters
    sums, times = np.zeros(k), np.zeros(k)
    present = np.unique(clients)
    for _ in range(STABILITY_DRAWS):
        half = rng.permutation(present)[: max(len(present) // 2, 1)]
        rows = np.flatnonzero(np.isin(clients, half))
        held, labels = np.unique(choice.labels[rows], return_inverse=True)
        other = clustered(taken(leaves, rows), len(held), choice.chosen.hierarchy, rng)
        sums[held] += best_overlaps(leaves.counts[rows], labels, other)
        times[held] += 1
    return [float(total / n) if n else None for total, n in zip(sums, times, strict=True)]


def clustered(leaves: Leaves, k: int, hierarchy: Hierarchy, rng: np.random.Generator) -> IntArray:
    """Labels of the leaves at K in one hierarchy, within the cap on leaves; all alike if the hierarchy has no K."""
    coarse, belongs = put_together(leaves, rng)
    found = labelings(coarse, [k], [hierarchy]).get((hierarchy, k), np.zeros(len(coarse), dtype=np.int64))
    labels: IntArray = found[belongs]
    is_coarse = len(coarse) < len(leaves)
    # Leaves at the border of two clusters, put together, went with their neighbours: k-means tells them apart again.
    return polished(leaves, labels, int(labels.max()) + 1) if is_coarse and hierarchy == WARD else labels


def best_overlaps(counts: IntArray, labels: IntArray, other: IntArray) -> FloatArray:
    """For each cluster of `labels`, the largest Jaccard index with one of `other`, by rows."""
    common = np.zeros((labels.max() + 1, other.max() + 1))
    np.add.at(common, (labels, other), counts)
    union = common.sum(axis=1)[:, None] + common.sum(axis=0) - common
    overlaps: FloatArray = (common / union).max(axis=1)
    return overlaps
