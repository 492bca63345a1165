"""The command line, driven in process and, where a process is the point, as one."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
import warnings
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import koncord
from koncord._progress import reporting
from koncord.cli import all_commands
from koncord.cli.progress import ProgressBar
from koncord.data.files import standardize
from koncord.estimate.search import split_rows
from koncord.kernels.silhouette import MAX_SCORED

ROOT = Path(__file__).parent.parent
KONCORD = [sys.executable, "-c", "import sys; from koncord.cli import main; sys.exit(main())"]
ONE_LINE = re.compile(r"koncord: [^\n]+\n")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def visits(blobs, tmp_path, monkeypatch):
    """A folder with the same three separated clusters as CSV and as Parquet; it is the working folder."""
    X, _ = blobs([[30, 2], [50, 9], [80, 4]], n_each=100, spread=0.5)
    monkeypatch.chdir(tmp_path)
    np.savetxt("visits.csv", X, delimiter=",", header="age,stay", comments="")
    parquet.write_table(pa.table({"age": X[:, 0], "stay": X[:, 1], "ward": ["a"] * len(X)}), "visits.parquet")
    return X


def refuse_to_work(*args, **kwargs):
    raise AssertionError("the work began")


# --- what it says ---


def test_json_holds_what_the_estimator_found(visits, result):
    found = result("estimate", "visits.csv", "--seed", "5")
    Z, mean, scale = standardize(np.loadtxt("visits.csv", delimiter=",", skiprows=1))
    asm = koncord.ASM(random_state=5).fit(Z)
    assert found["n_components"] == 3
    assert found["config"] == asm.config_
    assert found["counts"] == asm.counts_.tolist() == [100, 100, 100]
    assert found["weights"] == asm.weights_.tolist()
    assert found["means"] == asm.means_.tolist()
    assert found["variances"] == asm.variances_.tolist()
    assert (found["mean"], found["scale"]) == (mean.tolist(), scale.tolist())
    row_means = [visits[at : at + 100].mean(axis=0) for at in (0, 100, 200)]
    assert np.allclose(sorted(found["means_original"]), row_means, rtol=1e-3)  # of the fit, where nothing was merged
    members = [Z[asm.labels_ == number] for number in range(3)]
    assert found["anisotropies"] == [koncord.theory.anisotropy(rows) for rows in members]
    critical = [koncord.theory.critical_size(2, r) for r in found["anisotropies"]]
    assert found["critical_sizes"] == critical
    assert found["past_critical_size"] == [bool(size < 100) for size in critical]
    assert found["best_score"] == asm.best_score_
    scores = [None if np.isnan(candidate.score) else candidate.score for candidate in asm.results_]
    assert [candidate["score"] for candidate in found["candidates"]] == scores
    assert found["candidates"][0].keys() == {"params", "n_components", "score"}
    assert found["held_out_rows"] == found["scored_rows"] == 60
    assert found["seconds"] > 0
    asked = {key: found[key] for key in ("file", "estimator", "seed", "version", "rows", "columns", "standardized")}
    assert asked == {
        "file": "visits.csv",
        "estimator": "asm",
        "seed": 5,
        "version": koncord.__version__,
        "rows": 300,
        "columns": ["age", "stay"],
        "standardized": True,
    }


@pytest.mark.parametrize("estimator", ["asm", "asm-identity", "xmeans", "gmeans", "dpgmm"])
def test_every_estimator_finds_the_three_clusters(visits, result, run, estimator):
    found = result("estimate", "visits.csv", "--estimator", estimator, "--no-standardize")
    assert found["n_components"] == 3
    assert sorted(found["counts"]) == [100, 100, 100]
    assert found["config"]
    assert "random_state" not in found["config"]
    assert bool(found["candidates"]) == (estimator not in ("xmeans", "gmeans"))
    code, out, _ = run("estimate", "visits.csv", "--estimator", estimator, "--no-standardize")
    assert code == 0
    assert f"K = 3  ({estimator}, seed 0, " in out


def test_the_text_tells_what_was_found_and_how_it_was_chosen(visits, run):
    code, out, err = run("estimate", "visits.csv")
    assert (code, err) == (0, "")
    assert out.startswith(
        "visits.csv: 300 rows, 2 columns, standardized (--no-standardize to keep units)\n\nK = 3  (asm"
    )
    assert re.search(r"configuration: min_mass \d+, split_factor [\d.]+, merge_factor [\d.]+\n", out)
    assert re.search(r"chosen among 120 configurations: silhouette 0\.\d{4} on 60 held-out rows\n", out)
    assert re.search(r"component +rows +share +spread +anisotropy +critical size\n", out)
    assert len(re.findall(r"^ +\d +100 +33\.3%  .*$", out, re.MULTILINE)) == 3
    assert re.search(r"^ +K +silhouette +configurations\n", out, re.MULTILINE)
    assert len(re.findall(r"^ +3 +0\.\d{4} +\d+  chosen$", out, re.MULTILINE)) == 1


def test_fixed_parameters_leave_nothing_to_choose(visits, result, run):
    fixed = ("--set", "min_mass=20", "--set", "split_factor=1", "--set", "merge_factor=1.5")
    found = result("estimate", "visits.csv", *fixed)
    assert found["config"] == {"min_mass": 20.0, "split_factor": 1.0, "merge_factor": 1.5}
    assert (found["candidates"], found["best_score"], found["held_out_rows"]) == ([], None, 0)
    assert "silhouette" not in run("estimate", "visits.csv", *fixed)[1]


def test_merge_factors_are_those_of_the_paper(visits, result):
    candidates = result("estimate", "visits.csv")["candidates"]
    tried = sorted({candidate["params"]["merge_factor"] for candidate in candidates})
    assert tried == [0.25, 0.5, 0.75, 1.0, 1.5, 2.0]


def test_the_same_seed_gives_the_same_result(visits, result):
    first, again = (result("estimate", "visits.csv", "--seed", "3") for _ in range(2))
    del first["seconds"], again["seconds"]
    assert first == again


def test_units_are_kept_on_demand(visits, result, run):
    found = result("estimate", "visits.csv", "--no-standardize")
    assert (found["standardized"], found["mean"], found["scale"]) == (False, [0.0, 0.0], [1.0, 1.0])
    assert found["means"] == found["means_original"]
    assert "not standardized" in run("estimate", "visits.csv", "--no-standardize")[1]


def test_columns_and_arrays_are_chosen(visits, result, run, tmp_path):
    assert result("estimate", "visits.parquet", "--drop", "ward", "--columns", "stay,age")["columns"] == ["stay", "age"]
    found = result("estimate", "visits.parquet", "--drop", "ward", "--drop", "age")
    assert (found["columns"], found["dropped_columns"]) == (["stay"], ["age", "ward"])
    assert "left out: age, ward" in run("estimate", "visits.parquet", "--drop", "ward,age")[1]
    np.savez("two.npz", A=visits, B=visits[:, :1])
    assert result("estimate", "two.npz", "--array", "B")["columns"] == ["x0"]
    Path("comma.csv").write_text('"a,b",c\n1,x\n2,y\n')
    assert result("estimate", "comma.csv", "--columns", '"a,b"')["columns"] == ["a,b"]


def test_one_row_is_one_component(result, run, tmp_path):
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    found = result("estimate", tmp_path / "one.csv")
    assert (found["n_components"], found["counts"], found["means_original"]) == (1, [1], [[1.0, 2.0]])
    assert (found["anisotropies"], found["past_critical_size"]) == ([1.0], [False])
    assert found["best_score"] is None
    _, out, _ = run("estimate", tmp_path / "one.csv")
    assert "1 row, 2 columns" in out
    assert "none gave the held-out rows a silhouette" in out
    assert "constant" not in out


def test_constant_columns_are_noted(visits, result, run):
    np.savez("t.npz", X=np.column_stack([visits, np.full(len(visits), 0.1)]))
    found = result("estimate", "t.npz")
    assert (found["constant_columns"], found["n_components"]) == (["x2"], 3)
    assert (found["mean"][2], found["scale"][2]) == (pytest.approx(0.1), 1.0)
    assert "note: constant, and so without information: x2\n" in run("estimate", "t.npz")[1]


def test_the_text_says_when_not_every_held_out_row_was_scored(blobs, run, result, tmp_path):
    X, _ = blobs([[0, 0], [20, 20]], n_each=8_000)
    np.save(tmp_path / "t.npy", X)
    options = ("--set", "min_mass=200", "--set", "split_factor=1")
    found = result("estimate", tmp_path / "t.npy", *options)
    _, held_rows = split_rows(len(X), 0.2, np.random.default_rng(0), owner="")
    assert (found["held_out_rows"], found["scored_rows"]) == (len(held_rows), MAX_SCORED) == (3200, 3000)
    _, out, _ = run("estimate", tmp_path / "t.npy", *options)
    assert "chosen among 6 configurations" in out
    assert "on 3,000 of 3,200 held-out rows, drawn at random\n" in out


def test_a_cap_that_was_reached_is_noted(visits, result, run):
    found = result("estimate", "visits.csv", "--estimator", "xmeans", "--set", "max_components=2")
    assert (found["n_components"], found["reached_max_components"]) == (2, True)
    assert "cap of 2 components" in run("estimate", "visits.csv", "--set", "max_components=2")[1]
    assert not result("estimate", "visits.csv", "--estimator", "xmeans")["reached_max_components"]


def test_a_table_of_few_rows_is_said_to_have_been_tried_with_smaller_masses(blobs, run, result, tmp_path):
    X, _ = blobs([[0, 0], [30, 0], [0, 30]], n_each=17)
    np.save(tmp_path / "t.npy", X)
    found = result("estimate", tmp_path / "t.npy")
    assert (found["n_components"], found["counts"]) == (3, [17, 17, 17])
    assert found["extra_min_masses"] == [17.0, 8.5, 4.25, 2.125]
    _, out, _ = run("estimate", tmp_path / "t.npy")
    assert (
        "note: few rows for the paper's minimum masses; 17, 8.5, 4.25 and 2.125 were tried too, and count from" in out
    )
    assert result("estimate", tmp_path / "t.npy", "--set", "min_mass=5")["extra_min_masses"] == []


# --- the test against one Gaussian ---

# Rows and draws of one Gaussian in three columns: of these 34, ASM by itself takes nearly all for several clusters.
ONE_GAUSSIAN = ((100, 10), (200, 10), (500, 10), (2000, 4))


def test_one_gaussian_is_one_component_in_nearly_every_draw(result, tmp_path):
    found, untested = [], []
    for n, n_draws in ONE_GAUSSIAN:
        for draw in range(n_draws):
            np.save(tmp_path / "t.npy", np.random.default_rng([n, draw]).normal(size=(n, 3)))
            answer = result("estimate", tmp_path / "t.npy")
            found.append(answer["n_components"])
            untested.append(answer["null_test"]["untested_components"])
            assert answer["null_test"]["is_several"] == (found[-1] > 1)
    assert found.count(1) >= 33
    assert untested.count(1) <= 10


def test_the_answer_of_the_test_is_one_whole_component(result, tmp_path):
    X = np.random.default_rng(0).normal(size=(500, 3))
    np.save(tmp_path / "t.npy", X)
    found = result("estimate", tmp_path / "t.npy", "--no-standardize")
    assert (found["n_components"], found["counts"], found["weights"]) == (1, [500], [1.0])
    assert np.allclose(found["means"], [X.mean(axis=0)])
    assert np.allclose(found["variances"], [X.var(axis=0).mean()])
    asm = koncord.ASM(random_state=0).fit(X)
    assert found["config"] == asm.config_
    assert found["null_test"]["untested_components"] == asm.n_components_ > 1
    assert found["null_test"]["times_chance"] < found["null_test"]["times_needed"] == 3.0


@pytest.mark.parametrize("estimator", ["asm", "xmeans", "gmeans"])
def test_without_the_test_the_answer_is_the_estimators_own(result, tmp_path, estimator):
    X = np.random.default_rng(0).normal(size=(500, 3))
    np.save(tmp_path / "t.npy", X)
    found = result("estimate", tmp_path / "t.npy", "--no-standardize", "--estimator", estimator, "--no-null-test")
    own = {"asm": koncord.ASM, "xmeans": koncord.XMeans, "gmeans": koncord.GMeans}[estimator](random_state=0).fit(X)
    assert found["null_test"] is None
    assert (found["n_components"], found["counts"]) == (own.n_components_, own.counts_.tolist())


def test_the_text_says_which_test_was_made_and_what_it_changed(visits, run, tmp_path):
    _, out, _ = run("estimate", "visits.csv")
    assert re.search(
        r"test against one Gaussian, as in koncord fit: several clusters "
        r"\(\d+(\.\d)? times chance, more than 3 needed\)\n",
        out,
    )
    assert "by itself" not in out
    np.save("noise.npy", np.random.default_rng(1).normal(size=(500, 3)))
    _, out, _ = run("estimate", "noise.npy")
    assert "\n\nK = 1  (asm, seed 0, " in out
    assert re.search(
        r"test against one Gaussian, as in koncord fit: one cluster "
        r"\(\d\.\d times chance, more than 3 needed\)\n"
        r"asm by itself finds K = \d \(--no-null-test\)\n",
        out,
    )
    assert "The best configuration of each K for asm by itself, fitted without the held-out rows:" in out
    _, out, _ = run("estimate", "noise.npy", "--no-null-test")
    assert "Gaussian" not in out
    assert not re.search(r"K = 1 ", out)


def test_a_table_that_shows_structure_where_the_estimator_found_one_component_is_noted(visits, run):
    _, out, _ = run("estimate", "visits.csv", "--set", "min_mass=200")
    assert "K = 1 " in out
    assert "note: the table shows more structure than one Gaussian, but asm finds one component\n" in out


@pytest.mark.parametrize("X", [np.ones((1, 2)), np.eye(2), np.ones((40, 2)), np.arange(60.0)[:, None]], ids=len)
def test_tables_without_much_to_test_get_an_answer(result, tmp_path, X):
    np.save(tmp_path / "t.npy", X)
    found = result("estimate", tmp_path / "t.npy")
    assert found["n_components"] >= 1
    assert found["null_test"].keys() == {
        "is_several",
        "times_chance",
        "times_needed",
        "micro_cluster_rows",
        "untested_components",
    }


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        ("", 2, "say what to do: check, estimate"),
        ("reckon", 2, "invalid choice: 'reckon'"),
        ("estimate", 2, "required: FILE; see koncord estimate --help."),
        ("estimate visits.csv more", 2, "unrecognized arguments: more"),
        ("estimate visits.csv --est gmeans", 2, "unrecognized arguments: --est"),
        ("estimate visits.csv --estimator magic", 2, "--estimator: invalid choice: 'magic'"),
        ("estimate visits.csv --seed -1", 2, "--seed: must be an integer of at least 0; got '-1'"),
        ("estimate visits.csv --columns age,,stay", 2, "--columns: must be names separated by commas"),
        ("estimate visits.csv --columns ages", 2, "'visits.csv' has no column 'ages'; did you mean 'age'?"),
        ("estimate gone.csv", 2, "'gone.csv' does not exist"),
        ("estimate .", 2, "'.' holds"),
        ("estimate visits.csv --array A", 2, "leave out --array"),
        ("estimate visits.csv --set min_mass=-1", 2, "'min_mass' of ASM must be a finite number at least 0; got -1.0."),
        ("estimate visits.csv --set split_factor=nan", 2, "'split_factor' of ASM must be a finite number"),
        ("estimate visits.csv --set max_components=0", 2, "'max_components' of ASM must be at least 1; got 0."),
        ("estimate gone.csv --estimator xmeans --set min_mass=3", 2, "; the estimator xmeans has min_components ("),
        ("estimate gone.csv --set min_mass=few", 2, "--set min_mass must be none or number; got 'few'."),
        ("estimate gone.csv --set random_state=1", 2, "--set random_state: give --seed instead."),
        ("estimate gone.csv --set min_mass=3 --set min_mass=3", 2, "--set min_mass is given twice."),
        ("estimate visits.parquet", 1, "'ward' (text, row 1:"),
        ("estimate bad.csv", 1, "1 missing value in 'b', the first in row 1 of 'b'"),
    ],
)
def test_what_is_wrong_is_one_line(visits, run, argv, code, line):
    Path("bad.csv").write_text("a,b\n1,\n2,3\n")
    got, out, err = run(*shlex.split(argv))
    assert (got, out) == (code, "")
    assert ONE_LINE.fullmatch(err)
    assert line in err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "koncord: stopped.\n"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "koncord: not enough memory: Unable to allocate 3 TiB.\n"),
        (OSError(5, "Input/output error", "t.csv"), 1, "koncord: Input/output error: 't.csv'.\n"),
        (
            KeyError("two\nlines"),
            1,
            "koncord: a mistake in koncord itself, KeyError: 'two\\nlines'; please report it.\n",
        ),
        (
            RuntimeError("two\nlines"),
            1,
            "koncord: a mistake in koncord itself, RuntimeError: two lines; please report it.\n",
        ),
        (koncord.KoncordError("No luck."), 1, "koncord: No luck.\n"),
        (TypeError("Bad."), 2, "koncord: Bad.\n"),
    ],
)
def test_no_error_leaves_as_a_traceback(visits, run, monkeypatch, error, code, line):
    def fit(*args):
        raise error

    monkeypatch.setattr("koncord.estimate.asm.ASM.fit", fit)
    assert run("estimate", "visits.csv") == (code, "", line)


def test_a_traceback_comes_on_demand(visits, run, monkeypatch):
    monkeypatch.setattr("koncord.estimate.asm.ASM.fit", refuse_to_work)
    monkeypatch.setenv("KONCORD_TRACEBACK", "1")
    code, _, err = run("estimate", "visits.csv")
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith("koncord: a mistake in koncord itself, AssertionError: the work began; please report it.\n")


def test_a_warning_is_one_line(visits, run, monkeypatch):
    fit = koncord.ASM.fit

    def warn(self, X):
        warnings.warn("It did not\nconverge.", UserWarning, stacklevel=1)
        return fit(self, X)

    monkeypatch.setattr("koncord.estimate.asm.ASM.fit", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = run("estimate", "visits.csv")
    assert (code, err) == (0, "koncord: warning: It did not converge.\n")


# --- as a process ---


def test_help_and_version_come_without_numpy():
    program = """
