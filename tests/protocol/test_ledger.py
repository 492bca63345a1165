"""The ledger has one line for each message that left, written before it did; and no message holds a row."""

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest
from sklearn.base import clone

from every_aggregator import every_aggregator
from koncord import ASM, FedGEM, FedKMeans, KFed, KnownCounts
from koncord.cli import main
from koncord.errors import NO_ANSWER, KoncordError
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger, ledger_file, read_ledger
from koncord.protocol.wire import pack
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

K, COLUMNS = 3, ("x", "y", "z")
AGGREGATORS = every_aggregator(K, micro_rows=10)
del AGGREGATORS["afcl"]  # it sends rows


def tables():
    rng = np.random.default_rng(0)
    centers = 9.0 * np.eye(3)
    held = {"north": (0, 1), "south": (1, 2), "west": (0, 2)}
    return {
        name: np.concatenate([rng.normal(centers[k], 1, (25, 3)) for k in pair], dtype=float)
        for name, pair in held.items()
    }


class Recorded(InProcess):
    """A link that keeps the bytes that left, in order, by site."""

    def __init__(self, sites, **options):
        super().__init__(sites, **options)
        self.traffic = {site.name: [] for site in sites}

    def carry(self, exchange, down):
        carried = super().carry(exchange, down)
        for site, replies in carried.replies.items():
            self.traffic[site] += replies
        return carried


def recorded_run(aggregator, folder, X=None, estimator=None, standardize=True, min_report=1, **options):
    X = X or tables()
    link = Recorded(
        [
            Site(
                name,
                rows,
                COLUMNS,
                estimator=estimator or KnownCounts(2),
                aggregator=aggregator,
                ledger=Ledger(ledger_file(folder, name), run="r1", site=name),
                policy=SitePolicy(min_report=min_report, **options),
            )
            for name, rows in X.items()
        ]
    )
    model = run_federation(link, aggregator, seed=0, standardize=standardize, settings={})
    return model, link.traffic


def rows_in(traffic, model, X):
    """Rows of a table, raw or scaled, as doubles or as floats, whose bytes stand in what was sent."""
    scaled = (X - model.means) / model.scales
    patterns = [
        (at, row.astype(kind).tobytes())
        for kind in ("<f8", "<f4")
        for table in (X, scaled)
        for at, row in enumerate(table)
    ]
    whole = b"".join(traffic)
    return {at for at, pattern in patterns if pattern in whole}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_there_is_one_line_for_each_message_that_left_and_no_message_holds_a_row(name, tmp_path):
    X = tables()
    model, traffic = recorded_run(clone(AGGREGATORS[name]), tmp_path, X, estimator=ASM(min_mass=5))
    for site, messages in traffic.items():
        entries = read_ledger(ledger_file(tmp_path, site))
        assert [entry.sha256 for entry in entries] == [hashlib.sha256(each).hexdigest() for each in messages]
        assert [entry.n_bytes for entry in entries] == [len(each) for each in messages]
        assert {(entry.run, entry.site) for entry in entries} == {("r1", site)}
        assert entries[0].message == "setup.Moments"
        assert entries[0].fields == {"columns": [3], "count": [], "means": [3], "scatters": [3]}
        assert entries[-1].message == "setup.Holdings"
        assert not rows_in(traffic[site], model, X[site])


@pytest.mark.parametrize("standardize", [True, False])
def test_a_row_that_is_sent_is_found(standardize, tmp_path):
    X = {"a": np.random.default_rng(1).normal(size=(4, 3)), "b": np.random.default_rng(2).normal(size=(4, 3))}
    aggregator = KFed(2, min_count=1)
    model, traffic = recorded_run(aggregator, tmp_path, X, KnownCounts(4), standardize=standardize)
    assert rows_in(traffic["a"], model, X["a"]) == {0, 1, 2, 3}
    aggregator = KFed(1)
    model, traffic = recorded_run(aggregator, tmp_path, X, KnownCounts(4), standardize=standardize, min_report=3)
    assert not rows_in(traffic["a"], model, X["a"])


def test_nothing_leaves_that_the_ledger_could_not_note(tmp_path):
    ledger = Ledger(tmp_path / "gone" / "site.ledger.jsonl", run="r", site="a")
    site = Site("a", tables()["north"], COLUMNS, estimator=KnownCounts(2), aggregator=FedGEM(), ledger=ledger)
    with pytest.raises(OSError):
        site.answer(pack(setup.Describe()))


