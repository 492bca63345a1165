"""Tables that are read batch by batch: files, folders and engines, a sample, and what is refused."""

from pathlib import Path

import dask.dataframe
import duckdb
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from koncord.data import batches
from koncord.data.batches import BatchedTable, batched_table, sampled_table
from koncord.data.files import read_table
from koncord.errors import TableError
from koncord.types import FloatArray


@pytest.fixture(name="X")
def table_rows() -> FloatArray:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(size=(1000, 2)), rng.integers(0, 2, 1000)])


def arrow(X: FloatArray) -> pa.Table:
    return pa.table({"a": X[:, 0], "b": X[:, 1], "flag": X[:, 2].astype(np.int8)})


def folder(tmp_path: Path, X: FloatArray, kind: str) -> Path:
    (tmp_path / "site").mkdir()
    for at, part in enumerate(np.array_split(X, 3)):
        if kind == "parquet":
            pq.write_table(arrow(part), tmp_path / "site" / f"{at}.parquet", row_group_size=100)
        else:
            pyarrow.csv.write_csv(arrow(part), tmp_path / "site" / f"{at}.csv")
    return tmp_path / "site"


def read(table: BatchedTable) -> FloatArray:
    return np.concatenate(list(table.batches()))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_is_one_table_in_the_order_of_its_files(tmp_path: Path, X: FloatArray, kind: str) -> None:
    table = batched_table(folder(tmp_path, X, kind))
    assert (table.name, table.columns) == ("site", ("a", "b", "flag"))
    assert np.array_equal(read(table), X)
    assert np.array_equal(read(table), X)  # and again
    assert table.n_rows == (1000 if kind == "parquet" else None)


def test_a_file_reads_as_it_does_whole(tmp_path: Path, X: FloatArray) -> None:
    pyarrow.csv.write_csv(arrow(X), tmp_path / "t.csv")
    whole = read_table(tmp_path / "t.csv", drop=["b"])
    table = batched_table(tmp_path / "t.csv", drop=["b"])
    assert table.columns == whole.columns
    assert np.array_equal(read(table), whole.X)


def test_engines_give_the_same_rows(X: FloatArray, tmp_path: Path) -> None:
    path = folder(tmp_path, X, "parquet")
    sources = [arrow(X), pyarrow.dataset.dataset(path), lambda: arrow(X).to_reader()]
    for source in sources:
        assert np.array_equal(read(batched_table(source, columns=["b", "a"])), X[:, [1, 0]])


def test_duckdb_pushes_the_columns_down(X: FloatArray, tmp_path: Path) -> None:
    path = folder(tmp_path, X, "parquet")
    relation = duckdb.sql(f"select *, a + b as total from '{path}/*.parquet' where flag = 1")
    table = batched_table(relation, name="north", drop=["flag"])
    assert table.columns == ("a", "b", "total")
    kept = X[X[:, 2] == 1]
    for _ in range(2):
        assert np.allclose(read(table), np.column_stack([kept[:, :2], kept[:, 0] + kept[:, 1]]))


def test_dask_is_read_partition_by_partition(X: FloatArray) -> None:
    frame = dask.dataframe.from_pandas(pandas.DataFrame(X[:, :2], columns=["a", "b"]), npartitions=4)
    assert np.array_equal(read(batched_table(frame)), X[:, :2])


def test_a_reader_that_can_be_read_once_is_refused(X: FloatArray) -> None:
    with pytest.raises(TypeError, match="read once"):
        batched_table(arrow(X).to_reader())
    with pytest.raises(TypeError, match="got int"):
        batched_table(3)


def test_the_sample_does_not_depend_on_the_batches(
    tmp_path: Path, X: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, X, "parquet")
    first = sampled_table(batched_table(path), 100)
    monkeypatch.setattr(batches, "STREAMED_VALUES", 50)
    second = sampled_table(batched_table(path), 100)
    assert np.array_equal(first.sample, second.sample)
    assert first.sample.shape == (100, 3)
    places = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in first.sample]
    assert places == sorted(set(places))  # each row once, in their order
    assert 350 < np.mean(places) < 650
    assert first.n_rows == second.n_rows == 1000
    assert not first.is_whole


