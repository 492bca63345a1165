"""A site that lives on disk: every exchange is answered by a new process' worth of objects, as over the network."""

import json
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

import koncord
from koncord.aggregate.consensus import calibration
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.cli import main
from koncord.data.files import Table
from koncord.errors import (
    NO_ANSWER,
    CheckpointError,
    DisclosureRefused,
    KoncordError,
    MessageError,
    NotAllowed,
    UnknownMethod,
)
from koncord.estimate.named import estimator_named
from koncord.model.globalmodel import GlobalModel
from koncord.network import method as methods
from koncord.network.certificates import site_key
from koncord.network.dryrun import Rehearsal
from koncord.network.places import Invitation
from koncord.network.sitefolder import (
    SiteFolder,
    answer,
    asked_method,
    sole_owner,
    table_digest,
    told_seconds,
)
from koncord.prepare.settings import Preparation
from koncord.privacy.budget import Budget, epsilon_of_runs
from koncord.protocol import setup
from koncord.protocol.ledger import read_ledger
from koncord.protocol.wire import pack
from koncord.report.federation import notes_of
from koncord.session.checkpoint import read_blobs
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried, PackedLink

NAMES = ("north", "south")
COLUMNS = ("age", "stay", "pain")
KEYS = {name: site_key()[0].decode() for name in NAMES}
ESTIMATOR = {"name": "xmeans"}
METHODS = {
    "fedgem": koncord.FedGEM(upsilon=2, n_rounds=2),
    "kfed": koncord.KFed(2),
    "afcl": koncord.AFCL(4, allow_disclosure=True, n_rounds=2),
}


def table(name):
    rng = np.random.default_rng(NAMES.index(name))
    return np.concatenate([rng.normal(9 * at, 1, (40, 3)) for at in range(2)])


def invitation(name):
    return Invitation(site=name, address="localhost:1", authority="ca", key=KEYS[name])


ALL = ("afcl", "consensus", "fedgem", "fedkmeans", "kfed", "spahm")


def make(folder, name, X=None, **options):
    own = {option: options.pop(option) for option in ("ledgers", "may_weaken") if option in options}
    policy = SitePolicy(**{"min_report": 1, "allows_disclosure": True, **options})
    return SiteFolder.create(folder / name, invitation(name), table(name) if X is None else X, COLUMNS, policy, **own)


def method(name):
    return json.dumps({"aggregator": name, "estimator": ESTIMATOR})


class OnDisk(PackedLink):
    """Sites that answer from their folders; what a site refuses is why it is missing, as over the network."""

    def __init__(self, folder, aggregator, run="run-1"):
        super().__init__(NAMES)
        self.folder, self.aggregator, self.run = folder, aggregator, run

    def carry(self, exchange, down):
        asked = method(self.aggregator.name)
        replies, missing = {}, {}
        for site, messages in down.items():
            try:
                replies[site] = answer(self.folder / site, self.run, exchange, asked, messages)[0]
            except KoncordError as error:
                missing[site] = str(error)
        return Carried(replies=replies, missing=missing)


@pytest.mark.parametrize("name", METHODS)
def test_sites_on_disk_give_the_model_of_sites_in_memory(name, tmp_path):
    for site in NAMES:
        make(tmp_path, site, methods=ALL)
    aggregator = METHODS[name]
    ours = run_federation(OnDisk(tmp_path, aggregator), aggregator, seed=1, standardize=True, settings={})
    estimator, policy = estimator_named(**ESTIMATOR), SitePolicy(min_report=1)
    sites = [
        Site(site, table(site), COLUMNS, estimator=estimator, aggregator=aggregator, policy=policy) for site in NAMES
    ]
    theirs = run_federation(InProcess(sites), aggregator, seed=1, standardize=True, settings={})
    np.testing.assert_array_equal(ours.centers, theirs.centers)
    np.testing.assert_array_equal(ours.holdings, theirs.holdings)
    for at, site in enumerate(NAMES):
        run = tmp_path / site / "runs" / "run-1"
        labels = [int(line.split(",")[1]) for line in (run / "labels.csv").read_text().splitlines()[1:]]
        assert np.bincount(labels, minlength=ours.n_clusters).tolist() == ours.holdings[at].tolist()
        np.testing.assert_array_equal(GlobalModel.load(run / "model.koncord").predict(table(site)), labels)
        left = read_ledger(tmp_path / site / f"{site}.ledger.jsonl")
        assert [entry.message for entry in left][:2] == ["setup.Moments", "setup.Prepared"]
        assert left[-1].message == "setup.Holdings"


