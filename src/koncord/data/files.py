"""A person's table becomes an array: CSV, Parquet, Excel, NPY and NPZ, and a sentence for all that can go wrong.

Numbers pass (integers, floats, decimals, and booleans as 0 and 1), and the levels of columns that are named as
categories. Nothing is filled in, thrown away or guessed in silence. Rows count from 1, below the header.
"""

import csv
import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from zipfile import BadZipFile

import numpy as np

from koncord._extras import require
from koncord._text import is_showable
from koncord._validation import LARGEST_VALUE
from koncord._words import counted, joined, listed
from koncord.data.columns import (
    IDENTIFIER_NAME,
    MOST_NAMED,
    WHY_LEFT_OUT,
    Notation,
    TableColumn,
    about_text,
    as_floats,
    columns_in,
    is_integer,
    is_missing,
    is_number,
    is_number_somewhere,
    kind_of_type,
    level_text,
    option,
    shortened_value,
    value_text,
)
from koncord.errors import TableArgumentError, TableError
from koncord.types import BoolArray, FloatArray, IntArray

# Values that differ by no more than the rounding of the largest one are the same value.
VALUE_ROUNDING = 16 * float(np.finfo(float).eps)
# Numbers of one Parquet batch: its columns are decoded side by side, next to the table they go into.
BATCH_VALUES = 1 << 18
DELIMITERS = ",;\t|"
COMMENT = "#"
# What text is encoded in: as everywhere, or else as older programs of Windows do, for which some bytes are no sign.
UTF_8, WINDOWS, ANY_BYTE = "utf-8", "cp1252", "latin-1"
ENCODING_NAMES = {WINDOWS: "Windows-1252", ANY_BYTE: "Latin-1"}
CHECKED_BYTES = 1 << 20  # of a file at a time
# What pandas calls the index of a data frame when it writes it into a file.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Names of a column that nobody named: by pandas, by pandas once more.
UNNAMED = re.compile(r"Unnamed: \d+|index|level_0")
FEWEST_COUNTED = 3  # rows: two numbers that grow are no index yet
NUMBERS, INTEGERS = "biuf", "iu"  # kinds of a NumPy type
LARGEST_EXACT = 2**53  # below, a float tells any two integers apart
# In a cell of a header a person breaks the line where a space would be.
BREAKS = re.compile(r" *[\r\n\t]+ *")
USED, LEFT_OUT = ("numbers", "category"), ("dates", "identifier")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Numbers of one file and the names of their columns."""

    X: FloatArray  # (n_rows, n_columns), C-contiguous; NaN where a value is missing
    columns: tuple[str, ...]
    name: str  # of the file, without folder and extension
    dropped: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()  # columns of integers that no float holds exactly
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of categories, whose X is a position in them
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns that are no measurements, and what they are
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # text that nobody named a category, its levels
    notes: tuple[str, ...] = ()  # on how it was read
    integers: frozenset[str] = frozenset()  # columns that the file holds as whole numbers or booleans

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """Columns that hold one value throughout and so say nothing about clusters."""
        return tuple(np.array(self.columns, dtype=object)[is_constant(self.X)])

    @property
    def has_gaps(self) -> bool:
        return bool(np.isnan(self.X).any())


class ChosenColumns(NamedTuple):
    """The columns to read, by position, and their names."""

    positions: list[int]
    columns: tuple[str, ...]
    dropped: tuple[str, ...]


Choose = Callable[[Sequence[str]], ChosenColumns]  # given all names of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reader is asked for."""

    columns: Sequence[str] | None = None
    array: str | None = None
    notation: Notation = field(default_factory=Notation)
    categories: tuple[str, ...] | None = ()  # None: there is no way to name any
    refuses: bool = True  # text that nobody named a category; else it is left out and kept in `Table.texts`


