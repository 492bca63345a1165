"""The figures of docs/tables.md are those of the rows that are stored."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_tables_of_the_page_are_what_the_stored_rows_say():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"), run_name="benchmark")
    shown = benchmark["show"](benchmark["rows_of"](ROOT / "docs" / "tables" / "rows.jsonl"))
    assert shown in (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
