import os
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import adjusted_rand_score

from koncord import FederatedClustering, FedGEM, KnownCounts
from koncord.aggregate.fedgem import RADII, UPSILONS, centers_of, em_step, smallest_distance


def plain_em_step(X, means):
    density = np.array([[np.exp(-0.5 * ((x - m) ** 2).sum()) for m in means] for x in X])
    share = density / density.sum(axis=1, keepdims=True)
    moved = np.array([share[:, k] @ X / share[:, k].sum() for k in range(len(means))])
    variances = [share[:, k] @ ((X - moved[k]) ** 2).sum(axis=1) / share[:, k].sum() for k in range(len(means))]
    return moved, variances


@pytest.mark.parametrize("seed", range(5))
def test_an_em_step_is_that_of_unit_gaussians_with_equal_weights(seed):
    rng = np.random.default_rng(seed)
    X, means = rng.normal(size=(30, 3)) + 100, rng.normal(size=(4, 3)) + 100
    moved, variances = em_step(X, means)
    np.testing.assert_allclose(moved, plain_em_step(X, means)[0])
    np.testing.assert_allclose(variances, plain_em_step(X, means)[1])


def test_a_component_far_from_every_row_stays_where_it_is():
    X = np.random.default_rng(0).normal(size=(20, 2))
    moved, variances = em_step(X, np.array([[0.0, 0.0], [1e4, 1e4]]))
    np.testing.assert_array_equal(moved[1], [1e4, 1e4])
    assert variances[1] == 0


def bisected(is_feasible, high):
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if is_feasible(middle) else (low, middle)
    return low


@pytest.mark.parametrize("seed", range(20))
def test_the_closed_form_of_the_radius_is_what_bisection_on_the_programme_finds(seed):
    """The programme: some multiplier l > 1 with l r^2 + v l / (l - 1) <= v + D."""
    rng = np.random.default_rng(seed)
    step, variance = rng.uniform(0.01, 10, size=2)

    def is_feasible(r):
        bound = minimize_scalar(
            lambda log_l: (1 + np.exp(log_l)) * r**2 + variance * (1 + np.exp(-log_l)),
            bounds=(-25, 25),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return bound.fun <= variance + step

    assert abs(RADII["program"](step, variance) - bisected(is_feasible, 20)) < 1e-5


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_radius_is_the_largest_inside_which_the_likelihood_does_not_fall(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 3))
    start = X[:1] + 0.3
    moved, variances = em_step(X, start)
    radius = RADII["exact"](((moved - start) ** 2).sum(axis=1), variances)[0]
    directions = rng.normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def expected(mean):
        return -0.5 * ((X - mean) ** 2).sum()

    assert min(expected(moved[0] + 0.999 * radius * u) for u in directions) >= expected(start[0])
    assert max(expected(moved[0] + 1.001 * radius * u) for u in directions) < expected(start[0])


def test_the_smallest_distance_of_one_mean_is_unbounded():
    assert smallest_distance(np.zeros((1, 3))) == np.inf
    assert smallest_distance(np.array([[0.0], [3.0], [5.0]])) == 2.0


def test_a_global_center_is_the_plain_mean_of_its_members():
    centers = centers_of(np.array([[0.0], [2.0], [10.0]]), np.array([0, 0, 1]))
    np.testing.assert_array_equal(centers, [[1.0], [10.0]])


def reference_cases():
    folder = Path(os.environ.get("KONCORD_DATA", "nowhere")).parent / "reference"
    return sorted(folder.glob("fedgem_released_*.npz"))


