"""X-means: k-means whose clusters split in two while that improves BIC.

D. Pelleg and A. Moore, "X-means: extending k-means with efficient estimation of the number of clusters", ICML 2000.
K clusters of N rows are scored as spherical Gaussians with one variance ``s^2 = W / (d (N - K))``, where W sums the
squared distances to the K centers::

    fit(K) = sum_k n_k log(n_k / N) - N d / 2 log(2 pi s^2),    p = (K - 1) + K d + 1
    BIC(K) = fit(K) - d (N - K) / 2 - p / 2 log N

A split, from K = 1 to 2, is made if it raises the score of pyclustering, the program behind the paper's figures, which
adds up one BIC a center and so charges the penalty K times::

    score(K) = fit(K) - (N - K^2) / 2 - K p / 2 log N

BIC itself finds several times the paper's counts. Dividing ``s^2`` by d or not, on which programs differ, changes no
split: both sides shift alike.
"""

from collections.abc import Mapping
from math import log, pi
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from koncord._progress import report
from koncord._random import RandomState, as_generator
from koncord._threads import one_thread
from koncord._validation import check_count, check_magnitude, check_number
from koncord.estimate.kmeans import (
    PartitionMixin,
    grow,
    partition_components,
    seed_centers,
    seed_halves,
    two_means,
    unit_rows,
)
from koncord.kernels.splitting import VARIANCE_FLOOR
from koncord.types import FloatArray, IntArray

# What the paper ran: pyclustering, which cannot answer one cluster.
XMEANS_PAPER: Mapping[str, Any] = {"min_components": 2}


class XMeans(PartitionMixin):
    """X-means estimator of the number of clusters in one table.

    Parameters
    ----------
    min_components : int, default 1
        Fewest clusters, unless there are fewer distinct rows. The search starts from as many, drawn by k-means++. For 1
        it starts from two, as two clusters out of many need not be better than one, and answers one cluster where BIC
        prefers it to what was found.
    max_components : int, default 200
        Most clusters; the splits of the last pass are made in the order of the clusters.
    tolerance : float, default 0.01
        K-means stops when no center moves by more than this, in standard deviations of the table (the root of the mean
        variance of its columns).
    random_state : int, numpy.random.Generator or None, default None
        Seed of the k-means++ starts.

    Attributes
    ----------
    n_components_ : int
        Number of clusters, k.
    means_ : ndarray of shape (k, d)
        Means of the clusters.
    variances_ : ndarray of shape (k,)
        Their variances.
    counts_ : ndarray of shape (k,)
        Their rows.
    weights_ : ndarray of shape (k,)
        Their shares of the rows.
    labels_ : ndarray of int
        Cluster of every training row; ``counts_`` and ``means_`` are those of these rows.

    Notes
    -----
    A variance counts as at least 1e-6 of that of the same rows as one cluster, so duplicate rows, constant columns and
    fewer rows than columns are all right. Rows that are one point, or two rows, never split.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> koncord.XMeans(random_state=0).fit(X).n_components_
    3
    """

    def __init__(
        self,
        min_components: int = 1,
        max_components: int = 200,
        tolerance: float = 0.01,
        random_state: RandomState = None,
    ) -> None:
        self.min_components = min_components
        self.max_components = max_components
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = check_magnitude(validate_data(self, X, dtype=float), owner=self)
        max_components = check_count("max_components", self.max_components, owner=self)
        min_components = check_count("min_components", self.min_components, owner=self)
        if min_components > max_components:
            raise ValueError(
                f"'min_components' of XMeans must be at most 'max_components' ({max_components}); got {min_components}."
            )
        tolerance = check_number("tolerance", self.tolerance, owner=self, least=0)
        rng = as_generator(self.random_state)
        with one_thread():
            table = unit_rows(X)
            labels = np.zeros(len(X), dtype=np.int64)
            if max_components > 1:
                found = grow(
                    table,
                    seed_centers(table.rows, max(min_components, 2), rng),
                    lambda rows: halves_if_bic_improves(rows, tolerance, rng),
                    max_components=max_components,
                    tolerance=tolerance,
                )
                if min_components > 1 or is_better_than_one(table.rows, found):
                    labels = found
        report(1.0)
        self._learn(X, labels)
        return self


def halves_if_bic_improves(X: FloatArray, tolerance: float, rng: np.random.Generator) -> FloatArray | None:
    """Centers of the two halves of rows that sum to zero, (2, n_features), or None where BIC prefers one cluster."""
    n, d = X.shape
    if n <= 2:
        return None
    halves = two_means(X, seed_halves(X, rng), tolerance=tolerance)
    if halves.counts.min() == 0:
        return None
    scatter = float((X**2).sum())
    floor = VARIANCE_FLOOR * scatter / (n * d)
    one = split_score(np.array([n]), scatter, d, floor)
    two = split_score(halves.counts, scatter - halves.explained, d, floor)
    return halves.centers if two > one else None


def is_better_than_one(X: FloatArray, labels: IntArray) -> bool:
    """Whether BIC prefers the labels to one cluster, for rows that sum to zero."""
    n, d = X.shape
    clusters = partition_components(X, labels)
    if len(clusters) in (1, n):
        return False
    scatter = float((X**2).sum())
    floor = VARIANCE_FLOOR * scatter / (n * d)
    return bic(clusters.counts, float(clusters.scatters.sum()), d, floor) > bic(np.array([n]), scatter, d, floor)


def split_score(counts: IntArray, scatter: float, d: int, floor: float) -> float:
    """What a split has to raise; the arguments are those of `goodness_of_fit`."""
    n, k = int(counts.sum()), len(counts)
    return goodness_of_fit(counts, scatter, d, floor) - 0.5 * (n - k**2) - 0.5 * k * n_parameters(k, d) * log(n)


def bic(counts: IntArray, scatter: float, d: int, floor: float) -> float:
    """BIC of Pelleg and Moore, the larger the better; the arguments are those of `goodness_of_fit`."""
    n, k = int(counts.sum()), len(counts)
    return goodness_of_fit(counts, scatter, d, floor) - 0.5 * d * (n - k) - 0.5 * n_parameters(k, d) * log(n)


def goodness_of_fit(counts: IntArray, scatter: float, d: int, floor: float) -> float:
    """fit(K) of clusters with `counts` rows and together `scatter` around their means, with a variance >= `floor`."""
    n, k = int(counts.sum()), len(counts)
    variance = max(scatter / (d * (n - k)), floor)
    return float(counts @ np.log(counts / n)) - 0.5 * n * d * log(2 * pi * variance)


def n_parameters(k: int, d: int) -> int:
    return (k - 1) + k * d + 1
