"""How many clusters the micro-clusters of all clients make, found from these alone.

Three hierarchies of the micro-clusters give a clustering for every number of clusters K: Ward's, polished by k-means;
average linkage, which lets a large cluster stand beside small ones; and average linkage whose clusters of a single
micro-cluster went to the nearest other one. Two answers are looked for among these clusterings.

*Clusters that stand apart.* Each cluster is compared with its nearest ones by d', their distance on the line that tells
them apart (`koncord.aggregate.consensus.separation`). The clustering with the most clusters that stand apart, less
those that do not, is the first answer. It neither sees how large a cluster is nor columns that tell nothing.

*More structure than one Gaussian.* Every clustering is judged by its *separation*, the mean silhouette of the rows as
far as the micro-clusters tell it, and by its *compactness*, the logarithm of the squared distances to the centers, both
against the null model: rows of one Gaussian, split into micro-clusters and clustered in the same way. Of the
clusterings almost as separated as the best one, the one that exceeds the null model's compactness most (the gap
statistic of Tibshirani, Walther and Hastie, 2001) is the second answer. More clusters must exceed it by more, the more
so the less they stand apart. Clusters that run into each other are found by this one only.

The first answer is taken where its clusters are certain; else fewer clusters that are, among clusterings as separated
as any; else the second one, where it is finer and as good, or coarser and better separated or likelier as a mixture of
Gaussians (the Bayesian information criterion). Certain clusters are cut into a few pieces only where the mixture is
likelier for it, too. Clear clusters are taken before uncertain ones that they are as separated as, and likelier than;
and before any that only cut them into pieces of a single peak, as Gaussians do with a flat cloud. With neither answer
there is one cluster.

A cluster that holds most of the rows is then looked at on its own in the same way, for one far cluster can outweigh all
that is inside the others. Pieces with a valley of the density around them become clusters of their own: those of a
skewed or heavy-tailed cloud have none. Last, clusters hidden in the largest are added, and what is no cluster is taken
away (`koncord.aggregate.consensus.finishing`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np

from koncord.aggregate.consensus.finishing import finished, in_largest
from koncord.aggregate.consensus.hierarchies import NESTED
from koncord.aggregate.consensus.looking import (
    CERTAIN,
    FARTHEST_PIECE,
    TIMES_CHANCE,
    Look,
    look_at,
    regular,
    with_candidate,
)
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled, taken, with_share_of_spread
from koncord.aggregate.consensus.mixture import MOST_ROWS
from koncord.aggregate.consensus.nullmodel import ONE_CLUSTER, Candidate, NullOf, split_into_micro_clusters
from koncord.aggregate.consensus.separation import APART, CLEAR, SINGLE_PEAK
from koncord.aggregate.consensus.weighing import clear_scales, column_scales
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
# With so many times the clusters, certain clusters are parts of others that are certain, too, and as separated as any,
# where a mixture of these is likelier.
MUCH_FINER = 1.6
# So many times as far apart, certain clusters are taken before more of them that are neither as separated nor as
# compact: the others are micro-clusters between two clusters, of rows of both.
MUCH_FARTHER = 1.8
# Uncertain clusters are pieces of clear ones where there are so many times as many.
PIECES = 2
# Clusters with so many times the separation of others are far more separated.
MUCH_MORE_SEPARATED = 2.0
# The most that a clustering may lack to be as separated as another one, however large its separation is.
AS_SEPARATED = 0.05
# Pieces a cluster, on average, up to which certain clusters must be likelier cut than whole: where a clustering is much
# finer, the certain ones are groups of clusters.
MOST_PIECES = 2.5
# Slices that a cloud which is flat along one direction is cut into, at most; and the depth of a valley between what is
# more than that: a cut makes one, too, as no micro-cluster crosses it.
MOST_SLICES, DEEP_VALLEY = 3, 0.45


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
    stands_apart: bool = False  # whether it was chosen because its clusters stand apart
    n_left_over: int = 0  # clusters that were none, but odd rows
    n_in_tails: int = 0  # that were none, but pieces of the tails of a frequent one
    look: "Look"  # all clusterings among which it was chosen


def choose(
    micro: MicroClusters,
    rows: IntArray,
    rng: np.random.Generator,
    *,
    max_clusters: int,
    slack: float,
    null_of: NullOf | None = None,
) -> Choice:
    """Choose a clustering of `micro`, which clients with so many `rows` reported.

    `null_of` makes the null model of micro-clusters that were come by in another way than by splitting rows.
    """
    look, chosen, times = best_look(
        micro, rows, rng, max_clusters=max_clusters, slack=slack, null_of=null_of or split_into_micro_clusters
    )
    stands_apart = chosen is most_apart(clear_ones(look.candidates)) or chosen is most_apart(look.candidates)
    n_left_over = n_in_tails = 0
    if null_of is None and chosen.n_clusters > 1 and len(micro.axes):
        inside = inside_largest(look, chosen, rows, rng, max_clusters=max_clusters, slack=slack)
        if inside is not None:
            pieces, pieces_stand_apart = inside
            look = with_pieces(look, chosen, pieces)
            chosen = look.candidates[-1]
            stands_apart = stands_apart and pieces_stand_apart
        look, chosen, n_left_over, n_in_tails = finished(look, chosen, max_clusters)
    others = [each for each in look.candidates if each.n_clusters != chosen.n_clusters]
    runner_up = best_of(look, others, is_structured=True, slack=slack) if others else None
    if runner_up is ONE_CLUSTER and chosen is ONE_CLUSTER:
        runner_up = None
    return Choice(
        labels=look.labels_of(chosen)[look.belongs],
        chosen=chosen,
        runner_up=runner_up,
        candidates=tuple(sorted([ONE_CLUSTER, *look.candidates], key=lambda each: (each.n_clusters, each.hierarchy))),
        separation_by_chance=look.null.separation_by_chance,
        gap_by_chance=look.null.gap_by_chance,
        is_structured=times > TIMES_CHANCE,
        times_chance=times,
        scales=look.scales,
        stands_apart=stands_apart,
        n_left_over=n_left_over,
        n_in_tails=n_in_tails,
        look=look,
    )


def best_look(
    micro: MicroClusters,
    rows: IntArray,
    rng: np.random.Generator,
    *,
    max_clusters: int,
    slack: float,
    null_of: NullOf,
) -> tuple[Look, Candidate, float]:
    """The best candidate and all others, with columns weighed as it was found; and structure in multiples of chance."""
    scales = column_scales(micro, np.arange(len(micro)))
    first = look_at(micro, rows, rng, scales, null_of, max_clusters=max_clusters)
    times = first.times_chance
    is_structured = times > TIMES_CHANCE
    standing = most_apart(first.candidates)
    look = first
    if standing is not None and standing.certainty >= WEIGHING:
        scales = column_scales(micro, first.labels_of(standing)[first.belongs])
        look = look_at(micro, rows, rng, scales, null_of, max_clusters=max_clusters)
    chosen = best_of(look, look.candidates, is_structured, slack)
    by_column = clear_scales(micro, rng) if chosen.certainty < WEIGHING else None
    if by_column is not None:
        weighed = look_at(micro, rows, rng, by_column, null_of, max_clusters=max_clusters)
        clear = most_apart(clear_ones(weighed.candidates))
        if clear is not None and not clear.n_clusters <= chosen.n_clusters < PIECES * clear.n_clusters:
            found = best_of(weighed, weighed.candidates, is_structured, slack)
            look, chosen = weighed, found if found.certainty >= CERTAIN else clear
    return look, chosen, times


def inside_largest(
    look: Look, chosen: Candidate, rows: IntArray, rng: np.random.Generator, *, max_clusters: int, slack: float
) -> tuple[IntArray, bool] | None:
    """Pieces of the cluster that holds most of the rows: those that stand alone on their own look, and the rest, 0.

    Returns the piece of each of its micro-clusters, and whether they were found because they stand apart; None where
    there are no pieces. A single micro-cluster is none: it may be a few odd rows.
    """
    own = in_largest(look, chosen)
    share = float(look.micro.counts[own].sum() / look.micro.counts.sum())
    most = max_clusters - chosen.n_clusters + 1
    if share < MOST_ROWS or most < 2:
        return None
    part = with_share_of_spread(taken(rescaled(look.micro, 1 / look.scales), own), share)
    found = choose(part, np.ceil(rows * share).astype(np.int64), rng, max_clusters=most, slack=slack)
    if found.chosen is ONE_CLUSTER:
        return None
    is_apart = found.look.shapes.apart(found.look.labels_of(found.chosen)) > APART
    is_piece = found.look.standing_alone(found.chosen) & is_apart & (np.bincount(found.labels) > 1)
    if found.chosen.n_clusters <= MOST_SLICES and found.chosen.least_apart < FARTHEST_PIECE:
        is_piece &= found.look.standing_alone(found.chosen, DEEP_VALLEY)
    pieces = np.where(is_piece, np.cumsum(is_piece), 0) - int(is_piece.all())
    return (pieces[found.labels], found.stands_apart) if pieces.any() else None


def with_pieces(look: Look, chosen: Candidate, pieces: IntArray) -> Look:
    """The look with one more candidate, the last: the chosen one with its largest cluster in pieces."""
    own, labels = in_largest(look, chosen), look.labels_of(chosen).copy()
    labels[own] = np.where(pieces == 0, labels[own], labels.max() + pieces)
    return with_candidate(look, labels)


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
    certain = [each for each in nearly if each.certainty >= CERTAIN]
    return max(certain, key=lambda each: round(each.certainty, 9), default=best)


def best_of(look: Look, candidates: Sequence[Candidate], is_structured: bool, slack: float) -> Candidate:
    """The choice between the clusters that stand apart and those that exceed the null model.

    Where it has a nested clustering among the candidates, that one.
    """
    found = best_of_all(look, [each for each in candidates if each.hierarchy != NESTED], is_structured, slack)
    return next((each for each in candidates if look.is_nested(each, found)), found)


def best_of_all(look: Look, candidates: Sequence[Candidate], is_structured: bool, slack: float) -> Candidate:
    standing = most_apart(candidates)
    alike = regular(candidates)
    compact = as_compact(alike, look.null.gap_by_chance) or alike
    found = ranking(compact, slack, len(look.micro))[0] if is_structured and compact else None
    if standing is None:
        return found or ONE_CLUSTER
    if found is None:
        certain = most_apart(each for each in candidates if each.certainty >= CERTAIN)
        if certain is None or not (look.has_valley(standing, certain) or look.exceeds_null(certain)):
            return ONE_CLUSTER
        return standing if standing.certainty >= WEIGHING and standing.least_apart > APART else certain
    best = better_of(look, candidates, standing, found, most_separated=max(each.separation for each in compact))
    clear = most_apart(clear_ones(candidates))
    if clear is None:
        return best
    is_cut = clear.n_clusters < best.n_clusters and clear.separation >= best.separation and look.are_pieces(best, clear)
    return clear if is_cut or (best.certainty < CERTAIN and is_better(look, clear, best)) else best


def is_better(look: Look, clear: Candidate, other: Candidate) -> bool:
    """Whether clear clusters are better than those that are not: as separated, likelier, and of comparable gap.

    The gap does not count where the others are no more separated, or no more compact, than by chance: then they are
    pieces of heavy tails, or of a cloud along a few axes.
    Nor where they are up to twice as many, and far less separated: then they are pieces of a frequent cluster beside
    the same rare ones, which have no gap.
    """
    null = look.null
    is_by_chance = other.separation <= TIMES_CHANCE * null.separation_by_chance or other.gap <= null.gap_by_chance
    has_few_pieces = other.n_clusters <= PIECES * clear.n_clusters
    is_far_less = has_few_pieces and clear.separation >= MUCH_MORE_SEPARATED * other.separation
    is_as_compact = is_by_chance or is_far_less or clear.gap >= LEAST_SHARE_OF_GAP * other.gap
    return clear.separation >= other.separation and is_as_compact and look.is_likelier(clear, other)


def better_of(
    look: Look, candidates: Sequence[Candidate], standing: Candidate, found: Candidate, *, most_separated: float
) -> Candidate:
    """Of the first answer, `standing`, and the second one, `found`; or fewer clusters that are certain."""
    is_certain = standing.certainty >= CERTAIN
    if found.n_clusters <= standing.n_clusters:
        # Fewer clusters may stand apart for certain: among clusterings as separated as any, and no coarser than the
        # second answer.
        least = almost(most_separated)
        finer = [each for each in candidates if each.n_clusters >= found.n_clusters and each.separation >= least]
        certain = most_apart(each for each in finer if each.certainty >= CERTAIN)
        if is_certain:
            if dominates(found, standing):
                return found
            is_much_coarser = certain is not None and standing.n_clusters >= MUCH_FINER * certain.n_clusters
            return certain if certain and is_much_coarser and look.is_likelier(certain, standing) else standing
        if certain is not None and len(look.micro.axes) > 0:
            return certain
        is_as_separated = standing.separation > almost(found.separation)
        return standing if is_as_separated and look.is_likelier(standing, found) else found
    is_as_good = found.separation >= almost(standing.separation) and found.gap >= standing.gap
    # Clusters that are certain are cut into a few pieces only where a mixture gains by it as well.
    is_cut = is_certain and found.n_clusters <= MOST_PIECES * standing.n_clusters
    return found if is_as_good and (not is_cut or look.is_likelier(found, standing)) else standing


def clear_ones(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates whose clusters are certain, and do not overlap."""
    return (each for each in candidates if each.certainty >= CERTAIN and each.least_apart >= CLEAR)


