"""Without TLS, on this machine: the same model, and everybody says aloud what it lacks."""

import json

import pytest

from koncord.network.places import INSECURE, Invitation
from network.federation import Federation, assert_same_model

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
