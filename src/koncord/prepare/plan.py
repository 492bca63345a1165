"""What is done with every column: the plan that all sites share, and its application to rows.

In order: the logarithm, the fence, the scale, what stands in for a missing value. A category becomes one feature a
level, 1 or 0, less its share and divided by the root of share times levels - 1: all levels of a column together have
variance 1, as a column of numbers has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.kernels.scaling import on_scale
from koncord.prepare.settings import Fill
from koncord.types import BoolArray, FloatArray, IntArray

OTHER = "other"  # the level of all levels that are too rare to be sent
NO_FENCE = LARGEST_VALUE
# Least share of a column's variance that the others leave open: below, what is filled in would follow noise.
LEAST_OPEN = 1e-3
NEIGHBORS = 5
MOST_DONORS, ROWS_AT_ONCE = 4000, 500  # of a table, so that the time grows with its rows and no faster


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What is done with every column of every site."""

    columns: tuple[str, ...]  # of numbers, in the order of the arrays
    means: FloatArray  # (n_columns,) to subtract
    scales: FloatArray  # (n_columns,) to divide by
    logged: IntArray | None = None  # (n_columns,) 1 where the logarithm is taken first
    least: FloatArray | None = None  # (n_columns,) what is below is raised to this before the logarithm
    low: FloatArray | None = None  # (n_columns,) the fence, after the logarithm
    high: FloatArray | None = None
    missing: Fill | None = None  # what stands in for a missing value; None: nothing may be missing
    fill: FloatArray | None = None  # (n_columns,) mean of each column, on the scale; None: zeros
    covariances: FloatArray | None = None  # (n_columns, n_columns) on the scale, for "gaussian"
    categories: tuple[str, ...] = ()
    levels: tuple[tuple[str, ...], ...] = ()  # of each category
    shares: tuple[FloatArray, ...] = ()  # of each level, in all rows that have one

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return all(is_same_part(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what phase 1 sees: the columns of numbers, then the levels."""
        named = [f"{c}={level}" for c, levels in zip(self.categories, self.levels, strict=True) for level in levels]
        return (*self.columns, *named)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return (*self.columns, *self.categories)

    @property
    def feature_means(self) -> FloatArray:
        return np.concatenate([self.means, *self.shares])

    @property
    def feature_scales(self) -> FloatArray:
        return np.concatenate([self.scales, *map(level_scales, self.shares)])

    @cached_property
    def is_logged(self) -> BoolArray:
        return np.zeros(len(self.columns), dtype=bool) if self.logged is None else self.logged.astype(bool)

    def apply(
        self,
        X: FloatArray,
        columns: Sequence[str],
        levels: Mapping[str, Sequence[str]] | None = None,
        *,
        floor: int = 1,
        centers: FloatArray | None = None,
    ) -> FloatArray:
        """Rows of a table (n, n_columns) as phase 1 sees them, (n, n_features), without gaps.

        Parameters
        ----------
        X : array (n, n_columns)
            The table; NaN where a value is missing, and a position in its levels where a column is a category.
        columns : sequence of str
            Names of the columns of X.
        levels : mapping of str to sequence of str, default None
            The levels of each category, as the table has them.
        floor : int, default 1
            Fewer gaps than this in a column are filled by its mean: else what the rows with gaps sum to would tell a
            server that knows the sums of the others what is in few rows.
        centers : array (n_clusters, n_features), default None
            Clusters that are known already: with "neighbors", a gap is then what the center has that is nearest in all
            that the row has, so that no other row of its table matters.
        """
        Z = self.with_gaps(X, columns, levels)
        if centers is not None and self.missing == "neighbors":
            return nearest_center_fill(Z, centers)
        p = len(self.columns)
        numbers = self.filled(Z[:, :p], floor)
        return np.concatenate([numbers, np.nan_to_num(Z[:, p:])], axis=1) if self.categories else numbers

    def with_gaps(
        self, X: FloatArray, columns: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None
    ) -> FloatArray:
        """Rows of a table (n, n_columns) on the scale of the features, (n, n_features), NaN where a value is missing.

        Parameters
        ----------
        X, columns, levels
            As of `apply`.
        """
        at = {name: position for position, name in enumerate(columns)}
        scaled = self.scaled(self._numbers(X, columns))
        if self.missing is None:
            self.check_complete(scaled)
        encoded = [
            self.encoded(which, X[:, at[name]], (levels or {}).get(name, ()))
            for which, name in enumerate(self.categories)
        ]
        return np.concatenate([scaled, *encoded], axis=1) if encoded else scaled

    def shaped(self, values: FloatArray) -> FloatArray:
        """Columns of numbers (n, n_columns) behind logarithm and fence."""
        shaped = self.unfenced(values)
        return shaped if self.low is None or self.high is None else np.clip(shaped, self.low, self.high)

    def unfenced(self, values: FloatArray) -> FloatArray:
        """Columns of numbers (n, n_columns) behind the logarithm."""
        if not self.is_logged.any():
            return values
        least = np.zeros(len(self.columns)) if self.least is None else self.least
        shaped = values.copy()
        shaped[:, self.is_logged] = np.log(
            np.maximum(values[:, self.is_logged], np.maximum(least[self.is_logged], TINY))
        )
        return shaped

    def unshaped(self, shaped: FloatArray) -> FloatArray:
        """Shaped columns of numbers (n, n_columns) in the units of the table."""
        if not self.is_logged.any():
            return shaped
        values = shaped.copy()
        values[:, self.is_logged] = np.exp(shaped[:, self.is_logged])
        return values

    def is_fenced(self, values: FloatArray) -> BoolArray:
        """Values (n, n_columns) of columns of numbers that the fence moves."""
        unfenced = self.unfenced(values)
        fenced: BoolArray = ~np.isnan(unfenced) & (self.shaped(values) != unfenced)
        return fenced

    def scaled(self, values: FloatArray) -> FloatArray:
        """Columns of numbers on the common scale, NaN where a value is missing."""
        low, high = (None, None) if self.low is None or self.high is None else (self.low, self.high)
        return on_scale(self.unfenced(values), self.means, self.scales, low, high)

    def scaled_unfenced(self, X: FloatArray, columns: Sequence[str]) -> FloatArray:
        """Columns of numbers of a table on the common scale, not moved by the fence; NaN where a value is missing."""
        return on_scale(self.unfenced(self._numbers(X, columns)), self.means, self.scales)

    def _numbers(self, X: FloatArray, columns: Sequence[str]) -> FloatArray:
        """The columns of numbers of a table, in the order of the plan; the table itself where it has no others."""
        if tuple(columns) == self.columns:
            return X
        at = {name: position for position, name in enumerate(columns)}
        return X[:, [at[name] for name in self.columns]]

    def check_complete(self, Z: FloatArray) -> None:
        """Refuse gaps in scaled columns of numbers (n, n_columns) where nothing was agreed about them."""
        gaps = np.isnan(Z).any(axis=0)
        if self.missing is None and gaps.any():
            named = [self.columns[at] for at in np.flatnonzero(gaps).tolist()]
            raise ValueError(f"Values of {', '.join(named)} are missing, and nothing was agreed to stand in for them.")

    def filled(self, Z: FloatArray, floor: int = 1) -> FloatArray:
        """Scaled rows with what stands in for their gaps."""
        gaps = np.isnan(Z)
        if not gaps.any():
            return Z
        self.check_complete(Z)
        fill = np.zeros(Z.shape[1]) if self.fill is None else self.fill
        few = gaps.sum(axis=0) < floor
        Z = np.where(gaps & few, fill, Z)
        if self.missing == "neighbors":
            return neighbor_means(Z, fill)
        if self.covariances is None or self.missing != "gaussian":
            return np.where(gaps, fill, Z)
        return conditional_means(Z, fill, self.covariances)

    def encoded(self, which: int, codes: FloatArray, own: Sequence[str]) -> FloatArray:
        """The features (n, n_levels) of one category; NaN where a level is missing."""
        levels, shares = self.levels[which], self.shares[which]
        place = {level: position for position, level in enumerate(levels)}
        rest = place.get(OTHER, -1)
        places = np.array([*(place.get(level, rest) for level in own), -2], dtype=np.int64)
        position = places[np.where(np.isnan(codes), len(own), codes).astype(np.int64)]
        hot = (position[:, None] == np.arange(len(levels))).astype(float)
        encoded: FloatArray = np.where(position[:, None] == -2, np.nan, (hot - shares) / level_scales(shares))
        return encoded

    def original(self, Z: FloatArray) -> FloatArray:
        """Points on the scale of the features in the units of the tables; of a level, its share."""
        values: FloatArray = Z * self.feature_scales + self.feature_means
        logged = np.flatnonzero(self.is_logged)
        values[:, logged] = np.exp(values[:, logged])
        return values


def is_same_part(one: object, other: object) -> bool:
    """Whether two parts of plans are the same, arrays entry by entry."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(is_same_part, one, other))
    return type(one) is type(other) and one == other


TINY = float(np.finfo(float).tiny)


def plain_plan(columns: tuple[str, ...], means: FloatArray, scales: FloatArray) -> Plan:
    """A plan that only subtracts and divides."""
    return Plan(columns=columns, means=means, scales=scales)


def level_scales(shares: FloatArray) -> FloatArray:
    """What the features of one category are divided by."""
    scales: FloatArray = np.sqrt(np.maximum(shares, TINY) * max(len(shares) - 1, 1))
    return scales


def neighbor_means(Z: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Rows with every gap at the mean of the nearest rows that have a value there.

    They are looked for twice: by what both rows have, then by all columns, where gaps are at what was found first.

    Parameters
    ----------
    Z : array (n, d)
        Rows, NaN where a value is missing.
    otherwise : array (d,)
        What stands in where fewer than `NEIGHBORS` rows have a value.
    """
    return means_of_nearest(Z, means_of_nearest(Z, Z, otherwise), otherwise)


def means_of_nearest(Z: FloatArray, compared: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Rows with every gap at the mean of the rows with a value there that are nearest in what both have of `compared`.

    Parameters
    ----------
    Z : array (n, d)
        Rows, NaN where a value is missing.
    compared : array (n, d)
        What distances are taken of; NaN where a value is missing.
    otherwise : array (d,)
        What stands in where fewer than `NEIGHBORS` rows have a value.
    """
    has, is_compared = ~np.isnan(Z), ~np.isnan(compared)
    has_any = np.asarray(has.any(axis=1))
    filled = np.where(has_any[:, None], Z, otherwise)  # a row without any value is near to no other
    donors = np.unique(np.linspace(0, len(Z) - 1, min(len(Z), MOST_DONORS)).astype(np.int64))
    gives, given = has[donors], Z[donors]
    known, values = is_compared[donors].astype(float), np.where(is_compared, compared, 0.0)[donors]
    rows = np.flatnonzero(~has.all(axis=1) & has_any)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        own = rows[start : start + ROWS_AT_ONCE]
        there, mine = is_compared[own].astype(float), np.where(is_compared[own], compared[own], 0.0)
        both = there @ known.T
        squares = (mine**2) @ known.T - 2 * mine @ values.T + there @ (values**2).T
        distances = np.where((both > 0) & (own[:, None] != donors), squares / np.maximum(both, 1), np.inf)
        for column in np.flatnonzero(~has[own].all(axis=0)).tolist():
            givers = np.flatnonzero(gives[:, column])
            gaps = np.flatnonzero(~has[own, column])
            if len(givers) < NEIGHBORS:
                filled[own[gaps], column] = otherwise[column]
                continue
            nearest = np.argpartition(distances[np.ix_(gaps, givers)], NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            filled[own[gaps], column] = given[givers[nearest], column].mean(axis=1)
    return filled


def nearest_center_fill(Z: FloatArray, centers: FloatArray) -> FloatArray:
    """Rows with every gap at what the center has that is nearest in all other columns.

    Parameters
    ----------
    Z : array (n, d)
        Rows, NaN where a value is missing.
    centers : array (k, d)
        Of the clusters.
    """
    gaps = np.isnan(Z)
    rows = np.flatnonzero(gaps.any(axis=1))
    if not len(rows):
        return Z
    filled = Z.copy()
    there, mine = (~gaps[rows]).astype(float), np.where(gaps[rows], 0.0, Z[rows])
    squared = there @ (centers**2).T - 2 * mine @ centers.T
    filled[rows] = np.where(gaps[rows], centers[squared.argmin(axis=1)], Z[rows])
    return filled


def conditional_means(Z: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Rows with every gap at what a Gaussian with this mean and covariance expects given the rest of its row.

    Parameters
    ----------
    Z : array (n, d)
        Rows, NaN where a value is missing.
    mean : array (d,)
        Of the Gaussian.
    covariance : array (d, d)
        Of the Gaussian; positive definite.
    """
    filled = Z.copy()
    patterns, which = np.unique(np.isnan(Z), axis=0, return_inverse=True)
    for number, gaps in enumerate(patterns):
        rows = np.flatnonzero(which == number)
        there = ~gaps
        if not gaps.any():
            continue
        if not there.any():
            filled[rows] = mean
            continue
        weights = np.linalg.solve(covariance[np.ix_(there, there)], covariance[np.ix_(there, gaps)])
        filled[np.ix_(rows, gaps)] = mean[gaps] + (Z[np.ix_(rows, there)] - mean[there]) @ weights
    return filled


def as_covariance(correlations: FloatArray, deviations: FloatArray) -> FloatArray:
    """The nearest usable covariance to correlations that were put together pair by pair."""
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    whole = (vectors * np.maximum(values, LEAST_OPEN)) @ vectors.T
    root = np.sqrt(np.diagonal(whole))
    covariance: FloatArray = whole / np.outer(root, root) * np.outer(deviations, deviations)
    return covariance
