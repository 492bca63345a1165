"""Counts of cells: which axes stand out of noise, the Gaussian that fits counts best, and the mixture that is taken."""

from dataclasses import replace

import numpy as np
import pytest

from koncord.aggregate.consensus.cellcounts import (
    Counted,
    Layout,
    Spectrum,
    choose_by_counts,
    fitted_gaussian,
    mixtures_of,
    n_cells_of,
)
from koncord.aggregate.consensus.microclusters import micro_clusters_of
from koncord.kernels.assign import nearest


def spectrum_of(covariance, noise=0.0, radius=1e9):
    return Spectrum.of(covariance, noise, radius, np.random.default_rng(0))


def noisy(variances, noise, seed):
    rng = np.random.default_rng(seed)
    d = len(variances)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    added = np.triu(rng.normal(0, noise, (d, d)), 1) * 5 / 7
    return (axes * np.array(variances)) @ axes.T + added + added.T + np.diag(rng.normal(0, noise, d)), axes


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.7])
def test_the_axes_that_stand_out_of_the_noise_are_kept(noise):
    for seed in range(20):
        covariance, axes = noisy([24.0, 12.0, *[1.0] * 18], noise, seed)
        spectrum = spectrum_of(covariance, noise)
        assert spectrum.n_kept == spectrum.n_standing == 2
        overlap = np.linalg.norm(spectrum.axes[:2] @ axes[:, :2])
        assert overlap == pytest.approx(np.sqrt(2), abs=0.02 + 0.4 * noise)
        assert np.ptp(spectrum.variances[2:]) < 1e-9  # all others alike: their differences are noise
        np.testing.assert_allclose(
            spectrum.root.T @ spectrum.root, (spectrum.axes.T * spectrum.variances) @ spectrum.axes
        )


def test_no_variance_that_noise_leaves_is_one_and_nothing_overflows():
    found = spectrum_of(-0.5 * np.eye(3), noise=1.0, radius=13.0)
    assert found.n_standing == 0
    assert (found.variances > 0).all()


@pytest.mark.parametrize("variances", [[1.0] * 10, [3.0, *[1.0] * 9], [9.0, 8.0, 7.0, 6.0, 1.0, 1.0]])
def test_no_axis_is_left_out_that_has_much_of_the_variance_or_where_many_stand_out(variances):
    assert spectrum_of(noisy(variances, 0.02, 0)[0], 0.02).n_kept is None


@pytest.mark.parametrize(("n_columns", "n_kept"), [(8, None), (11, None), (12, 3), (21, 3)])
def test_axes_are_left_out_only_where_they_are_several_times_those_that_are_kept(n_columns, n_kept):
    """Of eight separated clusters in eight columns a fourth axis hardly stood out, and what it keeps apart was lost."""
    variances = [100.0, 73.0, 30.0, *[1.0] * (n_columns - 3)]
    found = spectrum_of(noisy(variances, 1.0, 0)[0], 1.0)
    assert found.n_standing == 3
    assert found.n_kept == n_kept


def test_the_variances_of_clipped_rows_become_those_of_the_rows():
    rng = np.random.default_rng(4)
    variances = np.array([75.0, 53.0, 34.0, 19.0, 10.0, 6.0, 3.0, 1.0])
    rows = rng.normal(size=(40_000, 8)) * np.sqrt(variances)
    radius = 1.2 * np.sqrt(variances.sum())
    short = rows * np.minimum(1, radius / np.linalg.norm(rows, axis=1))[:, None]
    assert (short**2).mean(axis=0)[0] < 0.85 * variances[0]
    found = spectrum_of(short.T @ short / len(short), radius=radius).variances
    np.testing.assert_allclose(found, variances, rtol=0.04)


def test_few_columns_are_all_kept():
    assert spectrum_of(np.eye(3), 0.1).n_kept == 3
    assert spectrum_of(np.diag([1.0, -0.2]), 0.3).variances.min() > 0


