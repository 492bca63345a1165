"""koncord check: what a run would do with tables, and whether it would begin."""

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def exports(tmp_path, monkeypatch):
    """Three raw exports: semicolons and decimal commas, a date, a state in words, an extra sensor, gaps, Fahrenheit."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for at, name in enumerate(("bergen", "cork", "oslo")):
        hot = np.repeat([0, 1], 150)
        temperature = 60 + 30 * hot + rng.normal(size=300)
        dust = np.exp(rng.normal(size=300))
        state = np.where(rng.random(300) < 0.9, np.where(hot, "high", "low"), "off")
        if name == "oslo":
            temperature = 1.8 * temperature + 32
        header = ["when", "temperature", "dust", "state", *(["humidity"] if name == "cork" else [])]
        rows = []
        for row in range(300):
            cells = [f"{1 + row % 28:02}.11.2026 07:{row % 60:02}", f"{temperature[row]:.3f}".replace(".", ",")]
            cells += [f"{dust[row]:.4f}".replace(".", ",") if row % 9 or at else "", str(state[row])]
            rows.append(cells + (["55,5"] if name == "cork" else []))
        text = "\n".join([f"# export of {name}", *(";".join(cells) for cells in [header, *rows]), ""])
        Path(f"{name}.csv").write_text(text, encoding="utf-8")
    return ("bergen.csv", "cork.csv", "oslo.csv")


def test_every_column_is_named_with_what_is_done_and_the_refusals_say_what_to_type(exports, run):
    code, out, err = run("check", *exports)
    assert code == 1
    assert "when  left out" in out
    assert "dates or times" in out
    assert "refused: text with 3 levels; --categories state or --drop state [high, low, off]" in out
    assert "used, as its logarithm" in out
    assert "11% bergen" in out
    assert "humidity is not at bergen and oslo. Use what all share with --common-columns." in out
    assert "--convert oslo:temperature=F-to-C." in out
    assert "temperature and dust are read with a decimal comma" in out
    assert err.startswith("koncord: koncord fit would refuse these files: state is text")


def test_with_the_options_it_names_a_run_goes_ahead(exports, result, run):
    options = ("--common-columns", "--categories", "state", "--convert", "oslo:temperature=F")
    found = result("check", *exports, *options)
    assert not found["refused"]
    assert [column["name"] for column in found["columns"] if column["used"]] == ["temperature", "dust", "state"]
    assert not [warning for warning in found["warnings"] if "lies elsewhere" in warning]
    fitted = result("fit", *exports, *options, "--out", "run", "--estimator", "xmeans")
    assert fitted["n_clusters"] >= 2
    prepared = fitted["info"]["preparation"]
    assert prepared["logged"] == ["dust"]
    assert prepared["gaps"]["how"] == "neighbors"
    assert set(prepared["categories"]["state"]) == {"high", "low", "off"}
    assert fitted["columns"] == ["temperature", "dust", "state=high", "state=low", "state=off"]
    code, _, _ = run("predict", "run", "oslo.csv", "--convert", "temperature=F", "--out", "again.csv")
    assert code == 0
    assert Path("again.csv").read_text() == Path("run/labels/oslo.csv").read_text()


def test_a_fit_tells_of_the_other_unit_and_of_what_it_did(exports, run):
    _, out, _ = run("fit", *exports, "--common-columns", "--drop", "state", "--out", "run", "--estimator", "xmeans")
    assert "temperature lies elsewhere at oslo than at all other sites" in out
    assert "The logarithm was taken of dust" in out
    assert "were filled with the mean of the rows of their site that are nearest" in out


def test_json_has_columns_and_warnings_also_where_a_run_would_be_refused(exports, run):
    import json

    code, out, _ = run("check", *exports, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["refused"]
    assert {column["name"]: column["kind"] for column in found["columns"]} == {
        "when": "left out",
        "temperature": "numbers",
        "dust": "numbers",
        "state": "text",
        "humidity": "numbers",
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--convert", "temperature=F"), "--convert must be SITE:COLUMN=UNIT"),
        (("--convert", "rome:temperature=F"), "--convert names the site 'rome'; the sites are bergen, cork, oslo."),
        (("--convert", "oslo:temperature=Q"), "--convert knows no unit 'Q'"),
        (("--convert", "oslo:heat=F"), "which is no column of numbers of 'oslo'"),
        (("--categories", "stat"), "No file has the column 'stat' of --categories; did you mean 'state'?"),
        (("--log", "heat"), "--log names heat; the columns of numbers are"),
    ],
)
def test_a_wrong_option_is_one_line(exports, run, options, sentence):
    code, _, err = run("check", *exports, *options)
    assert code == 2
    assert sentence in err


def test_codes_constants_and_files_that_cannot_be_read_are_named(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, measured in (("a", True), ("b", False)):
        rows = [
            f"{rng.normal():.4f},{rng.integers(1, 4)},{rng.normal(200, 20) if measured else 0:.0f}" for _ in range(50)
        ]
        Path(f"{name}.csv").write_text("\n".join(["x,code,chol", *rows, ""]))
    code, out, _ = run("check", "a.csv", "b.csv")
    assert code == 0
    assert "code (1, 2, 3). If they are codes or yes and no, say so with --categories code." in out
    assert "chol is the same in every row of b (0) and varies elsewhere: was it measured there?" in out
    Path("c.csv").write_text("x,code,chol\n1,2\n")
    code, out, _ = run("check", "a.csv", "b.csv", "c.csv")
    assert code == 1
    assert "Row 1 of 'c.csv' has 2 values where 3 were expected" in out


def numbers(n=60, seed=0, columns="a,b,c"):
    """Lines of a table of numbers, two far clusters, below its header."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns.count(",") + 1)) + 9 * rng.integers(0, 2, n)[:, None]
    return [columns, *(",".join(f"{value:.3f}" for value in row) for row in X)]


