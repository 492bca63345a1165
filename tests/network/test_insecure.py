"""Without TLS, on this machine: the same model, and everybody says aloud what it lacks."""

import json
import os
import pty

import pytest

from koncord.network.places import INSECURE, Invitation
from network.federation import SITES, Federation, assert_same_model

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")


@pytest.fixture(scope="module")
def make_federation(tmp_path_factory):
    return lambda: Federation(tmp_path_factory.mktemp("insecure"), insecure=True)


def test_the_model_is_that_of_one_process_and_everybody_says_that_it_is_insecure(federation):
    run = federation.run("--out", "plain", "--min-sites", "3", *METHOD)
    assert run.end(120) == 0, run.text
    assert_same_model(federation.model("plain"), federation.in_process("plain-fit", *METHOD))
    for command in (federation.server, *federation.joined.values(), run):
        assert INSECURE in command.text
    invitation = Invitation.load(federation.folder / "north.invite")
    assert (invitation.is_insecure, invitation.authority, invitation.key) == (True, "", "")
    assert not list((federation.folder / "coordinator").glob("*.crt"))


def test_a_site_that_comes_back_under_a_new_number_takes_part_again(federation):
    run = federation.run("--out", "back", "--min-sites", "2", "--aggregator", "fedkmeans", "--clusters", "3", "--json")
    run.wait_for("exchange 2: ")
    assert federation.joined["south"].stop() == 0
    run.wait_for("missing: south (")
    with run.held():  # how soon a site is back depends on the machine
        federation.join("south").joined["south"].wait_joined()
    assert run.end(200) == 0, run.text
    missing = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert {each["site"] for each in missing} == {"south"}
    assert federation.model("back").holdings.sum(axis=1).tolist() == [300, 300, 300], "it was back before the end"


def test_a_run_waits_for_the_word_of_an_owner_who_is_asked(federation):
    assert federation.joined["north"].stop() == 0
    owner, terminal = pty.openpty()
    north = federation.join("north", options=("--ask",), stdin=terminal).joined["north"].wait_joined()
    os.close(terminal)
    run = federation.run("--out", "asked", "--min-sites", "3", "--by", "jane", "--columns", "x0,x1,x2", *METHOD)
    north.wait_for("take part in this run? yes or no, and Enter:")
    stated = run.text.partition("identifier ")[2].partition(":")[0]
    for words in (f"identifier {stated}\n", "asked by    jane ", "columns     x0, x1, x2\n"):
        assert words in north.text
    assert "exchange 1: " not in run.text
    os.write(owner, b"yes\n")
    assert run.end(180) == 0, run.text
    assert north.text.count("take part in this run?") == 1
    assert federation.model("asked").sites == SITES
    run = federation.run("--out", "refused", "--min-sites", "2", *METHOD, "--json")
    north.wait_until(lambda: north.text.count("take part in this run?") == 2, "asked again", 60)
    os.write(owner, b"no\n")
    assert run.end(180) == 0, run.text
    (missing,) = json.loads(run.text.splitlines()[-1])["info"]["missing"]
    assert (missing["site"], missing["reason"]) == ("north", "its owner refused: refused at the site")
    assert federation.model("refused").sites == ("south", "west")
    os.close(owner)
