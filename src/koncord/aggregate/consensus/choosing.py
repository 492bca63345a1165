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
skewed or heavy-tailed cloud have none. Then a mixture of two Gaussians looks for a cluster that is hidden in another
one (`koncord.aggregate.consensus.hidden`). Last, odd rows that clients had left over, very few and in micro-clusters
far wider than others, are no cluster. Nor are few rows that run into a cluster that holds most of them, where it is as
long on the other side: they are of its tail.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log
from typing import Any, NamedTuple, TypeVar

import numpy as np

from koncord._jobs import spread
from koncord.aggregate.confidence import NO_VALLEY
from koncord.aggregate.consensus.hidden import hidden_in
from koncord.aggregate.consensus.hierarchies import (
    AVERAGE,
    CONDENSED,
    NESTED,
    WARD,
    Hierarchy,
    Judged,
    Key,
    Labelings,
    grid,
    judged,
    labelings,
    put_together,
)
from koncord.aggregate.consensus.microclusters import (
    MicroClusters,
    rescaled,
    taken,
    with_share_of_spread,
)
from koncord.aggregate.consensus.mixture import MOST_ROWS, information
from koncord.aggregate.consensus.nullmodel import ONE_CLUSTER, Candidate, Null, NullOf, split_into_micro_clusters
from koncord.aggregate.consensus.separation import APART, CLEAR, SINGLE_PEAK, Shapes, members
from koncord.kernels.assign import means_by_label, nearest
from koncord.types import BoolArray, FloatArray, IntArray

T = TypeVar("T")