RAW_COLUMNS = ("age", "cost", "ward")
WARDS = ("a", "b")


def raw_table(name):
    """Rows with gaps, a skewed column, a wrong reading and a category."""
    rng = np.random.default_rng(NAMES.index(name))
    group = np.repeat([0, 1], 150)
    X = np.column_stack([rng.normal(9 * group, 1), np.exp(rng.normal(4 * group, 0.8)), rng.integers(0, 2, 300)])
    X[rng.random(300) < 0.1, 0] = np.nan
    X[rng.random(300) < 0.1, 2] = np.nan
    X[5, 1] = 1e7
    return X


@pytest.mark.parametrize("missing", ["neighbors", "gaussian", "mean"])
def test_raw_tables_on_disk_give_the_model_of_raw_tables_in_memory(missing, tmp_path):
    policy, levels = SitePolicy(min_report=20), {"ward": WARDS}
    aggregator, estimator = koncord.Consensus(), estimator_named(**ESTIMATOR)
    for site in NAMES:
        SiteFolder.create(tmp_path / site, invitation(site), raw_table(site), RAW_COLUMNS, policy, levels=levels)
    sites = [
        Site(
            site,
            raw_table(site),
            RAW_COLUMNS,
            estimator=estimator,
            aggregator=aggregator,
            policy=policy,
            levels=levels,
        )
        for site in NAMES
    ]
    ours, theirs = (
        run_federation(
            link,
            aggregator,
            seed=1,
            standardize=True,
            settings={},
            preparation=Preparation(missing=missing, logged=("cost",)),
        )
        for link in (OnDisk(tmp_path, aggregator), InProcess(sites))
    )
    assert ours.info["missing"] == []
    assert ours.plan == theirs.plan
    assert ours.plan.is_logged.tolist() == [False, True]
    assert ours.session.preparation.gaps.missing.keys() == {"age", "ward"}
    np.testing.assert_array_equal(ours.centers, theirs.centers)
    np.testing.assert_array_equal(ours.holdings, theirs.holdings)
    for site in NAMES:
        run = tmp_path / site / "runs" / "run-1"
        labels = [int(line.split(",")[1]) for line in (run / "labels.csv").read_text().splitlines()[1:]]
        kept = GlobalModel.load(run / "model.koncord")
        assert kept.plan == ours.plan
        rows = kept.rows(Table(name=site, X=raw_table(site), columns=RAW_COLUMNS, levels=levels))
        np.testing.assert_array_equal(kept.assign(rows), labels)


