"""Nothing is computed for a run before the owner of the site agreed to it, and no held reply leaves before its time."""

import json
from datetime import date

import numpy as np
import pytest

import koncord
from koncord.cli import main
from koncord.errors import CheckpointError, KoncordError, NotAllowed
from koncord.network import consent as consenting
from koncord.network import method as methods
from koncord.network.certificates import site_key
from koncord.network.consent import (
    APPROVED,
    MOST_WAITING,
    REFUSED,
    WAITING,
    Rules,
    Terms,
    consents,
    decide,
    read_policy,
    release,
)
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer, answer_record
from koncord.protocol import setup
from koncord.protocol.ledger import read_ledger
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy

COLUMNS = ("age", "stay", "pain")
KEY = site_key()[0].decode()
TODAY = date(2026, 11, 16)
BY = "jane@example.org"


def table():
    return np.random.default_rng(0).normal(size=(80, 3)) * [1, 10, 100]


def make(folder, name="north", **terms):
    invitation = Invitation(site="north", address="localhost:1", authority="ca", key=KEY)
    return SiteFolder.create(folder / name, invitation, table(), COLUMNS, SitePolicy(), terms=Terms(**terms))


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
    record = statement(columns=("age",)).as_record()
    assert (record["asked_by"], record["purpose"], record["columns"], record["rounds"]) == (BY, "stays", ["age"], 1)
    assert record["parameters"]["n_clusters"] == 3


@pytest.mark.parametrize("asked", [[], {"by": 3}, {"columns": "age"}, {"columns": []}, {"columns": [1]}])
def test_a_statement_that_is_none_is_an_unknown_method(asked, tmp_path):
    place = make(tmp_path, asks=True)
    text = json.dumps({**json.loads(stated()), "asked": asked})
    with pytest.raises(KoncordError, match="a statement that it cannot read"):
        ask(place, text=text)
    assert consents(place.folder) == []


def test_text_of_a_coordinator_cannot_move_the_cursor_of_an_owner():
    shown = methods.asked_in({"by": "x\x1b[2J\u202e\n" * 200, "purpose": " "})
    assert shown.by.isprintable()
    assert len(shown.by) <= 300
    assert shown.purpose == "not said"


# --- rules ---


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({}, None),
        ({"asked_by": ("*@example.org",)}, None),
        ({"asked_by": ("*@example.com",)}, "its owner has not agreed to runs of 'jane@example.org'"),
        ({"methods": ("kfed",)}, None),
        ({"methods": ("consensus",)}, "its owner has not agreed to kfed"),
        ({"max_rounds": 1, "until": TODAY}, None),
        ({"until": date(2026, 11, 15)}, "its owner's agreement ended on 2026-11-15"),
        ({"columns": ("age", "pain")}, None),
        ({"columns": ("stay", "pain")}, "its owner has not agreed to the columns 'age'"),
    ],
)
def test_rules_agree_or_say_why_not(rules, reason):
    assert Rules(**rules).why_not(statement(columns=("age",)), TODAY) == reason
    again = Rules.from_record(json.loads(json.dumps(Rules(**rules).as_record())))
    assert again == Rules(**rules)


def test_rules_about_columns_and_rounds_hold_the_run_to_what_it_states():
    assert "the run names none" in Rules(columns=("age",)).why_not(statement(), TODAY)
    told = Rules(max_rounds=2).why_not(statement(koncord.FedKMeans(3, n_rounds=3)), TODAY)
    assert told == "its owner has agreed to 2 rounds, not 3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x", "is not TOML"),
        ("asks = true", "has 'asks'; known are"),
        ("ask = 1", "'ask' of the policy"),
        ("approve = 3", "must be a table"),
        ("[study]\ncolumns = ['age']", "needs the name of the study: [study.NAME]"),
        ("[approve]\nwho = []", "'who' is not a rule"),
        ("[approve]\nmethods = 'kfed'", "must be a list of texts"),
        ("[approve]\nuntil = 'soon'", "'until' must be a day"),
        ("[approve]\nmax_rounds = 0", "at least 1; got 0"),
        ("[approve]\notherwise = 'perhaps'", '"ask" or "refuse"'),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_what_is_wrong(text, told, tmp_path):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ValueError, match=told.replace("[", r"\[")):
        read_policy(tmp_path / "policy.toml")


