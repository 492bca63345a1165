"""Gaussian clusters from micro-clusters: expectation-maximization at the server, without an exchange.

A micro-cluster stands for rows that the server does not see. It is taken as so many rows with its mean and with the
covariance that its client's rows have inside micro-clusters, scaled to the scatter of the micro-cluster. The expected
log density of such a row under each cluster says how much of the micro-cluster belongs there. Clients hold different
clusters, so each has mixing weights of its own.

A micro-cluster at the border of two clusters is part of both, which its mean alone does not show. So the fit goes on
with rows drawn from the micro-clusters: from the clusters as they were chosen, from the first fit, and from drawn
micro-clusters, for clusters that run into each other have several fits that no step improves. The likeliest is kept,
unless it joins clusters that are clearly apart. Tails are those of a t distribution while it goes on, so that far rows
do not shape a cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from koncord._jobs import spread
from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.separation import LEAST_RIDGE, NO_VARIANCE, ridged, second_moments, shape_of
from koncord.kernels.assign import nearest
from koncord.kernels.gaussians import Gaussians
from koncord.types import BoolArray, FloatArray, IntArray

# Directions with less than this share of the mean variance are left out of the covariances; and the most that are kept.
LEAST_VARIANCE, MOST_AXES = 0.05, 16
# Share of the common weights in those of a client: a cluster that it has not shown may be there all the same.
COMMON_SHARE = 0.05
# Steps of the fit, and the largest change of a share of a micro-cluster that ends them.
MOST_STEPS, TOLERANCE = 30, 1e-4
# Rows drawn from a micro-cluster at least and at most, an even number; from all of them, where that allows it; and the
# same times the number of clusters.
DRAWN_ROWS_EACH, DRAWN_ROWS, DRAWN_DENSITIES = (4, 32), 24_000, 1_000_000
# Steps of the fit to drawn rows; and how many times more than of real rows clusters lean on the common covariance.
DRAWN_STEPS, DRAWN_PRIOR = 12, 5
# Fits that start from drawn clusters: at most so many, and fewer of many clusters, where hardly any of them is good.
MOST_STARTS, DRAWN_CLUSTERS = 8, 60
# Degrees of freedom of the clusters while they are fitted to drawn rows: tails heavier than a Gaussian's.
TAIL = 12.0
# By how much a fit from drawn clusters must be likelier than the best one before it, a row.
LEAST_GAIN = 0.05
# Share of two clusters that must be in one of a fit for the fit to join them.
JOINED = 0.5
# A cluster with this share of all rows holds most of them, and is not cut by a fit: less than this share of a cluster
# that is cut stays together.
MOST_ROWS, KEPT = 0.7, 0.95
# Share of the rows outside the largest cluster that are in the main cluster of their client: from here on the clients
# say which micro-clusters belong together.
TOLD_BY_CLIENTS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Micro-clusters of several clients along common axes, with second moments that can be summed by cluster."""

    counts: FloatArray  # (n,)
    full: FloatArray  # (n, d) means in all columns
    means: FloatArray  # (n, q) along the axes, about the mean of all rows
    covariances: FloatArray  # (n, q, q) of the rows inside each micro-cluster, along the axes
    moments: FloatArray  # (n, q * q) count times second moment
    clients: IntArray  # (n,)
    axes: FloatArray  # (q, d)
    variance: float  # mean variance of all rows along the axes


