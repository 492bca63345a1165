"""When ASM splits a cluster that is only one, and when it takes the split back: the paper's analysis as functions.

Section "When does ASM split?" and the appendix on the split criterion. A cluster of n rows in d columns has anisotropy
``r = lambda_1 / (tr(Sigma) / d)``: 1 if it is round, d if it is a line. Cut at its median along the leading axis, it
improves the BIC as soon as::

    n / log n > (d + 2) / g(r, d),    g(r, d) = -d log(1 - 2 r / (pi d))              (Eq. threshold)

so every cluster has a critical size. It falls with r and rises with d. Sizes, dimensions and anisotropies may be
numbers or arrays that broadcast; numbers give a float.
"""

from math import e, pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.special import lambertw

from koncord._validation import check_magnitude
from koncord.types import FloatArray


def anisotropy(X: ArrayLike) -> float:
    """``r = lambda_1 / (tr(Sigma) / d)`` of the rows of X (n, d): 1 for a round cloud, d for points on a line.

    It does not change when X is shifted, rotated or scaled. One row, or rows without spread, count as round.

    >>> round(anisotropy([[0, 0], [1, 1], [2, 2]]), 6)
    2.0
    >>> round(anisotropy([[1, 0], [-1, 0], [0, 1], [0, -1]]), 6)
    1.0
    """
    z = centered(X, owner="anisotropy")
    total = float(np.vdot(z, z))
    if total == 0:
        return 1.0
    scores = leading_scores(z)
    d = z.shape[1]
    return float(np.clip(d * (scores @ scores) / total, 1.0, d))


def sample_anisotropy(n: ArrayLike, d: ArrayLike, anisotropy: ArrayLike = 1.0) -> FloatArray | float:
    """Anisotropy to expect of n rows drawn from a cluster in d columns whose own anisotropy is r, round unless given.

    The leading eigenvalue of a sample is too large. Of a round cluster it is near ``(1 + sqrt(d / n))^2``, and so is
    the anisotropy, as the mean eigenvalue stays near one. With one long axis, relative to the mean eigenvalue, the
    other axes have variance ``v = (d - r) / (d - 1)``, and for d / n = c the leading eigenvalue is near::

        r (1 + c v / (r - v))    if r > v (1 + sqrt(c)),    else v (1 + sqrt(c))^2

    (Baik and Silverstein 2006). Both are limits for large n and d; for a few rows they can exceed d, which no table
    can.

    >>> round(sample_anisotropy(250, 64), 2)
    2.27
    >>> round(sample_anisotropy(250, 64, anisotropy=8), 2)
    8.26
    """
    d, r = checked_shape(d, anisotropy, owner="sample_anisotropy")
    ratio = d / checked_size(n, owner="sample_anisotropy")
    other = np.where(d > 1, (d - r) / np.maximum(d - 1, 1), 1.0)
    edge = other * (1 + np.sqrt(ratio))
    is_long = r > edge
    gap = np.where(is_long, r - other, 1.0)
    return scalar_or_array(np.where(is_long, r * (1 + ratio * other / gap), edge * (1 + np.sqrt(ratio))))


def critical_size(n_features: ArrayLike, anisotropy: ArrayLike) -> FloatArray | float:
    """Size above which a cluster is split: the larger n with ``n / log n = (d + 2) / g(r, d) = c``.

    In closed form ``n = -c W(-1 / c)``, W the lower real branch of Lambert's function. ``n / log n`` is never below e,
    where n = e. A cluster so long that c < e meets the criterion at every size; its critical size is then e: three
    rows are already split. The minimum mass of ASM comes on top: nothing below twice `min_mass` is split.

    >>> round(critical_size(64, 1))
    671
    >>> critical_size(16, [1, 4, 16]).round(1)
    array([136.2,  19.2,   2.7])
    """
    d, r = checked_shape(n_features, anisotropy, owner="critical_size")
    return scalar_or_array(larger_root((d + 2) / gain(r, d)))


