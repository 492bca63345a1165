"""Before and after any aggregator: agree on columns and scale, run phase 1, tell who holds what."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from koncord.errors import ColumnsDiffer, KoncordError
from koncord.kernels.assign import nearest
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.silhouette import MAX_SCORED, silhouettes
from koncord.kernels.splitting import ROUNDING
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST_FLOAT, SMALLEST_FLOAT, Array, Names, Number, sent_by
from koncord.types import FloatArray, IntArray

LARGEST_SEED = 2**128
# Digits of a deviation that a common scale needs.
DIGITS = 3
# By how much of a column's deviation what a site sends of its rows may differ from its moments.
SLACK = 0.05
# What sums of floats in another order may differ by, beside the size of the values.
SAME = 1e-9
# What a site tells of its privacy budget.
BUDGET = ("epsilon", "delta", "bound", "center")
WITH_BUDGET = "a site with a privacy budget"

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Server to client: say what your columns are and, as sums, where they lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Client to server: count, mean and summed squared deviation of every column (count, sum and sum of squares).

    A client with a privacy budget tells it here.
    """

    columns: Annotated[tuple[str, ...], Names("n_features")]
    count: Annotated[int, Number(least=0, size="rows")]
    means: Annotated[FloatArray, Array("n_features")]
    scatters: Annotated[FloatArray, Array("n_features", least=0, most=LARGEST_FLOAT)]
    epsilon: Annotated[float | None, Number(least=0, only_from=WITH_BUDGET)] = None
    delta: Annotated[float | None, Number(least=0, most=1, only_from=WITH_BUDGET)] = None
    # Radius and center, the same in every column, of the ball that rows are clipped to.
    bound: Annotated[float | None, Number(least=0, only_from=WITH_BUDGET)] = None
    center: Annotated[float | None, Number(only_from=WITH_BUDGET)] = None

    def __post_init__(self) -> None:
        if not self.count and (self.means.any() or self.scatters.any()):
            raise ValueError("'means' and 'scatters' of no rows must be 0.")
        if len({value is None for value in self.budget.values()}) > 1:
            raise ValueError(f"{', '.join(map(repr, BUDGET))} must be given together.")

    @property
    def budget(self) -> dict[str, float | None]:
        """The privacy budget by the names of its parts; None each without one."""
        return {name: getattr(self, name) for name in BUDGET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Server to client: the scale to use and the seed of the run; estimate your local k on it."""

    seed: Annotated[int, Number(least=0, most=LARGEST_SEED)]
    columns: Annotated[tuple[str, ...], Names("n_features")]  # in the order of the means
    means: Annotated[FloatArray, Array("n_features")]  # to subtract
    scales: Annotated[FloatArray, Array("n_features", least=SMALLEST_FLOAT)]  # to divide by


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Client to server: phase 1 is done, with this local k."""

    local_k: Annotated[int, Number(least=0, size="local_k")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """Server to client: the global centers; say how many of your rows each attracts."""

    centers: Annotated[FloatArray, Array("global_k", "n_features")]
    # The shape of the clusters, where it is known: a row goes to the most likely one, else to the nearest center.
    axes: Annotated[FloatArray | None, Array("n_axes", "n_features")] = None
    covariances: Annotated[FloatArray | None, Array("global_k", "n_axes", "n_axes")] = None
    weights: Annotated[FloatArray | None, Array("global_k", least=0, most=1)] = None

    def __post_init__(self) -> None:
        self.gaussians()  # ValueError if they are no covariances

    def gaussians(self) -> Gaussians | None:
        if self.axes is None or self.covariances is None or self.weights is None:
            if not (self.axes is None and self.covariances is None and self.weights is None):
                raise ValueError("'axes', 'covariances' and 'weights' must be given together.")
            return None
        return Gaussians(centers=self.centers, axes=self.axes, covariances=self.covariances, weights=self.weights)

    def assign(self, X: FloatArray) -> IntArray:
        """The cluster of every row of X (n, n_features)."""
        gaussians = self.gaussians()
        return nearest(X, self.centers) if gaussians is None else gaussians.assign(X)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Client to server: rows and their mean silhouette in each global cluster."""

    counts: Annotated[IntArray, Array("global_k", least=0, total="rows")]
    silhouettes: Annotated[
        FloatArray, Array("global_k", least=-1, most=1, may_be_nan=True)
    ]  # NaN where the client has no silhouette there
    scored: Annotated[IntArray, Array("global_k", least=0, total="rows")]  # rows the silhouettes stand for


# The reply to each message of the server, and all that these disclose.
REPLIES: dict[type[Any], type[Any]] = {Describe: Moments, Prepare: Prepared, Attribute: Holdings}
SENDS = sent_by(REPLIES.values())

# --- client steps ---


def describe(X: FloatArray, columns: tuple[str, ...], min_report: int = 1) -> Moments:
    """Count and sums of a table; of one with fewer than `min_report` rows the columns only."""
    if len(X) < min_report:
        return Moments(columns=columns, count=0, means=np.zeros(len(columns)), scatters=np.zeros(len(columns)))
    means = X.mean(axis=0)
    return Moments(columns=columns, count=len(X), means=means, scatters=((X - means) ** 2).sum(axis=0))


def rounded(exact: Moments) -> Moments:
    """Moments in as many digits as a scale needs: the deviation of a column in three, its mean to the third of these.

    A column whose rows are all equal keeps its mean.
    """
    deviations = np.sqrt(exact.scatters / max(exact.count, 1))
    has_scale = (deviations > ROUNDING * np.abs(exact.means)) & (deviations >= SMALLEST_FLOAT)
    steps = np.where(has_scale, 10.0 ** (np.floor(np.log10(np.where(has_scale, deviations, 1.0))) - DIGITS + 1), 1.0)
    with np.errstate(over="ignore"):
        return replace(
            exact,
            means=np.where(has_scale, np.rint(exact.means / steps) * steps, exact.means),
            scatters=np.where(has_scale, exact.count * (np.rint(deviations / steps) * steps) ** 2, exact.scatters),
        )


def attribute(X: FloatArray, labels: IntArray, down: Attribute, min_report: int = 1) -> Holdings:
    """Rows of X and their mean silhouettes by the clusters of `labels`; nothing of a table below `min_report`.

    `labels` are those of the joint partition, so a cluster has none or enough. Silhouettes, of `MAX_SCORED` rows at
    most, are sent in two digits. They are no sums of rows, so the partition does not cover them; each is a mean over at
    least `min_report` rows.
    """
    k = len(down.centers)
    counts = np.bincount(labels, minlength=k)
    counts = np.where(counts >= min_report, counts, 0)
    rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), MAX_SCORED)).astype(np.int64))
    values = silhouettes(squareform(pdist(X[rows])), labels[rows])
    found = np.bincount(labels[rows], minlength=k) if values is not None else np.zeros(k, dtype=np.int64)
    summed = np.bincount(labels[rows], values, minlength=k) if values is not None else np.zeros(k)
    is_scored = (found >= min_report) & (found > 0) & (counts > 0)
    means = np.where(is_scored, summed / np.maximum(found, 1), np.nan)
    if min_report > 1:
        means = np.round(means, 2)
    return Holdings(counts=counts, silhouettes=means, scored=np.where(is_scored, counts, 0))


def without_small(counts: IntArray, least: int) -> IntArray:
    """Counts with those below `least` as 0, and with them the next smallest if what is left out sums to such a count.

    A reader who knows the number of all rows knows the sum of what is left out.
    """
    is_small = counts < least
    if 0 < counts[is_small].sum() < least and not is_small.all():
        is_small[np.where(is_small, counts.max() + 1, counts).argmin()] = True
    return np.where(is_small, 0, counts)


# --- server steps ---


def agreed_columns(moments: Mapping[str, Moments], *, common: bool = False) -> tuple[str, ...]:
    """The columns of the first client, if every client has just these; else an error that names the difference.

    With `common`, those of its columns that every client has.
    """
    first, *others = moments
    columns = moments[first].columns
    if common:
        return common_columns(moments)
    for client in others:
        theirs = moments[client].columns
        missing = [column for column in columns if column not in theirs]
        extra = [column for column in theirs if column not in columns]
        if missing or extra:
            differences = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"adds {', '.join(extra)}"] * bool(extra)
            raise ColumnsDiffer(
                f"The columns of site {client!r} are not those of site {first!r}: it {' and '.join(differences)}. "
                "Take what all sites share with --common-columns (in Python: common_columns=True), or name the columns "
                "to use with --columns."
            )
    return columns


def common_columns(moments: Mapping[str, Moments]) -> tuple[str, ...]:
    """The columns that every client has, in the order of the first; an error if there are none."""
    first, *others = moments.values()
    shared = tuple(column for column in first.columns if all(column in other.columns for other in others))
    if not shared:
        own = "; ".join(f"{client} has {', '.join(sent.columns)}" for client, sent in moments.items())
        raise ColumnsDiffer(f"The sites share no column: {own}.")
    return shared


def left_out(moments: Mapping[str, Moments], columns: tuple[str, ...]) -> dict[str, list[str]]:
    """The columns that are not used, and the clients that have them."""
    others = dict.fromkeys(column for sent in moments.values() for column in sent.columns if column not in columns)
    return {column: [client for client, sent in moments.items() if column in sent.columns] for column in others}


def common_scale(moments: Mapping[str, Moments], columns: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the pooled rows, from the clients' sums; a constant column has scale 1."""
    total = sum(m.count for m in moments.values())
    if not total:
        raise KoncordError(
            f"Every site has fewer rows than it reports at least, so there is nothing to scale by. {LOWER_FLOOR}"
        )
    means = {client: m.means[order_of(m.columns, columns)] for client, m in moments.items()}
    mean = np.sum([m.count * means[client] for client, m in moments.items()], axis=0) / total
    scatter = np.sum(
        [
            m.scatters[order_of(m.columns, columns)] + m.count * (means[client] - mean) ** 2
            for client, m in moments.items()
        ],
        axis=0,
    )
    deviation = np.sqrt(scatter / total)
    rounding = ROUNDING * np.max([np.abs(own) for own in means.values()], axis=0)  # of a mean, in a constant column
    return mean, np.where(deviation > rounding, deviation, 1.0)


def why_not_same_rows(described: tuple[int, FloatArray, FloatArray], moments: Moments, prepare: Prepare) -> str | None:
    """Why a description of rows, with these moments on the agreed scale, is not one of the rows of `moments`.

    Moments are rounded, and controlled rounding moves a few values of two-valued columns: there is some slack.
    """
    count, means, scatters = described
    if not count:  # a site may have too few rows to describe any
        return None
    if count != moments.count:
        return f"it is of {count} rows, the moments are of {moments.count}"
    order = order_of(moments.columns, prepare.columns)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (moments.means[order] - prepare.means) / prepare.scales
        spread = moments.scatters[order] / prepare.scales**2
        rounding = SAME * (1 + np.abs(expected) + np.abs(prepare.means) / prepare.scales)
        gaps = np.abs(means - expected) - (SLACK * np.sqrt(spread / count) + rounding)
        if not (gaps <= 0).all():
            return f"the mean of column {prepare.columns[int(gaps.argmax())]!r} is another"
        gaps = np.abs(scatters - spread) - (2 * SLACK * spread + count * rounding**2)
        if not (gaps <= 0).all():
            return f"the spread of column {prepare.columns[int(gaps.argmax())]!r} is another"
    return None


def no_scale(columns: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    return np.zeros(len(columns)), np.ones(len(columns))


def order_of(columns: tuple[str, ...], wanted: tuple[str, ...]) -> IntArray:
    """Positions in `columns` of the `wanted` ones."""
    return np.array([columns.index(column) for column in wanted], dtype=np.int64)
