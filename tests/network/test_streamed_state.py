"""Sites on disk whose tables are read batch by batch: what they answered of them is kept, and equal to one process."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import koncord
from koncord.data.batches import batched_table
from koncord.errors import KoncordError, NotAllowed
from koncord.estimate.named import estimator_named
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer
from koncord.prepare.settings import Preparation
from koncord.protocol import setup
from koncord.protocol.ledger import read_ledger
from koncord.protocol.streamed import streamed_rows
from koncord.session.federation import run_federation
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy
from koncord.session.streamedfile import SORTINGS, SortingsFile, StreamedSource
from koncord.session.transport import Carried, PackedLink
from koncord.session.versions import joint_folder

NAMES = ("north", "south")
COLUMNS = ("a", "b", "c", "flag")
SAMPLE = 150


def table(name, shift=0.0, apart=8.0):
    """Three clusters, a column of large spread, a column with two values."""
    rng = np.random.default_rng(NAMES.index(name))
    y = rng.integers(0, 3, 500)
    X = rng.normal(size=(500, 2)) + apart * np.column_stack([y == 1, y == 2]) + shift
    return np.column_stack([X, np.exp(rng.normal(size=500)), rng.random(500) < 0.03])


def write(folder, name, X):
    folder.mkdir(exist_ok=True)
    for part, rows in enumerate(np.array_split(X, 3)):
        columns = {column: rows[:, at] for at, column in enumerate(COLUMNS)}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    return folder


def make(folder, name, X=None, floor=20, **options):
    path = write(folder / name, name, table(name) if X is None else X)
    source = StreamedSource.read(path, (), batched_table(path), SAMPLE)
    invitation = Invitation(site=name, address="localhost:1", authority="", key="")
    policy = SitePolicy(min_report=floor, **options)
    return SiteFolder.create(folder / f"state-{name}", invitation, source, COLUMNS, policy)


class OnDisk(PackedLink):
    """Sites that answer from their folders, each answer by an object of its own."""

    def __init__(self, folder, run="run-1", **parameters):
        super().__init__(NAMES)
        self.folder, self.run, self.said = folder, run, {}
        self.asked = json.dumps({"aggregator": "consensus", "parameters": parameters, "estimator": {"name": "asm"}})

    def carry(self, exchange, down):
        replies, missing = {}, {}
        for site, messages in down.items():
            try:
                replies[site] = answer(self.folder / f"state-{site}", self.run, exchange, self.asked, messages)[0]
            except KoncordError as error:
                missing[site] = self.said[site] = str(error)
        return Carried(replies=replies, missing=missing)


def federated(link, aggregator=None, **given):
    usual = {"seed": 1, "standardize": True, "preparation": Preparation(), "settings": {}}
    return run_federation(link, aggregator or koncord.Consensus(), **{**usual, **given})


def in_one_process(folder, floor=20, **given):
    sources = {name: StreamedSource.load(folder / f"state-{name}").table for name in NAMES}
    link = in_process(
        {},
        estimator=estimator_named("asm"),
        aggregator=koncord.Consensus(),
        policy=SitePolicy(min_report=floor),
        streamed=sources,
    )
    return federated(link, **given)


def assert_same(one, other):
    np.testing.assert_array_equal(one.centers, other.centers)
    np.testing.assert_array_equal(one.holdings, other.holdings)
    assert one.gaussians == other.gaussians


@pytest.mark.parametrize("floor", [1, 20])
@pytest.mark.parametrize("given", [{}, {"preparation": None}])
def test_sites_on_disk_give_the_model_of_sites_in_memory(tmp_path, floor, given):
    for site in NAMES:
        make(tmp_path, site, floor=floor)
        assert not (tmp_path / f"state-{site}" / "table.npy").exists()
    ours = federated(OnDisk(tmp_path), **given)
    assert ours.n_clusters == 3
    assert_same(ours, in_one_process(tmp_path, floor, **given))
    for at, site in enumerate(NAMES):
        own = tmp_path / f"state-{site}"
        labels = [int(line.split(",")[1]) for line in (own / "runs/run-1/labels.csv").read_text().splitlines()[1:]]
        if floor == 1:  # else a few rows count with their neighbors
            assert np.bincount(labels, minlength=3).tolist() == ours.holdings[at].tolist()
        model = koncord.GlobalModel.load(own / "runs/run-1/model.koncord")
        np.testing.assert_array_equal(model.predict(table(site)), labels)
        assert read_ledger(own / f"{site}.ledger.jsonl")[-1].message == "setup.Holdings"


def test_what_was_answered_is_kept_for_the_next_run_and_the_next_join(tmp_path):
    for site in NAMES:
        make(tmp_path, site)
    first = federated(OnDisk(tmp_path))
    kept = [(joint_folder(tmp_path / f"state-{site}") / SORTINGS).read_bytes() for site in NAMES]
    for site in NAMES:
        make(tmp_path, site)  # as koncord join does when it is started again
    assert_same(federated(OnDisk(tmp_path, "run-2")), first)
    assert [(joint_folder(tmp_path / f"state-{site}") / SORTINGS).read_bytes() for site in NAMES] == kept
    federated(OnDisk(tmp_path, "run-3"), seed=9)
    other = federated(OnDisk(tmp_path, "run-4"), preparation=Preparation(fence=False))
    assert other.n_clusters == 3


def sizes_of_cells(folder, X):
    source = StreamedSource.load(folder)
    store = SortingsFile(joint_folder(folder))
    rows = streamed_rows(source.table, setup.shaping_of(store.first_asked(b""), COLUMNS), store)
    cells = store.update(rows, lambda before: before)
    return cells, np.bincount(cells.of_rows(X), minlength=len(cells.counts))


def test_no_cell_of_all_runs_together_is_below_the_floor(tmp_path):
    tables = {site: table(site, apart=3.0) for site in NAMES}
    for site, X in tables.items():
        make(tmp_path, site, X, floor=5)
    given = {"min_report": 5}
    for at in range(3):
        federated(OnDisk(tmp_path, f"run-{at}", **given), aggregator=koncord.Consensus(**given), seed=at)
    for site in NAMES:
        cells, sizes = sizes_of_cells(tmp_path / f"state-{site}", tables[site])
        assert len(cells.sortings) == 1  # the first run cut them for good
        assert len(sizes) > 10
        assert sizes.min() >= 5
        np.testing.assert_array_equal(sizes, cells.counts)
        assert (cells.rarer % 3 == 0).all()


def test_a_table_that_changed_is_not_read(tmp_path):
    make(tmp_path, "north")
    make(tmp_path, "south")
    file = tmp_path / "north" / "0.parquet"
    os.utime(file, ns=(1, 1))
    link = OnDisk(tmp_path)
    federated(link)
    assert list(link.said) == ["north"]
    assert "has changed since this site joined" in link.said["north"]


@pytest.mark.parametrize("floor", [1, 20])
def test_another_table_takes_its_place_only_where_nothing_was_answered(tmp_path, floor):
    for site in NAMES:
        make(tmp_path, site, X=table(site, shift=3.0), floor=floor)
        make(tmp_path, site, floor=floor)
    federated(OnDisk(tmp_path))
    if floor == 1:
        make(tmp_path, "north", X=table("north")[1:], floor=floor)
        return
    with pytest.raises(NotAllowed, match="Another table than this one was answered from the state folder"):
        make(tmp_path, "north", X=table("north")[1:])
    invitation = Invitation(site="north", address="localhost:1", authority="", key="")
    with pytest.raises(NotAllowed, match="Another table than this one"):
        SiteFolder.create(tmp_path / "state-north", invitation, table("north"), COLUMNS, SitePolicy(min_report=20))


def test_it_takes_part_in_what_reads_rows_batch_by_batch_only(tmp_path):
    assert make(tmp_path, "north").methods == ("consensus",)
    with pytest.raises(ValueError, match="takes no part in kfed"):
        make(tmp_path, "south", methods=("consensus", "kfed"))
