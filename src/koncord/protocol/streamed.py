"""The joint partition of a table that is read batch by batch: the same rule as `koncord.protocol.partition`.

No number is kept for a row. Cells are known by the cuts that made them, which the sample of the table was cut by. Which
of them stand is decided from counts, sums, squares and extremes of all rows by cut, gathered in one pass; these tell
whether a row dominates, as the rows themselves would.

One thing is coarser: a row that dominates the rows nearest to it is not moved; the rows that it dominates go with the
nearest group that no row dominates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from koncord.data.batches import SampledTable
from koncord.errors import TableError
from koncord.kernels.cutting import CutTree
from koncord.kernels.scaling import on_scale
from koncord.protocol.dominance import EQUAL_SHARES, KNOWN_BY_SQUARES, PERCENT, most_square
from koncord.protocol.partition import (
    BASE,
    Rows,
    Shaping,
    coded_rows,
    divided,
    is_magnitude,
    least_open,
    one_cell,
    rows_of,
    two_valued_as_sent,
)
from koncord.types import BoolArray, FloatArray, IntArray

Label = Callable[[FloatArray], IntArray]  # of rows (n, n_columns) as they came, numbers from 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedRows:
    """The rows of a table that is read batch by batch, as answers see them: no row dominates a column."""

    table: SampledTable
    is_shared: BoolArray  # (n_columns,) columns whose values many rows share
    low: FloatArray  # (n_columns,) values beyond are moved to there, behind the shaping
    high: FloatArray
    shaping: Shaping | None = None
    two_valued: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    last: list[FloatArray] = field(default_factory=list)  # rows that were coded last, and what they became

    def __len__(self) -> int:
        return self.table.n_rows

    def coded(self, X: FloatArray) -> FloatArray:
        """Rows as they came behind logarithm and fence, moved where they dominate; nobody changes the array.

        What was made of the last rows is held: each answer that made a cell asks for it.
        """
        if not self.last or self.last[0] is not X:
            shaped = X if self.shaping is None else self.shaping.shaped(X)
            self.last[:] = X, np.clip(shaped, self.low, self.high)
        return self.last[1]

    def batches(self, what: str) -> Iterator[FloatArray]:
        """The rows as they came: one pass, for what is said."""
        return self.table.batches(what)

    def is_open(self, X: FloatArray) -> BoolArray:
        """Values (n, n_columns) that no fence moved."""
        if self.shaping is None:
            return np.ones(X.shape, dtype=np.bool_)
        is_moved = self.shaping.is_moved(X)
        is_moved[:, self.two_valued] = False
        return ~is_moved

    def has_rarer(self, X: FloatArray) -> BoolArray:
        """Which rows have the rarer value (n, n_two_valued) of each two-valued column."""
        found: BoolArray = X[:, self.two_valued] == self.table.pairs[1, self.two_valued]
        return found

    def scale(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation (n_columns,) of the coded sample; 1 of a column that is constant there."""
        sample = self.coded(self.table.sample)
        deviations = sample.std(axis=0)
        return sample.mean(axis=0), np.where(deviations > 0, deviations, 1.0)

    def sample(self) -> Rows:
        """The sample, as a table in memory has its rows."""
        X = self.table.sample
        pairs = self.table.pairs
        moved = np.where(np.isnan(pairs[0]), self.coded(X), X)
        return coded_rows(X, moved, pairs, ~self.is_shared, least=1)


def uncoded_rows(table: SampledTable, shaping: Shaping | None = None) -> StreamedRows:
    """Rows of which none is moved: the sample alone may be answered about, which no row of it dominates."""
    low, high = (np.full(len(table.columns), end) for end in (-np.inf, np.inf))
    return StreamedRows(
        table=table,
        is_shared=~is_magnitude(table.sample, table.pairs),
        low=low,
        high=high,
        shaping=shaping,
        two_valued=np.flatnonzero(~np.isnan(table.pairs[0])),
    )


