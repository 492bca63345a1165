"""The figures of docs/network.md are those of the rows that are stored."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = ROOT / "docs" / "network"
PAGE = (ROOT / "docs" / "network.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("benchmark", "rows"), [("faults", "faults.jsonl"), ("network", "exchanges.jsonl")])
def test_a_table_of_the_page_is_what_the_stored_rows_say(benchmark, rows):
    made = runpy.run_path(str(ROOT / "benchmarks" / f"{benchmark}.py"), run_name="benchmark")
    assert made["show"](made["rows_of"](ROWS / rows)) in PAGE


def test_every_fault_trial_ended_well_and_nothing_was_left():
    made = runpy.run_path(str(ROOT / "benchmarks" / "faults.py"), run_name="benchmark")
    rows = made["rows_of"](ROWS / "faults.jsonl")
    trials = [row for row in rows if "killed" in row]
    assert len(trials) >= 40
    for row in trials:
        assert row["is_over"]
        assert row["is_equal"] or row["missing"], "a model that differs names who was missing"
        assert row["without_labels"] == []
    ends = [row for row in rows if "last_run" in row]
    assert ends
    for row in ends:
        assert (row["last_run"], row["is_equal"], row["orphans"]) == (0, True, [])


def test_a_site_is_at_most_two_processes_and_300_megabytes():
    made = runpy.run_path(str(ROOT / "benchmarks" / "network.py"), run_name="benchmark")
    now = [row for row in made["rows_of"](ROWS / "exchanges.jsonl") if row.version == "now"]
    assert {row.sites for row in now} >= {2, 5}
    assert all(row.site_processes <= 2 and row.site_mb <= 300 for row in now)
