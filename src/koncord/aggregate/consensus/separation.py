"""How far apart clusters of micro-clusters stand: d', their distance on the line that tells them apart.

On the discriminant line of two clusters, d' is the distance of their means divided by the sum of their standard
deviations there. It has no unit, so a column that tells nothing cannot enter it, and it does not depend on the sizes,
so a cluster of one row in a hundred counts as any other. Two halves of one Gaussian have 1.32, halves of any density
with one peak at most the square root of 3, and two Gaussians 2, 3 and 4 standard deviations apart 1.46, 1.72 and 2.09.
"""

from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.spatial.distance import cdist

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.kernels.assign import means_by_label
from koncord.types import BoolArray, FloatArray, IntArray

# d' beyond which a cluster stands apart: between two halves of one Gaussian (1.32) and two Gaussians two standard
# deviations apart (1.46).
APART = 1.45
# d' up to which two clusters may be halves of a cloud with a single peak: the root of 3, and a little for chance.
SINGLE_PEAK = 1.75
# d' from which on clusters do not overlap: about that of two Gaussians four standard deviations apart.
CLEAR = 2.0
# Columns up to which clusters are compared along all axes: a rare cluster may lie along the last of them. Of more
# columns it is along the leading principal axes: in more, the covariances of small clusters would be noise.
ALL_AXES, MOST_AXES = 16, 10
# Clusters that each is compared with, the nearest ones.
N_NEAREST = 3
# Clusters around one that it may be rows of two of.
N_AROUND = 6
# Added to the variance of every direction, as a share of the mean one, so that no covariance is singular.
RIDGE = 1e-3
# The same where clusters have no spread at all, as a share of the variance of all rows; and where all rows are equal.
LEAST_RIDGE, NO_VARIANCE = 1e-9, 1e-300
# Where on the line between two means the density is looked at: from a tenth before one to a tenth behind the other.
GRID = np.linspace(-0.1, 1.1, 37)
# A density of few micro-clusters is rough: each is drawn wider, by up to three times, where a pair has fewer than so
# many.
FEW_MICRO_CLUSTERS, WIDER = 6, 2.0
# Of the squared distance of two clusters: how far off the line between them a cluster of rows of both may be. And the
# share of the scatter of such rows that it has at least.
MOST_ASIDE, LEAST_OF_MIXED = 0.05, 0.5
LEAST_WIDTH = 0.02  # of a micro-cluster on the line, as a share of the distance of the means


