"""Fed-k*-HC: clients send prototypes of small groups of rows, the server joins neighbors among them by density.

Reference: Y. Zhang, C. Qiu, X. Liao, Y. Zhang, "Federated hierarchical clustering with automatic selection of optimal
cluster numbers", Information Sciences 733 (2026) 122957, arXiv 2603.12684. Its abstract was at hand, not its text, and
no program. From the abstract: one exchange; each client makes micro-subclusters and uploads their prototypes; the
server merges them hierarchically, by density, so that clusters may differ in size and shape; merging ends by itself
"according to the neighboring relationships among the prototypes", and what is left is k*.

What the abstract leaves open is koncord's own reading, and figures of this class are not figures of that paper:

- micro-subclusters are koncord's micro-clusters (`koncord.kernels.cutting`);
- neighbors are natural neighbors (Q. Zhu, J. Feng, J. Huang, "Natural neighbor: a self-adaptive neighborhood method
  without parameter K", Pattern Recognition Letters 80, 2016): as many nearest ones as it takes until everyone is the
  neighbor of somebody, or until a further one changes nothing; of two, each must be among those of the other;
- the density of a link between two neighbors is the root of order d of their mean number of rows, over their distance;
- every prototype begins as a cluster; in each pass two clusters join where each is the other's densest neighbor and
  the links between them are on average as dense as those inside the sparser of the two, less some standard deviations;
- it ends when no two clusters are left that may join.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from koncord._threads import one_thread
from koncord._validation import check_count, check_number
from koncord.aggregate.base import Aggregator, ClientStep, Server
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord.types import FloatArray, IntArray
from koncord_reproduction.prototypes import SendPrototypes, gathered, outcome_of, send_prototypes

# Nearest neighbors that are looked at, at most: natural neighbors are far fewer.
MOST_NEIGHBORS = 100
# Links from which a standard deviation of their own is not taken alone, at most.
FEW_LINKS = 2

# --- server steps ---


def hierarchical_groups(means: FloatArray, counts: IntArray, *, slack: float) -> tuple[IntArray, dict[str, int]]:
    """Cluster of each prototype, and what a reader wants to know; prototypes in one place count as one."""
    places, at = np.unique(means, axis=0, return_inverse=True)
    if len(places) == 1:
        return np.zeros(len(means), dtype=np.int64), {}
    links = natural_links(places, np.bincount(at, counts).astype(np.float64))
    labels, n_passes = joined(len(places), links, slack=slack)
    return labels[at], {"neighbors": links.n_neighbors, "merge_passes": n_passes}


class Links(NamedTuple):
    """Pairs of natural neighbors, the lower first, and how dense it is between the two."""

    pairs: IntArray  # (n_links, 2)
    densities: FloatArray  # (n_links,)
    n_neighbors: int


def natural_links(means: FloatArray, counts: FloatArray) -> Links:
    """The links between natural neighbors among at least two prototypes, no two of them in one place."""
    n, d = means.shape
    neighbors = nearest_others(means, min(n - 1, MOST_NEIGHBORS))
    k = n_natural(neighbors)
    one, other = np.repeat(np.arange(n), k), neighbors[:, :k].ravel()
    code, seen = np.unique(np.minimum(one, other) * n + np.maximum(one, other), return_counts=True)
    mutual = code[seen == 2]
    pairs = np.stack([mutual // n, mutual % n], axis=1)
    lengths = np.linalg.norm(means[pairs[:, 0]] - means[pairs[:, 1]], axis=1)
    return Links(pairs, counts[pairs].mean(axis=1) ** (1 / d) / lengths, k)


def nearest_others(means: FloatArray, most: int) -> IntArray:
    """Indices (n, most) of the nearest other prototypes, the nearest first."""
    with one_thread():
        found = NearestNeighbors(n_neighbors=most + 1).fit(means).kneighbors(means, return_distance=False)
    others: IntArray = found[found != np.arange(len(means))[:, None]].reshape(-1, most)
    return others


def n_natural(neighbors: IntArray) -> int:
    """Neighbors it takes until everyone is one of somebody's, or until one more finds no more of these."""
    n, most = neighbors.shape
    is_found = np.zeros(n, dtype=np.bool_)
    before = n
    for k in range(most):
        is_found[neighbors[:, k]] = True
        lonely = int(n - is_found.sum())
        if lonely in (0, before):
            return k + 1
        before = lonely
    return int(most)


