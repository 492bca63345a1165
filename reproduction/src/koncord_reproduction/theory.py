"""The paper's analysis of when ASM splits a cluster, and what its synthetic validation needs: draws, cuts and onsets.

The four functions of `koncord.theory` are here too. Section "When does ASM split?" and the appendices on the split
criterion and on its synthetic validation. Sizes, dimensions and anisotropies may be numbers or arrays that broadcast;
numbers give a float.
"""

import numpy as np
from numpy.typing import ArrayLike

from koncord.theory import anisotropy as anisotropy
from koncord.theory import (
    centered,
    checked_shape,
    checked_size,
    gain,
    larger_root,
    leading_scores,
    scalar_or_array,
)
from koncord.theory import critical_size as critical_size
from koncord.theory import merge_onset as merge_onset
from koncord.theory import sample_anisotropy as sample_anisotropy
from koncord.types import BoolArray, FloatArray


def split_gain(anisotropy: ArrayLike, n_features: ArrayLike) -> FloatArray | float:
    """``g(r, d) = -d log(1 - 2 r / (pi d))``: twice the log-likelihood a row gains from the cut, about 2 r / pi.

    >>> round(split_gain(1, 64), 3), round(2 / np.pi, 3)
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
