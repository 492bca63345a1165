"""What a column of a person's table is: numbers in some notation, a category, dates, an identifier, or other text.

Numbers may have a decimal comma and separators between thousands. What is no measurement is recognized, not guessed:
dates and identifiers are left out and named, other text is a category if its owner names it so, and else refused.
"""

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from shlex import quote
from typing import Any, Literal

import numpy as np

from koncord._words import joined, listed
from koncord.data.arrow import values_of
from koncord.errors import TableArgumentError, TableError
from koncord.types import FloatArray, StoredArray

MISSING_TEXTS = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
DECIMALS = (".", ",")
# A number whose comma, if it has one, is decimal, or stands between thousands; "1,234" is either.
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+|(?=,\d))(,\d*)?([eE][+-]?\d+)?")
THOUSANDS_COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(,\d{3})+|(?=\.\d))(\.\d*)?([eE][+-]?\d+)?")
# Days in the notations of the world, with or without a time; a time alone.
TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?( ?(Z|UTC|[+-]\d{2}:?\d{2}))?"
DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}})"
    rf"|\d{{1,2}}[ -][A-Za-z]{{3,9}}\.?[ -]\d{{2,4}})([T ,]+{TIME})?|{TIME}"
)
IDENTIFIER_NAME = re.compile(r"(.*[_\W])?(id|ids|uuid|guid|serial|serial[_\W]?(no|nr|number)|key)", re.IGNORECASE)
# Text with at least so many values, nearly all of them different, names rows; with fewer it may be a category.
FEWEST_NAMES = 20
NAMES_SHARE = 0.9
MOST_OFFERED_LEVELS = 30  # of text that is offered as a category
MOST_NAMED = 20  # columns in an option that a sentence offers
LONGEST_VALUE_SHOWN = 40
# A column of which at least this share of the values are numbers holds measurements, whatever else it holds.
MOSTLY_NUMBERS = 0.5
# Different texts among numbers that are offered as missing values, and different numbers for each of several.
MOST_STAND_INS, FEWEST_NUMBERS = 3, 5
# A number with spaces or apostrophes between thousands: "12 345,6", "1'234.5".
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([ \u00a0\u2009\u202f'\u2019]\d{3})+([.,]\d*)?")
GROUP_SIGN = re.compile(r"[ \u00a0\u2009\u202f'\u2019]")
COMMA, SEPARATORS = "a decimal comma", "separators between thousands"

Kind = Literal["numbers", "category", "dates", "identifier", "text"]
OF_ROWS = "identifier"
WHY_LEFT_OUT = {"dates": "dates or times", OF_ROWS: "names rows and measures nothing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How the cells of a table are written, as far as its owner says so.

    Parameters
    ----------
    decimal : str, default None
        What stands before the decimals, a point or a comma; None looks at the numbers.
    na : tuple of str, default ()
        What stands for a missing value beside an empty cell, NA, N/A, NaN and null: numbers as well as text.
    """

    decimal: str | None = None
    na: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal is not None and self.decimal not in DECIMALS:
            raise TableArgumentError(f"--decimal must be '.' or ','; got {self.decimal!r}.")

    @property
    def na_numbers(self) -> FloatArray:
        """Those of `na` that are numbers."""
        found = [number_of(text) for text in self.na]
        return np.array([number for number in found if number is not None])

    def is_missing(self, text: str) -> bool:
        return is_missing(text) or text.strip() in self.na


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableColumn:
    """One column of a file: what it is and, unless it is left out, its numbers or the positions of its levels."""

    name: str
    kind: Kind
    source: Any = None  # an Arrow column of numbers, or an array; None where the reader fills it in
    levels: tuple[str, ...] = ()  # of a category or of other text, in order
    is_integer: bool = False
    note: str = ""


def is_missing(text: str) -> bool:
    return text.strip().casefold() in MISSING_TEXTS


def is_number(text: str) -> bool:
    return number_of(text) is not None


def number_of(text: str) -> float | None:
    """The number that a cell holds; None if it holds none."""
    if is_missing(text) or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


# --- columns of Arrow ---


def columns_in(
    sources: Mapping[str, Any],
    notation: Notation,
    categories: Collection[str],
    what: str,
) -> list[TableColumn]:
    """What each column of Arrow is; `TableError` where a comma could mean two things.

    Parameters
    ----------
    sources : mapping of str to Arrow column
        The columns to read, in order.
    notation : Notation
        How cells are written.
    categories : collection of str
        Columns whose values are levels, be they numbers or text.
    what : str
        The table, in a sentence.
    """
    texts = {
        name: texts_of(column, notation)
        for name, column in sources.items()
        if name not in categories and kind_of_type(column.type) == "text"
    }
    numbers = numbers_with_commas(texts, notation, what)
    check_one_notation({name: own for name, own in texts.items() if name not in numbers}, what)
    if notation.decimal is None:
        pointed = [name for name, column in sources.items() if name not in categories and is_floating(column.type)]
        check_one_sign(pointed, [name for name, (_, note) in numbers.items() if COMMA in note], what)
    return [column_of(name, source, texts, numbers, notation, name in categories) for name, source in sources.items()]


def column_of(
    name: str,
    source: Any,
    texts: Mapping[str, Sequence[str | None]],
    numbers: Mapping[str, tuple[FloatArray, str]],
    notation: Notation,
    is_category: bool,
) -> TableColumn:
    if is_category:
        codes, levels = as_levels(source, notation)
        return TableColumn(name=name, kind="category", source=codes, levels=levels)
    kind = kind_of_type(source.type)
    if kind == "numbers":
        return TableColumn(name=name, kind="numbers", source=source, is_integer=is_integer(source.type))
    if kind == "dates":
        return TableColumn(name=name, kind="dates")
    if name in numbers:
        values, note = numbers[name]
        return TableColumn(name=name, kind="numbers", source=values, note=note)
    own = texts.get(name)
    if own is None:  # nested values
        return TableColumn(name=name, kind="text")
    present = [text for text in own if text is not None]
    if not present:
        return TableColumn(name=name, kind="numbers", source=np.full(len(own), np.nan))
    if all(DATE.fullmatch(text) for text in present):
        return TableColumn(name=name, kind="dates")
    levels = tuple(sorted(set(present)))
    is_measured = sum(map(is_number_somewhere, present)) >= MOSTLY_NUMBERS * len(present)
    if len(present) >= FEWEST_NAMES and len(levels) >= NAMES_SHARE * len(present) and not is_measured:
        return TableColumn(name=name, kind="identifier")
    return TableColumn(name=name, kind="text", levels=levels)


def texts_of(column: Any, notation: Notation) -> list[str | None]:
    """The cells of a column as text, None where a value is missing."""
    cells = (None if value is None else value_text(value).strip() for value in column.to_pylist())
    return [None if cell is None or notation.is_missing(cell) else cell for cell in cells]


def as_levels(column: Any, notation: Notation) -> tuple[FloatArray, tuple[str, ...]]:
    """Positions in the sorted levels, NaN where a value is missing; and the levels."""
    cells = [None if value is None else level_text(value) for value in column.to_pylist()]
    na = {*notation.na, *(level_text(number) for number in notation.na_numbers.tolist())}
    cells = [None if cell is None or is_missing(cell) or cell in na else cell for cell in cells]
    levels = tuple(sorted({cell for cell in cells if cell is not None}, key=level_order))
    at = {level: float(position) for position, level in enumerate(levels)}
    return np.array([np.nan if cell is None else at[cell] for cell in cells]), levels


def level_text(value: Any) -> str:
    """A level as it is shown: the same whether a file writes 1, 1.0 or "1"."""
    text = value_text(value).strip()
    number = number_of(text) if not isinstance(value, bool) else None
    return f"{number:.15g}" if number is not None else text


def level_order(level: str) -> tuple[bool, float, str]:
    """Numbers first, by size, then text."""
    number = number_of(level)
    return number is None, 0.0 if number is None else number, level


# --- commas ---


def numbers_with_commas(
    texts: Mapping[str, Sequence[str | None]], notation: Notation, what: str
) -> dict[str, tuple[FloatArray, str]]:
    """The columns of text that hold numbers with a comma or separators, as floats, and a note on each.

    Without a decimal sign from the owner, all such columns of a table decide together what their commas are.
    """
    grouped = {name for name, own in texts.items() if any(cell and GROUPED.fullmatch(cell) for cell in own)}
    texts = {name: [None if cell is None else ungrouped(cell) for cell in own] for name, own in texts.items()}
    cells = {name: {cell for cell in own if cell is not None} for name, own in texts.items()}
    numeric = {
        name: own
        for name, own in cells.items()
        if own and (all(map(DECIMAL_COMMA.fullmatch, own)) or all(map(THOUSANDS_COMMA.fullmatch, own)))
    }
    decimal = notation.decimal or decimal_of(numeric, what)
    form, other = (DECIMAL_COMMA, ".") if decimal == "," else (THOUSANDS_COMMA, ",")
    found = {}
    for name, own in numeric.items():
        words = [COMMA] * (decimal == "," and any("," in cell for cell in own))
        if all(map(form.fullmatch, own)):
            sign = decimal
            words += [SEPARATORS] * (name in grouped or any(other in cell for cell in own))
        elif all(map(is_number, own)):  # a column that is written in another way than the rest of its file
            sign, words = ".", ["a decimal point"]
        else:
            continue
        values = [np.nan if cell is None else as_number(cell, sign) for cell in texts[name]]
        found[name] = (np.array(values), f"{name} is read with {' and '.join(words)}" if words else "")
    return found


def ungrouped(cell: str) -> str:
    """A number without the spaces or apostrophes between its thousands; any other text as it is."""
    return GROUP_SIGN.sub("", cell) if GROUPED.fullmatch(cell) else cell


def is_number_somewhere(cell: str) -> bool:
    """Whether a cell is a number in one of the notations."""
    plain = ungrouped(cell)
    return is_number(plain) or bool(DECIMAL_COMMA.fullmatch(plain) or THOUSANDS_COMMA.fullmatch(plain))


def check_one_notation(texts: Mapping[str, Sequence[str | None]], what: str) -> None:
    """`TableError` where a column holds numbers only, written in more than one way."""
    for name, own in texts.items():
        cells = {cell for cell in own if cell is not None}
        if cells and all(map(is_number_somewhere, cells)):
            with_comma = min(cell for cell in cells if not is_number(cell))
            others = [cell for cell in cells if "," not in cell and "." in cell] or sorted(cells - {with_comma})
            raise TableError(
                f"{what} writes the numbers of {name!r} in more than one way ({with_comma!r}, {min(others)!r}); write "
                f"them in one, or leave the column out with {option('--drop', [name])}."
            )


def check_one_sign(pointed: Sequence[str], with_comma: Sequence[str], what: str) -> None:
    """`TableError` where commas were taken for decimal in some columns while others have points: these are either."""
    if pointed and with_comma:
        raise TableError(
            f"{what} writes numbers with a comma in {listed(with_comma)} and with a point in {listed(pointed)}; say "
            "what stands before the decimals with --decimal , or --decimal . (the other one is between thousands)."
        )


def decimal_of(numeric: Mapping[str, Collection[str]], what: str) -> str:
    """The decimal sign that all columns of numbers with commas agree with; `TableError` if both do."""
    cells = [cell for own in numeric.values() for cell in own]
    with_comma = [cell for cell in cells if "," in cell]
    is_decimal, is_thousands = (all(map(form.fullmatch, cells)) for form in (DECIMAL_COMMA, THOUSANDS_COMMA))
    if not (is_decimal and is_thousands and with_comma):
        return "," if is_decimal else "."
    example = min(with_comma)
    named = [name for name, own in numeric.items() if any("," in cell for cell in own)]
    raise TableError(
        f"{what} writes numbers with a comma in {listed(named)} that could be {example.replace(',', '')} or "
        f"{example.replace(',', '.')} ({example!r}); say which with --decimal . or --decimal ,."
    )


def as_number(cell: str, decimal: str) -> float:
    if decimal == ",":
        return float(cell.replace(".", "").replace(",", "."))
    return float(cell.replace(",", ""))


# --- words on what is refused ---


def about_text(
    columns: Sequence[TableColumn], what: str, places: Mapping[str, str], way_out: str, *, may_be_levels: bool
) -> str:
    """The sentence that refuses columns of text: what each holds, and what can be done about it."""
    examples = [f"{column.name!r} ({places.get(column.name, 'text')})" for column in columns]
    stand_ins = {text for column in columns for text in odd_cells(column.levels)}
    few = [column.name for column in columns if 1 < len(column.levels) <= MOST_OFFERED_LEVELS]
    ways = []
    if 0 < len(stand_ins) <= MOST_STAND_INS and all(odd_cells(column.levels) for column in columns):
        ways.append(about_stand_ins(stand_ins))
    elif may_be_levels and 0 < len(few) <= MOST_NAMED:
        ways.append(
            f"use {'it as a category' if len(few) == 1 else 'them as categories'} with {option('--categories', few)}"
        )
    number = "1 column that is" if len(columns) == 1 else f"{len(columns):,} columns that are"
    return f"{what} has {number} not numbers: {joined(examples)}; {', or '.join([*ways, way_out])}."


def option(flag: str, names: Collection[str]) -> str:
    """A command-line option with names: those with a comma in quotes, the whole quoted for the shell."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return f"{flag} {quote(line.getvalue())}"


def odd_cells(levels: Iterable[str]) -> set[str]:
    """The few texts among levels that are numbers otherwise; nothing if there are more texts, or few numbers."""
    every = set(levels)
    odd = {level for level in every if not is_number_somewhere(level)}
    fewest = 1 if len(odd) == 1 else FEWEST_NUMBERS * len(odd)
    return odd if len(odd) <= MOST_STAND_INS and len(every) - len(odd) >= fewest else set()


def about_stand_ins(stand_ins: Collection[str]) -> str:
    """What to type where texts among numbers stand for missing values."""
    named = sorted(stand_ins)
    are = "is a missing value" if len(named) == 1 else "are missing values"
    return f"say that {listed(named)} {are} with {na_options(named)}"


def na_options(texts: Sequence[str]) -> str:
    """The options that say that texts are missing values; one that begins with a dash is no option of its own."""
    return " ".join(f"--na{'=' if len(text) > 1 and text[0] == '-' else ' '}{quote(text)}" for text in texts)


def shortened_value(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE_SHOWN else text[: LONGEST_VALUE_SHOWN - 3] + "..."


# --- types of Arrow ---


def kind_of_type(kind: Any) -> Literal["numbers", "dates", "text", "nested"]:
    from pyarrow import types

    if types.is_dictionary(kind):
        return kind_of_type(kind.value_type)
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    if any(test(kind) for test in tests):
        return "numbers"
    if any(test(kind) for test in (types.is_date, types.is_timestamp, types.is_time, types.is_duration)):
        return "dates"
    return "nested" if types.is_nested(kind) else "text"


def is_floating(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind))


def is_integer(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind.value_type if types.is_dictionary(kind) else kind))


def value_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def as_floats(column: Any) -> FloatArray:
    """A column of numbers as floats, NaN where a value is missing."""
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        return column.astype(np.float64, copy=False)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    return values_of(column)


def own_floats(column: Any) -> StoredArray:
    """A chunk of a column of numbers as floats: not copied, and float32 stays so, where it has floats and no gaps."""
    import pyarrow as pa

    if column.type in (pa.float32(), pa.float64()) and not column.null_count:
        stored: StoredArray = np.from_dlpack(column)  # type: ignore[assignment]
        return stored
    return as_floats(column)
