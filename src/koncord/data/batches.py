"""Tables larger than memory: read batch by batch, as often as it takes, with a seeded sample of rows that is held.

A table is a Parquet or CSV file, a folder of them, or anything that gives Arrow batches: a dataset of pyarrow, a
relation of DuckDB, a frame of Dask. Which columns are measurements is seen from the first batch. Values that are
missing are refused.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from koncord._progress import report
from koncord._validation import LARGEST_VALUE
from koncord._words import counted, listed
from koncord.data.columns import Notation, as_floats, kind_of_type, own_floats
from koncord.data.files import (
    COMMENT,
    VALUE_ROUNDING,
    Reading,
    Table,
    as_table_error,
    choose_columns,
    content_of,
    csv_layout,
    reader_of,
    refuse_array,
    shown,
    table_of_content,
)
from koncord.errors import TableArgumentError, TableError
from koncord.kernels.built import compiled_module
from koncord.types import BoolArray, FloatArray, IntArray, StoredArray

_labeling = compiled_module("_labeling")
# Values of a batch: 8 MB of floats, which stay near the processor from one step to the next.
STREAMED_VALUES = 1 << 20
# Rows that are held of a table: from these micro-clusters are cut, and all rows are then counted and summed by them.
SAMPLE_ROWS = 100_000
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".tsv")

Batches = Iterator[Any]  # of Arrow record batches
Columns = list[StoredArray]  # some rows of a table, column by column: (n,) each
Open = Callable[[Sequence[str] | None], Batches]  # the batches of these columns, or of all


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchedTable:
    """A table of numbers that is read anew for every pass over its rows, in the same order each time."""

    name: str
    columns: tuple[str, ...]
    open: Open
    what: str  # the table, in a sentence
    n_rows: int | None = None  # where it is known before the rows are read
    na: FloatArray = field(default_factory=lambda: np.empty(0))  # numbers that stand for a missing value
    left_out: tuple[str, ...] = ()  # sentences on columns that are not used

    def batches(self) -> Iterator[FloatArray]:
        """The rows (n, n_columns), batch by batch; NaN where a value is missing."""
        return map(in_rows, self.column_batches())

    def column_batches(self) -> Iterator[Columns]:
        """The same column by column, as Arrow holds them where they are floats without gaps."""
        for batch in arrow_batches(self.open, self.columns, self.what):
            columns: Columns = []
            for name in self.columns:
                column = batch.column(batch.schema.get_field_index(name))
                if kind_of_type(column.type) != "numbers":
                    raise TableError(
                        f"Column {name!r} of {self.what} holds numbers in one batch and {column.type} in another; "
                        f"leave it out with --drop {name}, or write it as numbers throughout."
                    )
                columns.append(self._without_na(as_floats(column)) if len(self.na) else own_floats(column))
            yield columns

    def _without_na(self, column: FloatArray) -> FloatArray:
        return np.where(np.isin(column, self.na), np.nan, column)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledTable:
    """A table that was read once: how many rows it has, some of them, and which columns have two values."""

    table: BatchedTable
    n_rows: int
    sample: FloatArray  # (n_sample, n_columns) rows drawn without replacement, in their order
    pairs: FloatArray  # (2, n_columns) the more frequent and the rarer value of columns with two values, else NaN
    n_rarer: IntArray  # (n_columns,) rows with the rarer one; 0 in other columns
    passes: Counter[str] = field(default_factory=lambda: Counter({"sample": 1}))  # over all rows, up to now

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.table.columns

    @property
    def is_whole(self) -> bool:
        """Whether the sample is all rows."""
        return len(self.sample) == self.n_rows

    def batches(self, what: str = "") -> Iterator[FloatArray]:
        """The rows (n, n_columns), batch by batch: one pass, whose progress is reported."""
        self.passes[what] += 1
        shown, done = f"pass {self.passes.total()} over {self.name}, {what}", 0
        for X in self.table.batches():
            report(done / self.n_rows, shown)
            yield X
            done += len(X)
        if done != self.n_rows:
            raise TableError(
                f"{self.table.what} had {self.n_rows:,} rows when it was first read and has {done:,} now; it must not "
                "change while it is read."
            )


def batched_table(
    source: Any,
    *,
    name: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    may_lack: bool = False,
    na: Sequence[str] = (),
    array: str | None = None,
) -> BatchedTable:
    """A table to be read batch by batch.

    Parameters
    ----------
    source : path, or object with Arrow batches
        A Parquet or CSV file or a folder of them, read in the order of their names; or a pyarrow dataset or table, a
        DuckDB relation, a Dask frame, or a function that returns an Arrow reader each time it is called.
    name : str or None, default None
        Name of the table; None is that of the file or folder, without extension.
    columns : sequence of str or None, default None
        The columns to keep, in this order; None keeps all that are measurements.
    drop : collection of str, default ()
        Columns to leave out.
    may_lack : bool, default False
        Whether a column to drop need not be there.
    na : sequence of str, default ()
        What stands for a missing value.
    array : str or None, default None
        For the sentence that refuses it.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        refuse_array(array, path)
        opened, n_rows, what = opened_files(table_files(path), na), parquet_rows(table_files(path)), shown(path)
        name = path.stem if name is None else name
    else:
        opened, n_rows, what = opened_source(source), None, f"The table of {name!r}" if name else "The table"
        name = name or "table"
    first = first_batch(opened, what)
    known = first.schema.names
    choice = choose_columns(known, columns, [each for each in drop if each in known] if may_lack else drop, Path(what))
    notation = Notation(na=tuple(na))
    options = Reading(columns=columns, notation=notation, categories=None)
    sources = {each: first.column(known.index(each)) for each in choice.columns}
    content = content_of({each: as_chunked(column) for each, column in sources.items()}, choice, options, what)
    seen = table_of_content(content, name, options)
    written = [each for each in seen.columns if kind_of_type(sources[each].type) != "numbers"]
    if written:
        raise TableError(
            f"{what} holds numbers as text in {listed(written)}, which is not read batch by batch; write it as "
            "numbers, or leave it out with --drop."
        )
    return BatchedTable(
        name=name,
        columns=seen.columns,
        open=opened,
        what=what,
        n_rows=n_rows,
        na=notation.na_numbers,
        left_out=tuple(f"{each} is left out: {why}" for each, why in seen.left_out.items()),
    )


