"""K from the counts of many small cells, where the rows of clients with a privacy budget vary along few axes.

Noisy products of the columns give the covariance of the pooled rows. Along most axes there is often nothing but noise,
of the rows or of the release; a sum over cells in all columns would add that of every column. Where no more than
`MOST_AXES` axes stand out, the cells are laid out along these beforehand, as k-means divides one Gaussian of that
covariance, and only counted. A count has less noise than a mean, where a cell lies is known, and the whole budget of
the passes goes into one release.

The Gaussian that fits the counts best (expectation-maximization for counts of cells; McLachlan and Jones, 1988) is the
null model: its draws are counts of the same cells through the same noise. Where the cells show more, K is that of the
mixture of Gaussians with a common covariance whose integrated classification likelihood is largest (Biernacki, Celeux
and Govaert, 2000).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

from koncord._random import draw_seed
from koncord.aggregate.consensus.choosing import Choice, choose
from koncord.aggregate.consensus.hierarchies import MIXTURE, Key, judged
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled
from koncord.aggregate.consensus.nullmodel import ONE_CLUSTER, Gaussian
from koncord.kernels.assign import nearest, sums_by_label
from koncord.kernels.lloyd import kmeans
from koncord.types import BoolArray, FloatArray, IntArray

# Axes along which cells are laid out at most: in more of them, cells that hold rows enough are too large. With fewer
# columns for each axis the noise of a mean is less than twice that along the axes, and clusters that an axis hardly
# above the noise keeps apart would be lost for little.
MOST_AXES, COLUMNS_AN_AXIS = 3, 4
# Axes are left out that have no more than this share of the variance of those kept, on average.
LEFT_OUT = 0.1
# Eigenvalues of noise alone spread by its deviation times the root of twice the number of columns, and by chance a
# little more: an axis stands out beyond so many times that. A variance is no less than this share of the mean one.
EDGE, LEAST_VARIANCE = 1.15, 1e-3
# Rows of a cell on average, in deviations of the noise of a count, and the most cells.
ROWS_A_CELL, MOST_COUNTED = 5.0, 150
# A count below so many deviations of its noise is no cell.
NO_COUNT = 2.0
# Rows drawn from the Gaussian that the cells divide, and those by which it is fitted, drawn so many times as wide.
DRAWN, FITTING, WIDER = 20_000, 60_000, 1.5
FITTING_STEPS = 8
# Steps in which the variances of clipped rows are made those of the rows, and how many times as large at most.
UNCLIPPING_STEPS, MOST_UNCLIPPED = 8, 3.0
# Of the mixtures: the most clusters, cells a cluster at least, starts of each, steps of the fit and the least gain of
# one, and what is added to the common variance, as a share of that of all rows.
MOST_MIXED, CELLS_A_CLUSTER = 30, 3
MIXTURE_STARTS, MIXTURE_STEPS, LEAST_GAIN, MIXTURE_RIDGE = 6, 40, 1e-6, 1e-4
# A cluster has no fewer rows than so many deviations of the noise of their count: one cell in forty seems to hold rows
# where there are none.
LEAST_ROWS = 5.0
# A criterion that lacks no more than this share of the largest is as good.
AS_LIKELY = 0.06


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spectrum:
    """The covariance of pooled rows: variances along the axes that stand out of the noise, one for all others."""

    variances: FloatArray  # (n_features,) decreasing
    axes: FloatArray  # (n_features, n_features) one a row
    n_standing: int

    @classmethod
    def of(cls, covariance: FloatArray, noise: float, radius: float, rng: np.random.Generator) -> "Spectrum":
        """Of second moments (n_features, n_features) of rows clipped to a radius; their diagonal has so much noise."""
        values, vectors = np.linalg.eigh(covariance)
        values, d = values[::-1], len(values)
        edge = EDGE * noise * sqrt(2 * d)
        q = next((q for q in range(d) if values[q] <= values[q:].mean() + edge), d)
        variances = np.concatenate([values[:q], np.full(d - q, values[q:].mean() if q < d else 0.0)])
        least = max(LEAST_VARIANCE * float(values.mean()), float(np.finfo(float).tiny))
        variances = unclipped(np.maximum(variances, least), radius, rng)
        return cls(variances=variances, axes=vectors[:, ::-1].T, n_standing=q)

    def with_covariance(self, covariance: FloatArray) -> "Spectrum":
        """The same with another covariance, of which nothing is noise."""
        values, vectors = np.linalg.eigh(covariance)
        return replace(self, variances=np.maximum(values[::-1], 0.0), axes=vectors[:, ::-1].T)

    @property
    def root(self) -> FloatArray:
        """What turns standard normal rows into rows of this covariance."""
        root: FloatArray = np.sqrt(self.variances)[:, None] * self.axes
        return root

    @property
    def n_kept(self) -> int | None:
        """Axes to lay out cells along; None where they are too many."""
        d, q = len(self.variances), self.n_standing
        if d <= MOST_AXES:
            return d
        if not 1 <= q <= min(MOST_AXES, d // COLUMNS_AN_AXIS):
            return None
        if self.variances[q:].mean() > LEFT_OUT * self.variances[:q].mean():
            return None
        return q


def unclipped(variances: FloatArray, radius: float, rng: np.random.Generator) -> FloatArray:
    """Variances (d,) of the Gaussian whose rows, clipped to a radius, have the given ones along the same axes.

    Clipped rows are shorter along long axes above all: without this a long cloud would seem rounder than it is.
    """
    normal = rng.standard_normal((DRAWN, len(variances)))
    normal /= np.sqrt((normal**2).mean(axis=0))
    found = variances
    for _ in range(UNCLIPPING_STEPS):
        squares = normal**2 * found
        lengths = squares.sum(axis=1)
        kept = (squares * (radius**2 / np.maximum(lengths, radius**2))[:, None]).mean(axis=0)
        found = found * np.clip(variances / np.maximum(kept, np.finfo(float).tiny), 1.0, MOST_UNCLIPPED)
        found = np.minimum(found, MOST_UNCLIPPED * variances)
    return found


# --- cells ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Cells along some axes, that rows are counted by."""

    middle: FloatArray  # (n_features,) of the rows
    axes: FloatArray  # (q, n_features)
    deviations: FloatArray  # (q,) of the rows along the axes
    beside: float  # variance of the rows along all other axes together
    points: FloatArray  # (n_cells, q) along the axes, about the middle

    @classmethod
    def of(
        cls, middle: FloatArray, spectrum: Spectrum, n_kept: int, n_cells: int, rng: np.random.Generator
    ) -> "Layout":
        """Cells as k-means divides one Gaussian: nothing of it depends on rows but by the spectrum."""
        deviations = np.sqrt(spectrum.variances[:n_kept])
        drawn = rng.standard_normal((DRAWN, n_kept)) * deviations
        return cls(
            middle=middle,
            axes=spectrum.axes[:n_kept],
            deviations=deviations,
            beside=float(spectrum.variances[n_kept:].sum()),
            points=kmeans(drawn, n_cells, rng).centers,
        )

    def in_columns(self, points: FloatArray) -> FloatArray:
        """Points along the axes (n, q) in all columns: a row is nearest to the same one in both."""
        found: FloatArray = self.middle + points @ self.axes
        return found

    def with_beside(self, micro: MicroClusters) -> MicroClusters:
        """Micro-clusters along the axes in all columns, with what the rows vary besides."""
        d = len(self.middle)
        scatters = micro.scatters + self.beside * micro.counts
        return MicroClusters(
            counts=micro.counts,
            means=self.in_columns(micro.means),
            scatters=scatters,
            spread=np.full(d, scatters.sum() / d),
            axes=np.empty((0, d)),
        )


