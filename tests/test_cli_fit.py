"""koncord fit, predict, report and demo: driven in process and, where a process is the point, as one."""

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

import koncord
from koncord.cli import demo, fit, predict, report
from koncord.data.files import read_table

ONE_LINE = re.compile(r"koncord: [^\n]+\n")
COLUMNS = ("age", "stay", "pain")
CENTERS = np.array([[30, 2, 1.0], [50, 9, 5.0], [80, 4, 1.0]])
SPREADS = np.array([3.0, 0.7, 0.4])
HELD = {"north": (0, 1), "south": (1, 2), "west": (0, 2)}
FILES = ("north.csv", "south.csv", "west.csv")


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Three files in the working folder, each with two of three separated clusters; the tables by name."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    tables = {
        name: np.concatenate([CENTERS[at] + SPREADS * rng.normal(size=(60, 3)) for at in held])
        for name, held in HELD.items()
    }
    for name, X in tables.items():
        write_csv(f"{name}.csv", X)
    return tables


def write_csv(path, X, columns=COLUMNS):
    np.savetxt(path, X, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")


def labels_of(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def contents(folder):
    """Every file of a folder and its bytes."""
    folder = Path(folder)
    return (
        {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        if folder.is_dir()
        else None
    )


# --- what fit finds and writes ---


def test_json_holds_what_the_library_finds(sites, result):
    found = result("fit", *FILES, "--out", "run", "--seed", "3")
    clustering = koncord.FederatedClustering(koncord.ASM(), standardize=True, random_state=3).fit(sites)
    assert found["n_clusters"] == clustering.n_clusters_ == 3
    counts = dict(zip(clustering.sites_, clustering.local_counts_, strict=True))
    assert found["sites"] == {name: {"rows": 120, "local_count": counts[name]} for name in sites}
    assert found["info"] == json.loads(json.dumps(clustering.model_.info))
    assert found["weights"] == clustering.model_.weights.tolist()
    mean = np.average(clustering.model_.info["silhouettes"], weights=found["weights"])
    assert found["silhouette"] == pytest.approx(mean)
    assert found["seconds"] > 0
    assert (found["model"], found["report"], found["out"]) == ("run/model.koncord", "run/report.html", "run")
    saved = koncord.GlobalModel.load(found["model"])
    assert np.array_equal(saved.centers, clustering.model_.centers)
    for name, labels in zip(clustering.sites_, clustering.labels_, strict=True):
        assert found["labels"][name] == f"run/labels/{name}.csv"
        assert [int(row["cluster"]) for row in labels_of(found["labels"][name])] == labels.tolist()


def test_the_folder_holds_just_what_is_documented(sites, run):
    assert run("fit", *FILES, "--out", "run")[0] == 0
    expected = {
        "model.koncord",
        "run.json",
        "report.html",
        *(f"labels/{name}.csv" for name in sites),
    }
    assert set(contents("run")) == expected
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]
    asked = json.loads(Path("run/run.json").read_text())
    assert (asked["format"], asked["version"]) == ("koncord-run", 1)
    assert {departed["site"] for departed in asked["departures"]} == set(sites)


def test_labels_come_in_row_order_with_distance_and_runner_up_on_the_scaled_columns(sites, run):
    run("fit", *FILES, "--out", "run")
    model = koncord.GlobalModel.load("run/model.koncord")
    rows = labels_of("run/labels/north.csv")
    assert list(rows[0]) == ["row", "cluster", "distance", "runner_up", "runner_up_distance", "outlier"]
    assert [int(row["row"]) for row in rows] == list(range(1, 121))
    for row, x in list(zip(rows, sites["north"], strict=True))[::17]:
        z, shapes = (x - model.means) / model.scales, model.gaussians
        gaps = [shapes.axes @ (z - center) for center in model.centers]
        distances = [float(np.sqrt(g @ np.linalg.solve(C, g))) for g, C in zip(gaps, shapes.covariances, strict=True)]
        log_densities = [
            np.log(w) - np.linalg.slogdet(C)[1] / 2 - d**2 / 2
            for w, C, d in zip(shapes.weights, shapes.covariances, distances, strict=True)
        ]
        likeliest, second = np.argsort(log_densities)[::-1][:2]
        assert (int(row["cluster"]), int(row["runner_up"])) == (likeliest, second)
        assert float(row["distance"]) == pytest.approx(distances[likeliest], rel=1e-5)
        assert float(row["runner_up_distance"]) == pytest.approx(distances[second], rel=1e-5)


def test_the_text_tells_sites_clusters_and_where_the_page_is(sites, run):
    code, out, err = run("fit", *FILES, "--out", "run", "--local-counts")
    assert (code, err) == (0, "")
    assert out.startswith(
        "3 sites, 360 rows, 3 columns, standardized over the sites (--no-standardize to keep units)\n\nK = 3  (asm, "
    )
    assert re.search(r"^Each cluster is at least \d+\.\d from its nearest; ", out, re.MULTILINE)
    assert "strong" not in out
    assert re.search(r"^ +site +rows +local k +clusters held\n +north +120 +2 +2\n", out, re.MULTILINE)
    assert (
        len(
            re.findall(
                r"^ +\d +120 +33\.3% +2 +\d+\.\d from \d +(?:1\.00|0\.\d\d)  (?:high|low) \w+$", out, re.MULTILINE
            )
        )
        == 3
    )
    assert "run/report.html" in out


def test_phase_1_runs_only_where_it_is_used_or_asked_for(sites, run, result, monkeypatch):
    """The labels are the same; counts are there for a program, for --local-counts and for methods that need them."""
    calls = []
    fit = koncord.ASM.fit
    monkeypatch.setattr(koncord.ASM, "fit", lambda self, X, y=None: calls.append(len(X)) or fit(self, X))
    code, out, _ = run("fit", *FILES, "--out", "plain")
    assert (code, calls) == (0, [])
    assert "local k" not in out
    assert "Sites did not count their own components" in out
    assert "not counted" in Path("plain/report.html").read_text(encoding="utf-8")
    bare = result("fit", *FILES, "--out", "bare", "--no-local-counts")
    assert calls == []
    assert {site["local_count"] for site in bare["sites"].values()} == {None}
    found = result("fit", *FILES, "--out", "json")
    assert len(calls) == 3
    assert all(site["local_count"] == 2 for site in found["sites"].values())
    run("fit", *FILES, "--out", "kfed", "--aggregator", "kfed", "--clusters", "3")
    assert len(calls) == 6
    for name in sites:
        labels = {Path(out, "labels", f"{name}.csv").read_bytes() for out in ("plain", "bare", "json")}
        assert len(labels) == 1


def test_the_text_tells_an_upsilon_that_was_chosen(sites, run):
    _, out, _ = run("fit", *FILES, "--out", "run", "--aggregator", "fedgem")
    assert re.search(r"upsilon: [\d.]+, chosen without labels\. The 13 values tried give ", out)


def test_what_was_asked_is_recorded(sites, result):
    fedgem = ("--aggregator", "fedgem", "--set", "upsilon=0")
    found = result(
        "fit", *FILES, "--out", "run", *fedgem, "--no-standardize", "--drop", "pain", "--set", "merge_factor=0"
    )
    asked = json.loads(Path("run/run.json").read_text())
    assert asked["options"] == {"--set": "upsilon=0, merge_factor=0", "--drop": "pain"}
    result("fit", *FILES, "--out", "run", "--force", "--set", "min_report=30", "--min-support", "2")
    assert json.loads(Path("run/run.json").read_text())["options"] == {"--set": "min_report=30", "--min-support": 2}
    assert asked["is_standardized"] is found["standardized"] is False
    assert found["columns"] == ["age", "stay"]
    assert asked["files"] == {name: f"{name}.csv" for name in sites}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", asked["started"])


def test_what_left_each_site_is_counted_message_by_message(sites, run):
    run("fit", *FILES, "--out", "run", "--aggregator", "fedgem", "--set", "upsilon=1")
    departures = json.loads(Path("run/run.json").read_text())["departures"]
    north = [departed for departed in departures if departed["site"] == "north"]
    # Phase 1 and the first round share an exchange.
    assert [departed["exchange"] for departed in north] == [1, 2, 3, *range(3, 15)]
    kinds = ["Sketch", "Measured", "Prepared", *["Balls"] * 11, "Holdings"]
    assert [departed["message"] for departed in north] == kinds
    # One count, values and ends of three columns and four blocks of each; values, means, scatters and fenced values of
    # three columns; the local k; two balls of three numbers and a radius; three times k.
    assert [departed["numbers"] for departed in north] == [19, 12, 1, *[8] * 11, 9]
    assert all(departed["n_bytes"] > 8 * departed["numbers"] for departed in north)


@pytest.mark.parametrize(
    "options",
    [
        ("--aggregator", "kfed", "--clusters", "3"),
        ("--aggregator", "fedkmeans", "--clusters", "3"),
        ("--aggregator", "ffcm", "--clusters", "3"),
        ("--aggregator", "spahm"),
        ("--aggregator", "fedgem"),
        ("--aggregator", "consensus", "--set", "min_report=10", "--min-report", "10"),
        ("--estimator", "xmeans"),
        ("--estimator", "gmeans"),
        ("--estimator", "asm-identity", "--set", "max_components=50"),
    ],
    ids=" ".join,
)
def test_every_aggregator_and_estimator_finds_the_three_clusters(sites, result, options):
    found = result("fit", *FILES, "--out", "run", *options)
    assert found["n_clusters"] == 3
    assert sorted(found["weights"]) == pytest.approx([1 / 3] * 3)
    assert Path("run/report.html").stat().st_size > 10_000


def test_afcl_runs_when_disclosure_is_allowed_and_the_page_warns(sites, result):
    found = result(
        "fit",
        *FILES,
        "--out",
        "run",
        "--aggregator",
        "afcl",
        "--clusters",
        "6",
        "--allow-disclosure",
        "--min-report",
        "1",
    )
    assert 1 <= found["n_clusters"] <= 6
    page = Path("run/report.html").read_text()
    assert "can read rows" in page
    assert "AFCL disclosed every row to the server." in page


def test_the_order_of_the_files_and_of_their_columns_does_not_matter(sites, result):
    first = result("fit", *FILES, "--out", "run")
    before = contents("run/labels")
    write_csv("south.csv", sites["south"][:, [2, 0, 1]], columns=("pain", "age", "stay"))
    second = result("fit", *reversed(FILES), "--out", "again")
    assert contents("again/labels") == before
    assert first["info"] == second["info"]


def test_a_site_with_one_row_and_a_single_site_take_part(sites, result):
    write_csv("lone.csv", CENTERS[:1])
    found = result("fit", *FILES, "lone.csv", "--out", "run", "--min-report", "1")
    assert found["sites"]["lone"] == {"rows": 1, "local_count": 1}
    assert len(labels_of("run/labels/lone.csv")) == 1
    page = Path("run/report.html").read_text()
    assert "The mean of a single row is that row" in page
    alone = result("fit", "north.csv", "--out", "alone")
    assert alone["sites"] == {"north": {"rows": 120, "local_count": 2}}


def test_one_cluster_has_no_runner_up_and_no_silhouette(sites, result, blobs):
    for name in ("east", "middle"):
        write_csv(f"{name}.csv", blobs([[0, 0, 0]], n_each=80)[0])
    found = result("fit", "east.csv", "middle.csv", "--out", "run", "--aggregator", "kfed", "--clusters", "1")
    assert (found["n_clusters"], found["silhouette"]) == (1, None)
    row = labels_of("run/labels/east.csv")[0]
    assert (row["cluster"], row["runner_up"], row["runner_up_distance"]) == ("0", "", "")
    assert "does not tell how sure its clusters are" in Path("run/report.html").read_text()
    labels = result("predict", "run", "east.csv")
    assert labels["runner_ups"] is None


def test_no_row_of_the_input_is_in_what_a_run_leaves(sites, run):
    run("fit", *FILES, "--out", "run")
    numbers = r"[-\N{MINUS SIGN}]?\d+\.\d{4,}(?:e-?\d+)?"
    for file in ("run.json", "report.html"):
        written = {round(float(value), 3) for value in re.findall(numbers, Path("run", file).read_text())}
        for X in sites.values():
            matches = np.isin(X.round(3), list(written)).sum(axis=1)
            assert matches.max() < X.shape[1], file
    model = koncord.GlobalModel.load("run/model.koncord")
    kept = np.concatenate([model.centers, *model.components.values()]) * model.scales + model.means
    for X in sites.values():
        assert np.abs(X[:, None] - kept).max(axis=2).min() > 1e-3


# --- the folder: whole or not at all ---


def fail(*args, **kwargs):
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    "place",
    [
        "koncord.aggregate.consensus.choose",
        "koncord.runs.folder.csv_bytes",
        "koncord.report.page.page",
        "koncord.runs.record.RunRecord.save",
    ],
)
def test_a_run_that_fails_leaves_nothing_and_harms_nothing(sites, run, monkeypatch, place):
    run("fit", *FILES, "--out", "run")
    before, everything = contents("run"), contents(".")
    monkeypatch.setattr(place, fail)
    assert run("fit", *FILES, "--out", "fresh")[0] == 1
    assert run("fit", *FILES, "--out", "run", "--force")[0] == 1
    assert contents("run") == before
    assert contents(".") == everything
    assert sorted(path.name for path in Path().iterdir()) == sorted([*FILES, "run"])


def test_an_interrupt_while_writing_leaves_nothing(sites, run, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("koncord.report.page.page", interrupt)
    assert run("fit", *FILES, "--out", "run") == (130, "", "koncord: stopped.\n")
    assert sorted(path.name for path in Path().iterdir()) == sorted(FILES)


def test_what_was_there_comes_back_if_the_last_step_fails(sites, run, monkeypatch):
    run("fit", *FILES, "--out", "run")
    before = contents("run")
    rename = Path.rename

    def refuse(self, target):
        if Path(target).name == "run" and not self.name.endswith(".old"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    code, _, err = run("fit", *FILES, "--out", "run", "--force")
    assert (code, err) == (1, "koncord: No space left on device; the disk may be full.\n")
    assert contents("run") == before
    assert sorted(path.name for path in Path().iterdir()) == sorted([*FILES, "run"])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_folder(sites, end):
    program = """
import sys, time
from pathlib import Path
import koncord.cli, koncord.aggregate.consensus
def choose(*given, **named):
    print("working", flush=True)
    time.sleep(60)
koncord.aggregate.consensus.choose = choose
sys.exit(koncord.cli.main(["fit", "north.csv", "south.csv", "--out", "run"]))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        assert process.stdout.readline() == b"working\n"
        process.send_signal(end)
        assert process.wait(timeout=30) != 0
    assert sorted(path.name for path in Path().iterdir()) == sorted(FILES)


def test_a_folder_that_is_not_empty_is_replaced_by_force_only(sites, run):
    Path("run").mkdir()
    assert run("fit", *FILES, "--out", "run")[0] == 0
    Path("run/old.txt").write_text("old")
    before = contents("run")
    code, out, err = run("fit", *FILES, "--out", "run")
    assert (code, out) == (2, "")
    assert err == "koncord: The folder 'run' of --out is not empty; name another, or replace it by --force.\n"
    assert contents("run") == before
    assert run("fit", *FILES, "--out", "run", "--force")[0] == 0
    assert "old.txt" not in contents("run")
    assert set(contents("run")) == set(before) - {"old.txt"}


def test_force_never_takes_the_input_or_the_folder_one_is_in(sites, run):
    Path("data").mkdir()
    Path("north.csv").rename("data/north.csv")
    code, _, err = run("fit", "data/north.csv", "south.csv", "--out", "data", "--force")
    assert code == 2
    assert "'data/north.csv' lies in the folder 'data' that --out replaces" in err
    for out in (".", "..", "../.."):
        code, _, err = run("fit", "south.csv", "--out", out, "--force")
        assert code == 2
        assert "holds the folder you are in" in err
    assert Path("data/north.csv").exists()


def test_a_folder_that_fills_up_meanwhile_is_not_replaced(sites, run, monkeypatch):
    Path("run").mkdir()
    from koncord.runs import folder as runfolder

    write = runfolder.write_run

    def write_and_disturb(*args):
        Path("run/someone-elses.txt").write_text("mine")
        return write(*args)

    monkeypatch.setattr(runfolder, "write_run", write_and_disturb)
    assert run("fit", *FILES, "--out", "run")[0] == 1
    assert contents("run") == {"someone-elses.txt": b"mine"}
    assert sorted(path.name for path in Path().iterdir()) == sorted([*FILES, "run"])


# --- predict ---


def test_predicting_the_training_file_gives_its_labels(sites, run, result):
    run("fit", *FILES, "--out", "run")
    for name, X in sites.items():
        for model in ("run", "run/model.koncord"):
            found = result("predict", model, f"{name}.csv", "--out", "labels.csv")
            assert Path("labels.csv").read_bytes() == Path(f"run/labels/{name}.csv").read_bytes()
            assert found["labels"] == koncord.GlobalModel.load("run/model.koncord").predict(X).tolist()
            assert (found["rows"], found["n_clusters"], sum(found["counts"])) == (120, 3, 120)
            assert len(found["distances"]) == len(found["runner_up_distances"]) == 120


def test_labels_go_to_stdout_or_to_a_file_with_a_summary(sites, run):
    run("fit", *FILES, "--out", "run")
    code, out, err = run("predict", "run", "north.csv")
    assert (code, err) == (0, "")
    assert out == Path("run/labels/north.csv").read_text()
    code, out, err = run("predict", "run", "north.csv", "--out", "labels.csv")
    assert (code, err) == (0, "")
    assert re.search(r"^ +\d +60 +50\.0% +\d\.\d{3}$", out, re.MULTILINE)
    assert out.endswith("\n\nwritten: labels.csv\n")


def test_a_new_site_is_matched_by_column_name_whatever_else_it_holds(sites, run, result):
    run("fit", *FILES, "--out", "run")
    X = sites["west"]
    table = {"pain": X[:, 2], "ward": ["a"] * len(X), "age": X[:, 0], "stay": X[:, 1]}
    parquet.write_table(pa.table(table), "new.parquet")
    expected = [int(row["cluster"]) for row in labels_of("run/labels/west.csv")]
    assert result("predict", "run", "new.parquet")["labels"] == expected
    np.save("new.npy", X)
    assert result("predict", "run", "new.npy")["labels"] == expected
    np.savez("new.npz", X=X[:, [2, 0, 1]], columns=np.array(["pain", "age", "stay"]))
    assert result("predict", "run", "new.npz")["labels"] == expected
    np.savez("two.npz", A=X, B=X)
    assert result("predict", "run", "two.npz", "--array", "B")["labels"] == expected


def test_labels_by_a_nested_answer_and_outliers(sites, run, result):
    assert run("fit", *FILES, "--out", "run")[0] == 0
    model = koncord.GlobalModel.load("run/model.koncord")
    two = result("predict", "run", FILES[0], "--clusters", "2")
    assert two["n_clusters"] == 2
    assert set(two["labels"]) <= {0, 1}
    rows = np.loadtxt(FILES[0], delimiter=",", skiprows=1)
    np.testing.assert_array_equal(two["labels"], model.at(2).predict(rows))
    out = result("predict", "run", FILES[0], "--outliers", "0.9")
    np.testing.assert_array_equal(out["labels"], model.predict(rows, outliers=True, quantile=0.9))
    assert out["outliers"] == out["labels"].count(-1) > 0
    assert sum(out["counts"]) + out["outliers"] == out["rows"]
    assert result("predict", "run", FILES[0], "--outliers")["outliers"] <= out["outliers"]
    code, _, err = run("predict", "run", FILES[0], "--clusters", "99")
    assert code == 2
    assert f"--clusters must be a number of clusters that the model has, 1 to {model.available[-1]}; got 99" in err
    assert run("predict", "run", FILES[0], "--outliers", "1.5")[0] == 2


def test_arrays_without_names_are_fitted_and_predicted_by_place(sites, result):
    for name, X in sites.items():
        np.save(f"{name}.npy", X)
    found = result("fit", *(f"{name}.npy" for name in sites), "--out", "run")
    assert found["columns"] == ["x0", "x1", "x2"]
    labels = result("predict", "run", "north.npy")["labels"]
    assert labels == [int(row["cluster"]) for row in labels_of("run/labels/north.csv")]


# --- report ---


def test_the_page_of_a_run_is_built_again_byte_for_byte(sites, run, result):
    run("fit", *FILES, "--out", "run")
    before = contents("run")
    Path("run/report.html").unlink()
    assert result("report", "run") == {"report": "run/report.html", "n_clusters": 3}
    assert contents("run") == before
    Path("run").rename("moved")
    assert run("report", "moved") == (0, "3 clusters in 360 rows at 3 sites: moved/report.html\n", "")
    assert contents("moved") == before


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        ("fit --out run", 2, "required: FILE; see koncord fit --help."),
        ("fit north.csv south.csv", 2, "required: --out; see koncord fit --help."),
        ("fit north.csv gone.csv --out run", 2, "'gone.csv' does not exist"),
        ("fit north.csv copy/north.csv --out run", 2, "'north.csv' and 'copy/north.csv' would both be site 'north'"),
        ("fit north.csv copy/North.tsv --out run", 2, "'north.csv' and 'copy/North.tsv' would both be site 'North'"),
        ("fit north.csv other.csv --out run", 1, "of site 'other' are not those of site 'north': it lacks pain and ad"),
        ("fit north.csv fewer.csv --out run", 1, "site 'north' are not those of site 'fewer': it adds stay, pain."),
        ("fit north.csv --out gone/run", 2, "The folder 'gone' of --out does not exist"),
        ("fit north.csv --out south.csv", 2, "--out needs the name of a folder; 'south.csv' is a file."),
        ("fit north.csv --out run --aggregator kfed", 2, "kfed needs the number of clusters: --"),
        ("fit north.csv --out run --aggregator afcl", 2, "afcl needs the most clusters"),
        ("fit north.csv --out run --aggregator afcl --clusters 5", 1, "--allow-disclosure runs it all the same."),
        ("fit north.csv --out run --clusters 3", 2, "--clusters does not go with --aggregator consensus"),
        ("fit north.csv --out run --aggregator kfed --clusters 0", 2, "--clusters must be at least 1; got 0."),
        ("fit north.csv --out run --aggregator kfed --clusters 99", 2, "'n_clusters' of KFed must be at most 2"),
        ("fit north.csv --out run --aggregator fedgem --set upsilon=-1", 2, "'upsilon' of FedGEM must be a finite"),
        ("fit north.csv --out run --aggregator fedgem --set upsilon=nan", 2, "'upsilon' of FedGEM must be a finite"),
        ("fit north.csv --out run --set upsilon=1", 2, "--set upsilon: there is no such parameter; the aggregator con"),
        ("fit north.csv --out run --aggregator fedgem --set min_report=9", 2, "--set min_report: there is no such"),
        ("fit north.csv --out run --aggregator fedgem --harmonize", 2, "--harmonize goes with --aggregator consensus"),
        ("fit north.csv --out run --allow-disclosure", 2, "--allow-disclosure goes with --aggregator afcl"),
        ("fit north.csv --out run --estimator gmeans --set min_mass=3", 2, "; the estimator gmeans has significance ("),
        ("fit north.csv --out run --set min_mass=3", 2, "asm, which does not run with --aggregator consensus unless"),
        ("fit north.csv --out run --set min_mass=3 --json --epsilon 2", 2, "does not run within a privacy budget."),
        ("fit north.csv --out run --set min_mass=wide", 2, "--set min_mass must be none or number; got 'wide'."),
        ("fit north.csv --out run --set min_mass=1 --set min_mass=2", 2, "--set min_mass is given twice."),
        ("fit north.csv --out run --set random_state=1", 2, "--set random_state: give --seed instead."),
        ("fit north.csv --out run --set slack=wide", 2, "--set slack must be number; got 'wide'."),
        ("fit north.csv --out run --set slack", 2, "--set takes NAME=VALUE; got 'slack'."),
        ("fit north.csv --out run --set slack=1 --set slack=2", 2, "--set slack is given twice."),
        ("fit north.csv --out run --set min_report=9", 2, "'min_report' of Consensus is 9 and that of the run 20"),
        ("fit north.csv --out run --set tall=1", 2, "; the aggregator consensus has min_report ("),
        ("fit north.csv --out run --set harmonize=true", 2, "--set harmonize: give --harmonize instead."),
        ("fit north.csv --out run --aggregator kfed --clusters 2 --set n_clusters=2", 2, "give --clusters instead."),
        ("fit north.csv --out run --aggregator fedgem --set start=odd", 2, "'start' of FedGEM must"),
        ("fit north.csv --out run --aggregator none", 2, "invalid choice: 'none' (choose from 'consensus', 'fedgem'"),
        ("fit north.csv --out run --columns ages", 2, "'north.csv' has no column 'ages'; did you mean 'age'?"),
        ("predict gone north.csv", 1, "There is no model file 'gone'."),
        ("predict north.csv north.csv", 1, "'north.csv' is not a koncord model."),
        ("predict copy north.csv", 1, "There is no model file 'copy/model.koncord'."),
        ("predict model.koncord other.csv", 2, "'other.csv' has no column 'pain'; did you mean 'pane'?"),
        ("predict model.koncord narrow.npy", 2, "'narrow.npy' has no column 'age'"),
        ("predict model.koncord gone.csv", 2, "'gone.csv' does not exist"),
        ("predict model.koncord north.csv --out labels.txt", 2, "--out writes a .csv file; got 'labels.txt'."),
        ("report gone", 2, "'gone' is not a folder; name the one that koncord fit wrote."),
        ("report copy", 1, "There is no model file 'copy/model.koncord'."),
        ("report half", 1, "There is no record of a run 'half/run.json'."),
        ("report odd", 1, "'odd/run.json' is not the record of a koncord run."),
        ("report newer", 1, "'newer/run.json' is the record of a run of version 9; this koncord reads version 1."),
        ("demo --out copy", 2, "The folder 'copy' of --out is not empty"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(sites, run, argv, code, line):
    for folder in ("copy", "half", "odd", "newer"):
        Path(folder).mkdir()
    write_csv("copy/north.csv", sites["north"])
    Path("copy/North.tsv").write_text("a\tb\n1\t2\n")
    write_csv("other.csv", sites["south"], columns=("age", "stay", "pane"))
    write_csv("fewer.csv", sites["south"][:, :1], columns=("age",))
    np.save("narrow.npy", sites["north"][:, :2])
    model = koncord.GlobalModel(
        centers=np.zeros((2, 3)), weights=np.ones(2) / 2, columns=COLUMNS, means=np.zeros(3), scales=np.ones(3)
    )
    for path in ("model.koncord", "half/model.koncord", "odd/model.koncord", "newer/model.koncord"):
        model.save(path)
    Path("odd/run.json").write_text("[1, 2]")
    Path("newer/run.json").write_text('{"format": "koncord-run", "version": 9}')
    got, out, err = run(*argv.split())
    assert (got, out) == (code, "")
    assert ONE_LINE.fullmatch(err)
    assert line in err
    assert not Path("run").exists()


def test_bad_calls_are_refused_before_the_work(sites, run, monkeypatch):
    monkeypatch.setattr("koncord.cli.fit.read_tables", fail)
    for options in (("--clusters", "3"), ("--aggregator", "kfed"), ("--aggregator", "fedgem", "--set", "upsilon=-1")):
        assert run("fit", *FILES, "--out", "run", *options)[0] == 2


# --- demo ---


CONTRACT = {"n_clusters", "true_clusters", "ari", "local_counts", "report"}


def test_the_demo_finds_the_species_in_seconds_and_can_be_run_again(result, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    began = time.perf_counter()
    found = result("demo")
    assert time.perf_counter() - began < 60
    assert found.keys() >= CONTRACT
    assert (found["true_clusters"], found["true_local_counts"]) == (3, [2, 2, 1])
    assert len(found["local_counts"]) == 3
    species = found["classes"][0]
    in_own = sum(max(row) for row in species["counts"])
    assert in_own >= 0.97 * 342  # every cluster is one species
    assert set(species["classes"]) == {"Adelie", "Chinstrap", "Gentoo"}
    assert found["report"] == "koncord-demo/report.html"
    assert set(found["sent_bytes"]) == {"Biscoe", "Dream", "Torgersen"}
    assert 0 < sum(found["sent_bytes"].values()) < 15_000  # less than the file itself
    page = Path(found["report"]).read_text()
    assert "Against the known classes" in page
    assert f"cluster against class is {found['ari']:.3f}" in page
    labels = contents("koncord-demo/labels")
    code, out, _ = run("demo")
    assert code == 0
    assert f"cluster against class is {found['ari']:.3f}" in out
    assert f"{found['sent_bytes']['Dream']:,}" in out
    assert contents("koncord-demo/labels") == labels
    again = result("fit", *sorted(Path("koncord-demo/sites").iterdir()), "--out", "run", "--seed", 0)
    assert again["n_clusters"] == found["n_clusters"]
    assert contents("run/labels") == labels


def test_the_demo_does_not_replace_what_it_did_not_write(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("words")
    code, _, err = run("demo", "--out", "mine")
    assert code == 2
    assert ONE_LINE.fullmatch(err)
    assert contents("mine") == {"thesis.txt": b"words"}


# --- help ---


def examples():
    texts = [command.EPILOG for command in (fit, predict, report, demo)]
    return [line.split() for text in texts for line in text.splitlines() if line.startswith("  koncord ")]


@pytest.mark.parametrize("example", examples(), ids=" ".join)
def test_the_examples_of_the_help_work(sites, run, example):
    if example[1] in ("predict", "report"):
        run("fit", *FILES, "--out", "run")
    write_csv("east.csv", sites["west"])
    code, out, err = run(*example[1:])
    assert (code, err) == (0, "")
    assert out


def test_help_comes_without_numpy():
    program = """
import sys
from koncord.cli import main
assert all(main([name, "--help"]) == 0 for name in ("fit", "predict", "report", "demo"))
heavy = {"numpy", "scipy", "sklearn", "pyarrow", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_folder_has_the_rights_of_any_folder(sites, run):
    run("fit", *FILES, "--out", "run")
    Path("plain").mkdir()
    assert Path("run").stat().st_mode == Path("plain").stat().st_mode
    assert read_table("run/labels/north.csv", columns=["cluster"]).X.shape == (120, 1)


def test_a_parameter_of_the_aggregator_is_set_by_its_name_and_kept_in_the_record(sites, result):
    told = result(
        "fit", *FILES, "--out", "run", "--estimator", "xmeans", "--aggregator", "kfed", "--clusters", "3",
        "--set", "n_init=3", "--set", "server_iters=none",
    )  # fmt: skip
    assert told["n_clusters"] == 3
    assert koncord.GlobalModel.load("run/model.koncord").settings["aggregator"] == "KFed(n_clusters=3, n_init=3)"
    assert json.loads(Path("run/run.json").read_text())["options"]["--set"] == "n_init=3, server_iters=none"
