"""Gaussian clusters: where each lies, how it is shaped, and which of them a row is most likely of.

The shape of a cluster is a covariance along some axes that all clusters share. Directions in which the rows hardly vary
are left out of these axes, for a covariance there would be noise.

A row may lack values, which are NaN. Its density is then that of the values it has, with all others integrated out; for
that the directions beyond the axes count as well, each with the mean variance of a cluster along the axes.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from koncord.kernels.built import compiled_module
from koncord.types import FloatArray, IntArray

_labeling = compiled_module("_labeling")
# Axes up to which distances in C cost less than those of BLAS, which takes more of them but in larger steps.
COMPILED_AXES = 64
# Floats held at a time while the densities of many rows are computed.
GAUSSIANS_BLOCK_FLOATS = 1 << 22


class Whitening(NamedTuple):
    """What turns a row into the standard normal coordinates of each cluster."""

    maps: FloatArray  # (k, q, d)
    shifts: FloatArray  # (k, q) the centers in these coordinates
    log_peaks: FloatArray  # (k,) log density at the center


class Judged(NamedTuple):
    """How far rows are from every cluster, and how likely they are there."""

    squared: FloatArray  # (n, k) squared Mahalanobis distances
    joint: FloatArray  # (n, k) logarithm of weight times density


class TwoNearest(NamedTuple):
    """The most likely cluster of every row and the one that comes next, the lowest index on ties."""

    labels: IntArray  # (n,)
    squared: FloatArray  # (n,) squared Mahalanobis distances
    runner_ups: IntArray  # (n,)
    runner_up_squared: FloatArray  # (n,)


class Factors(NamedTuple):
    """The same for loops in C: rows are projected on the axes once, for all clusters."""

    axes: FloatArray  # (q, d)
    roots: FloatArray  # (k, q, q) inverse Cholesky factors of the covariances
    shifts: FloatArray  # (k, q) the centers in the coordinates of their cluster
    log_peaks: FloatArray  # (k,) log of weight times density at the center


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaussians:
    """A mixture of Gaussians along common axes."""

    centers: FloatArray  # (k, d)
    axes: FloatArray  # (q, d) one row a direction
    covariances: FloatArray  # (k, q, q) along the axes
    weights: FloatArray  # (k,) positive, sum to 1

    def __post_init__(self) -> None:
        k, q = len(self.centers), len(self.axes)
        if self.covariances.shape != (k, q, q) or self.weights.shape != (k,):
            raise ValueError("'covariances' and 'weights' must have one entry a center, along the axes.")
        if not (self.weights > 0).all():
            raise ValueError("'weights' must be positive.")
        try:
            np.linalg.cholesky(self.covariances)
        except np.linalg.LinAlgError:
            raise ValueError("'covariances' must be positive definite.") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gaussians):
            return NotImplemented
        return all(np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    __hash__ = None  # type: ignore[assignment]

    @property
    def rows_at_once(self) -> int:
        """Rows whose densities are computed at a time; their last bits depend on it."""
        return max(GAUSSIANS_BLOCK_FLOATS // (len(self.centers) + len(self.axes)), 1)

    def whitening(self) -> Whitening:
        roots = np.linalg.cholesky(self.covariances)
        maps: FloatArray = np.linalg.solve(roots, np.broadcast_to(self.axes, (len(roots), *self.axes.shape)))
        shifts: FloatArray = np.einsum("kqd,kd->kq", maps, self.centers)
        log_roots = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        return Whitening(maps, shifts, -log_roots - 0.5 * len(self.axes) * np.log(2 * np.pi))

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Squared Mahalanobis distance (n, k) of every row of X (n, d) to every center, in the cluster's own metric."""
        return self.judged(X).squared

    def judged(self, X: FloatArray) -> Judged:
        """Distances and densities (n, k) of every row of X (n, d); those of a row with gaps are of what it has."""
        maps, shifts, log_peaks = self.whitening()
        squared = np.empty((len(X), len(maps)))
        for at, (one, shift) in enumerate(zip(maps, shifts, strict=True)):
            gaps = X @ one.T
            gaps -= shift
            squared[:, at] = np.vecdot(gaps, gaps)
        joint = np.log(self.weights) + log_peaks - 0.5 * squared
        rows = np.flatnonzero(np.isnan(X).any(axis=1))
        if len(rows):
            squared[rows], joint[rows] = self._judged_with_gaps(X[rows])
        return Judged(squared, joint)

    def _judged_with_gaps(self, X: FloatArray) -> Judged:
        """The same of rows that lack values.

        In columns, the covariance of a cluster is s I + V (M - s I) V', where V (d, q) is an orthonormal basis of the
        axes, M (q, q) the covariance in it, and s the variance beyond the axes. Of the columns that a row has, only
        G = V'V changes: its inverse and determinant need matrices of q rows alone (Woodbury).
        """
        basis, inside, beyond = self._in_columns()
        excess = inside / beyond - np.eye(len(basis.T))  # (k, q, q)
        squared, joint = np.empty((len(X), len(inside))), np.empty((len(X), len(inside)))
        step = max(GAUSSIANS_BLOCK_FLOATS // (len(inside) * (len(basis.T) ** 2 + len(basis))), 1)
        for start in range(0, len(X), step):
            part = slice(start, start + step)
            has = ~np.isnan(X[part])
            offsets = np.where(has[:, None], np.nan_to_num(X[part])[:, None] - self.centers, 0.0)  # (n, k, d)
            overlaps = np.einsum("nd,dq,dr->nqr", has.astype(float), basis, basis, optimize=True)
            ratios = np.eye(len(basis.T)) + excess @ overlaps[:, None]  # (n, k, q, q)
            along = offsets @ basis
            solved = np.linalg.solve(ratios, (excess @ along[..., None]))[..., 0]
            own = (np.vecdot(offsets, offsets) - np.vecdot(along, solved)) / beyond
            squared[part] = np.maximum(own, 0.0)
            n_known = has.sum(axis=1)[:, None]
            log_determinants = n_known * np.log(2 * np.pi * beyond) + np.linalg.slogdet(ratios)[1]
            joint[part] = np.log(self.weights) - 0.5 * (log_determinants + squared[part])
        return Judged(squared, joint)

    def _in_columns(self) -> tuple[FloatArray, FloatArray, float]:
        """An orthonormal basis (d, q) of the axes, the covariances (k, q, q) in it, and the variance beyond them."""
        _, _, basis = np.linalg.svd(self.axes, full_matrices=False)
        turned = np.linalg.inv(self.axes @ basis.T)
        inside: FloatArray = turned @ self.covariances @ turned.T
        return basis.T, inside, float(self.weights @ np.trace(inside, axis1=1, axis2=2)) / len(basis)

    def column_deviations(self) -> FloatArray:
        """Standard deviation (k, d) of every cluster in every column, as far as the axes tell it."""
        along = np.einsum("kqr,rd->kqd", self.covariances, self.axes)
        variances: FloatArray = np.einsum("qd,kqd->kd", self.axes, along)
        return np.sqrt(np.maximum(variances, 0.0))

    def own_squared_distances(self, X: FloatArray, labels: IntArray) -> FloatArray:
        """Squared Mahalanobis distance (n,) of every row to the center of its own cluster."""
        maps, shifts, _ = self.whitening()
        found = np.empty(len(X))
        for at, (one, shift) in enumerate(zip(maps, shifts, strict=True)):
            own = labels == at
            gaps = X[own] @ one.T - shift
            found[own] = np.vecdot(gaps, gaps)
        rows = np.flatnonzero(np.isnan(X).any(axis=1))
        if len(rows):
            found[rows] = self._judged_with_gaps(X[rows]).squared[np.arange(len(rows)), labels[rows]]
        return found

    @property
    def is_compiled(self) -> bool:
        """Whether rows are judged in C."""
        return _labeling is not None and len(self.axes) <= COMPILED_AXES

    def factors(self) -> Factors:
        """What rows are judged by in C."""
        roots = np.tril(np.linalg.inv(np.linalg.cholesky(self.covariances)))
        shifts = np.einsum("kqr,kr->kq", roots, self.centers @ self.axes.T)
        peaks = np.log(self.weights) + self.whitening().log_peaks
        return Factors(*map(np.ascontiguousarray, (self.axes, roots, shifts, peaks)))

    def two_nearest(self, X: FloatArray) -> TwoNearest:
        """The two most likely clusters of every row of X (n, d); in C where it was built, else in NumPy."""
        n = len(X)
        found = TwoNearest(np.empty(n, dtype=np.int64), np.empty(n), np.empty(n, dtype=np.int64), np.empty(n))
        if self.is_compiled:
            _labeling.judge(np.ascontiguousarray(X), *self.factors(), *found)
            rows = np.flatnonzero(np.isnan(found.squared) | np.isinf(found.squared))  # NaN is nearer to none
            if len(rows):
                for whole, own in zip(found, self._two_in_numpy(X[rows]), strict=True):
                    whole[rows] = own
            return found
        step = self.rows_at_once
        for start in range(0, n, step):
            for whole, own in zip(found, self._two_in_numpy(X[start : start + step]), strict=True):
                whole[start : start + step] = own
        return found

    def _two_in_numpy(self, X: FloatArray) -> TwoNearest:
        squared, joint = self.judged(X)
        at = np.arange(len(X))
        labels = joint.argmax(axis=1)
        joint[at, labels] = -np.inf
        runner_ups = joint.argmax(axis=1)
        return TwoNearest(labels, squared[at, labels], runner_ups, squared[at, runner_ups])

    def log_joint(self, X: FloatArray) -> FloatArray:
        """Log of weight times density (n, k) of every row in every cluster."""
        return self.judged(X).joint

    def assign(self, X: FloatArray) -> IntArray:
        """The most likely cluster of every row; the lowest index on ties."""
        return self.two_nearest(X).labels