def test_sites_on_disk_are_harmonized_as_sites_in_memory_are(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FEWEST_CLIENTS", len(NAMES))
    places, rng = np.array([[0.0, 0, 0], [9, 0, 1], [0, 7, 2], [3, 1, 11]]), np.random.default_rng(0)
    shift = {"north": np.zeros(3), "south": np.array([6.0, -5, 4])}
    rows = {site: np.concatenate([rng.normal(place, 1, (60, 3)) for place in places]) + shift[site] for site in NAMES}
    policy, aggregator = SitePolicy(min_report=20), koncord.Consensus(harmonize=True)
    estimator = estimator_named(**ESTIMATOR)
    for site in NAMES:
        SiteFolder.create(tmp_path / site, invitation(site), rows[site], COLUMNS, policy)
    sites = [
        Site(site, rows[site], COLUMNS, estimator=estimator, aggregator=aggregator, policy=policy) for site in NAMES
    ]
    ours, theirs = (
        run_federation(link, aggregator, seed=1, standardize=True, settings={}, preparation=Preparation())
        for link in (OnDisk(tmp_path, aggregator), InProcess(sites))
    )
    assert ours.n_clusters == 4
    np.testing.assert_array_equal(ours.centers, theirs.centers)
    for site in NAMES:
        np.testing.assert_array_equal(ours.offsets[site], theirs.offsets[site])
        run = tmp_path / site / "runs" / "run-1"
        labels = [int(line.split(",")[1]) for line in (run / "labels.csv").read_text().splitlines()[1:]]
        np.testing.assert_array_equal(ours.predict(rows[site], site=site), labels)
        assert np.bincount(labels).min() > 55


@pytest.mark.parametrize("privacy", [None, Budget(epsilon=8.0, delta=1e-6, bound=30.0)])
def test_a_site_on_disk_with_more_columns_takes_part_with_those_that_all_have(tmp_path, privacy):
    make(tmp_path, "north", budget=privacy)
    X = np.column_stack([np.arange(80.0), table("south")[:, ::-1]])
    columns = ("row", *COLUMNS[::-1])
    SiteFolder.create(tmp_path / "south", invitation("south"), X, columns, SitePolicy(budget=privacy))
    aggregator = koncord.Consensus()
    link = OnDisk(tmp_path, aggregator)
    model = run_federation(link, aggregator, seed=1, standardize=False, settings={}, common_columns=True)
    assert (model.columns, model.info["missing"]) == (COLUMNS, [])
    assert model.info["left_out_columns"] == {"row": ["south"]}
    kept = GlobalModel.load(tmp_path / "south" / "runs" / "run-1" / "model.koncord")
    assert kept.columns == COLUMNS
    np.testing.assert_array_equal(kept.centers, model.centers)


def describe():
    return [pack(setup.Describe(), round_=0)]


def test_a_site_sends_no_rows_unless_its_owner_allowed_it(tmp_path):
    make(tmp_path, "north", allows_disclosure=False)
    with pytest.raises(DisclosureRefused, match="afcl sends every row; site 'north' joined without --allow-disclosure"):
        answer(tmp_path / "north", "run-1", 1, method("afcl"), describe())
    assert not list((tmp_path / "north" / "runs").iterdir())


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "{}",
        "[]",
        '{"aggregator": "os", "estimator": {"name": "asm"}}',
        '{"aggregator": "kfed", "estimator": {"name": "asm", "random_state": {}, "x": 1}}',
        '{"aggregator": "kfed", "estimator": {"name": "rm"}}',
        '{"aggregator": "kfed", "estimator": 3}',
    ],
)
def test_a_method_the_site_does_not_know_is_refused(asked, tmp_path):
    place = make(tmp_path, "north")
    with pytest.raises(MessageError, match="was asked for a method it does not know"):
        asked_method(place, asked)


@pytest.mark.parametrize("run", ["", ".", "..", "../x", "a/b", "a\x00b", "x" * 64, "ä"])
def test_the_name_of_a_run_never_leaves_its_folder(run, tmp_path):
    make(tmp_path, "north")
    with pytest.raises(MessageError, match="was sent a run with the name"):
        answer(tmp_path / "north", run, 1, method("kfed"), describe())


def test_a_table_or_a_method_that_changed_in_the_middle_of_a_run_is_noticed(tmp_path):
    make(tmp_path, "north", methods=ALL)
    first = answer(tmp_path / "north", "run-1", 1, method("kfed"), describe())
    assert answer(tmp_path / "north", "run-1", 1, method("kfed"), describe())[:2] == first[:2]
    with pytest.raises(CheckpointError, match="began this run with another method"):
        answer(tmp_path / "north", "run-1", 2, method("fedgem"), describe())
    make(tmp_path, "north", X=table("north") + 1)
    with pytest.raises(CheckpointError, match="began this run with another table"):
        answer(tmp_path / "north", "run-1", 2, method("kfed"), describe())
    answer(tmp_path / "north", "run-2", 1, method("kfed"), describe())


# --- what the owner allows ---


def told(aggregator, **estimator):
    return methods.statement_text(aggregator, {**ESTIMATOR, **estimator})