class Content(NamedTuple):
    """What a reader finds in a file."""

    X: FloatArray
    choice: ChosenColumns
    columns: tuple[str, ...]  # of X
    rounded: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    texts: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    integers: frozenset[str]
    counts_rows: frozenset[str] = frozenset()  # columns that a header leaves without a name


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    array: str | None = None,
    may_lack: bool = False,
    decimal: str | None = None,
    na: Sequence[str] = (),
    categories: Collection[str] | None = (),
    may_miss: bool = False,
    refuses: bool = True,
) -> Table:
    """Read a CSV (or TSV), Parquet, Excel, NPY or NPZ file as a table of finite numbers.

    Parameters
    ----------
    path : str or path
        The file; its extension says how it is read.
    columns : sequence of str, default None
        The columns to keep, in this order; None keeps all that are measurements.
    drop : collection of str, default ()
        Columns to leave out, after `columns`.
    array : str, default None
        Which array of an NPZ file, or sheet of an Excel file, is the table; None takes the array called X, or else the
        only one with two axes; or the first sheet.
    may_lack : bool, default False
        Whether a column to `drop`, or a category, need not be there.
    decimal : str, default None
        What stands before the decimals, a point or a comma; None looks at the numbers.
    na : sequence of str, default ()
        What stands for a missing value, beside an empty cell, NA, N/A, NaN and null.
    categories : collection of str or None, default ()
        Columns whose values, numbers or text, are levels: X has their positions in `Table.levels`. None is no column,
        and what is refused is not offered as one.
    may_miss : bool, default False
        Whether values may be missing; they are NaN.
    refuses : bool, default True
        Whether text that is no category is refused; else it is in `Table.texts`.

    Raises
    ------
    TableError
        With a sentence that names the column or the row; where an argument does not fit the file (nothing there, no
        such column) it is a `ValueError` as well.

    Notes
    -----
    A CSV file may separate its values by comma, semicolon, tab or bar. Its first line is the header unless it reads as
    data; lines above it that begin with # are comments. Columns without a name are x0, x1, ... by position, as are
    those of arrays; an NPZ file may hold their names as an array of strings called ``columns``. A line break in a name
    of a CSV header is read as a space. An index that pandas wrote into a file is dropped. Unless they are asked for by
    `columns`, dates and columns that name rows are left out: `Table.left_out` says which.
    """
    path = Path(path)
    read = reader_of(path)
    options = Reading(
        columns=columns,
        array=array,
        notation=Notation(decimal=decimal, na=tuple(na)),
        categories=None if categories is None else tuple(categories),
        refuses=refuses,
    )

    def choose(names: Sequence[str]) -> ChosenColumns:
        if not may_lack:
            check_categories(categories or (), names, path)
        return choose_columns(names, columns, [name for name in drop if name in names] if may_lack else drop, path)

    content = read(path, choose, options)
    if len(content.X) == 0:
        raise TableError(f"{shown(path)} has columns but no rows; it needs at least one row of numbers.")
    table = table_of_content(content, path.stem, options)
    check_values(table, path, may_miss=may_miss)
    return table


def table_of_content(content: Content, name: str, options: Reading) -> Table:
    """The table of a file: what stands for a missing value is NaN, and what counts or names rows is left out."""
    X = content.X
    is_number = np.array([column not in content.levels for column in content.columns], dtype=np.bool_)
    for value in options.notation.na_numbers:
        X[(value == X) & is_number] = np.nan
    names = {} if options.columns is not None else identifiers(content)
    kept = [at for at, column in enumerate(content.columns) if column not in names]
    if names:
        X = np.ascontiguousarray(X[:, kept])
    return Table(
        X=X,
        columns=tuple(content.columns[at] for at in kept),
        name=name,
        dropped=content.choice.dropped,
        rounded=tuple(column for column in content.rounded if column not in names),
        levels=content.levels,
        left_out={**content.left_out, **names},
        texts=content.texts,
        notes=content.notes,
        integers=content.integers - set(names),
    )


def complete_rows(tables: Sequence[Table]) -> list[Table]:
    """The tables without rows that miss a value of a column which all tables have; an error if none are left."""
    shared = [name for name in tables[0].columns if all(name in table.columns for table in tables)] if tables else []
    found = []
    for table in tables:
        is_whole = ~np.isnan(table.X[:, [table.columns.index(name) for name in shared]]).any(axis=1)
        if not is_whole.any():
            raise TableError(
                f"Every row of {table.name!r} misses a value; fill gaps with --missing gaussian or --missing mean, or "
                "leave out columns with --drop."
            )
        found.append(replace(table, X=table.X[is_whole]))
    return found


