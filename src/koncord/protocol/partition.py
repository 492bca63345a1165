"""The joint partition: whatever a site answers over one table are sums over cells of one partition of its rows.

Two answers, of one run or of many, can be subtracted. So a site cuts its rows into cells once, of at least the floor's
number of rows each, and every sum that it ever sends is a sum of whole cells: no linear combination of all of them
stands for fewer rows than the floor. The cuts are the site's own (`koncord.kernels.cutting`), on the scale of the first
run. No question moves them, and none makes more of them: where cells are cut as somebody asks, he learns cut by cut
where the row at the edge of a cell lies. Rows that are added later are cut once more, among themselves.

What an answer is computed from are the cells (`koncord.protocol.surrogates`), not the rows, so that nothing but counts,
means and covariances of cells can be found out by any number of questions. (How the rows fall into cells depends on the
rows; that is not covered.)

A cell also keeps the p % rule (`koncord.protocol.dominance`): no cut makes a dominated cell. And of a column with two
values a cell sends how many rows have the rarer one in multiples of three, as in controlled rounding: the cells that a
cell is divided into send what it sent, divided among them.

Dominance is judged where sums are taken: of a column that is logged, on the logarithms. The first question for sums
says how columns are shaped (logarithm, fence), and the rows stay so for good: sums of values and sums of values behind
another fence would differ by what lies between, which may be one row. What stands in for missing values is decided once
as well, by the first plan (`koncord.protocol.setup.completed`).

Who asks knows the values that a fence moved, and what stands in for missing ones: these hide nobody. So of every column
a cell has no value of a row itself, or at least half as many as the floor asks of rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from koncord.kernels.cutting import groups_of
from koncord.prepare.plan import Plan
from koncord.protocol.dominance import coded, is_dominated, safe_cuts
from koncord.types import BoolArray, FloatArray, IntArray

# Rows with the rarer of two values are counted in multiples of this: no 1, no 2 (DataSHIELD's nfilter.tab is 3).
BASE = 3
# A column with at most this many values for each row has levels, which rows share, and no magnitudes that tell of one
# row (DataSHIELD's nfilter.levels.density).
LEVELS = 0.33
# Of the floor: values of rows themselves that a column of a cell has at least, if it has any; the others are known.
LEAST_OPEN_SHARE = 0.5
# Cells that rows are cut into at most: those of a large table have more rows than they must.
MOST_CELLS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCells:
    """A partition of rows, and what is sent of their two-valued columns."""

    of_row: IntArray  # (n_rows,) the cell of each row, numbered from 0
    rarer: IntArray  # (n_cells, n_two_valued) rows of each cell that are said to have the rarer value
    is_cut: BoolArray  # (n_cells,) cells that are divided no further

    def __len__(self) -> int:
        return len(self.rarer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a site as its answers see them: no row dominates a column."""

    X: FloatArray  # (n_rows, n_features)
    raw: FloatArray  # (n_rows, n_features) as they came, NaN where a value is missing
    is_shared: BoolArray  # (n_features,) columns whose values many rows share, which tell of no single row
    two_valued: IntArray  # columns with two values
    has_rarer: BoolArray  # (n_rows, n_two_valued)
    values: FloatArray  # (2, n_two_valued) the more frequent value and the rarer one
    gaps: BoolArray  # (n_rows, n_features) values that are missing; in X the median of their column stands there
    scales: FloatArray  # (n_features,) standard deviation of each column; 1 of one that is constant
    is_known: BoolArray  # (n_rows, n_features) values that are missing or were moved to a fence: who asks knows them
    least_open: int = 0  # other values that a column of a cell has at least, if it has any

    def is_told(self, rows: IntArray) -> bool:
        """Whether sums over these rows tell too much of one: it dominates, or too few values are not known anyway."""
        if is_dominated(self.X[rows][:, ~self.is_shared]):
            return True
        return bool(self.least_open and self.is_known.any() and has_few_open(~self.is_known[rows], self.least_open))

    def safe_cuts(self, rows: IntArray, sizes: IntArray) -> BoolArray:
        """For each size s, whether sums over neither the first s of these rows nor the others tell too much."""
        own = self.X[rows]
        safe = safe_cuts(own[:, ~self.is_shared] if self.is_shared.any() else own, sizes)
        if self.least_open and self.is_known.any():
            first = np.cumsum(~self.is_known[rows], axis=0)
            for n_open in (first[sizes - 1], first[-1] - first[sizes - 1]):
                safe &= ~((n_open > 0) & (n_open < self.least_open)).any(axis=1)
        return safe


