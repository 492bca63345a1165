"""Sites that lose their connection in the middle of an exchange: waited for, asked again, or named.

The exchange and the link are the real ones, as in `test_hostile`; the grid says of a node that is away what Flower
says.
"""

import time

import pytest
from test_checkpoint import same_models
from test_hostile import BAD, Grid, federate
from test_roster import SITES

from koncord.errors import TooFewSites
from koncord.network.flower import exchange as exchanging
from koncord.network.flower.carrier import CarrierLost
from koncord.network.places import Coordinator, RegisteredSite

TIMEOUT = 5.0  # of `federate`


def leaving(exchange, *, seconds, says_so=True):
    """A grid where one site is away for some seconds, from the moment it is asked in an exchange."""

    class Leaving(Grid):
        left = None
        asked = 0

        @property
        def is_away(self):
            return self.left is not None and time.monotonic() - self.left < seconds

        def connected(self):
            return {node for node, site in self.nodes.items() if site != BAD or not self.is_away}

        def push(self, messages):
            for message in messages:
                if self.nodes[message.node] == BAD and message.record["exchange"] == exchange:
                    Leaving.asked += 1
                    if self.left is None:
                        self.left = time.monotonic()
            return super().push(messages)

        def answer(self, site, message):
            if site == BAD and self.is_away:
                unavailable = {"code": exchanging.NODE_UNAVAILABLE, "reason": "Error: Node Unavailable."}
                return unavailable if says_so else None
            return super().answer(site, message)

    return Leaving


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return federate(tmp_path_factory.mktemp("undisturbed")).model


@pytest.mark.parametrize("exchange", [1, 2, 3])
def test_a_site_that_lost_its_connection_is_asked_again_when_it_is_back(tmp_path, undisturbed, exchange):
    made = federate(tmp_path, make_grid=leaving(exchange, seconds=1.0))
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)


def test_a_silent_site_is_asked_the_same_again(tmp_path, undisturbed, monkeypatch):
    """A site that was killed and is back at once was never seen away, and has lost what it was asked."""
    monkeypatch.setattr(exchanging, "ASK_AGAIN", 0.5)
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
        def push(self, messages):
            numbers = super().push(messages)
            if self.left is not None:  # while the exchange goes on
                place.write_site(RegisteredSite(name=BAD, node=1, revoked="2026-11-16"))
            return numbers

    began = time.monotonic()
    made = federate(tmp_path / "run", make_grid=Revoked, coordinator=place)
    assert {each.site: each.reason for each in made.link.absences} == {BAD: "its key was revoked"}
    assert time.monotonic() - began < TIMEOUT


@pytest.mark.parametrize("call", ["connected", "push", "pull"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_that_flower_gave_up_is_carried_on_by_another_one(tmp_path, undisturbed, call, at):
    """As after a laptop slept: nothing that was asked before is answered any more, and all of it is asked again."""

    class GivenUp(Grid):
        n_calls, n_renewed, is_lost = 0, 0, False

        def renew(self):
            self.is_lost, self.replies = False, {}
            self.n_renewed += 1

        def look(self, name):
            self.n_calls += name == call
            self.is_lost |= name == call and self.n_calls == at
            if self.is_lost:
                raise CarrierLost

        def connected(self):
            self.look("connected")
            return super().connected()

        def push(self, messages):
            self.look("push")
            return super().push(messages)

        def pull(self, numbers):
            self.look("pull")
            return super().pull(numbers)

    grids = []
    made = federate(tmp_path, make_grid=lambda *arguments: grids.append(GivenUp(*arguments)) or grids[0])
    assert [grid.n_renewed for grid in grids] == [1]
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)


def test_what_was_asked_by_way_of_a_run_that_flower_gave_up_is_asked_again_by_the_next(tmp_path, undisturbed):
    """Lost while one site is away and the others have not answered: none of them is missed."""

    class Slow(leaving(2, seconds=1.0)):
        n_lost, n_looks = 0, 0

        def renew(self):
            self.replies = {}

        def connected(self):
            if self.is_away and not self.n_lost:
                self.n_lost = 1
                raise CarrierLost
            return super().connected()

        def pull(self, numbers):
            self.n_looks += 1
            return [] if self.is_away and not self.n_lost and self.n_looks < 3 else super().pull(numbers)

    made = federate(tmp_path, make_grid=Slow)
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)


def test_a_site_that_is_gone_between_two_calls_is_asked_again(tmp_path, undisturbed):
    class Gone(Grid):
        refused = False

        def push(self, messages):
            if self.refused:
                return super().push(messages)
            self.refused = True
            return ["", *super().push(messages[1:])]

    made = federate(tmp_path, make_grid=Gone)
    assert made.model.session.missing == ()
    same_models(made.model, undisturbed)