@pytest.mark.parametrize(
    ("aggregator", "limits", "said"),
    [
        (koncord.FedKMeans(2, n_rounds=11), {}, "11 rounds of fedkmeans; its owner allows 10"),
        (koncord.FedKMeans(2, n_rounds=3), {"max_rounds": 2}, "3 rounds of fedkmeans; its owner allows 2"),
        (koncord.FFCM(2), {"allows_disclosure": False}, "asked for ffcm; its owner allows consensus, fedkm"),
        (koncord.FedGEM(), {}, "asked for fedgem; its owner allows afcl, consensus, fedkmeans, kfed"),
        (koncord.KFed(2), {"methods": ["consensus"]}, "asked for kfed; its owner allows consensus "),
    ],
)
def test_a_method_or_rounds_beyond_what_the_owner_allows_are_refused_and_noted(aggregator, limits, said, tmp_path):
    place = make(tmp_path, "north", **limits)
    with pytest.raises(NotAllowed, match=said):
        answer(tmp_path / "north", "run-1", 1, told(aggregator), describe())
    assert not list((tmp_path / "north" / "runs").iterdir())
    (line,) = read_ledger(place.ledger)
    assert said in line.refused


@pytest.mark.parametrize(
    ("aggregator", "limits"),
    [
        (koncord.FedKMeans(2, n_rounds=11), {"max_rounds": 11}),
        (koncord.FFCM(2, max_rounds=3), {"methods": ["ffcm"]}),
        (koncord.FedGEM(n_rounds=2), {"methods": ["fedgem"]}),
        (koncord.Consensus(10), {}),
    ],
)
def test_a_run_within_what_the_owners_allow_ends_without_a_refusal(aggregator, limits, tmp_path):
    for site in NAMES:
        make(tmp_path, site, **limits)

    class Told(OnDisk):
        def carry(self, exchange, down):
            answered = {
                site: answer(self.folder / site, self.run, exchange, told(aggregator), messages)[0]
                for site, messages in down.items()
            }
            return Carried(replies=answered)

    model = run_federation(Told(tmp_path, aggregator), aggregator, seed=1, standardize=True, settings={})
    assert model.info["missing"] == []
    assert all(line.refused is None for line in read_ledger(tmp_path / "north" / "north.ledger.jsonl"))


def test_an_exchange_holds_no_more_messages_than_the_method_sends_at_once(tmp_path):
    make(tmp_path, "north")
    with pytest.raises(MessageError, match="was sent 6 messages in one exchange; its method has at most 5"):
        answer(tmp_path / "north", "run-1", 1, method("consensus"), describe() * 6)


def test_arguments_of_an_estimator_are_checked_before_a_row_is_read(tmp_path):
    make(tmp_path, "north")
    (tmp_path / "north" / "table.npy").unlink()  # nobody gets that far
    for wrong in ({"max_components": 0}, {"max_components": "x"}, {"max_components": 2.5}):
        with pytest.raises(UnknownMethod, match="'max_components' of XMeans must be"):
            answer(tmp_path / "north", "run-1", 1, told(koncord.Consensus(), **wrong), describe())


@pytest.mark.parametrize("privacy", [None, Budget(epsilon=20.0, delta=1e-5, bound=20.0)])
def test_how_long_an_answer_took_is_reported_in_whole_seconds_and_beside_a_budget_not_at_all(privacy, tmp_path):
    make(tmp_path, "north", budget=privacy)
    _, seconds, *_ = answer(tmp_path / "north", "run-1", 1, method("consensus"), describe() * 2)
    assert len(seconds) == 2
    assert all(type(each) is float and each == round(each) for each in seconds)
    kept, _ = read_blobs(tmp_path / "north" / "runs" / "run-1" / "memory")
    assert 0 < min(kept["seconds"]) < 1  # what it took is known here
    if privacy is not None:
        assert told_seconds([3.7, 0.2], privacy) == [0.0, 0.0]
    assert told_seconds([3.7, 0.2], None) == [4.0, 0.0]


