"""Killing things in the middle of a run: it goes on, or is resumed and ends with the same model."""

import hashlib
import json
import re
import signal
import subprocess
import time
from contextlib import suppress

import numpy as np
import pytest
from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse, StartRunRequest, StartRunResponse
from flwr.proto.fab_pb2 import Fab

from koncord.network.flower import control
from koncord.network.flower.carrier import bundled
from koncord.network.places import Coordinator
from network.federation import SITES, Federation, assert_same_model
from network.pace import PACE, waits

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "fedgem", "--set", "upsilon=10", "--seed", "7")


@pytest.fixture(scope="module")
def make_federation(programs, tmp_path_factory):
    return lambda: Federation(tmp_path_factory.mktemp("federation"), measured=METHOD)


@pytest.fixture
def expected(federation):
    """The model of the same tables in one process."""
    return federation.keep("expected", lambda: federation.in_process("expected", *METHOD))


def test_a_coordinator_killed_in_several_ways_ends_with_the_model_of_an_undisturbed_run(federation, expected):
    run = federation.run("--out", "killed", "--min-sites", "3", *METHOD).wait_for("exchange 3: ")
    run.kill()
    run = federation.run("--out", "killed", "--resume", "--min-sites", "3").wait_for("exchange 5: ")
    assert run.text.count(" s)") == 5, "the exchanges before the kill are not asked again, but shown"
    federation.kill_superlink()
    assert run.end(60) == 1
    assert "The coordinator's Flower has stopped" in run.text
    assert "go on with: koncord run --out killed --resume" in run.text.lower()
    assert federation.server.end() == 1
    assert "Flower was killed (signal 9)" in federation.server.text
    federation.serve()
    run = federation.run("--out", "killed", "--resume", "--min-sites", "3").wait_for("exchange 8: ")
    assert run.stop(signal.SIGINT) == 130
    assert "stopped; go on with: koncord run --out killed --resume" in run.text
    run = federation.run("--out", "killed", "--resume", "--min-sites", "3", "--json")
    assert run.end(200) == 0, run.text
    assert_same_model(federation.model("killed"), expected)
    (federation.folder / "killed.json").write_text(run.text.splitlines()[-1])
    for site in SITES:
        labels = (federation.folder / "expected" / "labels" / f"{site}.csv").read_text()
        assert federation.labels(site, "killed.json") == labels


def test_a_site_killed_in_the_middle_is_left_out_and_takes_part_again(federation):
    run = federation.run("--out", "site-killed", "--min-sites", "2", *waits("--round-timeout", 20), *METHOD, "--json")
    run.wait_for("exchange 2: ")
    federation.joined["south"].kill()
    run.wait_for("missing: south (")
    with run.held():  # how soon a site is back depends on the machine
        federation.join("south").joined["south"].wait_joined()
    assert run.end(300) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} == {"south"}
    ours = federation.model("site-killed")
    assert ours.sites == SITES
    assert (ours.holdings.sum(axis=1) > 0).all(), "it was back before the end"
    page = (federation.folder / "site-killed" / "report.html").read_text()
    assert "Site south was missing from exchange" in page


def test_too_few_sites_stop_the_run_with_a_sentence_and_it_goes_on_when_they_are_back(federation, expected):
    run = federation.run("--out", "few", "--min-sites", "3", *waits("--round-timeout", 10), *METHOD)
    run.wait_for("exchange 2: ")
    assert federation.joined["west"].stop() == 0
    assert run.end(150) == 1
    assert "2 sites answered exchange" in run.text
    assert "the run needs at least 3 and stops here (west: " in run.text
    federation.join("west").wait_joined()
    run = federation.run("--out", "few", "--resume", "--min-sites", "3", "--json")
    assert run.end(200) == 0, run.text
    np.testing.assert_array_equal(federation.model("few").centers, expected.centers)


def test_a_site_that_is_killed_and_back_in_time_is_missing_from_no_exchange(federation, expected):
    run = federation.run("--out", "back", "--min-sites", "2", *METHOD).wait_for("exchange 3: ")
    with run.held():
        federation.joined["north"].kill()
        federation.join("north").wait_joined()
    assert run.end(300) == 0, run.text
    assert federation.model("back").info["missing"] == []
    assert_same_model(federation.model("back"), expected)