def fit_gaussians(
    parts: Parts, labels: IntArray, rng: np.random.Generator, is_apart: BoolArray | None = None
) -> tuple[Gaussians, FloatArray]:
    """The mixture that starts from the clusters `labels`, and the share (n, k) of each micro-cluster in each.

    `is_apart` (k, k) says which clusters are clearly apart. Where all are, they are shaped as they are: a fit can only
    gain where clusters overlap, and would give a heavy tail a cluster of its own. So they are where nearly every client
    holds a single cluster: micro-clusters of one client belong together, whatever a density says; and where a mixture
    would have more parameters than there are rows. A fit that joins two clusters that are clearly apart, or cuts one
    that holds most of the rows, is not taken.
    """
    chosen = np.eye(int(labels.max()) + 1)[labels]
    k = chosen.shape[1]
    is_apart = np.eye(k, dtype=np.bool_) if is_apart is None else is_apart
    has_few_rows = parts.counts.sum() < n_parameters(k, len(parts.axes))
    if is_apart.all() or has_few_rows or told_by_clients(parts, chosen) >= TOLD_BY_CLIENTS:
        return maximized(parts, chosen), chosen
    rows = drawn_rows(parts, rng, min(DRAWN_ROWS, DRAWN_DENSITIES // k))
    starts = spread(partial(fit_to_means, parts), [chosen, *drawn_starts(parts, k, rng)])
    best, *others = spread(partial(fit_to_rows, rows, variance=parts.variance), [chosen, *starts])
    rows_of = parts.counts @ chosen
    holds_most = rows_of >= MOST_ROWS * rows_of.sum()
    for fit, least in zip(others, [0.0, *[LEAST_GAIN] * (len(others) - 1)], strict=True):
        in_fit = rows_in(parts, labels, fit.shares)
        is_spoiled = (joined(in_fit) & is_apart).any() or are_cut(in_fit)[holds_most].any()
        if fit.likelihood > best.likelihood + least and not is_spoiled:
            best = fit
    shares = best.shares
    if are_cut(rows_in(parts, labels, shares))[holds_most].any():
        return maximized(parts, chosen), chosen
    # A cluster may lose all of its micro-clusters to others: a few rows of each are no cluster.
    kept = np.bincount(shares.argmax(axis=1), minlength=k) > 0
    shares = shares[:, kept]
    gaussians = Gaussians(
        centers=centers_of(parts, shares, best.means[kept]),
        axes=parts.axes,
        covariances=best.covariances[kept],
        weights=best.counts[kept] / best.counts[kept].sum(),
    )
    return gaussians, shares / shares.sum(axis=1, keepdims=True)


def rows_in(parts: Parts, labels: IntArray, shares: FloatArray) -> FloatArray:
    """Rows (k, k_fit) of each cluster of `labels` in each cluster of a fit with these `shares` (n, k_fit)."""
    rows = np.zeros((int(labels.max()) + 1, shares.shape[1]))
    np.add.at(rows, labels, shares * parts.counts[:, None])
    return rows


def joined(rows: FloatArray) -> BoolArray:
    """Whether one cluster of a fit has most of the `rows` (k, k_fit) of both, for every two clusters."""
    parts = rows / rows.sum(axis=1, keepdims=True)
    found = np.asarray((np.minimum(parts[:, None], parts) > JOINED).any(axis=2))
    np.fill_diagonal(found, False)
    return found


def are_cut(rows: FloatArray) -> BoolArray:
    """Which clusters are in pieces in a fit that has these `rows` (k, k_fit) of them.

    Too few of them stay together, or one more cluster of the fit is mostly theirs: a rare cluster beside one of most
    rows would grow to be a piece of it, where the large one is no Gaussian.
    """
    is_another = np.arange(rows.shape[1]) != rows.argmax(axis=1)[:, None]
    is_theirs = 2 * rows > rows.sum(axis=0)
    found: BoolArray = (rows.max(axis=1) < KEPT * rows.sum(axis=1)) | (is_another & is_theirs).any(axis=1)
    return found


def told_by_clients(parts: Parts, shares: FloatArray) -> float:
    """How much better than by the largest cluster the cluster of a row is guessed where its client is known, 0 to 1.

    This is the lambda of Goodman and Kruskal (1954); 0 of a single cluster.
    """
    rows = np.zeros((int(parts.clients.max()) + 1, shares.shape[1]))
    np.add.at(rows, parts.clients, shares * parts.counts[:, None])
    total, largest = rows.sum(), rows.sum(axis=0).max()
    return float((rows.max(axis=1).sum() - largest) / (total - largest)) if total > largest else 0.0


def fit_to_means(parts: Parts, shares: FloatArray) -> FloatArray:
    """Shares (n, k) of the micro-clusters by the expected log density of one of their rows."""
    for _ in range(MOST_STEPS):
        before, shares = shares, expected(parts, maximized(parts, shares), shares)
        if np.abs(shares - before).max() < TOLERANCE:
            break
    return shares


def drawn_starts(parts: Parts, k: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Shares (n, k) to start from: every micro-cluster goes with the nearest of k that are drawn.

    Distances are in units of the covariance of all rows. Clusters that run into each other have several fits that no
    step improves, and the one next to the chosen clusters need not be the best.
    """
    white = whitened(parts)
    for _ in range(min(DRAWN_CLUSTERS // k, MOST_STARTS)):
        drawn = white[rng.choice(len(white), k, replace=False)]
        yield np.eye(k)[nearest(white, drawn)]


def whitened(parts: Parts) -> FloatArray:
    """Means (n, q) of the micro-clusters in units of the covariance of all rows."""
    total = parts.moments.sum(axis=0).reshape(len(parts.axes), -1) / parts.counts.sum()
    root = np.linalg.cholesky(ridged(total, parts.variance))
    found: FloatArray = np.linalg.solve(root, parts.means.T).T
    return found


# --- rows drawn from the micro-clusters ---


class Rows(NamedTuple):
    """Rows along the axes of the mixture, equally many of each micro-cluster and in their order."""

    X: FloatArray  # (m, q)
    weights: FloatArray  # (m,) rows of a client that each stands for
    clients: IntArray  # (m,)


class RowFit(NamedTuple):
    """A mixture of drawn rows."""

    shares: FloatArray  # (n, k) of each micro-cluster that rows were drawn from in each cluster
    counts: FloatArray  # (k,)
    means: FloatArray  # (k, q)
    covariances: FloatArray  # (k, q, q)
    likelihood: float  # mean log density of a row, but for a constant


def drawn_rows(parts: Parts, rng: np.random.Generator, n_rows: int) -> Rows:
    """About `n_rows` with the mean of their micro-cluster and, on average, its covariance; each has a mirror image."""
    n, q = parts.means.shape
    n_each = 2 * int(np.clip(n_rows // n, *DRAWN_ROWS_EACH) // 2)
    half = rng.standard_normal((n, n_each // 2, q))
    normal = np.concatenate([half, -half], axis=1)
    normal /= np.sqrt((normal**2).mean(axis=1, keepdims=True))
    least = max(LEAST_RIDGE * parts.variance, NO_VARIANCE)
    roots = np.linalg.cholesky(parts.covariances + least * np.eye(q))
    X = parts.means[:, None] + np.einsum("nij,nrj->nri", roots, normal)
    return Rows(X.reshape(-1, q), np.repeat(parts.counts / n_each, n_each), np.repeat(parts.clients, n_each))


def fit_to_rows(rows: Rows, shares: FloatArray, variance: float) -> RowFit:
    """The mixture that starts from the shares (n, k) of the micro-clusters that the rows were drawn from.

    The clusters are fitted as t distributions, in which a row counts the less the farther off it is (Peel and
    McLachlan, 2000), so that the tails of one do not shape it, nor need another one.
    """
    n = len(shares)
    shares = np.repeat(shares, len(rows.X) // n, axis=0)
    pulls = np.ones_like(shares)
    q = rows.X.shape[1]
    for left in reversed(range(DRAWN_STEPS)):
        counts, means, covariances = moments_of(rows, shares, pulls, variance)
        own = weights_of_clients(rows.clients, shares * rows.weights[:, None], counts / counts.sum())
        mixture = Gaussians(centers=means, axes=np.eye(q), covariances=covariances, weights=counts / counts.sum())
        squared = mixture.squared_distances(rows.X)
        joint = mixture.whitening().log_peaks - 0.5 * (TAIL + q) * np.log1p(squared / TAIL) + np.log(own)[rows.clients]
        likelihoods = logsumexp(joint, axis=1)
        held, pulls = pulls, (TAIL + q) / (TAIL + squared)
        before, shares = shares, np.exp(joint - likelihoods[:, None])
        if not left or max(np.abs(shares - before).max(), np.abs(pulls - held).max()) < TOLERANCE:
            break
    # As large as the rows say, tails and all: the fit tells the shape only.
    weighed = before * squared * rows.weights[:, None]
    sizes = weighed.sum(axis=0) / np.maximum((weighed * held).sum(axis=0), np.finfo(float).tiny)
    covariances = covariances * np.maximum(sizes, 1.0)[:, None, None]
    of_micro = before.reshape(n, -1, before.shape[1]).mean(axis=1)
    return RowFit(of_micro, counts, means, covariances, float(rows.weights @ likelihoods / rows.weights.sum()))


def moments_of(
    rows: Rows, shares: FloatArray, pulls: FloatArray, variance: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Count (k,), mean (k, q) and covariance (k, q, q) of each cluster; small ones lean on the common covariance.

    `pulls` (m, k) is how much a row counts in mean and covariance.
    """
    counts = np.maximum(rows.weights @ shares, np.finfo(float).tiny)
    weighed = shares * pulls * rows.weights[:, None]
    totals = np.maximum(weighed.sum(axis=0), np.finfo(float).tiny)
    means = weighed.T @ rows.X / totals[:, None]
    seconds = np.array([(rows.X * own[:, None]).T @ rows.X for own in weighed.T])
    scatters = seconds - totals[:, None, None] * means[:, :, None] * means[:, None]
    tied = ridged(scatters.sum(axis=0) / counts.sum(), variance)
    prior = DRAWN_PRIOR * (rows.X.shape[1] + 1)
    covariances = (scatters + prior * tied) / (counts + prior)[:, None, None]
    return counts, means, (covariances + covariances.transpose(0, 2, 1)) / 2


def centers_of(parts: Parts, shares: FloatArray, means: FloatArray) -> FloatArray:
    """Centers (k, d) in all columns with these `means` (k, q) along the axes; elsewhere as the micro-clusters are."""
    weighed = shares * parts.counts[:, None]
    weighed = weighed / weighed.sum(axis=0)
    found: FloatArray = weighed.T @ parts.full + (means - weighed.T @ parts.means) @ np.linalg.pinv(parts.axes).T
    return found


# --- micro-clusters ---


def parts_of(reports: Sequence[MicroClusters], scales: FloatArray) -> Parts:
    """Micro-clusters of several clients; `scales` weighs the columns where axes are left out."""
    counts = np.concatenate([each.counts for each in reports]).astype(float)
    full = np.concatenate([each.means for each in reports])
    variances = np.concatenate([each.variances for each in reports if len(each)])
    clients = np.repeat(np.arange(len(reports)), [len(each) for each in reports])
    shapes = np.array([shape_of(each.covariance_inside()) for each in reports])
    weights = counts / counts.sum()
    centered = full - weights @ full
    gaps = centered * scales
    by_client = np.bincount(clients, weights * variances, minlength=len(reports))
    inside = np.einsum("c,cij->ij", by_client, shapes) * scales[:, None] * scales
    values, vectors = np.linalg.eigh((gaps * weights[:, None]).T @ gaps + inside)
    n_kept = int(np.clip((values > LEAST_VARIANCE * values.mean()).sum(), min(2, len(values)), MOST_AXES))
    axes = (vectors[:, ::-1][:, :n_kept] * scales[:, None]).T
    means = centered @ axes.T  # about the mean of all rows: their squares must not drown the covariances
    covariances = variances[:, None, None] * (axes @ shapes @ axes.T)[clients]
    moments = second_moments(counts, means, covariances)
    return Parts(
        counts=counts,
        full=full,
        means=means,
        covariances=covariances,
        moments=moments,
        clients=clients,
        axes=axes,
        variance=float(weights @ (moments[:, :: n_kept + 1] / counts[:, None]).sum(axis=1)) / n_kept,
    )


def maximized(parts: Parts, shares: FloatArray) -> Gaussians:
    """The mixture that fits best with these shares; small clusters lean on the covariance that all share."""
    q = len(parts.axes)
    weighed = shares * parts.counts[:, None]
    counts = np.maximum(weighed.sum(axis=0), np.finfo(float).tiny)
    means = weighed.T @ parts.means / counts[:, None]
    scatters = (shares.T @ parts.moments).reshape(-1, q, q) - counts[:, None, None] * means[:, :, None] * means[:, None]
    tied = ridged(scatters.sum(axis=0) / counts.sum(), parts.variance)
    prior = q + 1
    covariances = (scatters + prior * tied) / (counts + prior)[:, None, None]
    return Gaussians(
        centers=weighed.T @ parts.full / counts[:, None],
        axes=parts.axes,
        covariances=(covariances + covariances.transpose(0, 2, 1)) / 2,
        weights=counts / counts.sum(),
    )


def expected(parts: Parts, fitted: Gaussians, shares: FloatArray) -> FloatArray:
    """Share (n, k) of each micro-cluster in each cluster, by the expected log density of one of its rows."""
    joint = log_joint(parts, fitted, shares)
    joint = np.exp(joint - joint.max(axis=1, keepdims=True))
    found: FloatArray = joint / joint.sum(axis=1, keepdims=True)
    return found


def log_joint(parts: Parts, fitted: Gaussians, shares: FloatArray) -> FloatArray:
    """Expected log density (n, k) of a row of each micro-cluster under each cluster, and of the cluster at its client.

    How often a cluster is at a client is what the `shares` of the micro-clusters say.
    """
    own = weights_of_clients(parts.clients, shares * parts.counts[:, None], fitted.weights)
    inverses = np.linalg.inv(fitted.covariances)
    inside = np.einsum("nij,kji->nk", parts.covariances, inverses)
    densities = fitted.whitening().log_peaks - 0.5 * (fitted.squared_distances(parts.full) + inside)
    found: FloatArray = densities + np.log(own)[parts.clients]
    return found


def weights_of_clients(clients: IntArray, rows: FloatArray, common: FloatArray) -> FloatArray:
    """Mixing weights (n_clients, k): what `rows` (n, k) say of each client, and a little of the `common` ones (k,)."""
    own = np.zeros((int(clients.max()) + 1, len(common)))
    np.add.at(own, clients, rows)
    own /= np.maximum(own.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    weights: FloatArray = np.maximum((1 - COMMON_SHARE) * own + COMMON_SHARE * common, np.finfo(float).tiny)
    return weights


def n_parameters(k: int, q: int) -> int:
    """Weights, means and covariances of a mixture of k Gaussians along q axes."""
    return k - 1 + k * q + k * q * (q + 1) // 2
