"""The Dirichlet process of scikit-learn for spherical components, with less arithmetic: same start, same iterations.

`BayesianGaussianMixture` starts the six concentrations of the paper's grid from the same k-means and makes each array
of rows by components several times an iteration. Here the start is made once, and an iteration is two matrix products
and one exponential. Numbers differ from scikit-learn's in rounding alone; a test compares them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Any, Self

import numpy as np
from scipy.special import betaln, digamma, gammaln
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.mixture import BayesianGaussianMixture

from koncord._random import as_generator, draw_seed
from koncord._threads import one_thread
from koncord.estimate.dpgmm import DPGMM, Mixture
from koncord.estimate.kmeans import unit_rows
from koncord.types import FloatArray, IntArray

SKLEARN = BayesianGaussianMixture()
TOLERANCE, REGULARISATION = SKLEARN.tol, SKLEARN.reg_covar
# Added to every mass by scikit-learn, against a division by zero.
TINY = 10 * float(np.finfo(float).eps)
# Floats in one block of rows by components, so that it stays in the cache.
BLOCK_FLOATS = 1 << 17


class SharedDPGMM(DPGMM):
    """`koncord.DPGMM` whose settings share one k-means start and whose iterations are cheap."""

    def fit_each(self, X: FloatArray, settings: Iterable[Mapping[str, Any]]) -> Iterator[Self]:
        """Fitted clones of this estimator, one for each of `settings`, in order."""
        starts: dict[tuple[int, int], IntArray] = {}
        mixtures: dict[tuple[Any, ...], Mixture] = {}
        for changes in settings:
            fitted = clone(self).set_params(**changes)
            shared = tuple(value for name, value in fitted.get_params().items() if name != "weight_threshold")
            if shared not in mixtures:
                mixtures[shared] = fitted._mixture(X, starts)
            fitted._prune(X, mixtures[shared])
            yield fitted

    def _mixture(self, X: FloatArray, starts: dict[tuple[int, int], IntArray] | None = None) -> Mixture:
        table = unit_rows(X)
        if table.scale == 0:
            return super()._mixture(X)
        n_components, seed = min(self.truncation, len(X)), self._start_seed()
        starts = {} if starts is None else starts
        with one_thread():
            if (n_components, seed) not in starts:
                starts[n_components, seed] = kmeans_start(table.rows, n_components, seed)
            found = fit_process(table.rows, starts[n_components, seed], n_components, self.concentration, self.max_iter)
        return Mixture(
            means=table.origin + table.scale * found.means,
            variances=table.scale**2 * found.variances,
            weights=found.weights,
            labels=found.labels,
            is_converged=found.is_converged,
            n_iter=found.n_iter,
        )

    def _start_seed(self) -> int:
        return draw_seed(as_generator(self.random_state))


class SeededDPGMM(SharedDPGMM):
    """`SharedDPGMM` that hands its `random_state`, an integer, to scikit-learn as it is."""

    def _start_seed(self) -> int:
        return int(self.random_state)  # type: ignore[arg-type]


def kmeans_start(X: FloatArray, n_components: int, seed: int) -> IntArray:
    """Labels that `BayesianGaussianMixture(random_state=seed)` starts from."""
    labels: IntArray = KMeans(n_components, n_init=1, random_state=np.random.RandomState(seed)).fit(X).labels_
    return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Parameters of the variational posterior; one entry a component."""

    first: FloatArray  # of the beta distribution of its piece of the stick
    second: FloatArray
    mean_precision: FloatArray
    means: FloatArray  # (k, d)
    freedom: FloatArray
    variances: FloatArray


def fit_process(X: FloatArray, start: IntArray, n_components: int, concentration: float, max_iter: int) -> Mixture:
    """Variational iterations until the bound moves by less than the tolerance, or `max_iter`."""
    d = X.shape[1]
    wide = np.concatenate([X, np.vecdot(X, X)[:, None], np.ones((len(X), 1))], axis=1)
    prior_mean, prior_variance = X.mean(axis=0), float(X.var(axis=0, ddof=1).mean())

    def posterior_of(sums: FloatArray) -> Posterior:
        return posterior(sums, prior_mean, prior_variance, concentration)

    one_hot = np.zeros((n_components, d + 2))
    np.add.at(one_hot, start, wide)
    found, bound, is_converged = posterior_of(one_hot), -np.inf, False
    n_iter = 0
    while n_iter < max_iter and not is_converged:
        n_iter += 1
        sums, entropy = expected_sums(wide, log_densities(found))
        found = posterior_of(sums)
        before, bound = bound, entropy + bound_of(found, d)
        is_converged = abs(bound - before) < TOLERANCE
    return Mixture(
        means=found.means,
        variances=found.variances,
        weights=stick_weights(found),
        labels=most_probable(wide, log_densities(found)),
        is_converged=is_converged,
        n_iter=n_iter,
    )