def n_cells_of(n_rows: float, noise: float) -> int:
    """How many cells there are for so many rows, with noise of this deviation in each count."""
    return int(np.clip(n_rows / (ROWS_A_CELL * noise), 2, MOST_COUNTED))


class Shares(NamedTuple):
    """What one Gaussian has in each cell."""

    rows: FloatArray  # (n_cells,) share of all rows
    means: FloatArray  # (n_cells, q) of these
    covariances: FloatArray  # (n_cells, q, q)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """Noisy counts of cells, and the Gaussian that fits them best."""

    counts: FloatArray  # (n_cells,)
    noise: float  # standard deviation of each
    gaussian: Shares

    @classmethod
    def of(cls, counts: FloatArray, noise: float, layout: Layout, rng: np.random.Generator) -> "Counted":
        return cls(counts=counts, noise=noise, gaussian=fitted_gaussian(counts, layout, rng))

    def is_cell(self, counts: FloatArray) -> BoolArray:
        large: BoolArray = counts >= max(NO_COUNT * self.noise, 1.0)
        return large

    def micro_clusters(self, counts: FloatArray) -> MicroClusters:
        """Cells whose count stands out, as micro-clusters along the axes; rows lie in them as those of the Gaussian."""
        kept = self.is_cell(counts)
        q = self.gaussian.means.shape[1]
        whole = np.rint(counts[kept]).astype(np.int64)
        scatters = whole * np.trace(self.gaussian.covariances[kept], axis1=1, axis2=2)
        return MicroClusters(
            counts=whole,
            means=self.gaussian.means[kept],
            scatters=scatters,
            spread=np.full(q, scatters.sum() / q),
            axes=np.empty((0, q)),
        )


