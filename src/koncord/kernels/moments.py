"""Counts, means and covariances of rows by label, from rows that come batch by batch."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from koncord.types import FloatArray, IntArray


class LabelMoments(NamedTuple):
    """What the rows of each of k labels sum to."""

    counts: IntArray  # (k,)
    means: FloatArray  # (k, d)
    covariances: FloatArray  # (k, d, d) divided by the rows; zero of a label without rows

    @property
    def variances(self) -> FloatArray:
        """Mean variance (k,) of a column."""
        mean: FloatArray = np.trace(self.covariances, axis1=1, axis2=2) / self.means.shape[1]
        return mean

    @property
    def anisotropies(self) -> FloatArray:
        """Leading eigenvalue over the mean one (k,), as `koncord.theory.anisotropy` of the rows; 1 without spread."""
        d, variances = self.means.shape[1], self.variances
        leading = np.linalg.eigvalsh(self.covariances)[:, -1]
        ratios: FloatArray = np.divide(leading, variances, out=np.ones(len(leading)), where=variances > 0)
        return np.clip(ratios, 1.0, d)


def moments_by_label(batches: Iterable[tuple[FloatArray, IntArray]], near: FloatArray) -> LabelMoments:
    """Moments of rows (n, d) and their labels; `near` (k, d) are points near the means, so that no digits are lost."""
    k, d = near.shape
    counts, sums, products = np.zeros(k, dtype=np.int64), np.zeros((k, d)), np.zeros((k, d, d))
    for X, labels in batches:
        order = np.argsort(labels, kind="stable")
        own = np.bincount(labels, minlength=k)
        stops = np.cumsum(own)
        counts += own
        for label in np.flatnonzero(own):
            gaps = X[order[stops[label] - own[label] : stops[label]]] - near[label]
            sums[label] += gaps.sum(axis=0)
            products[label] += gaps.T @ gaps
    n = np.maximum(counts, 1)
    shifts = sums / n[:, None]
    covariances = products / n[:, None, None] - shifts[:, :, None] * shifts[:, None, :]
    return LabelMoments(counts=counts, means=near + shifts, covariances=covariances)
