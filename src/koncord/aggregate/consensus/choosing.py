"""How many clusters the micro-clusters of all clients make, found from these alone.

Three hierarchies of the micro-clusters give a clustering for every number of clusters K: Ward's, polished by k-means;
average linkage, which lets a large cluster stand beside small ones; and average linkage whose clusters of a single
micro-cluster went to the nearest other one. The rule takes two steps.

*Clusters that are certain.* Each cluster is compared with its nearest ones by d', their distance on the line that tells
them apart (`koncord.aggregate.consensus.separation`). The clustering with the most clusters that stand apart, less
those that do not, is the answer if its clusters are certain: apart by a margin, nearly all of them. It neither sees how
large a cluster is nor columns that tell nothing.

*Else more structure than one Gaussian.* Every clustering is judged by its *separation*, the mean silhouette of the rows
as far as the micro-clusters tell it, and by its *compactness*, the logarithm of the squared distances to the centers,
both against the null model: rows of one Gaussian, split into micro-clusters and clustered in the same way. Of the
clusterings almost as separated as the best one, the one that exceeds the null model's compactness most (the gap
statistic of Tibshirani, Walther and Hastie, 2001) is the answer. More clusters must exceed it by more, the more so the
less they stand apart. Where nothing exceeds the null model there is one cluster.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np

from koncord.aggregate.consensus.looking import CERTAIN, TIMES_CHANCE, Look, look_at, regular
from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.nullmodel import ONE_CLUSTER, Candidate, NullOf, split_into_micro_clusters
from koncord.aggregate.consensus.weighing import column_scales
from koncord.types import FloatArray, IntArray

# The gap goes on rising where clusters are cut into pieces, but flattens: with e times the clusters it must be larger
# by this share of the widest one, and by no more than so much.
SHARE_OF_GAP, MOST_OF_GAP = 0.33, 0.3
# With so many micro-clusters a cluster d' tells halves of one cluster well: the certainty of clusters counts so much of
# what e times the clusters must add.
MANY_MICRO_CLUSTERS, SHARE_OF_CERTAINTY = 40, 0.2
# The most that clusterings may lack to be almost as separated as another one, as a share of its separation.
SHARE_OF_SEPARATION = 0.25
# A clustering with less than this share of the largest gap leaves clusters together, however separated it is: a single
# far cluster has the largest silhouette, and hides the others.
LEAST_SHARE_OF_GAP = 0.4
# Certainty from which on clusters are certain enough to weigh columns by.
WEIGHING = 0.6
# Clusters that may stand apart less to be nearly as many: not even one of them; and hardly fewer.
NEARLY, HARDLY = 0.5, 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What was chosen, what was looked at, and why."""

    labels: IntArray  # (n_micro_clusters,) cluster of each micro-cluster
    chosen: Candidate
    runner_up: Candidate | None  # the best of another K
    candidates: tuple[Candidate, ...]  # by K
    separation_by_chance: float  # the largest that a draw of the Gaussian shows against the others, on average
    gap_by_chance: float
    is_structured: bool = False  # whether the micro-clusters show more than draws of one Gaussian do
    times_chance: float = 0.0  # how many times what chance gives one Gaussian
    scales: FloatArray  # (n_features,) weights of the columns that the chosen clustering was found with
    stands_apart: bool = False  # whether it was chosen because its clusters are certain
    look: "Look"  # all clusterings among which it was chosen


def choose(
    micro: MicroClusters,
    rows: IntArray,
    rng: np.random.Generator,
    *,
    max_clusters: int,
    slack: float,
    null_of: NullOf = split_into_micro_clusters,
) -> Choice:
    """Choose a clustering of `micro`, which clients with so many `rows` reported.

    `null_of` makes the null model of micro-clusters that were come by in another way than by splitting rows.
    """
    look, times = weighed_look(micro, rows, rng, null_of, max_clusters=max_clusters)
    is_structured = times > TIMES_CHANCE
    chosen = best_of(look, look.candidates, is_structured, slack)
    others = [each for each in look.candidates if each.n_clusters != chosen.n_clusters]
    runner_up = best_of(look, others, True, slack) if others else None
    return Choice(
        labels=look.labels_of(chosen)[look.belongs],
        chosen=chosen,
        runner_up=None if runner_up is chosen else runner_up,
        candidates=tuple(sorted([ONE_CLUSTER, *look.candidates], key=lambda each: (each.n_clusters, each.hierarchy))),
        separation_by_chance=look.null.separation_by_chance,
        gap_by_chance=look.null.gap_by_chance,
        is_structured=is_structured,
        times_chance=times,
        scales=look.scales,
        stands_apart=chosen is certain(look.candidates),
        look=look,
    )


