import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.metrics import adjusted_rand_score

import koncord_reproduction.cli.partition
from koncord.data.files import read_table
from koncord_reproduction import partition
from koncord_reproduction.labeled import LabeledTable, read_labeled

ONE_LINE = re.compile(r"koncord: [^\n]+\n")
SPECIES = ("setosa", "versicolor", "virginica", "virginica, late")
CALL = ("partition", "flowers.csv", "--label", "species", "--clients", "4", "--out", "sites")


@pytest.fixture
def flowers(tmp_path, monkeypatch, blobs):
    """flowers.csv with four species around centers far apart, in a folder one is in; returns X and y."""
    monkeypatch.chdir(tmp_path)
    X, y = blobs([[0, 0, 0], [40, 0, 0], [0, 40, 0], [0, 0, 40]], n_each=250)
    order = np.random.default_rng(1).permutation(len(y))
    X, y = X[order].round(3), y[order]
    write("flowers.csv", ["length", "width", "species", "weight"], [*X[:, :2].T, [SPECIES[at] for at in y], X[:, 2]])
    return X, y


def write(path, names, columns, delimiter=","):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, delimiter=delimiter)
        lines.writerow(names)
        lines.writerows(zip(*columns, strict=True))


def lines_of(path, delimiter=","):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


# --- what is written ---


@pytest.mark.parametrize("regime", ["A", "B"])
def test_each_site_has_the_rows_the_library_deals_it_and_no_label(flowers, result, regime):
    _, y = flowers
    printed = result(*CALL, "--regime", regime, "--seed", "7")
    head, *rows = lines_of("flowers.csv")
    parts = partition(y, 4, regime, 7)
    assert list(printed["sites"]) == [f"site-{at}" for at in range(1, 5)]
    for (site, held), part in zip(printed["sites"].items(), parts, strict=True):
        files = printed["files"][site]
        assert files == {"table": f"sites/{site}.csv", "labels": f"sites/labels/{site}.csv"}
        wanted = [[*rows[at][:2], rows[at][3]] for at in part]
        assert lines_of(files["table"]) == [[*head[:2], head[3]], *wanted]
        assert lines_of(files["labels"]) == [["species"], *([rows[at][2]] for at in part)]
        assert held["rows"] == len(part)
        assert held["classes"] == {SPECIES[c]: int((y[part] == c).sum()) for c in np.unique(y[part])}
    assert (printed["rows"], printed["rows_used"]) == (1000, sum(map(len, parts)))
    assert (printed["rows_used"] == 1000) == (regime == "A")


def test_the_folder_holds_the_sites_the_labels_and_the_record(flowers, result):
    printed = result(*CALL)
    sites = [f"site-{at}.csv" for at in range(1, 5)]
    assert set(contents("sites")) == {*sites, *(f"labels/{site}" for site in sites), "partition.json"}
    record = json.loads(Path("sites/partition.json").read_text(encoding="utf-8"))
    assert record == {key: value for key, value in printed.items() if key not in ("out", "files")}
    assert (record["file"], record["label"], record["regime"], record["seed"]) == ("flowers.csv", "species", "A", 0)
    assert record["classes"] == list(SPECIES)


def test_the_text_is_a_table_of_sites_and_tells_the_next_step(flowers, run):
    code, out, err = run(*CALL)
    assert (code, err) == (0, "")
    assert out.startswith("flowers.csv: 4 classes of 'species' dealt to 4 sites (regime A, seed 0)\n")
    assert re.search(r"^ +site +rows +classes$", out, re.MULTILINE)
    assert len(re.findall(r"^ +site-\d +\d+ +[23]  \w+", out, re.MULTILINE)) == 4
    assert "rows used: 1,000 of 1,000" in out
    assert out.endswith("next:      koncord fit sites/*.csv --out run\n")