def streamed_rows(
    table: SampledTable, shaping: Shaping | None = None, store: "StreamedStore | None" = None
) -> StreamedRows:
    """Rows as answers see them: one pass, for what lies so far out that it dominates a column, unless it is kept."""
    rows = uncoded_rows(table, shaping)
    low, high = streamed_bounds(rows) if store is None else store.bounds(lambda: streamed_bounds(rows))
    low[rows.two_valued], high[rows.two_valued] = -np.inf, np.inf
    return replace(rows, low=low, high=high, last=[])


def sample_as_sent(table: SampledTable, least: int) -> FloatArray:
    """The sample as a table of its own is sent: no row dominates, two-valued columns in multiples of three."""
    own = rows_of(table.sample, least)
    if least <= 1:
        return table.sample
    sent = own.X.copy()
    sent[:, own.two_valued] = two_valued_as_sent(one_cell(own), own)
    return sent


def streamed_bounds(rows: StreamedRows) -> tuple[FloatArray, FloatArray]:
    """As `koncord.protocol.dominance.bounds_of`, of all rows; the middle of a column is that of the sample."""
    n, d = len(rows), len(rows.low)
    limit = max(PERCENT, EQUAL_SHARES / n)
    low, high = rows.low.copy(), rows.high.copy()
    if limit >= 1:
        return low, high
    middle = np.median(rows.coded(rows.table.sample), axis=0)
    n_top = min(int(1 / limit) + 1, n - 1)
    largest = np.zeros((n_top, d))  # of every column, falling
    others = np.zeros(d)  # the sum of all other squares: not what a total leaves, which may be rounding
    for X in rows.batches("values far out"):
        squares = (rows.coded(X) - middle) ** 2
        is_top = squares > largest[-1]
        others += np.where(is_top, 0.0, squares).sum(axis=0)
        for column in np.flatnonzero(is_top.any(axis=0)).tolist():
            falling = -np.sort(-np.concatenate([largest[:, column], squares[is_top[:, column], column]]))
            largest[:, column] = falling[:n_top]
            others[column] += falling[n_top:].sum()
    for column in range(d):
        reach = most_square(float(others[column]), largest[:, column], limit)
        if largest[0, column] > reach:
            low[column], high[column] = middle[column] - np.sqrt(reach), middle[column] + np.sqrt(reach)
    return low, high


# --- groups of rows by their sums ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSums:
    """Counts, sums, squares and extremes of the rows of some groups: those of two groups together follow."""

    counts: IntArray  # (n_groups,)
    sums: FloatArray  # (n_groups, n_columns) about some origin
    squares: FloatArray
    least: FloatArray
    most: FloatArray
    rarer: IntArray  # (n_groups, n_two_valued) rows with the rarer value
    n_open: IntArray  # (n_groups, n_columns) values that no fence moved
    is_magnitude: BoolArray  # (n_columns,)
    least_open: int  # such values that a column of a cell has at least, if it has any

    def together(self, groups: Sequence[int]) -> "GroupSums":
        """Some of the groups as one."""
        at = list(groups)
        return replace(
            self,
            counts=self.counts[at].sum(keepdims=True),
            sums=self.sums[at].sum(axis=0, keepdims=True),
            squares=self.squares[at].sum(axis=0, keepdims=True),
            least=self.least[at].min(axis=0, keepdims=True),
            most=self.most[at].max(axis=0, keepdims=True),
            rarer=self.rarer[at].sum(axis=0, keepdims=True),
            n_open=self.n_open[at].sum(axis=0, keepdims=True),
        )

    def is_told(self) -> BoolArray:
        """Of each group, whether its sums tell too much of a row.

        The largest deviation follows from the squares of some column of magnitudes (the p % rule), or too few values of
        a column are not known to those who chose its fence.
        """
        means = self.sums / self.counts[:, None]
        squares = self.squares - self.counts[:, None] * means**2
        largest = np.maximum(self.most - means, means - self.least) ** 2
        is_known = (squares < KNOWN_BY_SQUARES * largest) & (self.most > self.least)
        has_few_open = (self.n_open > 0) & (self.n_open < self.least_open)
        return np.asarray(((is_known & self.is_magnitude) | has_few_open).any(axis=1))


