"""``koncord reproduce``: stopped and started at will, it makes every run once and says how each ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from koncord_reproduction.plan import EXPERIMENTS, OUTPUTS, plan
from koncord_reproduction.rows import HEADER, Row, Run, as_line, from_line, read_rows
from koncord_reproduction.store import ROWS, Store

KONCORD = [sys.executable, "-c", "import sys; from koncord.cli import main; sys.exit(main())"]
ONE_LINE = re.compile(r"koncord: [^\n]+\n")
WAVEFORM = ("--datasets", "waveform")
FEDERATED = ("federated-a", "federated-b", *WAVEFORM, "--methods", "oracle", "--seeds", "42-44")


def rows_of(folder):
    lines = (folder / ROWS).read_text().splitlines(keepends=True)
    assert lines[0] == HEADER
    return lines[1:]


def store_rows(folder, *rows):
    with Store(folder) as store:
        for each in rows:
            store.add(each)


def ended(run, status="done", reason="", **values):
    return Row(run=run, status=status, reason=reason, seconds=0.1, versions="koncord", values=values)


PARTITIONS = [Run(f"partition-{regime}", "waveform", "partition", 42) for regime in "ab"]
CLASSES = Run("classes", "waveform", "classes", 0)
POINTS = ("points-per-cluster", *WAVEFORM, "--seeds", "42")
DONE = [
    ended(CLASSES, n=5000, d=21, k=3, anisotropies=[6.0, 6.5, 7.0]),
    ended(PARTITIONS[0], sizes=[700, 700, 600, 800, 700], counts=[2, 2, 2, 2, 2]),
    ended(PARTITIONS[1], sizes=[500, 900, 350, 400, 1000], counts=[2, 2, 2, 2, 2]),
]


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("KONCORD_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("KONCORD_OFFLINE", "1")


# --- what it makes ---


def test_tables_figures_rows_and_claims_come_out_of_one_command(run, tmp_path):
    code, out, err = run("reproduce", *POINTS, "--jobs", 2, "--out", tmp_path / "new")
    assert code == 0
    assert re.search(r"^runs: 3, 0 failed, 0 timed out$", out, re.MULTILINE)
    assert re.search(r"^claims: \d+ ", out, re.MULTILINE)
    assert re.search(r"^0 of 3 runs, about .* left, now classes/waveform/classes/0, partition-a/", err, re.MULTILINE)
    assert err.endswith("3 of 3 runs\n")
    assert set(read_rows(tmp_path / "new" / ROWS)) == {*PARTITIONS, CLASSES}
    assert (tmp_path / "new" / "claims.md").read_text()


def test_json_holds_the_claims_and_is_alone_on_stdout(run, tmp_path):
    store_rows(tmp_path, *DONE)
    code, out, err = run("reproduce", *POINTS, "--out", tmp_path, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found["claims"][0]) == {"name", "paper", "ours", "verdict"}
    assert sum(found["verdicts"].values()) == len(found["claims"])
    assert (found["runs"], found["failed"], found["timed_out"], found["out"]) == (3, [], [], str(tmp_path))


def test_a_second_call_makes_nothing_and_leaves_the_rows_alone(run, tmp_path):
    store_rows(tmp_path, *DONE)
    before = (tmp_path / ROWS).read_bytes()
    code, _, err = run("reproduce", *POINTS, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert (tmp_path / ROWS).read_bytes() == before


def test_rows_made_elsewhere_are_not_made_again(run, tmp_path):
    store_rows(tmp_path / "there", *DONE)
    code, out, err = run(
        "reproduce", *POINTS, "--rows", tmp_path / "there" / ROWS, "--out", tmp_path / "here", "--json"
    )
    assert (code, err) == (0, "")
    assert rows_of(tmp_path / "here") == []
    assert json.loads(out)["runs"] == 3


def test_without_runs_the_tables_are_those_of_the_rows_there_are(run, tmp_path):
    store_rows(tmp_path, DONE[1])
    code, out, err = run("reproduce", *POINTS, "--no-runs", "--out", tmp_path, "--json")
    assert (code, err, json.loads(out)["runs"]) == (0, "", 1)
    assert len(rows_of(tmp_path)) == 1


# --- how runs end ---


def test_failed_runs_are_listed_and_the_exit_code_says_so(run, tmp_path):
    late = ended(PARTITIONS[0], "timed out", "more than 1 s")
    store_rows(tmp_path, ended(CLASSES, "failed", "ValueError: no"), late, DONE[2])
    code, out, err = run("reproduce", *POINTS, "--out", tmp_path)
    assert code == 1
    assert "runs: 3, 1 failed, 1 timed out\n" in out
    assert "  classes/waveform/classes/0 failed: ValueError: no\n" in out
    assert "  partition-a/waveform/partition/42 timed out: more than 1 s\n" in out
    assert err.endswith("koncord: 1 of 3 runs failed; make them again with --again failed.\n")


def test_a_run_that_timed_out_alone_is_no_failure_of_the_command(run, tmp_path):
    store_rows(tmp_path, ended(CLASSES, "timed out", "more than 1 s"), *DONE[1:])
    code, out, _ = run("reproduce", *POINTS, "--out", tmp_path, "--json")
    assert code == 0
    assert json.loads(out)["timed_out"] == ["classes/waveform/classes/0 timed out: more than 1 s"]


@pytest.mark.parametrize(("again", "made"), [("failed", CLASSES), ("timed-out", PARTITIONS[0])])
def test_runs_are_made_again_only_when_asked_by_how_they_ended(run, tmp_path, again, made):
    store_rows(tmp_path, ended(CLASSES, "failed", "no"), ended(PARTITIONS[0], "timed out", "late"), DONE[2])
    run("reproduce", *POINTS, "--again", again, "--out", tmp_path)
    assert [from_line(line).run for line in rows_of(tmp_path)[3:]] == [made]
    assert read_rows(tmp_path / ROWS)[made].is_done


def test_a_set_that_is_not_here_is_left_out_with_a_sentence(run, tmp_path, no_data):
    out = tmp_path / "out"
    code, _, err = run(
        "reproduce", "points-per-cluster", "--datasets", "waveform", "fmnist", "--seeds", 42, "--out", out
    )
    assert code == 0
    assert (
        len(re.findall(r"^koncord: left out: The data set 'fmnist' is not on this machine[^\n]*$", err, re.MULTILINE))
        == 1
    )
    assert {run.dataset for run in read_rows(out / ROWS)} == {"waveform"}


def test_no_set_at_all_is_an_error(run, tmp_path, no_data):
    code, out, err = run("reproduce", "pooled", "--datasets", "fmnist", "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("koncord: Nothing can be made")


# --- stopped in the middle ---


def started(folder, *more):
    return subprocess.Popen(
        [*KONCORD, "reproduce", *FEDERATED, "--out", str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for_rows(folder, n, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / ROWS).exists() and (folder / ROWS).read_bytes().count(b"\n") > n:
            return
        time.sleep(0.05)
    pytest.fail(f"no {n} rows in time: {process.communicate()}")


def wait_until_all_are_gone(group):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker outlived the command")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_command_that_is_killed_goes_on_where_it_left_off(tmp_path):
    first = started(tmp_path, "--jobs", "2")
    wait_for_rows(tmp_path, 3, first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    wait_until_all_are_gone(first.pid)
    before = rows_of(tmp_path)
    runs = plan(["federated-a", "federated-b"], datasets=["waveform"], methods=["oracle"], seeds=[42, 43, 44])
    assert 3 <= len(before) < len(runs)

    with (tmp_path / ROWS).open("a") as file:
        file.write(before[0][: len(before[0]) // 2])  # as if the kill had come in the middle of a line
    second = started(tmp_path)
    _, told = second.communicate(timeout=240)
    assert second.returncode == 0, told
    assert f"0 of {len(runs) - len(before)} runs".encode() in told
    after = rows_of(tmp_path)
    assert after[: len(before)] == before
    assert Counter(from_line(line).run for line in after) == Counter(runs)
    assert all(from_line(line).is_done for line in after)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT of a whole group")
def test_a_command_that_is_interrupted_leaves_only_rows_of_finished_runs(tmp_path):
    command = started(tmp_path)
    wait_for_rows(tmp_path, 2, command)
    os.killpg(command.pid, signal.SIGINT)  # as Ctrl-C in a terminal: the workers get it too
    _, told = command.communicate(timeout=60)
    wait_until_all_are_gone(command.pid)
    assert command.returncode == 130
    assert told.endswith(b"koncord: stopped.\n")
    assert all(row.is_done for row in read_rows(tmp_path / ROWS).values())


def test_two_at_once_do_not_collide(run, tmp_path):
    with Store(tmp_path):
        code, out, err = run("reproduce", *POINTS, "--out", tmp_path)
    assert (code, out) == (1, "")
    assert ONE_LINE.fullmatch(err)
    assert "Another koncord reproduce is at work" in err


# --- what it says before it works ---


def test_the_list_names_everything_with_its_runs_and_its_time(run, result):
    _, out, _ = run("reproduce", "--list")
    outputs, experiments, together = (block.splitlines() for block in out.split("\n\n"))
    assert [line.split()[0] for line in outputs] == list(OUTPUTS)
    assert [line.split()[0] for line in experiments[1:]] == sorted(EXPERIMENTS)
    assert all(re.search(r" \d+ runs, about [\d.]+ (s|min|h)( |$)", line) for line in (*outputs, *experiments[1:]))
    assert re.fullmatch(rf"Together {len(plan())} runs, as tables share them, about [\d.]+ h with .*", *together)
    listed = result("reproduce", "--list", "--json")
    assert {item["name"]: item["runs"] for item in listed["outputs"]} == {name: len(plan([name])) for name in OUTPUTS}
    assert {item["name"]: item["runs"] for item in listed["experiments"]} == Counter(run.experiment for run in plan())
    assert listed["runs"] == len(plan())
    halved = result("reproduce", "federated-a", *WAVEFORM, "--list", "--json", "--jobs", 2)
    assert halved["outputs"][0]["runs"] == 6 * 12


def test_experiments_alone_are_made_with_the_tuning_they_need(run, result, tmp_path):
    asked = ("--experiments", "merge-sweep", *WAVEFORM, "--methods", "asm-s", "--seeds", "42")
    listed = result("reproduce", *asked, "--list", "--json")
    assert {item["name"]: item["runs"] for item in listed["experiments"]} == {"merge-sweep": 1, "tune-pooled": 2}
    assert {item["name"] for item in listed["outputs"]} == {"merge-sweep", "mechanisms"}
    code, _, _ = run("reproduce", *asked, "--out", tmp_path)
    assert code == 0
    assert {run.key for run in read_rows(tmp_path / ROWS)} == {
        "merge-sweep/waveform/asm-s/42",
        "tune-pooled/waveform/asm-s/1000",
        "tune-pooled/waveform/asm-s/1001",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "NAME must be of pooled, .*; got 'nothing'"),
        (["--datasets", "digits"], "--datasets must be of waveform, .*; got 'digits'"),
        (["--methods", "asm"], "--methods must be of asm-s, .*; got 'asm'"),
        (["--experiments", "federated"], "--experiments must be of classes, .*, federated-a, .*; got 'federated'"),
        (["--seeds", "51-42"], "--seeds: must be seeds as in 42-51"),
        (["--seeds", "a"], "--seeds: must be seeds as in 42-51"),
        (["--jobs", "0"], "--jobs: must be an integer of at least 1"),
        (["--again", "done"], "--again: invalid choice"),
    ],
)
def test_a_wrong_call_is_one_line_and_makes_nothing(run, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("reproduce", *words)
    assert (code, out) == (2, "")
    assert ONE_LINE.fullmatch(err)
    assert re.search(says, err)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_none_are_refused(run, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    code, _, err = run("reproduce", *POINTS, "--rows", tmp_path / "other.csv", "--out", tmp_path)
    assert code == 1
    assert "does not hold rows of koncord reproduce" in err


def test_a_file_that_is_still_being_written_can_be_read(run, tmp_path):
    partial = HEADER + as_line(DONE[0]) + "partition-a,wave"
    (tmp_path / "rows.csv").write_text(partial)
    code, out, _ = run(
        "reproduce", *POINTS, "--rows", tmp_path / "rows.csv", "--no-runs", "--out", tmp_path / "b", "--json"
    )
    assert (code, json.loads(out)["runs"]) == (0, 1)
