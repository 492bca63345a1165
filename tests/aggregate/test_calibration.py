"""Offsets between sites: found where there are some, refused where sites hold other clusters, and taken out."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import FederatedClustering, FedGEM, KnownCounts
from koncord.aggregate.consensus.calibration import additive_fit, errors_by_cluster, find_offsets, site_effects
from koncord.aggregate.consensus.microclusters import micro_clusters_of
from koncord.errors import KoncordError
from koncord.model.globalmodel import GlobalModel
from koncord.privacy import Budget
from koncord.report.preparation import about_preparation
from koncord.report.sure import sentences

# Distances between any two are different, so that no offset lays two clusters on two others.
PLACES = np.array([[0.0, 0, 0, 0], [9, 0, 1, 0], [0, 7, 0, 2], [3, 0, 11, 0], [0, 5, 0, 8]])
SHIFTS = np.array([[0.0, 0, 0, 0], [7, -5, 4, 6], [-6, 6, 5, -5], [5, 4, -7, 4]])


def dealt(shift=1.0, n=60, held=None, seed=0, places=PLACES):
    """Rows and classes of four sites; each is shifted by so many of its `SHIFTS`."""
    rng = np.random.default_rng(seed)
    held = held or [(0, 1, 2, 3), (0, 1, 3, 4), (0, 2, 3, 4), (0, 1, 2, 4)]
    tables, classes = {}, {}
    for at, own in enumerate(held):
        y = np.concatenate([np.full(n * (3 if each == 0 else 1), each) for each in own])
        d = places.shape[1]
        tables[f"s{at}"] = rng.normal(places[y], 1.0) + shift * SHIFTS[at % 4, :d]
        classes[f"s{at}"] = y
    return tables, classes


def reports_of(tables):
    return {site: micro_clusters_of(X, 20) for site, X in tables.items()}


def offsets_in(tables):
    return find_offsets(reports_of(tables), np.random.default_rng(0))


def fitted(tables, **options):
    return FederatedClustering(KnownCounts(1), random_state=0, local_counts=False, **options).fit(tables)


def ari(found, classes):
    return adjusted_rand_score(np.concatenate(list(classes.values())), np.concatenate(found.labels_))


# --- the arithmetic ---


def test_errors_are_those_of_a_fit_without_the_cell():
    rng = np.random.default_rng(3)
    weights = rng.integers(1, 9, (4, 3)).astype(float)
    weights[0, 2] = weights[3, 0] = 0
    means = rng.normal(size=(4, 3, 2))
    offsets, errors, left = additive_fit(weights, means)
    for site, cluster in zip(*np.nonzero(weights), strict=True):
        cells = [(s, c) for s, c in zip(*np.nonzero(weights), strict=True) if (s, c) != (site, cluster)]
        design = np.array([np.r_[np.eye(4)[s], np.eye(3)[c]] for s, c in cells])
        roots = np.sqrt([weights[s, c] for s, c in cells])[:, None]
        values = np.array([means[s, c] for s, c in cells])
        found = np.linalg.lstsq(roots * design, roots * values, rcond=None)[0]
        np.testing.assert_allclose(errors[site, cluster], means[site, cluster] - found[site] - found[4 + cluster])
        assert 0 < left[site, cluster] < 1
        others = [s for s in range(4) if s != site and weights[s, cluster]]
        mean = np.average(means[others, cluster], axis=0, weights=weights[others, cluster])
        np.testing.assert_allclose(errors_by_cluster(weights, means)[site, cluster], means[site, cluster] - mean)
    np.testing.assert_allclose(np.average(offsets, axis=0, weights=weights.sum(axis=1)), 0, atol=1e-12)


def test_nothing_is_known_of_a_cell_that_alone_tells_the_offset_of_its_site():
    weights = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    _, _, left = additive_fit(weights, np.zeros((3, 3, 1)))
    assert left[2, 1] == pytest.approx(0, abs=1e-12)
    assert (left[:2, :2] > 0.1).all()


def test_offsets_of_sites_without_a_common_cluster_are_about_zeros_of_their_own():
    weights = np.array([[1.0, 1, 0, 0], [1.0, 1, 0, 0], [0, 0, 1.0, 1], [0, 0, 1.0, 1]])
    shift = np.array([0.0, 2.0, 50.0, 56.0])
    means = shift[:, None, None] + np.zeros((4, 4, 1))
    np.testing.assert_allclose(additive_fit(weights, means)[0][:, 0], [-1, 1, -3, 3], atol=1e-9)


def test_a_cluster_of_one_site_is_an_effect_if_others_have_it_once_aligned():
    rows = {"a": np.array([30, 30, 40]), "b": np.array([50, 50])}
    found = {"a": np.array([0, 1, 1]), "b": np.array([2, 0])}
    aligned = {"a": np.array([0, 1, 2]), "b": np.array([1, 0])}
    assert site_effects(found, aligned, rows) == (2,)  # 1 is the site's own with 40 of its 70 rows
    assert site_effects(found, {**aligned, "b": np.array([2, 0])}, rows) == (1, 2)


# --- where there are offsets ---


def test_offsets_are_found_up_to_a_common_shift():
    found = offsets_in(dealt()[0])
    assert found.is_credible
    shifts = np.array([found.by_client[f"s{at}"] for at in range(4)])
    np.testing.assert_allclose(shifts - shifts.mean(axis=0), SHIFTS - SHIFTS.mean(axis=0), atol=0.3)


def test_without_offsets_there_are_none():
    found = offsets_in(dealt(shift=0.0)[0])
    assert found is None or not found.is_credible


def test_the_order_of_sites_changes_nothing():
    reports = reports_of(dealt()[0])
    one = find_offsets(reports, np.random.default_rng(0))
    other = find_offsets(dict(reversed(reports.items())), np.random.default_rng(0))
    for site, offset in one.by_client.items():
        np.testing.assert_allclose(other.by_client[site], offset, atol=1e-9)


@pytest.mark.parametrize("held", [[(0, 1), (2, 3), (4, 0), (1, 2)], [(0,), (1,), (2,), (3,)], [(0, 1, 2)] * 4])
def test_sites_that_hold_other_clusters_are_not_laid_on_each_other(held):
    found = offsets_in(dealt(shift=0.0, held=held)[0])
    assert found is None or not found.is_credible


def test_clusters_so_close_that_any_offset_fits_are_no_evidence():
    places = 6.0 * np.array([[x, y] for x in range(5) for y in range(4)], dtype=float)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        held = [tuple(rng.choice(20, 9, replace=False).tolist()) for _ in range(6)]
        found = offsets_in(dealt(shift=0.0, n=60, held=held, seed=seed, places=places)[0])
        assert found is None or not found.is_credible


def test_one_site_and_sites_below_the_floor_have_no_offset():
    tables, _ = dealt()
    assert offsets_in({"s0": tables["s0"]}) is None
    assert offsets_in({"s0": tables["s0"], "few": tables["s1"][:5]}) is None


# --- through the product ---


@pytest.fixture(scope="module")
def plain():
    tables, classes = dealt()
    return fitted(tables), classes


@pytest.fixture(scope="module")
def harmonized():
    tables, classes = dealt()
    return fitted(tables, harmonize=True), classes


def test_without_harmonize_offsets_are_told_of_and_nothing_else(plain):
    found, classes = plain
    assert ari(found, classes) < 0.5
    calibration = found.model_.diagnostics.calibration
    assert not calibration.is_applied
    assert calibration.n_clusters == 5
    assert found.model_.offsets == {}
    assert set(calibration.site_effects) == {
        at for at in range(found.n_clusters_) if found.model_.session.support[at] == 1
    }
    said = " ".join([*about_preparation(found.model_), *sentences(found.model_)])
    assert "seem to be calibrated differently, most of all" in said
    assert "Aligned, they make 5 clusters: --harmonize does that." in said
    assert "are site effects, not more structure" in said
    assert "whether other sites would show it" not in said


def test_to_tell_of_offsets_does_not_change_the_answer(plain, monkeypatch):
    monkeypatch.setattr("koncord.aggregate.consensus.find_offsets", lambda reports, rng: None)
    without = fitted(dealt()[0]).model_
    np.testing.assert_array_equal(without.centers, plain[0].model_.centers)


def test_with_harmonize_the_clusters_are_those_of_all_sites(harmonized):
    found, classes = harmonized
    assert found.n_clusters_ == 5
    assert ari(found, classes) > 0.99
    assert found.model_.diagnostics.calibration.is_applied
    counts = [np.bincount(labels, minlength=5).tolist() for labels in found.labels_]
    # What sites count is in whole groups of their partitions.
    np.testing.assert_allclose(found.model_.holdings, counts, atol=20)
    assert "Offsets between the sites were taken out" in " ".join(about_preparation(found.model_))


def test_rows_of_a_site_are_labeled_with_its_offset_and_others_without(harmonized, tmp_path):
    found, _ = harmonized
    tables, _ = dealt()
    np.testing.assert_array_equal(found.predict(tables["s1"], site="s1"), found.labels_[1])
    as_at_zero = (found.model_.scaled(tables["s1"]) - found.model_.offsets["s1"]) * found.model_.scales
    np.testing.assert_array_equal(found.predict(as_at_zero + found.model_.means), found.labels_[1])
    assert (found.predict(tables["s1"]) != found.labels_[1]).mean() > 0.3
    found.model_.save(tmp_path / "model.koncord")
    assert GlobalModel.load(tmp_path / "model.koncord") == found.model_
    assert replace(found.model_, offsets={}) != found.model_


def test_a_row_with_a_gap_is_judged_by_the_clusters_as_the_site_has_them(harmonized):
    model = harmonized[0].model_
    model = replace(model, plan=replace(model.plan, missing="neighbors"))
    row = model.plan.original(model.centers[2:3] + model.offsets["s1"])
    row[0, 3] = np.nan
    there = model.scaled(row, "s1")
    assert np.isnan(there[0, 3])
    np.testing.assert_allclose(there[0, :3], model.centers[2, :3], atol=1e-9)
    assert model.predict(row, site="s1").tolist() == [2]
    without_shapes = replace(model, gaussians=None)
    np.testing.assert_allclose(without_shapes.scaled(row, "s1"), model.centers[2:3], atol=1e-9)


def test_nothing_is_harmonized_where_nothing_speaks_for_it():
    tables, _ = dealt(shift=0.0)
    with_it, without = fitted(tables, harmonize=True).model_, fitted(tables).model_
    np.testing.assert_array_equal(with_it.centers, without.centers)
    assert with_it.offsets == {}
    assert "Nothing was harmonized: no offsets between the sites are credible." in with_it.diagnostics.notes


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"aggregator": FedGEM(upsilon=2)}, ValueError, "which finds no offsets between sites; Consensus does"),
        ({"privacy": Budget(epsilon=1, delta=1e-6, bound=30)}, ValueError, "must be False with a privacy budget"),
        ({"categories": ["x0"]}, KoncordError, "Offsets are of numbers"),
    ],
)
def test_what_does_not_go_with_harmonize_is_refused(options, error, said):
    import pandas as pd

    rng = np.random.default_rng(0)
    frames = {
        site: pd.DataFrame({"x0": rng.integers(0, 2, 60), "x1": rng.normal(size=60), "x2": rng.normal(size=60)})
        for site in ("a", "b")
    }
    with pytest.raises(error, match=said):
        fitted(frames, harmonize=True, **options)


def test_of_two_sites_no_offset_is_told_because_clusters_of_their_own_look_the_same():
    rng = np.random.default_rng(0)
    tables = {
        site: np.concatenate([rng.normal(at, 1, (300, 3)) for at in means])
        for site, means in {"north": (0, 9), "south": (9, 18)}.items()
    }
    assert offsets_in(tables) is None
