"""The joint partition of a table that is read batch by batch: the same rule as `koncord.protocol.partition`.

No number is kept for a row. A cell is known by the answers that made it: what each sorts rows by, and into which cell
rows of a cell with a label then go. What may leave a cell is decided from counts, sums, squares and extremes of all
rows of the cell by label, gathered in one pass; these tell whether a row dominates, as the rows themselves would.

One thing is coarser: a row that dominates the rows nearest to it is not moved; the rows that it dominates go with the
nearest group that no row dominates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from koncord.protocol.setup import Attribute
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
    by: CutTree | Attribute

    def __call__(self, X: FloatArray) -> IntArray:
        return self.of_coded(self.rows.coded(X))

    def of_coded(self, coded: FloatArray) -> IntArray:
        """Labels of rows, or means of rows, that are coded."""
        return self.by.assign(self.scaling(coded))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sorting:
    """One answer: what it sorted rows by, and the cell and the label that rows then have."""

    label: Label
    cells: IntArray  # (n_cells before, n_labels) the cell of rows of a cell with a label
    allowed: IntArray  # (n_cells before, n_labels) the label that such rows may be sent with


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedGroups:
    """Rows sorted as the joint partition allows."""

    rows: StreamedRows
    before: tuple[Sorting, ...]
    last: Sorting
    counts: IntArray  # (n_labels,) rows of each label, as they may be sent
    rarer: IntArray  # (n_cells, n_two_valued) rows of each cell that are said to have the rarer value
    n_rarer: IntArray  # (n_cells, n_two_valued) rows that have it
    cell_labels: IntArray  # (n_cells,) the label that the rows of each cell are sent with

    def labels(self, X: FloatArray) -> IntArray:
        """The label of rows as they came."""
        allowed: IntArray = self.last.allowed[cells_after(self.before, X), self.last.label(X)]
        return allowed

    def cells(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Coded rows, two-valued columns as they are sent, and their cells: one pass."""
        return self._sorted("sums by cell", self.last.cells)

    def batches(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Coded rows, two-valued columns as they are sent, and their labels: one pass."""
        return self._sorted("sums by group", self.last.allowed)

    def _sorted(self, what: str, by: IntArray) -> Iterator[tuple[FloatArray, IntArray]]:
        dealt = TwoValuedAsSent(self)
        for X in self.rows.batches(what):
            cells = cells_after(self.before, X)
            labels = self.last.label(X)
            coded = self.rows.coded(X)
            if len(self.rows.two_valued):
                coded = dealt.deal(coded, self.rows.has_rarer(X), self.last.cells[cells, labels])
            yield coded, by[cells, labels]


class TwoValuedAsSent:
    """Deals the rarer value to as many rows of each cell as are said to have it: first to those that do."""

    def __init__(self, groups: StreamedGroups) -> None:
        self.groups = groups
        self.next_rarer = np.zeros_like(groups.n_rarer)
        self.next_other = groups.n_rarer.copy()
        self.values = groups.rows.coded(np.nan_to_num(groups.rows.table.pairs, nan=1.0))

    def deal(self, coded: FloatArray, has_rarer: BoolArray, cells: IntArray) -> FloatArray:
        rows = self.groups.rows
        dealt = coded.copy()
        for column, at in enumerate(rows.two_valued.tolist()):
            places = np.empty(len(cells), dtype=np.int64)
            for is_it, following in ((has_rarer[:, column], self.next_rarer), (~has_rarer[:, column], self.next_other)):
                own = cells[is_it]
                places[is_it] = following[own, column] + places_in_groups(own)
                following[:, column] += np.bincount(own, minlength=len(following))
            is_rarer = places < self.groups.rarer[cells, column]
            dealt[:, at] = self.values[is_rarer.astype(np.int64), at]
        return dealt


def places_in_groups(groups: IntArray) -> IntArray:
    """How many of the same group come before each, (n,)."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    places = np.empty(len(groups), dtype=np.int64)
    places[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return places


def cells_after(sortings: Sequence[Sorting], X: FloatArray) -> IntArray:
    """The cell of rows as they came, after some answers."""
    cells = np.zeros(len(X), dtype=np.int64)
    for sorting in sortings:
        cells = sorting.cells[cells, sorting.label(X)]
    return cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedCells:
    """The cells that all answers made together: the answers that divided one, in their order."""

    sortings: tuple[Sorting, ...]
    counts: IntArray  # (n_cells,) rows
    rarer: IntArray  # (n_cells, n_two_valued) rows of each cell that are said to have the rarer value
    n_rarer: IntArray  # (n_cells, n_two_valued) rows that have it


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
    """The partition that all answers of a site over one streamed table make together.

    Parameters
    ----------
    rows : StreamedRows
        The table.
    least : int
        Rows that a cell has at least; 1 allows any label.
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

    @property
    def sortings(self) -> tuple[Sorting, ...]:
        return self.cells.sortings

    @property
    def rarer(self) -> IntArray:
        return self.cells.rarer

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

    def apart(self, label: Label, n_labels: int, least: int = 1) -> StreamedGroups:
        """The rows by label, in groups that may be sent after all that was sent before: one pass."""
        found: list[StreamedGroups] = []

        def change(before: StreamedCells | None) -> StreamedCells:
            groups, after = self._divide(self._or_one(before), label, n_labels, least)
            found.append(groups)
            return after

        self.store.update(self.rows, change)
        return found[0]

    def _divide(
        self, before: StreamedCells, label: Label, n_labels: int, least: int
    ) -> tuple[StreamedGroups, StreamedCells]:
        """The rows by label, and the cells after that."""
        n_cells = len(before.rarer)
        summer = GroupSummer(~self.rows.is_shared, len(self.rows.two_valued), least_open(self.least))
        origin, scales = self.rows.scale()
        for X in self.rows.batches("groups"):
            groups = cells_after(before.sortings, X) * n_labels + label(X)
            summer.add((self.rows.coded(X) - origin) / scales, self.rows.has_rarer(X), self.rows.is_open(X), groups)
        cells = np.repeat(np.arange(n_cells)[:, None], n_labels, axis=1)
        allowed = np.repeat(np.arange(n_labels)[None], n_cells, axis=0)
        counts = np.zeros(n_labels, dtype=np.int64)
        rarer, n_rarer, sizes = list(before.rarer), list(before.n_rarer), before.counts.tolist()
        cell_labels: dict[int, int] = {}
        found: dict[int, list[int]] = {}
        for name in sorted(summer.places):
            found.setdefault(name // n_labels, []).append(name % n_labels)
        check_cells(before, summer, n_labels)
        for cell, labels in found.items():
            own = [summer.places[cell * n_labels + each] for each in labels]
            parts = self._parts(summer.sums, own, max(least, self.least))
            sums = [summer.sums.together(part) for part in parts]
            sent = self._divided(rarer[cell], sums)
            label_of = dict(zip(own, labels, strict=True))
            names = self._names(label, parts, sums, sent if len(parts) > 1 else [rarer[cell]], label_of)
            for at, part in enumerate(parts):
                new = cell if not at else len(rarer)
                if at:
                    rarer.append(sent[at])
                    n_rarer.append(sums[at].rarer[0])
                    sizes.append(int(sums[at].counts[0]))
                else:
                    rarer[cell], n_rarer[cell] = (sent[0] if len(parts) > 1 else rarer[cell]), sums[0].rarer[0]
                    sizes[cell] = int(sums[0].counts[0])
                cell_labels[new] = names[at]
                for group in part:
                    cells[cell, label_of[group]] = new
                    allowed[cell, label_of[group]] = names[at]
                counts[names[at]] += sums[at].counts[0]
        last = Sorting(label=label, cells=cells, allowed=allowed)
        found_groups = StreamedGroups(
            rows=self.rows,
            before=before.sortings,
            last=last,
            counts=counts,
            rarer=np.array(rarer, dtype=np.int64).reshape(len(rarer), -1),
            n_rarer=np.array(n_rarer, dtype=np.int64).reshape(len(rarer), -1),
            cell_labels=np.array([cell_labels.get(cell, 0) for cell in range(len(rarer))], dtype=np.int64),
        )
        if len(rarer) == n_cells:  # every row is where it was
            return found_groups, before
        after = StreamedCells(
            sortings=(*before.sortings, last),
            counts=np.array(sizes, dtype=np.int64),
            rarer=found_groups.rarer,
            n_rarer=found_groups.n_rarer,
        )
        return found_groups, after

    def _names(
        self,
        label: Label,
        parts: Sequence[Sequence[int]],
        sums: Sequence[GroupSums],
        sent: Sequence[IntArray],
        label_of: Mapping[int, int],
    ) -> list[int]:
        """The labels that the parts of a cell are sent with: those of their means, as these are sent."""
        if self.least <= 1 or not isinstance(label, ScaledLabel):
            return [label_of[part[0]] for part in parts]
        origin, scales = self.rows.scale()
        means = np.array([origin + scales * part.sums[0] / part.counts[0] for part in sums])
        values = self.rows.coded(np.nan_to_num(self.rows.table.pairs, nan=1.0))
        for column, at in enumerate(self.rows.two_valued.tolist()):
            shares = np.array([own[column] / part.counts[0] for own, part in zip(sent, sums, strict=True)])
            means[:, at] = (1 - shares) * values[0, at] + shares * values[1, at]
        return [int(each) for each in label.of_coded(means)]

    def _divided(self, sent: IntArray, parts: Sequence[GroupSums]) -> Sequence[IntArray]:
        """What a cell sent of its two-valued columns, divided among its parts; without a floor, what they have."""
        counts = [part.rarer[0] for part in parts]
        return counts if self.least <= 1 else list(divided(sent, counts, [int(part.counts[0]) for part in parts]))

    def _parts(self, sums: GroupSums, groups: Sequence[int], least: int) -> list[list[int]]:
        """The groups of one cell in parts that may be sent, what stays of it first; a part begins with its host."""
        if self.least <= 1:
            return [[group] for group in groups]
        return streamed_parts(sums, groups, least)


def check_cells(before: StreamedCells, summer: GroupSummer, n_labels: int) -> None:
    """`TableError` unless the cells have the rows that they had: others would tell what is in few rows."""
    now = np.zeros(len(before.counts), dtype=np.int64)
    for name, place in summer.places.items():
        now[name // n_labels] += summer.sums.counts[place]
    if not np.array_equal(now, before.counts):
        raise TableError(
            "The rows of a table that is read batch by batch are not those that were answered about before; a table "
            "must not change, and is read by the version of koncord that read it first."
        )


def streamed_parts(sums: GroupSums, groups: Sequence[int], least: int) -> list[list[int]]:
    """As `koncord.protocol.partition.safe_parts`, from sums: groups that may leave a cell, after what stays of it."""
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
