"""A site whose table is read batch by batch: it answers as one that holds its table."""

import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dask.dataframe
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

import koncord
from koncord.aggregate.consensus import Report
from koncord.cli import main
from koncord.data import batches
from koncord.data.batches import SampledTable, batched_table, sampled_table
from koncord.data.files import read_table
from koncord.errors import TableError
from koncord.estimate.asm import ASM
from koncord.prepare.settings import Preparation
from koncord.privacy.budget import Budget
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.runs import assignments
from koncord.runs.assignments import as_csv, labeled, labeled_batches, write_labels
from koncord.session.federation import run
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.streamedsite import StreamedSite
from koncord.types import FloatArray, IntArray

COLUMNS = ("a", "b", "c", "flag")


def rows(seed: int, n: int = 900) -> tuple[FloatArray, IntArray]:
    """Three clusters, a skewed column, a column with two values that are rarely the other one."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) + 8 * np.column_stack([y == 1, y == 2])
    return np.column_stack([X, np.exp(0.3 * rng.normal(size=n) + 2 * y), rng.random(n) < 0.03]), y


def streamed(X: FloatArray, n_sample: int, name: str = "north") -> SampledTable:
    table = pa.table({column: X[:, at] for at, column in enumerate(COLUMNS[: X.shape[1]])})
    return sampled_table(batched_table(table, name=name), n_sample)


def asked(site: Site, message: Any, round_: int = 0) -> Any:
    kinds = (*setup.REPLIES.values(), *koncord.Consensus.replies.values())
    return unpack(site.answer(pack(message, round_=round_)), kinds)[0]


def both(X: FloatArray, **given: Any) -> list[Site]:
    method = {"estimator": ASM(), "aggregator": koncord.Consensus()}
    return [
        Site("north", X, COLUMNS, **method, **given),
        StreamedSite("north", streamed(X, len(X)), **method, **given),
    ]


def assert_same(one: Any, other: Any) -> None:
    for each in fields(one):
        mine, theirs = getattr(one, each.name), getattr(other, each.name)
        if each.name == "axes":  # up to their sign
            mine, theirs = mine.T @ mine, theirs.T @ theirs
        if isinstance(mine, np.ndarray):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6, err_msg=each.name)
        else:
            assert mine == theirs, each.name


@pytest.mark.parametrize("floor", [1, 20])
def test_with_all_rows_as_its_sample_it_sends_what_a_site_sends(floor: int) -> None:
    """Clusters of Gaussians, in which no row dominates its neighbors: one is moved in memory only."""
    X, _ = rows(0)
    X[:, 2] = np.random.default_rng(1).normal(size=len(X))
    sites = both(X, policy=SitePolicy(min_report=floor))
    numbers = COLUMNS
    measure = setup.Measure(
        columns=numbers, means=X.mean(axis=0), scales=X.std(axis=0), low=np.full(4, -9.0), high=np.full(4, 9.0)
    )
    prepare = setup.Prepare(
        seed=1, columns=numbers, means=X.mean(axis=0), scales=X.std(axis=0), low=measure.low, high=measure.high
    )
    centers = (np.array([[0, 0, 0, 0], [8, 0, 0, 0], [0, 8, 0, 0]]) - X.mean(axis=0)) / X.std(axis=0)
    messages = [setup.Survey(), measure, prepare, Report(min_report=20)]
    for round_, message in enumerate([*messages, setup.Attribute(centers=centers)]):
        assert_same(*(asked(site, message, max(round_ - 2, 0)) for site in sites))


def test_without_a_preparation_it_describes_all_rows() -> None:
    X, _ = rows(1)
    whole, part = both(X)
    sample = StreamedSite("north", streamed(X, 100), estimator=ASM(), aggregator=koncord.Consensus())
    assert_same(asked(whole, setup.Describe()), asked(part, setup.Describe()))
    mine = asked(sample, setup.Describe())
    assert mine.count == 900
    np.testing.assert_allclose(mine.means, X.mean(axis=0), atol=0.05)
    with pytest.raises(koncord.errors.MessageError, match="scale on which its rows are no numbers"):
        asked(sample, setup.Prepare(seed=1, columns=COLUMNS, means=np.zeros(4), scales=np.full(4, 1e-300)))


def test_a_few_rows_of_many_give_the_clusters_of_all() -> None:
    found, truth = {}, {}
    for at, name in enumerate(("north", "south", "west")):
        X, truth[name] = rows(at, 1200)
        found[name] = X[:, :3]
    aggregator = koncord.Consensus()
    results = []
    for n_sample in (None, 400):
        tables = {name: (X, COLUMNS[:3]) for name, X in found.items() if n_sample is None}
        by_batches = {name: streamed(X, n_sample, name) for name, X in found.items() if n_sample is not None}
        link = in_process(tables, estimator=ASM(), aggregator=aggregator, streamed=by_batches, n_jobs=2)
        results.append(
            run(
                link,
                aggregator,
                estimator=ASM(),
                seed=0,
                standardize=True,
                preparation=Preparation(),
                site_policy=SitePolicy(),
            ).model
        )
    whole, sampled = results
    assert whole.n_clusters == sampled.n_clusters == 3
    assert sampled.plan.is_logged.tolist() == [False, False, True]
    np.testing.assert_allclose(sampled.plan.means, whole.plan.means, atol=0.02)
    for name, X in found.items():
        assert adjusted_rand_score(truth[name], sampled.predict(X)) > 0.98
    assert sampled.holdings.sum() == 3600
    assert (sampled.holdings >= 20).all()


def test_every_micro_cluster_holds_the_floor_on_all_rows() -> None:
    X, _ = rows(3, 2000)
    site = StreamedSite("north", streamed(X, 60), estimator=ASM(), aggregator=koncord.Consensus())
    asked(site, setup.Describe())
    asked(site, setup.Prepare(seed=0, columns=COLUMNS, means=np.zeros(4), scales=np.ones(4), asks_local_k=False))
    sent = asked(site, Report(min_report=20), 1)
    assert sent.counts.min() >= 20
    assert sent.counts.sum() == 2000
    np.testing.assert_allclose(sent.counts @ sent.means / 2000, site.cells.rows.coded(X).mean(axis=0), atol=0.01)


def test_no_pass_holds_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak of NumPy's memory, of which Python keeps account: less than half of a small table."""
    monkeypatch.setattr(batches, "STREAMED_VALUES", 1 << 15)
    X = np.random.default_rng(0).normal(size=(200_000, 8))
    pq.write_table(pa.table({f"c{at}": X[:, at] for at in range(8)}), tmp_path / "t.parquet", row_group_size=10_000)
    size = X.nbytes
    del X
    tracemalloc.start()
    table = sampled_table(batched_table(tmp_path / "t.parquet"), 1000)
    site = StreamedSite("t", table, estimator=ASM(), aggregator=koncord.Consensus())
    asked(site, setup.Survey())
    asked(site, setup.Describe())
    columns = table.columns
    asked(site, setup.Prepare(seed=0, columns=columns, means=np.zeros(8), scales=np.ones(8), asks_local_k=False))
    asked(site, Report(min_report=20), 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 2
    assert site.n_passes == 5


def test_what_it_takes_no_part_in_is_refused() -> None:
    table = streamed(rows(0)[0], 100)
    with pytest.raises(ValueError, match="takes no part in fedgem"):
        StreamedSite("north", table, estimator=ASM(), aggregator=koncord.FedGEM(upsilon=1.0))
    budget = SitePolicy(budget=Budget(epsilon=1.0, delta=1e-6, bound=10.0))
    with pytest.raises(ValueError, match="privacy budget"):
        StreamedSite("north", table, estimator=ASM(), aggregator=koncord.Consensus(), policy=budget)


# --- the commands ---


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for at, name in enumerate(("north", "south")):
        X, _ = rows(at, 900)
        found[name] = tmp_path / name
        found[name].mkdir()
        for number, part in enumerate(np.array_split(X, 2)):
            table = pa.table({column: part[:, at] for at, column in enumerate(COLUMNS[:3])})
            pq.write_table(table, found[name] / f"{number}.parquet")
    return found


def test_fit_and_predict_take_folders(
    tmp_path: Path, sites: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    main(["fit", *map(str, sites.values()), "--sample-rows", "300", "--out", str(out)])
    said = capsys.readouterr().out
    assert "K = 3" in said
    assert "north was read batch by batch, in 7 passes over 900 rows" in said
    labels = (out / "labels" / "north.csv").read_text()
    assert labels.count("\n") == 901
    monkeypatch.setattr(assignments, "LINES_AT_ONCE", 128)
    for jobs in ("1", "3"):  # any number of them, and blocks of any size
        main(["predict", str(out), str(sites["north"]), "--jobs", jobs, "--out", str(tmp_path / "labels.csv")])
        assert (tmp_path / "labels.csv").read_text() == labels
    whole = pa.concat_tables([pq.read_table(each) for each in sorted(sites["north"].iterdir())])
    pq.write_table(whole, tmp_path / "whole.parquet")
    main(["predict", str(out), str(tmp_path / "whole.parquet"), "--out", str(tmp_path / "whole.csv")])
    assert (tmp_path / "whole.csv").read_text() == labels  # the same of a table that is held


def test_a_folder_that_fits_into_the_sample_gives_the_run_of_a_file(tmp_path: Path, sites: dict[str, Path]) -> None:
    for name, path in sites.items():
        whole = pa.concat_tables([pq.read_table(each) for each in sorted(path.iterdir())])
        pq.write_table(whole, tmp_path / f"{name}.parquet")
    main(["fit", *(f"{tmp_path}/{name}.parquet" for name in sites), "--out", str(tmp_path / "files")])
    main(["fit", *map(str, sites.values()), "--out", str(tmp_path / "folders")])
    for name in sites:
        one, other = (tmp_path / each / "labels" / f"{name}.csv" for each in ("files", "folders"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--aggregator", "kfed", "--clusters", "3"], "takes no part in kfed"),
        (["--categories", "a"], "--categories does not go with"),
        (["--epsilon", "1", "--delta", "1e-6", "--bound", "9"], "privacy budget"),
    ],
)
def test_options_that_need_a_table_in_memory_are_refused(
    tmp_path: Path, sites: dict[str, Path], capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["fit", *map(str, sites.values()), "--out", str(tmp_path / "run"), *options]) != 0
    assert said in capsys.readouterr().err


def test_gaps_are_refused_at_a_site_and_filled_by_the_model(tmp_path: Path, sites: dict[str, Path]) -> None:
    main(["fit", *map(str, sites.values()), "--out", str(tmp_path / "run")])
    table = pq.read_table(sites["south"] / "0.parquet").to_pydict()
    table["b"][10] = None
    pq.write_table(pa.table(table), sites["south"] / "0.parquet")
    with pytest.raises(TableError, match="'b' in row 11 is missing"):
        sampled_table(batched_table(sites["south"]), 300)
    assert main(["predict", str(tmp_path / "run"), str(sites["south"]), "--out", str(tmp_path / "l.csv")]) == 0
    assert (tmp_path / "l.csv").read_text().count("\n") == 901


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's call of pandas
def test_python_takes_folders_and_engines(
    tmp_path: Path, sites: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "SAMPLE_ROWS", 300)
    found = koncord.fit({name: str(path) for name, path in sites.items()}, random_state=0, progress=False)
    assert found.n_clusters_ == 3
    assert [len(labels) for labels in found.labels_] == [900, 900]
    engines = (
        pyarrow.dataset.dataset,
        lambda path: duckdb.read_parquet(f"{path}/*.parquet"),
        lambda path: dask.dataframe.read_parquet(path),
    )
    for opened in engines:
        tables = {name: opened(path) for name, path in sites.items()}
        same = koncord.FederatedClustering(random_state=0).fit(tables)
        for one, other in zip(found.labels_, same.labels_, strict=True):
            assert np.array_equal(one, other)
    assert adjusted_rand_score(rows(0, 900)[1], found.labels_[0]) > 0.98
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]


def test_rows_with_a_value_far_off_are_named_as_in_a_table_that_is_held(tmp_path: Path) -> None:
    """Also where a crowd of them, over all batches, is no outlier."""
    X, _ = rows(5, 1200)
    X = X[:, :3]
    X[7, 1] = X[1100, 1] = 300.0
    X[100:160, 0] = -5000.0  # a crowd
    table = pa.table(dict(zip(COLUMNS, X.T, strict=False)))
    (tmp_path / "north").mkdir()
    for part in range(4):
        pq.write_table(table.slice(300 * part, 300), tmp_path / "north" / f"{part}.parquet")
    pq.write_table(table, tmp_path / "north.parquet")
    fitted = koncord.FederatedClustering(random_state=0).fit({"north": rows(6)[0][:, :3], "south": rows(7)[0][:, :3]})
    model = fitted.model_
    folder, held = batched_table(tmp_path / "north", columns=None), read_table(tmp_path / "north.parquet")
    names = dict(zip(held.columns, model.plan.columns, strict=True))
    model = replace(model, columns=held.columns, plan=replace(model.plan, columns=tuple(names)))
    whole = labeled(model, held)
    assert whole.outliers is not None
    assert {7, 1100} <= set(whole.outliers.rows.tolist())
    assert not set(range(100, 160)) & set(whole.outliers.rows.tolist())
    labels, far = labeled_batches(model, folder)
    with (tmp_path / "labels.csv").open("w+b") as file:
        found = write_labels(file, model, folder)
    assert (tmp_path / "labels.csv").read_text() == as_csv(whole)
    np.testing.assert_array_equal(labels, whole.labels)
    for own in (far, found.outliers):
        assert own is not None
        assert own.rows.tolist() == whole.outliers.rows.tolist()
        assert own.column.tolist() == whole.outliers.column.tolist()
        assert own.crowded == whole.outliers.crowded != {}
