"""A person's table becomes an array: CSV, Parquet, NPY and NPZ, and a sentence for everything that can go wrong.

Only numbers pass: integers, floats, decimals and booleans (0 and 1). Nothing is filled in, thrown away or guessed in
silence. Rows count from 1, below the header.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TextIO
from zipfile import BadZipFile

import numpy as np

from koncord._text import is_showable
from koncord._validation import LARGEST_VALUE
from koncord._words import counted, joined, listed
from koncord.data.arrow import values_of
from koncord.errors import TableArgumentError, TableError
from koncord.types import BoolArray, FloatArray, IntArray

# Values that differ by no more than the rounding of the largest one are the same value.
ROUNDING = 16 * float(np.finfo(float).eps)
# Numbers of one Parquet batch: its columns are decoded side by side, next to the table they go into.
BATCH_VALUES = 1 << 18
DELIMITERS = ",;\t|"
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
# What pandas calls the index of a data frame when it writes it into a file.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
NUMBERS, INTEGERS = "biuf", "iu"  # kinds of a NumPy type
LARGEST_EXACT = 2**53  # below, a float tells any two integers apart
# A number whose comma, if it has one, is decimal, or stands between thousands; "1,234" is either.
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d+)?")
THOUSANDS_COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d*)?([eE][+-]?\d+)?")
MOST_DROPPED = 20
LONGEST_VALUE_SHOWN = 40
# In a cell of a header a person breaks the line where a space would be.
BREAKS = re.compile(r" *[\r\n\t]+ *")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Numbers of one file and the names of their columns."""

    X: FloatArray  # (n_rows, n_columns), C-contiguous
    columns: tuple[str, ...]
    name: str  # of the file, without folder and extension
    dropped: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()  # columns of integers that no float holds exactly

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """Columns that hold one value throughout and so say nothing about clusters."""
        return tuple(np.array(self.columns, dtype=object)[is_constant(self.X)])


class Choice(NamedTuple):
    """The columns to read, by position, and their names."""

    positions: list[int]
    columns: tuple[str, ...]
    dropped: tuple[str, ...]


Choose = Callable[[Sequence[str]], Choice]  # given all names of a file


class Content(NamedTuple):
    """What a reader finds in a file."""

    X: FloatArray
    choice: Choice
    rounded: tuple[str, ...]


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    array: str | None = None,
    may_lack: bool = False,
) -> Table:
    """Read a CSV (or TSV), Parquet, NPY or NPZ file as a table of finite numbers.

    Parameters
    ----------
    path : str or path-like
        File; its extension says how it is read.
    columns : sequence of str or None, default None
        The columns to keep, in this order; None keeps all.
    drop : collection of str, default ()
        Columns to leave out, after `columns`.
    array : str or None, default None
        Which array of an NPZ file is the table; None takes the one called X, or else the only one with two axes.
    may_lack : bool, default False
        Whether a column to `drop` need not be there.


    Notes
    -----
    A CSV file may separate its values by comma, semicolon, tab or bar. Its first line is the header unless it reads as
    data. Columns without a name are x0, x1, ... by position, as are those of arrays; an NPZ file may hold their names
    as an array of strings called ``columns``. A line break in a name of a CSV header is read as a space. An index that
    pandas wrote into a Parquet file is dropped.

    Raises `TableError` with a sentence that names the column or the row; where an argument does not fit the file
    (nothing there, no such column) it is a `ValueError` as well.
    """
    path = Path(path)
    read = reader_of(path)

    def choose(names: Sequence[str]) -> Choice:
        return choose_columns(names, columns, [name for name in drop if name in names] if may_lack else drop, path)

    X, choice, rounded = read(path, choose, array)
    if len(X) == 0:
        raise TableError(f"{shown(path)} has columns but no rows; it needs at least one row of numbers.")
    check_values(X, choice.columns, path)
    return Table(X=X, columns=choice.columns, name=path.stem, dropped=choice.dropped, rounded=rounded)