def test_every_row_is_drawn_about_as_often() -> None:
    X = np.arange(60.0)[:, None]
    drawn = np.zeros(60)
    for seed in range(200):
        found = sampled_table(batched_table(pa.table({"a": X[:, 0]}), name=f"site {seed}"), 15)
        drawn[found.sample[:, 0].astype(int)] += 1
    assert ((drawn - 50) ** 2 / 37.5).sum() < 110  # 59 degrees of freedom


def test_two_valued_columns_are_counted_in_all_rows(X: FloatArray) -> None:
    found = sampled_table(batched_table(arrow(X)), 10)
    ones = int(X[:, 2].sum())
    assert np.isnan(found.pairs[:, :2]).all()
    assert found.pairs[:, 2].tolist() == ([0.0, 1.0] if ones <= 500 else [1.0, 0.0])
    assert found.n_rarer.tolist() == [0, 0, min(ones, 1000 - ones)]
    late = X.copy()
    late[990, 2] = 7  # a third value that no sample need show
    assert np.isnan(sampled_table(batched_table(arrow(late)), 10).pairs).all()


def test_a_small_table_is_its_own_sample(X: FloatArray) -> None:
    found = sampled_table(batched_table(arrow(X)), 1000)
    assert found.is_whole
    assert np.array_equal(found.sample, X)


@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "row 801 is missing"), (np.inf, "row 801 is inf"), (1e200, "row 801 is 1e\\+200")]
)
def test_what_is_no_number_is_named_by_its_row(X: FloatArray, value: float, said: str) -> None:
    X[800, 1] = value
    with pytest.raises(TableError, match=f"value of 'b' in {said}"):
        sampled_table(batched_table(arrow(X)), 10)


def test_na_is_missing(X: FloatArray) -> None:
    X[:, 0] = np.round(X[:, 0], 2)
    X[5, 0] = -999
    with pytest.raises(TableError, match="'a' in row 6 is missing"):
        sampled_table(batched_table(arrow(X), na=["-999"]), 10)


def test_folders_that_are_no_table_are_refused(tmp_path: Path, X: FloatArray) -> None:
    with pytest.raises(ValueError, match="without Parquet or CSV"):
        batched_table(tmp_path)
    path = folder(tmp_path, X, "parquet")
    (path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"notes\.txt"):
        batched_table(path)
    (path / "notes.txt").unlink()
    pq.write_table(arrow(X).select(["a"]), path / "9.parquet")
    with pytest.raises(TableError, match="lacks 'b' and 'flag'"):
        sampled_table(batched_table(path), 10)
    with pytest.raises(ValueError, match="not read batch by batch"):
        batched_table(tmp_path / "x.npy")


def test_text_is_refused_and_dates_are_left_out(tmp_path: Path, X: FloatArray) -> None:
    table = arrow(X).append_column("ward", pa.array(["north", "south"] * 500))
    with pytest.raises(TableError, match="ward"):
        batched_table(table)
    dated = arrow(X).append_column("day", pa.array(np.arange(1000).astype("datetime64[D]")))
    assert batched_table(dated).columns == ("a", "b", "flag")
    assert "day" in batched_table(dated).left_out[0]


def test_a_table_that_changes_between_passes_is_noticed(tmp_path: Path, X: FloatArray) -> None:
    path = folder(tmp_path, X, "parquet")
    found = sampled_table(batched_table(path), 10)
    pq.write_table(arrow(X), path / "9.parquet")
    found = sampled_table(batched_table(path), 10)
    (path / "9.parquet").unlink()
    pq.write_table(arrow(X[:5]), path / "9.parquet")
    with pytest.raises(TableError, match="1,005 now"):
        list(found.batches())