def identifiers(content: Content) -> dict[str, str]:
    """Columns of whole numbers that count the rows or name them, and why; never all columns."""
    found = {}
    for at, name in enumerate(content.columns):
        values = content.X[:, at]
        if name not in content.integers or len(values) < FEWEST_COUNTED:
            continue
        if (name in content.counts_rows or UNNAMED.fullmatch(name)) and bool((np.diff(values) == 1).all()):
            found[name] = "counts the rows, as an index does"
        elif name in content.rounded:
            found[name] = f"integers beyond {LARGEST_EXACT:,}, which name things and measure nothing"
        elif IDENTIFIER_NAME.fullmatch(name) and len(np.unique(values)) == len(values):
            found[name] = WHY_LEFT_OUT["identifier"]
    return found if len(found) < len(content.columns) else {}


def check_categories(categories: Collection[str], names: Sequence[str], path: Path) -> None:
    for name in categories:
        if name not in names:
            raise TableArgumentError(f"{shown(path)} has no column {name!r} of --categories; {suggestion(name, names)}")


def standardize(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``Z = (X - mean) / scale`` with mean 0 and variance 1 in every column; returns Z, mean and scale.

    A column that is constant up to rounding has scale 1 and becomes 0. Z is the only array of the size of X that is
    made.

    >>> Z, mean, scale = standardize(np.array([[1.0, 5.0], [3.0, 5.0]]))
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
    """Which columns of X (n, d) hold one value up to rounding, (d,); what is missing does not count.

    A range below the smallest normal number is rounding, too: nothing can be divided by it without losing its digits.
    """
    low, high = np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0)
    rounding = np.maximum(VALUE_ROUNDING * np.maximum(np.abs(low), np.abs(high)), np.finfo(float).tiny)
    constant: BoolArray = high - low <= rounding
    return constant


# --- which file, which columns ---


def reader_of(path: Path) -> Callable[[Path, Choose, Reading], Content]:
    """The reader of a file that is there and can be opened, by its extension."""
    readers = {
        ".csv": read_csv,
        ".tsv": read_csv,
        ".parquet": read_parquet,
        ".pq": read_parquet,
        ".xlsx": read_excel,
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


def choose_columns(
    names: Sequence[str], columns: Sequence[str] | None, drop: Collection[str], path: Path
) -> ChosenColumns:
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
    return ChosenColumns([names.index(name) for name in kept], tuple(kept), tuple(left_out))


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
    unnamed: tuple[str, ...] = ()  # columns that a header leaves without a name
    encoding: str = UTF_8


def read_csv(path: Path, choose: Choose, options: Reading) -> Content:
    from pyarrow import csv as arrow_csv

    refuse_array(options.array, path)
    layout = csv_layout(path)
    choice = choose(layout.names)
    invalid: list[Any] = []

    def stop(row: Any) -> str:
        if row.text is not None and row.text.lstrip().startswith(COMMENT):
            return "skip"
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
                encoding=layout.encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter, newlines_in_values=True, invalid_row_handler=stop
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[str(at) for at in choice.positions], decimal_point=options.notation.decimal or "."
            ),
        )
    sources = dict(zip(choice.columns, table.columns, strict=True))
    content = content_of(sources, choice, options, shown(path))
    return content._replace(
        counts_rows=frozenset(layout.unnamed), notes=(*encoding_notes(layout.encoding), *content.notes)
    )


def encoding_notes(encoding: str) -> tuple[str, ...]:
    return () if encoding == UTF_8 else (f"it is not UTF-8 text and is read as {ENCODING_NAMES[encoding]}",)


def encoding_of(path: Path) -> str:
    """UTF-8, or what else the bytes of a file can be."""
    possible = [UTF_8, WINDOWS]
    decoders = {each: getincrementaldecoder(each)() for each in possible}
    with path.open("rb") as file:
        while possible and (data := file.read(CHECKED_BYTES)):
            possible = [each for each in possible if decodes(decoders[each], data)]
    possible = [each for each in possible if decodes(decoders[each], b"", is_last=True)]
    return possible[0] if possible else ANY_BYTE


