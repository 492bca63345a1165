"""Intervals and tests, with the seed as the unit of replication.

A statistic that is not defined, such as an interval of one number or a correlation with a constant, is NaN and never
an error: partial rows are usual.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from koncord.types import FloatArray, IntArray

N_DRAWS = 10_000


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def lies_within(self, margin: float) -> bool:
        return bool(-margin < self.low and self.high < margin)


NOTHING = Interval(np.nan, np.nan, np.nan)


# --- intervals ---


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean of independent values with Student's interval; one value has no interval.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n == 0:
        return NOTHING
    mean = float(values.mean())
    if n == 1:
        return Interval(mean, np.nan, np.nan)
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half)


def share_interval(n_hits: int, n: int, level: float = 0.95) -> Interval:
    """A share with the interval of Clopper and Pearson.

    >>> [round(end, 2) for end in share_interval(10, 10)]
    [1.0, 0.69, 1.0]
    """
    if n == 0:
        return NOTHING
    low, high = stats.binomtest(n_hits, n).proportion_ci(level, method="exact")
    return Interval(n_hits / n, float(low), float(high))


# --- tests ---


def wilcoxon_p(differences: ArrayLike, alternative: Literal["two-sided", "greater", "less"] = "two-sided") -> float:
    """p of the signed-rank test over paired differences; a difference of zero says nothing and is left out.

    Exact for any number of differences, ties or not: scipy's is so for few of them only, and slow. If every
    difference is zero, p is 1.

    >>> wilcoxon_p([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "greater") == 2**-10
    True
    """
    values = np.asarray(differences, dtype=float)
    if len(values) == 0:
        return float("nan")
    values = values[values != 0]
    doubled = np.rint(2 * ranks(np.abs(values))).astype(int)  # the mean rank of a tie may be a half
    chances = chances_of_sums(doubled)
    observed = int(doubled[values > 0].sum())
    above, below = float(chances[observed:].sum()), float(chances[: observed + 1].sum())
    return min(1.0, {"greater": above, "less": below, "two-sided": 2 * min(above, below)}[alternative])


def chances_of_sums(ranks: IntArray) -> FloatArray:
    """Chance of every sum of those of some integers whose coin falls heads."""
    chances = np.zeros(int(ranks.sum()) + 1)
    chances[0] = 1.0
    for rank in ranks:
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return chances


def holm(p_values: ArrayLike) -> FloatArray:
    """p corrected for the number of tests (Holm 1979); an undefined p stays so and is not a test.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    corrected = np.full(p.shape, np.nan)
    order = np.argsort(p, kind="stable")[: np.isfinite(p).sum()]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def is_equivalent(differences: ArrayLike, margin: float) -> bool:
    """Two one-sided tests at 5 %: the 90 % interval of the mean difference lies inside the margin.

    >>> is_equivalent([0.1, 0.0, -0.1], 0.2), is_equivalent([0.3, 0.0, -0.3], 0.2)
    (True, False)
    """
    return t_interval(differences, level=0.9).lies_within(margin)


# --- what is described ---


def ranks(values: ArrayLike) -> FloatArray:
    """Rank of each value from 1 on; equal values share the mean of theirs."""
    ranked: FloatArray = stats.rankdata(np.asarray(values, dtype=float))
    return ranked


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Rank correlation; undefined if one of the two never changes."""
    return float(pearson_of(moments(ranks(a), ranks(b)).sum(axis=0)))


def coefficient_of_variation(values: ArrayLike) -> float:
    """Standard deviation over mean.

    The divisor is n - 1: on Waveform few values are possible in a seed, and with this divisor alone the paper's median
    of 0.11 lies between two of them.
    """
    values = np.asarray(values, dtype=float)
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 else float("nan")


def elasticity(sizes: ArrayLike, counts: ArrayLike) -> float:
    """Slope b of ``log size = a + b log count`` by least squares; undefined if the count never changes."""
    x, y = (np.log(np.asarray(values, dtype=float)) for values in (counts, sizes))
    return float(slope_of(moments(x, y).sum(axis=0)))


# --- the seed bootstrap ---
#
# Whole seeds are drawn again. Every statistic here depends on sums over clients only, so that a draw of seeds is a
# weighted sum of one row of sums for each seed, and all draws are one matrix product.

Statistic = Callable[[FloatArray], float | FloatArray]


def seed_bootstrap(
    sums: FloatArray, statistic: Statistic, *, n_draws: int = N_DRAWS, level: float = 0.95, random_state: int = 0
) -> Interval:
    """A statistic of all seeds with the percentile interval over draws of whole seeds.

    Parameters
    ----------
    sums : ndarray of shape (n_seeds, n_sums)
        What each seed adds.
    statistic : Statistic
        Of an array (..., n_sums); a draw for which it is undefined does not count.
    """
    if len(sums) == 0:
        return NOTHING
    value = float(statistic(sums.sum(axis=0)))
    draws = np.asarray(statistic(seed_draws(len(sums), n_draws, random_state) @ sums))
    draws = draws[np.isfinite(draws)]
    if len(sums) == 1 or len(draws) == 0 or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return Interval(value, float(low), float(high))


def median_bootstrap(values: ArrayLike, *, n_draws: int = N_DRAWS, random_state: int = 0) -> Interval:
    """Median over seeds, one value each, with the 95 % percentile interval over draws of seeds."""
    values = np.asarray(values, dtype=float)
    if len(values) == 0 or not np.isfinite(values).all():
        return NOTHING
    value = float(np.median(values))
    if len(values) == 1:
        return Interval(value, np.nan, np.nan)
    drawn = np.random.default_rng(random_state).integers(len(values), size=(n_draws, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), (0.025, 0.975))
    return Interval(value, float(low), float(high))


@lru_cache(maxsize=8)
def seed_draws(n_seeds: int, n_draws: int, random_state: int) -> FloatArray:
    """How often each seed is drawn: (n_draws, n_seeds)."""
    rng = np.random.default_rng(random_state)
    return rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=n_draws).astype(float)


def moments(x: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
    """What a client adds: 1, x, x^2 and, with y, also y, y^2, x y. (n_clients, 3 or 6)"""
    x = np.asarray(x, dtype=float)
    columns = [np.ones_like(x), x, x**2]
    if y is not None:
        y = np.asarray(y, dtype=float)
        columns += [y, y**2, x * y]
    return np.column_stack(columns)


def summed(parts: Sequence[FloatArray]) -> FloatArray:
    """One row for each seed: the sum over its clients."""
    return np.array([part.sum(axis=0) for part in parts])


def mean_of(sums: FloatArray) -> FloatArray:
    return divided(sums[..., 1], sums[..., 0])


def deviation_of(sums: FloatArray) -> FloatArray:
    n, total, square = np.moveaxis(sums[..., :3], -1, 0)
    return np.sqrt(divided(spread(n, total, square), n * (n - 1)))


def variation_of(sums: FloatArray) -> FloatArray:
    return divided(deviation_of(sums), mean_of(sums))


def variation_ratio_of(sums: FloatArray) -> FloatArray:
    """Coefficient of variation of the second three sums over that of the first three."""
    return divided(variation_of(sums[..., 3:]), variation_of(sums[..., :3]))


def slope_of(sums: FloatArray) -> FloatArray:
    n, x, xx, y, _, xy = np.moveaxis(sums, -1, 0)
    return divided(n * xy - x * y, spread(n, x, xx))


def pearson_of(sums: FloatArray) -> FloatArray:
    n, x, xx, y, yy, xy = np.moveaxis(sums, -1, 0)
    return divided(n * xy - x * y, np.sqrt(spread(n, x, xx) * spread(n, y, yy)))


def spread(n: FloatArray, total: FloatArray, square: FloatArray) -> FloatArray:
    """n times the scatter about the mean; zero, and not what rounding leaves of it, where nothing varies."""
    scatter = n * square - total**2
    return np.where(scatter > 1e-12 * n * square, scatter, 0.0)


def divided(above: FloatArray, below: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)