def standardise(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``Z = (X - mean) / scale`` with mean 0 and variance 1 in every column; returns Z, mean and scale.

    A column that is constant up to rounding has scale 1 and becomes 0. Z is the only array of the size of X that is
    made.

    >>> Z, mean, scale = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> Z.tolist(), mean.tolist(), scale.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [2.0, 5.0], [1.0, 1.0])
    """
    constant = is_constant(X)
    first = X[0].copy()
    Z: FloatArray = X - first  # a far-off mean costs no digits, and a constant column is an exact zero
    shift = Z.mean(axis=0)
    Z -= shift
    Z[:, constant] = 0.0
    widest = np.maximum(-Z.min(axis=0), Z.max(axis=0))
    widest[constant] = 1.0
    Z /= widest  # no square leaves the range of a float
    spread = np.sqrt(np.einsum("ij,ij->j", Z, Z) / len(Z))
    spread[constant] = 1.0
    Z /= spread
    return Z, first + shift, widest * spread


def is_constant(X: FloatArray) -> BoolArray:
    """Which columns of X (n, d) hold one value up to rounding, (d,)."""
    low, high = X.min(axis=0), X.max(axis=0)
    constant: BoolArray = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return constant


# --- which file, which columns ---


def reader_of(path: Path) -> Callable[[Path, Choose, str | None], Content]:
    """The reader of a file that is there and can be opened, by its extension."""
    readers = {
        ".csv": read_csv,
        ".tsv": read_csv,
        ".parquet": read_parquet,
        ".pq": read_parquet,
        ".npy": read_arrays,
        ".npz": read_arrays,
    }
    if path.is_dir():
        raise TableArgumentError(f"{shown(path)} is a folder, not a file; name one table in it.")
    if not path.exists():
        raise TableArgumentError(f"{shown(path)} does not exist; check the name and the folder.")
    if path.suffix.lower() not in readers:
        raise TableArgumentError(
            f"{shown(path)} has an extension koncord does not read; a table ends in {joined(list(readers), last='or')}."
        )
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        raise TableError(f"{shown(path)} cannot be opened: {error.strerror}.") from error
    if is_empty:
        raise TableError(f"{shown(path)} is empty; it needs at least one row of numbers.")
    return readers[path.suffix.lower()]


def refuse_array(array: str | None, path: Path) -> None:
    if array is not None:
        raise TableArgumentError(f"{shown(path)} holds one table, so it has no array {array!r}; leave out --array.")


def choose_columns(names: Sequence[str], columns: Sequence[str] | None, drop: Collection[str], path: Path) -> Choice:
    """Positions of the columns to keep: those asked for, in that order, or all; without those to drop."""
    asked = [*(columns or ()), *drop]
    for name in asked:
        if name not in names:
            raise TableArgumentError(f"{shown(path)} has no column {name!r}; {suggestion(name, names)}")
    repeated = [name for name, count in Counter(columns or ()).items() if count > 1]
    if repeated:
        raise TableArgumentError(f"--columns names {listed(repeated)} more than once; name each column once.")
    indexes = [name for name in names if PANDAS_INDEX.fullmatch(name) and name not in asked]
    wanted = dict.fromkeys(names if columns is None else columns)
    kept = [name for name in wanted if name not in drop and name not in indexes]
    if not kept:
        raise TableArgumentError(f"No column of {shown(path)} is left to read; it has {listed(names)}.")
    counts = Counter(names)
    doubled = [name for name in kept if counts[name] > 1]
    if doubled:
        raise TableError(
            f"{shown(path)} has more than one column called {listed(doubled)}; rename them, "
            f"or leave them out with {drop_option(doubled)}."
        )
    hidden = [name for name in kept if not is_showable(name)]
    if hidden:
        raise TableError(
            f"{shown(path)} has a column whose name holds a control character, a line break or a mark of direction, "
            f"which cannot be shown: {listed(hidden)}; rename it."
        )
    left_out = [name for name in dict.fromkeys(names) if name in drop or name in indexes]
    return Choice([names.index(name) for name in kept], tuple(kept), tuple(left_out))


def suggestion(name: str, names: Sequence[str]) -> str:
    """The names that look like the one that was given, or else what there is."""
    folded = {known.casefold(): known for known in names}
    close = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3)]
    return f"did you mean {listed(close, last='or')}?" if close else f"it has {listed(names)}."


# --- CSV ---


class Layout(NamedTuple):
    """How a CSV file is laid out."""

    delimiter: str
    names: list[str]
    n_header_lines: int  # lines above the data


def read_csv(path: Path, choose: Choose, array: str | None) -> Content:
    from pyarrow import csv as arrow_csv

    refuse_array(array, path)
    layout = csv_layout(path)
    choice = choose(layout.names)
    invalid: list[Any] = []

    def stop(row: Any) -> str:
        invalid.append(row)
        return "error"

    with as_table_error(path, "CSV", invalid, layout):
        table = arrow_csv.read_csv(
            path,
            # One thread: only then does pyarrow know the number of a row it cannot read.
            read_options=arrow_csv.ReadOptions(
                column_names=[str(at) for at in range(len(layout.names))],
                skip_rows=layout.n_header_lines,
                use_threads=False,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter, newlines_in_values=True, invalid_row_handler=stop
            ),
            convert_options=arrow_csv.ConvertOptions(include_columns=[str(at) for at in choice.positions]),
        )
    refuse_text(dict(zip(choice.columns, table.columns, strict=True)), path)
    X = np.empty(table.shape)
    for at in range(table.num_columns):
        X[:, at] = as_floats(table.column(at))
    return Content(X, choice, rounded_columns(X, choice.columns, [is_integer(column.type) for column in table.columns]))


def csv_layout(path: Path) -> Layout:
    """Delimiter, names, and whether there is a header, from the first two lines that are not blank."""
    with path.open("rb") as binary:
        start = binary.read(4096)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise TableError(f"{shown(path)} is not UTF-8 text; save it again as CSV in UTF-8.")
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else likely_delimiter(text)
        text.seek(0)
        lines = csv.reader(text, delimiter=delimiter)
        try:
            first, n_lines = next_line(lines)
            second, _ = next_line(lines)
        except csv.Error as error:
            raise TableError(f"{shown(path)} cannot be read as CSV: {error}; is a quote left open?") from error
    if not first:
        raise TableError(f"{shown(path)} is empty; it needs at least one row of numbers.")
    if reads_as_data(first, second):
        return Layout(delimiter, numbered(len(first)), 0)
    names = [
        BREAKS.sub(" ", name.strip()) or unnamed for name, unnamed in zip(first, numbered(len(first)), strict=True)
    ]
    return Layout(delimiter, names, n_lines)


def likely_delimiter(text: TextIO) -> str:
    """The delimiter that the first line holds most of, outside quotes; a comma if it holds none."""
    line = next((line for line in text if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(DELIMITERS, key=bare.count)


def next_line(lines: Any) -> tuple[list[str], int]:
    """The next line with something on it, and how many lines were read; no fields at the end of the file."""
    return next(((fields, lines.line_num) for fields in lines if any(field.strip() for field in fields)), ([], 0))


def reads_as_data(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first line is a row: numbers only, or numbers and text in the same places as on the second line."""
    kinds = [is_number(field) for field in first]
    if all(kind or is_missing(field) for kind, field in zip(kinds, first, strict=True)):
        return any(kinds)
    return any(kinds) and kinds == [is_number(field) for field in second]


