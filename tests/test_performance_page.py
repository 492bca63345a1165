"""The figures of docs/performance.md are those of the rows that are stored."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "performance"


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(ROOT / "benchmarks" / "performance.py"), run_name="benchmark")


def test_the_table_of_the_page_is_what_the_stored_rows_say(made):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = made["rows_of"](FOLDER / "rows.jsonl")
    assert made["table"](rows) in page
    assert f"to the power {made['exponent'](rows):.2f}" in page


def test_a_path_that_became_slower_is_named(made, tmp_path, monkeypatch):
    add = made["add_to_history"]
    seconds = iter([1.0, 1.1, 1.5, 1.6])  # the first two rows, then a path that is slow when measured again, too
    monkeypatch.setitem(add.__globals__, "history_paths", lambda: {"path": None})
    monkeypatch.setitem(
        add.__globals__, "measured_paths", lambda paths, repeats: dict.fromkeys(paths, next(seconds)) if paths else {}
    )
    file = tmp_path / "history.jsonl"
    assert add(file, 1) == []
    assert add(file, 1) == []
    assert add(file, 1) == ["path"]
    assert [json.loads(line)["units"]["path"] for line in file.read_text().splitlines()] == [1.0, 1.1, 1.5]
