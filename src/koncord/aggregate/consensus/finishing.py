"""What is added to a chosen clustering, and what is taken from it.

A mixture of two Gaussians looks for clusters that are hidden in one that holds most of the rows
(`koncord.aggregate.consensus.hidden`). Odd rows that clients had left over, very few and in micro-clusters far wider
than others, are no cluster. Nor are rows that run into a cluster of more than half of all rows, and are hardly likelier
as a Gaussian of their own; nor a few that run into it where it is as long on the other side: they are of its tails.
"""

from math import log

import numpy as np

from koncord.aggregate.confidence import NO_VALLEY
from koncord.aggregate.consensus.hidden import LEAST_GAIN_OF_FREQUENT, Pair, hidden_in
from koncord.aggregate.consensus.looking import CERTAIN, LEAST_VALLEY, Look, with_candidate
from koncord.aggregate.consensus.microclusters import taken
from koncord.aggregate.consensus.mixture import MOST_ROWS
from koncord.aggregate.consensus.nullmodel import Candidate
from koncord.aggregate.consensus.separation import SINGLE_PEAK, members
from koncord.kernels.assign import means_by_label, nearest
from koncord.types import BoolArray, IntArray

# Of odd rows that clients had left over: their share of all rows at most, and how many times as wide as usual their
# micro-clusters are.
MOST_LEFT_OVER, TIMES_AS_WIDE = 0.01, 3.0
# Of a piece of a tail: its share of all rows at most, and the rows of the other tail for each of its own at least.
MOST_IN_A_TAIL, AS_LONG = 0.012, 0.4
# Log likelihood that a Gaussian of its own adds for each row of a cluster that runs into a frequent one, at least: it
# makes them twice as likely, and most pieces of tails less so.
LEAST_GAIN_OF_PIECE = log(2)


def finished(look: Look, chosen: Candidate, max_clusters: int) -> tuple[Look, Candidate, int, int]:
    """The look and the candidate in the end; and how many clusters were odd rows, or of tails, and are in others."""
    labels = with_hidden(look, chosen, max_clusters) if chosen.certainty >= CERTAIN else look.labels_of(chosen)
    if labels.max() + 1 > chosen.n_clusters:
        look = with_candidate(look, labels)
        chosen = look.candidates[-1]
    is_odd, is_tail = no_clusters(look, chosen)
    if not (is_odd | is_tail).any():
        return look, chosen, 0, 0
    look = with_candidate(look, without(look, chosen, is_odd, is_tail), chosen.hierarchy)
    return look, look.candidates[-1], int(is_odd.sum()), int(is_tail.sum())


def no_clusters(look: Look, chosen: Candidate) -> tuple[BoolArray, BoolArray]:
    """Which clusters (k,) are none: odd rows, and pieces of the largest one; none are where one alone would be left."""
    is_odd = left_over(look, chosen)
    is_tail = ~is_odd & of_largest(look, chosen)
    is_several = (~is_odd & ~is_tail).sum() > 1
    return is_odd & is_several, is_tail & is_several


def in_largest(look: Look, candidate: Candidate) -> IntArray:
    """The micro-clusters of the cluster with the most rows."""
    labels = look.labels_of(candidate)
    return np.flatnonzero(labels == np.bincount(labels, look.micro.counts).argmax())


def with_hidden(look: Look, chosen: Candidate, max_clusters: int) -> IntArray:
    """The clusters of the chosen clustering, and those that are hidden in one that holds most of the rows."""
    labels, own = look.labels_of(chosen).copy(), in_largest(look, chosen)
    least = MOST_ROWS * look.micro.counts.sum()
    for new in range(chosen.n_clusters, max_clusters):
        is_hidden = hidden_in(taken(look.micro, own)) if look.micro.counts[own].sum() >= least else None
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


def of_largest(look: Look, chosen: Candidate) -> BoolArray:
    """Which clusters (k,) are pieces of one that holds more than half of the rows.

    They run into it without a deep valley of the density, and are hardly likelier as a Gaussian of their own. Or they
    are few, run into it without any valley, and it holds most of the rows and is as long on the other side.
    """
    labels, counts = look.labels_of(chosen), look.micro.counts
    rows = np.bincount(labels, counts)
    largest = int(rows.argmax())
    found = np.zeros(len(rows), dtype=np.bool_)
    if 2 * rows[largest] <= counts.sum():
        return found
    others = np.delete(np.arange(len(rows)), largest)
    valleys = look.shapes.valleys_between(labels, members(labels), others, np.full(len(others), largest))
    if rows[largest] >= MOST_ROWS * counts.sum():
        few = others[(rows[others] <= MOST_IN_A_TAIL * counts.sum()) & (valleys < NO_VALLEY)]
        found[few] = look.shapes.as_long_beyond(labels, largest, few) >= AS_LONG
    for other in others[(valleys < LEAST_VALLEY) & ~found[others]]:
        own = np.flatnonzero((labels == largest) | (labels == other))
        pair, is_other = Pair.of(taken(look.micro, own)), labels[own] == other
        likelier = LEAST_GAIN_OF_FREQUENT if pair.is_frequent(is_other) else LEAST_GAIN_OF_PIECE
        found[other] = pair.gain(is_other) < likelier
    return found


def without(look: Look, chosen: Candidate, is_odd: BoolArray, is_tail: BoolArray) -> IntArray:
    """The clusters of the chosen clustering but some: odd rows are in the nearest other one, tails in the largest."""
    labels, micro = look.labels_of(chosen), look.micro
    otherwise = np.zeros((chosen.n_clusters, micro.means.shape[1]))
    means = means_by_label(micro.means, labels, micro.counts.astype(float), otherwise=otherwise)
    kept = np.flatnonzero(~is_odd & ~is_tail)
    near = kept[nearest(micro.means, means[kept])]
    largest = np.bincount(labels, micro.counts).argmax()
    moved = np.where(is_odd[labels], near, np.where(is_tail[labels], largest, labels))
    numbers: IntArray = np.unique(moved, return_inverse=True)[1]
    return numbers