def fitted_gaussian(counts: FloatArray, layout: Layout, rng: np.random.Generator) -> Shares:
    """The Gaussian that fits the counts best, by what it has in each cell.

    Integrals over cells are sums over rows drawn from a wider Gaussian, weighed by the ratio of both densities.
    """
    q = len(layout.deviations)
    normal = rng.standard_normal((FITTING, q))
    drawn = normal * (WIDER * layout.deviations)
    labels = nearest(drawn, layout.points)
    log_wider = -0.5 * np.vecdot(normal, normal)
    mean, covariance = np.zeros(q), np.diag(layout.deviations**2)
    least = LEAST_VARIANCE * float((layout.deviations**2).mean())
    total = max(float(counts.sum()), 1.0)
    for _ in range(FITTING_STEPS):
        found = shares_of(drawn, labels, log_wider, mean, covariance, len(counts))
        mean = counts @ found.means / total
        gaps = found.means - mean
        covariance = np.einsum("n,nij->ij", counts, found.covariances + gaps[:, :, None] * gaps[:, None]) / total
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        covariance = (vectors * np.maximum(values, least)) @ vectors.T
    return shares_of(drawn, labels, log_wider, mean, covariance, len(counts))


def shares_of(
    drawn: FloatArray, labels: IntArray, log_wider: FloatArray, mean: FloatArray, covariance: FloatArray, n_cells: int
) -> Shares:
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (drawn - mean).T)
    log_weights = -0.5 * (whitened**2).sum(axis=0) - log_wider
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    rows = np.bincount(labels, weights, minlength=n_cells).astype(np.float64)
    divisors = np.maximum(rows, np.finfo(float).tiny)
    means = sums_by_label(drawn * weights[:, None], labels, n_cells) / divisors[:, None]
    gaps = drawn - means[labels]
    q = drawn.shape[1]
    outer = (gaps[:, :, None] * gaps[:, None]).reshape(-1, q * q)
    covariances = sums_by_label(outer * weights[:, None], labels, n_cells) / divisors[:, None]
    return Shares(rows, means, covariances.reshape(-1, q, q))


# --- what one Gaussian would give ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedGaussian(Gaussian):
    """One Gaussian, counted by the same cells through the same noise."""

    scales: FloatArray  # (q,) that the axes are multiplied by
    counted: Counted

    @classmethod
    def through(cls, counted: Counted, scales: FloatArray) -> "CountedGaussian":
        nobody = np.empty(0, dtype=np.int64)
        return cls(root=np.diag(scales), sizes=nobody, least=1, scales=scales, counted=counted)

    def n_draws(self, fewest: int, most: int, n_rows: int) -> int:
        return most  # a draw is a few numbers

    def drawn(self, rng: np.random.Generator) -> np.random.Generator:
        return np.random.default_rng(draw_seed(rng))

    def described(self, drawn: np.random.Generator) -> MicroClusters:
        counted = self.counted
        shares = counted.gaussian.rows
        rows = drawn.multinomial(max(round(float(counted.counts.sum())), 1), shares / shares.sum())
        counts = rows + drawn.normal(0.0, counted.noise, len(rows))
        if not counted.is_cell(counts).any():
            counts[counts.argmax()] = max(NO_COUNT * counted.noise, 1.0)
        return rescaled(counted.micro_clusters(counts), self.scales)


# --- how many clusters ---


def choose_by_counts(counted: Counted, rng: np.random.Generator, *, max_clusters: int, slack: float) -> Choice:
    """A choice between clusterings of the cells; one cluster unless they show more than one Gaussian does."""
    micro = counted.micro_clusters(counted.counts)
    choice = choose(
        micro,
        np.array([micro.counts.sum()]),
        rng,
        max_clusters=max_clusters,
        slack=slack,
        null_of=lambda weighed, rows, rng, scales: CountedGaussian.through(counted, scales),
    )
    mixtures = mixtures_of(micro, counted.noise, rng, max_clusters)
    return with_mixtures(choice, mixtures) if mixtures else choice


