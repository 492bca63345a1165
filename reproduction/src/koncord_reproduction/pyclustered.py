"""X-means and G-means as pyclustering 0.10.1.2 runs them, with a seed: its compiled core, step by step.

The paper ran pyclustering (A. Novikov, "PyClustering: data mining library", Journal of Open Source Software 4, 2019).
Where its library for Linux can be loaded, `xmeans` and `gmeans` run in C++; with ``random_state`` given, its figures of
the paper's pooled table come back to the last printed digit. What differs from `koncord.XMeans` and `koncord.GMeans`,
and from the algorithms' papers:

- the generator, mt19937, is seeded anew for every k-means++ start: the same draws for every cluster in every pass;
- k-means stops when the largest *squared* move of a center is at most 0.001, whatever the units, or after 100 steps; a
  center without rows is dropped, and the moves of that step are those of centers that do not belong together;
- of five candidates (three in G-means) for the second center the farthest is taken;
- in X-means these distances are to a wrong row: the place of the first center *within its cluster* is read as a row of
  the whole table. The second center is far from a row that is not the first;
- its BIC has ``log(2 pi)`` once a row and not once a column, and a variance that is not divided by the columns;
- G-means has the critical value 1.092 / (1 + 4/n - 25/n^2), and its three repeats are copies of each other;
- X-means begins with two centers that Python's own generator draws.

Distances are matrix products and sums have NumPy's order, so the last bits may differ from pyclustering's.
"""

import random
from collections.abc import Callable
from math import log, pi
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import erfc
from sklearn.utils.validation import validate_data

from koncord._threads import one_thread
from koncord.estimate.kmeans import KMEANS_BLOCK_FLOATS, PartitionMixin, partition_means
from koncord.kernels.assign import nearest
from koncord.types import FloatArray, IntArray

TOLERANCE = 0.001  # of a squared move
MOST_STEPS = 100
XMEANS_CANDIDATES, GMEANS_CANDIDATES, FIRST_CANDIDATES = 5, 3, 3
CRITICAL_VALUE = 1.092


class Clusters(NamedTuple):
    """What a run of k-means ends with."""

    labels: IntArray  # (n_samples,)
    centers: FloatArray  # (k, n_features) the means of the rows with each label