@pytest.mark.parametrize("name", ["blobs_a", "blobs_b", "frogs", "waveform"])
def test_the_released_variant_is_the_released_program(name):
    path = next((case for case in reference_cases() if case.stem.endswith(name)), None)
    if path is None:
        pytest.skip(f"needs fedgem_released_{name}.npz in the folder 'reference' beside the one KONCORD_DATA names")
    with np.load(path) as stored:
        case = dict(stored)
    n = int(case["n_clients"])
    aggregator = FedGEM(
        upsilon=float(case["upsilon"]),
        n_rounds=int(case["max_iter"]),
        variant="released",
        start=[case[f"init_{g}"] for g in range(n)],
    )
    fitted = FederatedClustering(KnownCounts(1), aggregator, random_state=0, min_report=1, standardize=False).fit(
        [case[f"X_{g}"] for g in range(n)]
    )
    theirs = np.concatenate([case[f"group_{g}"] for g in range(n)])
    ours = np.concatenate([fitted.model_.groups[site] for site in fitted.sites_])
    assert adjusted_rand_score(theirs, ours) == 1.0
    assert len(np.unique(theirs)) == fitted.n_clusters_
    for site, g in zip(fitted.sites_, range(n), strict=True):
        np.testing.assert_allclose(fitted.model_.components[site], case[f"theta_{g}"], atol=1e-8)


def federation(n_sites, held, n_each=60, seed=0, spacing=9.0):
    """Sites that each hold some of well separated clusters."""
    rng = np.random.default_rng(seed)
    centers = spacing * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    parts = [rng.permutation(5)[:held] for _ in range(n_sites)]
    X = [np.concatenate([rng.normal(centers[k], 1, (n_each, 3)) for k in part]) for part in parts]
    y = [np.repeat(part, n_each) for part in parts]
    return X, y, len(np.unique(np.concatenate(parts)))


@pytest.mark.parametrize("start", ["counts", "means"])
@pytest.mark.parametrize("radius", ["program", "exact"])
def test_separated_clusters_are_matched_across_sites(radius, start):
    X, y, k = federation(8, 3)
    fitted = FederatedClustering(
        KnownCounts(3), FedGEM(upsilon=2, radius=radius, start="means"), random_state=0, standardize=False
    ).fit(X)
    assert fitted.n_clusters_ == k
    assert adjusted_rand_score(np.concatenate(y), np.concatenate(fitted.labels_)) == 1.0


def test_an_open_upsilon_is_chosen_from_the_stated_grid_without_labels():
    X, y, k = federation(6, 3, seed=1)
    fitted = FederatedClustering(KnownCounts(3), FedGEM(start="means"), random_state=0, standardize=False).fit(X)
    choice = fitted.model_.diagnostics.choice
    assert choice.upsilon in UPSILONS
    assert [each.upsilon for each in choice.candidates] == list(UPSILONS)
    assert choice.chosen.score == max(each.score for each in choice.candidates)
    assert fitted.n_clusters_ == k
    assert adjusted_rand_score(np.concatenate(y), np.concatenate(fitted.labels_)) > 0.99


def test_a_huge_upsilon_makes_all_balls_meet_and_the_result_says_so():
    X, _, _ = federation(4, 3)
    fitted = FederatedClustering(KnownCounts(3), FedGEM(upsilon=1e9), random_state=0, standardize=False).fit(X)
    assert fitted.model_.diagnostics.extra["all_balls_meet"] is True
    assert "order of the pairs" in fitted.model_.diagnostics.notes[0]
    assert fitted.n_clusters_ == 3


def test_one_gaussian_over_many_sites_is_one_cluster():
    rng = np.random.default_rng(0)
    fitted = FederatedClustering(KnownCounts(1), FedGEM(), random_state=0, standardize=False).fit(
        [rng.normal(size=(50, 4))] * 6
    )
    assert fitted.n_clusters_ == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upsilon": -1}, "'upsilon' of FedGEM must be a finite number at least 0; got -1"),
        ({"radius": "wide"}, "'radius' of FedGEM must be 'program' or 'exact'; got 'wide'"),
        ({"variant": "old"}, "'variant' of FedGEM must be 'corrected' or 'released'; got 'old'"),
        ({"start": "rows"}, "'start' of FedGEM must be 'counts' or 'means'; got 'rows'"),
        ({"start": [np.zeros((1, 2))]}, "'start' of FedGEM must hold one array of means with 3 columns"),
        ({"n_rounds": -1}, "'n_rounds' of FedGEM must be at least 0; got -1"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    X, _, _ = federation(3, 2)
    with pytest.raises(ValueError, match="of FedGEM") as caught:
        FederatedClustering(KnownCounts(2), FedGEM(**{"upsilon": 1, **options}), random_state=0, standardize=False).fit(
            X
        )
    assert message in str(caught.value)
