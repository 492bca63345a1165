"""A labeled table in a file, and its rows dealt out to files of the same kind; values stay as they were written."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from koncord._words import counted, joined, listed
from koncord.data.columns import is_missing, is_number
from koncord.data.files import as_table_error, choose_columns, csv_layout, read_table, shown
from koncord.errors import TableArgumentError, TableError
from koncord.types import IntArray

KINDS = (".csv", ".tsv", ".parquet", ".pq")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabeledTable:
    """The columns of a file and, apart from them, the class of every row."""

    table: Any  # Arrow table without the label
    labels: Any  # Arrow table of the label alone
    classes: tuple[str, ...]  # names of the classes, sorted: by value if they are numbers
    y: IntArray  # (n_rows,), position of the class in `classes`
    suffix: str  # of the file
    delimiter: str  # of a CSV file

    def write(self, rows: IntArray, site: Path, labels: Path) -> None:
        """Write these rows to the file `site` and their labels to the file `labels`, without the suffix of both."""
        for part, path in ((self.table, site), (self.labels, labels)):
            write_rows(part.take(rows), path.with_name(path.name + self.suffix), self.delimiter)


def read_labeled(path: Path, label: str, drop: Sequence[str] = ()) -> LabeledTable:
    """Read a CSV, TSV or Parquet file whose column `label` says the class of each row and whose others are numbers.

    `drop` names columns to leave out. The sentences of what is wrong are those of `read_table`.
    """
    if path.suffix.lower() not in KINDS and path.is_file():
        raise TableArgumentError(
            f"{shown(path)} has no column of labels; a labeled table ends in {joined(KINDS, 'or')}."
        )
    if label in drop:
        raise TableArgumentError(f"{label!r} is the column of labels, so it cannot be dropped.")
    read_table(path, drop=(label, *drop), categories=None)  # refuses what a site could not use
    if path.suffix.lower() in (".csv", ".tsv"):
        table, delimiter = read_text(path)
    else:
        table, delimiter = read_columns(path), ""
    kept = choose_columns(table.column_names, None, (label, *drop), path)
    if table.column_names.count(label) > 1:
        raise TableError(f"{shown(path)} has more than one column called {label!r}; rename the one with the labels.")
    labels = table.select([label])
    classes, y = classes_of(labels.column(0), label, path)
    return LabeledTable(
        table=table.select(kept.positions),
        labels=labels,
        classes=classes,
        y=y,
        suffix=path.suffix,
        delimiter=delimiter,
    )


def read_text(path: Path) -> tuple[Any, str]:
    """A CSV file as an Arrow table of text, and its delimiter."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    layout = csv_layout(path)
    positions = [str(at) for at in range(len(layout.names))]
    with as_table_error(path, "CSV"):
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=positions, skip_rows=layout.n_header_lines),
            parse_options=arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(positions, pa.string())),
        )
    return table.rename_columns(layout.names), layout.delimiter


def read_columns(path: Path) -> Any:
    from pyarrow import parquet

    with as_table_error(path, "Parquet"):
        return parquet.read_table(path).replace_schema_metadata(None)  # pandas would look for an index in it


def classes_of(labels: Any, label: str, path: Path) -> tuple[tuple[str, ...], IntArray]:
    """The classes in order and the class of every row; text that reads as numbers counts as numbers."""
    from pyarrow import types

    if types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    encoded = labels.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    is_absent = [value is None or value != value or is_missing(str(value)) for value in values]
    positions = encoded.indices.fill_null(len(values)).to_numpy()
    missing = np.array([*is_absent, True])[positions]
    if missing.any():
        raise TableError(
            f"Column {label!r} of {shown(path)} has {counted(int(missing.sum()), 'missing label')}, the first in row "
            f"{int(missing.argmax()) + 1}; fill them in or remove the rows."
        )
    if all(isinstance(value, str) and is_number(value) for value in values):
        values = as_numbers(values)
    known, place = np.unique(np.array(values), return_inverse=True)
    return tuple(name_of(value) for value in known.tolist()), place[positions].astype(np.int64)


def as_numbers(texts: Sequence[str]) -> list[int] | list[float]:
    """Integers where all are, however long, else floats."""
    try:
        return [int(text) for text in texts]
    except ValueError:
        return [float(text) for text in texts]


def name_of(value: Any) -> str:
    """A class as text; whole numbers without a decimal point.

    >>> name_of(3.0), name_of(2.5), name_of("frog")
    ('3', '2.5', 'frog')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def check_classes(labeled: LabeledTable, label: str, path: Path) -> None:
    """Refuse labels that no two sites can share out."""
    if len(labeled.classes) < 3:
        raise ValueError(
            f"Column {label!r} of {shown(path)} holds {counted(len(labeled.classes), 'class', 'classes')}; at least 3 "
            "are needed, as every site gets some of them and none gets all."
        )
    single = [name for name, n in zip(labeled.classes, np.bincount(labeled.y), strict=True) if n == 1]
    if single:
        raise ValueError(
            f"Column {label!r} of {shown(path)} has {counted(len(single), 'class', 'classes')} with one row, "
            f"{listed(single)}; every class needs rows for two sites."
        )


def write_rows(table: Any, path: Path, delimiter: str) -> None:
    """Write an Arrow table, of text where the file is CSV."""
    if not delimiter:
        from pyarrow import parquet

        parquet.write_table(table, path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        lines.writerow(table.column_names)
        lines.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
