"""Tables that are in memory already: arrays, and frames of pandas, polars, Arrow and whatever speaks its interface.

A frame hands over its columns by the Arrow C stream, which pandas, polars, pyarrow, DuckDB and others share, so none of
them is imported here.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from koncord._text import is_showable
from koncord._validation import LARGEST_VALUE
from koncord._words import joined
from koncord.data.columns import Notation, as_floats, columns_in, level_text
from koncord.data.files import Table, numbered

NO_NOTATION = Notation()


def table_in_memory(
    table: Any,
    *,
    what: str,
    name: str = "",
    columns: Sequence[str] | None = None,
    categories: Collection[str] = (),
) -> Table:
    """A table of floats, NaN where a value is missing, with the names its columns have.

    Parameters
    ----------
    table : array or frame
        Numbers (n_samples, n_features), and text in the columns that are categories.
    what : str
        The table, as a sentence begins with it.
    name : str, default ""
        Name of the table.
    columns : sequence of str, default None
        The columns to take, by name; those that an array without names has, in order. None takes all.
    categories : collection of str, default ()
        Columns whose values are levels.
    """
    names = names_in(table)
    if names is not None and columns is not None:
        missing = [column for column in columns if column not in names]
        if missing:
            raise ValueError(f"{what} lacks the columns {', '.join(missing)}.")
    read = of_frame if is_frame(table) else of_array
    X, columns, levels = read(table, what, columns, categories)
    check_names(columns, categories, what)
    is_bad = np.abs(X) > LARGEST_VALUE
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        raise ValueError(
            f"{what} holds {int(is_bad.sum())} values that are infinite or beyond {LARGEST_VALUE:g}, the first in row "
            f"{row}, column {columns[column]!r}."
        )
    return Table(X=X, columns=columns, name=name, levels=levels)


def names_in(table: Any) -> tuple[str, ...] | None:
    """The column names of a table that has them: of pandas, polars or Arrow, whose `columns` are the data."""
    own = getattr(table, "column_names", None)
    own = getattr(table, "columns", None) if own is None else own
    return None if own is None else tuple(str(name) for name in own)


def is_frame(table: Any) -> bool:
    return hasattr(table, "__arrow_c_stream__") and names_in(table) is not None


FoundTable = tuple["np.ndarray[Any, np.dtype[np.float64]]", tuple[str, ...], dict[str, tuple[str, ...]]]


def of_array(table: Any, what: str, wanted: Sequence[str] | None, categories: Collection[str]) -> FoundTable:
    try:
        X = np.array(table, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must hold numbers only: {error}.") from error
    names = names_in(table)
    if wanted is not None and names is None and (X.ndim != 2 or X.shape[1] != len(wanted)):
        raise ValueError(
            f"{what} must be a table with {len(wanted)} columns "
            f"({', '.join(wanted[:4])}{', ...' if len(wanted) > 4 else ''}); got shape {X.shape}."
        )
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{what} must have at least one row and one column; got shape {X.shape}.")
    columns = names or tuple(wanted or numbered(X.shape[1]))
    if names is not None and wanted is not None:
        X, columns = X[:, [names.index(name) for name in wanted]], tuple(wanted)
    levels = {}
    for at, column in enumerate(columns):
        if column in categories:
            is_there = ~np.isnan(X[:, at])
            kept, codes = np.unique(X[is_there, at], return_inverse=True)
            X[is_there, at] = codes
            levels[column] = tuple(level_text(value) for value in kept.tolist())
    return X, columns, levels


def of_frame(table: Any, what: str, wanted: Sequence[str] | None, categories: Collection[str]) -> FoundTable:
    import pyarrow as pa

    try:
        own = pa.table(without_index(table))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"{what} must hold numbers only, or columns of text: {error}.") from error
    if 0 in own.shape:
        raise ValueError(f"{what} must have at least one row and one column; got shape {own.shape}.")
    names = tuple(own.column_names)
    if len(set(names)) < len(names):
        raise ValueError(f"{what} has two columns of one name.")
    columns = names if wanted is None else tuple(wanted)
    found = columns_in({name: own.column(name) for name in columns}, NO_NOTATION, categories, what)
    refused = [f"{column.name!r}" for column in found if column.kind not in ("numbers", "category")]
    if refused:
        raise ValueError(
            f"{what} must hold numbers only, or text in columns that 'categories' names; {joined(refused)} "
            f"{'is' if len(refused) == 1 else 'are'} not numbers."
        )
    X = np.column_stack([as_floats(column.source) for column in found])
    return X, columns, {column.name: column.levels for column in found if column.kind == "category"}


def without_index(table: Any) -> Any:
    """A frame of pandas without its index, which is no column; any other table as it is."""
    reset = getattr(table, "reset_index", None)
    if reset is None:
        return table
    plain = reset(drop=True)
    plain.columns = [str(name) for name in plain.columns]
    return plain


def check_names(columns: tuple[str, ...], categories: Collection[str], what: str) -> None:
    if len(set(columns)) < len(columns):
        raise ValueError(f"{what} has two columns of one name.")
    hidden = [name for name in columns if not is_showable(name)]
    if hidden:
        raise ValueError(f"{what} has a column whose name cannot be shown: {hidden[0]!r}.")
    unknown = [name for name in categories if name not in columns]
    if unknown:
        raise ValueError(f"'categories' names {joined(unknown)}; {what[:1].lower()}{what[1:]} has {joined(columns)}.")
