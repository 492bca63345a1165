"""A run that is killed goes on where it was and ends as if nothing had happened."""

import os
import stat
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from test_roster import AGGREGATORS, SITES, make_site, table

from koncord import ASM, Consensus, FedKMeans
from koncord.aggregate.private import Known
from koncord.errors import CheckpointError, MessageError, TooFewSites
from koncord.privacy.budget import Budget
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger, ledger_file, read_ledger
from koncord.protocol.wire import pack, unpack
from koncord.session import checkpoint
from koncord.session.checkpoint import FileJournal, SiteMemory, messages_digest, read_blobs, state_kinds, write_blobs
from koncord.session.federation import run_federation
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried, PackedLink


class Killed(Exception):
    pass


class Kept(PackedLink):
    """Sites that live on disk only: every exchange makes them anew. Dies in a chosen exchange, once they answered."""

    def __init__(self, aggregator, folder, *, dies_in=None, lost=(), min_sites=1):
        super().__init__(SITES, min_sites=min_sites, journal=FileJournal(folder / "journal"))
        self.aggregator, self.folder, self.dies_in, self.lost = aggregator, folder, dies_in, set(lost)
        self.asked = []

    def carry(self, exchange, down):
        self.asked.append(exchange)
        replies = {}
        for client, messages in down.items():
            if (client, exchange) in self.lost:
                continue
            kind = type(self.aggregator)
            memory = SiteMemory(self.folder / client, make_site(client, kind), kind, {"table": client})
            replies[client] = list(memory.answer(exchange, messages).replies)
        if exchange == self.dies_in:
            raise Killed
        return Carried(replies=replies)


def federate(link):
    return run_federation(link, clone(link.aggregator), seed=3, standardize=True, settings={})