def as_compact(candidates: Sequence[Candidate], chance: float) -> list[Candidate]:
    """The candidates more compact than by chance, and not far less so than the most compact one."""
    widest = max((each.gap for each in candidates), default=0.0)
    return [each for each in candidates if each.gap > chance and each.gap >= LEAST_SHARE_OF_GAP * widest]


def dominates(one: Candidate, other: Candidate) -> bool:
    """Whether the clusters of one are certain, as separated and compact as the others, and much farther apart.

    Only if some of the others may be halves of a cloud with a single peak: rare clusters have no gap.
    """
    is_as_good = one.separation >= other.separation and one.gap >= other.gap
    is_much_farther = other.least_apart < SINGLE_PEAK and one.least_apart >= MUCH_FARTHER * other.least_apart
    return one.certainty >= CERTAIN and is_as_good and is_much_farther


def almost(separation: float, slack: float = AS_SEPARATED) -> float:
    """The least separation that is almost as large: less by `slack`, and by no more than a share of it."""
    return separation - min(slack, SHARE_OF_SEPARATION * abs(separation))


def ranking(candidates: Sequence[Candidate], slack: float, n_micro: int) -> list[Candidate]:
    """Best first: those nearly as separated as the best, by their gap less what more clusters must add to it.

    Clusters of many of the `n_micro` micro-clusters must add more the less they stand apart. Then all others by their
    separation.
    """
    most = max(each.separation for each in candidates)
    close = [each for each in candidates if each.separation >= almost(most, slack)]
    due = min(SHARE_OF_GAP * max(each.gap for each in close), MOST_OF_GAP)  # for e times the clusters

    def lacks(each: Candidate, share_of_certainty: float = 0.0) -> float:
        return due * (log(each.n_clusters) - share_of_certainty * each.certainty) - each.gap

    has_many = n_micro >= MANY_MICRO_CLUSTERS * min(close, key=lacks).n_clusters
    counted = partial(lacks, share_of_certainty=SHARE_OF_CERTAINTY if has_many else 0.0)
    return [
        *sorted(close, key=counted),
        *sorted((each for each in candidates if each not in close), key=lambda each: -each.separation),
    ]
