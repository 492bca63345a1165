"""G-means: k-means whose clusters split in two until each looks Gaussian along the line between its halves.

G. Hamerly and C. Elkan, "Learning the k in k-means", NIPS 2003. The test is that of Anderson and Darling with mean and
variance estimated. Its correction for small samples, ``A^2 (1 + 0.75/n + 2.25/n^2)``, and its p-value are those of
R. D'Agostino and M. Stephens, "Goodness-of-fit techniques", 1986, table 4.9, so any significance can be asked for. (The
older correction ``1 + 4/n - 25/n^2`` belongs to other critical values: with this p-value it rejects up to twice too
often.)
"""

from collections.abc import Mapping
from functools import partial
from math import exp, pi, sqrt
from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr
from sklearn.utils.validation import validate_data

from koncord._progress import report
from koncord._random import RandomState, as_generator
from koncord._threads import one_thread
from koncord._validation import check_count, check_magnitude, check_number, check_option
from koncord.estimate.kmeans import Halves, PartitionMixin, first_least, grow, seed_halves, two_means, unit_rows
from koncord.kernels.centered import leading_axis
from koncord.types import FloatArray

# What the paper ran, pyclustering: its critical value, 1.092, has this p-value. A poor default: the start is drawn anew
# in every pass, so that a cluster is tested until it splits and some estimates run away to the cap.
GMEANS_PAPER: Mapping[str, Any] = {"significance": 0.0073, "start": "k-means++"}
# Runs of 2-means from k-means++ starts, of which the tightest is kept.
N_STARTS = 3
# The approximation of the p-value holds from this many rows on; fewer reject nothing.
LEAST_ROWS = 8
# The approximation of log p is a parabola; beyond its lowest point, at p = e^-437, it would rise again.
LARGEST_STATISTIC = 5.709 / (2 * 0.0186)


class GMeans(PartitionMixin):
    """G-means estimator of the number of clusters in one table.

    Parameters
    ----------
    significance : float, default 0.0001
        A cluster splits when the test of normality has a p-value below this; smaller finds fewer clusters.
    start : str, default "axis"
        Where the two halves of a cluster start: "axis" at ``mean +- v_1 sqrt(2 lambda_1 / pi)`` on its leading axis, or
        "k-means++" at rows drawn at random, the tightest of three runs.
    max_components : int, default 200
        Most clusters; the splits of the last pass are made in the order of the clusters.
    tolerance : float, default 0.01
        K-means stops when no center moves by more than this, in standard deviations of the table (the root of the mean
        variance of its columns).
    random_state : int, numpy.random.Generator or None, default None
        Seed of the k-means++ starts; "axis" has nothing random in it.

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
    A cluster of fewer than 8 rows, or of rows that are one point, never splits.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> koncord.GMeans().fit(X).n_components_
    3
    """

    def __init__(
        self,
        significance: float = 1e-4,
        start: str = "axis",
        max_components: int = 200,
        tolerance: float = 0.01,
        random_state: RandomState = None,
    ) -> None:
        self.significance = significance
        self.start = start
        self.max_components = max_components
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = check_magnitude(validate_data(self, X, dtype=float), owner=self)
        significance = check_number("significance", self.significance, owner=self, least=0, above=True)
        max_components = check_count("max_components", self.max_components, owner=self)
        tolerance = check_number("tolerance", self.tolerance, owner=self, least=0)
        if check_option("start", self.start, ("axis", "k-means++"), owner=self) == "axis":
            halve = partial(halves_along_axis, tolerance=tolerance)
        else:
            halve = partial(tightest_halves, tolerance=tolerance, rng=as_generator(self.random_state))

        def halves_if_not_gaussian(rows: FloatArray) -> FloatArray | None:
            if len(rows) < LEAST_ROWS:
                return None
            halves = halve(rows)
            return halves.centers if differs_from_gaussian(rows, halves, significance) else None

        with one_thread():
            table = unit_rows(X)
            labels = grow(
                table,
                table.rows.mean(axis=0, keepdims=True),
                halves_if_not_gaussian,
                max_components=max_components,
                tolerance=tolerance,
            )
        report(1.0)
        self._learn(X, labels)
        return self


def halves_along_axis(X: FloatArray, *, tolerance: float) -> Halves:
    """2-means of rows that sum to zero, started at ``+- v_1 sqrt(2 lambda_1 / pi)``: the halves of a Gaussian."""
    offset = sqrt(2 / pi) * leading_axis([X.T])
    return two_means(X, np.array([-offset, offset]), tolerance=tolerance)


def tightest_halves(X: FloatArray, *, tolerance: float, rng: np.random.Generator) -> Halves:
    """The best of three runs of 2-means from k-means++ starts, on rows that sum to zero."""
    runs = [two_means(X, seed_halves(X, rng), tolerance=tolerance) for _ in range(N_STARTS)]
    return runs[first_least([-halves.explained for halves in runs])]


def differs_from_gaussian(X: FloatArray, halves: Halves, significance: float) -> bool:
    """Whether the rows, projected on the line between the two halves, are not Gaussian at the significance."""
    if halves.counts.min() == 0:
        return False
    projection = X @ (halves.centers[1] - halves.centers[0])
    return p_value(anderson_darling(projection), len(X)) < significance


def anderson_darling(values: FloatArray) -> float:
    """The statistic A^2 of normality with mean and variance estimated from the values, which are not all equal."""
    n = len(values)
    z = np.sort((values - values.mean()) / values.std(ddof=1))
    odd = np.arange(1, 2 * n, 2)
    return -n - float(odd @ (log_ndtr(z) + log_ndtr(-z[::-1]))) / n


def p_value(statistic: float, n: int) -> float:
    """Probability of an A^2 at least as large among `n` >= 8 Gaussian values."""
    a = min(statistic * (1 + 0.75 / n + 2.25 / n**2), LARGEST_STATISTIC)
    if a < 0.2:
        return 1 - exp(-13.436 + 101.14 * a - 223.73 * a**2)
    if a < 0.34:
        return 1 - exp(-8.318 + 42.796 * a - 59.938 * a**2)
    if a < 0.6:
        return exp(0.9177 - 4.279 * a - 1.38 * a**2)
    return exp(1.2937 - 5.709 * a + 0.0186 * a**2)
