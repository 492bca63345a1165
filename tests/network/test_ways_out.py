"""What an administrator reads when something is wrong says what to do next, and nothing is left half made."""

import socket
import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from koncord.cli import build_parser
from koncord.cli.run import begun_anew, fill_usual, resumed, take_policy
from koncord.errors import CheckpointError, ColumnsDiffer, KoncordError, StoppedOnAnswers, TooFewSites
from koncord.network.begun import begin_run
from koncord.network.driving import noting_cause, resumable
from koncord.network.joining import ANSWERS_LOG, outcome, pause_after
from koncord.network.places import Coordinator, RegisteredSite
from koncord.network.processes import Program
from koncord.network.runstate import (
    RUNNING,
    RunState,
    driven_by_this,
    read_state,
    read_states,
    run_file,
    write_state,
)
from koncord.network.serving import Serving
from koncord.network.watch import Watched
from network.ports import free_port


def coordinator(folder):
    made = Coordinator(
        folder=folder / "c", hosts=("localhost",), listen="127.0.0.1", port=free_port(), internal_port=free_port()
    )
    made.create()
    return made


# --- the coordinator ---


@pytest.mark.parametrize(
    "words",
    [
        ["sites"],
        ["runs"],
        ["invite", "north"],
        ["revoke", "north"],
        ["renew"],
        ["run", "--out", "o"],
    ],
)
def test_a_command_in_the_wrong_folder_says_where_it_belongs(words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, said = run(*words)
    assert code == 1
    assert "run this where koncord serve was started, or name its folder by --folder" in said


@pytest.mark.parametrize("busy", ["--port", "--internal-port"])
def test_a_first_start_on_a_port_that_is_in_use_leaves_no_folder_that_holds_to_it(busy, run, tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = {name: free_port() for name in ("--port", "--internal-port")}
        ports[busy] = taken.getsockname()[1]
        options = [word for pair in ports.items() for word in pair]
        code, _, said = run("serve", "--folder", tmp_path / "c", *options)
    assert code == 1
    assert f"Port {ports[busy]} of this machine is in use" in said
    assert not (tmp_path / "c").exists()


def test_a_second_coordinator_in_one_folder_is_refused_by_its_name(run, tmp_path):
    place = coordinator(tmp_path)
    with place.serving_alone():
        code, _, said = run("serve", "--folder", place.folder)
    assert (code, "runs already in" in said) == (1, True)


def test_options_of_the_first_start_are_named_with_what_they_were(run, tmp_path):
    place = coordinator(tmp_path)
    code, _, said = run("serve", "--folder", place.folder, "--port", "7", "--host", "fed.example.org")
    assert code == 2
    assert f"was made with --host localhost, with --port {place.port}, and" in said


def test_a_program_that_was_killed_is_said_to_be_and_its_last_words_have_no_colors(tmp_path):
    words = "import os; print('\\x1b[92mINFO\\x1b[0m: all is well', flush=True); os.kill(os.getpid(), 9)"
    program = Program("Flower", [sys.executable, "-c", words], log=tmp_path / "log", environment={})
    program.process.wait(60)
    assert program.end_in_words() == f"Flower was killed (signal 9): INFO: all is well (see {tmp_path / 'log'})"


def test_a_program_that_ends_ends_the_coordinator(tmp_path):
    place = Coordinator(
        folder=tmp_path, hosts=("localhost",), listen="127.0.0.1", port=1, internal_port=2, is_insecure=True
    )
    program = Program("Flower", [sys.executable, "-c", ""], log=tmp_path / "log", environment={})
    with pytest.raises(KoncordError, match="Flower has ended"):
        Serving([program], place).watch()


# --- a run that stopped ---


def stopped(error, tmp_path):
    with pytest.raises(KoncordError) as caught, resumable(coordinator(tmp_path), SimpleNamespace(run="r-1"), "AGAIN"):
        raise error
    return str(caught.value)


def test_too_few_sites_are_waited_for_or_done_without(tmp_path):
    said = stopped(TooFewSites(1, 1, 2, {"south": "its owner refused: no"}), tmp_path)
    assert said.endswith("When they answer, go on with: AGAIN; without them: AGAIN --min-sites 1")


def test_a_quorum_of_nobody_is_not_offered(tmp_path):
    assert stopped(TooFewSites(1, 0, 2, {}), tmp_path).endswith("When they answer, go on with: AGAIN")


def test_a_run_that_would_stop_at_the_same_answers_is_not_said_to_go_on(tmp_path):
    said = stopped(StoppedOnAnswers("'n_clusters' must be at most 2; got 3."), tmp_path)
    assert said.endswith("begin anew with another --out, and with other options or other --sites.")


@pytest.mark.parametrize(
    ("n_exchanges", "error", "kind"),
    [
        (2, ValueError("no"), StoppedOnAnswers),
        (2, KoncordError("no"), StoppedOnAnswers),
        (2, ColumnsDiffer("no"), ColumnsDiffer),
        (2, CheckpointError("no"), CheckpointError),
        (3, ValueError("no"), ValueError),
    ],
)
def test_what_a_run_stops_on_behind_an_exchange_that_is_kept_are_its_answers(n_exchanges, error, kind):
    begun = SimpleNamespace(journal=SimpleNamespace(n_kept=2))
    with pytest.raises(kind, match="no"), noting_cause(begun, SimpleNamespace(n_exchanges=n_exchanges)):
        raise error


def test_a_run_of_a_site_whose_key_was_revoked_says_so(tmp_path):
    place = coordinator(tmp_path)
    place.write_site(RegisteredSite(name="north", node=1))
    place.write_site(RegisteredSite(name="south", node=2, revoked="2026-11-16"))
    with pytest.raises(ValueError, match=r"asks south, whose key was revoked: .* \(invited: north\)"):
        begin_run(place, tmp_path / "o", {}, sites=["north", "south"], min_sites=2)
    with pytest.raises(ValueError, match="names west, who was not invited; invited: north"):
        begin_run(place, tmp_path / "o", {}, sites=["west"], min_sites=1)


def given(place, out, *words):
    args = build_parser().parse_args(["run", "--folder", str(place.folder), "--out", str(out), *words])
    if args.resume:
        take_policy(args)
    fill_usual(args)
    return args


def test_a_run_is_resumed_with_the_quorum_and_the_timeouts_that_it_began_with(tmp_path):
    """The command that a stopped run prints has no others."""
    place, out = coordinator(tmp_path), tmp_path / "o"
    place.write_site(RegisteredSite(name="north", node=1))
    begun_anew(given(place, out, "--min-sites", "1", "--round-timeout", "7"), place)
    args = given(place, out, "--resume")
    assert (args.min_sites, args.round_timeout) == (1, 7)
    assert resumed(args).sites == ("north",)
    args = given(place, out, "--resume", "--min-sites", "2")
    assert (args.min_sites, args.round_timeout) == (2, 7)
    with pytest.raises(KoncordError, match="The run has 1 site; --min-sites asks for 2"):
        resumed(args)
    resumed(given(place, out, "--resume", "--round-timeout", "3"))
    assert given(place, out, "--resume").round_timeout == 3, "what was given last"


# --- the run as it goes ---


def running(run):
    return RunState(
        run=run,
        identifier="0",
        asked_by="jane",
        purpose="",
        aggregator="kfed",
        out="",
        sites=("north", "south"),
        started="2026-11-16T10:00:00+00:00",
        state=RUNNING,
        asked=("Describe",),
    )


def test_a_run_that_nobody_drives_any_more_is_stopped(tmp_path):
    place = coordinator(tmp_path)
    write_state(place.folder, driven_by_this(running("r-1")))
    write_state(place.folder, replace(running("r-2"), pid=2**22 + 1, pid_started="1"))
    states = {each.run: each for each in read_states(place.folder)}
    assert (states["r-1"].state, states["r-2"].state) == (RUNNING, "stopped")
    assert "go on with --resume" in states["r-2"].problem


def test_who_has_answered_and_who_is_awaited_are_noted_while_an_exchange_goes_on(tmp_path):
    place, state = coordinator(tmp_path), driven_by_this(running("r-1"))
    write_state(place.folder, state)
    link = Watched.__new__(Watched)
    link.place, link.state = place, state
    link.note_progress({"south"}, {"north"})
    now = read_state(run_file(place.folder, "r-1"))
    assert (now.answered, now.awaited) == (("south",), ("north",))
    link.note_progress((), {"north"})
    assert read_state(run_file(place.folder, "r-1")).answered == ("south",), "of the sites asked again none has yet"
    over = now.over("finished", clusters=3)
    assert (over.asked, over.answered, over.awaited, over.clusters) == ((), (), (), 3)


# --- a site ---


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"refused": "not now"}, "run r-1: takes no part: not now"),
        ({"error": "could not compute an answer."}, "run r-1: this site could not compute an answer. Why is in "),
        ({"replies": [b""]}, "run r-1: takes part"),
    ],
)
def test_a_site_says_what_became_of_a_run(record, said, tmp_path):
    text = outcome(tmp_path, "r-1", record)
    assert text.removesuffix(str(tmp_path / ANSWERS_LOG)) == said


def test_a_site_says_where_the_labels_are_and_nothing_of_a_name_that_is_none(tmp_path):
    (tmp_path / "runs" / "r-1").mkdir(parents=True)
    labels = tmp_path / "runs" / "r-1" / "labels.csv"
    labels.write_text("")
    assert outcome(tmp_path, "r-1", {"replies": []}) == f"run r-1: over; the cluster of every row is in {labels}"
    assert outcome(tmp_path, "\x1b[2J", {"replies": []}) == ""


def test_a_site_looks_often_after_a_message_and_more_rarely_where_a_look_takes_long():
    assert pause_after(1.0, look=0.02) == 0.2
    assert pause_after(1.0, look=0.25) == 1.0, "beside many others"
    assert pause_after(1.0, look=60.0) == pause_after(1e6) == 3.0
    assert pause_after(100.0, look=0.02) == 1.0