def replied_to(folder, asked):
    """What leaves a site for a record that came, through the function that answers one."""
    return pytest.importorskip("koncord.network.joining").record_of_answer(folder, asked)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"method": "{}"}, UnknownMethod),
        ({"method": told(koncord.FFCM(2), max_components=0)}, UnknownMethod),
        ({"method": told(koncord.FedKMeans(2, n_rounds=11))}, NotAllowed),
        ({"method": told(koncord.AFCL(3))}, DisclosureRefused),
        ({"messages": [b"rubbish"]}, MessageError),
        ({"messages": [pack(setup.Attribute(centers=np.zeros((1, 3))), round_=1)]}, MessageError),
        ({"run": "../x"}, MessageError),
        ({"messages": 3}, KoncordError),
        ({"exchange": "one"}, KoncordError),
    ],
)
def test_what_a_site_says_of_an_error_is_one_of_few_sentences_that_name_no_value(asked, kind, tmp_path):
    make(tmp_path, "north", allows_disclosure=False)
    record = {"run": "run-1", "exchange": 1, "method": told(koncord.Consensus()), "messages": describe()}
    assert "replies" in replied_to(tmp_path / "north", {**record, "run": "run-0"})
    assert replied_to(tmp_path / "north", {**record, **asked}) == {"error": kind.outside}


def test_an_error_that_quotes_a_row_does_not_leave(tmp_path):
    place = make(tmp_path, "north")
    (tmp_path / "north" / "table.npy").write_bytes(b"row 7 holds 12345.678")
    record = {"run": "run-1", "exchange": 1, "method": told(koncord.Consensus()), "messages": describe()}
    assert replied_to(place.folder, record) == {"error": NO_ANSWER}
    assert read_ledger(place.ledger)[-1].message == "refusal"


# --- with a privacy budget ---

BUDGET = Budget(epsilon=20.0, delta=1e-5, bound=20.0)
PROMISE = {"epsilon": 20.0, "delta": 1e-5, "bound": 20.0, "center": 0.0}


def federate(folder, aggregator, run="run-1"):
    return run_federation(OnDisk(folder, aggregator, run), aggregator, seed=1, standardize=False, settings={})


@pytest.mark.parametrize("aggregator", [koncord.Consensus(), koncord.FedKMeans(2)])
def test_a_site_with_a_budget_and_one_without_make_a_federation_that_tells_who_has_one(aggregator, tmp_path):
    place = make(tmp_path, "north", budget=BUDGET)
    make(tmp_path, "south")
    for run in ("run-1", "run-2"):
        model = federate(tmp_path, aggregator, run)
        assert model.info["privacy"] == {"north": PROMISE}
        assert model.info["missing"] == []
        assert "Everything north sent is differentially private (epsilon 20, " in " ".join(notes_of(model))
        labels = (tmp_path / "north" / "runs" / run / "labels.csv").read_text().splitlines()
        assert len(labels) == 1 + len(table("north"))
    lines = read_ledger(place.ledger)
    assert [line.epsilon for line in lines if line.run == "run-2"][-1] <= BUDGET.epsilon
    assert list(place.spent()) == ["run-1", "run-2"]
    assert all(line.epsilon is None for line in read_ledger(tmp_path / "south" / "south.ledger.jsonl"))
    assert SiteFolder.load(tmp_path / "north").policy.budget == BUDGET


def test_an_aggregator_without_a_private_form_is_refused_and_the_run_says_so(tmp_path):
    make(tmp_path, "north", budget=BUDGET)
    make(tmp_path, "south")
    model = federate(tmp_path, METHODS["kfed"])
    assert model.sites == ("south",)
    assert {each["site"] for each in model.info["missing"]} == {"north"}
    assert "Site north was missing from exchange" in " ".join(notes_of(model))
    assert "kfed has no private form: within a privacy budget" in " ".join(notes_of(model))
    assert not list((tmp_path / "north" / "runs").iterdir())


def test_a_budget_that_changed_in_the_middle_of_a_run_is_noticed(tmp_path):
    make(tmp_path, "north", budget=BUDGET)
    first = answer(tmp_path / "north", "run-1", 1, method("consensus"), describe())
    make(tmp_path, "north", budget=BUDGET)
    assert answer(tmp_path / "north", "run-1", 1, method("consensus"), describe())[:2] == first[:2]
    make(tmp_path, "north", budget=Budget(epsilon=30.0, delta=1e-5, bound=20.0))
    with pytest.raises(CheckpointError, match="began this run with another privacy budget"):
        answer(tmp_path / "north", "run-1", 2, method("consensus"), describe())