def merge_onset(anisotropy: ArrayLike) -> FloatArray | float:
    """Merge factor from which ASM rejoins the two halves of a cluster of anisotropy r: ``0.8 sqrt(r)``.

    The halves lie ``2 sqrt(2 / pi) sqrt(lambda_1)`` apart, about 1.6 sqrt(r) of their standard deviations, and
    components merge while ``|mu_i - mu_j| <= alpha (sigma_i + sigma_j)``.

    >>> merge_onset(1), round(merge_onset(21.12), 2)
    (0.8, 3.68)
    """
    r = np.asarray(anisotropy, dtype=float)
    if not np.all(r >= 1):
        raise ValueError(f"'anisotropy' of merge_onset must be at least 1 (round); got {first_not(r, r >= 1):g}.")
    return scalar_or_array(0.8 * np.sqrt(r))


def gain(r: FloatArray, d: FloatArray) -> FloatArray:
    g: FloatArray = -d * np.log1p(-2 * r / (pi * d))
    return g


def larger_root(c: FloatArray) -> FloatArray:
    """The n >= e with ``n / log n = c``; e where there is none."""
    c = np.maximum(c, e)
    root: FloatArray = np.fmax(-c * lambertw(-1 / c, k=-1).real, e)  # the branch point itself comes as NaN
    return root


def leading_scores(z: FloatArray) -> FloatArray:
    """Coordinates of centered rows (n, d) along their leading axis, from the smaller Gram matrix."""
    n, d = z.shape
    top = min(n, d) - 1
    _, vectors = eigh(z.T @ z if d <= n else z @ z.T, subset_by_index=[top, top], check_finite=False)
    leading = vectors[:, 0]
    if d <= n:
        return np.asarray(z @ leading)
    return np.asarray(leading * np.linalg.norm(z.T @ leading))


def centered(X: ArrayLike, *, owner: str) -> FloatArray:
    """Rows minus their mean, scaled to a largest entry of one, so that no square leaves the range of a float."""
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.size == 0:
        raise ValueError(f"'X' of {owner} must be a table with at least one row and one column; got shape {X.shape}.")
    if not np.isfinite(X).all():
        raise ValueError(f"'X' of {owner} must hold finite numbers; got {first_not(X, np.isfinite(X))}.")
    z: FloatArray = check_magnitude(X, owner=owner) - X[0]  # the first row first: equal rows become exact zeros
    z -= z.mean(axis=0)
    z /= np.abs(z).max() or 1.0
    return z


def checked_shape(n_features: ArrayLike, anisotropy: ArrayLike, *, owner: str) -> tuple[FloatArray, FloatArray]:
    """Both as arrays of one shape with ``1 <= r <= d``."""
    d, r = np.broadcast_arrays(np.asarray(n_features, dtype=float), np.asarray(anisotropy, dtype=float))
    if not np.all((d >= 1) & np.isfinite(d)):
        raise ValueError(
            f"'n_features' of {owner} must be at least 1; got {first_not(d, (d >= 1) & np.isfinite(d)):g}."
        )
    fits = (r >= 1) & (r <= d)
    if not np.all(fits):
        raise ValueError(
            f"'anisotropy' of {owner} must lie between 1 (round) and the number of features, "
            f"here {first_not(d, fits):g} (a line); got {first_not(r, fits):g}."
        )
    return d, r


def checked_size(n: ArrayLike, *, owner: str) -> FloatArray:
    size = np.asarray(n, dtype=float)
    fits = (size >= 1) & np.isfinite(size)
    if not np.all(fits):
        raise ValueError(f"'n' of {owner} must be at least 1 row; got {first_not(size, fits):g}.")
    return size


def first_not(values: FloatArray, fits: ArrayLike) -> float:
    return float(values[~np.asarray(fits)].flat[0])


def scalar_or_array(values: FloatArray) -> FloatArray | float:
    return float(values) if np.ndim(values) == 0 else values
