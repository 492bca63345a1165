"""Surrogate rows: what an answer is computed from, a function of counts, means and covariances of cells alone.

A step of an aggregator may do anything with the rows that it is given: group them, draw some of them, weigh them. Given
the rows of a site, what it sends would depend on single rows, and many questions would tell them. So it is given
others: as many in each cell of the joint partition (`koncord.protocol.partition`), with the same mean and the same
covariance, and nothing else of the rows. Sums and sums of products over whole cells are those of the rows; all else is
a function of these. This is hybrid microdata by microaggregation (J. Domingo-Ferrer, U. Gonzalez-Nicolas, "Hybrid
microdata using microaggregation", Information Sciences 180, 2010), with cells for its clusters.
"""

from functools import lru_cache

import numpy as np

from koncord.types import FloatArray, IntArray


def surrogate_rows(X: FloatArray, of_row: IntArray) -> FloatArray:
    """Rows with the counts, means and covariances of the cells of X (n, n_features), and nothing else of it.

    `of_row` (n,) is the cell of each row; a surrogate row stands in the place of one of its cell.
    """
    surrogates = np.empty_like(X)
    if not len(X):
        return surrogates
    order = np.argsort(of_row, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(of_row[order])) + 1):
        rows = X[own]
        mean = rows.mean(axis=0)
        axes = long_axes(rows - mean)
        is_constant = (rows == rows[0]).all(axis=0)  # to the last bit: it has no variance
        surrogates[own] = np.where(is_constant, rows[0], mean + directions(len(own), len(axes)) @ axes)
    return surrogates


def long_axes(centered: FloatArray) -> FloatArray:
    """Principal axes (n_axes, n_features) of centered rows (n, n_features), as long as the root of the squares.

    They follow from the sums of products of the columns.
    """
    n, d = centered.shape
    most = min(n - 1, d)
    if most < 1:
        return np.empty((0, d))
    if n > d:
        values, vectors = np.linalg.eigh(centered.T @ centered)
        axes = (np.sqrt(np.maximum(values, 0.0)) * vectors).T[::-1][:most]
    else:
        _, lengths, vectors = np.linalg.svd(centered, full_matrices=False)
        axes = lengths[:most, None] * vectors[:most]
    largest = np.abs(axes).argmax(axis=1)
    signs = np.where(axes[np.arange(len(axes)), largest] < 0, -1.0, 1.0)
    found: FloatArray = signs[:, None] * axes
    return found


@lru_cache(maxsize=256)
def directions(n: int, n_axes: int) -> FloatArray:
    """Orthonormal columns (n, n_axes) that sum to 0 each, the same in every run; their rows look like normal ones."""
    normal = np.random.default_rng([n, n_axes]).standard_normal((n, n_axes))
    found: FloatArray = np.linalg.qr(normal - normal.mean(axis=0))[0]
    return found