@pytest.mark.parametrize("privacy", [None, BUDGET], ids=["without a budget", "with a budget"])
def test_a_site_takes_part_in_no_more_runs_than_its_owner_allows(privacy, tmp_path):
    make(tmp_path, "north", budget=privacy, max_runs=2)
    for run in ("run-1", "run-2", "run-1"):
        answer(tmp_path / "north", run, 1, method("consensus"), describe())
    with pytest.raises(
        NotAllowed, match="'north' has taken part in 2 runs; its owner allows no more than 2 over this table"
    ):
        answer(tmp_path / "north", "run-3", 1, method("consensus"), describe())
    assert sorted(path.name for path in (tmp_path / "north" / "runs").iterdir()) == ["run-1", "run-2"]
    answer(tmp_path / "north", "run-2", 1, method("consensus"), describe())


def test_all_runs_together_cost_no_more_than_the_owner_allows(tmp_path):
    budget = Budget(epsilon=1.0, delta=1e-6, bound=20.0)
    place = make(tmp_path, "north", budget=budget, total_epsilon=2.0)
    for run in ("run-1", "run-2", "run-3"):  # the cost grows with the root of the number of runs, not with the number
        answer(tmp_path / "north", run, 1, method("consensus"), describe())
    with pytest.raises(NotAllowed, match="together, and its owner allows 2"):
        answer(tmp_path / "north", "run-4", 1, method("consensus"), describe())
    assert epsilon_of_runs([1.0] * 3, 1e-6) <= 2.0 < epsilon_of_runs([1.0] * 4, 1e-6)
    assert SiteFolder.load(place.folder).policy.total_epsilon == 2.0
    with pytest.raises(NotAllowed, match="no longer be limited to epsilon 2 together"):
        make(tmp_path, "north", budget=budget, may_weaken=False)
    with pytest.raises(ValueError, match="'total_epsilon' of SitePolicy goes with a budget"):
        SitePolicy(total_epsilon=1.0)


@pytest.mark.parametrize("version", [None, 2])
def test_a_state_folder_of_another_version_is_refused(version, tmp_path):
    path = make(tmp_path, "north").folder / "site.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    with pytest.raises(KoncordError, match=f"has version {version}; this koncord reads version 1"):
        answer(tmp_path / "north", "run-1", 1, method("consensus"), describe())


@pytest.mark.parametrize("privacy", [None, BUDGET], ids=["without a budget", "with a budget"])
def test_a_run_whose_folder_was_deleted_does_not_begin_again(privacy, tmp_path):
    make(tmp_path, "north", budget=privacy)
    answer(tmp_path / "north", "run-1", 1, method("consensus"), describe())
    shutil.rmtree(tmp_path / "north" / "runs" / "run-1")
    with pytest.raises(NotAllowed, match="'north' has ended its part in run run-1: its folder is gone"):
        answer(tmp_path / "north", "run-1", 1, method("consensus"), describe())


# --- koncord join, before anybody is called ---

GIVEN = ["--epsilon", "20", "--delta", "1e-5", "--bound", "20"]


@pytest.fixture
def joining(tmp_path, monkeypatch):
    """The beginning of a call, in a folder with an invitation and a table."""
    monkeypatch.chdir(tmp_path)
    invitation("north").save(tmp_path / "north.invite")
    np.savetxt("visits.csv", table("north"), delimiter=",", header=",".join(COLUMNS), comments="")
    return ["join", "--invite", "north.invite", "--data", "visits.csv"]


