"""What every spherical mixture of this package can tell about new rows."""

from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from koncord.kernels.assign import nearest
from koncord.types import FloatArray, IntArray


class NearestMeanMixin(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """`predict` of an estimator that has `means_`: the component whose mean is nearest, as in the paper."""

    means_: FloatArray

    def predict(self, X: FloatArray) -> IntArray:
        """Index of the nearest component mean of every row."""
        check_is_fitted(self)
        return nearest(validate_data(self, X, dtype=float, reset=False), self.means_)


class SphericalMixtureMixin(NearestMeanMixin):
    """Densities of an estimator that has `means_`, `variances_` and `weights_`."""

    variances_: FloatArray
    weights_: FloatArray

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Probability of every component for every row under the mixture, (n_samples, n_components)."""
        joint = self._joint_log_density(X)
        probability: FloatArray = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        return probability

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Log density of every row under the mixture."""
        density: FloatArray = logsumexp(self._joint_log_density(X), axis=1)
        return density

    def score(self, X: FloatArray, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())

    def _joint_log_density(self, X: FloatArray) -> FloatArray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=float, reset=False)
        return joint_log_density(X, self.means_, self.variances_, self.weights_)


def joint_log_density(X: FloatArray, means: FloatArray, variances: FloatArray, weights: FloatArray) -> FloatArray:
    """``log w_k + log N(x | mu_k, s_k^2 I)``, (n_samples, n_components)."""
    origin = means.mean(axis=0)
    X, means = X - origin, means - origin
    squared = np.vecdot(X, X)[:, None] - 2 * X @ means.T + np.vecdot(means, means)
    d = X.shape[1]
    joint: FloatArray = (
        np.log(weights) - 0.5 * d * np.log(2 * np.pi * variances) - 0.5 * np.maximum(squared, 0) / variances
    )
    return joint
