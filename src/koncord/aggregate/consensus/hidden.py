"""A cluster that is hidden in another one: two Gaussians, fitted to the micro-clusters of one, that are apart.

A rare cluster a few standard deviations from a frequent one need not have a branch of its own in a hierarchy: in many
columns the micro-clusters of one cloud are as far from each other as from it. A mixture of two Gaussians that starts
there finds it. Started at the edge of a single cloud, the second Gaussian dies out, or grows until both overlap; in a
heavy tail it is wider than the cloud, or makes the rows that it has hardly likelier. So one that is no wider than the
cloud may overlap with it where it makes its rows much likelier, or where it is farther off than a piece of a single
peak can be, has more rows than a tail and the density rises toward it; a wider one must be clearly apart.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.mixture import Parts, fit_to_means, log_likelihood, parts_of, whitened
from koncord.aggregate.consensus.separation import APART, CLEAR, SINGLE_PEAK, Shapes, ridged
from koncord.types import BoolArray, FloatArray

# Places far from the middle at which a second Gaussian starts, at most.
MOST_STARTS = 12
# Micro-clusters of a cluster at least: a single one may be a few odd rows.
LEAST_MICRO_CLUSTERS = 2
# Log likelihood that a second Gaussian adds for each of its rows, at least: about what it adds where Gaussians are four
# standard deviations apart, and one row in 150 is of the second. Most pieces of heavy tails add less.
LEAST_GAIN = 3.0
# The same of a compact one: it is up to so many times as wide as the cloud, and of so many micro-clusters; pieces of
# tails that are so are rare, and add less. It must stand apart.
LEAST_GAIN_OF_COMPACT = 2.0
MOST_TIMES_AS_WIDE, LEAST_MICRO_CLUSTERS_OF_COMPACT = 1.15, 4
# The same of a frequent one, with at least so large a share of the rows and about as wide as the cloud: one Gaussian
# holds both better, so there is less to gain. But it must be farther off than a piece of a single peak can be, and the
# density must rise again toward it, by this share: that of a skewed tail only falls.
LEAST_GAIN_OF_FREQUENT, LEAST_SHARE, LEAST_TIMES_AS_WIDE, LEAST_RISE = 0.35, 0.02, 0.75, 0.02


def hidden_in(micro: MicroClusters) -> BoolArray | None:
    """Which micro-clusters (n,) of one cluster are another one, the farthest apart; None if none is."""
    if len(micro) < 2 * LEAST_MICRO_CLUSTERS:
        return None
    pair = Pair.of(micro)
    fits = (fit_to_means(pair.parts, start)[:, 1] > 0.5 for start in far_starts(pair.parts))
    pieces = {each.tobytes(): each for each in fits}.values()  # many starts end in the same one
    large = [each for each in pieces if min(each.sum(), (~each).sum()) >= LEAST_MICRO_CLUSTERS]
    ordered = sorted(large, key=pair.distance, reverse=True)
    return next((each for each in ordered if pair.are_two(each)), None)


class Pair(NamedTuple):
    """Micro-clusters that are one cluster, or two."""

    parts: Parts
    shapes: Shapes

    @classmethod
    def of(cls, micro: MicroClusters) -> "Pair":
        return cls(parts_of([micro], np.ones(micro.means.shape[1])), Shapes(micro, micro.covariance_inside()))

    def distance(self, is_second: BoolArray) -> float:
        """d' of the second cluster from the rest."""
        return float(self.shapes.apart(is_second.astype(np.int64)).min())

    def are_two(self, is_second: BoolArray) -> bool:
        """Whether the second cluster, of a few of the rows, is hidden in the rest, and not a piece of it."""
        distance = self.distance(is_second)
        if distance < APART:
            return False
        more = self.gain(is_second)
        if distance >= SINGLE_PEAK and more >= LEAST_GAIN_OF_FREQUENT and self.is_frequent(is_second):
            return True
        due, likelier = (APART, LEAST_GAIN_OF_COMPACT) if self.is_compact(is_second) else (CLEAR, LEAST_GAIN)
        return distance >= due and more >= likelier

    def is_compact(self, is_second: BoolArray) -> bool:
        """Whether the second cluster has some micro-clusters, and is hardly wider than the rest."""
        is_large = is_second.sum() >= LEAST_MICRO_CLUSTERS_OF_COMPACT
        return bool(is_large and self.width(is_second) <= MOST_TIMES_AS_WIDE)

    def is_frequent(self, is_second: BoolArray) -> bool:
        """Whether the second cluster has a fair share of the rows, about the width of the rest, and a peak."""
        is_large = self.parts.counts[is_second].sum() >= LEAST_SHARE * self.parts.counts.sum()
        is_as_wide = is_large and self.is_compact(is_second) and self.width(is_second) >= LEAST_TIMES_AS_WIDE
        return bool(is_as_wide and self.shapes.deepest_valley(is_second.astype(np.int64)) >= LEAST_RISE)

    def width(self, is_second: BoolArray) -> float:
        """How many times as wide as the rest the second cluster is, on (geometric) average over all directions."""
        counts, _, scatters, _ = self.shapes.clusters(is_second.astype(np.int64))
        covariances = [ridged(each, self.shapes.variance) for each in scatters / counts[:, None, None]]
        rest, second = np.linalg.slogdet(np.array(covariances))[1]
        return float(np.exp((second - rest) / (2 * self.shapes.n_axes)))

    def gain(self, is_second: BoolArray) -> float:
        """By how much two Gaussians are likelier than one: of the log likelihood, for each row of the second."""
        labels = is_second.astype(np.int64)
        more = log_likelihood(self.parts, labels) - log_likelihood(self.parts, np.zeros_like(labels))
        return more / float(self.parts.counts[is_second].sum())


def far_starts(parts: Parts) -> Iterator[FloatArray]:
    """Shares (n, 2) to start from: the far side is what lies beyond half the way to a far micro-cluster.

    The farthest one is first, in units of the covariance of all rows; the next is the farthest that has been on no far
    side so far.
    """
    white = whitened(parts)
    distances = np.linalg.norm(white, axis=1)
    is_left = distances > 0
    for _ in range(MOST_STARTS):
        if not is_left.any():
            return
        at = int(np.where(is_left, distances, 0.0).argmax())
        is_far = white @ white[at] > distances[at] ** 2 / 2
        is_left &= ~is_far
        yield np.eye(2)[is_far.astype(np.int64)]
