"""When ASM splits a cluster that is only one, and when it takes the split back: the paper's analysis as functions.

Section "When does ASM split?" and the appendices on the split criterion and on its synthetic validation. A cluster of
n rows in d columns has anisotropy ``r = lambda_1 / (tr(Sigma) / d)``: 1 if it is round, d if it is a line. Cut at its
median along the leading axis, it improves the BIC as soon as::

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
from koncord.types import BoolArray, FloatArray


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


def split_gain(anisotropy: ArrayLike, n_features: ArrayLike) -> FloatArray | float:
    """``g(r, d) = -d log(1 - 2 r / (pi d))``: twice the log-likelihood a row gains from the cut, about 2 r / pi.

    >>> round(split_gain(1, 64), 3), round(2 / pi, 3)
    (0.64, 0.637)
    """
    d, r = checked_shape(n_features, anisotropy, owner="split_gain")
    return scalar_or_array(gain(r, d))


def predicts_split(n: ArrayLike, n_features: ArrayLike, anisotropy: ArrayLike) -> BoolArray | bool:
    """Whether Eq. threshold says that a cluster of n rows is split. One row never is.

    Give it the anisotropy of the rows themselves (the function `anisotropy`): the split test sees no other.

    >>> predicts_split(900, 16, 1.3)
    True
    >>> predicts_split([20, 90, 900], 16, 1.3)
    array([False, False,  True])
    """
    d, r = checked_shape(n_features, anisotropy, owner="predicts_split")
    size = checked_size(n, owner="predicts_split")
    splits = (size > 1) & (size * gain(r, d) > (d + 2) * np.log(size))
    return bool(splits) if np.ndim(splits) == 0 else splits


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


def sample_critical_size(n_features: ArrayLike, anisotropy: ArrayLike = 1.0) -> FloatArray | float:
    """Size above which a sample of a cluster is split, given the anisotropy of the cluster, round unless given.

    The self-consistent ``n = critical_size(d, sample_anisotropy(n, d, r))``: with n rows the split test sees an
    anisotropy that depends on n. Fewer rows look longer and are split more readily, so there may be several solutions;
    this is the largest.

    >>> round(sample_critical_size(64)), round(critical_size(64, 1))
    (249, 671)
    """
    d, r = checked_shape(n_features, anisotropy, owner="sample_critical_size")

    def size_of_samples_like(n: FloatArray) -> FloatArray:
        return larger_root((d + 2) / gain(np.minimum(sample_anisotropy(n, d, r), d), d))

    # The map rises with n and the start is no smaller than any solution, so the iterates fall to the largest one. Close
    # to a size where two solutions meet they take many small steps.
    start = larger_root((d + 2) / gain(r, d))
    from scipy.optimize import fixed_point  # here: it takes long to load

    return scalar_or_array(fixed_point(size_of_samples_like, start, method="iteration", xtol=1e-9, maxiter=100_000))


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


def hard_split_improves(X: ArrayLike) -> bool:
    """Whether the idealised split of the analysis improves the BIC of the rows of X (n, d).

    Cut through the mean, orthogonal to the leading axis; every row belongs to its side, and no side needs a minimum
    mass. With s^2 the variance before and s_1^2, s_2^2 those of the sides of n_1 and n_2 rows, the cut is accepted if
    ``d (n log s^2 - n_1 log s_1^2 - n_2 log s_2^2) > (d + 2) log n``. A side without spread always wins.

    >>> hard_split_improves([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    True
    """
    z = centered(X, owner="hard_split_improves")
    n, d = z.shape
    if not z.any():
        return False
    is_right = leading_scores(z) > 0
    shrinkage = n * np.log(np.vdot(z, z) / n)
    for side in (z[is_right], z[~is_right]):
        scatter = float(((side - side.mean(axis=0)) ** 2).sum())
        if scatter == 0:
            return True
        shrinkage -= len(side) * np.log(scatter / len(side))
    return bool(d * shrinkage > (d + 2) * np.log(n))


def draw_cluster(n: int, d: int, anisotropy: float, rng: np.random.Generator) -> FloatArray:
    """n rows of a Gaussian with covariance ``diag(k, 1, ..., 1)``, ``k = r (d - 1) / (d - r)``: anisotropy r.

    A line, r = d, has no such Gaussian, except for d = 1, which is always round.

    >>> draw_cluster(3, 8, 2.0, np.random.default_rng(0)).shape
    (3, 8)
    """
    if anisotropy != 1 and not 1 <= anisotropy < d:
        raise ValueError(
            f"'anisotropy' of draw_cluster must be at least 1 and below the number of features, here {d}; "
            f"got {anisotropy:g}."
        )
    X = rng.standard_normal((n, d))
    if anisotropy > 1:
        X[:, 0] *= np.sqrt(anisotropy * (d - 1) / (d - anisotropy))
    return X


def observed_onset(sizes: ArrayLike, accepted: ArrayLike) -> float:
    """Size above which at least half of the splits are accepted at every larger size, as in the paper.

    Interpolated between the last size with less than half and the next one, linearly in the share and the logarithm
    of the size. The smallest size if no share is below one half, NaN if the last one is.

    >>> observed_onset([10, 100, 1000], [0.0, 0.5, 1.0])
    100.0
    """
    size, share = np.asarray(sizes, dtype=float), np.asarray(accepted, dtype=float)
    below = np.flatnonzero(share < 0.5)
    if len(below) == 0:
        return float(size[0])
    at = below[-1]
    if at == len(size) - 1:
        return float("nan")
    step = (0.5 - share[at]) / (share[at + 1] - share[at])
    return float(size[at] ** (1 - step) * size[at + 1] ** step)


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
