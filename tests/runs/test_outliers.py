"""Values far off in their cluster: found, named in the labels, counted on the page."""

import csv
import io

import numpy as np
import pytest

from koncord import FederatedClustering, KFed, KnownCounts
from koncord.data.files import Table
from koncord.report.preparation import about_outliers
from koncord.runs.assignments import FarOff, as_csv, far_off_rows, labeled, outlier_counts
from koncord.runs.record import Crowd, RunRecord

COLUMNS = ("heat", "flow, mean", "noise")
PLACES = np.array([[0.0, 0, 0], [9, 0, 4], [0, 8, 9]])
WRONG = {("north", 5): (0, 200.0), ("north", 130): (1, -80.0), ("south", 44): (2, 500.0)}


def tables(n=120):
    rng = np.random.default_rng(0)
    found = {site: np.concatenate([rng.normal(place, 1, (n, 3)) for place in PLACES]) for site in ("north", "south")}
    for (site, row), (column, value) in WRONG.items():
        found[site][row, column] = value
    return found


def table(site, X):
    return Table(name=site, X=X, columns=COLUMNS)


@pytest.fixture(scope="module")
def fitted():
    import pandas as pd

    frames = {site: pd.DataFrame(X, columns=list(COLUMNS)) for site, X in tables().items()}
    return FederatedClustering(KnownCounts(1), random_state=0, local_counts=False).fit(frames)


def test_wrong_readings_are_found_with_their_column_and_nothing_else_is(fitted):
    for at, (site, X) in enumerate(tables().items()):
        found = labeled(fitted.model_, table(site, X), site)
        rows = list(csv.DictReader(io.StringIO(as_csv(found))))
        wanted = {row: COLUMNS[column] for (where, row), (column, _) in WRONG.items() if where == site}
        assert {row: each["outlier"] for row, each in enumerate(rows) if each["outlier"]} == wanted
        assert [int(each["cluster"]) for each in rows] == fitted.labels_[at].tolist()
        assert np.flatnonzero(fitted.outliers_[at]).tolist() == sorted(wanted)


def test_how_far_a_value_is_off_is_in_deviations_of_its_cluster(fitted):
    X = tables()["south"]
    model, labels = fitted.model_, fitted.labels_[1].to_numpy()
    beyond = model.far_off(table("south", X), labels)
    for row in (0, 44, 200):
        cluster = labels[row]
        covariance = model.gaussians.axes.T @ model.gaussians.covariances[cluster] @ model.gaussians.axes
        spread = np.maximum(np.sqrt(np.diagonal(covariance)), 0.5)  # standardized: all rows have deviation 1
        scaled = (X[row] - model.means) / model.scales
        np.testing.assert_allclose(beyond[row], np.abs(scaled - model.centers[cluster]) / spread, rtol=0.02)


def test_a_missing_value_is_not_far_off(fitted):
    X = tables()["north"]
    X[5, 0] = np.nan
    assert 5 not in far_off_rows(fitted.model_, table("north", X), fitted.labels_[0].to_numpy()).rows


def test_many_values_far_off_in_one_place_are_no_outliers_but_a_hint(fitted):
    X = tables()["north"]
    X[10:40, 2] = 300.0
    labels = fitted.labels_[0].to_numpy()
    found = far_off_rows(fitted.model_, table("north", X), labels)
    assert found.rows.tolist() == [5, 130]
    assert found.crowded == {(int(labels[0]), "noise"): 30}


def test_tables_are_counted_together_and_few_are_not_told_on_the_page(fitted):
    one = FarOff(columns=COLUMNS, rows=np.arange(15), column=np.zeros(15, dtype=np.int64), crowded={(1, "noise"): 12})
    counts = outlier_counts([one, one])
    assert counts.by_column == {"heat": 30}
    assert counts.crowded == (Crowd(cluster=1, column="noise", rows=24),)
    said = about_outliers(with_outliers(fitted.record_, counts), 20)
    assert said[0].startswith("Possible wrong readings: 30 rows with a value more than 8 standard deviations")
    assert "among them heat (30)" in said[0]
    assert "24 of cluster 1 in noise. A cluster may be missing there." in said[1]
    assert "fewer than 40 rows" in about_outliers(with_outliers(fitted.record_, counts), 40)[0]
    assert len(about_outliers(with_outliers(fitted.record_, counts), 40)) == 1
    assert about_outliers(with_outliers(fitted.record_, None), 20) == []


def with_outliers(record, counts):
    from dataclasses import replace

    return replace(record, outliers=counts)


def test_the_counts_are_in_the_record_that_is_saved(fitted, tmp_path):
    assert fitted.record_.outliers.rows == 3
    fitted.record_.save(tmp_path / "run.json")
    assert RunRecord.load(tmp_path / "run.json").outliers == fitted.record_.outliers


def test_without_the_shape_of_the_clusters_there_is_no_such_column():
    found = FederatedClustering(KnownCounts(3), KFed(3), random_state=0).fit(tables())
    X = tables()["north"]
    assigned = labeled(found.model_, Table(name="north", X=X, columns=found.model_.columns))
    assert assigned.outliers is None
    assert as_csv(assigned).splitlines()[0] == "row,cluster,distance,runner_up,runner_up_distance"
    assert not any(each.any() for each in found.outliers_)
    assert found.record_.outliers is None