def same_models(one, two):
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(two, field.name)
        if field.name in ("groups", "components"):
            assert left.keys() == right.keys()
            for site in left:
                np.testing.assert_array_equal(left[site], right[site])
        else:
            assert np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_counts(tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, Path.replace

    def watched_fsync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        events.append("folder" if is_folder else os.fstat(descriptor).st_size)
        fsync(descriptor)

    def watched_rename(path, target):
        events.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_rename)
    memory = SiteMemory(tmp_path / "north", make_site("north", Consensus), Consensus, {"table": 1})
    memory.answer(1, [pack(setup.Describe(), round_=0)])
    assert events == [(tmp_path / "north").stat().st_size, "renamed", "folder"]


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_run_killed_in_any_exchange_ends_with_the_same_model(name, tmp_path):
    aggregator = AGGREGATORS[name]
    folders = iter(range(99))

    def folder():
        made = tmp_path / str(next(folders))
        made.mkdir()
        return made

    undisturbed = Kept(aggregator, folder())
    expected = federate(undisturbed)
    last = undisturbed.n_exchanges
    for exchange in range(1, last + 1) if name == "fedgem, upsilon open" else sorted({1, 2, last // 2, last}):
        place = folder()
        with pytest.raises(Killed):
            federate(Kept(aggregator, place, dies_in=exchange))
        resumed = Kept(aggregator, place)
        same_models(federate(resumed), expected)
        assert resumed.asked == list(range(exchange, last + 1))


def test_who_was_missing_before_the_crash_is_still_missing_after_it(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    aggregator, lost = AGGREGATORS["fedgem"], [("north", 2), ("south", 3)]
    expected = federate(Kept(aggregator, tmp_path / "one", lost=lost))
    with pytest.raises(Killed):
        federate(Kept(aggregator, tmp_path / "two", lost=lost, dies_in=4))
    same_models(federate(Kept(aggregator, tmp_path / "two")), expected)
    assert [each["site"] for each in expected.info["missing"]] == ["north", "south"]


def test_a_run_with_too_few_sites_goes_on_when_they_are_back(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    aggregator = AGGREGATORS["fedgem"]
    expected = federate(Kept(aggregator, tmp_path / "one"))
    with pytest.raises(TooFewSites):
        federate(Kept(aggregator, tmp_path / "two", lost=[("north", 3)], min_sites=4))
    same_models(federate(Kept(aggregator, tmp_path / "two", min_sites=4)), expected)


def test_a_journal_of_another_run_is_refused(tmp_path):
    federate(Kept(AGGREGATORS["fedgem"], tmp_path))
    other = Kept(AGGREGATORS["fedgem"], tmp_path)
    with pytest.raises(CheckpointError, match="answers another question than this run asks in exchange 2"):
        run_federation(other, clone(other.aggregator), seed=4, standardize=True, settings={})


def describe():
    return [pack(setup.Describe(), round_=0)]


def test_a_site_answers_the_same_question_alike_and_refuses_an_earlier_one(tmp_path):
    kind = type(AGGREGATORS["kfed"])
    memory = SiteMemory(tmp_path / "m", make_site("north", kind), kind, {"table": 1})
    first = memory.answer(2, describe())
    again = SiteMemory(tmp_path / "m", make_site("north", kind), kind, {"table": 1})
    assert again.answer(2, describe()) == first
    with pytest.raises(MessageError, match="has answered exchange 2 and was asked exchange 1 anew"):
        again.answer(1, describe())
    with pytest.raises(MessageError, match="exchange 2 anew"):
        again.answer(2, describe() * 2)


def test_a_site_whose_table_changed_does_not_go_on(tmp_path):
    kind = type(AGGREGATORS["kfed"])
    SiteMemory(tmp_path / "m", make_site("north", kind), kind, {"table": 1}).answer(1, describe())
    with pytest.raises(CheckpointError, match="began this run with another table"):
        SiteMemory(tmp_path / "m", make_site("north", kind), kind, {"table": 2})


# --- with a privacy budget ---

BUDGET = Budget(epsilon=20.0, delta=1e-5, bound=30.0)


def private_memory(path, client, aggregator, *, budget=BUDGET, ledger=None):
    rows = table(client, n_each=200)
    policy = SitePolicy(budget=budget)
    site = Site(client, rows, ("x", "y"), estimator=ASM(), aggregator=aggregator, policy=policy, ledger=ledger)
    return SiteMemory(path, site, type(aggregator), {"table": client})


class KeptPrivate(PackedLink):
    """Private sites that live on disk only, asked everything twice."""

    def __init__(self, aggregator, folder):
        super().__init__(SITES)
        self.aggregator, self.folder = aggregator, folder
        self.spent = {client: [] for client in SITES}

    def carry(self, exchange, down):
        return Carried(replies={client: self.answered(client, exchange, down[client]) for client in down})

    def answered(self, client, exchange, messages):
        ledger = Ledger(ledger_file(self.folder, client), run="r", site=client)
        first = private_memory(self.folder / client, client, self.aggregator, ledger=ledger)
        first.answer(exchange, messages)
        again = private_memory(self.folder / client, client, self.aggregator, ledger=ledger)
        assert again.site.private.epsilon == first.site.private.epsilon
        again.answer(exchange, messages)
        assert again.last == first.last
        assert pack(again.site.private.known) == pack(first.site.private.known)
        assert again.site.private.epsilon == first.site.private.epsilon
        self.spent[client].append(again.site.private.epsilon)
        return list(again.last.replies)


@pytest.mark.parametrize(
    (
        "aggregator",
        "n_used",
    ),  # moments, products, cells, last cells, histogram (which takes these along), rounds, holdings
    [(Consensus(), [1, 1, 4, 1, 1, 0, 1]), (FedKMeans(2, n_rounds=3, tol=0), [1, 0, 3, 0, 0, 2, 1])],
)
def test_a_private_site_that_is_restarted_in_every_exchange_releases_everything_once(aggregator, n_used, tmp_path):
    link = KeptPrivate(aggregator, tmp_path)
    model = run_federation(link, clone(aggregator), seed=3, standardize=False, settings={})
    assert model.sites == tuple(sorted(SITES))
    for client in SITES:
        spent, lines = link.spent[client], read_ledger(ledger_file(tmp_path, client))
        assert spent == sorted(spent)
        assert 0 < spent[0] < spent[-1] <= BUDGET.epsilon
        assert lines[-1].epsilon == spent[-1]
        assert [line.message for line in lines].count("setup.Moments") == 1
        known, _ = unpack(read_blobs(tmp_path / client)[1]["known"], (Known,))
        assert known.n_used.tolist() == n_used


@pytest.mark.parametrize("other", [None, replace(BUDGET, epsilon=8.0), replace(BUDGET, bound=9.0)])
def test_a_site_goes_on_with_the_privacy_budget_it_began_with(other, tmp_path):
    private_memory(tmp_path / "m", "north", Consensus()).answer(1, describe())
    with pytest.raises(CheckpointError, match="began this run with another privacy budget; it cannot go on"):
        private_memory(tmp_path / "m", "north", Consensus(), budget=other)


def test_a_site_that_began_without_a_privacy_budget_does_not_get_one_in_the_middle(tmp_path):
    private_memory(tmp_path / "m", "north", Consensus(), budget=None).answer(1, describe())
    with pytest.raises(CheckpointError, match="began this run with another privacy budget"):
        private_memory(tmp_path / "m", "north", Consensus())


def prepare(scale=1.0):
    return [pack(setup.Prepare(seed=1, columns=("x", "y"), means=np.zeros(2), scales=np.full(2, scale)))]


def test_what_a_failed_answer_released_is_spent(tmp_path):
    """Whether it fails may tell of what was released: asked again and again, that would add up."""
    memory = private_memory(tmp_path / "m", "north", Consensus())
    with pytest.raises(MessageError, match="a scale on which its rows are no numbers"):
        memory.answer(1, prepare(scale=5e-324))
    restarted = private_memory(tmp_path / "m", "north", Consensus())
    assert restarted.site.private.epsilon == memory.site.private.epsilon > 0
    restarted.answer(2, describe())
    assert restarted.site.private.epsilon == memory.site.private.epsilon


def test_a_site_killed_between_two_messages_of_an_exchange_has_kept_the_first(tmp_path, monkeypatch):
    messages = [*describe(), *prepare()]
    n_written = iter(range(9))

    def written_once(*args):
        if next(n_written):
            raise Killed
        write_blobs(*args)

    monkeypatch.setattr(checkpoint, "write_blobs", written_once)
    memory = private_memory(tmp_path / "m", "north", Consensus())
    with pytest.raises(Killed):
        memory.answer(1, messages)
    monkeypatch.undo()
    restarted = private_memory(tmp_path / "m", "north", Consensus())
    assert 0 < restarted.site.private.epsilon == memory.site.private.epsilon  # Prepare releases nothing
    replies = restarted.answer(1, messages).replies
    assert replies[0] == memory.last.replies[0]
    assert private_memory(tmp_path / "m", "north", Consensus()).answer(1, messages).replies == replies


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_state_of_a_client_step_is_declared(name):
    kinds = state_kinds(type(AGGREGATORS[name]))
    assert all(kind.__module__ == type(AGGREGATORS[name]).__module__ for kind in kinds)
    assert bool(kinds) == (name.startswith("fedgem") or name == "afcl")


def test_a_file_of_bytes_is_whole_private_and_refused_when_damaged(tmp_path):
    path = tmp_path / "kept"
    write_blobs(path, {"a": 1}, {"x": b"", "y": b"\x00\xff"})
    assert read_blobs(path) == ({"a": 1}, {"x": b"", "y": b"\x00\xff"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is not a koncord checkpoint"):
        read_blobs(path)


def test_the_digest_tells_where_a_message_ends():
    assert messages_digest([b"ab", b"c"]) != messages_digest([b"a", b"bc"])
    assert messages_digest([]) != messages_digest([b""])