def test_a_dry_run_within_a_budget_tells_what_it_would_spend_and_leaves_nothing_on_disk(joining, tmp_path, capsys):
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main([*joining, "--dry-run", "--aggregator", "consensus", *GIVEN]) == 0
    shown = capsys.readouterr().out
    assert "Nothing was sent." in shown
    assert "It would have spent epsilon" in shown
    assert main([*joining, "--dry-run", "--aggregator", "fedkmeans", "--clusters", "2", *GIVEN, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["epsilon"] <= BUDGET.epsilon
    assert {row["field"] for row in told["sent"] if row["message"] == "Moments"} >= {"epsilon", "delta"}
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_dry_run_without_a_budget_names_none(joining, capsys):
    assert main([*joining, "--dry-run", "--aggregator", "kfed", "--clusters", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "epsilon" not in told
    assert not {row["field"] for row in told["sent"]} & {"epsilon", "delta", "bound", "center"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--dry-run", "--aggregator", "fedgem", *GIVEN], 1, "fedgem has no private form"),
        (GIVEN[:2], 2, "--delta and --bound not given"),
        (["--aggregator", "kfed"], 2, "--aggregator goes with --dry-run: in a run the coordinator chooses it"),
        (["--aggregator", "consensus"], 2, "--aggregator goes with --dry-run"),
        (["--seed", "0"], 2, "--seed goes with --dry-run"),
        (["--no-standardize"], 2, "--standardize goes with --dry-run"),
        (["--methods", "kfed,rm"], 2, "--methods names rm; known are consensus, "),
        (["--methods", "afcl"], 2, "--methods names afcl, which sends every row"),
        (["--max-rounds", "0"], 2, "--max-rounds"),
        (["--allow-disclosure"], 2, "if rows may leave, add --min-report 1"),
    ],
)
def test_join_refuses_what_does_not_go_together(joining, options, code, said, capsys):
    assert main([*joining, *options]) == code
    assert said in capsys.readouterr().err


def test_the_state_is_its_owners_alone_and_used_by_one_join(tmp_path):
    make(tmp_path, "north")
    for name in ("key", "ca.crt", "site.json", "table.npy"):
        assert stat.S_IMODE((tmp_path / "north" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "north").stat().st_mode) == 0o700
    with (
        sole_owner(tmp_path / "north"),
        pytest.raises(KoncordError, match="Another koncord join uses"),
        sole_owner(tmp_path / "north"),
    ):
        pass


def test_the_digest_of_a_table_tells_values_columns_and_shape():
    X = np.arange(6.0).reshape(2, 3)
    digests = {
        table_digest(X, COLUMNS),
        table_digest(X + 1, COLUMNS),
        table_digest(X, COLUMNS[::-1]),
        table_digest(X.reshape(3, 2), COLUMNS[:2]),
        table_digest(X, COLUMNS, {COLUMNS[0]: ("a", "b", "c", "d")}),
    }
    assert len(digests) == 5
    assert table_digest(np.asfortranarray(X), COLUMNS) == table_digest(X, COLUMNS)


def test_every_aggregator_is_known_by_its_name():
    assert {"fedgem", "kfed", "fedkmeans", "ffcm", "spahm", "afcl", "consensus"} == set(AGGREGATORS.own)
    assert all(aggregator_named(name).name == name for name in AGGREGATORS.own)


def test_a_rehearsal_tells_what_would_be_sent_to_the_byte():
    aggregator = METHODS["kfed"]
    site = Site("north", table("north"), COLUMNS, estimator=estimator_named(**ESTIMATOR), aggregator=aggregator)
    link = Rehearsal(site)
    run_federation(link, aggregator, seed=1, standardize=True, settings={})
    told = {(row["exchange"], row["at"]): row["message_bytes"] for row in link.sent}
    assert sorted(told.values()) == sorted(departed.n_bytes for departed in link.departures)
    centers = next(row for row in link.sent if row["field"] == "centers")
    assert (centers["message"], centers["shape"], centers["bytes"]) == ("LocalCenters", "2 x 3", 48)


COPIES = """
import json, os, signal, sys
from pathlib import Path
from koncord.network import joining

def answer(state, record, *, agreed):
    with (state / "tries").open("a") as file:
        file.write("x")
    n_tries = len((state / "tries").read_text())
    if n_tries <= record["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if record["fails"]:
        raise SystemExit(3)
    return {"replies": [b"answer"], "seconds": [0.0]}

joining.record_of_answer = answer
for at, (dies, fails) in enumerate([(0, False), (1, False), (2, False), (0, True)]):
    state = Path(sys.argv[1]) / f"{at}"
    state.mkdir()
    record = joining.answered_by_copy(state, {"dies": dies, "fails": fails}, lambda: None)
    print(json.dumps([len((state / "tries").read_text()), record.get("error", record.get("replies") == [b"answer"])]))
"""


def test_an_answer_whose_process_is_killed_is_made_once_more_and_one_that_fails_is_not(tmp_path):
    words = [sys.executable, "-c", COPIES, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [1, True],
        [2, True],
        [2, NO_ANSWER],
        [1, NO_ANSWER],
    ]
    assert done.stderr.count("it is answered once more") == 2