def weighed_look(
    micro: MicroClusters, rows: IntArray, rng: np.random.Generator, null_of: NullOf, *, max_clusters: int
) -> tuple[Look, float]:
    """All candidates, columns weighed by clusters that are certain enough; and structure in multiples of chance."""
    scales = column_scales(micro, np.arange(len(micro)))
    look = look_at(micro, rows, rng, scales, null_of, max_clusters=max_clusters)
    times = look.times_chance
    standing = most_apart(look.candidates)
    if standing is not None and standing.certainty >= WEIGHING:
        scales = column_scales(micro, look.labels_of(standing)[look.belongs])
        look = look_at(micro, rows, rng, scales, null_of, max_clusters=max_clusters)
    return look, times


def best_of(look: Look, candidates: Sequence[Candidate], is_structured: bool, slack: float) -> Candidate:
    """Clusters that are certain, else those that exceed the null model, else one."""
    found = certain(candidates)
    if found is not None:
        return found
    alike = regular(candidates)
    compact = as_compact(alike, look.null.gap_by_chance) or alike
    return ranking(compact, slack, len(look.micro))[0] if is_structured and compact else ONE_CLUSTER


def certain(candidates: Iterable[Candidate]) -> Candidate | None:
    """The candidate with the most clusters that stand apart, if these are certain."""
    found = most_apart(candidates)
    return found if found is not None and found.certainty >= CERTAIN else None


def most_apart(candidates: Iterable[Candidate]) -> Candidate | None:
    """The candidate with the most clusters that stand apart, on ties the most certain one; None if none has any.

    Nearly as many that are certain, and at least as separated, are taken before more that are not certain; and hardly
    fewer before more that are less certain.
    """

    def key(each: Candidate) -> tuple[float, float, float]:
        return round(each.apart, 2), round(each.certainty, 9), each.separation

    ranked = sorted(candidates, key=key, reverse=True)
    if not ranked or ranked[0].apart < 1:
        return None
    best = ranked[0]
    least = best.apart - (HARDLY if best.certainty >= CERTAIN else NEARLY)
    nearly = (each for each in ranked if each.apart >= least and each.separation >= best.separation)
    are_certain = [each for each in nearly if each.certainty >= CERTAIN]
    return max(are_certain, key=lambda each: round(each.certainty, 9), default=best)


def as_compact(candidates: Sequence[Candidate], chance: float) -> list[Candidate]:
    """The candidates more compact than by chance, and not far less so than the most compact one."""
    widest = max((each.gap for each in candidates), default=0.0)
    return [each for each in candidates if each.gap > chance and each.gap >= LEAST_SHARE_OF_GAP * widest]


def ranking(candidates: Sequence[Candidate], slack: float, n_micro: int) -> list[Candidate]:
    """Best first: those nearly as separated as the best, by their gap less what more clusters must add to it.

    Clusters of many of the `n_micro` micro-clusters must add more the less they stand apart. Then all others by their
    separation.
    """
    most = max(each.separation for each in candidates)
    close = [each for each in candidates if each.separation >= most - min(slack, SHARE_OF_SEPARATION * abs(most))]
    due = min(SHARE_OF_GAP * max(each.gap for each in close), MOST_OF_GAP)  # for e times the clusters

    def lacks(each: Candidate, share_of_certainty: float = 0.0) -> float:
        return due * (log(each.n_clusters) - share_of_certainty * each.certainty) - each.gap

    has_many = n_micro >= MANY_MICRO_CLUSTERS * min(close, key=lacks).n_clusters
    counted = partial(lacks, share_of_certainty=SHARE_OF_CERTAINTY if has_many else 0.0)
    return [
        *sorted(close, key=counted),
        *sorted((each for each in candidates if each not in close), key=lambda each: -each.separation),
    ]
