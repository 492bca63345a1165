"""Sites that lose their connection in the middle of an exchange: waited for, asked again, or named.

The relay and the link are the real ones, as in `test_hostile`; the grid says of a node that is away what Flower says.
"""

import time

import pytest
from test_checkpoint import same_models
from test_hostile import BAD, Grid, federate, task  # noqa: F401
from test_roster import SITES

from koncord.errors import TooFewSites
from koncord.network.flower import relay as relaying
from koncord.network.places import Coordinator, RegisteredSite

flwr = pytest.importorskip("flwr.app")

from flwr.common.constant import ErrorCode  # noqa: E402

TIMEOUT = 5.0  # of `federate`


def leaving(exchange, *, seconds, says_so=True):
    """A grid where one site is away for some seconds, from the moment it is asked in an exchange."""

    class Leaving(Grid):
        left = None
        asked = 0

        @property
        def is_away(self):
            return self.left is not None and time.monotonic() - self.left < seconds

        def get_node_ids(self):
            return [node for node, site in self.nodes.items() if site != BAD or not self.is_away]

        def push_messages(self, messages):
            for message in messages:
                number = message.content.config_records["koncord"]["exchange"]
                if self.nodes[message.metadata.dst_node_id] == BAD and number == exchange:
                    Leaving.asked += 1
                    if self.left is None:
                        self.left = time.monotonic()
            return super().push_messages(messages)

        def answer(self, site, message):
            if site == BAD and self.is_away:
                return flwr.Error(ErrorCode.NODE_UNAVAILABLE, "Error: Node Unavailable.") if says_so else None
            return super().answer(site, message)

    return Leaving


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        return federate(tmp_path_factory.mktemp("undisturbed")).model


@pytest.mark.parametrize("exchange", [1, 2, 3])
def test_a_site_that_lost_its_connection_is_asked_again_when_it_is_back(tmp_path, undisturbed, exchange):
    made = federate(tmp_path, make_grid=leaving(exchange, seconds=1.0))
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)


def test_a_silent_site_is_asked_the_same_again(tmp_path, undisturbed, monkeypatch):
    """A site that was killed and is back at once was never seen away, and has lost what it was asked."""
    monkeypatch.setattr(relaying, "ASK_AGAIN", 0.5)
    grid = leaving(2, seconds=0.3, says_so=False)
    made = federate(tmp_path, make_grid=grid)
    assert grid.asked == 2
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)


def test_a_site_that_does_not_come_back_is_waited_for_once_and_named(tmp_path):
    began = time.monotonic()
    made = federate(tmp_path, make_grid=leaving(2, seconds=1000.0))
    assert [(each.exchange, each.reason) for each in made.link.absences] == [
        (2, "it lost its connection"),
        (3, "not connected"),
    ]
    assert TIMEOUT < time.monotonic() - began < 1.9 * TIMEOUT, "the next exchange does not wait for it"


def test_a_site_that_the_run_cannot_do_without_is_waited_for_and_then_missed(tmp_path):
    began = time.monotonic()
    with pytest.raises(TooFewSites, match="it lost its connection"):
        federate(tmp_path, min_sites=len(SITES), make_grid=leaving(2, seconds=1000.0))
    assert time.monotonic() - began > TIMEOUT


def test_a_site_that_was_away_at_the_beginning_is_waited_for_if_too_few_answer_without_it(tmp_path, undisturbed):
    grid = leaving(1, seconds=1.0)

    class Late(grid):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.left = time.monotonic()

    made = federate(tmp_path, min_sites=len(SITES), make_grid=Late)
    same_models(made.model, undisturbed)


def test_a_revoked_site_is_not_waited_for(tmp_path):
    place = Coordinator(folder=tmp_path / "c", hosts=("localhost",), listen="*", port=1, internal_port=2)
    place.create()
    for node, site in enumerate(SITES, start=1):
        place.write_site(RegisteredSite(name=site, node=node))
    grid = leaving(2, seconds=1000.0)

    class Revoked(grid):
        def push_messages(self, messages):
            numbers = super().push_messages(messages)
            if self.left is not None:  # while the exchange goes on
                place.write_site(RegisteredSite(name=BAD, node=1, revoked="2026-11-16"))
            return numbers

    began = time.monotonic()
    made = federate(tmp_path / "run", make_grid=Revoked, coordinator=place)
    assert {each.site: each.reason for each in made.link.absences} == {BAD: "its key was revoked"}
    assert time.monotonic() - began < TIMEOUT
