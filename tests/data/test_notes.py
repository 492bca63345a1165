"""Which columns are no measurements, and which only look so."""

import numpy as np
import pytest

from koncord.data.files import Table, read_table
from koncord.data.notes import alike_in_one, notes_on, sentinels


@pytest.fixture
def read(tmp_path):
    """The table of a CSV file with this header and these rows."""

    def read(header, rows, name="t"):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows), ""]), encoding="utf-8")
        return read_table(path)

    return read


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
@pytest.mark.parametrize("first", [0, 1, 500])
def test_a_column_without_a_name_that_counts_is_an_index(read, name, first):
    table = read(f"{name},a", [(first + at, at * at % 7) for at in range(9)])
    assert table.columns == ("a",)
    assert notes_on([table]) == [f"{name or 'x0'} is left out: counts the rows, as an index does"]


def test_a_column_of_an_array_that_counts_is_noted_and_kept():
    X = np.column_stack([np.arange(9.0), np.arange(9.0) ** 2 % 7])
    (note,) = notes_on([Table(X=X, columns=("x0", "x1"), name="t")])
    assert note.startswith("x0 has no name and counts the rows")


@pytest.mark.parametrize(
    "rows",
    [
        [(5, 1), (3, 2), (4, 4)],  # not in order
        [(1.5, 1), (2.5, 2), (3.5, 4)],  # no integers
        [(1, 1), (2, 3)],  # two rows
    ],
)
def test_a_column_without_a_name_that_does_not_count_is_none(read, rows):
    assert notes_on([read(",a", rows)]) == []


def test_a_named_column_may_count(read):
    assert notes_on([read("hour,a", [(at, at * at % 7) for at in range(9)])]) == []


@pytest.mark.parametrize("value", [-999, -9999, 9999, 99999, -99, -999.25])
def test_a_value_for_what_is_missing_is_found_where_it_lies_apart(value):
    assert sentinels(np.r_[np.linspace(0, 30, 20), value, value]) == [(value, 2)]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(-999, 1000.0),  # among its like
        np.r_[np.linspace(-900, 900, 50), -999],  # no gap
        np.full(9, -999.0),  # nothing else
        np.r_[np.linspace(0, 30, 20), -500],  # an outlier that no program writes
    ],
)
def test_other_values_are_none(values):
    assert sentinels(values) == []


def test_a_note_on_one_table_of_several_names_it(read):
    tables = [read("a", [[v] for v in rows], name) for name, rows in {"n": (1, 2, -999), "s": (1, 2, 3)}.items()]
    (note,) = notes_on(tables)
    assert note.startswith("n: a holds -999 in 1 row, far from")


def test_a_column_that_is_constant_at_some_sites_only_is_not_noted(read):
    tables = [read("a,b", [(1, 7), (2, 7)], "n"), read("a,b", [(1, 7), (2, 8)], "s")]
    assert notes_on(tables) == []


def test_tables_of_one_row_say_nothing_of_constants():
    tables = [Table(X=np.array([[float(at)]]), columns=("a",), name=str(at)) for at in range(3)]
    assert notes_on(tables) == []


def test_columns_that_the_same_tables_write_alike_share_a_note():
    found = {"a is read with a decimal comma": ["x", "y"], "when is left out: dates": ["x"]}
    found |= {"b is read with a decimal comma": ["x", "y"], "c is read with a decimal comma": ["y"]}
    assert alike_in_one(found) == [
        ("a and b are read with a decimal comma", ("x", "y")),
        ("when is left out: dates", ("x",)),
        ("c is read with a decimal comma", ("y",)),
    ]