def test_small_sites_are_pointed_out(flowers, run):
    head, *rows = lines_of("flowers.csv")
    write("few.csv", head, zip(*rows[:200], strict=True))
    _, out, _ = run("partition", "few.csv", "--label", "species", "--clients", "4", "--out", "sites")
    assert re.search(r"small: +.*site-\d.* below 100 rows", out)


def test_names_of_many_sites_sort_in_their_order(flowers, result):
    sites = list(result(*CALL[:4], "--clients", "12", "--out", "sites")["sites"])
    assert (sites[0], sites[-1]) == ("site-01", "site-12")
    assert sites == sorted(sites)


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(flowers, run):
    for out, seed in (("one", "3"), ("two", "3"), ("other", "4")):
        run(*CALL[:-1], out, "--seed", seed)
    assert contents("one") == contents("two")
    assert contents("one") != contents("other")


# --- what goes in, goes out ---


def test_values_stay_as_they_were_written(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    texts = ["0.10", "1e3", "-0.00", "007", "12345678901234567890", "0.1000000000000000055"]
    write("t.tsv", ["a", "odd\tname", "kind"], [texts * 40, texts[::-1] * 40, ["p", "q", "r"] * 80], delimiter="\t")
    assert run("partition", "t.tsv", "--label", "kind", "--clients", "3", "--out", "out")[0] == 0
    found = [line for at in (1, 2, 3) for line in lines_of(f"out/site-{at}.tsv", "\t")[1:]]
    assert sorted(found) == sorted([a, b] for a, b in zip(texts * 40, texts[::-1] * 40, strict=True))
    assert lines_of("out/site-1.tsv", "\t")[0] == ["a", "odd name"]  # a tab in a name would disturb a terminal


def test_a_file_without_header_names_its_columns_by_place(flowers, result):
    Path("bare.csv").write_text("".join(f"{a},{a + 1},{'xyz'[a % 3]}\n" for a in range(300)), encoding="utf-8")
    files = result("partition", "bare.csv", "--label", "x2", "--clients", "3", "--out", "sites")["files"]
    assert lines_of(files["site-1"]["table"])[0] == ["x0", "x1"]
    assert lines_of(files["site-1"]["labels"])[0] == ["x2"]


def test_parquet_stays_parquet_with_its_types(flowers, result):
    X, y = flowers
    columns = {"a": pa.array(X[:, 0].astype("f4")), "n": pa.array(np.arange(1000)), "__index_level_0__": range(1000)}
    label = pa.array([SPECIES[at] for at in y]).dictionary_encode()
    parquet.write_table(pa.table({**columns, "kind": label}), "t.parquet", row_group_size=100)
    files = result("partition", "t.parquet", "--label", "kind", "--clients", "4", "--out", "sites")["files"]
    for site, part in zip(files.values(), partition(y, 4), strict=True):
        table = parquet.read_table(site["table"])
        assert [str(kind) for kind in table.schema.types] == ["float", "int64"]
        assert table.column("n").to_pylist() == part.tolist()
        assert parquet.read_table(site["labels"]).column("kind").to_pylist() == [SPECIES[y[at]] for at in part]
    assert Path("sites/site-1.parquet").exists()


@pytest.mark.parametrize("write_label", [str, lambda label: f"{label}.0", lambda label: f" {label}"])
def test_labels_that_are_numbers_are_in_the_order_of_numbers(tmp_path, write_label):
    y = np.tile([10, 9, 2], 40)
    write(tmp_path / "t.csv", ["x", "k"], [range(120), [write_label(label) for label in y]])
    labeled = read_labeled(tmp_path / "t.csv", "k")
    assert labeled.classes == ("2", "9", "10")
    assert labeled.y.tolist() == np.unique(y, return_inverse=True)[1].tolist()


def test_long_integers_are_not_rounded_into_one_class(tmp_path):
    labels = ["9007199254740992", "9007199254740993", "123456789012345678901234567890"] * 40
    write(tmp_path / "t.csv", ["x", "k"], [range(120), labels])
    assert read_labeled(tmp_path / "t.csv", "k").classes == tuple(labels[:3])


def test_columns_can_be_left_out(flowers, result):
    files = result(*CALL, "--drop", "width,weight")["files"]
    assert lines_of(files["site-1"]["table"])[0] == ["length"]


# --- into a federation ---


def test_the_files_of_the_sites_go_straight_into_fit_and_the_labels_score_it(flowers, run, result):
    run(*CALL, "--seed", "1")
    files = sorted(str(path) for path in Path("sites").glob("*.csv"))
    fitted = result("fit", *files, "--out", "run")
    assert fitted["n_clusters"] == 4
    truth = {
        site: len(held["classes"])
        for site, held in json.loads(Path("sites/partition.json").read_text())["sites"].items()
    }
    assert {site: held["local_count"] for site, held in fitted["sites"].items()} == truth
    found, known = [], []
    for site in truth:
        found += [line[1] for line in lines_of(f"run/labels/{site}.csv")[1:]]
        known += [line[0] for line in lines_of(f"sites/labels/{site}.csv")[1:]]
    assert adjusted_rand_score(known, found) == 1.0


def test_a_parquet_partition_goes_into_fit_too(flowers, result):
    X, y = flowers
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "k": y}), "t.parquet")
    files = result("partition", "t.parquet", "--label", "k", "--clients", "3", "--out", "sites")["files"]
    assert result("fit", *(site["table"] for site in files.values()), "--out", "run")["n_clusters"] == 4


