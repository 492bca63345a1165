"""Gaussian clusters from micro-clusters: expectation-maximisation at the server, without an exchange.

A micro-cluster stands for rows that the server does not see. It is taken as so many rows with its mean and with the
covariance that its client's rows have inside micro-clusters, scaled to the scatter of the micro-cluster. The expected
log density of such a row under each cluster says how much of the micro-cluster belongs there. Clients hold different
clusters, so each has mixing weights of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.separation import ridged, shape_of
from koncord.kernels.gaussians import Gaussians
from koncord.types import FloatArray, IntArray

# Directions with less than this share of the mean variance are left out of the covariances; and the most that are kept.
LEAST_VARIANCE, MOST_AXES = 0.05, 16
# Share of the common weights in those of a client: a cluster that it has not shown may be there all the same.
COMMON_SHARE = 0.05
# Steps of the fit, and the largest change of a share of a micro-cluster that ends them.
MOST_STEPS, TOLERANCE = 30, 1e-4
# Steps of a fit that is only compared with another one.
INFORMATION_STEPS = 15


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


def fit_gaussians(parts: Parts, labels: IntArray) -> tuple[Gaussians, FloatArray]:
    """The mixture that starts from the clusters `labels`, and the share (n, k) of each micro-cluster in each."""
    k = int(labels.max()) + 1
    shares = np.eye(k)[labels]
    for _ in range(MOST_STEPS):
        fitted = maximised(parts, shares)
        before, shares = shares, expected(parts, fitted, shares)
        if np.abs(shares - before).max() < TOLERANCE:
            break
    # A cluster may lose all of its micro-clusters to others; one that some micro-cluster is most of stays.
    is_most = np.bincount(shares.argmax(axis=1), minlength=k) > 0
    kept = is_most | (parts.counts @ shares >= 1)
    shares = shares[:, kept] / shares[:, kept].sum(axis=1, keepdims=True)
    return maximised(parts, shares), shares


def parts_of(reports: Sequence[MicroClusters], scales: FloatArray) -> Parts:
    """Micro-clusters of several clients; `scales` weighs the columns where axes are left out."""
    counts = np.concatenate([each.counts for each in reports]).astype(float)
    full = np.concatenate([each.means for each in reports])
    variances = np.concatenate([each.variances for each in reports if len(each)])
    clients = np.repeat(np.arange(len(reports)), [len(each) for each in reports])
    shapes = np.array([shape_of(each.covariance_inside()) for each in reports])
    weights = counts / counts.sum()
    centred = full - weights @ full
    gaps = centred * scales
    by_client = np.bincount(clients, weights * variances, minlength=len(reports))
    inside = np.einsum("c,cij->ij", by_client, shapes) * scales[:, None] * scales
    values, vectors = np.linalg.eigh((gaps * weights[:, None]).T @ gaps + inside)
    n_kept = int(np.clip((values > LEAST_VARIANCE * values.mean()).sum(), min(2, len(values)), MOST_AXES))
    axes = (vectors[:, ::-1][:, :n_kept] * scales[:, None]).T
    means = centred @ axes.T  # about the mean of all rows: their squares must not drown the covariances
    covariances = variances[:, None, None] * (axes @ shapes @ axes.T)[clients]
    moments = counts[:, None, None] * (covariances + means[:, :, None] * means[:, None, :])
    return Parts(
        counts=counts,
        full=full,
        means=means,
        covariances=covariances,
        moments=moments.reshape(len(counts), -1),
        clients=clients,
        axes=axes,
        variance=float(np.trace(np.einsum("n,nij->ij", weights, moments / counts[:, None, None]))) / n_kept,
    )


def maximised(parts: Parts, shares: FloatArray) -> Gaussians:
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
    k = len(fitted.weights)
    own = np.zeros((int(parts.clients.max()) + 1, k))
    np.add.at(own, parts.clients, shares * parts.counts[:, None])
    own /= np.maximum(own.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    own = (1 - COMMON_SHARE) * own + COMMON_SHARE * fitted.weights
    inverses = np.linalg.inv(fitted.covariances)
    inside = np.einsum("nij,kji->nk", parts.covariances, inverses)
    densities = fitted.whitening().log_peaks - 0.5 * (fitted.squared_distances(parts.full) + inside)
    found: FloatArray = densities + np.log(np.maximum(own, np.finfo(float).tiny))[parts.clients]
    return found


def information(micro: MicroClusters, labels: IntArray) -> float:
    """The Bayesian information criterion of the mixture that starts from the clusters `labels`; less is better.

    Rows count, not micro-clusters; all are taken as of one client.
    """
    parts = parts_of([micro], np.ones(micro.means.shape[1]))
    k, q = int(labels.max()) + 1, len(parts.axes)
    shares = np.eye(k)[labels]
    for _ in range(INFORMATION_STEPS):
        fitted = maximised(parts, shares)
        joint = log_joint(parts, fitted, shares)
        likelihoods = logsumexp(joint, axis=1)
        shares = np.exp(joint - likelihoods[:, None])
    n_parameters = k - 1 + k * q + k * q * (q + 1) / 2
    return float(n_parameters * np.log(parts.counts.sum()) - 2 * parts.counts @ likelihoods)
