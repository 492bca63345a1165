"""The steps of the comparison methods, beside what their authors' released programs give for the same input.

``released/steps.json`` holds inputs and outputs, no code. They were made by running, outside of this repository, a
line-by-line reading of metastableB/kfed (39879fc), IBM/SPAHM (af54d8f), stallmo/federated_clustering with
cluster_library (1397861), swiergarst/fedKMeans (14e0109) and Yunfan-Zhang/AFCL (15cfdca). What those draw by chance
(seeds, orders of clients, starts of k-means) is part of the input here. What differs: reproduction/docs/released.md.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from koncord.aggregate import afcl, ffcm, kfed, spahm
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.lloyd import lloyd

CASES = json.loads((Path(__file__).parent / "released" / "steps.json").read_text(encoding="utf-8"))
SKLEARN_TOL = 1e-4  # of KMeans, by which the released programs stop


@pytest.fixture(params=range(len(CASES)))
def case(request):
    return {
        name: [np.array(each) for each in value] if name in PER_CLIENT else np.array(value)
        for name, value in CASES[request.param].items()
    }


PER_CLIENT = ("rows", "kfed_seeds", "kfed_start", "kfed_local", "fkm_means", "fkm_counts")


def test_a_client_of_kfed_starts_and_ends_where_the_released_one_does(case):
    parts = zip(case["rows"], case["kfed_seeds"], case["kfed_start"], case["kfed_local"], strict=True)
    for X, seeds, start, centers in parts:
        axes = np.linalg.svd(X, full_matrices=False)[2][: len(seeds)].T
        projected = X @ axes
        ours = kfed.core_means(projected, projected[seeds]) @ axes.T
        np.testing.assert_allclose(ours, start, atol=1e-12)
        np.testing.assert_allclose(lloyd(X, ours, tol=SKLEARN_TOL).centers, centers, atol=1e-12)


def test_the_server_of_kfed_spreads_its_start_as_the_released_one_does(case):
    sent = np.concatenate(case["kfed_local"])
    k, first = len(case["kfed_spread"]), np.arange(len(case["kfed_local"][0]))
    start = kfed.spread_start(sent, first, k)
    np.testing.assert_array_equal(start, case["kfed_spread"])
    np.testing.assert_allclose(lloyd(sent, start, tol=SKLEARN_TOL).centers, case["kfed_centers"], atol=1e-12)


class GivenOrders:
    def __init__(self, orders):
        self.orders = iter(orders)

    def permutation(self, n):
        return next(self.orders)


def test_spahm_matches_as_the_released_program_from_its_start_in_its_orders(case):
    atoms = np.concatenate(case["kfed_local"])
    owners = np.repeat(np.arange(len(case["kfed_local"])), [len(part) for part in case["kfed_local"]])
    found = spahm.matching_from(
        atoms,
        owners,
        spahm.start_priors(atoms, 1.0, 1.0)[0],
        GivenOrders(case["spahm_orders"]),
        gamma=1.0,
        n_passes=10,
        estimate_hyper=True,
    )
    centers = spahm.posterior_means(atoms, found.groups, found.prior)
    same = case["spahm_groups"]
    np.testing.assert_array_equal(found.groups[:, None] == found.groups, same[:, None] == same)
    np.testing.assert_allclose(centers[found.groups], case["spahm_centers"][same], atol=1e-9)


def test_a_client_of_ffcm_settles_where_the_released_one_does(case):
    centers, _, supports = ffcm.settled(case["rows"][0], case["ffcm_start"], 2.0)
    np.testing.assert_allclose(centers, case["ffcm_settled"], atol=1e-3)  # both stop at memberships within 1e-4
    np.testing.assert_allclose(supports, case["ffcm_supports"], atol=1e-3)


@pytest.mark.parametrize("averaging", ["avg1", "avg2"])
def test_three_rounds_of_ffcm_are_three_rounds_of_the_released_program(case, averaging):
    centers = case["ffcm_start"]
    for at in range(3):
        settled = [ffcm.settled(X, centers, 2.0) for X in case["rows"]]
        supports = np.array([each[2] for each in settled])
        sums = np.array([each[2][:, None] * each[0] for each in settled])
        if averaging == "avg1":
            centers = ffcm.averaged(sums, supports, previous=centers)
        else:
            local, _ = ffcm.local_centers(sums, supports)
            start = local[case["ffcm_first"]] if at == 0 else centers
            centers = lloyd(local, start, max_iter=ffcm.SERVER_MAX_ITER, tol=SKLEARN_TOL).centers
    np.testing.assert_allclose(centers, case[f"ffcm_{averaging}"], atol=5e-3)


def test_a_client_of_fedkmeans_moves_the_centers_as_the_released_one_does(case):
    """The released client counts rows by the centers after the pass, koncord those whose mean a center is."""
    start = case["ffcm_start"]
    for X, means, counts in zip(case["rows"], case["fkm_means"], case["fkm_counts"], strict=True):
        found = lloyd(X, start[np.unique(nearest(X, start))], max_iter=1)
        after = np.bincount(nearest(X, found.centers), minlength=len(found.centers))
        np.testing.assert_allclose(found.centers[after > 1], means, atol=1e-12)
        np.testing.assert_array_equal(after[after > 1], counts)


def test_the_server_of_fedkmeans_clusters_as_the_released_one_from_the_same_start(case):
    means = np.concatenate(case["fkm_means"])
    weights = np.concatenate(case["fkm_counts"]).astype(float)
    ours = lloyd(means, case["fkm_init"], weights, tol=SKLEARN_TOL).centers
    np.testing.assert_allclose(ours, case["fkm_centers"], atol=1e-12)


def test_the_server_of_afcl_moves_the_seeds_as_the_released_one_without_its_rows_of_zeros(case):
    rows = np.concatenate(case["rows"])
    lowest, widths = rows.min(axis=0), np.ptp(rows, axis=0)
    seeds, rates = case["afcl_seeds"], case["afcl_rates"]
    heard = [reply((X - lowest) / widths, seeds, rates) for X in case["rows"]]
    ours = afcl.interact(seeds, heard, case["afcl_weights"], rates, variant="code")
    np.testing.assert_allclose(ours, case["afcl_moved"], rtol=0, atol=1e-14)
    assert np.abs(case["afcl_moved_with_rows_of_zeros"] - ours).max() < np.abs(ours - seeds).max()


def reply(X, seeds, rates):
    winners = afcl.winners_of(X, seeds, None)
    up = afcl.Pulls(
        winners=winners,
        pulls=rates * (X - seeds[winners]),
        counts=np.bincount(winners, minlength=len(seeds)),
        means=means_by_label(X, winners, otherwise=seeds),
        distances=np.zeros(len(seeds)),
    )
    return afcl.Heard(up=up, seeds=seeds, rates=rates)
