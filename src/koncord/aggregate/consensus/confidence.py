"""How sure the clusters of the micro-clusters are: distances, support, stability, other draws of sites."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from koncord._jobs import spread
from koncord.aggregate.confidence import ClusterConfidence, Confidence, KShare, NextCut
from koncord.aggregate.consensus.choosing import Choice, best_of, ranking
from koncord.aggregate.consensus.hierarchies import Key, clustered, combined, judged
from koncord.aggregate.consensus.looking import TIMES_CHANCE, Look, with_apart
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled, taken, with_share_of_spread
from koncord.aggregate.consensus.nullmodel import Candidate
from koncord.aggregate.consensus.separation import Shapes
from koncord.aggregate.consensus.tree import Clusters
from koncord.kernels.tree import ClusterTree
from koncord.types import FloatArray, IntArray

STABILITY_DRAWS = 10
# Draws of clients: so many, fewer where micro-clusters are many.
DRAWS, FEWEST_DRAWS, DRAWN_MICRO_CLUSTERS = 25, 10, 5000
# Clusterings that are judged in each draw: so many of the best by each criterion.
MOST_CONTENDERS = 15


def confidence_of(
    clusters: Clusters,
    labels: IntArray,
    clients: IntArray,
    *,
    stable_shares: Sequence[float | None],
    drawn: Counter[int],
    tree: ClusterTree,
) -> Confidence:
    """What is known of how sure the clusters are.

    Parameters
    ----------
    clusters : Clusters
        The clusters that were found, as they were chosen.
    labels : array (n,)
        Which of them each micro-cluster is in at the end.
    clients : array (n,)
        The client of each micro-cluster.
    stable_shares : sequence of float or None
        How much of each cluster comes back with half of the clients (`stabilities`).
    drawn : Counter of int
        How often each K is chosen in other draws of clients (`resampled`).
    tree : ClusterTree
        What they are joined into and cut into.
    """
    return Confidence(
        clusters=tuple(each_cluster(clusters, labels, clients, stable_shares)),
        next_cut=next_cut(tree, len(clusters)),
        resampled=tuple(KShare(n_clusters=k, share=drawn[k] / drawn.total()) for k in sorted(drawn)),
        n_draws=drawn.total(),
    )


def each_cluster(
    clusters: Clusters, labels: IntArray, clients: IntArray, stable_shares: Sequence[float | None]
) -> list[ClusterConfidence]:
    """Distance, support and stability of each cluster; nobody can look for one without its only client."""
    distances = clusters.distances()
    nearest = distances.argmin(axis=1)
    is_alone = len(clusters) == 1
    valleys = np.zeros(1) if is_alone else clusters.valleys(nearest)
    found = []
    for cluster, stability in enumerate(stable_shares):
        own = labels == cluster
        n_clients = len(np.unique(clients[own]))
        found.append(
            ClusterConfidence(
                apart=None if is_alone else float(distances[cluster].min()),
                nearest=None if is_alone else int(nearest[cluster]),
                valley=None if is_alone else float(valleys[cluster]),
                sites=n_clients,
                rows=int(clusters.micro.counts[own].sum()),
                stability=stability if n_clients > 1 else None,
            )
        )
    return found


def next_cut(tree: ClusterTree, k: int) -> NextCut | None:
    """The cut that makes one cluster more than the k that were found."""
    if tree.n_leaves == k:
        return None
    before = set(tree.nodes_at(k + 1).tolist())
    cluster = next(at for at, node in enumerate(tree.nodes_at(k).tolist()) if node not in before)
    return NextCut(cluster=cluster, apart=float(tree.apart[tree.n_leaves - k - 1]))


# --- other draws of clients ---


def resampled(
    weighed: MicroClusters, clients: IntArray, choice: Choice, rng: np.random.Generator, *, slack: float
) -> Counter[int]:
    """How often each K is chosen when as many clients are drawn with replacement (the bootstrap); empty of one client.

    The clusterings, the null model and the weights of the columns stay those of the choice; the clusterings are judged
    anew. A cluster of clients that were not drawn is not there.
    """
    present = np.unique(clients)
    if len(present) < 2:
        return Counter()
    look = with_candidates(choice.look, contenders(choice, slack))
    whole = look.times_chance
    n_draws = int(np.clip(DRAWN_MICRO_CLUSTERS // len(look.micro), FEWEST_DRAWS, DRAWS))

    def chosen(times: IntArray) -> int:
        """K where each of the clients that are there is drawn so many times."""
        drawn = redrawn(look, weighed, times[np.searchsorted(present, clients)])
        # The test for several clusters as the choice made it, by how much the draw shows of what all clients show.
        part = drawn.times_chance / whole if 0 < whole < np.inf else 1.0
        is_structured = part * choice.times_chance > TIMES_CHANCE
        return best_of(drawn, drawn.candidates, is_structured, slack).n_clusters

    draws = rng.multinomial(len(present), np.full(len(present), 1 / len(present)), size=n_draws)
    return Counter(spread(chosen, list(draws)))


def contenders(choice: Choice, slack: float) -> list[Candidate]:
    """The candidates that may win if the clients differ: the best ones by each criterion, and the chosen one."""
    every, n_micro = choice.look.candidates, len(choice.look.micro)
    kept = [choice.chosen, *(ranking(every, slack, n_micro)[:MOST_CONTENDERS] if every else ())]
    for criterion, n in (("apart", MOST_CONTENDERS), ("separation", MOST_CONTENDERS), ("gap", 1)):
        kept += sorted(every, key=lambda each: -getattr(each, criterion))[:n]
    return [each for each in every if each in kept]


def with_candidates(look: Look, candidates: Sequence[Candidate]) -> Look:
    keys = [(each.hierarchy, each.n_clusters) for each in candidates]
    return replace(look, candidates=tuple(candidates), labels={key: look.labels[key] for key in keys})


def redrawn(look: Look, weighed: MicroClusters, times: IntArray) -> Look:
    """The same clusterings, judged with every micro-cluster of the clients there so many times."""
    there = np.flatnonzero(times > 0)
    left, belongs = np.unique(look.belongs[there], return_inverse=True)
    micro = combined(repeated(weighed, times), belongs)
    labels: dict[Key, IntArray] = {}
    for (hierarchy, _), found in look.labels.items():
        held, inside = np.unique(found[left], return_inverse=True)
        if len(held) > 1:
            labels.setdefault((hierarchy, len(held)), inside)
    shapes = Shapes(micro, micro.covariance_inside())
    candidates = tuple(
        with_apart(each, shapes, labels[each.hierarchy, each.n_clusters], belongs)
        for each in look.null.compared(judged(micro, labels))
    )
    return replace(look, micro=micro, belongs=belongs, shapes=shapes, labels=labels, candidates=candidates)


def repeated(micro: MicroClusters, times: IntArray) -> MicroClusters:
    """The micro-clusters that are there at least once, with their rows so many times."""
    there = np.flatnonzero(times > 0)
    share = float((micro.counts * times).sum() / micro.counts.sum())
    kept = with_share_of_spread(taken(micro, there), share)
    return replace(kept, counts=kept.counts * times[there], scatters=kept.scatters * times[there])


def stabilities(
    micro: MicroClusters, clients: IntArray, choice: Choice, rng: np.random.Generator
) -> list[float | None]:
    """How much of each cluster comes back when the micro-clusters of half the clients are clustered on their own.

    The share of rows in common with the most similar cluster (Jaccard), averaged over random halves; None for a
    cluster that no half held (Hennig, 2007).
    """
    k = choice.chosen.n_clusters
    micro = rescaled(micro, choice.scales)
    present = np.unique(clients)

    def shares_of(half: IntArray, own: np.random.Generator) -> FloatArray:
        """The share of each cluster that comes back in this half; NaN of one that it does not hold."""
        rows = np.flatnonzero(np.isin(clients, half))
        held, labels = np.unique(choice.labels[rows], return_inverse=True)
        other = clustered(taken(micro, rows), len(held), choice.chosen.hierarchy, own)
        shares = np.full(k, np.nan)
        shares[held] = best_overlaps(micro.counts[rows], labels, other)
        return shares

    halves = [rng.permutation(present)[: max(len(present) // 2, 1)] for _ in range(STABILITY_DRAWS)]
    draws = list(zip(halves, rng.spawn(STABILITY_DRAWS), strict=True))
    shares = np.array(spread(lambda draw: shares_of(*draw), draws))
    totals, times = np.nansum(shares, axis=0), (~np.isnan(shares)).sum(axis=0)
    return [float(total / n) if n else None for total, n in zip(totals, times, strict=True)]


def best_overlaps(counts: IntArray, labels: IntArray, other: IntArray) -> FloatArray:
    """For each cluster of `labels`, the largest Jaccard index with one of `other`, by rows."""
    common = np.zeros((labels.max() + 1, other.max() + 1))
    np.add.at(common, (labels, other), counts)
    union = common.sum(axis=1)[:, None] + common.sum(axis=0) - common
    overlaps: FloatArray = (common / union).max(axis=1)
    return overlaps