def in_rows(columns: Columns) -> FloatArray:
    """Rows (n, n_columns) from their columns: in C where it was built."""
    X = np.empty((len(columns[0]), len(columns)))
    if _labeling is not None:
        _labeling.turn(columns, X)
    else:
        for at, column in enumerate(columns):
            X[:, at] = column
    return X


def as_chunked(column: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([column])


def first_batch(opened: Open, what: str) -> Any:
    """The first batch with rows; `TableError` where there is none."""
    found = next((batch for batch in arrow_batches(opened, None, what) if len(batch)), None)
    if found is None:
        raise TableError(f"{what} has no rows; it needs at least one row of numbers.")
    return found


def arrow_batches(opened: Open, columns: Sequence[str] | None, what: str) -> Batches:
    with as_table_error(Path(what.strip("'")), "batches"):
        yield from opened(columns)


# --- files ---


def table_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of their names: all Parquet, or all CSV."""
    if not path.is_dir():
        if path.suffix.lower() not in (*PARQUET, *CSV):
            raise TableArgumentError(
                f"{shown(path)} is not read batch by batch; that takes Parquet, CSV, or a folder of these."
            )
        reader_of(path)  # its sentences on what is not there or empty
        return [path]
    files = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith((".", "_")))
    by_kind = [[each for each in files if each.suffix.lower() in kind] for kind in (PARQUET, CSV)]
    own = max(by_kind, key=len)
    if not own:
        raise TableArgumentError(f"{shown(path)} is a folder without Parquet or CSV files, so it is no table.")
    others = [each.name for each in files if each not in own]
    if others:
        raise TableArgumentError(
            f"{shown(path)} holds {listed(others)} beside {counted(len(own), 'table')}; a folder that is one table "
            "holds Parquet files alone, or CSV files alone."
        )
    return own


def parquet_rows(files: Sequence[Path]) -> int | None:
    """Rows of Parquet files, as they say themselves; None of CSV files."""
    if files[0].suffix.lower() not in PARQUET:
        return None
    from pyarrow import parquet

    with as_table_error(files[0], "Parquet"):
        return sum(int(parquet.read_metadata(file).num_rows) for file in files)


def opened_files(files: Sequence[Path], na: Sequence[str]) -> Open:
    """The batches of some files, one file after the other."""
    of_file = parquet_batches if files[0].suffix.lower() in PARQUET else csv_batches

    def opened(columns: Sequence[str] | None) -> Batches:
        for file in files:
            yield from of_file(file, columns, na)

    return opened


def parquet_batches(path: Path, columns: Sequence[str] | None, na: Sequence[str]) -> Batches:
    from pyarrow import parquet

    with as_table_error(path, "Parquet"), parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        check_columns(file.schema_arrow.names, columns, path)
        size = max(STREAMED_VALUES // max(len(columns or file.schema_arrow.names), 1), 1)
        yield from file.iter_batches(batch_size=size, columns=columns, use_threads=False)


def csv_batches(path: Path, columns: Sequence[str] | None, na: Sequence[str]) -> Batches:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    layout = csv_layout(path)
    check_columns(layout.names, columns, path)

    def skip_comment(row: Any) -> str:
        return "skip" if row.text is not None and row.text.lstrip().startswith(COMMENT) else "error"

    convert: dict[str, Any] = {"null_values": [*arrow_csv.ConvertOptions().null_values, *na]}
    if columns is not None:  # numbers, as the first batch had them: a later batch might look like whole numbers
        convert |= {"include_columns": list(columns), "column_types": dict.fromkeys(columns, pa.float64())}
    with as_table_error(path, "CSV"):
        yield from arrow_csv.open_csv(
            path,
            read_options=arrow_csv.ReadOptions(
                column_names=layout.names,
                skip_rows=layout.n_header_lines,
                use_threads=False,
                block_size=1 << 23,
                encoding=layout.encoding,
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=layout.delimiter, invalid_row_handler=skip_comment),
            convert_options=arrow_csv.ConvertOptions(**convert),
        )


def check_columns(names: Sequence[str], columns: Sequence[str] | None, path: Path) -> None:
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise TableError(f"{shown(path)} lacks {listed(missing)}, which the files before it have.")


# --- engines ---


def is_batched_source(source: Any) -> bool:
    """Whether an object is read batch by batch rather than held whole: a folder, an engine, a dataset."""
    if isinstance(source, str | PathLike):
        return Path(source).is_dir()
    return isinstance(source, BatchedTable) or any(
        hasattr(source, name) for name in ("fetch_record_batch", "npartitions", "scanner")
    )


def opened_source(source: Any) -> Open:
    """The batches of an engine, a dataset or a table, each time anew."""
    if hasattr(source, "fetch_record_batch"):  # a relation of DuckDB: columns that are not used are not read
        return lambda columns: duckdb_batches(source, columns)
    if hasattr(source, "npartitions") and hasattr(source, "get_partition"):  # a frame of Dask
        return lambda columns: dask_batches(source, columns)
    if hasattr(source, "scanner"):  # a dataset of pyarrow
        return lambda columns: source.scanner(
            columns=None if columns is None else list(columns), use_threads=False, batch_size=1 << 16
        ).to_batches()
    if callable(source):
        return lambda columns: reader_batches(source(), columns)
    if hasattr(source, "read_next_batch"):
        raise TypeError(
            "A reader of Arrow batches can be read once, and a table is read several times; give a function that opens "
            "a new one each time."
        )
    if hasattr(source, "__arrow_c_stream__"):
        return lambda columns: reader_batches(source, columns)
    raise TypeError(
        "A table that is read batch by batch must be a file, a folder, a pyarrow dataset, a DuckDB relation, a Dask "
        f"frame or a function that returns an Arrow reader; got {type(source).__name__}."
    )


def duckdb_batches(relation: Any, columns: Sequence[str] | None) -> Batches:
    own = relation.columns if columns is None else columns
    chosen = relation.project(", ".join('"{}"'.format(name.replace('"', '""')) for name in own))
    read = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_record_batch  # the name in older versions
    yield from read(max(STREAMED_VALUES // max(len(own), 1), 1))


def dask_batches(frame: Any, columns: Sequence[str] | None) -> Batches:
    import pyarrow as pa

    chosen = frame if columns is None else frame[list(columns)]
    for at in range(chosen.npartitions):
        part = chosen.get_partition(at).compute(scheduler="synchronous")
        yield from pa.Table.from_pandas(part, preserve_index=False).to_batches(max_chunksize=1 << 16)


def reader_batches(source: Any, columns: Sequence[str] | None) -> Batches:
    import pyarrow as pa

    for batch in pa.RecordBatchReader.from_stream(source):
        yield batch if columns is None else batch.select(list(columns))


# --- the first pass ---


def sampled_table(
    table: BatchedTable, most_rows: int | None = None, *, each: Callable[[FloatArray], None] | None = None
) -> SampledTable:
    """Read a table once: count and check its rows, and hold a sample of at most `most_rows`, or `SAMPLE_ROWS`.

    The sample depends on the name of the table and on the order of its rows, not on the size of the batches. `each` is
    called with every batch.
    """
    rng = np.random.default_rng([*table.name.encode(), 0])
    sample, pairs, n_rows = Reservoir(SAMPLE_ROWS if most_rows is None else most_rows), TwoValues(len(table.columns)), 0
    for X in checked_batches(table, may_miss=False):
        sample.add(X, rng.random(len(X)), n_rows)
        pairs.add(X)
        if each is not None:
            each(X)
        n_rows += len(X)
    if not n_rows:
        raise TableError(f"{table.what} has no rows; it needs at least one row of numbers.")
    values, n_rarer = pairs.found()
    return SampledTable(table=table, n_rows=n_rows, sample=sample.rows(), pairs=values, n_rarer=n_rarer)


def checked_batches(table: BatchedTable, *, may_miss: bool) -> Iterator[FloatArray]:
    """The rows of a table that was not read before, batch by batch, each checked: one pass, with its progress."""
    for columns, n_before in counted_columns(table):
        X = in_rows(columns)
        check_batch(X, table, n_before, may_miss=may_miss)
        yield X


def counted_columns(table: BatchedTable) -> Iterator[tuple[Columns, int]]:
    """The rows of a table column by column, batch by batch, and how many came before: one pass, with its progress."""
    n_rows = 0
    for columns in table.column_batches():
        if table.n_rows:
            report(n_rows / table.n_rows, f"reading {table.name}")
        yield columns, n_rows
        n_rows += len(columns[0])


def means_and_scales(table: SampledTable) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation (n_columns,) of all rows, 1 where a column is constant: one pass."""
    origin = table.sample.mean(axis=0)
    sums, squares = np.zeros(len(origin)), np.zeros(len(origin))
    for X in table.batches("means and scales"):
        gaps = X - origin
        sums += gaps.sum(axis=0)
        squares += (gaps**2).sum(axis=0)
    shift = sums / table.n_rows
    deviations = np.sqrt(np.maximum(squares / table.n_rows - shift**2, 0.0))
    is_same = deviations <= VALUE_ROUNDING * np.abs(origin + shift)
    return origin + shift, np.where(is_same, 1.0, deviations)


def whole_table(table: SampledTable) -> Table:
    """The table of a sample that is all rows."""
    return Table(X=table.sample, columns=table.columns, name=table.name)


def sample_of(table: SampledTable, means: FloatArray, scales: FloatArray) -> Table:
    """The sample as a table, on a scale of all rows."""
    return Table(X=(table.sample - means) / scales, columns=table.columns, name=table.name)


def check_batch(X: FloatArray, table: BatchedTable, n_before: int, *, may_miss: bool = False) -> None:
    """Refuse what is missing, unless it may be, infinite, or too large to be squared."""
    if _labeling is not None and _labeling.are_within(X, LARGEST_VALUE):
        return
    is_bad: BoolArray = ~(np.abs(X) <= LARGEST_VALUE)
    if may_miss:
        is_bad &= ~np.isnan(X)
    if not is_bad.any():
        return
    row, at = divmod(int(is_bad.argmax()), X.shape[1])
    value, name = X[row, at], table.columns[at]
    kind = "is missing" if np.isnan(value) else f"is {value:g}"
    way_out = (
        "a table that is read batch by batch may not miss values: fill them in, remove the rows, or leave the column "
        f"out with --drop {name}"
        if np.isnan(value)
        else f"values up to {LARGEST_VALUE:g} are accepted: rescale the column, or leave it out with --drop {name}"
    )
    raise TableError(f"{table.what}: the value of {name!r} in row {n_before + row + 1:,} {kind}; {way_out}.")


class Reservoir:
    """The rows with the smallest of their random keys: a sample without replacement, whatever the batches are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[Keyed] = []
        self.largest = np.inf  # key that no row of the sample exceeds

    def add(self, X: FloatArray, keys: FloatArray, first: int) -> None:
        """Rows of a batch, their keys, and the number of the first of them."""
        at = np.flatnonzero(keys < self.largest)
        self.kept.append(Keyed(keys[at], first + at, X[at]))
        if sum(len(each.keys) for each in self.kept) > 2 * self.most:
            self.kept = [self._smallest()]
            self.largest = float(self.kept[0].keys.max())

    def _smallest(self) -> "Keyed":
        keys, places, rows = (np.concatenate(each) for each in zip(*self.kept, strict=True))
        chosen = np.argsort(keys, kind="stable")[: self.most]
        return Keyed(keys[chosen], places[chosen], rows[chosen])

    def rows(self) -> FloatArray:
        found = self._smallest()
        return np.ascontiguousarray(found.rows[np.argsort(found.places)])


class Keyed(NamedTuple):
    """Rows with their random keys and their numbers."""

    keys: FloatArray
    places: IntArray
    rows: FloatArray


class TwoValues:
    """Which columns have two values in all rows, and how many rows have each."""

    def __init__(self, n_columns: int) -> None:
        self.values: list[dict[float, int] | None] = [{} for _ in range(n_columns)]  # None of a column with more

    def add(self, X: FloatArray) -> None:
        for at, known in enumerate(self.values):
            if known is None:
                continue
            if len({*known, *X[:50, at].tolist()}) > 2:  # most columns show in a few rows that they have more
                self.values[at] = None
                continue
            for value, n in zip(*(each.tolist() for each in np.unique(X[:, at], return_counts=True)), strict=True):
                known[value] = known.get(value, 0) + n
            if len(known) > 2:
                self.values[at] = None

    def found(self) -> tuple[FloatArray, IntArray]:
        """The more frequent and the rarer value (2, n_columns), NaN where there are not two; rows with the rarer."""
        pairs = np.full((2, len(self.values)), np.nan)
        n_rarer = np.zeros(len(self.values), dtype=np.int64)
        for at, known in enumerate(self.values):
            if known is not None and len(known) == 2:
                (more, _), (rarer, n) = sorted(known.items(), key=lambda each: (-each[1], each[0]))
                pairs[:, at], n_rarer[at] = (more, rarer), n
        return pairs, n_rarer
