"""A cluster that is hidden in another one: two Gaussians, fitted to the micro-clusters of one, that are clearly apart.

A rare cluster a few standard deviations from a frequent one need not have a branch of its own in a hierarchy: in many
columns the micro-clusters of one cloud are as far from each other as from it. A mixture of two Gaussians that starts
there finds it. Started at the edge of a single cloud, the second Gaussian dies out, or grows until both overlap, or, in
a heavy tail, makes the rows that it has hardly likelier.
"""

from collections.abc import Iterator

import numpy as np

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.mixture import Parts, fit_to_means, log_likelihood, parts_of, whitened
from koncord.aggregate.consensus.separation import Shapes
from koncord.types import BoolArray, FloatArray

# Places far from the middle at which a second Gaussian starts, at most.
MOST_STARTS = 12
# Micro-clusters of a cluster at least: a single one may be a few odd rows.
LEAST_MICRO_CLUSTERS = 2
# Log likelihood that a second Gaussian adds for each of its rows, at least: about what it adds where Gaussians are four
# standard deviations apart, and one row in 150 is of the second. Most pieces of heavy tails add less.
LEAST_GAIN = 3.0


def hidden_in(micro: MicroClusters, least_apart: float) -> BoolArray | None:
    """Which micro-clusters (n,) of one cluster are another one, the farthest apart; None if none is `least_apart`."""
    if len(micro) < 2 * LEAST_MICRO_CLUSTERS:
        return None
    parts = parts_of([micro], np.ones(micro.means.shape[1]))
    shapes = Shapes(micro, micro.covariance_inside())
    best, most = None, least_apart
    for start in far_starts(parts):
        is_hidden = fit_to_means(parts, start)[:, 1] > 0.5
        n_hidden = int(is_hidden.sum())
        if min(n_hidden, len(micro) - n_hidden) < LEAST_MICRO_CLUSTERS:
            continue
        distance = float(shapes.apart(is_hidden.astype(np.int64)).min())
        if distance >= most:
            best, most = is_hidden, distance
    return best if best is not None and gain(parts, best) >= LEAST_GAIN else None


def gain(parts: Parts, is_hidden: BoolArray) -> float:
    """By how much two Gaussians are likelier than one: of the log likelihood, for each hidden row."""
    labels = is_hidden.astype(np.int64)
    more = log_likelihood(parts, labels) - log_likelihood(parts, np.zeros_like(labels))
    return more / float(parts.counts[is_hidden].sum())


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