class GroupSummer:
    """Adds up rows by group, batch by batch; groups appear as rows of them do."""

    def __init__(self, is_magnitude: BoolArray, n_two_valued: int, least_open: int = 0) -> None:
        self.places: dict[int, int] = {}
        n_columns = len(is_magnitude)
        self.sums = GroupSums(
            counts=np.zeros(0, dtype=np.int64),
            sums=np.zeros((0, n_columns)),
            squares=np.zeros((0, n_columns)),
            least=np.zeros((0, n_columns)),
            most=np.zeros((0, n_columns)),
            rarer=np.zeros((0, n_two_valued), dtype=np.int64),
            n_open=np.zeros((0, n_columns), dtype=np.int64),
            is_magnitude=is_magnitude,
            least_open=least_open,
        )

    def add(self, X: FloatArray, rarer: BoolArray, is_open: BoolArray, groups: IntArray) -> None:
        """Rows (n, n_columns), which have the rarer values, which no fence moved, and the group of each."""
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        names = ordered[starts].tolist()
        self._make_room([name for name in names if name not in self.places])
        at = np.array([self.places[name] for name in names], dtype=np.int64)
        X, own = X[order], self.sums
        own.counts[at] += np.diff(np.r_[starts, len(ordered)])
        own.sums[at] += np.add.reduceat(X, starts, axis=0)
        own.squares[at] += np.add.reduceat(X * X, starts, axis=0)
        own.least[at] = np.minimum(own.least[at], np.minimum.reduceat(X, starts, axis=0))
        own.most[at] = np.maximum(own.most[at], np.maximum.reduceat(X, starts, axis=0))
        own.n_open[at] += np.add.reduceat(is_open[order].astype(np.int64), starts, axis=0)
        if rarer.shape[1]:
            own.rarer[at] += np.add.reduceat(rarer[order].astype(np.int64), starts, axis=0)

    def _make_room(self, names: Sequence[int]) -> None:
        if not names:
            return
        own, n = self.sums, len(names)
        self.places |= {name: len(own.counts) + at for at, name in enumerate(names)}
        room = (n, own.sums.shape[1])
        self.sums = replace(
            own,
            counts=np.concatenate([own.counts, np.zeros(n, dtype=np.int64)]),
            sums=np.concatenate([own.sums, np.zeros(room)]),
            squares=np.concatenate([own.squares, np.zeros(room)]),
            least=np.concatenate([own.least, np.full(room, np.inf)]),
            most=np.concatenate([own.most, np.full(room, -np.inf)]),
            rarer=np.concatenate([own.rarer, np.zeros((n, own.rarer.shape[1]), dtype=np.int64)]),
            n_open=np.concatenate([own.n_open, np.zeros(room, dtype=np.int64)]),
        )


