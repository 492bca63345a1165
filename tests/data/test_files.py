"""A person's table: what is read, what is refused, and with which sentence."""

import math
import re
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pyarrow import parquet

from koncord.data.files import Table, read_table, standardize
from koncord.errors import TableArgumentError, TableError

X = np.array([[1.0, 2.0], [3.0, 4.5], [-5.0, 6.0]])


@pytest.fixture
def write(tmp_path):
    """Write a table under a name, in the way its extension says, and return its path."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, str | bytes):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        elif path.suffix == ".npy":
            np.save(path, content, allow_pickle=True)
        elif path.suffix == ".npz":
            np.savez(path, **content)
        else:
            parquet.write_table(pa.table(content), path)
        return path

    return write


def refusal(path, **options):
    """The sentence with which a table is refused; it is one line and ends like a sentence."""
    with pytest.raises(TableError) as caught:
        read_table(path, **options)
    sentence = str(caught.value)
    assert re.fullmatch(r"[^\n]+[.?]", sentence)
    return sentence.replace(f"{path.parent}/", "")


def is_wrong_call(path, **options):
    with pytest.raises(TableError) as caught:
        read_table(path, **options)
    return isinstance(caught.value, ValueError)


# --- what is read ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "a,b\n1,2\n3,4.5\n-5,6\n"),
        ("t.CSV", "a,b\r\n1,2\r\n3,4.5\r\n-5,6"),
        ("t.tsv", "a\tb\n1\t2\n3\t4.5\n-5\t6\n"),
        ("t.parquet", {"a": [1, 3, -5], "b": [2.0, 4.5, 6.0]}),
        ("t.pq", {"a": [1, 3, -5], "b": [2.0, 4.5, 6.0]}),
        ("t.npz", {"X": X, "columns": np.array(["a", "b"])}),
    ],
)
def test_every_format_gives_the_same_table(write, name, content):
    table = read_table(write(name, content))
    assert np.array_equal(table.X, X)
    assert (table.columns, table.name, table.dropped) == (("a", "b"), "t", ())
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous


@pytest.mark.parametrize("dtype", [">f8", "f4", "f2", "i1", "u8", "?", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_numeric_type_and_order_become_floats(write, dtype, order):
    given = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype, order=order)
    table = read_table(write("t.npy", given))
    assert np.array_equal(table.X, given.astype(float))
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    assert table.columns == ("x0", "x1")


def test_an_array_with_one_axis_is_one_column(write):
    table = read_table(write("t.npy", np.arange(3)))
    assert np.array_equal(table.X, [[0], [1], [2]])
    assert table.columns == ("x0",)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(arrays(float, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.floats(-1e100, 1e100)))
def test_numbers_survive_csv_and_parquet_to_the_last_bit(write, values):
    names = [f"column {at}" for at in range(values.shape[1])]
    lines = [",".join(names), *(",".join(map(repr, row)) for row in values.tolist())]
    from_csv = read_table(write("t.csv", "\n".join(lines)))
    from_parquet = read_table(write("t.parquet", dict(zip(names, values.T.copy(), strict=True))))
    for table in (from_csv, from_parquet):
        assert np.array_equal(table.X, values)
        assert table.columns == tuple(names)


def test_columns_are_read_in_the_order_asked_for_and_dropped_ones_are_named(write):
    path = write("t.csv", "a,b,c,d\n1,2,3,x\n")
    assert read_table(path, columns=["c", "a"]).X.tolist() == [[3.0, 1.0]]
    table = read_table(path, drop=["d", "b"])
    assert (table.columns, table.dropped, table.X.tolist()) == (("a", "c"), ("b", "d"), [[1.0, 3.0]])
    assert read_table(path, columns=["c", "b"], drop=["b"]).columns == ("c",)


@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
def test_columns_of_an_array_are_chosen_by_position(write, name):
    values = np.arange(6).reshape(2, 3)
    path = write(name, values if name == "t.npy" else {"X": values})
    table = read_table(path, columns=["x2", "x0"])
    assert table.X.tolist() == [[2.0, 0.0], [5.0, 3.0]]
    assert table.X.flags.c_contiguous
    assert read_table(path, drop=["x1"]).X.tolist() == [[0.0, 2.0], [3.0, 5.0]]


def test_booleans_are_zero_and_one(write):
    assert read_table(write("t.csv", "a,b\ntrue,1\nfalse,2\n")).X.tolist() == [[1, 1], [0, 2]]
    assert read_table(write("t.parquet", {"a": [True, False]})).X.tolist() == [[1], [0]]


def test_parquet_numbers_of_every_kind_become_floats(write):
    columns = {
        "int": pa.array([1, 2], pa.int8()),
        "half": pa.array(np.array([1.5, 2.5], np.float16)),
        "decimal": pa.array([1.5, 2.5]).cast(pa.decimal128(5, 2)),
        "category": pa.array([1, 2]).dictionary_encode(),
        "large": pa.array([2**63, 1], pa.uint64()),
    }
    expected = [[1, 1.5, 1.5, 1, 2.0**63], [2, 2.5, 2.5, 2, 1]]
    assert read_table(write("t.parquet", columns)).X.tolist() == expected


def test_parquet_is_read_over_several_groups_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("koncord.data.files.BATCH_VALUES", 32)
    values = np.random.default_rng(0).normal(size=(1000, 3))
    parquet.write_table(
        pa.table({name: values[:, at] for at, name in enumerate("abc")}), tmp_path / "t.parquet", row_group_size=170
    )
    assert np.array_equal(read_table(tmp_path / "t.parquet").X, values)


def test_an_index_that_pandas_wrote_is_dropped_unless_asked_for(write):
    path = write("t.parquet", {"a": [1.0], "__index_level_0__": ["first"]})
    assert (read_table(path).columns, read_table(path).dropped) == (("a",), ("__index_level_0__",))
    path = write("t.parquet", {"a": [1.0], "__index_level_0__": [7]})
    assert read_table(path, columns=["__index_level_0__"]).X.tolist() == [[7.0]]


@pytest.mark.parametrize(
    ("text", "columns", "first_row"),
    [
        ("1,2\n3,4\n", ("x0", "x1"), [1, 2]),  # numbers only are data
        ("a,b\n3,4\n", ("a", "b"), [3, 4]),
        ("id,2019\n3,4\n", ("id", "2019"), [3, 4]),  # a year among the names, but numbers below
        ("\n \na, b \n3, 4\n", ("a", "b"), [3, 4]),
        (",b\n3,4\n", ("x0", "b"), [3, 4]),  # a column without a name
        ("a;b\n3;4.5\n", ("a", "b"), [3, 4.5]),
        ("a|b\n3|4\n", ("a", "b"), [3, 4]),
        ('"a,x","b\nc"\n3,4\n', ("a,x", "b c"), [3, 4]),  # a line broken within a cell
        ("\ufeffa,b\n3,4\n", ("a", "b"), [3, 4]),  # Excel's byte order mark
        ("\ufeff3,4\n5,6\n", ("x0", "x1"), [3, 4]),
        ("a,b\r3,4\r", ("a", "b"), [3, 4]),
        ("5\n6\n", ("x0",), [5]),
    ],
)
def test_the_layout_of_a_csv_file_is_recognized(write, text, columns, first_row):
    table = read_table(write("t.csv", text))
    assert table.columns == columns
    assert table.X[0].tolist() == first_row


def test_a_first_line_with_text_where_the_second_has_text_is_a_row(write):
    table = read_table(write("iris.csv", "5.1,3.5,setosa\n4.9,3.0,setosa\n"), drop=["x2"])
    assert table.X.tolist() == [[5.1, 3.5], [4.9, 3.0]]


def test_line_breaks_inside_quotes_do_not_break_rows(write):
    rows = "".join(f'{at},"first\nsecond"\n' for at in range(200_000))  # several of pyarrow's blocks
    table = read_table(write("t.csv", "a,note\n" + rows), drop=["note"])
    assert np.array_equal(table.X[:, 0], np.arange(200_000))


def test_a_whole_column_may_change_from_integers_to_floats_late(write):
    rows = "1\n" * 1_000_000 + "1.5\n"
    assert read_table(write("t.csv", "a\n" + rows)).X[-1, 0] == 1.5


@pytest.mark.parametrize(
    ("content", "array", "expected"),
    [
        ({"X": X, "Y": X + 1}, None, X),  # X goes first
        ({"X": X, "Y": X + 1}, "Y", X + 1),
        ({"features": X, "y": np.arange(3)}, None, X),  # the only one with two axes
        ({"y": np.arange(3.0), "meta": np.array("seed 1")}, None, np.arange(3.0)[:, None]),
        ({"objects": np.array([None, 1]), "features": X}, None, X),
    ],
)
def test_the_table_of_an_npz_file_is_found(write, content, array, expected):
    assert np.array_equal(read_table(write("t.npz", content), array=array).X, expected)


def test_a_column_to_drop_may_be_missing_where_the_caller_says_so(write):
    path = write("t.csv", "a,b\n1,2\n")
    table = read_table(path, drop=["b", "c"], may_lack=True)
    assert (table.columns, table.dropped) == (("a",), ("b",))


def test_integers_that_floats_round_are_named(write):
    large, null = pa.array([2**53 + 1, 1, None]), pa.array([None, None, None], pa.int64())
    path = write(
        "t.parquet", {"large": large.fill_null(0), "small": [2**53 - 1, 1, 2], "null": null, "far": [1e300, 1, 2]}
    )
    assert read_table(path, columns=["large", "small"]).rounded == ("large",)
    assert read_table(write("t.npy", np.array([[2**60, 3]]))).rounded == ("x0",)
    assert read_table(write("t.npy", np.array([[2.0**60, 3.0]]))).rounded == ()
    assert "3 missing values in 'null'" in refusal(path)


def test_constant_columns_are_named_and_kept(write):
    table = read_table(write("t.csv", "a,b,c\n1,7,0.3\n2,7,0.30000000000000004\n"))
    assert table.constant_columns == ("b", "c")
    assert table.columns == ("a", "b", "c")


# --- numbers as people write them ---


@pytest.mark.parametrize(
    ("text", "expected", "notes"),
    [
        ("a;b\n1,5;2\n-,25;3\n", [[1.5, 2], [-0.25, 3]], ("a is read with a decimal comma",)),
        ("a;b\n0,250;2\n", [[0.25, 2]], ("a is read with a decimal comma",)),
        ("a;b\n1,234;2\n1234,5;2\n", [[1.234, 2], [1234.5, 2]], ("a is read with a decimal comma",)),
        (
            "a;b\n1,234;2\n1.234,567;2\n",
            [[1.234, 2], [1234.567, 2]],
            ("a is read with a decimal comma and separators between thousands",),
        ),
        # one column that can be read in one way only decides for the others
        (
            "a;b\n1,234;2,5\n",
            [[1.234, 2.5]],
            ("a is read with a decimal comma", "b is read with a decimal comma"),
        ),
        ('a,b\n"1,234,567",2\n', [[1234567, 2]], ("a is read with separators between thousands",)),
        ('a,b\n"1,234",2\n12.5,3\n', [[1234, 2], [12.5, 3]], ("a is read with separators between thousands",)),
        ('a,b\n"-1,5e3",2\n"NA",3\n', [[-1500, 2], [math.nan, 3]], ("a is read with a decimal comma",)),
    ],
)
def test_commas_that_can_be_read_in_one_way_are_read_and_named(write, text, expected, notes):
    table = read_table(write("t.csv", text), may_miss=True)
    assert np.array_equal(table.X, expected, equal_nan=True)
    assert table.notes == notes


@pytest.mark.parametrize(
    ("decimal", "expected"), [(",", [[7, 1.5], [1.234, 1234], [12.5, 2]]), (".", [[7, 15], [1234, 1.234], [12.5, 2]])]
)
def test_the_owner_says_what_a_comma_is(write, decimal, expected):
    text = "a;b\n7;1,5\n1,234;1.234\n12,5;2\n" if decimal == "," else 'a;b\n7;15\n"1,234";1.234\n12.5;2\n'
    assert read_table(write("t.csv", text), decimal=decimal).X.tolist() == expected


def test_a_column_with_points_in_a_file_with_decimal_commas_keeps_its_points(write):
    table = read_table(write("t.csv", "a;b\n1,5;12.5\n2,5;0.125\n"), decimal=",")
    assert table.X.tolist() == [[1.5, 12.5], [2.5, 0.125]]
    assert "b is read with a decimal point" in table.notes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    arrays(float, st.tuples(st.integers(1, 5), st.just(2)), elements=st.floats(-1e9, 1e9).map(lambda x: round(x, 4)))
)
def test_a_table_with_decimal_commas_and_points_between_thousands_is_the_table_without(write, values):
    cells = [[f"{value:,.4f}".translate(str.maketrans(",.", ".,")) for value in row] for row in values]
    table = read_table(write("t.csv", "\n".join(["a;b", *(";".join(row) for row in cells)])), decimal=",")
    assert table.X.tolist() == [[float(f"{value:.4f}") for value in row] for row in values]


@pytest.mark.parametrize(
    "text",
    [
        "# exported 2026-11-16, plant 3\n#\na,b\n1,2\n3,4\n",
        "# a,b\n1,2\n3,4\n",  # as np.savetxt writes a header
        "\n# note\na,b\n1,2\n# the pump was off, here, for a while\n3,4\n# end\n",
    ],
)
def test_lines_that_begin_with_a_hash_are_comments(write, text):
    table = read_table(write("t.csv", text))
    assert (table.columns, table.X.tolist()) == (("a", "b"), [[1, 2], [3, 4]])


def test_what_stands_for_a_missing_value_is_missing(write):
    path = write("t.csv", "a,b\n-999,2\n3,?\n5,6\n")
    found = read_table(path, na=["-999", "?"], may_miss=True).X
    assert np.array_equal(found, [[math.nan, 2], [3, math.nan], [5, 6]], equal_nan=True)
    assert "2 missing values in 'a' (1) and 'b' (1)" in refusal(path, na=["-999", "?"])


# --- columns that are no measurements ---


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-02-03", "2021-12-31"],
        ["2020-02-03 12:30:00", ""],
        ["16.11.2026 07:05", "1.2.26"],
        ["11/16/2026", "1/2/2026"],
        ["3 Feb 2020", "14-Mar-21"],
        ["12:30", "23:59"],
        ["2020-02-03T12:30:00Z", "2020-02-03T12:31:00.250+02:00"],
    ],
)
def test_dates_and_times_are_left_out_and_named(write, cells):
    table = read_table(write("t.csv", "when,b\n" + "".join(f"{cell},{at}.5\n" for at, cell in enumerate(cells))))
    assert (table.columns, dict(table.left_out)) == (("b",), {"when": "dates or times"})


def test_numbers_that_could_be_no_date_are_none(write):
    assert read_table(write("t.csv", "version,b\n1.2,1\n3.4,2\n")).columns == ("version", "b")


def test_text_that_names_rows_is_left_out_and_other_text_is_not(write):
    rows = [f"unit-{at},{'on' if at % 2 else 'off'},{at}.5\n" for at in range(30)]
    path = write("t.csv", "name,state,x\n" + "".join(rows))
    table = read_table(path, drop=["state"])
    assert (table.columns, tuple(table.left_out)) == (("x",), ("name",))
    assert "use it as a category with --categories state, or leave it out with --drop state." in refusal(path)
    assert read_table(path, refuses=False).texts == {"state": ("off", "on")}
    assert "'name' (text, row 1: 'unit-0')" in refusal(path, columns=["name", "x"])


@pytest.mark.parametrize("name", ["id", "patient_id", "Serial No", "ID", "uuid"])
def test_whole_numbers_that_name_rows_are_left_out_unless_asked_for(write, name):
    path = write("t.csv", f"{name},x\n" + "".join(f"{at * 7919 % 101},{at}.5\n" for at in range(40)))
    assert (read_table(path).columns, tuple(read_table(path).left_out)) == (("x",), (name,))
    assert read_table(path, columns=[name, "x"]).columns == (name, "x")
    repeated = write("t.csv", f"{name},x\n" + "".join(f"{at % 5},{at}.5\n" for at in range(40)))
    assert read_table(repeated).columns == (name, "x")


# --- categories ---


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz", "t.xlsx"])
def test_levels_of_a_category_are_the_same_in_every_format(write, tmp_path, name):
    sizes = [3.0, 1.0, 20.0, 1.0]
    if name == "t.csv":
        path = write(name, "size,x\n3,1\n1.0,2\n20,3\n1,4\n")
    elif name == "t.xlsx":
        path = tmp_path / name
        excel(path, [["size", "x"], *([size, at] for at, size in enumerate(sizes, start=1))])
    else:
        content = {"size": sizes, "x": [1.0, 2, 3, 4]}
        whole = {"X": np.array(list(content.values())).T, "columns": np.array(["size", "x"])}
        path = write(name, whole if name == "t.npz" else content)
    table = read_table(path, categories=["size"])
    assert table.levels == {"size": ("1", "3", "20")}
    assert table.X.tolist() == [[1, 1], [0, 2], [2, 3], [0, 4]]


def test_a_missing_level_is_missing(write):
    table = read_table(write("t.csv", "c,x\nb,1\n,2\n-9,3\na,4\n"), categories=["c"], na=["-9"], may_miss=True)
    assert table.levels == {"c": ("a", "b")}
    assert np.array_equal(table.X[:, 0], [1, math.nan, math.nan, 0], equal_nan=True)


# --- Excel ---


def excel(path, rows, sheet="Sheet", before=()):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = sheet
    for name in before:
        book.create_sheet(name)
    for row in rows:
        book[sheet].append(row)
    book.save(path)


def test_an_excel_sheet_is_a_table(tmp_path):
    rows = [
        [None, "when", "temp", "state"],
        [0, datetime(2026, 1, 1), 1.5, "on"],
        [1, datetime(2026, 1, 2), None, "off"],
    ]
    rows.append([2, datetime(2026, 1, 3), 3, "on"])
    excel(tmp_path / "t.xlsx", rows, sheet="data", before=["other"])
    table = read_table(tmp_path / "t.xlsx", categories=["state"], may_miss=True)
    assert (table.columns, set(table.left_out)) == (("temp", "state"), {"x0", "when"})
    assert np.array_equal(table.X, [[1.5, 1], [math.nan, 0], [3, 1]], equal_nan=True)
    assert "is empty" in refusal(tmp_path / "t.xlsx", array="other")
    assert "has no sheet 'dota'; did you mean 'data'?" in refusal(tmp_path / "t.xlsx", array="dota")
    (tmp_path / "bad.xlsx").write_bytes(b"no archive")
    assert "'bad.xlsx' cannot be read as Excel" in refusal(tmp_path / "bad.xlsx")


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "", "'t.csv' is empty; it needs at least one row of numbers."),
        ("t.csv", "\n  \n", "'t.csv' is empty; it needs at least one row of numbers."),
        ("t.csv", "a,b\n", "'t.csv' has columns but no rows; it needs at least one row of numbers."),
        ("t.parquet", {"a": pa.array([], pa.float64())}, "'t.parquet' has columns but no rows"),
        ("t.npy", np.empty((0, 2)), "'t.npy' has columns but no rows"),
        ("t.npy", np.empty((2, 0)), "'t.npy' has no columns"),
        ("t.csv", "name,n,city\nAnn,3,Ulm\n", "'name' (text, row 1: 'Ann') and 'city' (text, row 1: 'Ulm')"),
        ("t.csv", "name,n,city\nAnn,3,Ulm\n", "leave them out with --drop name,city."),
        ("t.csv", "a,b\n1,2\n2,3\n3,?\n", "'t.csv' has 1 column that is not numbers: 'b' (text, row 3: '?')"),
        ("t.csv", "a,b\n1,2\n2,3\n3,?\n", "say that '?' is a missing value with --na '?', or leave it out with"),
        ("t.csv", 'a,"b,c"\n1,x\n', "leave it out with --drop '\"b,c\"'."),
        ("t.csv", b"a,b\n1,caf\xe9\n", "'b' (text, row 1: 'café')"),
        ("t.csv", "a\n2020-02-03\n", "'t.csv' has no column of numbers: a (dates or times)."),
        (
            "t.csv",
            'a,b\n7,1\n"1,234",2\n-999,3\n,4\n',
            "'t.csv' writes numbers with a comma in 'a' that could be 1234 or 1.234 ('1,234'); say which with "
            "--decimal . or --decimal ,.",
        ),
        ("t.csv", "a;b\n1,5;2.5\n", "with a comma in 'a' and with a point in 'b'; say what stands before the decimals"),
        (
            "t.csv",
            'a;b\n"1,5";2\n1,234,567;3\n',
            "the numbers of 'a' in more than one way ('1,234,567', '1,5')",
        ),
        ("t.csv", 'a,b\n"1,234",2\n"Ann, Bob",3\n', "'a' (text, row 2: 'Ann, Bob'); "),
        ("t.csv", 'a,"b,c"\n1,x\n2,y\n', "as a category with --categories '\"b,c\"', or leave it out with --drop"),
        ("t.parquet", {"a": ["x"], "b": [1]}, "'a' (text, row 1: 'x'); leave it out with --drop a."),
        (
            "t.parquet",
            {"a": [date(2020, 1, 1)], "b": [datetime(2020, 1, 1)]},
            "no column of numbers: a (dates or times)",
        ),
        ("t.parquet", {"a": [[1, 2]], "b": [1]}, "'a' (nested values"),
        ("t.parquet", {"a": pa.array(["x"]).dictionary_encode(), "b": [1]}, "'a' (text"),
        ("t.csv", "a,b,c\n1,,2\nNA,inf,3\n4,5,6\n", "2 missing values in 'a' (1) and 'b' (1)"),
        ("t.csv", "a,b,c\n1,,2\nNA,inf,3\n4,5,6\n", "1 infinite value in 'b', the first in row 1 of 'b'"),
        ("t.csv", "a,b,c\n1,,2\nNA,inf,3\n4,5,6\n", "or leave them out with --drop a,b."),
        ("t.parquet", {"a": [1, None], "b": [1, 2]}, "1 missing value in 'a', the first in row 2 of 'a'"),
        ("t.parquet", {"a": [True, None], "b": [1, 2]}, "1 missing value in 'a'"),
        ("t.parquet", {"a": pa.nulls(2), "b": [1, 2]}, "2 missing values in 'a'"),
        ("t.npy", np.array([[1, 2], [3, np.nan]]), "1 missing value in 'x1', the first in row 2 of 'x1'"),
        ("t.csv", "a,b\n1,2\n\n3,4,5\n", "Row 2 of 't.csv' has 3 values where 2 were expected"),
        ("t.csv", "1,2\n3\n", "Row 2 of 't.csv' has 1 value where 2 were expected"),
        ("t.csv", 'a,b\n1,"2\n' + "3,4\n" * 50_000, "'t.csv' cannot be read as CSV: field larger than field limit"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "'t.csv' is not UTF-8 text"),
        ("t.csv", bytes(range(256)), "'t.csv' is not UTF-8 text"),
        ("t.parquet", b"a,b\n1,2\n", "'t.parquet' cannot be read as Parquet"),
        ("t.parquet", b"PAR1" + b"?" * 99 + b"PAR1", "'t.parquet' cannot be read as Parquet"),
        ("t.csv", "a,a,b\n1,2,3\n", "more than one column called 'a'; rename them, or leave them out with --drop a."),
        ("t.csv", "a,b\n-1e300,2\n", "Column 'a' of 't.csv' holds values up to 1e+300, whose squares overflow"),
        ("t.npy", np.zeros((2, 2, 2)), "'t.npy' has 3 axes where a table has two"),
        ("t.npy", np.array(1.0), "'t.npy' has 0 axes where a table has two"),
        ("t.npy", np.array([{}, 1]), "'t.npy' holds Python objects, which koncord never unpickles"),
        ("t.npy", np.array(["a"]), "'t.npy' holds str32 values"),
        ("t.npy", np.array([1j]), "'t.npy' holds complex128 values"),
        ("t.npy", b"\x93NUMPY garbage", "'t.npy' is damaged"),
        ("t.npy", b"garbage", "'t.npy' is damaged"),
        ("t.npz", b"PK\x03\x04 garbage", "'t.npz' is damaged"),
        ("t.npz", {}, "'t.npz' holds no table of numbers; it holds nothing."),
        ("t.npz", {"names": np.array(["a"])}, "'t.npz' holds no table of numbers; it holds 'names'."),
        ("t.npz", {"X": np.array([None])}, "Array 'X' of 't.npz' holds Python objects"),
    ],
)
def test_bad_content_is_refused_with_a_sentence(write, name, content, sentence):
    path = write(name, content)
    assert sentence in refusal(path)
    assert not is_wrong_call(path)


def test_a_file_that_is_cut_off_is_refused(write):
    for name, content in (("t.npy", X), ("t.npz", {"X": X}), ("t.parquet", {"a": [1.0, 2.0]})):
        path = write(name, content)
        path.write_bytes(path.read_bytes()[:-20])
        assert f"'{name}'" in refusal(path)


def test_what_is_not_there_is_refused_as_a_wrong_argument(write, tmp_path):
    people = write("people.csv", "age,height\n1,2\n")
    (tmp_path / "folder.csv").mkdir()
    two = write("two.npz", {"A": X, "B": X})
    cases = [
        (tmp_path / "gone.csv", {}, "'gone.csv' does not exist"),
        (tmp_path / "folder.csv", {}, "'folder.csv' is a folder, not a file"),
        (write("t.ods", "x"), {}, "a table ends in .csv, .tsv, .parquet, .pq, .xlsx, .npy or .npz."),
        (people, {"categories": ["aeg"]}, "has no column 'aeg' of --categories; did you mean 'age'?"),
        (people, {"decimal": ";"}, "--decimal must be '.' or ','; got ';'."),
        (people, {"columns": ["hieght"]}, "has no column 'hieght'; did you mean 'height'?"),
        (people, {"drop": ["AGE"]}, "has no column 'AGE'; did you mean 'age'?"),
        (people, {"drop": ["zip"]}, "has no column 'zip'; it has 'age' and 'height'."),
        (people, {"drop": ["age", "height"]}, "No column of 'people.csv' is left to read"),
        (people, {"columns": ["age", "age"]}, "--columns names 'age' more than once"),
        (people, {"array": "X"}, "holds one table, so it has no array 'X'"),
        (write("t.npy", X), {"array": "X"}, "holds one table, so it has no array 'X'"),
        (two, {}, "'two.npz' holds 2 tables, 'A' and 'B'; say which one with --array NAME."),
        (two, {"array": "C"}, "'two.npz' has no array 'C'; it has 'A' and 'B'."),
    ]
    for path, options, sentence in cases:
        assert sentence in refusal(path, **options)
        assert is_wrong_call(path, **options)
    assert issubclass(TableArgumentError, TableError)


def test_a_long_list_of_bad_columns_is_cut_and_names_another_way_out(write):
    names = [f"c{at}" for at in range(30)]
    sentence = refusal(write("t.csv", ",".join(names) + "\n" + "x," * 29 + "1\n"))
    assert "and 22 more; name the columns to keep with --columns." in sentence


def test_a_column_that_is_not_asked_for_may_be_anything(write):
    path = write("t.csv", "a,a,b,c\nx,,1,\n")
    assert read_table(path, columns=["b"]).X.tolist() == [[1.0]]
    assert read_table(path, drop=["a", "c"]).dropped == ("a", "c")


def test_a_file_that_may_not_be_read_is_refused(write, monkeypatch):
    path = write("t.csv", "a\n1\n")

    def locked(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", locked)
    assert refusal(path) == "'t.csv' cannot be opened: Permission denied."


def test_nothing_in_a_file_is_ever_unpickled(write):
    class Bomb:
        def __reduce__(self):
            return print, ("boom",)

    bomb = np.array([Bomb()], dtype=object)
    for name, content in (("t.npy", bomb), ("t.npz", {"X": bomb}), ("u.npz", {"columns": bomb, "X": X})):
        assert "never unpickles" in refusal(write(name, content))


def test_a_large_parquet_file_is_read_in_about_twice_its_size(tmp_path):
    n_rows, n_columns = 400_000, 16
    values = np.random.default_rng(0).normal(size=n_rows)
    parquet.write_table(pa.table({f"c{at}": values + at for at in range(n_columns)}), tmp_path / "t.parquet")
    parquet.write_table(pa.table({"c": [1.0]}), tmp_path / "small.parquet")
    program = """