def has_few_open(is_open: BoolArray, least: int) -> bool:
    """Whether some column (n_rows, n_features) has values that are not known, but fewer than `least`."""
    n_open = is_open.sum(axis=0)
    return bool(((n_open > 0) & (n_open < least)).any())


def least_open(least: int) -> int:
    """Values that a column of a cell has at least, if it has any, with this floor."""
    return int(np.ceil(LEAST_OPEN_SHARE * least)) if least > 1 else 0


def rows_of(X: FloatArray, least: int) -> Rows:
    """Rows of a table (n, n_features) as answers see them; `least` is the floor."""
    pairs = pairs_of(X)
    magnitudes = is_magnitude(X, pairs)
    return coded_rows(X, moved_of(X, least, pairs, magnitudes=magnitudes), pairs, magnitudes, least=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How some columns of a table are shaped before they are summed: logarithm and fence of a plan."""

    plan: Plan
    at: IntArray  # places of the columns of the plan

    def shaped(self, X: FloatArray) -> FloatArray:
        """The table (n, n_features) behind logarithm and fence."""
        return self._with(X, self.plan.shaped(X[:, self.at]))

    def unshaped(self, X: FloatArray) -> FloatArray:
        """A shaped table in its own units."""
        return self._with(X, self.plan.unshaped(X[:, self.at]))

    def is_moved(self, X: FloatArray) -> BoolArray:
        """Values (n, n_features) that the fence moves, or what small values are raised to before the logarithm."""
        own = X[:, self.at]
        free = replace(self.plan, low=None, high=None, least=None)
        no_logarithm = self.plan.is_logged & (own <= 0)
        moved = np.zeros(X.shape, dtype=np.bool_)
        moved[:, self.at] = (self.plan.shaped(own) != free.shaped(own)) | no_logarithm
        return moved

    def _with(self, X: FloatArray, columns: FloatArray) -> FloatArray:
        if columns.shape == X.shape and np.array_equal(self.at, np.arange(X.shape[1])):
            return columns
        table = X.copy()
        table[:, self.at] = columns
        return table


def moved_of(
    X: FloatArray,
    least: int,
    pairs: FloatArray,
    shaping: Shaping | None = None,
    magnitudes: BoolArray | None = None,
) -> FloatArray:
    """X with the rows moved that dominate a column; a gap (NaN) counts as the median of its column.

    With a `shaping`, rows that dominate a shaped column, and values beyond its fence to there. `magnitudes` are those
    of X, if they are known.
    """
    values = gaps_filled(X)
    has_pair = ~np.isnan(pairs[0])
    found = is_magnitude(values, pairs) if magnitudes is None else magnitudes
    shaped = values if shaping is None else shaping.shaped(values)
    moved = coded(shaped, least, has_pair=has_pair, is_magnitude=found)
    return np.where(has_pair, values, moved if shaping is None else shaping.unshaped(moved))


def recoded(rows: Rows, least: int, shaping: Shaping) -> Rows:
    """The same rows, moved where they dominate a shaped column."""
    pairs = np.full((2, rows.raw.shape[1]), np.nan)
    pairs[:, rows.two_valued] = rows.values
    moved = moved_of(rows.raw, least, pairs, shaping)
    return coded_rows(rows.raw, moved, pairs, shaping=shaping, least=least)


def unshaped(rows: Rows, least: int) -> Rows:
    """The same rows as they are before columns are shaped."""
    pairs = np.full((2, rows.raw.shape[1]), np.nan)
    pairs[:, rows.two_valued] = rows.values
    return coded_rows(rows.raw, moved_of(rows.raw, least, pairs), pairs, least=least)


def is_magnitude(X: FloatArray, pairs: FloatArray) -> BoolArray:
    """Columns (n_features,) in which a value may tell of a row: not those with levels."""
    n_distinct = np.array([len(np.unique(column)) for column in X.T], dtype=np.int64)
    magnitudes: BoolArray = np.isnan(pairs[0]) & (n_distinct > LEVELS * len(X))
    return magnitudes


def coded_rows(
    X: FloatArray,
    moved: FloatArray,
    pairs: FloatArray,
    magnitudes: BoolArray | None = None,
    *,
    shaping: Shaping | None = None,
    least: int,
) -> Rows:
    """Rows of which `moved` (n, n_features) is answered; `pairs` (2, n_features) are values of two-valued columns."""
    two_valued = np.flatnonzero(~np.isnan(pairs[0]))
    deviations = moved.std(axis=0) if len(moved) else np.zeros(moved.shape[1])
    is_known = np.isnan(X)
    if shaping is not None:
        is_known |= shaping.is_moved(X) & np.isnan(pairs[0])
    return Rows(
        X=moved,
        raw=X,
        is_shared=~(is_magnitude(X, pairs) if magnitudes is None else magnitudes),
        two_valued=two_valued,
        has_rarer=X[:, two_valued] == pairs[1, two_valued],
        values=pairs[:, two_valued],
        gaps=np.isnan(X),
        scales=np.where(deviations > 0, deviations, 1.0),
        is_known=is_known,
        least_open=least_open(least),
    )


def gaps_filled(X: FloatArray) -> FloatArray:
    """The table with the median of its column for every gap; of a column that is empty, 0.

    It is one of the values that are there, so that a column of two values stays one.
    """
    gaps = np.isnan(X)
    if not gaps.any():
        return X
    filled = X.copy()
    for column in np.flatnonzero(gaps.any(axis=0)).tolist():
        own = np.sort(X[~gaps[:, column], column])
        filled[gaps[:, column], column] = own[len(own) // 2] if len(own) else 0.0
    return filled


def pairs_of(X: FloatArray) -> FloatArray:
    """The more frequent and the rarer value (2, n_features) of each column that has two values, else NaN."""
    pairs = np.full((2, X.shape[1]), np.nan)
    for column in range(X.shape[1]):
        own = X[:, column]
        values, counts = np.unique(own[~np.isnan(own)], return_counts=True)
        if len(values) == 2:
            pairs[:, column] = values[np.argsort(-counts, kind="stable")]
    return pairs


def one_cell(rows: Rows) -> JointCells:
    """All rows in one cell."""
    counts = rows.has_rarer.sum(axis=0)
    sent = np.minimum(BASE * np.rint(counts / BASE).astype(np.int64), BASE * (len(rows.X) // BASE))
    whole = np.zeros(len(rows.X), dtype=np.int64)
    return JointCells(of_row=whole, rarer=sent[None], is_cut=np.zeros(1, dtype=np.bool_))


def cut(cells: JointCells, X: FloatArray, rows: Rows, least: int) -> JointCells:
    """The cells of the rows X (n_rows, n_features) for good: those that were not are cut where no row dominates.

    Each has at least `least` rows.
    """
    if cells.is_cut.all():
        return cells
    of_row = cells.of_row.copy()
    rarer = list(cells.rarer)
    for cell, own in enumerate(places_by_number(cells.of_row, len(cells))):
        if cells.is_cut[cell] or len(own) < 2 * least:
            continue
        parts = [own[group] for group in safe_groups(X[own], own, rows, least)]
        sent = divided(rarer[cell], [rows.has_rarer[part].sum(axis=0) for part in parts], list(map(len, parts)))
        rarer[cell] = sent[0] if len(parts) > 1 else rarer[cell]
        for part, own_sent in zip(parts[1:], sent[1:], strict=True):
            of_row[part] = len(rarer)
            rarer.append(own_sent)
    whole = np.array(rarer, dtype=np.int64).reshape(len(rarer), -1)
    return JointCells(of_row=of_row, rarer=whole, is_cut=np.ones(len(rarer), dtype=np.bool_))


def safe_groups(X: FloatArray, own: IntArray, rows: Rows, least: int) -> list[IntArray]:
    """Groups of at least `least` of the rows X (n_own, n_features), which are `own` of all; none tells too much."""
    return groups_of(X, least, MOST_CELLS, is_safe=lambda some, sizes: rows.safe_cuts(own[some], sizes))


def divided(sent: IntArray, counts: list[IntArray], sizes: list[int]) -> IntArray:
    """What a cell sent of its two-valued columns, divided among its parts: multiples of `BASE` as near to `counts`."""
    shares = np.array(counts, dtype=float).reshape(len(sizes), len(sent))
    room = np.array(sizes)[:, None] // BASE
    units = sent // BASE
    ideal = shares * (units / np.maximum(shares.sum(axis=0), 1))
    whole = np.minimum(np.floor(ideal).astype(np.int64), room)
    for column in range(len(sent)):
        for _ in range(int(units[column] - whole[:, column].sum())):
            wanting = np.where(whole[:, column] < room[:, 0], ideal[:, column] - whole[:, column], -np.inf)
            if wanting.max() == -np.inf:
                break  # parts of nothing but the rarer value: rounding down leaves no room for the rest
            whole[int(wanting.argmax()), column] += 1
    of_parts: IntArray = BASE * whole
    return of_parts


def places_by_number(numbers: IntArray, n: int) -> list[IntArray]:
    """The places of each number from 0 to n - 1, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=n))[:-1])


