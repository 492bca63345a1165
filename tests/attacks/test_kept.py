"""What is kept after a run: the reports of the sites, the model, the page. Who has them looks for rows, and for a site
that withdrew."""

import json
import re

import numpy as np
import pytest
from malicious import FLOOR, N_ROWS, Folders, joined, table
from safetensors import safe_open
from test_shaping import said

import koncord
from koncord.cli import main
from koncord.runs.reports import Reports
from koncord.session.federation import run_federation

SITES = ("north", "south", "west")


def parts_of(X, n=3):
    return dict(zip(SITES, np.array_split(X, n), strict=True))


def write_tables(folder, tables):
    for site, X in tables.items():
        header = ",".join(f"x{at}" for at in range(X.shape[1]))
        np.savetxt(folder / f"{site}.csv", X, delimiter=",", header=header, comments="", fmt="%.17g")


def numbers_in(folder):
    """Every number that is in a file of a run: as text, and in arrays."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.parent.name == "labels":
            continue
        content = path.read_bytes()
        texts = re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", content.decode("utf-8", errors="ignore"))
        found += [float(text) for text in texts if len(text) > 8]
        if path.suffix == ".koncord":
            with safe_open(path, framework="numpy") as file:
                arrays = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
            found += [float(each) for array in arrays if array.dtype.kind == "f" for each in array.ravel()]
            for array in arrays:
                if array.dtype == np.uint8:  # a message
                    for start in range(8):
                        whole = array.tobytes()[start:]
                        found += np.frombuffer(whole[: len(whole) // 8 * 8], dtype="<f8").tolist()
    values = np.array(found)
    return np.unique(values[np.isfinite(values)])


def n_values_among(numbers, X):
    """Values of the table that are among the numbers."""
    values = np.unique(X)
    at = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    gaps = np.minimum(np.abs(numbers[at] - values), np.abs(numbers[at - 1] - values))
    return int((gaps < 1e-9 * np.abs(values)).sum())


def test_no_value_of_a_row_is_in_a_file_of_a_run(tmp_path, capsys):
    rng = np.random.default_rng(0)
    tables = parts_of(table()[:, :6] + rng.normal(0, 1e-3, (N_ROWS, 6)))  # no value is a round number
    write_tables(tmp_path, tables)
    assert main(["fit", *(str(tmp_path / f"{site}.csv") for site in SITES), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    numbers = numbers_in(tmp_path / "run")
    n_told = n_values_among(numbers, np.concatenate(list(tables.values())))
    said(capsys, f"{len(numbers)} numbers in the files of a run: {n_told} are values of rows")
    assert len(numbers) > 500
    assert n_told == 0


@pytest.mark.parametrize("most_shown", [2, 200], ids=["sites in a file beside the page", "sites on the page"])
def test_nothing_of_a_site_that_withdrew_is_in_a_file_of_the_run(most_shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("koncord.runs.sites.MOST_SHOWN", most_shown)
    monkeypatch.setattr("koncord.runs.sites.LARGEST_SHOWN", 1)
    rng = np.random.default_rng(1)
    tables = parts_of(rng.normal(size=(600, 3)) + 6 * rng.integers(0, 3, (600, 1)))
    write_tables(tmp_path, tables)
    out = tmp_path / "run"
    assert main(["fit", *(str(tmp_path / f"{site}.csv") for site in tables), "--out", str(out)]) == 0
    replies = Reports.load(out / "reports.koncord").replies
    others = {reply for site in ("north", "west") for reply in replies[site].values()}
    own = [reply for reply in replies["south"].values() if reply not in others]
    assert main(["forget", "south", "--run", str(out)]) == 0
    capsys.readouterr()
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    named = {path.name for path in files if b"south" in path.read_bytes()}
    n_left = sum(reply in path.read_bytes() for reply in own for path in files)
    told = n_values_among(numbers_in(out), tables["south"])
    said(capsys, f"a site that withdrew: {n_left} of {len(own)} replies left, {told} values; named in {sorted(named)}")
    assert n_left == told == 0
    assert named <= {"run.json", "report.html"}
    assert json.loads((out / "run.json").read_text())["forgotten"] == ["south"]


def test_models_of_months_in_which_a_few_rows_came_and_went_are_the_same(tmp_path, capsys):
    """Who has the models of two months has the means of every site's micro-clusters and its rows by cluster, twice."""
    X, months = table()[:, :8], []
    for month, n_more in enumerate((0, 1, 7, FLOOR - 1)):
        tables = {site: own[month : len(own) - FLOOR + n_more] for site, own in parts_of(X).items()}
        link = Folders({site: joined(tmp_path / site, own) for site, own in tables.items()}, f"run-{month + 1}")
        given = {"seed": 1, "standardize": False, "settings": {}, "min_report": FLOOR}
        run_federation(link, koncord.Consensus(), **given).save(tmp_path / "model.koncord")
        months.append(koncord.GlobalModel.load(tmp_path / "model.koncord"))
    n_counts = sum(int((model.holdings != months[0].holdings).sum()) for model in months[1:])
    n_means = sum(
        int((model.components[site] != months[0].components[site]).any(axis=1).sum())
        for model in months[1:]
        for site in SITES
    )
    said(capsys, f"models of four months: {n_counts} counts and {n_means} means differ")
    assert n_counts == n_means == 0
    assert months[0].holdings[months[0].holdings > 0].min() >= FLOOR