import sys, tracemalloc
import pyarrow as pa
from koncord.data.files import read_table
read_table(sys.argv[2])  # loads what a first read loads: with pandas installed, pyarrow imports it
tracemalloc.start()
X = read_table(sys.argv[1]).X
print((tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory()) / X.nbytes)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "t.parquet", tmp_path / "small.parquet"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 1 < float(done.stdout) < 2.3


# --- standardize ---


tables = arrays(
    float,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.one_of(st.integers(-5, 5).map(float), st.floats(-1e150, 1e150)),
)


def slow_standardize(column):
    """Mean and population standard deviation by exact sums of scaled values."""
    largest = max(map(abs, column)) or 1.0
    scaled = [value / largest for value in column]
    mean = math.fsum(scaled) / len(scaled)
    return mean * largest, math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / len(scaled)) * largest


@settings(max_examples=200, deadline=None)
@given(tables)
@example(np.array([[-5e-324, 3e-308], [0.0, -3e-308], [0.0, 0.0]]))
def test_standardise_agrees_with_plain_sums(values):
    Z, mean, scale = standardize(values)
    for at in range(values.shape[1]):
        column = values[:, at]
        slow_mean, slow_scale = slow_standardize(column.tolist())
        largest = np.abs(column).max()
        assert mean[at] == pytest.approx(slow_mean, abs=1e-13 * largest)
        if np.ptp(column) <= max(1e-14 * largest, np.finfo(float).tiny):
            assert scale[at] == 1.0
            assert not Z[:, at].any()
        else:
            assert scale[at] == pytest.approx(slow_scale, rel=1e-9, abs=1e-13 * largest)
            assert Z[:, at] @ Z[:, at] == pytest.approx(len(Z))


