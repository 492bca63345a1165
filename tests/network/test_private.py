"""A site with a privacy budget among others: killed in the middle, it goes on with what it spent and told."""

import json

import pytest

from koncord.protocol.ledger import read_ledger
from network.federation import ROWS, Federation, koncord
from network.pace import waits

pytestmark = pytest.mark.network

BUDGET = ("--epsilon", "20", "--delta", "1e-5", "--bound", "10", "--center", "2")


@pytest.fixture
def federation(programs, tmp_path):
    """Three sites, of which north has a budget."""
    made = Federation(tmp_path)
    try:
        made.serve().invite().join("south", "west").join("north", options=BUDGET)
        yield made.wait_joined()
    finally:
        made.stop()


def test_a_site_killed_in_the_middle_spends_its_budget_once_and_the_model_tells_who_had_one(federation):
    method = ("--min-sites", "3", *waits("--round-timeout", 15))
    run = federation.run("--out", "run", "--aggregator", "consensus", "--no-standardize", *method)
    run.wait_for("exchange 2: ")
    federation.joined["north"].kill()
    assert run.end(120) == 1
    assert "(north: " in run.text
    federation.join("north", options=BUDGET).wait_joined()
    assert "privacy budget of every run: epsilon 20, delta 1e-05; spent before: " in federation.joined["north"].text
    run = federation.run("--out", "run", "--resume", *method, "--json")
    assert run.end(200) == 0, run.text
    name = json.loads(run.text.splitlines()[-1])["run"]

    promise = {"epsilon": 20.0, "delta": 1e-5, "bound": 10.0, "center": 2.0}
    assert federation.model("run").info["privacy"] == {"north": promise}
    assert federation.model("run").info["missing"] == []
    assert "Everything north sent is differentially private" in (federation.folder / "run" / "report.html").read_text()
    left = read_ledger(federation.folder / "state-north" / "north.ledger.jsonl")
    names = [line.message for line in left]
    assert [names.count(f"setup.{name}") for name in ("Moments", "Prepared", "Holdings")] == [1, 1, 1]
    spent = [line.epsilon for line in left]
    assert spent == sorted(spent)  # the names of the columns cost nothing, and nothing is paid twice
    assert 0 == spent[0] < spent[names.index("setup.Moments")] < spent[-1] <= 20
    assert f"spent in run {name}" in koncord(federation.folder, "ledger", "state-north")
    labels = federation.folder / "state-north" / "runs" / name / "labels.csv"
    assert len(labels.read_text().splitlines()) == 1 + ROWS