def two_valued_as_sent(cells: JointCells, rows: Rows) -> FloatArray:
    """The two-valued columns (n_rows, n_two_valued) with as many rarer values in each cell as are sent of it."""
    sent: FloatArray = np.empty(rows.has_rarer.shape)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells.of_row, minlength=len(cells)))])
    for column in range(len(rows.two_valued)):
        order = np.lexsort((~rows.has_rarer[:, column], cells.of_row))
        own = cells.of_row[order]
        is_rarer = np.arange(len(order)) - starts[own] < cells.rarer[own, column]
        sent[order, column] = rows.values[is_rarer.astype(np.int64), column]
    return sent


class Store(Protocol):
    """Where the cells are kept from one answer to the next."""

    def update(self, change: Callable[[JointCells | None], JointCells]) -> JointCells:
        """Keep what `change` makes of what is kept (None at first); kept when this returns, nobody between."""

    def first_asked(self, asked: bytes) -> bytes:
        """The first question for sums over these rows, which is kept from now on: this one if there was none."""

    def first_plan(self, plan: bytes) -> bytes:
        """The first plan that missing values were filled in by, which is kept from now on: this one if none was."""


class InMemory:
    """Cells kept as long as this object."""

    def __init__(self) -> None:
        self.cells: JointCells | None = None
        self.asked = self.plan = b""

    def update(self, change: Callable[[JointCells | None], JointCells]) -> JointCells:
        self.cells = change(self.cells)
        return self.cells

    def first_asked(self, asked: bytes) -> bytes:
        self.asked = self.asked or asked
        return self.asked

    def first_plan(self, plan: bytes) -> bytes:
        self.plan = self.plan or plan
        return self.plan