# --- whole or not at all ---


def test_a_folder_that_is_not_empty_is_replaced_by_force_only(flowers, run):
    Path("sites").mkdir()
    Path("sites/mine.txt").write_text("words")
    code, _, err = run(*CALL)
    assert (code, contents("sites")) == (2, {"mine.txt": b"words"})
    assert "is not empty" in err
    assert run(*CALL, "--force")[0] == 0
    assert "mine.txt" not in contents("sites")
    assert "site-1.csv" in contents("sites")


def test_force_never_takes_the_table_itself(flowers, run):
    Path("sites").mkdir()
    Path("flowers.csv").rename("sites/flowers.csv")
    code, _, err = run("partition", "sites/flowers.csv", *CALL[2:], "--force")
    assert code == 2
    assert "lies in the folder 'sites' that --out replaces" in err
    assert list(contents("sites")) == ["flowers.csv"]


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing_and_harms_nothing(flowers, run, monkeypatch, trouble):
    run(*CALL)
    before = contents("sites")
    write_part = LabeledTable.write

    def fail(self, rows, site, labels):
        if site.name == "site-3":
            raise trouble
        write_part(self, rows, site, labels)

    monkeypatch.setattr(LabeledTable, "write", fail)
    code, _, err = run(*CALL, "--force", "--seed", "9")
    assert code == (130 if isinstance(trouble, KeyboardInterrupt) else 1)
    assert ONE_LINE.fullmatch(err)
    assert contents("sites") == before
    assert {path.name for path in Path().iterdir()} == {"flowers.csv", "sites"}


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_killed_run_leaves_no_folder(flowers):
    program = """
import time
from koncord.cli import main
from koncord_reproduction.labeled import LabeledTable
write = LabeledTable.write
def slow(self, rows, site, labels):
    write(self, rows, site, labels)
    print(site.name, flush=True)
    time.sleep(30)
LabeledTable.write = slow
main("partition flowers.csv --label species --clients 4 --out sites".split())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as running:
        assert running.stdout.readline() == "site-1\n"
        running.send_signal(signal.SIGKILL)
    time.sleep(0.05)
    assert not Path("sites").exists()


# --- what is wrong ---


def labels_only(labels):
    def make():
        write("t.csv", ["x", "k"], [range(len(labels)), labels])

    return make


@pytest.mark.parametrize(
    ("make", "options", "code", "line"),
    [
        (
            labels_only(["a", "b", "c"] * 50),
            ("--label", "kind"),
            2,
            "'t.csv' has no column 'kind'; it has 'x' and 'k'.",
        ),
        (labels_only(["a"] * 90), (), 2, "Column 'k' of 't.csv' holds 1 class; at least 3 are needed"),
        (labels_only(["a", "b"] * 90), (), 2, "Column 'k' of 't.csv' holds 2 classes; at least 3 are needed"),
        (
            labels_only(["a", "b", "c"] * 50 + ["d", "e"]),
            (),
            2,
            "Column 'k' of 't.csv' has 2 classes with one row, 'd' and 'e'; every class needs rows for two sites.",
        ),
        (labels_only(["a", "b", "c"] * 3), ("--clients", "9"), 2, "too few rows, 9 of 3 classes, to give each of 9"),
        (
            labels_only(["a", "b", "", "NA"] * 50),
            (),
            1,
            "Column 'k' of 't.csv' has 100 missing labels, the first in row 3",
        ),
        (labels_only(["a", "b", "c"] * 50), ("--clients", "1"), 2, "--clients must be at least 2; got 1."),
        (labels_only(["a", "b", "c"] * 50), ("--clients", "many"), 2, "argument --clients: invalid int value: 'many'"),
        (labels_only(["a", "b", "c"] * 50), ("--drop", "x"), 2, "No column of 't.csv' is left to read"),
        (
            labels_only(["a", "b", "c"] * 50),
            ("--drop", "k"),
            2,
            "'k' is the column of labels, so it cannot be dropped.",
        ),
        (labels_only(["a", "b", "c"] * 50), ("--regime", "C"), 2, "argument --regime: invalid choice: 'C'"),
        (labels_only(["a", "b", "c"] * 50), ("--out", "no/where"), 2, "The folder 'no' of --out does not exist"),
        (lambda: None, (), 2, "'t.csv' does not exist; check the name and the folder."),
        (
            lambda: write("t.csv", ["x", "sex", "k"], [range(90), ["f", "m", "i"] * 30, range(90)]),
            (),
            1,
            "'t.csv' has 1 column that is not numbers: 'sex' (text, row 1: 'f'); leave it out with --drop sex.",
        ),
        (
            lambda: write("t.csv", ["x", "k", "k"], [range(90), "abc" * 30, "abc" * 30]),
            (),
            1,
            "more than one column called 'k'",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(flowers, run, make, options, code, line):
    make()
    given = dict(zip(options[::2], options[1::2], strict=True))
    call = {"--label": "k", "--clients": "3", "--out": "out", **given}
    found, out, err = run("partition", "t.csv", *(word for pair in call.items() for word in pair))
    assert (found, out) == (code, "")
    assert ONE_LINE.fullmatch(err)
    assert line in err
    assert not Path("out").exists()


def test_arrays_have_no_column_of_labels(flowers, run):
    np.save("t.npy", np.zeros((9, 2)))
    code, _, err = run("partition", "t.npy", "--label", "x0", "--clients", "3", "--out", "out")
    assert code == 2
    assert "'t.npy' has no column of labels; a labeled table ends in .csv, .tsv, .parquet or .pq." in err


def test_missing_labels_in_parquet_are_refused_whatever_their_type(flowers, run):
    for column in (pa.array([1.0, float("nan"), None] * 30), pa.array(["a", None, "b"] * 30), pa.nulls(90)):
        parquet.write_table(pa.table({"x": range(90), "k": column}), "t.parquet")
        code, _, err = run("partition", "t.parquet", "--label", "k", "--clients", "3", "--out", "out")
        assert code == 1
        assert "missing labels, the first in row" in err


# --- help ---


def examples():
    lines = koncord_reproduction.cli.partition.EPILOG.split("then:")[0].splitlines()
    return [line.split() for line in lines if line.startswith("  koncord ")]


@pytest.mark.parametrize("example", examples(), ids=" ".join)
def test_the_examples_of_the_help_work(flowers, run, example):
    code, out, err = run(*example[1:])
    assert (code, err) == (0, "")
    assert out
    assert read_table("sites/site-1.csv").columns == ("length", "width", "weight")