def decodes(decoder: IncrementalDecoder, data: bytes, *, is_last: bool = False) -> bool:
    try:
        decoder.decode(data, is_last)
    except UnicodeDecodeError:
        return False
    return True


def csv_layout(path: Path) -> Layout:
    """Delimiter, names, and whether there is a header, from the first two lines that are not blank."""
    with path.open("rb") as binary:
        start = binary.read(4096)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start:
        raise TableError(f"{shown(path)} is not UTF-8 text; save it again as CSV in UTF-8.")
    encoding = encoding_of(path)
    with path.open(encoding="utf-8-sig" if encoding == UTF_8 else encoding, newline="") as text:
        comments = leading_comments(text)
        delimiter = "\t" if path.suffix.lower() == ".tsv" else likely_delimiter(text, comments)
        text.seek(0)
        lines = csv.reader(text, delimiter=delimiter)
        try:
            for _ in comments:
                next(lines)
            first, n_lines = next_line(lines)
            second, _ = next_line(lines)
        except csv.Error as error:
            raise TableError(f"{shown(path)} cannot be read as CSV: {error}; is a quote left open?") from error
    if not first:
        raise TableError(f"{shown(path)} is empty; it needs at least one row of numbers.")
    header, n_header_lines = first, n_lines
    if reads_as_data(first, second):
        last = next(csv.reader([comments[-1].lstrip(f"{COMMENT} ")], delimiter=delimiter), []) if comments else []
        if len(last) != len(first) or len(first) < 2:
            return Layout(delimiter, numbered(len(first)), len(comments), encoding=encoding)
        header, n_header_lines = last, len(comments)  # names behind the sign of a comment, as NumPy writes them
    names = [
        BREAKS.sub(" ", name.strip()) or unnamed for name, unnamed in zip(header, numbered(len(header)), strict=True)
    ]
    unnamed = [name for name, given in zip(names, header, strict=True) if not given.strip()]
    return Layout(delimiter, names, n_header_lines, tuple(unnamed), encoding)


def leading_comments(text: TextIO) -> list[str]:
    """The lines above the table that begin with the sign of a comment, and blank ones between them."""
    comments = []
    for line in text:
        if line.strip() and not line.lstrip().startswith(COMMENT):
            break
        comments.append(line.strip())
    while comments and not comments[-1]:
        comments.pop()
    text.seek(0)
    return comments


def likely_delimiter(text: TextIO, comments: Sequence[str] = ()) -> str:
    """The delimiter that the first line below the comments holds most of, outside quotes; a comma if it holds none."""
    line = next((line for at, line in enumerate(text) if line.strip() and at >= len(comments)), "")
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


# --- Excel ---


def read_excel(path: Path, choose: Choose, options: Reading) -> Content:
    """The first sheet of an Excel file, or the one that `array` names, below its first row that is not empty."""
    import pyarrow as pa

    require("excel", "Reading an Excel file")
    import openpyxl

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # whatever a damaged archive makes it raise
        raise TableError(f"{shown(path)} cannot be read as Excel: {first_sentence(error)}.") from error
    if options.array is not None and options.array not in book.sheetnames:
        raise TableArgumentError(
            f"{shown(path)} has no sheet {options.array!r}; {suggestion(options.array, book.sheetnames)}"
        )
    sheet = book[options.array] if options.array is not None else book.worksheets[0]
    rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    book.close()
    if not rows:
        raise TableError(f"{shown(path)} is empty; it needs at least one row of numbers.")
    has_header = not reads_as_data([cell_text(cell) for cell in rows[0]], [cell_text(cell) for cell in rows[-1]])
    header = [cell_text(cell).strip() if has_header else "" for cell in rows[0]]
    names = [name or unnamed for name, unnamed in zip(header, numbered(len(header)), strict=True)]
    body = rows[1:] if has_header else rows
    choice = choose(names)
    sources = {
        name: arrow_column([row[at] for row in body], pa)
        for name, at in zip(choice.columns, choice.positions, strict=True)
    }
    content = content_of(sources, choice, options, shown(path))
    return content._replace(
        counts_rows=frozenset(n for n, given in zip(names, header, strict=True) if not given and has_header)
    )


