"""Killing things in the middle of a run: it goes on, or is resumed and ends with the same model."""

import json
import signal

import numpy as np
import pytest

from network.federation import SITES, Federation, assert_same_model
from network.pace import waits

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "fedgem", "--upsilon", "10", "--seed", "7")


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
    assert "Go on with: koncord run --out killed --resume" in run.text
    assert federation.server.end() == 1
    assert "Flower has ended" in federation.server.text
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
    with run.held():  # its relay goes on asking
        federation.joined["north"].kill()
        federation.join("north").wait_joined()
    assert run.end(300) == 0, run.text
    assert federation.model("back").info["missing"] == []
    assert_same_model(federation.model("back"), expected)


def test_stopping_the_coordinator_and_the_sites_leaves_no_process_behind(federation):
    assert federation.server.stop(signal.SIGINT) == 0
    for command in federation.joined.values():
        assert command.stop() == 0
        assert command.text.rstrip().endswith("stopped.")