def test_a_policy_is_read_whole(tmp_path):
    (tmp_path / "policy.toml").write_text(
        'hold_results = true\n[approve]\nasked_by = ["*@a.org"]\nuntil = 2027-06-30\notherwise = "ask"\n'
        "[limits]\nmin_report = 30\n"
    )
    limits, terms = read_policy(tmp_path / "policy.toml")
    assert limits == {"min_report": 30}
    assert terms == Terms(rules=Rules(asked_by=("*@a.org",), until=date(2027, 6, 30), otherwise="ask"), holds=True)


# --- at a site ---


def test_until_its_owner_agrees_a_site_sends_that_it_waits_and_reads_no_row(tmp_path):
    place = make(tmp_path, asks=True)
    (place.folder / "table.npy").unlink()  # whatever reads it fails
    record = answer_record(place.folder, "run-1", 1, stated(), [pack(setup.Describe(), round_=0)])
    assert record == {"waiting": "consent"}
    assert not place.ledger.exists()
    assert not (place.folder / "runs" / "run-1").exists()
    (asked,) = consents(place.folder)
    assert (asked.state, asked.identifier) == (WAITING, methods.identifier(stated()))
    assert asked.terms == {"min_report": 20, "privacy": None, "columns": list(COLUMNS), "holds": False}
    np.save(place.folder / "table.npy", table())
    decide(place.folder, "run-1", APPROVED)
    assert described(ask(place)).count == 80


def test_agreement_holds_for_the_run_as_it_was_stated(tmp_path):
    place = make(tmp_path, asks=True)
    assert ask(place).waiting
    decide(place.folder, "run-1", APPROVED)
    for other in (stated(koncord.KFed(4)), stated(by="somebody else"), stated(columns=("age",))):
        with pytest.raises(CheckpointError, match="another method or statement"):
            ask(place, text=other)
    assert ask(place).replies
    assert ask(place, run="run-2").waiting == "consent"


def test_a_refusal_has_the_owners_reason_is_in_the_ledger_and_is_for_good(tmp_path):
    place = make(tmp_path, asks=True)
    ask(place)
    decide(place.folder, "run-1", REFUSED, "not before the committee has met")
    reply = ask(place)
    assert (reply.refused, list(reply.replies)) == ("not before the committee has met", [])
    assert "not before the committee" in read_ledger(place.ledger)[-1].refused
    with pytest.raises(KoncordError, match="was refused on"):
        decide(place.folder, "run-1", APPROVED)


def test_a_run_that_was_agreed_to_can_be_ended_by_its_owner(tmp_path):
    place = make(tmp_path)
    assert ask(place).replies
    decide(place.folder, "run-1", REFUSED, "enough")
    assert ask(place, exchange=2).refused == "enough"


def test_rules_answer_alone_and_leave_the_rest_to_the_owner_if_they_are_to(tmp_path):
    rules = Rules(asked_by=("*@example.org",), methods=("kfed",))
    place = make(tmp_path, rules=rules)
    assert ask(place).replies
    assert ask(place, run="run-2", text=stated(by="x")).refused == "its owner has not agreed to runs of 'x'"
    place = make(tmp_path, rules=rules, asks=True)
    assert ask(place, run="run-3", text=stated(by="x")).waiting == "consent"
    assert consents(place.folder)[-1].reason == "its owner has not agreed to runs of 'x'"


def test_a_run_about_some_columns_is_sent_nothing_of_the_others(tmp_path):
    place = make(tmp_path)
    told = described(ask(place, text=stated(columns=("pain", "age"))))
    assert told.columns == ("age", "pain")
    np.testing.assert_allclose(told.means, table()[:, [0, 2]].mean(axis=0), atol=0.05)  # three digits of a deviation
    with pytest.raises(NotAllowed, match="none of the columns"):
        ask(place, run="run-2", text=stated(columns=("zip",)))