def is_missing(text: str) -> bool:
    return text.strip().casefold() in MISSING


def is_number(text: str) -> bool:
    if is_missing(text) or "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- Parquet ---


def read_parquet(path: Path, choose: Choose, array: str | None) -> Content:
    from pyarrow import parquet

    refuse_array(array, path)
    # Pages are read through a small buffer, so that no group of rows is ever held whole beside the table.
    with as_table_error(path, "Parquet"), parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        schema = file.schema_arrow
        choice = choose(schema.names)
        names = list(choice.columns)
        refuse_text({name: schema.field(name) for name in names}, path)
        X = np.empty((file.metadata.num_rows, len(names)))
        start = 0
        batch_size = max(BATCH_VALUES // len(names), 1)
        for batch in file.iter_batches(batch_size=batch_size, columns=names, use_threads=False):
            for at, name in enumerate(names):
                X[start : start + len(batch), at] = as_floats(batch.column(name))
            start += len(batch)
    return Content(X, choice, rounded_columns(X, names, [is_integer(schema.field(name).type) for name in names]))


# --- what CSV and Parquet share ---


@contextmanager
def as_table_error(
    path: Path, wanted: str, invalid_rows: Sequence[Any] = (), layout: Layout | None = None
) -> Iterator[None]:
    """What pyarrow cannot read becomes one sentence."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if invalid_rows and layout is not None:
            row = invalid_rows[0]
            raise TableError(
                f"Row {row.number - layout.n_header_lines} of {shown(path)} has {counted(row.actual_columns, 'value')} "
                f"where {row.expected_columns} were expected; every row needs one value a column."
            ) from error
        raise TableError(f"{shown(path)} cannot be read as {wanted}: {first_sentence(error)}.") from error


def refuse_text(columns: Mapping[str, Any], path: Path) -> None:
    """Refuse columns, or fields of a schema, whose type is not a number's; of a column, show the first such value."""
    kinds = {name: kind_of(column.type) for name, column in columns.items() if not holds_numbers(column.type)}
    if not kinds:
        return
    texts = {name: first_text(columns[name]) for name in kinds if hasattr(columns[name], "chunks")}
    if texts and all("," in text for _, text in texts.values()):
        refuse_commas(texts, columns, path)
    examples = [f"{name!r} ({kind}{example_of(texts.get(name))})" for name, kind in kinds.items()]
    raise TableError(
        f"{shown(path)} has {counted(len(kinds), 'column')} that {'is' if len(kinds) == 1 else 'are'} not numbers: "
        f"{joined(examples)}; {way_around(list(kinds), columns)}."
    )


def refuse_commas(texts: Mapping[str, tuple[int, str]], columns: Mapping[str, Any], path: Path) -> None:
    """Refuse the columns that have `texts` if all of it is numbers with a comma, and say what the comma must be."""
    found = (value for name in texts for value in columns[name].unique().to_pylist())
    values = {as_text(value).strip() for value in found if value is not None}
    values = {value for value in values if not is_missing(value)}
    is_decimal, is_thousands = (all(map(form.fullmatch, values)) for form in (DECIMAL_COMMA, THOUSANDS_COMMA))
    named = listed(list(texts))
    if is_decimal and is_thousands:
        row, text = next(iter(texts.values()))
        joined_up, pointed = text.strip().replace(",", ""), text.strip().replace(",", ".")
        raise TableError(
            f"{shown(path)} writes numbers with a comma in {named} that could be {joined_up} or {pointed} (row {row}: "
            f"{text!r}); save it with decimal points and nothing between thousands, or {way_around(texts, columns)}."
        )
    if is_decimal:
        raise TableError(f"{shown(path)} writes numbers with a decimal comma in {named}; save it with decimal points.")
    if is_thousands:
        raise TableError(
            f"{shown(path)} writes numbers with commas between thousands in {named}; save it with nothing between them."
        )


def example_of(place: tuple[int, str] | None) -> str:
    return "" if place is None else f", row {place[0]}: {shortened(place[1])!r}"


def holds_numbers(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return holds_numbers(kind.value_type)
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def is_integer(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind.value_type if types.is_dictionary(kind) else kind))


def kind_of(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_date(kind) or types.is_timestamp(kind):
        return "dates"
    if types.is_time(kind) or types.is_duration(kind):
        return "times"
    return "nested values" if types.is_nested(kind) else "text"


def first_text(column: Any) -> tuple[int, str]:
    """Row and text of the first value that is not a number."""
    values = (value.as_py() for value in column)
    texts = ("" if value is None else as_text(value) for value in values)
    return next(((row, text) for row, text in enumerate(texts, start=1) if text and not is_number(text)), (1, ""))


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def as_floats(column: Any) -> FloatArray:
    """An Arrow column of numbers as floats, NaN where a value is missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    return values_of(column)


# --- NPY and NPZ ---


def read_arrays(path: Path, choose: Choose, array: str | None) -> Content:
    """The table of an NPY or NPZ file; its content decides which it is, not its name."""
    with path.open("rb") as file:
        with without_pickle(shown(path)):
            content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            refuse_array(array, path)
            return numbers_of(content, None, choose, shown(path))
        name = array or table_name(content, path)
        if name not in content.files:
            raise TableArgumentError(f"{shown(path)} has no array {name!r}; {suggestion(name, content.files)}")
        what = f"Array {name!r} of {shown(path)}"
        with without_pickle(what):
            table = content[name]
        with without_pickle(f"Array 'columns' of {shown(path)}"):
            names = content["columns"] if "columns" in content.files else None
        return numbers_of(table, names, choose, what)


@contextmanager
def without_pickle(what: str) -> Iterator[None]:
    """What NumPy cannot read, or not without running code from the file, becomes one sentence."""
    try:
        yield
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        if "Object arrays" in str(error):
            raise TableError(
                f"{what} holds Python objects, which koncord never unpickles; save numbers, as X.astype(float) gives."
            ) from error
        raise TableError(f"{what} is damaged or was not written by np.save or np.savez; write it again.") from error


def table_name(content: Any, path: Path) -> str:
    """Which array of an NPZ file is the table: X, or else the only one with two axes, or else with one."""
    names: list[str] = content.files
    if "X" in names:
        return "X"
    n_axes = {name: n_axes_of_numbers(content, name) for name in names}
    for n in (2, 1):
        tables = [name for name in names if n_axes[name] == n]
        if len(tables) == 1:
            return tables[0]
        if tables:
            raise TableArgumentError(
                f"{shown(path)} holds {len(tables)} tables, {listed(tables)}; say which one with --array NAME."
            )
    raise TableError(f"{shown(path)} holds no table of numbers; it holds {listed(names) or 'nothing'}.")


def n_axes_of_numbers(content: Any, name: str) -> int:
    """Number of axes of an array, 0 if it does not hold numbers."""
    try:
        with without_pickle(name):
            array = content[name]
    except TableError:
        return 0
    return array.ndim if array.dtype.kind in NUMBERS else 0


def numbers_of(table: np.ndarray[Any, np.dtype[Any]], names: Any, choose: Choose, what: str) -> Content:
    """The chosen columns of an array with one or two axes; `names` counts only if it names every column."""
    if table.dtype.kind not in NUMBERS:
        raise TableError(f"{what} holds {table.dtype.name} values; save numbers, as X.astype(float) gives.")
    if table.ndim not in (1, 2):
        raise TableError(f"{what} has {counted(table.ndim, 'axis', 'axes')} where a table has two: rows and columns.")
    if table.ndim == 1:
        table = table[:, None]
    n_columns = table.shape[1]
    if n_columns == 0:
        raise TableError(f"{what} has no columns; it needs at least one.")
    is_named = names is not None and names.dtype.kind == "U" and names.shape == (n_columns,)
    choice = choose(names.tolist() if is_named else numbered(n_columns))
    if choice.positions != list(range(n_columns)):
        table = table[:, choice.positions]
    X = np.ascontiguousarray(table, dtype=np.float64)
    return Content(X, choice, rounded_columns(X, choice.columns, [table.dtype.kind in INTEGERS] * X.shape[1]))


# --- values ---


def rounded_columns(X: FloatArray, columns: Sequence[str], are_integers: Sequence[bool]) -> tuple[str, ...]:
    """Columns that held integers too large for a float to tell from the next one."""
    asked = [at for at, is_one in enumerate(are_integers) if is_one and len(X)]
    return tuple(columns[at] for at in asked if np.nanmax(np.abs(X[:, at]), initial=0) >= LARGEST_EXACT)


def check_values(X: FloatArray, columns: Sequence[str], path: Path) -> None:
    """Refuse what is missing, infinite, or too large to be squared."""
    is_bad = ~np.isfinite(X)
    if is_bad.any():
        n_missing, n_infinite = np.isnan(X).sum(axis=0), np.isinf(X).sum(axis=0)
        parts = [
            f"{counted(int(counts.sum()), f'{kind} value')} in {per_column(columns, counts)}"
            for kind, counts in (("missing", n_missing), ("infinite", n_infinite))
            if counts.any()
        ]
        row, at = divmod(int(is_bad.argmax()), len(columns))
        bad = [columns[at] for at in np.flatnonzero(n_missing + n_infinite).tolist()]
        raise TableError(
            f"{shown(path)} has {' and '.join(parts)}, the first in row {row + 1} of {columns[at]!r}; "
            f"fill them in, remove the rows, or {way_around(bad, columns)}."
        )
    largest = np.maximum(-X.min(axis=0), X.max(axis=0))
    at = int(largest.argmax())
    if largest[at] > LARGEST_VALUE:
        raise TableError(
            f"Column {columns[at]!r} of {shown(path)} holds values up to {largest[at]:.3g}, whose squares overflow; "
            f"rescale it (values up to {LARGEST_VALUE:g} are accepted), or {way_around([columns[at]], columns)}."
        )


def per_column(columns: Sequence[str], counts: IntArray) -> str:
    bad = np.flatnonzero(counts).tolist()
    return joined([f"{columns[at]!r}" + (f" ({counts[at]:,})" if len(bad) > 1 else "") for at in bad])


# --- words ---


def shown(path: Path) -> str:
    return f"'{path}'"


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE_SHOWN else text[: LONGEST_VALUE_SHOWN - 3] + "..."


def numbered(n: int) -> list[str]:
    return [f"x{at}" for at in range(n)]


def way_around(bad: Collection[str], columns: Collection[str]) -> str:
    """How to read the file without the columns that cannot be used."""
    if len(bad) == len(columns):
        return "choose other columns"
    if len(bad) > MOST_DROPPED:
        return "name the columns to keep with --columns"
    return f"leave {'it' if len(bad) == 1 else 'them'} out with {drop_option(bad)}"


def drop_option(names: Collection[str]) -> str:
    """A command-line option that drops the columns: names with a comma in quotes, the whole quoted for the shell."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return f"--drop {quote(line.getvalue())}"


def first_sentence(error: Exception) -> str:
    return " ".join(re.split(r"[.\n]\s", str(error))[0].split()).rstrip(".")