class JointPartition:
    """The partition that all answers of a site over one table make together: the one thing that answers change.

    Parameters
    ----------
    rows : Rows
        The table.
    least : int
        Rows that a cell has at least.
    store : Store, default None
        Where the cells are kept; None is in memory.
    is_shaped : bool, default False
        Whether the rows are shaped as the first question for sums said.
    is_filled : bool, default False
        Whether the missing values of the rows are filled in as the first plan said.
    """

    def __init__(
        self,
        rows: Rows,
        least: int,
        store: Store | None = None,
        *,
        is_shaped: bool = False,
        is_filled: bool = False,
    ) -> None:
        self.rows = rows
        self.is_shaped = is_shaped
        self.completed: FloatArray | None = rows.X if is_filled else None
        self.least = least
        self.store: Store = InMemory() if store is None else store

    def shape(self, asked: bytes, shaping_of: Callable[[bytes], Shaping | None]) -> None:
        """Shape the rows by the first question for sums: by this one if there was none before."""
        if self.is_shaped:
            return
        shaping = shaping_of(self.store.first_asked(asked))
        if shaping is not None:
            self.rows = recoded(self.rows, self.least, shaping)
        self.is_shaped = True

    def complete(self, plan: bytes, completed_by: Callable[[bytes], FloatArray]) -> FloatArray:
        """The rows without gaps, filled in by the first plan: by this one if there was none before."""
        if self.completed is None:
            self.completed = completed_by(self.store.first_plan(plan))
        return self.completed

    def open(self) -> JointCells:
        """The cells as they are; from now on something was answered."""
        return self.store.update(self._or_one)

    def cut(self, X: FloatArray) -> JointCells:
        """The cells for good, cut where the rows on some scale (n_rows, n_features) part best, unless they were cut."""
        return self.store.update(lambda before: cut(self._or_one(before), X, self.rows, self.least))

    def _or_one(self, before: JointCells | None) -> JointCells:
        return one_cell(self.rows) if before is None else before