def with_mixtures(choice: Choice, mixtures: Mapping[int, "Mixed"]) -> Choice:
    """The choice with a mixture instead, where there is structure: the fewest clusters of those that are as likely."""
    look = choice.look
    labels: dict[Key, IntArray] = {(MIXTURE, k): each.labels for k, each in mixtures.items()}
    candidates = look.null.compared(judged(look.micro, labels))
    look = replace(look, labels={**look.labels, **labels}, candidates=(*look.candidates, *candidates))
    by_criterion = sorted(candidates, key=lambda each: -mixtures[each.n_clusters].criterion)
    largest = mixtures[by_criterion[0].n_clusters].criterion
    if not choice.is_structured or largest <= 0:
        chosen, runner_up = ONE_CLUSTER, by_criterion[0]
    else:
        likely = [each for each in candidates if mixtures[each.n_clusters].criterion >= (1 - AS_LIKELY) * largest]
        chosen = min(likely, key=lambda each: each.n_clusters)
        runner_up = next((each for each in by_criterion if each is not chosen), ONE_CLUSTER)
    return replace(
        choice,
        labels=look.labels_of(chosen)[look.belongs],
        chosen=chosen,
        runner_up=runner_up,
        candidates=tuple(sorted([*choice.candidates, *candidates], key=lambda each: (each.n_clusters, each.hierarchy))),
        stands_apart=False,
        look=look,
    )


class Mixed(NamedTuple):
    """A mixture of Gaussians with one covariance."""

    labels: IntArray  # (n,) the cluster that most of each micro-cluster is of
    criterion: float  # integrated classification likelihood of a row, more than that of one Gaussian


def mixtures_of(micro: MicroClusters, noise: float, rng: np.random.Generator, max_clusters: int) -> dict[int, Mixed]:
    """The best mixture for each number of clusters from 2 on, by counts with noise of this deviation."""
    weights = micro.counts.astype(float)
    shares = weights / weights.sum()
    q, n_rows = micro.means.shape[1], float(weights.sum())
    one = classified(micro, np.zeros(len(micro), dtype=np.int64)).criterion
    found: dict[int, Mixed] = {}
    for k in range(2, min(max_clusters, MOST_MIXED, len(micro) // CELLS_A_CLUSTER) + 1):
        penalty = (k - 1) * (q + 1) * log(n_rows) / (2 * n_rows)
        for _ in range(MIXTURE_STARTS):
            start = kmeans(micro.means, k, rng, weights=shares).labels
            mixed = classified(micro, np.unique(start, return_inverse=True)[1])
            n_clusters = int(mixed.labels.max()) + 1
            mixed = mixed._replace(criterion=mixed.criterion - one - penalty)
            is_best = n_clusters not in found or mixed.criterion > found[n_clusters].criterion
            if n_clusters > 1 and is_best and stand_out(micro, mixed.labels, noise):
                found[n_clusters] = mixed
    return found


def stand_out(micro: MicroClusters, labels: IntArray, noise: float) -> bool:
    """Whether every cluster has more rows than the noise of the counts of its cells makes up."""
    least = LEAST_ROWS * noise * np.sqrt(np.bincount(labels))
    return bool((np.bincount(labels, micro.counts) >= least).all())


def classified(micro: MicroClusters, labels: IntArray) -> Mixed:
    """The mixture that starts from these clusters, and its classification likelihood a row.

    A micro-cluster is taken as so many rows about its mean, alike in all directions; the expected log density of one
    says how much of it belongs to each cluster.
    """
    q = micro.means.shape[1]
    weights = micro.counts / micro.counts.sum()
    inside = micro.variances / q
    gaps = micro.means - weights @ micro.means
    ridge = MIXTURE_RIDGE * float(weights @ (np.vecdot(gaps, gaps) / q + inside)) + float(np.finfo(float).tiny)
    shares = np.eye(int(labels.max()) + 1)[labels]
    before = -np.inf
    for _ in range(MIXTURE_STEPS):
        weighed = shares * weights[:, None]
        sizes = np.maximum(weighed.sum(axis=0), np.finfo(float).tiny)
        means = weighed.T @ micro.means / sizes[:, None]
        offsets = micro.means[:, None] - means
        covariance = np.einsum("nk,nki,nkj->ij", weighed, offsets, offsets)
        covariance += (float(weights @ inside) + ridge) * np.eye(q)
        inverse = np.linalg.inv(covariance)
        squared = np.einsum("nki,ij,nkj->nk", offsets, inverse, offsets) + inside[:, None] * np.trace(inverse)
        joint = np.log(sizes) - 0.5 * (squared + np.linalg.slogdet(covariance)[1])
        each = logsumexp(joint, axis=1)
        shares = np.exp(joint - each[:, None])
        likelihood = float(weights @ each)
        if likelihood - before < LEAST_GAIN:
            break
        before = likelihood
    entropy = -float(weights @ xlogy(shares, shares).sum(axis=1))
    return Mixed(np.unique(shares.argmax(axis=1), return_inverse=True)[1], likelihood - entropy)