def test_a_run_that_flower_gave_up_because_it_slept_goes_on(federation, expected):
    """Flower gives up a run that it has not heard of for a minute, as of a laptop that sleeps."""
    place = Coordinator.load(federation.folder / "coordinator")
    patience = ("--round-timeout", "3000")  # the clock goes on while a process is stopped
    run = federation.run("--out", "slept", "--min-sites", "3", *patience, *METHOD).wait_for("exchange 2: ")
    n_before = len(states(place))
    with run.held():
        end = time.monotonic() + PACE.limit(120)
        while states(place)[-1] != "finished" and time.monotonic() < end:
            time.sleep(1)
    assert run.end(200) == 0, run.text
    assert len(states(place)) == n_before + 1, "another run of Flower carried it on"
    assert federation.model("slept").info["missing"] == []
    assert_same_model(federation.model("slept"), expected)


def test_what_flower_keeps_of_a_run_that_was_killed_before_it_began_is_used_by_the_next(federation, expected):
    place = Coordinator.load(federation.folder / "coordinator")
    program = bundled()
    with control.control(place, "begin a run") as calls:
        begin = StartRunRequest(fab=Fab(hash_str=hashlib.sha256(program).hexdigest(), content=program))
        begun = calls.call("/v1/control/start-run", begin, StartRunResponse).run_id
    run = federation.run("--out", "claimed", "--min-sites", "3", *METHOD)
    assert run.end(200) == 0, run.text
    assert f"Flower run {begun} carries run " in run.text
    assert states(place)[-1] == "finished"
    assert_same_model(federation.model("claimed"), expected)


def test_two_runs_at_once_end_alike(federation, expected):
    runs = [federation.run("--out", f"twin-{at}", "--min-sites", "3", *METHOD) for at in range(2)]
    assert [run.end(300) for run in runs] == [0, 0], runs[0].text + runs[1].text
    for at in range(2):
        assert_same_model(federation.model(f"twin-{at}"), expected)


def states(place):
    """Of Flower's runs, the newest last."""
    with control.control(place, "list its runs") as calls:
        runs = calls.call("/v1/control/list-runs", ListRunsRequest(), ListRunsResponse).run_dict.values()
    return [run.status.status for run in sorted(runs, key=lambda run: run.pending_at)]


@pytest.fixture
def small_disk(federation):
    """A disk of the coordinator that is soon full."""
    folder = federation.folder / "disk"
    folder.mkdir(exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs root to make a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_of_the_coordinator_stops_the_run_which_goes_on_when_there_is_room(
    federation, expected, small_disk
):
    run = federation.run("--out", "disk/run", "--min-sites", "3", *METHOD).wait_for("exchange 3: ")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert run.end(120) == 1
    assert re.search(r"No space left on device: '.*disk/run/.*'; the disk may be full", run.text), run.text
    assert "When there is room, go on with: koncord run --out disk/run --resume" in run.text
    filler.unlink()
    run = federation.run("--out", "disk/run", "--resume", "--min-sites", "3")
    assert run.end(200) == 0, run.text
    assert_same_model(federation.model("disk/run"), expected)


def test_a_site_that_joins_late_takes_part_from_then_on(federation):
    assert federation.joined["west"].stop() == 0
    options = ("--min-sites", "2", *waits("--wait", 5), *waits("--round-timeout", 20))
    run = federation.run("--out", "late", *options, *METHOD, "--json")
    run.wait_for("away: west").wait_for("exchange 2: ")
    with run.held():  # how soon it is there depends on the machine
        federation.join("west").joined["west"].wait_joined()
    assert run.end(300) == 0, run.text
    told = json.loads(run.text.splitlines()[-1])
    missing = told["info"]["missing"]
    assert {each["site"] for each in missing} == {"west"}
    assert missing[0]["exchange"] == 1
    assert max(each["exchange"] for each in missing) < told["info"]["exchanges"]
    assert federation.model("late").holdings[SITES.index("west")].sum() > 0


def test_stopping_the_coordinator_and_the_sites_leaves_no_process_behind(federation):
    assert federation.server.stop(signal.SIGINT) == 0
    for command in federation.joined.values():
        assert command.stop() == 0
        assert command.text.rstrip().endswith("stopped.")