# --- cells ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """The scale that sites agreed on, for coded rows."""

    order: IntArray  # places of the columns that are used
    means: FloatArray
    scales: FloatArray

    def __call__(self, coded: FloatArray) -> FloatArray:
        is_all = np.array_equal(self.order, np.arange(coded.shape[1]))
        return on_scale(coded if is_all else coded[:, self.order], self.means, self.scales)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledLabel:
    """What an answer sorted rows by, on the scale of its run: all of it can be kept on disk."""

    rows: StreamedRows
    scaling: Scaling
    by: CutTree

    def __call__(self, X: FloatArray) -> IntArray:
        return self.of_coded(self.rows.coded(X))

    def of_coded(self, coded: FloatArray) -> IntArray:
        """Labels of rows, or means of rows, that are coded."""
        return self.by.assign(self.scaling(coded))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sorting:
    """One division of all rows: what it sorted rows by, and the cell that rows of a cell with a label then are in."""

    label: Label
    cells: IntArray  # (n_cells before, n_labels)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedCells:
    """The cells of all rows: how they were divided, in its order."""

    sortings: tuple[Sorting, ...]
    counts: IntArray  # (n_cells,) rows
    rarer: IntArray  # (n_cells, n_two_valued) rows of each cell that are said to have the rarer value
    n_rarer: IntArray  # (n_cells, n_two_valued) rows that have it
    means: FloatArray | None = None  # (n_cells, n_columns) of coded rows, as they are sent; None before they are cut

    def of_rows(self, X: FloatArray) -> IntArray:
        """The cell of rows as they came."""
        cells = np.zeros(len(X), dtype=np.int64)
        for sorting in self.sortings:
            cells = sorting.cells[cells, sorting.label(X)]
        return cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedGroups:
    """All rows, sorted: whole cells by the label of their mean; without a floor, rows by their own."""

    rows: StreamedRows
    label: Label  # of coded rows
    cells: StreamedCells | None  # None without a floor

    def labels(self, X: FloatArray) -> IntArray:
        """The label of rows as they came."""
        if self.cells is None:
            return self.label(self.rows.coded(X))
        return self.cell_labels[self.cells.of_rows(X)]

    @property
    def cell_labels(self) -> IntArray:
        """The label of each cell."""
        assert self.cells is not None
        assert self.cells.means is not None
        return self.label(self.cells.means)

    def batches(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Coded rows, two-valued columns as they are sent, and their labels: one pass."""
        if self.cells is None:
            for X in self.rows.batches("sums by group"):
                coded = self.rows.coded(X)
                yield coded, self.label(coded)
            return
        labels = self.cell_labels
        for coded, cells in self.by_cell("sums by group"):
            yield coded, labels[cells]

    def by_cell(self, what: str = "sums by cell") -> Iterator[tuple[FloatArray, IntArray]]:
        """Coded rows, two-valued columns as they are sent, and their cells: one pass.

        `TableError` at its end, unless the cells have the rows that they had.
        """
        assert self.cells is not None
        dealt, counts = TwoValuedAsSent(self.rows, self.cells), np.zeros(len(self.cells.counts), dtype=np.int64)
        for X in self.rows.batches(what):
            cells = self.cells.of_rows(X)
            counts += np.bincount(cells, minlength=len(counts))
            coded = self.rows.coded(X)
            if len(self.rows.two_valued):
                coded = dealt.deal(coded, self.rows.has_rarer(X), cells)
            yield coded, cells
        check_cells(counts, self.cells)


class TwoValuedAsSent:
    """Deals the rarer value to as many rows of each cell as are said to have it: first to those that do."""

    def __init__(self, rows: StreamedRows, cells: StreamedCells) -> None:
        self.rows, self.cells = rows, cells
        self.next_rarer = np.zeros_like(cells.n_rarer)
        self.next_other = cells.n_rarer.copy()
        self.values = rows.coded(np.nan_to_num(rows.table.pairs, nan=1.0))

    def deal(self, coded: FloatArray, has_rarer: BoolArray, cells: IntArray) -> FloatArray:
        dealt = coded.copy()
        for column, at in enumerate(self.rows.two_valued.tolist()):
            places = np.empty(len(cells), dtype=np.int64)
            for is_it, following in ((has_rarer[:, column], self.next_rarer), (~has_rarer[:, column], self.next_other)):
                own = cells[is_it]
                places[is_it] = following[own, column] + places_in_groups(own)
                following[:, column] += np.bincount(own, minlength=len(following))
            is_rarer = places < self.cells.rarer[cells, column]
            dealt[:, at] = self.values[is_rarer.astype(np.int64), at]
        return dealt


def places_in_groups(groups: IntArray) -> IntArray:
    """How many of the same group come before each, (n,)."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    places = np.empty(len(groups), dtype=np.int64)
    places[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return places


class StreamedStore(Protocol):
    """Where the cells are kept from one answer to the next."""

    def update(self, rows: StreamedRows, change: Callable[[StreamedCells | None], StreamedCells]) -> StreamedCells:
        """Keep what `change` makes of what is kept (None at first); kept when this returns, nobody between."""

    def first_asked(self, asked: bytes) -> bytes:
        """The first question for sums over these rows, which is kept from now on: this one if there was none."""

    def bounds(self, find: Callable[[], tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
        """What values are moved to behind the shaping; found once, and kept from then on."""


class StreamedInMemory:
    """Cells kept as long as this object."""

    def __init__(self) -> None:
        self.cells: StreamedCells | None = None
        self.asked = b""

    def update(self, rows: StreamedRows, change: Callable[[StreamedCells | None], StreamedCells]) -> StreamedCells:
        self.cells = change(self.cells)
        return self.cells

    def first_asked(self, asked: bytes) -> bytes:
        self.asked = self.asked or asked
        return self.asked

    def bounds(self, find: Callable[[], tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
        return find()


class StreamedPartition:
    """The cells of a streamed table, which all answers of a site are sums over.

    Parameters
    ----------
    rows : StreamedRows
        The table.
    least : int
        Rows that a cell has at least; 1 means that there are none.
    store : StreamedStore or None, default None
        Where the cells are kept; None is in memory.
    """

    def __init__(self, rows: StreamedRows, least: int, store: StreamedStore | None = None) -> None:
        self.rows = rows
        self.least = least
        self.store: StreamedStore = StreamedInMemory() if store is None else store

    @property
    def cells(self) -> StreamedCells:
        """The cells as they are; from now on something was answered."""
        return self.store.update(self.rows, self._or_one)

    def _or_one(self, before: StreamedCells | None) -> StreamedCells:
        if before is not None:
            return before
        n_rarer = self.rows.table.n_rarer[self.rows.two_valued]
        sent = np.minimum(BASE * np.rint(n_rarer / BASE).astype(np.int64), BASE * (len(self.rows) // BASE))
        return StreamedCells(
            sortings=(),
            counts=np.array([len(self.rows)]),
            rarer=(sent if self.least > 1 else n_rarer)[None],
            n_rarer=n_rarer[None],
        )

    def cut(self, cut_by: Callable[[], tuple[Label, int]]) -> StreamedCells:
        """The cells for good: one pass, if they were not cut yet, by the labels (and how many) that `cut_by` gives."""

        def change(before: StreamedCells | None) -> StreamedCells:
            whole = self._or_one(before)
            return whole if whole.means is not None else self._divided(whole, *cut_by())

        return self.store.update(self.rows, change)

    def _divided(self, before: StreamedCells, label: Label, n_labels: int) -> StreamedCells:
        """The cells by label, as far as all rows allow."""
        n_cells = len(before.counts)
        summer = GroupSummer(~self.rows.is_shared, len(self.rows.two_valued), least_open(self.least))
        origin, scales = self.rows.scale()
        for X in self.rows.batches("groups"):
            groups = before.of_rows(X) * n_labels + label(X)
            summer.add((self.rows.coded(X) - origin) / scales, self.rows.has_rarer(X), self.rows.is_open(X), groups)
        found: dict[int, list[int]] = {}
        for name in sorted(summer.places):
            found.setdefault(name // n_labels, []).append(name)
        now = np.zeros(n_cells, dtype=np.int64)
        for cell, names in found.items():
            now[cell] = sum(summer.sums.counts[summer.places[name]] for name in names)
        check_cells(now, before)
        cells = np.repeat(np.arange(n_cells)[:, None], n_labels, axis=1)
        rarer = list(before.rarer)
        sums: dict[int, GroupSums] = {}
        for cell, names in found.items():
            label_of = {summer.places[name]: name % n_labels for name in names}
            parts = streamed_parts(summer.sums, list(label_of), self.least)
            parts = [parts[at] for at in np.argsort([min(label_of[group] for group in part) for part in parts])]
            each = [summer.sums.together(part) for part in parts]
            counts = [part.rarer[0] for part in each]
            sent = divided(rarer[cell], counts, [int(part.counts[0]) for part in each])
            numbers = [cell, *range(len(rarer), len(rarer) + len(parts) - 1)]
            rarer[cell] = sent[0] if len(parts) > 1 else rarer[cell]
            rarer += list(sent[1:])
            for number, part, own in zip(numbers, parts, each, strict=True):
                sums[number] = own
                cells[cell, [label_of[group] for group in part]] = number
        return StreamedCells(
            sortings=(*before.sortings, Sorting(label=label, cells=cells)) if len(rarer) > n_cells else before.sortings,
            counts=np.array([sums[number].counts[0] for number in range(len(rarer))]),
            rarer=np.array(rarer, dtype=np.int64).reshape(len(rarer), -1),
            n_rarer=np.array([sums[number].rarer[0] for number in range(len(rarer))]),
            means=self._means([sums[number] for number in range(len(rarer))], rarer),
        )

    def _means(self, cells: Sequence[GroupSums], sent: Sequence[IntArray]) -> FloatArray:
        """Means of coded rows by cell, as they are sent, (n_cells, n_columns)."""
        origin, scales = self.rows.scale()
        counts = np.maximum([own.counts[0] for own in cells], 1)
        means: FloatArray = origin + scales * np.array([own.sums[0] for own in cells]) / counts[:, None]
        values = self.rows.coded(np.nan_to_num(self.rows.table.pairs, nan=1.0))
        for column, at in enumerate(self.rows.two_valued.tolist()):
            shares = np.array([own[column] for own in sent]) / counts
            means[:, at] = (1 - shares) * values[0, at] + shares * values[1, at]
        return means


def check_cells(counts: IntArray, cells: StreamedCells) -> None:
    """`TableError` unless the cells have the rows that they had: others would tell what is in few rows."""
    if not np.array_equal(counts, cells.counts):
        raise TableError(
            "The rows of a table that is read batch by batch are not those that were answered about before; a table "
            "must not change."
        )


def streamed_parts(sums: GroupSums, groups: Sequence[int], least: int) -> list[list[int]]:
    """Groups of rows that may leave a cell, by their sums, after what stays of it: the largest, and what goes with it.

    A group that may not be sent on its own goes with the one whose mean is nearest. A part begins with its host.
    """
    most = max(range(len(groups)), key=lambda at: (sums.counts[groups[at]], -at))
    if len(groups) == 1:
        return [list(groups)]
    own = list(groups)
    dominated = {at: bool(is_it) for at, is_it in zip(own, sums.is_told()[own], strict=True)}
    alone = [at for at in own if sums.counts[at] >= least and not dominated[at]]
    hosts = sorted({groups[most], *alone}, key=own.index)
    means = sums.sums / sums.counts[:, None]  # in standard deviations
    parts = {at: [at] for at in hosts}
    for at in own:
        if at not in parts:
            squared = ((means[hosts] - means[at]) ** 2).sum(axis=1)
            parts[hosts[int(squared.argmin())]].append(at)
    leaving = [part for host, part in parts.items() if host != groups[most]]
    leaving = [part for part in leaving if len(part) == 1 or not sums.together(part).is_told()[0]]
    leaving.sort(key=lambda part: -int(sums.counts[part].sum()))
    while True:
        gone = {at for part in leaving for at in part}
        staying = [groups[most], *(at for at in own if at not in gone and at != groups[most])]
        if not leaving or not sums.together(staying).is_told()[0]:
            return [staying, *leaving]
        leaving.pop()