def test_a_line_is_on_the_file_when_the_message_is_handed_over(tmp_path):
    path = tmp_path / "a.ledger.jsonl"
    ledger = Ledger(path, run="r", site="ä", clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    site = Site("a", tables()["north"], COLUMNS, estimator=KnownCounts(2), aggregator=FedGEM(), ledger=ledger)
    site.answer(pack(setup.Describe()))
    (line,) = path.read_text(encoding="utf-8").splitlines()
    entry = json.loads(line)
    assert entry["time"] == "2026-01-02T03:04:05.000+00:00"
    assert (entry["site"], entry["round_"], entry["message"]) == ("ä", 0, "setup.Moments")


def test_a_question_that_is_refused_or_fails_leaves_a_line_that_says_why(tmp_path, capsys):
    path = tmp_path / "a.ledger.jsonl"
    ledger = Ledger(path, run="r", site="a")
    site = Site("a", tables()["north"], COLUMNS, estimator=ASM(max_components=0), aggregator=FedGEM(), ledger=ledger)
    with pytest.raises(KoncordError):
        site.answer(pack(setup.Attribute(centers=np.zeros((1, 3))), round_=1))
    prepare = setup.Prepare(seed=0, columns=COLUMNS, means=np.zeros(3), scales=np.ones(3))
    with pytest.raises(ValueError):
        site.answer(pack(prepare))
    with pytest.raises(KoncordError):
        site.answer(b"\x1b[2J" * 500)
    site.answer(pack(setup.Describe()))
    lines = read_ledger(path)
    assert [line.message for line in lines] == ["refusal", "refusal", "refusal", "setup.Moments"]
    assert lines[0].refused == "site 'a' was sent Attribute before Prepare."
    assert "'max_components' of ASM must be at least 1" in lines[1].refused
    assert lines[1].n_bytes == len(NO_ANSWER)
    assert all(len(line.refused) <= 300 and line.refused.isprintable() for line in lines[:3])
    assert main(["ledger", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "was sent Attribute before Prepare" in shown
    assert "a: 1 message, 3 refusals, " in shown
    assert main(["ledger", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["totals"]["a"]["messages"], record["totals"]["a"]["refusals"]) == (1, 3)
    assert record["messages"][0]["refused"] == lines[0].refused


def test_a_line_cut_short_by_a_crash_is_passed_over_and_the_next_one_stands_alone(tmp_path):
    path = tmp_path / "a.ledger.jsonl"
    message = setup.Prepared(local_k=2)
    Ledger(path, run="r", site="a").write(message, 0, pack(message))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_ledger(path)) == 1
    Ledger(path, run="r", site="a").write(message, 0, pack(message))
    assert [entry.message for entry in read_ledger(path)] == ["setup.Prepared"] * 2


def test_processes_that_write_at_once_leave_whole_lines(tmp_path):
    path = ledger_file(tmp_path, "a")
    code = (
        "import sys; from pathlib import Path; from koncord.protocol import setup\n"
        "from koncord.protocol.ledger import Ledger; from koncord.protocol.wire import pack\n"
        "m = setup.Prepared(local_k=1); l = Ledger(Path(sys.argv[1]), run='r', site='a')\n"
        "[l.write(m, 0, pack(m)) for _ in range(20)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert len(read_ledger(path)) == len(path.read_text().splitlines()) == 60
    assert {each.name for each in tmp_path.iterdir()} == {"a.ledger.jsonl"}


def test_the_ledger_of_one_site_or_of_all_is_shown(tmp_path, capsys):
    recorded_run(FedKMeans(K, n_rounds=2), tmp_path)
    assert main(["ledger", str(tmp_path / "north.ledger.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "fedkmeans.LocalMeans" in shown
    assert "centers 3x3, counts 3" in shown
    assert "north: 5 messages" in shown
    assert "south" not in shown
    assert main(["ledger", str(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["totals"]) == {"north", "south", "west"}
    assert all(total["messages"] == 5 for total in record["totals"].values())
    assert len(record["messages"]) == 15
    assert record["messages"][0]["round"] == 0


@pytest.mark.parametrize("content", [None, '{"x": 1}\n', "{nonsense}\n"])
def test_what_is_no_ledger_is_said_so_in_one_line(content, tmp_path, capsys):
    path = tmp_path / "a.ledger.jsonl"
    if content is not None:
        path.write_text(content)
    assert main(["ledger", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["ledger", str(tmp_path / "nowhere")]) == 1
    assert "is not there" in capsys.readouterr().err


def test_fit_writes_a_ledger_for_every_site_with_a_line_for_every_departure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, X in tables().items():
        np.savetxt(f"{name}.csv", X, delimiter=",", header="x,y,z", comments="")
    files = [f"{name}.csv" for name in tables()]
    guards = ["--ledger", "led", "--min-report", "5", "--min-support", "3"]
    call = ["fit", *files, "--out", "run", "--aggregator", "fedgem", "--set", "upsilon=2", *guards]
    assert main([*call, "--json"]) == 0
    info = json.loads(capsys.readouterr().out)["info"]
    assert info["min_support"] == 3
    assert info["weak_clusters"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["options"] == {"--set": "upsilon=2", "--min-report": 5, "--min-support": 3}
    for name in tables():
        left = [each["n_bytes"] for each in record["departures"] if each["site"] == name]
        assert [entry.n_bytes for entry in read_ledger(ledger_file(tmp_path / "led", name))] == left
    assert "Fewer than 3 sites support cluster" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("wrong", [["--min-report", "0"], ["--min-support", "x"], ["--ledger", "north.csv"]])
def test_wrong_guards_are_a_wrong_call(wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savetxt("north.csv", tables()["north"], delimiter=",", header="x,y,z", comments="")
    assert main(["fit", "north.csv", "--out", "run", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err
