"""What a run states, and what a site makes of it."""

import json

import numpy as np
import pytest

import koncord
from koncord.errors import CheckpointError, KoncordError, NotAllowed
from koncord.network import method as methods
from koncord.network.certificates import site_key
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy

COLUMNS = ("age", "stay", "pain")
KEY = site_key()[0].decode()
BY = "jane@example.org"


def table():
    return np.random.default_rng(0).normal(size=(80, 3)) * [1, 10, 100]


def make(folder, name="north"):
    invitation = Invitation(site="north", address="localhost:1", authority="ca", key=KEY)
    return SiteFolder.create(folder / name, invitation, table(), COLUMNS, SitePolicy())


def stated(aggregator=None, **asked):
    asked = methods.RunRequest(**{"by": BY, "purpose": "stays", **asked})
    return methods.statement_text(aggregator or koncord.KFed(3), {"name": "asm"}, asked)


def statement(aggregator=None, **asked):
    aggregator = aggregator or koncord.KFed(3)
    return methods.statement_of(stated(aggregator, **asked), aggregator)


def ask(place, run="run-1", exchange=1, text=None, messages=None):
    messages = messages or [pack(setup.Describe(), round_=0)]
    return answer(place.folder, run, exchange, text or stated(), messages)


def described(reply):
    return unpack(reply.replies[0], (setup.Moments,))[0]


# --- what is stated ---


def test_the_identifier_is_of_all_that_is_stated_and_nothing_else():
    aggregator = koncord.KFed(3)
    known = {stated(), stated(by="x"), stated(purpose="x"), stated(columns=("age",)), stated(koncord.KFed(4))}
    assert len({methods.identifier(text) for text in known}) == 5
    assert methods.identifier(stated()) == methods.statement_of(stated(), aggregator).identifier
    read = statement(columns=("age",))
    assert (read.asked, read.rounds) == (methods.RunRequest(by=BY, purpose="stays", columns=("age",)), 1)
    assert read.parameters["n_clusters"] == 3


@pytest.mark.parametrize("asked", [[], {"by": 3}, {"columns": "age"}, {"columns": []}, {"columns": [1]}])
def test_a_statement_that_is_none_is_an_unknown_method(asked, tmp_path):
    place = make(tmp_path)
    text = json.dumps({**json.loads(stated()), "asked": asked})
    with pytest.raises(KoncordError, match="a statement that it cannot read"):
        ask(place, text=text)
    assert not list((place.folder / "runs").iterdir())


def test_text_of_a_coordinator_cannot_move_the_cursor_of_an_owner():
    shown = methods.asked_in({"by": "x\x1b[2J\u202e\n" * 200, "purpose": " "})
    assert shown.by.isprintable()
    assert len(shown.by) <= 300
    assert shown.purpose == "not said"


# --- at a site ---


def test_a_run_goes_on_as_it_was_stated(tmp_path):
    place = make(tmp_path)
    assert ask(place).replies
    for other in (stated(koncord.KFed(4)), stated(by="somebody else"), stated(columns=("age",))):
        with pytest.raises(CheckpointError, match="began this run with another"):
            ask(place, text=other)
    assert ask(place).replies


def test_a_run_about_some_columns_is_sent_nothing_of_the_others(tmp_path):
    place = make(tmp_path)
    told = described(ask(place, text=stated(columns=("pain", "age"))))
    assert told.columns == ("age", "pain")
    np.testing.assert_allclose(told.means, table()[:, [0, 2]].mean(axis=0), atol=0.05)  # three digits of a deviation
    with pytest.raises(NotAllowed, match="none of the columns"):
        ask(place, run="run-2", text=stated(columns=("zip",)))
