"""What a run states, what a site makes of it, and that nothing is computed before an owner who is asked says yes."""

import io
import json
import os
import pty
import sys

import numpy as np
import pytest

import koncord
from koncord.cli import build_parser
from koncord.cli.options import aggregator_of
from koncord.cli.run import check_options, estimator_arguments, fill_usual
from koncord.errors import CheckpointError, KoncordError, NotAllowed
from koncord.network import joining
from koncord.network import method as methods
from koncord.network.asking import check_terminal, typed_word
from koncord.network.certificates import site_key
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer, answer_record
from koncord.protocol import setup
from koncord.protocol.ledger import read_ledger
from koncord.protocol.received import read_record
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


def options_of(*options):
    args = build_parser().parse_args(["run", "--out", "run", *options])
    fill_usual(args)
    check_options(args)
    return args


def test_parameters_that_are_set_by_name_are_stated_of_aggregator_and_estimator():
    args = options_of("--aggregator", "kfed", "--clusters", "2", "--estimator", "gmeans", "--set", "n_init=3")
    text = methods.statement_text(aggregator_of(args), estimator_arguments(args))
    assert json.loads(text)["estimator"] == {"name": "gmeans"}
    args.set += ["max_components=5"]
    aggregator, estimator = methods.from_text(methods.statement_text(aggregator_of(args), estimator_arguments(args)))
    assert (repr(aggregator), repr(estimator)) == ("KFed(n_clusters=2, n_init=3)", "GMeans(max_components=5)")


def test_a_parameter_of_an_estimator_that_does_not_run_is_refused_before_a_site_is_asked():
    wanted = "--set min_mass is of the estimator asm, which does not run with --aggregator consensus unless --local-cou"
    with pytest.raises(ValueError, match=wanted):
        options_of("--set", "min_mass=9")
    args = options_of("--set", "min_mass=9", "--local-counts")
    assert estimator_arguments(args) == {"name": "asm", "min_mass": 9.0}


def statement(aggregator=None, **asked):
    aggregator = aggregator or koncord.KFed(3)
    return methods.statement_of(stated(aggregator, **asked), aggregator)


def ask(place, run="run-1", exchange=1, text=None, **options):
    return answer(place.folder, run, exchange, text or stated(), [pack(setup.Describe(), round_=0)], **options)


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


# --- the word of its owner ---


def test_until_its_owner_agrees_a_site_reads_the_statement_alone(tmp_path):
    place = make(tmp_path)
    (place.folder / "table.npy").unlink()  # whatever reads it fails
    reply = ask(place, text=stated(columns=("age", "pain")), agreed=None)
    assert (list(reply.replies), reply.refused) == ([], "")
    lines = [f"run run-1, identifier {methods.identifier(stated(columns=('age', 'pain')))}"]
    lines += [f"asked by    {BY} (as the coordinator says)", "purpose     stays", "method      kfed ", "n_clusters=3"]
    lines += ["estimator   name=asm", "rounds      at most 1", "columns     age, pain", "floor       20 rows"]
    for words in (*lines, "budget      none"):
        assert words in reply.question
    assert not place.ledger.exists()
    assert not list((place.folder / "runs").iterdir())


def test_a_no_is_in_the_ledger_and_all_that_leaves(tmp_path):
    place = make(tmp_path)
    sent = answer_record(place.folder, "run-1", 1, stated(), [pack(setup.Describe(), round_=0)], agreed=False)
    assert sent == {"refused": "refused at the site"}
    assert read_record(sent, 1).refused == "refused at the site"
    (line,) = read_ledger(place.ledger)
    assert line.refused == "site 'north' takes no part in run run-1: refused at the site."
    assert not list((place.folder / "runs").iterdir())


def test_an_owner_is_asked_once_for_each_run_as_it_is_stated(tmp_path, monkeypatch):
    place, shown, words = make(tmp_path), [], [True, False, False]

    def typed(question, meanwhile):
        shown.append(question)
        return words[len(shown) - 1]

    def answered(state, record, meanwhile, *, agreed):  # without a process of its own
        return joining.record_of_answer(state, record, agreed=agreed)

    monkeypatch.setattr(joining, "typed_word", typed)
    monkeypatch.setattr(joining, "answered_by_copy", answered)
    site = joining.Joined(place.folder, Invitation(site="north", address="", authority="", key=KEY), asks=True)

    def record(run, text):
        messages = [pack(setup.Describe(), round_=0)]
        asked = {"run": run, "exchange": 1, "method": text, "messages": messages, "agreed": True}
        return site.answered(asked, lambda: None)

    assert record("run-1", stated())["replies"]
    assert record("run-1", stated())["replies"]
    assert record("run-1", stated(purpose="something else")) == {"refused": "refused at the site"}
    assert record("run-2", stated()) == record("run-2", stated()) == {"refused": "refused at the site"}
    assert [text.partition(",")[0] for text in shown] == ["run run-1", "run run-1", "run run-2"]
    assert "error" in record("run-3", "no method")
    assert len(shown) == 3, "what no site runs is not asked about"


@pytest.fixture
def keys(monkeypatch):
    """Where a person types."""
    owner, terminal = pty.openpty()
    with os.fdopen(terminal, encoding="utf-8") as typed, os.fdopen(owner, "wb", buffering=0) as written:
        monkeypatch.setattr(sys, "stdin", typed)
        yield written


@pytest.mark.parametrize(
    ("words", "agrees"), [((b"perhaps\n", b"Yes\n"), True), ((b"n\n",), False), ((b"\x04",), False)]
)
def test_yes_or_no_is_typed_after_the_question(words, agrees, keys, capsys):
    keys.write(b"yes\n")  # too early: it answers nothing
    left = list(words)

    def meanwhile():
        keys.write(left.pop(0))

    check_terminal()
    assert typed_word("THE QUESTION", meanwhile) is agrees
    assert left == []
    said = capsys.readouterr().err
    assert said.startswith("THE QUESTION\n")
    assert said.count("take part in this run? yes or no, and Enter:") == len(words)


@pytest.mark.parametrize("stdin", [None, io.StringIO("yes\n")])
def test_without_a_terminal_nobody_can_be_asked(stdin, run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin)
    code, _, said = run("join", "--invite", "north.invite", "--data", "visits.csv", "--ask")
    assert (code, said.count("\n")) == (2, 1)
    assert "--ask needs a terminal, where its owner types yes or no" in said
