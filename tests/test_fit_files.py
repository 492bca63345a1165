"""koncord.fit: files or tables to clusters in one call."""

from pathlib import Path

import numpy as np
import pytest

import koncord
from koncord.errors import TableError

HELD = {"north": (0, 9), "south": (9, 18), "west": (0, 18)}


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    return {name: np.concatenate([rng.normal(m, 1, (80, 3)) for m in own]) for name, own in HELD.items()}


@pytest.fixture
def files(tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, X in tables.items():
        np.savetxt(f"{name}.csv", X, delimiter=",", header="a,b,c", comments="")
    return [f"{name}.csv" for name in tables]


def labels(fitted):
    return {site: np.asarray(own).tolist() for site, own in zip(fitted.sites_, fitted.labels_, strict=True)}


def test_files_give_what_their_tables_give(files, tables):
    of_files = koncord.fit(files, random_state=0)
    of_tables = koncord.FederatedClustering(random_state=0, standardize=True).fit(tables)
    assert isinstance(of_files, koncord.FederatedClustering)
    assert of_files.n_clusters_ == 3
    assert labels(of_files) == labels(of_tables)
    assert of_files.feature_names_in_.tolist() == ["a", "b", "c"]


def test_files_give_what_the_command_gives(files, result):
    by_command = result("fit", *files, "--out", "run", "--seed", 4)
    model = koncord.GlobalModel.load(Path("run/model.koncord"))
    fitted = koncord.fit(files, random_state=4)
    assert fitted.n_clusters_ == by_command["n_clusters"]
    assert np.array_equal(fitted.model_.centers, model.centers)
    assert fitted.record_.is_standardized is by_command["standardized"] is True


def test_a_pattern_a_mapping_and_paths_name_the_sites(files):
    expected = labels(koncord.fit(files, random_state=0))
    assert labels(koncord.fit("*.csv", random_state=0)) == expected
    assert labels(koncord.fit([Path(file) for file in files], random_state=0)) == expected
    renamed = koncord.fit({"A": files[0], "B": files[1]}, random_state=0)
    assert renamed.sites_ == ["A", "B"]


def test_files_and_tables_may_be_mixed(files, tables):
    mixed = koncord.fit({"north": "north.csv", "south": as_named(tables["south"]), "west": "west.csv"}, random_state=0)
    assert labels(mixed) == labels(koncord.fit(files, random_state=0))


def as_named(X):
    import pandas as pd

    return pd.DataFrame(X, columns=["a", "b", "c"])


def test_columns_are_chosen_as_by_the_command(files):
    assert koncord.fit(files, columns=["c", "a"], random_state=0).feature_names_in_.tolist() == ["c", "a"]
    assert koncord.fit(files, drop=["b"], random_state=0).feature_names_in_.tolist() == ["a", "c"]


def test_parameters_are_those_of_federated_clustering(files):
    fitted = koncord.fit(files, aggregator=koncord.KFed(3), random_state=0, standardize=False)
    assert isinstance(fitted.aggregator, koncord.KFed)
    assert not fitted.record_.is_standardized
    with pytest.raises(TypeError, match="n_cluster"):
        koncord.fit(files, n_cluster=3)


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ("none-*.csv", r"'sites' of fit is the pattern 'none-\*.csv', which no file in '.*' matches"),
        (["north.csv", "deep/north.csv"], "two sites called 'north'.*give a mapping of site name to file"),
        ([], "at least one site"),
        (["gone.csv"], "gone.csv"),
    ],
)
def test_a_wrong_call_says_what_to_do(files, sites, said):
    with pytest.raises((ValueError, TableError), match=said):
        koncord.fit(sites)


def test_one_table_says_how_to_cut_it(files):
    with pytest.raises(TypeError, match=r"'sites' of fit must be a list of files or tables.*groupby\('site'\)"):
        koncord.fit(np.ones((5, 3)))


def test_the_estimator_says_who_reads_files(files):
    with pytest.raises(TypeError, match=r"koncord.fit reads files: koncord.fit\(\['north.csv', ...\]\)"):
        koncord.FederatedClustering().fit(files)


@pytest.mark.parametrize("budget", [False, True])
def test_columns_are_standardized_unless_there_is_a_budget(tables, budget):
    pytest.importorskip("opendp")
    from koncord.privacy.budget import Budget

    given = {"privacy": Budget(epsilon=20, delta=1e-6, bound=40)} if budget else {}
    assert koncord.fit(tables, random_state=0, **given).record_.is_standardized is not budget