# Up to here every K is looked at; beyond, steps of a twentieth.
EVERY_K, STEP = 30, 1.05
# Values of K at which the Gaussian is looked at: between them its curves are smooth.
EVERY_NULL_K, NULL_STEP = 4, 1.4
# In how many draws, and their rows; and how many more where it is in doubt whether there is more than one cluster.
DRAWS, DRAWN_ROWS = (3, 8), 16_000
MORE_DRAWS, MORE_ROWS = (3, 5), 15_000
# How many times the chance of a draw of the Gaussian the micro-clusters must show to be several clusters; what is in
# doubt, and what is still in doubt after more draws.
TIMES_CHANCE = 3.0
IN_DOUBT = ((2.0, 4.0), (2.3, 3.6))
# The most clusters a micro-cluster that a clustering may have, where these are more than so many: beyond, it says how
# large micro-clusters are.
MOST_A_MICRO_CLUSTER, FEW_MICRO_CLUSTERS = 0.75, 16
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
# What d' beyond `APART` adds and takes away at most, so that no single cluster outweighs the others.
MOST_GAINED, MOST_LOST = 0.3, 0.5
# Share of the most that clusters can gain: from here on they are certain, and certain enough to weigh columns by.
CERTAIN, WEIGHING = 0.8, 0.6
# Clusters that may stand apart less to be nearly as many: not even one of them; and hardly fewer.
NEARLY, HARDLY = 0.5, 0.1
# With so many times the clusters, certain clusters are parts of others that are certain, too, and as separated as any,
# where a mixture of these is likelier.
MUCH_FINER = 1.6
# So many times as far apart, certain clusters are taken before more of them that are neither as separated nor as
# compact: the others are micro-clusters between two clusters, of rows of both.
MUCH_FARTHER = 1.8
# Of a column that weighs by clear clusters of its own: the share of its variance that is left inside them, and the most
# clusters that it may have.
MOST_INSIDE, MOST_IN_A_COLUMN = 0.1, 6
# Uncertain clusters are pieces of clear ones where there are so many times as many.
PIECES = 2
# Clusters with so many times the separation of others are far more separated.
MUCH_MORE_SEPARATED = 2.0
# The most that a clustering may lack to be as separated as another one, however large its separation is.
AS_SEPARATED = 0.05
# Pieces a cluster, on average, up to which certain clusters must be likelier cut than whole: where a clustering is much
# finer, the certain ones are groups of clusters.
MOST_PIECES = 2.5
# Depth of a valley in the density that is more than the unevenness of a density of micro-clusters.
LEAST_VALLEY = 0.3
# The same of clusters that may be pieces of a flat cloud: a cut makes a valley, as no micro-cluster crosses it. And the
# mean of the valleys of all such pieces: between Gaussians 3.5 standard deviations apart it is deeper.
DEEP_VALLEY, MEAN_VALLEY = 0.45, 0.4
# Slices that a cloud which is flat along one direction is cut into, at most.
MOST_SLICES = 3
# Of such a piece: d' from its nearest at most, the farthest of many by chance; and its rows at least, in units of those
# of the mean one.
FARTHEST_PIECE, LEAST_OF_A_PIECE = 1.8, 0.3
# Of odd rows that clients had left over: their share of all rows at most, and how many times as wide as usual their
# micro-clusters are.
MOST_LEFT_OVER, TIMES_AS_WIDE = 0.01, 3.0
# Of a piece of a tail: its share of all rows at most, and the rows of the other tail for each of its own at least.
MOST_IN_A_TAIL, AS_LONG = 0.012, 0.4
# Added to the share of a column's variance that is inside clusters, so that no column outweighs all others.
LEAST_INSIDE = 0.1


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """Every clustering of the micro-clusters that was looked at, with the columns weighed in one way."""

    scales: FloatArray  # (n_features,) that the columns were multiplied by
    micro: MicroClusters  # as weighed, at most `MOST_MICRO_CLUSTERS`
    belongs: IntArray  # of every micro-cluster of the clients: the one it went into
    shapes: Shapes
    labels: Labelings
    null: Null
    candidates: tuple[Candidate, ...]

    @property
    def times_chance(self) -> float:
        """Structure in multiples of chance."""
        return times_chance(self.candidates, self.null, len(self.micro))

    def labels_of(self, candidate: Candidate) -> IntArray:
        one = np.zeros(len(self.micro), dtype=np.int64)
        return self.labels.get((candidate.hierarchy, candidate.n_clusters), one)

    def is_nested(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether the candidate is the other one with a cluster looked at on its own."""
        if candidate.hierarchy != NESTED or not 1 < other.n_clusters < candidate.n_clusters:
            return False
        pairs = set(zip(self.labels_of(candidate).tolist(), self.labels_of(other).tolist(), strict=True))
        return len(pairs) == candidate.n_clusters

    def stands_alone(self, candidate: Candidate) -> bool:
        """Whether some cluster has a valley between it and each of its nearest.

        Pieces of a tail have none, however far apart they are: the density only falls.
        """
        return bool(self.standing_alone(candidate).any())

    def standing_alone(self, candidate: Candidate, least: float = LEAST_VALLEY) -> BoolArray:
        """Which clusters (k,) have a valley between them and each of their nearest, of a depth of `least`."""
        valleys = self.shapes.valleys(self.labels_of(candidate))
        is_alone: BoolArray = valleys.min(axis=1, initial=1.0) >= least
        return is_alone & bool(valleys.size)

    def has_valley(self, *candidates: Candidate) -> bool:
        """Whether one of the candidates has two clusters with a deep valley of the density between them."""
        return any(self.shapes.deepest_valley(self.labels_of(each)) >= LEAST_VALLEY for each in candidates)

    def are_pieces(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether the clusters of the candidate that are inside the same one of another may be pieces of one peak.

        They hold most of the rows; each is no farther from its nearest there than such pieces may be, with no deep
        valley of the density on the way, on average; none is much smaller than the others, for a rare cluster is none.
        """
        labels = self.labels_of(candidate)
        rows = np.zeros((candidate.n_clusters, other.n_clusters))
        np.add.at(rows, (labels, self.labels_of(other)), self.micro.counts)
        inside = rows.argmax(axis=1)
        member = members(labels)
        distances = np.where(inside[:, None] == inside, self.shapes.distances(member), np.inf)
        pieces = np.flatnonzero(np.isfinite(distances.min(axis=1)))
        nearest = distances[pieces].argmin(axis=1)
        is_near = distances[pieces, nearest] < FARTHEST_PIECE
        valleys = self.shapes.valleys_between(labels, member, pieces, nearest)
        mean_rows = np.bincount(inside, rows.sum(axis=1)) / np.maximum(np.bincount(inside), 1)
        is_large = rows.sum(axis=1)[pieces] >= LEAST_OF_A_PIECE * mean_rows[inside[pieces]]
        is_of_most = rows[pieces].sum() >= MOST_ROWS * rows.sum()
        return bool(is_of_most and is_near.all() and is_large.all() and valleys.mean() < MEAN_VALLEY)

    def exceeds_null(self, candidate: Candidate) -> bool:
        """Whether the candidate is more compact than by chance, and much more separated.

        This says less than a test of all candidates, and enough of one whose clusters stand apart as well.
        """
        is_separated = candidate.separation > TIMES_CHANCE * self.null.separation_by_chance
        return candidate.gap > self.null.gap_by_chance and is_separated

    def is_likelier(self, one: Candidate, other: Candidate) -> bool:
        """Whether a mixture of Gaussians from the clusters of one is better than that from the other, by BIC."""
        return information(self.micro, self.labels_of(one)) < information(self.micro, self.labels_of(other))


def regular(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that the null model has the like of."""
    return [each for each in candidates if each.hierarchy in (WARD, AVERAGE)]


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
    clear = most_apart(clear_ones(look.candidates))
    stands_apart = chosen is clear or chosen is most_apart(look.candidates)
    n_left_over = n_in_tails = 0
    if null_of is None and chosen.n_clusters > 1 and len(micro.axes):
        inside = inside_largest(look, chosen, rows, rng, max_clusters=max_clusters, slack=slack)
        if inside is not None:
            pieces, pieces_stand_apart = inside
            own, labels = in_largest(look, chosen), look.labels_of(chosen).copy()
            labels[own] = np.where(pieces == 0, labels[own], labels.max() + pieces)
            look = with_candidate(look, labels)
            stands_apart = stands_apart and pieces_stand_apart
            chosen = look.candidates[-1]
        labels = with_hidden(look, chosen, max_clusters) if chosen.certainty >= CERTAIN else look.labels_of(chosen)
        if labels.max() + 1 > chosen.n_clusters:
            look = with_candidate(look, labels)
            chosen = look.candidates[-1]
        is_odd, is_tail = left_over(look, chosen), in_tails(look, chosen)
        is_left = is_odd | is_tail
        if is_left.any() and (~is_left).sum() > 1:
            n_left_over, n_in_tails = int(is_odd.sum()), int((is_tail & ~is_odd).sum())
            look = with_candidate(look, without(look, chosen, is_left), chosen.hierarchy)
            chosen = look.candidates[-1]
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


def in_largest(look: Look, candidate: Candidate) -> IntArray:
    """The micro-clusters of the cluster with the most rows."""
    labels = look.labels_of(candidate)
    return np.flatnonzero(labels == np.bincount(labels, look.micro.counts).argmax())


def with_hidden(look: Look, chosen: Candidate, max_clusters: int) -> IntArray:
    """The clusters of the chosen clustering, and those that are hidden in one that holds most of the rows."""
    labels, own = look.labels_of(chosen).copy(), in_largest(look, chosen)
    least = MOST_ROWS * look.micro.counts.sum()
    for new in range(chosen.n_clusters, max_clusters):
        is_hidden = hidden_in(taken(look.micro, own), CLEAR) if look.micro.counts[own].sum() >= least else None
        if is_hidden is None:
            break
        labels[own[is_hidden]] = new
        own = own[~is_hidden]
    return labels


def left_over(look: Look, chosen: Candidate) -> BoolArray:
    """Which clusters (k,) are odd rows that clients had left over, and not alike.

    They are few, in micro-clusters far wider than those of most rows, no valley is around them, and they are no farther
    from others than halves of one peak may be.
    """
    labels, counts = look.labels_of(chosen), look.micro.counts
    rows = np.bincount(labels, counts)
    order = np.argsort(look.micro.variances, kind="stable")
    usual = look.micro.variances[order[np.searchsorted(counts[order].cumsum(), counts.sum() / 2)]]
    is_wide = np.bincount(labels, look.micro.scatters) >= TIMES_AS_WIDE * usual * rows
    is_near = (look.shapes.apart(labels) < SINGLE_PEAK) & ~look.standing_alone(chosen)
    found: BoolArray = is_wide & is_near & (rows <= MOST_LEFT_OVER * counts.sum())
    return found


def in_tails(look: Look, chosen: Candidate) -> BoolArray:
    """Which clusters (k,) are pieces of the tails of the cluster that holds most of the rows.

    They are few, run into it without a valley of the density, and it is as long on the other side.
    """
    labels, counts = look.labels_of(chosen), look.micro.counts
    rows = np.bincount(labels, counts)
    largest = int(rows.argmax())
    found = np.zeros(len(rows), dtype=np.bool_)
    few = np.flatnonzero(rows <= MOST_IN_A_TAIL * counts.sum())
    if rows[largest] >= MOST_ROWS * counts.sum() and len(few):
        valleys = look.shapes.valleys_between(labels, members(labels), few, np.full(len(few), largest))
        found[few] = valleys < NO_VALLEY
        pieces = np.flatnonzero(found)
        found[pieces] = look.shapes.as_long_beyond(labels, largest, pieces) >= AS_LONG
    return found


def without(look: Look, chosen: Candidate, is_left: BoolArray) -> IntArray:
    """The clusters of the chosen clustering but some: the micro-clusters of these are in the nearest other one."""
    labels, micro = look.labels_of(chosen), look.micro
    otherwise = np.zeros((len(is_left), micro.means.shape[1]))
    means = means_by_label(micro.means, labels, micro.counts.astype(float), otherwise=otherwise)
    kept = np.flatnonzero(~is_left)
    near = kept[nearest(micro.means, means[kept])]
    numbers: IntArray = np.unique(np.where(is_left[labels], near, labels), return_inverse=True)[1]
    return numbers


def with_candidate(look: Look, labels: IntArray, hierarchy: Hierarchy = NESTED) -> Look:
    """The look with one more candidate, the last: clusters made from those of another one."""
    key: Key = (hierarchy, int(labels.max()) + 1)
    (candidate,) = look.null.compared(judged(look.micro, {key: labels}))
    candidate = with_apart(candidate, look.shapes, labels, look.belongs)
    others = (each for each in look.candidates if (each.hierarchy, each.n_clusters) != key)
    return replace(look, labels={**look.labels, key: labels}, candidates=(*others, candidate))


def look_at(
    micro: MicroClusters,
    rows: IntArray,
    rng: np.random.Generator,
    scales: FloatArray,
    null_of: NullOf,
    *,
    max_clusters: int,
) -> Look:
    """Cluster the micro-clusters, columns multiplied by `scales`, for every K, and compare with the null model."""
    weighed = rescaled(micro, scales)
    coarse, belongs = put_together(weighed, rng)
    most = min(max_clusters, len(coarse))
    gaussian = null_of(weighed, rows, rng, scales)
    null_ks = grid(most, every=EVERY_NULL_K, step=NULL_STEP)

    shapes = Shapes(coarse, weighed.covariance_inside())
    ks = grid(most, every=EVERY_K, step=STEP)

    def observed(*hierarchies: Hierarchy) -> Observed:
        labels = labelings(coarse, ks, hierarchies)
        apart = {key: apart_of(shapes, own, belongs) for key, own in labels.items()} if len(micro.axes) else {}
        return Observed(labels, judged(coarse, labels), apart)

    # The draws are the only work here that takes random numbers, and it takes them first.
    draws = gaussian.draws(rng, null_ks, DRAWS, DRAWN_ROWS)
    work: list[Callable[[], Any]] = [partial(observed, AVERAGE, CONDENSED), partial(observed, WARD), *draws]
    average, ward, *by_chance = spread(done, work)  # the longest work first
    found: Observed = ward | average
    null = Null.of(null_ks, by_chance)
    for low, high in IN_DOUBT:
        if low < times_chance(null.compared(found.values), null, len(coarse)) < high:
            more = gaussian.draws(rng, null_ks, MORE_DRAWS, MORE_ROWS)
            null = null.and_more(Null.of(null_ks, spread(done, more)))
    return Look(
        scales=scales,
        micro=coarse,
        belongs=belongs,
        shapes=shapes,
        labels=found.labels,
        null=null,
        candidates=tuple(found.with_apart(each) for each in null.compared(found.values)),
    )


class Observed(NamedTuple):
    """Clusterings of the micro-clusters by some hierarchies, and what is known of them without the null model."""

    labels: dict[Key, IntArray]
    values: dict[Key, Judged]
    apart: "dict[Key, Apart]"  # empty where axes are not known

    def __or__(self, other: "Observed") -> "Observed":
        return Observed(self.labels | other.labels, self.values | other.values, self.apart | other.apart)

    def with_apart(self, candidate: Candidate) -> Candidate:
        """The candidate with what d' says of its clusters, where it is known."""
        key = candidate.hierarchy, candidate.n_clusters
        return replace(candidate, **self.apart[key]._asdict()) if self.apart else candidate


class Apart(NamedTuple):
    """What d' says of the clusters of a clustering, as in a candidate."""

    apart: float
    least_apart: float


def done(work: Callable[[], T]) -> T:
    return work()


def with_apart(candidate: Candidate, shapes: Shapes, labels: IntArray, belongs: IntArray) -> Candidate:
    """The candidate with what d' says of its clusters."""
    return replace(candidate, **apart_of(shapes, labels, belongs)._asdict())


def apart_of(shapes: Shapes, labels: IntArray, belongs: IntArray) -> Apart:
    """What d' says of clusters.

    One of a single micro-cluster adds nothing, nor does one that may be of mixed ones: these may be rows of two
    clusters that a site could not tell apart.
    """
    distances = shapes.apart(labels)
    most = np.where((np.bincount(labels[belongs]) == 1) | shapes.are_mixed(labels), 0.0, MOST_GAINED)
    gained = np.clip(distances - APART, -MOST_LOST, most).sum() / MOST_GAINED
    return Apart(float(gained), float(distances.min()))


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


def clear_scales(micro: MicroClusters, rng: np.random.Generator) -> FloatArray | None:
    """What to multiply each column by if some have clear clusters of their own: more for these; None if none has.

    Many micro-clusters are cut along a wide column, so what is between them does not show that it holds no clusters.
    """
    scales = np.ones(micro.means.shape[1])
    variances = micro.spread / max(int(micro.counts.sum()), 1)
    for at, variance in enumerate(variances.tolist()):
        column = MicroClusters(
            counts=micro.counts,
            means=micro.means[:, [at]],
            scatters=micro.counts * variance,
            spread=micro.spread[[at]],
            axes=np.sqrt(micro.spread[[at]])[None],
        )
        coarse, _ = put_together(column, rng)
        shapes = Shapes(coarse, coarse.covariance_inside())
        found = labelings(coarse, range(2, MOST_IN_A_COLUMN + 1), [WARD])
        clear = [labels for labels in found.values() if shapes.apart(labels).min() >= CLEAR]
        if clear:
            finest = max(clear, key=lambda labels: int(labels.max()))
            scale = float(column_scales(coarse, finest)[0])
            scales[at] = scale if scale**2 * (MOST_INSIDE + LEAST_INSIDE) > 1 else 1.0
    return scales if (scales != 1).any() else None


def column_scales(micro: MicroClusters, labels: IntArray) -> FloatArray:
    """What to multiply each column by: more where the groups differ by more than the rows inside them do.

    It is the root of 1 over the share of a column's variance that is inside the groups; units stay as they are.
    """
    weights = micro.counts.astype(float)
    k = int(labels.max()) + 1
    means = means_by_label(micro.means, labels, weights, otherwise=np.zeros((k, micro.means.shape[1])))
    about_groups, about_all = micro.means - means[labels], micro.means - weights @ micro.means / weights.sum()
    inside = np.diagonal(micro.covariance_inside())
    within = weights @ about_groups**2 / weights.sum() + inside
    total = weights @ about_all**2 / weights.sum() + inside
    share = np.divide(within, total, out=np.ones(len(total)), where=total > np.finfo(float).tiny)
    scales: FloatArray = 1 / np.sqrt(share + LEAST_INSIDE)
    return scales


def times_chance(candidates: Sequence[Candidate], null: Null, n_micro: int) -> float:
    """Structure in multiples of chance: of the gap, or the mean of gap and separation if that is less.

    It is that of `n_micro` micro-clusters. Clusterings of hardly more than one micro-cluster a cluster do not count.
    """
    most = MOST_A_MICRO_CLUSTER * max(n_micro, FEW_MICRO_CLUSTERS)
    alike = [each for each in regular(candidates) if each.n_clusters <= most]
    gap = ratio(max((each.gap for each in alike), default=0.0), null.gap_by_chance)
    separation = ratio(max((each.separation for each in alike), default=0.0), null.separation_by_chance)
    return min(gap, (gap + separation) / 2)


def almost(separation: float, slack: float = AS_SEPARATED) -> float:
    """The least separation that is almost as large: less by `slack`, and by no more than a share of it."""
    return separation - min(slack, SHARE_OF_SEPARATION * abs(separation))


def ratio(value: float, chance: float) -> float:
    if chance == 0.0:
        return inf if value > 0.0 else 0.0
    return value / chance


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