import sys
from koncord.cli import main
assert main(["--help"]) == main(["--version"]) == main(["estimate", "--help"]) == 0
heavy = {"numpy", "scipy", "sklearn", "pyarrow", "matplotlib", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"koncord {koncord.__version__}\n" in done.stdout


def test_a_process_prints_json_and_nothing_else(visits):
    done = subprocess.run([*KONCORD, "estimate", "visits.csv", "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["n_components"] == 3


def test_a_process_that_fails_says_so_by_its_exit_code(visits):
    done = subprocess.run([*KONCORD, "estimate", "gone.csv"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert ONE_LINE.fullmatch(done.stderr)


@pytest.mark.parametrize("argv", [["estimate", "visits.csv"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_failure(visits, argv):
    process = subprocess.Popen([*KONCORD, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), err) == (0, b"")


# --- progress ---


class Terminal(StringIO):
    def isatty(self):
        return True


def test_the_bar_shows_on_a_terminal_what_is_being_done(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with ProgressBar(patience=0.0) as bar, reporting(bar):
        deadline = time.monotonic() + 20
        while "counting" not in terminal.getvalue() and time.monotonic() < deadline:
            bar(0.25, "counting")
            time.sleep(0.01)
        bar(0.75, "")
    assert re.search(r"counting .*25%", terminal.getvalue())
    assert re.search(r"counting .*75%", terminal.getvalue())


def test_short_work_and_work_without_a_terminal_show_no_bar(monkeypatch):
    for stderr, patience in ((Terminal(), 60.0), (StringIO(), 0.0)):
        monkeypatch.setattr(sys, "stderr", stderr)
        with ProgressBar(patience=patience) as bar:
            time.sleep(0.05)
            bar(0.5, "counting")
        assert stderr.getvalue() == ""


# --- batch by batch ---


def test_a_table_read_batch_by_batch_has_the_components_of_the_whole_and_counts_of_all_rows(visits, run):
    fixed = ("--estimator", "gmeans", "--json")
    _, whole, _ = run("estimate", "visits.csv", *fixed)
    _, sampled, _ = run("estimate", "visits.csv", "--stream", "--sample-rows", "150", *fixed)
    whole, sampled = json.loads(whole), json.loads(sampled)
    assert (sampled["rows"], sampled["sample_rows"], whole["sample_rows"]) == (300, 150, 300)
    assert sampled["n_components"] == whole["n_components"] == 3
    assert sorted(sampled["counts"]) == sorted(whole["counts"]) == [100, 100, 100]
    np.testing.assert_allclose(sampled["scale"], whole["scale"], rtol=1e-9)
    ours, theirs = (np.array(sorted(each["means_original"])) for each in (sampled, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(ours, sorted(visits.reshape(3, 100, 2).mean(axis=1).tolist()), rtol=1e-9)
    assert any("in 3 passes over 300 rows" in note for note in sampled["notes"])


def test_a_file_with_fewer_rows_than_the_sample_is_held_whole(visits, run):
    _, whole, _ = run("estimate", "visits.csv", "--json")
    _, streamed, _ = run("estimate", "visits.csv", "--stream", "--json")
    assert json.loads(streamed)["means"] == json.loads(whole)["means"]


# --- help and docs ---


def examples():
    """Every example of the help texts that need nothing but the table of visits."""
    texts = [koncord.cli.EPILOG, koncord.cli.estimate.EPILOG]
    return [line.split("#")[0].split() for text in texts for line in text.splitlines() if line.startswith("  koncord ")]


@pytest.mark.parametrize("example", examples(), ids=" ".join)
def test_the_examples_of_the_help_work(visits, run, example):
    code, out, err = run(*example[1:])
    assert (code, err) == (0, "")
    assert out


def test_every_command_has_an_example_in_its_help(run):
    for command in all_commands():
        _, out, _ = run(command.NAME, "--help")
        assert f"\n  koncord {command.NAME} " in out


def test_the_page_on_the_command_line_is_current(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    page = runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))["page"]()
    stored = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert stored == page, "stale: run python scripts/cli_docs.py"
