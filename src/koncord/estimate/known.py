"""Known counts: the oracle that knows how many clusters each client holds, an upper bound for the estimators."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import validate_data

from koncord._progress import report
from koncord._random import RandomState, as_generator
from koncord._threads import one_thread
from koncord._validation import check_count, check_magnitude, check_number
from koncord.estimate.kmeans import (
    PartitionMixin,
    first_least,
    kmeans_from,
    partition_components,
    seed_centers,
    unit_rows,
)
from koncord.types import FloatArray, IntArray


class KnownCounts(PartitionMixin):
    """K-means with the number of clusters given: what the paper calls the oracle.

    Parameters
    ----------
    counts : int, mapping of str to int or sequence of int, default 1
        The number of clusters: an int for one table; for a federation, an int for all clients alike, a mapping of
        client name to int, or a sequence with one int a client, in their order.
    n_init : int, default 10
        Runs of k-means from k-means++ starts, of which the tightest is kept.
    tolerance : float, default 0.01
        K-means stops when no center moves by more than this, in standard deviations of the table (the root of the mean
        variance of its columns).
    random_state : int, numpy.random.Generator or None, default None
        Seed of the starts.

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
    A table with fewer distinct rows than clusters has one cluster for each distinct row.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> koncord.KnownCounts(3, random_state=0).fit(X).counts_
    array([80, 80, 80])
    >>> koncord.KnownCounts({"north": 2, "south": 5}).for_client("south", 1).counts
    5
    """

    def __init__(
        self,
        counts: int | Mapping[str, int] | Sequence[int] = 1,
        n_init: int = 10,
        tolerance: float = 0.01,
        random_state: RandomState = None,
    ) -> None:
        self.counts = counts
        self.n_init = n_init
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = check_magnitude(validate_data(self, X, dtype=float), owner=self)
        if isinstance(self.counts, Mapping) or is_sequence(self.counts):
            raise ValueError(
                f"'counts' of KnownCounts must be one integer to fit one table; got {self.counts!r}, the counts of "
                "several clients: fit for_client(name, position)."
            )
        k = check_count("counts", self.counts, owner=self)
        n_init = check_count("n_init", self.n_init, owner=self)
        tolerance = check_number("tolerance", self.tolerance, owner=self, least=0)
        rng = as_generator(self.random_state)
        with one_thread():
            labels = tightest_clusters(unit_rows(X).rows, k, n_init=n_init, tolerance=tolerance, rng=rng)
        report(1.0)
        self._learn(X, labels)
        return self

    def for_client(self, name: Hashable, position: int) -> Self:
        """This estimator with the count of one client: by `name` in a mapping, by `position` in a sequence."""
        given: Any = self.counts
        if isinstance(given, Mapping):
            if name not in given:
                raise ValueError(f"'counts' of KnownCounts must hold client {name!r}; it holds {list(given)!r}.")
            given = given[name]
        elif is_sequence(given):
            if not 0 <= position < len(given):
                raise ValueError(
                    f"'counts' of KnownCounts must hold client {position} (from 0); it holds {len(given)}."
                )
            given = given[position]
        one: Self = clone(self).set_params(counts=check_count("counts", given, owner=self))
        return one


def is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def tightest_clusters(X: FloatArray, k: int, *, n_init: int, tolerance: float, rng: np.random.Generator) -> IntArray:
    """Labels of the run of k-means, of `n_init`, whose clusters have the least scatter; no more than distinct rows."""
    k = min(k, len(np.unique(X, axis=0)))
    runs = [kmeans_from(X, seed_centers(X, k, rng), tolerance=tolerance) for _ in range(n_init if k > 1 else 1)]
    return runs[first_least([float(partition_components(X, labels).scatters.sum()) for labels in runs])]