def below_header(*lines):
    """A table of numbers with these lines as its first rows."""
    header, *rows = numbers()
    return [header, *lines, *rows]


def written(tmp_path, **tables):
    """Files of these lines, or bytes; their paths."""
    paths = []
    for name, table in tables.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(table if isinstance(table, bytes) else ("\n".join(table) + "\n").encode())
        paths.append(str(path))
    return paths


def decimals_of_both_kinds():
    lines = [line.replace(",", ";") for line in numbers(columns="a,b")]
    return [line.replace(".", "," if at % 2 else ".") for at, line in enumerate(lines)]


ODD = {
    "a question mark among numbers": (below_header("?,1,2"), [], "--na '?'"),
    "two stand-ins among numbers": (below_header("?,1,2", "-,1,2"), [], "--na - --na '?'"),
    "a row of units below the header": (below_header("m,kg,s"), [], "--na m"),
    "decimal commas and points in one column": (decimals_of_both_kinds(), [], "in more than one way ("),
    "dates alone": (["when", *(f"2026-11-{1 + at % 28:02}" for at in range(60))], [], "No column of numbers"),
    "every site below the floor": (numbers(5), [], "fewer than the 20 rows"),
    "nothing but gaps": (["a,b", *([","] * 60)], [], "No column of numbers is left"),
    "a gap in every row": (["a,b", *(("1.5,", ",2.5")[at % 2] for at in range(60))], ["--missing", "drop"], "misses a"),
    "categories alone": (["s", *("xy"[at % 2] for at in range(60))], ["--categories", "s"], "No column of numbers"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_fit_would_refuse_is_refused_with_a_way_out_and_as_json(what, tmp_path, run):
    lines, options, sentence = ODD[what]
    files = written(tmp_path, north=lines, south=lines)
    code, out, err = run("check", *files, *options)
    assert (code, "A run would be refused:" in out) == (1, True)
    assert sentence in out
    code, out, _ = run("check", *files, *options, "--json")
    assert code == 1
    assert any(sentence in refusal for refusal in json.loads(out)["refusals"])
    code, _, err = run("fit", *files, *options, "--out", str(tmp_path / "run"))
    assert code in (1, 2)
    assert "a mistake in koncord itself" not in err
    assert not (tmp_path / "run").exists()


def test_a_column_that_one_site_leaves_out_and_another_measures_is_refused_like_one_that_it_lacks(tmp_path, run):
    when = ["when,a", *(f"2026-11-{1 + at % 28:02},{at % 7}.5" for at in range(60))]
    days = ["when,a", *(f"{20261101 + at % 28},{at % 7}.5" for at in range(60))]
    files = written(tmp_path, north=when, south=days)
    code, out, _ = run("check", *files)
    assert code == 1
    assert "when is not at north (at north it is left out: dates or times)" in out
    assert run("fit", *files, "--out", str(tmp_path / "run"))[0] == 1
    assert run("check", *files, "--common-columns")[0] == 0


def test_the_floor_is_that_of_the_run(tmp_path, run):
    files = written(tmp_path, north=numbers(15), south=numbers(15, seed=1))
    assert run("check", *files)[0] == 1
    assert run("check", *files, "--min-report", "5")[0] == 0


def test_levels_that_no_other_site_has_are_named(tmp_path, run):
    rng = np.random.default_rng(0)
    rows = {words: [f"{rng.normal():.2f},{words[at % 2]}" for at in range(60)] for words in (("yes", "no"), ("1", "0"))}
    files = written(tmp_path, north=["a,ill", *rows["yes", "no"]], south=["a,ill", *rows["1", "0"]])
    code, out, _ = run("check", *files, "--categories", "ill")
    assert code == 0
    assert "ill has no level at north (no, yes) that other sites have (0, 1): is it written in another way?" in out


def test_a_level_that_is_the_only_one_of_a_site_tells_sites_apart_and_is_not_called_constant(tmp_path, run):
    files = written(
        tmp_path,
        **{name: ["a,place", *(f"{at % 9}.5,{name}" for at in range(60))] for name in ("north", "south")},
    )
    _, out, _ = run("check", *files, "--categories", "place")
    assert "without information" not in out
    assert "the same in every row of a site, but not at every site: place" in out


def test_a_logarithm_of_values_that_are_not_positive_is_a_wrong_call(tmp_path, run):
    files = written(tmp_path, north=numbers(200), south=numbers(200, seed=1))
    for command in (("check", *files), ("fit", *files, "--out", str(tmp_path / "run"))):
        code, _, err = run(*command, "--log", "a")
        assert code == 2
        assert "--log names a, of which at least 2% of the values are not positive" in err