def test_the_gaussian_that_fits_the_counts_is_the_one_that_was_counted():
    rng = np.random.default_rng(1)
    covariance = np.array([[9.0, 2.0], [2.0, 4.0]])
    layout = Layout.of(np.zeros(2), spectrum_of(np.diag([6.0, 6.0])), 2, 80, rng)
    rows = rng.multivariate_normal([0.5, -0.5], covariance, 40_000) @ layout.axes.T
    counts = np.bincount(nearest(rows, layout.points), minlength=80) + rng.normal(0, 10, 80)
    found = fitted_gaussian(counts, layout, rng)
    mean = found.rows @ found.means
    gaps = found.means - mean
    spread = np.einsum("n,nij->ij", found.rows, found.covariances + gaps[:, :, None] * gaps[:, None])
    np.testing.assert_allclose(layout.axes.T @ spread @ layout.axes, covariance, atol=0.4)
    np.testing.assert_allclose(mean @ layout.axes, [0.5, -0.5], atol=0.1)


def test_a_row_is_nearest_to_the_same_cell_in_all_columns_as_along_the_axes():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 7)) * np.array([9, 7, 1, 1, 1, 1, 1]) + 3.0
    spectrum = spectrum_of(np.cov(X.T))
    layout = Layout.of(X.mean(axis=0), spectrum, 2, 40, rng)
    along = (X - layout.middle) @ layout.axes.T
    assert np.array_equal(nearest(X, layout.in_columns(layout.points)), nearest(along, layout.points))


def counted(rows, noise, seed):
    rng = np.random.default_rng(seed)
    spectrum = spectrum_of(np.cov(rows.T))
    layout = Layout.of(np.zeros(2), spectrum, 2, n_cells_of(len(rows), noise), rng)
    labels = nearest(rows @ layout.axes.T, layout.points)
    counts = np.bincount(labels, minlength=len(layout.points)) + rng.normal(0, noise, len(layout.points))
    return Counted.of(counts, noise, layout, rng), rng


@pytest.mark.parametrize("seed", range(4))
def test_one_cloud_of_counts_is_one_cluster_and_three_are_three(seed):
    rng = np.random.default_rng([9, seed])
    cloud = rng.normal(size=(5000, 2)) * np.array([5.0, 2.0])
    found, rng = counted(cloud, 12.0, seed)
    assert choose_by_counts(found, rng, max_clusters=100, slack=0.02).chosen.n_clusters == 1
    three = np.array([[0.0, 6.0], [6.0, -3.0], [-6.0, -3.0]])[rng.integers(3, size=5000)]
    found, rng = counted(three + 1.5 * rng.normal(size=three.shape), 12.0, seed)
    choice = choose_by_counts(found, rng, max_clusters=100, slack=0.02)
    assert choice.chosen.n_clusters == 3
    assert choice.runner_up.n_clusters != 3
    assert len(np.unique(choice.labels)) == 3
    assert choose_by_counts(found, rng, max_clusters=2, slack=0.02).chosen.n_clusters == 2


def test_the_criterion_of_a_mixture_is_less_where_clusters_overlap():
    rng = np.random.default_rng(5)
    two = np.repeat([[0.0, 0.0], [8.0, 0.0]], 1500, axis=0)
    apart = mixtures_of(micro_clusters_of(two + rng.normal(size=two.shape), 30), 0.0, rng, 6)
    assert max(apart, key=lambda k: apart[k].criterion) == 2
    one = mixtures_of(micro_clusters_of(rng.normal(size=(3000, 2)), 30), 0.0, rng, 6)
    assert all(each.criterion < 0 for each in one.values())


def test_a_cell_of_noise_is_no_cluster():
    """Empty cells whose noisy count stands out by chance, far from all rows."""
    rng = np.random.default_rng(6)
    micro = micro_clusters_of(np.repeat([[0.0, 0.0], [9.0, 0.0]], 1500, axis=0) + rng.normal(size=(3000, 2)), 60)
    far = replace(
        micro,
        counts=np.append(micro.counts, 30),
        means=np.concatenate([micro.means, [[4.0, 20.0]]]),
        scatters=np.append(micro.scatters, 30.0),
    )
    seen, ignored = mixtures_of(far, 0.0, rng, 6), mixtures_of(far, 12.0, rng, 6)
    assert max(seen, key=lambda k: seen[k].criterion) == 3
    assert max(ignored, key=lambda k: ignored[k].criterion) == 2
