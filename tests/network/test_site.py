"""A site that lives on disk: every exchange is answered by a new process' worth of objects, as over the network."""

import json
import stat

import numpy as np
import pytest

import koncord
from koncord.errors import CheckpointError, DisclosureRefused, KoncordError, MessageError
from koncord.estimate.named import estimator_named
from koncord.federate import setup
from koncord.federate.inprocess import InProcess
from koncord.federate.ledger import read_ledger
from koncord.federate.packed import Carried, PackedLink
from koncord.federate.site import Site
from koncord.federate.wire import pack
from koncord.model.clustering import run_federation
from koncord.model.globalmodel import GlobalModel
from koncord.network.places import Invitation
from koncord.network.rehearsal import Rehearsal
from koncord.network.site import SiteFolder, aggregators, answer, asked_method, sole_owner, table_digest

NAMES = ("north", "south")
COLUMNS = ("age", "stay", "pain")
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
    return Invitation(site=name, address="localhost:1", authority="ca", key="secret")


def make(folder, name, X=None, **options):
    options = {"min_report": 1, "allows_disclosure": True, **options}
    return SiteFolder.create(folder / name, invitation(name), table(name) if X is None else X, COLUMNS, **options)


def method(name):
    return json.dumps({"aggregator": name, "estimator": ESTIMATOR})


class OnDisk(PackedLink):
    def __init__(self, folder, aggregator):
        super().__init__(NAMES)
        self.folder, self.aggregator = folder, aggregator

    def carry(self, exchange, down):
        asked = method(self.aggregator.name)
        return Carried(replies={s: answer(self.folder / s, "run-1", exchange, asked, m)[0] for s, m in down.items()})


@pytest.mark.parametrize("name", METHODS)
def test_sites_on_disk_give_the_model_of_sites_in_memory(name, tmp_path):
    for site in NAMES:
        make(tmp_path, site)
    aggregator = METHODS[name]
    ours = run_federation(OnDisk(tmp_path, aggregator), aggregator, seed=1, standardize=True, settings={})
    sites = [
        Site(site, table(site), COLUMNS, estimator=estimator_named(**ESTIMATOR), aggregator=aggregator)
        for site in NAMES
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
    make(tmp_path, "north")
    first = answer(tmp_path / "north", "run-1", 1, method("kfed"), describe())
    assert answer(tmp_path / "north", "run-1", 1, method("kfed"), describe()) == first
    with pytest.raises(CheckpointError, match="began this run with another method"):
        answer(tmp_path / "north", "run-1", 2, method("fedgem"), describe())
    make(tmp_path, "north", X=table("north") + 1)
    with pytest.raises(CheckpointError, match="began this run with another table"):
        answer(tmp_path / "north", "run-1", 2, method("kfed"), describe())
    answer(tmp_path / "north", "run-2", 1, method("kfed"), describe())


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
    }
    assert len(digests) == 4
    assert table_digest(np.asfortranarray(X), COLUMNS) == table_digest(X, COLUMNS)


def test_every_aggregator_is_known_by_its_name():
    known = aggregators()
    assert {"fedgem", "kfed", "fedkmeans", "ffcm", "spahm", "afcl"} <= known.keys()
    assert all(kind.name == name for name, kind in known.items())


def test_a_rehearsal_tells_what_would_be_sent_to_the_byte():
    aggregator = METHODS["kfed"]
    site = Site("north", table("north"), COLUMNS, estimator=estimator_named(**ESTIMATOR), aggregator=aggregator)
    link = Rehearsal(site)
    run_federation(link, aggregator, seed=1, standardize=True, settings={})
    told = {(row["exchange"], row["at"]): row["message_bytes"] for row in link.sent}
    assert sorted(told.values()) == sorted(departed.n_bytes for departed in link.departures)
    centers = next(row for row in link.sent if row["field"] == "centers")
    assert (centers["message"], centers["shape"], centers["bytes"]) == ("LocalCenters", "2 x 3", 48)
