"""Which mean each row is nearest to, and sums and means of the rows by label."""

import numpy as np
from scipy.sparse import csr_array

from koncord.types import FloatArray, IntArray


def nearest(X: FloatArray, means: FloatArray, most_floats: int = 1 << 16) -> IntArray:
    """Index of the nearest mean of every row, the lowest one on ties."""
    if len(means) == 1:
        return np.zeros(len(X), dtype=np.int64)
    origin = means.mean(axis=0)  # distances lose no digits to a far-off origin
    means = means - origin
    half_norms = 0.5 * np.vecdot(means, means)
    labels = np.empty(len(X), dtype=np.int64)
    step = max(most_floats // max(len(means), X.shape[1]), 1)
    for start in range(0, len(X), step):
        block = X[start : start + step] - origin
        labels[start : start + step] = (half_norms - block @ means.T).argmin(axis=1)
    return labels


# Up to this many entries a dense matrix of rows by labels costs less than making a sparse one.
SMALL_MEMBERSHIP = 1 << 13


def sums_by_label(X: FloatArray, labels: IntArray, k: int, weights: FloatArray | None = None) -> FloatArray:
    """(Weighted) sum of the rows of each of k labels, (k, n_features)."""
    n = len(X)
    values = np.ones(n) if weights is None else weights
    if n * k <= SMALL_MEMBERSHIP:
        membership = np.zeros((k, n))
        membership[labels, np.arange(n)] = values
        sums: FloatArray = membership @ X
    else:
        sums = np.asarray(csr_array((values, labels, np.arange(n + 1)), shape=(n, k)).T @ X)
    return sums


def means_by_label(
    X: FloatArray, labels: IntArray, weights: FloatArray | None = None, *, otherwise: FloatArray
) -> FloatArray:
    """(Weighted) mean of the rows of each label; the row of `otherwise` where a label has none."""
    k = len(otherwise)
    totals = np.bincount(labels, weights, minlength=k)[:, None]
    sums = sums_by_label(X, labels, k, weights)
    means: FloatArray = np.where(totals > 0, sums / np.where(totals > 0, totals, 1), otherwise)
    return means