def in_pascal(tables):
    return {name: X * [1, 1e5, 1] for name, X in tables.items()}


def test_the_estimator_warns_where_one_column_decides_alone(tables):
    other = in_pascal(tables)
    with pytest.warns(UserWarning, match=r"Column 'x1' varies .* times as much as column 'x[02]'.*standardize=True"):
        koncord.FederatedClustering(random_state=0, standardize=False).fit(other)
    koncord.FederatedClustering(random_state=0).fit(other)
    koncord.FederatedClustering(random_state=0, standardize=False).fit(tables)
    constant = {name: np.column_stack([X, np.ones(len(X))]) for name, X in tables.items()}
    koncord.FederatedClustering(random_state=0, standardize=False).fit(
        constant
    )  # a column that says nothing is no reason to warn


def test_units_do_not_change_what_fit_finds(tables):
    assert labels(koncord.fit(in_pascal(tables), random_state=0)) == labels(koncord.fit(tables, random_state=0))


# --- progress ---


class Shell:
    """What IPython shows in a notebook, without a notebook."""

    kernel = object()

    def __init__(self):
        self.shown = []


@pytest.fixture
def notebook(monkeypatch):
    ipython = pytest.importorskip("IPython")
    display = pytest.importorskip("IPython.display")
    shell = Shell()

    class Handle:
        def update(self, content):
            shell.shown.append(content.data)

    def show(content, *, display_id):
        assert display_id is True
        shell.shown.append(content.data)
        return Handle()

    monkeypatch.setattr(ipython, "get_ipython", lambda: shell)
    monkeypatch.setattr(display, "display", show)
    return shell


def test_a_notebook_shows_a_bar_that_grows_and_goes(notebook, tables, monkeypatch):
    monkeypatch.setattr("koncord._bar.PACE", 0.0)
    with koncord.progress(patience=0.0):
        koncord.FederatedClustering(random_state=0).fit(tables)
    *bars, last = notebook.shown
    assert last == ""
    values = [int(bar.split('value="')[1].split('"')[0]) for bar in bars]
    assert values == sorted(values)
    assert len(set(values)) > 3
    assert all("<progress" in bar for bar in bars)


def test_short_work_shows_nothing_in_a_notebook(notebook, tables):
    with koncord.progress(patience=600.0):
        koncord.FederatedClustering(random_state=0).fit(tables)
    assert notebook.shown == []


def test_fit_can_be_silent(notebook, files, monkeypatch):
    monkeypatch.setattr("koncord._bar.BAR_PATIENCE", 0.0)
    koncord.fit(files, random_state=0, progress=False)
    assert notebook.shown == []


def test_raw_files_give_what_the_command_gives_with_the_same_options(tmp_path, result, monkeypatch):
    """Decimal commas, gaps, a number that stands for missing, a category and Fahrenheit, read by both alike."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        lines = ["t;p;ward"]
        for row in range(120):
            t, p = rng.normal((9 * (row % 2), 0))
            t = 1.8 * t + 32 if name == "north" else t
            cells = [f"{t:.2f}" if row % 11 else "", f"{p:.2f}" if row % 13 else "-999", "ab"[row % 2]]
            lines.append(";".join(cells).replace(".", ","))
        Path(f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    options = ("--na", "-999", "--decimal", ",", "--categories", "ward", "--convert", "north:t=F")
    result("fit", "north.csv", "south.csv", "--out", "run", *options)
    model = koncord.GlobalModel.load(Path("run/model.koncord"))
    fitted = koncord.fit(
        "*.csv", random_state=0, na=["-999"], decimal=",", categories=["ward"], convert={"north": {"t": "F"}}
    )
    assert fitted.model_.plan == model.plan
    assert np.array_equal(fitted.model_.centers, model.centers)
    of_command = np.loadtxt("run/labels/north.csv", delimiter=",", skiprows=1, usecols=1)
    assert np.asarray(fitted.labels_[0]).tolist() == of_command.tolist()


def test_a_conversion_of_no_file_is_a_wrong_call(files, tables):
    for sites, convert in ((files, {"nowhere": {"a": "F"}}), (tables, {next(iter(tables)): {"a": "F"}})):
        with pytest.raises(ValueError, match="which is no site with a file"):
            koncord.fit(sites, convert=convert)