def cell_text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def arrow_column(cells: Sequence[Any], pa: Any) -> Any:
    """Cells of several types as one column: numbers if all are, else text."""
    try:
        return pa.chunked_array([pa.array(cells)])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([pa.array([None if cell is None else str(cell) for cell in cells])])


# --- Parquet ---


def read_parquet(path: Path, choose: Choose, options: Reading) -> Content:
    from pyarrow import parquet

    refuse_array(options.array, path)
    # Pages are read through a small buffer, so that no group of rows is ever held whole beside the table.
    with as_table_error(path, "Parquet"), parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        schema = file.schema_arrow
        choice = choose(schema.names)
        names = list(choice.columns)
        plain = [
            name
            for name in names
            if is_plain_number(schema.field(name).type) and name not in (options.categories or ())
        ]
        others = [name for name in names if name not in plain]
        rest = file.read(columns=others, use_threads=False) if others else None
        sources = {} if rest is None else {name: rest.column(name) for name in others}
        by_name = {c.name: c for c in columns_in(sources, options.notation, options.categories or (), shown(path))}
        for name in plain:
            by_name[name] = TableColumn(name=name, kind="numbers", is_integer=is_integer(schema.field(name).type))
        found = [by_name[name] for name in names]
        check_text(found, choice, options, shown(path), {name: kind_and_place(sources[name]) for name in others})
        used = [column for column in found if column.kind in USED]
        X = np.empty((file.metadata.num_rows, len(used)))
        for at, column in enumerate(used):
            if column.source is not None:
                X[:, at] = as_floats(column.source)
        start = 0
        batch_size = max(BATCH_VALUES // max(len(plain), 1), 1)
        for batch in file.iter_batches(batch_size=batch_size, columns=plain, use_threads=False) if plain else ():
            for at, column in enumerate(used):
                if column.source is None:
                    X[start : start + len(batch), at] = as_floats(batch.column(column.name))
            start += len(batch)
    return assembled(X, found, choice)


def is_plain_number(kind: Any) -> bool:
    return kind_of_type(kind) == "numbers"


# --- what CSV, Excel and Parquet share ---


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


def content_of(sources: Mapping[str, Any], choice: ChosenColumns, options: Reading, what: str) -> Content:
    """The table that columns of Arrow make."""
    found = columns_in(sources, options.notation, options.categories or (), what)
    check_text(found, choice, options, what, {name: kind_and_place(sources[name]) for name in sources})
    used = [column for column in found if column.kind in USED]
    X = np.empty((len(next(iter(sources.values()))), len(used)))
    for at, column in enumerate(used):
        X[:, at] = as_floats(column.source)
    return assembled(X, found, choice)


def check_text(
    columns: Sequence[TableColumn], choice: ChosenColumns, options: Reading, what: str, places: Mapping[str, str]
) -> None:
    """Refuse text that nobody named a category, and dates and names of rows that were asked for."""
    asked = options.columns or ()
    refused = [
        column for column in columns if column.kind == "text" or (column.kind in LEFT_OUT and column.name in asked)
    ]
    if refused and options.refuses:
        way_out = way_around([column.name for column in refused], choice.columns)
        raise TableError(about_text(refused, what, places, way_out, may_be_levels=options.categories is not None))
    if not any(column.kind in USED for column in columns) and options.refuses:
        raise TableError(
            f"{what} has no column of numbers: {joined([f'{c.name} ({WHY_LEFT_OUT[c.kind]})' for c in columns])}."
        )


def assembled(X: FloatArray, columns: Sequence[TableColumn], choice: ChosenColumns) -> Content:
    """The content of a file whose used columns are those of X, in order."""
    used = [column for column in columns if column.kind in USED]
    names = [column.name for column in used]
    return Content(
        X=X,
        choice=choice,
        columns=tuple(names),
        rounded=rounded_columns(X, names, [column.is_integer for column in used]),
        levels={column.name: column.levels for column in used if column.kind == "category"},
        left_out={column.name: WHY_LEFT_OUT[column.kind] for column in columns if column.kind in LEFT_OUT},
        texts={column.name: column.levels for column in columns if column.kind == "text"},
        notes=tuple(column.note for column in columns if column.note),
        integers=frozenset(column.name for column in used if column.is_integer),
    )


def kind_and_place(source: Any) -> str:
    """What kind of value a column holds that is not numbers, with the first of them and its row."""
    kind = kind_of_type(source.type)
    words = {"dates": "dates", "nested": "nested values"}.get(kind, "text")
    if kind == "numbers":
        return words
    texts = ("" if value is None else value_text(value) for value in source.to_pylist())
    odd = (
        (row, text) for row, text in enumerate(texts, start=1) if not (is_missing(text) or is_number_somewhere(text))
    )
    row, text = next(odd, (1, ""))
    return f"{words}, row {row}: {shortened_value(text)!r}" if text else words


# --- NPY and NPZ ---


def read_arrays(path: Path, choose: Choose, options: Reading) -> Content:
    """The table of an NPY or NPZ file; its content decides which it is, not its name."""
    array = options.array
    with path.open("rb") as file:
        with without_pickle(shown(path)):
            content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            refuse_array(array, path)
            return numbers_of(content, None, choose, shown(path), options)
        name = array or table_name(content, path)
        if name not in content.files:
            raise TableArgumentError(f"{shown(path)} has no array {name!r}; {suggestion(name, content.files)}")
        what = f"Array {name!r} of {shown(path)}"
        with without_pickle(what):
            table = content[name]
        with without_pickle(f"Array 'columns' of {shown(path)}"):
            names = content["columns"] if "columns" in content.files else None
        return numbers_of(table, names, choose, what, options)


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


def numbers_of(
    table: np.ndarray[Any, np.dtype[Any]], names: Any, choose: Choose, what: str, options: Reading
) -> Content:
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
    found = [TableColumn(name=name, kind="numbers", is_integer=table.dtype.kind in INTEGERS) for name in choice.columns]
    for at, name in enumerate(choice.columns):
        if name in (options.categories or ()):
            X = X.copy() if X is table else X
            X[:, at], levels = number_levels(X[:, at], options.notation)
            found[at] = TableColumn(name=name, kind="category", levels=levels)
    return assembled(X, found, choice)


def number_levels(values: FloatArray, notation: Notation) -> tuple[FloatArray, tuple[str, ...]]:
    """Positions in the levels of a column of numbers, and the levels."""
    is_there = ~np.isnan(values) & ~np.isin(values, notation.na_numbers)
    kept, codes = np.unique(values[is_there], return_inverse=True)
    found = np.full(len(values), np.nan)
    found[is_there] = codes
    return found, tuple(level_text(value) for value in kept.tolist())


# --- values ---


def rounded_columns(X: FloatArray, columns: Sequence[str], are_integers: Sequence[bool]) -> tuple[str, ...]:
    """Columns that held integers too large for a float to tell from the next one."""
    asked = [at for at, is_one in enumerate(are_integers) if is_one and len(X)]
    return tuple(columns[at] for at in asked if np.nanmax(np.abs(X[:, at]), initial=0) >= LARGEST_EXACT)


def check_values(table: Table, path: Path, *, may_miss: bool) -> None:
    """Refuse what is missing, unless it may be, infinite, or too large to be squared."""
    X, columns = table.X, table.columns
    if not columns:
        return
    is_bad = np.isinf(X) if may_miss else ~np.isfinite(X)
    if is_bad.any():
        n_missing, n_infinite = np.isnan(X).sum(axis=0) * (not may_miss), np.isinf(X).sum(axis=0)
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
    largest = np.fmax(-np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0))
    at = int(np.nan_to_num(largest).argmax())
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


def numbered(n: int) -> list[str]:
    return [f"x{at}" for at in range(n)]


def way_around(bad: Collection[str], columns: Collection[str]) -> str:
    """How to read the file without the columns that cannot be used."""
    if len(bad) == len(columns):
        return "choose other columns"
    if len(bad) > MOST_NAMED:
        return "name the columns to keep with --columns"
    return f"leave {'it' if len(bad) == 1 else 'them'} out with {drop_option(bad)}"


def drop_option(names: Collection[str]) -> str:
    """A command-line option that drops the columns."""
    return option("--drop", names)


def first_sentence(error: Exception) -> str:
    return " ".join(re.split(r"[.\n]\s", str(error))[0].split()).rstrip(".")
