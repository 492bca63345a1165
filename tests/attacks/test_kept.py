"""What is kept after a run: the model, its record, the page. Who has them looks for rows."""

import re

import numpy as np
from malicious import FLOOR, N_ROWS, Folders, joined, table
from safetensors import safe_open
from test_shaping import said

import koncord
from koncord.cli import main
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