def test_standardise_leaves_its_input_alone():
    given = X.copy()
    Z, _, _ = standardize(given)
    assert np.array_equal(given, X)
    assert not np.shares_memory(Z, given)
    assert Z.flags.c_contiguous


def test_a_mean_of_1e8_costs_no_digits():
    rng = np.random.default_rng(0)
    offsets = rng.integers(-(2**21), 2**21, size=(100_000, 3)) / 2**20  # exact next to 1e8, their sum is not
    near, far = standardize(offsets), standardize(offsets + 1e8)
    assert np.allclose(near[0], far[0], rtol=0, atol=1e-12)
    assert np.allclose(near[1], far[1] - 1e8, rtol=0, atol=2e-8)
    assert np.allclose(near[2], far[2], rtol=1e-12)


def test_one_row_standardizes_to_zeros():
    Z, mean, scale = standardize(np.array([[3.0, -1.0]]))
    assert (Z.tolist(), mean.tolist(), scale.tolist()) == ([[0.0, 0.0]], [3.0, -1.0], [1.0, 1.0])


def test_a_table_is_frozen():
    table = Table(X=X, columns=("a", "b"), name="t")
    with pytest.raises(AttributeError):
        table.name = "u"


def test_text_of_windows_is_read_as_such_and_that_is_said(write):
    table = read_table(write("t.csv", "größe,preis_€\n1,2\n3,4\n".encode("cp1252")))
    assert table.columns == ("größe", "preis_€")
    assert table.notes == ("it is not UTF-8 text and is read as Windows-1252",)
    table = read_table(write("u.csv", "größe,ort\n1,Köln\n3,Bonn\n".encode("cp1252")), categories=["ort"])
    assert table.levels == {"ort": ("Bonn", "Köln")}
    assert read_table(write("v.csv", b"# \x81\na,b\n1,2\n")).notes == ("it is not UTF-8 text and is read as Latin-1",)
    assert read_table(write("w.csv", "größe,b\n1,2\n".encode())).notes == ()


