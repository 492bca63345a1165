"""Profiles of the clusters against the rows that nobody but the test has."""

from types import SimpleNamespace

import numpy as np
import pytest

from koncord import FederatedClustering, FedKMeans, KnownCounts
from koncord.report.cells import Heat
from koncord.report.federation import cluster_rows
from koncord.report.profiles import MOST_OPEN, profiles, profiles_of, spreads_of

CENTERS = np.array([[0.0, 0.0, 5.0], [12.0, 0.0, 8.0], [0.0, 30.0, 2.0]])
SPREADS = np.array([[1.0, 2.0, 1.0], [1.5, 2.0, 1.0], [0.7, 4.0, 1.0]])

STANDARDIZED = SimpleNamespace(is_standardized=True)  # all that is asked of the record


def sites(n=900, n_sites=3, seed=0):
    rng = np.random.default_rng(seed)
    of_rows = [rng.integers(3, size=n) for _ in range(n_sites)]
    return [CENTERS[k] + SPREADS[k] * rng.normal(size=(n, 3)) for k in of_rows]


@pytest.fixture(scope="module")
def fitted():
    return FederatedClustering(KnownCounts(1), random_state=0, log=False, fence=False).fit(sites())


def test_centers_and_spreads_are_those_of_the_rows(fitted):
    model, X = fitted.model_, np.concatenate(sites())
    labels = model.predict(X)
    found = profiles_of(model, is_standardized=True)
    assert model.n_clusters == 3
    for k in range(3):
        own = X[labels == k]
        assert found.centers[k] == pytest.approx(own.mean(axis=0), abs=0.3)
        reach = (found.reaches[1, k] - found.reaches[0, k]) / 2
        assert reach == pytest.approx(own.std(axis=0), rel=0.2)
    assert spreads_of(model, is_standardized=True) * model.scales == pytest.approx(
        (found.reaches[1] - found.reaches[0]) / 2
    )


def test_what_is_between_the_clusters_is_one_less_what_is_within(fitted):
    model, X = fitted.model_, np.concatenate(sites())
    labels = model.predict(X)
    within = sum((labels == k).mean() * X[labels == k].var(axis=0) for k in range(3))
    found = profiles_of(model, is_standardized=True)
    assert found.between == pytest.approx(1 - within / X.var(axis=0), abs=0.03)
    assert found.order[-1] == 2  # the column in which they differ least
    assert found.average == pytest.approx(X.mean(axis=0), abs=0.3)


def test_the_table_has_the_most_telling_columns_first_and_strips_on_one_scale(fitted):
    model = fitted.model_
    view = profiles(model, STANDARDIZED, cluster_rows(model))
    assert view["table"].rows[-1][0] == model.columns[2]
    for _, *cells, _, between in view["table"].rows:
        assert between.endswith("%")
        assert min(cell.strip[0] for cell in cells) == pytest.approx(0)
        assert max(cell.strip[1] for cell in cells) == pytest.approx(1)
        for cell in cells:
            assert cell.strip[0] < cell.strip[2] < cell.strip[1]
            assert cell.is_above == (cell.strip[2] > float(np.mean([each.strip[2] for each in cells])) or cell.step > 0)


def test_a_method_without_shapes_has_centers_alone_and_says_so(tmp_path):
    fitted = FederatedClustering(KnownCounts(1), FedKMeans(3), random_state=0, log=False, fence=False).fit(sites())
    view = profiles(fitted.model_, STANDARDIZED, cluster_rows(fitted.model_))
    assert not view["has_spread"]
    assert all(cell.strip is None for row in view["table"].rows for cell in row if isinstance(cell, Heat))
    path = tmp_path / "page.html"
    fitted.report(path)
    assert "this method does not tell" in path.read_text(encoding="utf-8")


def test_a_logged_column_has_its_geometric_mean_and_a_spread_by_a_factor():
    rng = np.random.default_rng(0)
    tables = [
        np.column_stack([np.exp(rng.normal(3 * k, 0.5, 600)), rng.normal(9 * k, 1, 600)])
        for k in (rng.integers(2, size=600) for _ in range(3))
    ]
    model = FederatedClustering(KnownCounts(1), random_state=0, log=["x0"]).fit(tables).model_
    found = profiles_of(model, is_standardized=True)
    X = np.concatenate(tables)
    labels = model.predict(X)
    for k in range(model.n_clusters):
        logs = np.log(X[labels == k, 0])
        assert np.log(found.centers[k, 0]) == pytest.approx(logs.mean(), abs=0.1)
        assert np.log(found.reaches[1, k, 0] / found.reaches[0, k, 0]) / 2 == pytest.approx(logs.std(), rel=0.1)


def test_directions_that_the_shapes_leave_out_are_part_of_the_spread():
    rng = np.random.default_rng(0)
    tables = [rng.normal(9 * rng.integers(3, size=(300, 1)), 1, (300, 3)) for _ in range(3)]
    model = FederatedClustering(KnownCounts(1), random_state=0).fit(tables).model_
    assert len(model.gaussians.axes) < 3
    assert spreads_of(model, is_standardized=True) * model.scales == pytest.approx(np.ones((3, 3)), rel=0.15)


def test_one_cluster_has_no_shade_and_many_columns_are_folded():
    rng = np.random.default_rng(0)
    model = (
        FederatedClustering(KnownCounts(1), random_state=0).fit([rng.normal(size=(400, 33)) for _ in range(3)]).model_
    )
    assert model.n_clusters == 1
    view = profiles(model, STANDARDIZED, cluster_rows(model))
    assert len(view["table"].rows) == MOST_OPEN
    assert len(view["others"].rows) == 3
    assert {row[1].step for row in view["table"].rows} == {0.0}