def joined(n_prototypes: int, links: Links, *, slack: float) -> tuple[IntArray, int]:
    """Clusters (n_prototypes,) when no two are left that may join, and the passes that it took."""
    labels, n_passes = np.arange(n_prototypes), 0
    while True:
        partner = partners(labels, links, slack=slack)
        if (partner == np.arange(len(partner))).all():
            return labels, n_passes
        labels = np.unique(np.minimum(partner, np.arange(len(partner)))[labels], return_inverse=True)[1]
        n_passes += 1


def partners(labels: IntArray, links: Links, *, slack: float) -> IntArray:
    """The cluster that each joins: where both are the other's densest neighbor that it may join, else itself."""
    k = int(labels.max()) + 1
    ends = labels[links.pairs]
    is_inside = ends[:, 0] == ends[:, 1]
    least = least_density(ends, links.densities, k, slack=slack)
    low, high = np.sort(ends[~is_inside], axis=1).T
    code, at = np.unique(low * k + high, return_inverse=True)
    border = np.bincount(at, links.densities[~is_inside]) / np.maximum(np.bincount(at), 1)
    low, high = code // k, code % k
    may = border >= np.minimum(least[low], least[high])
    order = np.argsort(border[may], kind="stable")
    low, high = low[may][order], high[may][order]
    here, there = np.stack([low, high], axis=1).ravel(), np.stack([high, low], axis=1).ravel()
    best = np.arange(k)
    best[here] = there  # of several the last, which is the densest
    found: IntArray = np.where(best[best] == np.arange(k), best, np.arange(k))
    return found


def least_density(ends: IntArray, densities: FloatArray, k: int, *, slack: float) -> FloatArray:
    """Density (k,) that links to another cluster need, from those inside each: 0 for one without any.

    A standard deviation from one or two links is taken to be no smaller than that of all links, relative to its mean.
    """
    is_inside = ends[:, 0] == ends[:, 1]
    inside, own = ends[is_inside, 0], densities[is_inside]
    counts = np.bincount(inside, minlength=k)
    means = np.bincount(inside, own, minlength=k) / np.maximum(counts, 1)
    deviations = np.sqrt(np.bincount(inside, (own - means[inside]) ** 2, minlength=k) / np.maximum(counts, 1))
    usual = densities.std() / densities.mean() * means if len(densities) else means
    deviations = np.where(counts > FEW_LINKS, deviations, np.maximum(deviations, usual))
    least: FloatArray = np.maximum(means - slack * deviations, 0.0)
    return least


class FedKStarHC(Aggregator):
    """Fed-k*-HC, as its abstract tells it: one round, finds the global number of clusters.

    Clients send count and mean of their micro-clusters. The server joins neighbors among them by density, until no two
    clusters are left that may join. The paper's text was not at hand: neighbors, densities and the rule by which
    clusters join are koncord's reading, and results are not those of the paper's own program.

    Parameters
    ----------
    slack : float, default 1.5
        Standard deviations by which links between two clusters may be less dense than those inside, on average; larger
        joins more.
    min_rows : int, default 20
        Rows of a micro-cluster at least, or the floor of its site where that is larger.

    Examples
    --------
    >>> import numpy as np, koncord, koncord_reproduction
    >>> rng = np.random.default_rng(0)
    >>> held = (0, 9), (9, 18), (0, 18)
    >>> sites = [np.concatenate([rng.normal(m, 1, (200, 2)) for m in each]) for each in held]
    >>> clustering = koncord.FederatedClustering(aggregator=koncord_reproduction.FedKStarHC(), random_state=0)
    >>> np.sort(clustering.fit(sites).cluster_centers_[:, 0]).round().astype(int)
    array([ 0,  9, 18])
    """

    name = "fedkstarhc"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {SendPrototypes: send_prototypes}

    def __init__(self, *, slack: float = 1.5, min_rows: int = DEFAULT_MIN_REPORT) -> None:
        self.slack = slack
        self.min_rows = min_rows

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        slack = check_number("slack", self.slack, owner=self, least=0)
        down = SendPrototypes(min_rows=check_count("min_rows", self.min_rows, owner=self))
        return self._one_round(down, n_features, slack)

    def _one_round(self, down: SendPrototypes, n_features: int, slack: float) -> Server:
        sent = yield down
        prototypes = gathered(sent, n_features, min_rows=down.min_rows)
        labels, extra = hierarchical_groups(prototypes.means, prototypes.counts, slack=slack)
        return outcome_of(sent, prototypes, labels, extra={"prototypes_received": len(prototypes), **extra})