def test_a_byte_that_is_not_utf_8_is_noticed_wherever_it_is(write, monkeypatch):
    monkeypatch.setattr("koncord.data.files.CHECKED_BYTES", 7)
    rows = "\n".join(["a,ort", *(f"{at},x" for at in range(40)), "41,Köln"])
    for encoding in ("utf-8", "cp1252"):
        table = read_table(write("t.csv", rows.encode(encoding)), categories=["ort"])
        assert table.levels["ort"] == ("Köln", "x")


@pytest.mark.parametrize("sign", [" ", "\u00a0", "\u202f", "'", "\u2019"])
def test_spaces_and_apostrophes_between_thousands_are_read(write, sign):
    table = read_table(write("t.csv", f"a;b\n12{sign}345,5;1,25\n1{sign}000{sign}000;2,5\n999,5;3\n".encode()))
    assert table.X.tolist() == [[12345.5, 1.25], [1e6, 2.5], [999.5, 3]]
    assert "a is read with a decimal comma and separators between thousands" in table.notes


def test_a_number_with_a_leading_zero_or_uneven_groups_is_no_amount(write):
    for cells in (["0171 234", "0172 345"], ["12 34", "56 78"]):
        with pytest.raises(TableError, match="not numbers"):
            read_table(write("t.csv", "\n".join(["a,b", *(f"{cell},1" for cell in cells)])))


def test_a_column_of_numbers_with_a_single_word_in_it_is_no_identifier(write):
    rows = [f"{at}.5,{at}" for at in range(80)]
    sentence = refusal(write("t.csv", "\n".join(["a,b", "off,1", *rows])))
    assert "'a' (text, row 1: 'off'); say that 'off' is a missing value with --na off" in sentence
