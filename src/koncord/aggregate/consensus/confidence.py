"""How sure the clusters of the micro-clusters are: distances, support, stability, runners-up, other draws of sites."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from koncord.aggregate.confidence import ClusterConfidence, Confidence, NextCut, RunnerUp
from koncord.aggregate.consensus.choosing import (
    AVERAGE,
    CONDENSED,
    EVERY_K,
    ONE_CLUSTER,
    STEP,
    TIMES_CHANCE,
    WARD,
    Candidate,
    Choice,
    Look,
    best_of,
    combined,
    grid,
    groups_together,
    judged,
    labelings,
    times_chance,
    with_apart,
)
from koncord.aggregate.consensus.microclusters import MicroClusters, taken
from koncord.aggregate.consensus.separation import Shapes
from koncord.aggregate.consensus.tree import Clusters
from koncord.kernels.tree import ClusterTree
from koncord.types import IntArray

MOST_RUNNERS_UP = 3
# Draws of sites: so many, fewer where micro-clusters are many, and more of these are put together first.
DRAWS, FEWEST_DRAWS, DRAWN_MICRO_CLUSTERS = 25, 10, 4000
MOST_MICRO_CLUSTERS = 400
# Values of K that a draw is looked at for: up to so many times the chosen one, and some more.
MOST_TIMES, AND_MORE = 2, 4


def confidence_of(
    clusters: Clusters,
    clients: IntArray,
    choice: Choice,
    tree: ClusterTree,
    stabilities: Sequence[float | None],
    rng: np.random.Generator,
    *,
    slack: float,
) -> Confidence:
    """What is known of how sure the clusters are.

    Parameters
    ----------
    clusters : Clusters
        The clusters that were found.
    clients : array (n,)
        The client of each micro-cluster.
    choice : Choice
        How their number was chosen.
    tree : ClusterTree
        What they are joined into and cut into.
    stabilities : sequence of float or None
        How much of each cluster comes back with half of the clients.
    rng : Generator
        For the draws of clients.
    slack : float
        As in the choice.
    """
    drawn = resampled(clusters.micro, clients, choice, rng, slack=slack)
    return Confidence(
        clusters=tuple(each_cluster(clusters, clients, stabilities)),
        stands_apart=choice.stands_apart,
        runners_up=tuple(runners_up(choice, slack)),
        next_cut=next_cut(tree, len(clusters)),
        resampled=None if not drawn else {k: drawn[k] / drawn.total() for k in sorted(drawn)},
        n_draws=drawn.total(),
    )


def each_cluster(clusters: Clusters, clients: IntArray, stabilities: Sequence[float | None]) -> list[ClusterConfidence]:
    """Distance, support and stability of each cluster; nobody can look for one without its only client."""
    distances = clusters.distances()
    found = []
    for cluster, stability in enumerate(stabilities):
        own = clusters.labels == cluster
        n_clients = len(np.unique(clients[own]))
        is_alone = len(clusters) == 1
        found.append(
            ClusterConfidence(
                apart=None if is_alone else float(distances[cluster].min()),
                nearest=None if is_alone else int(distances[cluster].argmin()),
                sites=n_clients,
                rows=int(clusters.micro.counts[own].sum()),
                stability=stability if n_clients > 1 else None,
            )
        )
    return found


def runners_up(choice: Choice, slack: float) -> list[RunnerUp]:
    """The best clusterings of other K, chosen as if those before them were not there."""
    found: list[RunnerUp] = []
    others = [each for each in choice.look.candidates if each.n_clusters != choice.chosen.n_clusters]
    while others and len(found) < MOST_RUNNERS_UP:
        best = best_of(choice.look, others, is_structured=True, slack=slack)
        if best is ONE_CLUSTER and (choice.chosen is ONE_CLUSTER or any(each.n_clusters == 1 for each in found)):
            break
        found.append(compared(best, choice.chosen))
        others = [each for each in others if each.n_clusters != best.n_clusters]
    return found


def compared(one: Candidate, chosen: Candidate) -> RunnerUp:
    return RunnerUp(
        n_clusters=one.n_clusters,
        least_apart=one.least_apart,
        apart=one.apart,
        separation=one.separation,
        gap=one.gap,
        behind_apart=chosen.apart - one.apart,
        behind_separation=chosen.separation - one.separation,
        behind_gap=chosen.gap - one.gap,
    )


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

    The null model stays that of the choice, and so do the weights of the columns.
    """
    present = np.unique(clients)
    found: Counter[int] = Counter()
    if len(present) < 2:
        return found
    belongs = groups_together(weighed, rng, MOST_MICRO_CLUSTERS)
    n_draws = int(np.clip(DRAWN_MICRO_CLUSTERS // (int(belongs.max()) + 1), FEWEST_DRAWS, DRAWS))
    most = MOST_TIMES * choice.chosen.n_clusters + AND_MORE
    for _ in range(n_draws):
        times = np.zeros(int(clients.max()) + 1, dtype=np.int64)
        times[present] = rng.multinomial(len(present), np.full(len(present), 1 / len(present)))
        found[chosen_of(repeated(weighed, times[clients], belongs), choice.look, most, slack)] += 1
    return found


def repeated(micro: MicroClusters, times: IntArray, belongs: IntArray) -> MicroClusters:
    """The micro-clusters, each so many times, put together by `belongs`; those that occur no time are gone."""
    share = float((micro.counts * times).sum() / micro.counts.sum())
    there = np.flatnonzero(times > 0)
    often = replace(
        taken(micro, there),
        counts=micro.counts[there] * times[there],
        scatters=micro.scatters[there] * times[there],
        spread=micro.spread * share,
        axes=micro.axes * np.sqrt(share),
    )
    return combined(often, np.unique(belongs[there], return_inverse=True)[1])


def chosen_of(micro: MicroClusters, like: Look, most: int, slack: float) -> int:
    """The K that is chosen for these micro-clusters against the null model of another look."""
    found = labelings(micro, grid(min(most, len(micro)), every=EVERY_K, step=STEP), (WARD, AVERAGE, CONDENSED))
    shapes = Shapes(micro, micro.covariance_inside())
    candidates = tuple(
        with_apart(each, shapes.apart(found[each.hierarchy, each.n_clusters]))
        for each in like.null.compared(judged(micro, found))
    )
    look = replace(like, micro=micro, belongs=np.arange(len(micro)), shapes=shapes, labels=found, candidates=candidates)
    is_structured = times_chance(look.regular, like.null) > TIMES_CHANCE
    return best_of(look, candidates, is_structured, slack).n_clusters
