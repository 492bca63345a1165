"""Before and after any aggregator: agree on columns and scale, run phase 1, tell who holds what."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from koncord._validation import LARGEST_VALUE
from koncord.errors import ColumnsDiffer, KoncordError
from koncord.kernels.assign import nearest
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.silhouette import MAX_SCORED, group_silhouettes, silhouettes
from koncord.kernels.splitting import ROUNDING
from koncord.prepare.columns import Columns, Measures, describe_columns, measure
from koncord.prepare.plan import Plan
from koncord.prepare.settings import FILLS, Fill
from koncord.prepare.sketch import ColumnSketch
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.partition import Rows, Shaping, gaps_filled
from koncord.protocol.schema import LARGEST, LARGEST_FLOAT, SMALLEST_FLOAT, Array, Names, Number, Word, sent_by
from koncord.protocol.wire import unpack
from koncord.types import FloatArray, IntArray

LARGEST_SEED = 2**128
# Digits of a deviation that a common scale needs.
DIGITS = 3
# A correlation is sent in steps of this over the number of rows: no row moves it by much more than a step.
ROWS_A_STEP = 10
# Share of the values of a column that a fence leaves where they are, at least: one that does not is no fence.
INSIDE = 0.5
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
    def inputs(self) -> tuple[str, ...]:
        """All columns."""
        return self.columns

    @property
    def budget(self) -> dict[str, float | None]:
        """The privacy budget by the names of its parts; None each without one."""
        return {name: getattr(self, name) for name in BUDGET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Server to client: say what your columns are and how their values are distributed, in blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Client to server: the columns, how many rows have a value, and the means of sorted blocks of values.

    The values at both ends of a column are sent by their number alone (see `koncord.prepare.sketch`). A client with a
    privacy budget sends the names of its columns and its budget.
    """

    columns: Annotated[tuple[str, ...], Names("n_columns")]  # of numbers
    count: Annotated[int, Number(least=0, size="rows")]
    available: Annotated[IntArray, Array("n_columns", least=0, most=LARGEST["rows"])]
    ends: Annotated[IntArray, Array("n_columns", least=0, most=LARGEST["rows"])]  # values at each end
    blocks: Annotated[FloatArray, Array("at most n_blocks", "n_columns", may_be_nan=True)]  # NaN: no block
    categories: Annotated[tuple[str, ...] | None, Names("n_categories")] = None
    category_rows: Annotated[IntArray | None, Array("n_categories", least=0, most=LARGEST["rows"])] = None
    # Levels of at least as many rows as the floor, each behind the number of its category and a colon.
    levels: Annotated[tuple[str, ...] | None, Names("n_levels")] = None
    level_rows: Annotated[IntArray | None, Array("n_levels", least=1, most=LARGEST["rows"])] = None
    epsilon: Annotated[float | None, Number(least=0, only_from=WITH_BUDGET)] = None

    def __post_init__(self) -> None:
        if (self.available > self.count).any() or (2 * self.ends > self.available + self.count).any():
            raise ValueError("'available' and 'ends' must not count more rows than there are.")
        if (self.categories is None) != (self.category_rows is None) or (self.levels is None) != (
            self.level_rows is None
        ):
            raise ValueError("'categories' and 'levels' must be given with their rows.")
        if self.category_rows is not None and (self.category_rows > self.count).any():
            raise ValueError("'category_rows' must not count more rows than there are.")
        numbers = {level.partition(":")[0] for level in self.levels or ()}
        if not numbers <= {str(at) for at in range(len(self.categories or ()))}:
            raise ValueError("'levels' must be of the categories.")

    @property
    def inputs(self) -> tuple[str, ...]:
        """All columns: numbers, then categories."""
        return (*self.columns, *(self.categories or ()))

    def described(self) -> Columns:
        """The same, column by column."""
        columns, categories = self.columns or (), self.categories or ()
        levels: dict[str, dict[str, int]] = {name: {} for name in categories}
        for level, n in zip(
            self.levels or (), [] if self.level_rows is None else self.level_rows.tolist(), strict=True
        ):
            at, _, text = level.partition(":")
            levels[categories[int(at)]][text] = n
        rows = [] if self.category_rows is None else self.category_rows.tolist()
        return Columns(
            count=self.count,
            sketches={
                name: ColumnSketch(
                    means=np.sort(own[~np.isnan(own)]),
                    n_values=int(self.available[at]),
                    n_end=min(int(self.ends[at]), int(self.available[at]) // 2),
                )
                for at, name in enumerate(columns)
                for own in (self.blocks[:, at],)
            },
            available={
                **dict(zip(columns, self.available.tolist(), strict=True)),
                **dict(zip(categories, rows, strict=True)),
            },
            levels=levels,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Server to client: how columns are shaped; say what your shaped values sum to."""

    columns: Annotated[tuple[str, ...], Names("n_columns")]
    means: Annotated[FloatArray, Array("n_columns")]  # to subtract before anything is summed
    scales: Annotated[FloatArray, Array("n_columns", least=SMALLEST_FLOAT)]  # to divide by
    logged: Annotated[IntArray | None, Array("n_columns", least=0, most=1)] = None
    least: Annotated[FloatArray | None, Array("n_columns", least=0)] = None
    low: Annotated[FloatArray | None, Array("n_columns")] = None
    high: Annotated[FloatArray | None, Array("n_columns")] = None
    paired: bool = False  # whether sums of products are wanted

    def plan(self) -> Plan:
        return Plan(**scale_and_shape(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Client to server: count, mean and scatter of the shaped values of every column, and products of pairs."""

    counts: Annotated[IntArray, Array("n_columns", least=0, most=LARGEST["rows"])]
    means: Annotated[FloatArray, Array("n_columns")]
    scatters: Annotated[FloatArray, Array("n_columns", least=0, most=LARGEST_FLOAT)]
    fenced: Annotated[IntArray, Array("n_columns", least=0, most=LARGEST["rows"])]
    products: Annotated[
        FloatArray | None, Array("n_columns", "n_columns", least=-LARGEST_FLOAT, most=LARGEST_FLOAT)
    ] = None
    pairs: Annotated[IntArray | None, Array("n_columns", "n_columns", least=0, most=LARGEST["rows"])] = None

    def measures(self) -> Measures:
        return Measures(
            counts=self.counts,
            means=self.means,
            scatters=self.scatters,
            fenced=self.fenced,
            products=self.products,
            pairs=self.pairs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Server to client: the plan for the columns and the seed of the run; if it asks, estimate your local k on it."""

    seed: Annotated[int, Number(least=0, most=LARGEST_SEED)]
    columns: Annotated[tuple[str, ...], Names("n_columns")]  # of numbers, in the order of the means
    means: Annotated[FloatArray, Array("n_columns")]  # to subtract
    scales: Annotated[FloatArray, Array("n_columns", least=SMALLEST_FLOAT)]  # to divide by
    logged: Annotated[IntArray | None, Array("n_columns", least=0, most=1)] = None
    least: Annotated[FloatArray | None, Array("n_columns", least=0)] = None
    low: Annotated[FloatArray | None, Array("n_columns")] = None
    high: Annotated[FloatArray | None, Array("n_columns")] = None
    missing: Annotated[str | None, Word(*FILLS)] = None
    fill: Annotated[FloatArray | None, Array("n_columns")] = None
    covariances: Annotated[FloatArray | None, Array("n_columns", "n_columns")] = None
    categories: Annotated[tuple[str, ...] | None, Names("n_categories")] = None
    levels: Annotated[tuple[str, ...] | None, Names("n_levels")] = None  # as in `Sketch`
    shares: Annotated[FloatArray | None, Array("n_levels", least=0, most=1)] = None
    asks_local_k: bool = True  # whether to run phase 1 and tell its local k

    def __post_init__(self) -> None:
        if self.covariances is not None and not is_covariance(self.covariances):
            raise ValueError("'covariances' must be symmetric and positive definite.")
        self.plan()  # ValueError if the levels are not of the categories

    @property
    def n_features(self) -> int:
        """Columns that phase 1 sees: numbers and levels."""
        return len(self.columns) + len(self.levels or ())

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the table that are used."""
        return (*self.columns, *(self.categories or ()))

    def plan(self) -> Plan:
        categories = self.categories or ()
        levels: list[list[str]] = [[] for _ in categories]
        shares: list[list[float]] = [[] for _ in categories]
        for level, share in zip(self.levels or (), [] if self.shares is None else self.shares.tolist(), strict=True):
            at, _, text = level.partition(":")
            if at not in map(str, range(len(categories))):
                raise ValueError("'levels' must be of the categories.")
            levels[int(at)].append(text)
            shares[int(at)].append(share)
        missing: Fill | None = next((how for how in FILLS if how == self.missing), None)
        return Plan(
            **scale_and_shape(self),
            missing=missing,
            fill=self.fill,
            covariances=self.covariances,
            categories=categories,
            levels=tuple(map(tuple, levels)),
            shares=tuple(map(np.array, shares)),
        )

    def is_shaped_as(self, asked: Measure) -> bool:
        """Whether columns are shaped here as they were when they were measured: both sums are over the same values."""
        return self.columns == asked.columns and all(
            is_same(getattr(self, name), getattr(asked, name), usual) for name, usual in SHAPE.items()
        )

    @property
    def is_plain(self) -> bool:
        """Whether values are scaled and nothing else."""
        parts = (*SHAPE, "fill", "covariances", "categories")
        return all(getattr(self, name) is None for name in parts)


# The parts of a plan that shape a column, and what each is where it does nothing.
SHAPE = {"logged": 0.0, "least": 0.0, "low": -LARGEST_VALUE, "high": LARGEST_VALUE}


def scale_and_shape(of: Any) -> dict[str, Any]:
    """What a plan and the messages that carry it have in common."""
    return {name: getattr(of, name) for name in ("columns", "means", "scales", *SHAPE)}


def is_same(one: Any, other: Any, usual: float) -> bool:
    """Whether two arrays are the same, where None stands for one of usual values."""
    if one is None and other is None:
        return True
    given = next(each for each in (one, other) if each is not None)
    first, second = (np.full(len(given), usual) if each is None else each for each in (one, other))
    return bool(np.array_equal(first, second))


def is_covariance(matrix: FloatArray) -> bool:
    if not np.allclose(matrix, matrix.T):
        return False
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Client to server: ready, with this local k of phase 1; None where it was not asked for."""

    local_k: Annotated[int | None, Number(least=0, size="local_k")]


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
REPLIES: dict[type[Any], type[Any]] = {
    Survey: Sketch,
    Measure: Measured,
    Describe: Moments,
    Prepare: Prepared,
    Attribute: Holdings,
}
# What comes before the rounds of an aggregator; a reply that was lost is sent again.
OPENINGS = (Survey, Measure, Describe, Prepare)
SENDS = sent_by(REPLIES.values())

# --- client steps ---


def describe(X: FloatArray, columns: tuple[str, ...], min_report: int = 1) -> Moments:
    """Count and sums of a table; of one with fewer than `min_report` rows the columns only."""
    if len(X) < min_report:
        return Moments(columns=columns, count=0, means=np.zeros(len(columns)), scatters=np.zeros(len(columns)))
    n = np.maximum((~np.isnan(X)).sum(axis=0), 1)
    means = np.nansum(X, axis=0) / n
    return Moments(columns=columns, count=len(X), means=means, scatters=np.nansum((X - means) ** 2, axis=0))


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


def rounded_sketch(exact: Sketch) -> Sketch:
    """A sketch in as many digits as a shape needs: block means to a tenth of what half of the blocks span.

    Of a column whose blocks are all above 0 the small ones keep a digit of their own, which the rule for logarithms
    reads. The blocks of one column are no cells of the joint partition: with all digits, blocks and cells that nearly
    are the same would tell by how few rows they differ.
    """
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without a block
        spans = np.diff(np.nanquantile(exact.blocks, (0.25, 0.75), axis=0), axis=0)[0] if len(exact.blocks) else 0.0
    has_span = np.nan_to_num(np.broadcast_to(spans, len(exact.columns))) > 0
    steps = np.where(has_span, 10.0 ** np.floor(np.log10(np.where(has_span, spans, 1.0)) - 1), 1.0)
    is_above = ~(exact.blocks <= 0).any(axis=0) & ~np.isnan(exact.blocks)
    own_digit = 10.0 ** np.floor(np.log10(np.where(is_above, exact.blocks, 1.0)))
    steps = np.where(is_above, np.minimum(steps, own_digit), steps)
    return replace(exact, blocks=np.where(has_span, np.rint(exact.blocks / steps) * steps, exact.blocks))


def rounded_measures(exact: Measured, asked: Measure) -> Measured:
    """Sums of shaped values in as many digits as a scale needs, as `rounded`; correlations as far as no row moves them.

    They are rounded in the units of the table, about the means that are sent: whatever scale they are asked on, they
    tell the same.
    """
    n = np.maximum(exact.counts, 1)
    own = asked.means + asked.scales * exact.means
    deviations = asked.scales * np.sqrt(exact.scatters / n)
    has_scale = (deviations > ROUNDING * np.abs(own)) & (deviations >= SMALLEST_FLOAT)
    steps = np.where(has_scale, 10.0 ** (np.floor(np.log10(np.where(has_scale, deviations, 1.0))) - DIGITS + 1), 1.0)
    means = np.where(has_scale, (np.rint(own / steps) * steps - asked.means) / asked.scales, exact.means)
    spreads = np.where(has_scale, np.rint(deviations / steps) * steps / asked.scales, deviations / asked.scales)
    is_reported = exact.counts > 0
    products = exact.products
    if products is not None and exact.pairs is not None:
        pairs = np.maximum(exact.pairs, 1)
        scale = pairs * np.outer(deviations, deviations) / np.outer(asked.scales, asked.scales)
        about_means = products - exact.pairs * np.outer(exact.means, exact.means)
        step = np.maximum(10.0**-DIGITS, ROWS_A_STEP / pairs)
        correlations = np.rint(np.divide(about_means, scale, out=np.zeros_like(scale), where=scale > 0) / step) * step
        np.fill_diagonal(correlations, 1.0)
        products = exact.pairs * (np.clip(correlations, -1, 1) * np.outer(spreads, spreads) + np.outer(means, means))
    return replace(
        exact,
        means=np.where(is_reported, means, 0.0),
        scatters=np.where(has_scale & is_reported, n * spreads**2, exact.scatters),
        products=products,
    )


def without_windows(asked: Measure, rows: Rows, columns: tuple[str, ...]) -> Measure:
    """The question without fences that leave less than half of the values of a column where they are.

    Such a fence is a window: the rows outside it all have known values, and a sum tells the few that are inside.
    """
    at = order_of(columns, asked.columns)
    there = ~np.isnan(rows.raw[:, at])
    n_inside = (there & ~Shaping(plan=asked.plan(), at=at).is_moved(rows.raw)[:, at]).sum(axis=0)
    is_window = n_inside < INSIDE * there.sum(axis=0)
    if not is_window.any():
        return asked
    kept: dict[str, Any] = {}
    for name, usual in SHAPE.items():
        own = getattr(asked, name)
        if own is not None:
            kept[name] = np.where(is_window, usual, own).astype(own.dtype)
    return replace(asked, **kept)


def completed(X: FloatArray, columns: tuple[str, ...], plan: bytes, floor: int) -> FloatArray:
    """A table (n, n_columns) with its gaps filled in by a plan, as it was sent, in the units of the table.

    What is filled in lies between the lowest and the highest value of its column: it is no mark that a sum would show.
    Columns that are not in the plan get their medians.
    """
    own = unpack(plan, (Prepare,))[0].plan()
    at = order_of(columns, own.columns)
    there = X[:, at]
    free = replace(own, low=None, high=None, least=smallest_positive(there))
    values = free.unshaped(free.filled(free.scaled(there), floor) * own.scales + own.means)
    is_gap = np.isnan(there)
    low = np.where(is_gap, np.inf, there).min(axis=0, initial=np.inf)
    high = np.where(is_gap, -np.inf, there).max(axis=0, initial=-np.inf)
    whole = gaps_filled(X).copy()
    whole[:, at] = np.where(is_gap, np.where(low <= high, np.clip(values, low, np.maximum(low, high)), 0.0), there)
    return whole


def smallest_positive(X: FloatArray) -> FloatArray:
    """The smallest value above 0 of each column (n_columns,); 0 where there is none."""
    smallest = np.where(X > 0, X, np.inf).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(smallest), smallest, 0.0)


def attribute_cells(
    counts: IntArray, means: FloatArray, scatters: FloatArray, labels: IntArray, k: int, min_report: int
) -> Holdings:
    """Rows of k clusters and their mean silhouettes, from cells of the joint partition; `labels` are those of cells.

    A silhouette is a function of distances between rows, not a sum. So it is taken of cells, by their counts, means
    (n_cells, n_features) and squared distances to these (n_cells,): it tells no more than sums over the cells do.
    """
    rows = np.bincount(labels, counts, minlength=k).astype(np.int64)
    rows = np.where(rows >= min_report, rows, 0)
    values = group_silhouettes(counts, means, scatters / np.maximum(counts, 1), labels)
    if values is None:
        return Holdings(counts=rows, silhouettes=np.full(k, np.nan), scored=np.zeros(k, dtype=np.int64))
    summed = np.bincount(labels, counts * values, minlength=k)
    scores = np.where(rows > 0, np.round(summed / np.maximum(rows, 1), 2), np.nan)
    return Holdings(counts=rows, silhouettes=np.clip(scores, -1, 1), scored=rows)


def attribute(X: FloatArray, labels: IntArray, down: Attribute, min_report: int = 1) -> Holdings:
    """Rows of X and their mean silhouettes by the clusters of `labels`; nothing of a table below `min_report`.

    For a table without a joint partition: silhouettes are those of rows, of `MAX_SCORED` at most.
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


def survey(X: FloatArray, columns: tuple[str, ...], levels: Mapping[str, Sequence[str]], min_report: int = 1) -> Sketch:
    """The columns of a table in blocks; of one with fewer than `min_report` rows the names only."""
    return sketch_message(describe_columns(X, columns, levels, min_report))


def sketch_message(sent: Columns) -> Sketch:
    """What a client sends of its columns, as arrays."""
    columns, categories = tuple(sent.sketches), tuple(sent.levels)
    own = [sent.sketches[name] for name in columns]
    blocks = np.full((max((len(sketch.means) for sketch in own), default=0), len(columns)), np.nan)
    for at, sketch in enumerate(own):
        blocks[: len(sketch.means), at] = sketch.means
    levels = {f"{at}:{level}": n for at, name in enumerate(categories) for level, n in sent.levels[name].items()}
    return Sketch(
        columns=columns,
        count=sent.count,
        available=np.array([sent.available[name] for name in columns], dtype=np.int64),
        ends=np.array([sketch.n_end for sketch in own], dtype=np.int64),
        blocks=blocks,
        categories=categories or None,
        category_rows=np.array([sent.available[name] for name in categories], dtype=np.int64) if categories else None,
        levels=tuple(levels) or None,
        level_rows=np.array(list(levels.values()), dtype=np.int64) if levels else None,
    )


def measured(
    X: FloatArray, columns: tuple[str, ...], asked: Measure, min_report: int = 1, raw: FloatArray | None = None
) -> Measured:
    """Sums over the shaped columns of a table; zeros of one with fewer than `min_report` rows.

    `raw` is the table before values were moved, if some were.
    """
    order = order_of(columns, asked.columns)
    found = measure(
        X[:, order], asked.plan(), min_report, paired=asked.paired, raw=None if raw is None else raw[:, order]
    )
    return Measured(
        counts=found.counts,
        means=found.means,
        scatters=found.scatters,
        fenced=found.fenced,
        products=found.products,
        pairs=found.pairs,
    )


def shaping_of(asked: bytes, columns: tuple[str, ...]) -> Shaping | None:
    """How a question for sums, as it was sent, shapes the columns of a table; None where it does not."""
    message = unpack(asked, (Measure, Describe))[0]
    if isinstance(message, Describe):
        return None
    return Shaping(plan=message.plan(), at=order_of(columns, message.columns))


def kept_fence(first: bytes, asked: Measure) -> Measure:
    """The question with the logarithms and fences of the first one for sums; without any where that had none."""
    message = unpack(first, (Measure, Describe))[0]
    known = message.columns if isinstance(message, Measure) else ()
    shape: dict[str, Any] = {}
    for name, usual in SHAPE.items():
        kept = getattr(message, name) if known else None
        by_column = {} if kept is None else dict(zip(known, kept.tolist(), strict=True))
        values = np.array([by_column.get(column, usual) for column in asked.columns])
        shape[name] = values.astype(np.int64) if name == "logged" else values
    return replace(asked, **shape)


# --- server steps ---


def measure_message(draft: Plan, *, paired: bool) -> Measure:
    """What clients are asked to measure by."""
    return Measure(**scale_and_shape(draft), paired=paired)


def prepare_message(seed: int, plan: Plan, *, asks_local_k: bool = True) -> Prepare:
    """The plan as clients get it."""
    levels = [f"{at}:{level}" for at, own in enumerate(plan.levels) for level in own]
    return Prepare(
        seed=seed,
        **scale_and_shape(plan),
        missing=plan.missing,
        fill=plan.fill,
        covariances=plan.covariances,
        categories=plan.categories or None,
        levels=tuple(levels) or None,
        shares=np.concatenate(plan.shares) if plan.shares else None,
        asks_local_k=asks_local_k,
    )


def agreed_columns(moments: Mapping[str, Any], *, common: bool = False) -> tuple[str, ...]:
    """The columns of the first client, if every client has just these; else an error that names the difference.

    With `common`, those of its columns that every client has.
    """
    first, *others = moments
    columns: tuple[str, ...] = moments[first].inputs
    if common:
        return common_columns(moments)
    for client in others:
        theirs = moments[client].inputs
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


def common_columns(moments: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that every client has, in the order of the first; an error if there are none."""
    first, *others = moments.values()
    shared = tuple(column for column in first.inputs if all(column in other.inputs for other in others))
    if not shared:
        own = "; ".join(f"{client} has {', '.join(sent.inputs)}" for client, sent in moments.items())
        raise ColumnsDiffer(f"The sites share no column: {own}.")
    return shared


def left_out(moments: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, list[str]]:
    """The columns that are not used, and the clients that have them."""
    others = dict.fromkeys(column for sent in moments.values() for column in sent.inputs if column not in columns)
    return {column: [client for client, sent in moments.items() if column in sent.inputs] for column in others}


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