def posterior(sums: FloatArray, prior_mean: FloatArray, prior_variance: float, concentration: float) -> Posterior:
    """M step, from the expected sums of the rows, of their squared lengths, and their counts."""
    d = len(prior_mean)
    masses = sums[:, d + 1] + TINY
    row_means = sums[:, :d] / masses[:, None]
    spread = (sums[:, d] / masses - np.vecdot(row_means, row_means)) / d + REGULARISATION
    mean_precision = 1.0 + masses
    freedom = d + masses
    offset = row_means - prior_mean
    variances = prior_variance + masses * (spread + np.vecdot(offset, offset) / d / mean_precision)
    return Posterior(
        first=1.0 + masses,
        second=concentration + np.append(np.cumsum(masses[::-1])[-2::-1], 0.0),
        mean_precision=mean_precision,
        means=(prior_mean + masses[:, None] * row_means) / mean_precision[:, None],
        freedom=freedom,
        variances=variances / freedom,
    )


def log_densities(found: Posterior) -> FloatArray:
    """Coefficients (d + 2, k): a row, its squared length and one, times these, is its expected log density."""
    d = found.means.shape[1]
    precision = 1 / found.variances
    both = digamma(found.first + found.second)
    log_weights = digamma(found.first) - both + np.append(0.0, np.cumsum(digamma(found.second) - both)[:-1])
    log_lambda = d * log(2) + digamma(0.5 * (found.freedom - np.arange(d)[:, None])).sum(axis=0)
    log_gauss = -0.5 * d * (log(2 * np.pi) + np.log(found.variances) + np.log(found.freedom))
    constant = log_weights + log_gauss + 0.5 * (log_lambda - d / found.mean_precision)
    constant -= 0.5 * precision * np.vecdot(found.means, found.means)
    return np.vstack([(precision[:, None] * found.means).T, -0.5 * precision, constant])


def blocks_of(wide: FloatArray, n_components: int) -> Iterator[FloatArray]:
    size = max(BLOCK_FLOATS // n_components, 1)
    return (wide[at : at + size] for at in range(0, len(wide), size))


def expected_sums(wide: FloatArray, coefficients: FloatArray) -> tuple[FloatArray, float]:
    """E step: sums of the rows by responsibility (k, d + 2), and the entropy of the responsibilities."""
    sums = np.zeros(coefficients.T.shape)
    entropy = 0.0
    for block in blocks_of(wide, coefficients.shape[1]):
        logs = block @ coefficients
        logs -= logs.max(axis=1, keepdims=True)
        shares = np.exp(logs)
        totals = shares.sum(axis=1)
        sums += shares.T @ (block / totals[:, None])
        entropy += float(np.log(totals).sum() - (np.vecdot(shares, logs) / totals).sum())
    return sums, entropy


def most_probable(wide: FloatArray, coefficients: FloatArray) -> IntArray:
    return np.concatenate([(block @ coefficients).argmax(axis=1) for block in blocks_of(wide, coefficients.shape[1])])


def bound_of(found: Posterior, d: int) -> float:
    """The lower bound without the entropy and without constants, as scikit-learn has it."""
    log_det = -0.5 * d * (np.log(found.variances) + np.log(found.freedom))
    gammas = gammaln(0.5 * (found.freedom - np.arange(d)[:, None])).sum(axis=0)
    log_wishart = -(found.freedom * log_det + found.freedom * d * 0.5 * log(2) + gammas).sum()
    log_beta = -betaln(found.first, found.second).sum()
    return float(-log_wishart - log_beta - 0.5 * d * np.log(found.mean_precision).sum())


def stick_weights(found: Posterior) -> FloatArray:
    total = found.first + found.second
    weights = found.first / total * np.append(1.0, np.cumprod(found.second / total)[:-1])
    shares: FloatArray = weights / weights.sum()
    return shares