def test_a_coordinator_cannot_fill_the_disk_with_runs_that_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(consenting, "MOST_WAITING", 3)
    place = make(tmp_path, asks=True)
    for at in range(3):
        assert ask(place, run=f"run-{at}").waiting
    with pytest.raises(NotAllowed, match="wait for the word of this site's owner"):
        ask(place, run="run-9")
    assert len(consents(place.folder)) == 3
    assert MOST_WAITING == 100


# --- held replies ---


def test_a_held_reply_is_readable_to_the_last_number_and_leaves_as_it_was_when_released(tmp_path):
    place = make(tmp_path, holds=True)
    free = make(tmp_path, "free")
    reply = ask(place)
    assert (reply.waiting, list(reply.replies)) == ("release", [])
    held = json.loads((place.folder / "runs" / "run-1" / "held" / "00001.json").read_text())
    expected = ask(free)
    (message,) = held["messages"]
    assert message["message"] == "setup.Moments"
    assert message["fields"]["means"] == described(expected).means.tolist()
    assert message["fields"]["columns"] == list(COLUMNS)
    assert ask(place).waiting == "release"
    release(place.folder, "run-1")
    sent = ask(place)
    assert list(sent.replies) == list(expected.replies)
    with pytest.raises(KoncordError, match="No reply of run run-1 waits"):
        release(place.folder, "run-1")


def test_each_reply_is_held_anew_until_all_are_released_and_none_leaves_after_a_refusal(tmp_path):
    place = make(tmp_path, holds=True)
    assert ask(place).waiting
    release(place.folder, "run-1")
    assert ask(place).replies
    assert ask(place, exchange=2).waiting == "release"
    release(place.folder, "run-1", every=True)
    assert ask(place, exchange=2).replies
    assert ask(place, exchange=3).replies
    other = "run-2"
    assert ask(place, run=other).waiting
    decide(place.folder, other, REFUSED, "no")
    assert ask(place, run=other).refused == "no"


# --- the commands ---


def test_the_commands_of_an_owner(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = make(tmp_path, "koncord-site-north", asks=True, holds=True).folder
    asking = [folder, "run-1", 1, stated(), [pack(setup.Describe(), round_=0)]]
    assert main(["approve"]) == 0
    assert "No run was asked" in capsys.readouterr().out
    answer(*asking)
    assert main(["approve"]) == 0
    shown = capsys.readouterr().out
    for word in (BY, "stays", "kfed", "n_clusters=3", "at most 1", "age, stay, pain", "20 rows", "none"):
        assert word in shown
    assert main(["approve", "run-9"]) == 1
    assert "waiting: run-1" in capsys.readouterr().err
    assert main(["approve", "../run-1"]) == 1
    assert main(["approve", "run-1", "--json"]) == 0
    capsys.readouterr()
    assert answer(*asking).waiting == "release"
    assert main(["approve"]) == 0
    assert "runs/run-1/held/00001.json" in capsys.readouterr().out
    assert main(["release", "run-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["released"] == 1
    assert answer(*asking).replies
    assert main(["refuse", "run-1", "--reason", "enough\x1b[2J", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "enough\\x1b[2J"
    assert main(["approve", "--state", str(tmp_path)]) == 2


def test_terms_of_a_state_folder_are_kept_unless_its_owner_says_so(tmp_path):
    make(tmp_path, asks=True, holds=True, rules=Rules(methods=("kfed",)))
    invitation = Invitation(site="north", address="localhost:1", authority="ca", key=KEY)
    for terms, told in (
        (Terms(holds=True), "no longer be asked"),
        (Terms(asks=True), "no longer wait to be released"),
        (Terms(holds=True, rules=Rules()), "the rules of its policy would be others"),
    ):
        with pytest.raises(NotAllowed, match=told):
            SiteFolder.create(
                tmp_path / "north", invitation, table(), COLUMNS, SitePolicy(), terms=terms, may_weaken=False
            )
