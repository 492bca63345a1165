"""Rows as lines of CSV."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord.errors import KoncordError
from koncord_reproduction.rows import HEADER, STATUSES, Row, Run, as_line, as_text, from_line, from_text, read_rows

NAMES = st.text(string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=12)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.builds(
    Row,
    run=st.builds(Run, NAMES, NAMES, NAMES, st.integers(0, 2000)),
    status=st.sampled_from(STATUSES),
    reason=st.text(max_size=30),
    seconds=st.integers(0, 10**7).map(lambda milliseconds: milliseconds / 1000),
    versions=st.text(string.ascii_letters + " .,\"'", max_size=20),
    values=st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
)


def row(seed=42, status="done", **values):
    return Row(run=Run("pooled", "waveform", "asm-s", seed), status=status, seconds=1.5, versions="", values=values)


@given(ROWS)
def test_a_row_comes_back_from_its_line_with_its_reason_in_one_line(given_row):
    line = as_line(given_row)
    back = from_line(line)
    assert line.find("\n") == len(line) - 1
    assert back.reason == " ".join(given_row.reason.split())
    assert (back.run, back.status, back.seconds, back.versions, back.values) == (
        given_row.run,
        given_row.status,
        given_row.seconds,
        given_row.versions,
        given_row.values,
    )


@given(st.lists(ROWS, max_size=6))
def test_a_file_holds_the_last_row_of_every_run_in_the_order_of_runs(rows):
    latest = {each.run: each for each in rows}
    back = from_text(as_text(latest.values()), "rows.csv")
    assert list(back) == sorted(latest)
    assert [back[run].values for run in back] == [latest[run].values for run in sorted(latest)]


def test_a_run_that_was_made_again_has_its_last_row():
    text = HEADER + as_line(row(status="failed")) + as_line(row(k=3))
    assert from_text(text, "rows.csv") == {row().run: row(k=3)}


def test_numbers_that_json_does_not_know_become_null():
    line = as_line(row(scores=[0.5, float("nan")], at={"k": float("inf")}))
    assert json.loads(line.split(",", 8)[8].strip().strip('"').replace('""', '"')) == {
        "scores": [0.5, None],
        "at": {"k": None},
    }


def test_a_key_names_the_run():
    assert Run("federated-a", "mnist", "asm-s", 42).key == "federated-a/mnist/asm-s/42"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "header"),
        ("a,b\n", "header"),
        (HEADER + "pooled,waveform\n", "Line 2 .* 9 cells, not 2"),
        (HEADER + as_line(row()) + as_line(row()).replace(",42,", ",many,"), "Line 3 .* invalid literal"),
        (HEADER + as_line(row()).replace("done", "lost"), "Line 2 .* 'status'"),
        (HEADER + as_line(row()).replace("{}", "{"), "Line 2"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_by_line(text, says):
    with pytest.raises(KoncordError, match=says):
        from_text(text, "rows.csv")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(KoncordError, match="not text"):
        read_rows(tmp_path / "rows.csv")
