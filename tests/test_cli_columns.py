"""Tables as people export them: columns that only some sites have, and columns that are no measurements."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from koncord.privacy.budget import Budget

SENSORS = ("pressure", "speed")
CENTERS = np.array([[0.0, 0.0], [40.0, 10.0]])


@pytest.fixture
def plants(tmp_path, monkeypatch):
    """Three files in the working folder: aachen and cork measure humidity as well, cork also names its operators."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("aachen", "bergen", "cork"):
        X = np.concatenate([center + rng.normal(size=(60, 2)) for center in CENTERS])
        humidity = rng.normal(60, 5, len(X))
        header, rows = ",".join(SENSORS), [f"{a:.6f},{b:.6f}" for a, b in X]
        if name != "bergen":
            header, rows = f"{header},humidity", [f"{row},{h:.3f}" for row, h in zip(rows, humidity, strict=True)]
        if name == "cork":
            header, rows = f"{header},operator", [f"{row},Ann" for row in rows]
        Path(f"{name}.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return ("aachen.csv", "bergen.csv", "cork.csv")


def shown_on(page):
    """The text of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", Path(page).read_text(encoding="utf-8")).split())


# --- columns of some sites only ---


def test_a_column_that_only_some_sites_have_can_be_dropped(plants, result):
    found = result("fit", *plants, "--out", "run", "--drop", "humidity,operator")
    assert (found["columns"], found["n_clusters"]) == (list(SENSORS), 2)


def test_a_column_that_no_site_has_cannot_be_dropped(plants, run):
    code, out, err = run("fit", *plants, "--out", "run", "--drop", "operator,humidty")
    assert (code, out) == (2, "")
    assert err == "koncord: No file has the column 'humidty' of --drop; did you mean 'humidity'?\n"
    assert not Path("run").exists()


def test_the_error_for_differing_columns_says_how_to_go_on_and_both_ways_work(plants, run, result):
    code, _, err = run("fit", *plants, "--out", "run", "--drop", "operator")
    assert code == 1
    assert "The columns of site 'bergen' are not those of site 'aachen': it lacks humidity." in err
    assert "--common-columns" in err
    assert "--columns" in err
    common = result("fit", *plants, "--out", "common", "--drop", "operator", "--common-columns")
    named = result("fit", *plants, "--out", "named", "--columns", ",".join(SENSORS))
    assert common["columns"] == named["columns"] == list(SENSORS)
    assert common["weights"] == named["weights"]
    for name in ("aachen", "bergen", "cork"):
        assert Path(f"common/labels/{name}.csv").read_bytes() == Path(f"named/labels/{name}.csv").read_bytes()


def test_the_columns_left_out_are_named_on_the_terminal_and_on_the_page(plants, run):
    _, out, _ = run("fit", *plants, "--out", "run", "--drop", "operator", "--common-columns")
    sentence = "Not used, as not every site has it: humidity (aachen, cork)."
    assert f"note: {sentence}" in out
    assert sentence in shown_on("run/report.html")
    code, out, _ = run("predict", "run", "aachen.csv", "--out", "again.csv")
    assert code == 0


def test_sites_that_share_no_column_are_told_so(plants, run):
    Path("dublin.csv").write_text("a,b\n1,2\n2,3\n", encoding="utf-8")
    code, _, err = run("fit", "bergen.csv", "dublin.csv", "--out", "run", "--common-columns")
    assert code == 1
    assert "The sites share no column: bergen has pressure, speed; dublin has a, b." in err


def test_common_columns_keep_to_a_privacy_budget(plants, result):
    budget = ("--epsilon", "8", "--delta", "1e-6", "--bound", "60")
    found = result("fit", *plants, "--out", "run", "--drop", "operator", "--common-columns", *budget)
    assert found["columns"] == list(SENSORS)
    assert found["info"]["privacy"]["aachen"]["epsilon"] == 8
    assert Budget(epsilon=8, delta=1e-6, bound=60)  # the extra is there: nothing was skipped


# --- columns that are no measurements ---


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Two files with an index, a serial number, a constant, a place of each site, and -999 for what is missing."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for at, name in enumerate(("oslo", "pisa")):
        X = np.concatenate([center + rng.normal(size=(40, 2)) for center in CENTERS]).round(3)
        X[:3, 1] = -999
        rows = [f"{row},{4611686018427387904 + row * 10**15},{a},{b},7,{at}" for row, (a, b) in enumerate(X)]
        Path(f"{name}.csv").write_text("\n".join([",serial,pressure,speed,unit,place", *rows, ""]), encoding="utf-8")
    return ("oslo.csv", "pisa.csv")


NOTES = (
    "x0 is left out: counts the rows, as an index does",
    "serial is left out: integers beyond 9,007,199,254,740,992, which name things and measure nothing",
    "speed holds -999 in 3 rows, far from all its other values: if it stands for a missing value, say so with "
    "--na -999",
)


def test_an_estimate_names_columns_that_are_no_measurements(odd, run, result):
    _, out, _ = run("estimate", "oslo.csv", "--estimator", "xmeans")
    constant = "constant, and so without information: unit, place"
    for sentence in (*NOTES, constant):
        assert f"note: {sentence}\n" in out
    assert sorted(result("estimate", "oslo.csv", "--estimator", "xmeans")["notes"]) == sorted([*NOTES, constant])


def test_a_fit_names_them_too_with_the_sites_that_have_them(odd, run, result):
    _, out, _ = run("fit", *odd, "--out", "run", "--estimator", "xmeans")
    at = ("constant at every site, and so without information: unit",)
    by_site = ("the same in every row of a site, but not at every site: place; it tells sites apart, not clusters",)
    sentences = [*(f"oslo, pisa: {note}" for note in NOTES), *at, *by_site]
    for sentence in sentences:
        assert f"note: {sentence}\n" in out
    found = result("fit", *odd, "--out", "run", "--force", "--estimator", "xmeans")
    assert sorted(found["notes"]) == sorted(sentences)
    # How many rows hold a value is known where the file is; the page may go further.
    assert "-999" not in shown_on("run/report.html")


def test_a_fit_of_clean_tables_has_no_such_note(plants, run):
    _, out, _ = run("fit", *plants, "--out", "run", "--columns", ",".join(SENSORS))
    assert "note:" not in out


def test_a_dropped_index_is_not_noted(odd, run):
    _, out, _ = run("fit", *odd, "--out", "run", "--drop", "x0,serial,place,unit", "--estimator", "xmeans")
    assert "is left out" not in out
    assert f"note: oslo, pisa: {NOTES[2]}" in out


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_integers_that_floats_cannot_hold_are_noted_in_any_kind_of_file(tmp_path, monkeypatch, result, kind):
    monkeypatch.chdir(tmp_path)
    serial = 2**62 + np.arange(50) * 10**15
    small = np.random.default_rng(0).integers(0, 2**53, 50)
    if kind == "parquet":
        parquet.write_table(pa.table({"serial": serial, "small": small}), "t.parquet")
    else:
        np.savez("t.npz", X=np.column_stack([serial, small]), columns=np.array(["serial", "small"]))
    notes = result("estimate", f"t.{kind}", "--estimator", "xmeans")["notes"]
    assert [note.split(" is left out")[0] for note in notes] == ["serial"]


def test_a_site_that_joins_is_reported_of_them(odd, run):
    content = {"format": "koncord-invite", "version": 1, "site": "oslo", "address": "a.example:1"}
    Path("oslo.invite").write_text(
        json.dumps({**content, "authority": "", "key": "", "fingerprint": ""}), encoding="utf-8"
    )
    call = ("join", "--invite", "oslo.invite", "--data", "oslo.csv", "--dry-run", "--estimator", "xmeans")
    code, _, err = run(*call)
    assert code == 0
    for sentence in NOTES:
        assert f"note: {sentence}\n" in err