class Shapes:
    """Micro-clusters in their leading principal axes, with second moments that can be summed by cluster."""

    def __init__(self, micro: MicroClusters, covariance: FloatArray) -> None:
        self.counts = micro.counts.astype(float)
        self.scatters = micro.scatters
        shares = self.counts / self.counts.sum()
        gaps = micro.means - shares @ micro.means
        shape = shape_of(covariance)
        total = (gaps * shares[:, None]).T @ gaps + shape * (shares @ micro.variances)
        axes = np.linalg.eigh(total)[1][:, ::-1]
        axes = axes if len(axes) <= ALL_AXES else axes[:, :MOST_AXES]
        self.means = gaps @ axes
        self.variance = float(np.trace(total)) / len(total)
        self.covariances = micro.variances[:, None, None] * (axes.T @ shape @ axes)
        self._moments = second_moments(self.counts, self.means, self.covariances)

    @cached_property
    def n_axes(self) -> int:
        return int(self.means.shape[1])

    def clusters(self, labels: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Count, mean and scatter matrix of each cluster, and the covariance that they share."""
        return self.moments(members(labels))

    def moments(self, member: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The same of clusters that have a share `member` (k, n) of each micro-cluster."""
        k = len(member)
        counts = member @ self.counts
        means = member @ (self.means * self.counts[:, None]) / counts[:, None]
        scatters = (member @ self._moments).reshape(k, self.n_axes, self.n_axes)
        scatters -= counts[:, None, None] * means[:, :, None] * means[:, None, :]
        tied = scatters.sum(axis=0) / counts.sum()
        return counts, means, scatters, ridged(tied, self.variance)

    def apart(self, labels: IntArray) -> FloatArray:
        """d' (k,) of each cluster from the one of its nearest clusters that it is least apart from."""
        counts, means, scatters, tied = self.clusters(labels)
        one, other = neighbors(means)
        distances = distances_apart(counts, means, scatters, tied, one, other)
        found: FloatArray = distances.reshape(len(counts), -1).min(axis=1)
        return found

    def distances(self, member: FloatArray) -> FloatArray:
        """d' (k, k) of every two clusters with a share `member` (k, n) of each micro-cluster; infinite from itself."""
        counts, means, scatters, tied = self.moments(member)
        one, other = np.triu_indices(len(counts), 1)
        found = np.full((len(counts), len(counts)), np.inf)
        found[one, other] = found[other, one] = distances_apart(counts, means, scatters, tied, one, other)
        return found

    def are_mixed(self, labels: IntArray) -> BoolArray:
        """Which clusters (k,) may be rows of two others that clients could not tell apart.

        They lie between these two, and the rows of a micro-cluster scatter as far as rows of both would.
        """
        k = int(labels.max()) + 1
        means = means_by_label(self.means, labels, self.counts, otherwise=np.zeros((k, self.n_axes)))
        inside = np.bincount(labels, self.scatters) / np.bincount(labels, self.counts)
        nearest = neighbors(means, N_AROUND)[1].reshape(len(means), -1)
        found = np.zeros(len(means), dtype=np.bool_)
        for one, other in combinations(nearest.T, 2):
            line, gap = means[other] - means[one], means - means[one]
            length, along = np.vecdot(line, line), np.vecdot(gap, line)  # squared, and times the length
            aside = np.vecdot(gap, gap) * length - along**2
            more = inside - np.minimum(inside[one], inside[other])
            is_between = (along > 0) & (along < length) & (aside < MOST_ASIDE * length**2)
            found |= is_between & (more * length > LEAST_OF_MIXED * along * (length - along))
        return found

    def valleys(self, labels: IntArray) -> FloatArray:
        """Depth (k, n_nearest), from 0 to 1, of the valley of the density between each cluster and its nearest."""
        member = members(labels)
        one, other = neighbors(self.moments(member)[1])
        return self.valleys_between(labels, member, one, other).reshape(len(member), -1)

    def valleys_between(self, labels: IntArray, member: FloatArray, one: IntArray, other: IntArray) -> FloatArray:
        """Depth (n_pairs,) of the valley between the clusters of each pair; these have `member` (k, n)."""
        counts, means, scatters, tied = self.moments(member)
        lines = discriminants(counts, means, scatters, tied, one, other)
        return np.array([self._valley(labels, means, *pair) for pair in zip(one, other, lines, strict=True)])

    def _valley(self, labels: IntArray, means: FloatArray, one: int, other: int, line: FloatArray) -> float:
        length = line @ (means[other] - means[one])
        if not length > 0:
            return 0.0
        own = np.flatnonzero((labels == one) | (labels == other))
        at = (self.means[own] - means[one]) @ line / length
        widths = np.einsum("i,lij,j->l", line, self.covariances[own], line) / length**2
        widths = widths * (1 + WIDER * min(1.0, FEW_MICRO_CLUSTERS / len(own))) + LEAST_WIDTH**2
        bumps = np.exp(-0.5 * (GRID - at[:, None]) ** 2 / widths[:, None])
        density = (self.counts[own] / np.sqrt(widths)) @ bumps
        # The lower of the highest points on either side: a small cluster need not rise above the middle of the line.
        lower_peak = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
        shares = np.divide(density, lower_peak, out=np.ones_like(density), where=lower_peak > 0)
        return float((1 - shares).max())


def second_moments(counts: FloatArray, means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Count times second moment (n, q * q) of every micro-cluster; in one array, for they may be very many."""
    moments: FloatArray = means[:, :, None] * means[:, None, :]
    moments += covariances
    moments *= counts[:, None, None]
    return moments.reshape(len(counts), -1)


def members(labels: IntArray) -> FloatArray:
    """All (k, n) of each micro-cluster in its cluster, nothing in the others."""
    found = np.zeros((int(labels.max()) + 1, len(labels)))
    found[labels, np.arange(len(labels))] = 1.0
    return found


def ridged(covariance: FloatArray, of_all: float) -> FloatArray:
    """The covariance with a little more variance in every direction; `of_all` is the mean variance of all rows."""
    n = len(covariance)
    ridge = max(RIDGE * np.trace(covariance) / n, LEAST_RIDGE * of_all, NO_VARIANCE)
    found: FloatArray = covariance + ridge * np.eye(n)
    return found


def shape_of(covariance: FloatArray) -> FloatArray:
    """The covariance with a trace of 1; round where it is 0."""
    trace = float(np.trace(covariance))
    found: FloatArray = covariance / trace if trace > 0 else np.eye(len(covariance)) / len(covariance)
    return found


def neighbors(means: FloatArray, most: int = N_NEAREST) -> tuple[IntArray, IntArray]:
    """Each cluster beside each of its nearest ones, as two index arrays."""
    distances = cdist(means, means)
    np.fill_diagonal(distances, np.inf)
    n = min(most, len(means) - 1)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :n]
    return np.repeat(np.arange(len(means)), n), nearest.ravel()


def discriminants(
    counts: FloatArray, means: FloatArray, scatters: FloatArray, tied: FloatArray, one: IntArray, other: IntArray
) -> FloatArray:
    """The direction that tells the clusters of each pair apart (Fisher's), by the covariance that the two share."""
    prior = len(tied) + 1  # rows of the covariance that all clusters share: a small cluster hardly tells its own
    pooled = scatters[one] + scatters[other] + 2 * prior * tied
    pooled = pooled / (counts[one] + counts[other] + 2 * prior)[:, None, None]
    return np.asarray(np.linalg.solve(pooled, (means[other] - means[one])[..., None])[..., 0], dtype=np.float64)


def distances_apart(
    counts: FloatArray, means: FloatArray, scatters: FloatArray, tied: FloatArray, one: IntArray, other: IntArray
) -> FloatArray:
    """d' (n_pairs,) of the clusters of each pair; 0 where no line tells them apart."""
    lines = discriminants(counts, means, scatters, tied, one, other)
    prior = len(tied) + 1
    own = (scatters + prior * tied) / (counts + prior)[:, None, None]
    along = np.vecdot(lines, means[other] - means[one])
    deviations = [np.sqrt(np.maximum(np.einsum("pi,pij,pj->p", lines, own[at], lines), 0.0)) for at in (one, other)]
    width = np.maximum(deviations[0] + deviations[1], np.finfo(float).tiny)
    found: FloatArray = np.where(along > 0, along / width, 0.0)
    return found