class Seeded(PartitionMixin):
    """An estimator of pyclustering: most clusters and a seed."""

    def __init__(self, max_components: int = 200, random_state: int = 0) -> None:
        self.max_components = max_components
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); X-means needs two rows. `y` is ignored."""
        X = validate_data(self, X, dtype=float)
        with one_thread():
            self._learn(X, self._clusters(X).labels)
        return self

    def _clusters(self, X: FloatArray) -> Clusters:
        raise NotImplementedError


class PyXMeans(Seeded):
    """X-means of pyclustering.

    Parameters
    ----------
    max_components : int, default 200
        Most clusters, its `kmax`.
    random_state : int, default 0
        Its `random_state`; unlike there, 0 is a seed as well.

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
        Cluster of every training row.
    """

    def _clusters(self, X: FloatArray) -> Clusters:
        return xmeans_clusters(X, self.max_components, int(self.random_state))


class PyGMeans(Seeded):
    """G-means of pyclustering.

    Parameters
    ----------
    max_components : int, default 200
        Most clusters, its `k_max`.
    random_state : int, default 0
        Its `random_state`; unlike there, 0 is a seed as well.

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
        Cluster of every training row.
    """

    def _clusters(self, X: FloatArray) -> Clusters:
        return gmeans_clusters(X, self.max_components, int(self.random_state))


def xmeans_clusters(X: FloatArray, most: int, seed: int) -> Clusters:
    """Splits by BIC until a pass makes none, or more than `most` centers are there; then k-means once more."""
    centers = X[first_two(X, seed)] if len(X) > 1 else X
    n_before = len(centers)
    while n_before <= most:
        found = lloyd_steps(X, centers)
        centers = after_splits(X, found, most, lambda rows: bic_halves(X, rows, seed))
        if len(centers) == n_before:
            break
        n_before = len(centers)
    return lloyd_steps(X, centers)


def gmeans_clusters(X: FloatArray, most: int, seed: int) -> Clusters:
    """Splits by the test of normality until a pass makes none, or `most` centers are there."""
    found = lloyd_steps(X, X[:1] if len(X) == 1 else X[[Draws(seed).below(len(X))]])
    while len(found.centers) < most:
        centers = after_splits(X, found, most, lambda rows: tested_halves(X[rows], seed))
        if len(centers) == len(found.centers):
            break
        found = lloyd_steps(X, centers)
    return found


def after_splits(
    X: FloatArray, found: Clusters, most: int, halves_of: Callable[[IntArray], FloatArray | None]
) -> FloatArray:
    """Centers after one pass over the clusters, in order, while there is room; `halves_of` takes rows of X."""
    room = most - len(found.centers)
    order = np.argsort(found.labels, kind="stable")
    by_cluster = np.split(order, np.cumsum(np.bincount(found.labels))[:-1])
    centers: list[FloatArray] = []
    for rows, center in zip(by_cluster, found.centers, strict=True):
        halves = halves_of(rows) if room > 0 and len(rows) > 1 else None
        if halves is None:
            centers.append(center)
        else:
            centers.extend(halves)
            room -= 1
    return np.array(centers)


def bic_halves(X: FloatArray, rows: IntArray, seed: int) -> FloatArray | None:
    """The two halves of a cluster, rows of X in rising order, if their BIC is not below that of the whole."""
    own = X[rows]
    draws = Draws(seed)
    first = draws.below(len(rows))
    gaps = squared_gaps(own, X[first])  # to the row of the table that has the place of the first center in its cluster
    second = draws.far_row(gaps, min(XMEANS_CANDIDATES, len(rows)))
    halves = lloyd_steps(own, own[[first, second]])
    if len(halves.centers) == 1:
        return None
    whole = Clusters(np.zeros(len(own), dtype=np.int64), own.mean(axis=0, keepdims=True))
    return halves.centers if bic(own, whole) <= bic(own, halves) else None


def bic(X: FloatArray, found: Clusters) -> float:
    """The criterion as it is coded there; the largest number where every row has a center of its own."""
    n, d = X.shape
    k = len(found.centers)
    if n == k:
        return float(np.finfo(float).max)
    variance = float(((X - found.centers[found.labels]) ** 2).sum()) / (n - k)
    log_variance = log(variance) if variance > 0 else -np.inf
    counts = np.bincount(found.labels).astype(float)
    likelihoods = counts * (np.log(counts) - log(n) - log(2 * pi) / 2 - d * log_variance / 2) - (counts - k) / 2
    return float((likelihoods - (k - 1 + d * k + 1) * 0.5 * log(n)).sum())


def tested_halves(X: FloatArray, seed: int) -> FloatArray | None:
    """The two halves of a cluster if the rows, projected on the line between them, are not Gaussian."""
    draws = Draws(seed)
    first = draws.below(len(X))
    second = draws.far_row(squared_gaps(X, X[first]), min(GMEANS_CANDIDATES, len(X)))
    halves = lloyd_steps(X, X[[first, second]])
    if len(halves.centers) == 1:
        return None
    axis = halves.centers[0] - halves.centers[1]
    n = len(X)
    critical = CRITICAL_VALUE / (1 + 4 / n - 25 / n / n)
    return None if normality_statistic(X @ axis / (axis @ axis)) < critical else halves.centers


def normality_statistic(values: FloatArray) -> float:
    """A^2 of Anderson and Darling as it is coded there: infinite where a value is beyond 8 standard deviations."""
    n = len(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = 0.5 * erfc(-np.sort((values - values.mean()) / values.std(ddof=1)) * np.sqrt(0.5))
        logs = np.log(below) + np.log(1 - below[::-1])
    return float(-(np.arange(1, 2 * n, 2) @ logs) / n - n)


def lloyd_steps(X: FloatArray, centers: FloatArray) -> Clusters:
    """k-means from `centers`: its last labels, and their means. A center without rows is dropped."""
    for _ in range(MOST_STEPS):
        labels = np.unique(nearest(X, centers, KMEANS_BLOCK_FLOATS), return_inverse=True)[1]
        means = partition_means(X, labels)
        moves = ((means - centers[: len(means)]) ** 2).sum(axis=1)
        centers = means
        if moves.max() <= TOLERANCE:
            break
    return Clusters(labels, centers)


def squared_gaps(X: FloatArray, center: FloatArray) -> FloatArray:
    gaps: FloatArray = ((X - center) ** 2).sum(axis=1)
    return gaps


# --- random draws ---


class Draws:
    """mt19937 with a seed, and the distributions of the C++ library that pyclustering was built with."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        self._bits.state = np.random.RandomState(seed).get_state(legacy=False)  # type: ignore[assignment]

    def word(self) -> int:
        return int(self._bits.random_raw())

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1, as `std::uniform_int_distribution` of GCC 10 and before has it."""
        scale = 0xFFFFFFFF // n
        while (drawn := self.word()) >= n * scale:
            pass
        return drawn // scale

    def unit(self) -> float:
        """A number from 0 to 1, as `std::generate_canonical` has it: two words, the low one first."""
        low, high = self.word(), self.word()
        return min((low + high * 4294967296.0) / 2.0**64, float(np.nextafter(1.0, 0.0)))

    def far_row(self, gaps: FloatArray, n_candidates: int) -> int:
        """The farthest of some rows drawn with probabilities as their squared distances; else the first row."""
        return farthest_drawn(gaps, [self.unit() for _ in range(n_candidates)], last_is_sure=True)


def farthest_drawn(gaps: FloatArray, draws: list[float], *, last_is_sure: bool) -> int:
    total = float(np.cumsum(gaps)[-1])
    best = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.cumsum(gaps / total) if total > 0 else np.zeros(len(gaps))
    if last_is_sure:
        shares[-1] = 1.0
    for drawn in draws:
        at = int(np.searchsorted(shares, drawn, side="right"))
        if at < len(gaps) and gaps[at] > gaps[best]:
            best = at
    return best


def first_two(X: FloatArray, seed: int) -> list[int]:
    """Rows that X-means begins with: drawn in Python, where a draw beyond the last share takes the first free row."""
    generator = random.Random(seed)
    first = generator.randint(0, len(X) - 1)
    gaps = squared_gaps(X, X[first])
    draws: list[Any] = [generator.random() for _ in range(min(FIRST_CANDIDATES, len(X)))]
    return [first, farthest_drawn(gaps, draws, last_is_sure=False)]
