import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import FederatedClustering, KnownCounts
from koncord.aggregate.consensus.microclusters import micro_clusters_of, stacked
from koncord.aggregate.consensus.tree import MOST_FINER, Clusters, coarser, tree_of

PENGUINS = Path(os.environ.get("KONCORD_DATA", "")) / "natural" / "penguins.csv"


def two_pairs(n=300, seed=0):
    """Two pairs of clusters: 4 apart inside a pair, 20 between the pairs; and the cluster of each row."""
    rng = np.random.default_rng(seed)
    places = np.array([[0, 0], [4, 0], [20, 0], [20, 4.5]], dtype=float)
    y = rng.integers(4, size=n * 4)
    return places[y] + rng.normal(size=(len(y), 2)), y


def clusters_of(X, y):
    micro = stacked([micro_clusters_of(X[y == each], 20) for each in np.unique(y)], 2)
    labels = np.repeat(np.arange(len(np.unique(y))), [len(micro_clusters_of(X[y == e], 20)) for e in np.unique(y)])
    return Clusters.of(micro, labels, np.ones(2), np.zeros((labels.max() + 1, len(labels)))), micro


def d_prime(X, Y):
    """d' of two sets of rows, written out."""
    n, m = len(X), len(Y)
    pooled = (np.cov(X.T, bias=True) * n + np.cov(Y.T, bias=True) * m) / (n + m)
    line = np.linalg.solve(pooled, Y.mean(axis=0) - X.mean(axis=0))
    return abs((Y @ line).mean() - (X @ line).mean()) / ((X @ line).std() + (Y @ line).std())


def test_distances_of_clusters_are_those_of_their_rows():
    X, y = two_pairs()
    clusters, _ = clusters_of(X, y)
    distances = clusters.distances()
    for one, other in ((0, 1), (0, 2), (2, 3)):
        assert distances[one, other] == pytest.approx(d_prime(X[y == one], X[y == other]), rel=0.05)
        assert distances[one, other] == distances[other, one]


def test_the_least_apart_are_joined_first():
    X, y = two_pairs()
    clusters, _ = clusters_of(X, y)
    joins = coarser(clusters)
    assert [set(join[:2]) for join in joins] == [{0, 1}, {2, 3}, {4, 5}]
    whole = d_prime(X[y < 2], X[y >= 2])
    assert joins[-1][2] == pytest.approx(whole, rel=0.05)


def test_cuts_find_the_clusters_that_were_taken_as_one():
    X, y = two_pairs()
    clusters, micro = clusters_of(X, y // 2)  # both clusters of a pair as one
    centers = np.array([X[y < 2].mean(axis=0), X[y >= 2].mean(axis=0)])
    tree, leaves = tree_of(clusters, np.random.default_rng(0), centers=centers, full=micro.means)
    labels = tree.labels_at(4)[leaves]
    near = np.linalg.norm(micro.means[:, None] - [[0, 0], [4, 0], [20, 0], [20, 4.5]], axis=2).argmin(axis=1)
    assert adjusted_rand_score(near, labels) > 0.9
    np.testing.assert_array_equal(tree.labels_at(2)[leaves], clusters.labels)
    np.testing.assert_array_equal(tree.centers[tree.nodes_at(2)], centers)
    assert tree.apart_at(4) > 1.73 > tree.apart_at(5)  # a fifth cluster would be a cut through a Gaussian
    assert tree.n_leaves <= 2 + MOST_FINER


def fitted():
    X, y = two_pairs()
    sites = {f"s{at}": X[at::3] for at in range(3)}
    return FederatedClustering(KnownCounts(1), random_state=0, standardize=False).fit(sites), X, y


def test_the_model_at_another_number_of_clusters(has_shapes):
    found, X, y = fitted()
    model = found.model_
    assert (model.gaussians is not None) == has_shapes
    assert model.n_clusters == 4
    assert model.at(4) is model
    for k in model.available:
        other = model.at(k)
        assert other.n_clusters == k
        assert other.weights.sum() == pytest.approx(1.0)
        assert set(np.unique(other.predict(X))) <= set(range(k))
        detour = model.at(min(k + 1, len(model.available))).at(k)
        np.testing.assert_array_equal(other.centers, detour.centers)
        assert other.gaussians == detour.gaussians
    assert adjusted_rand_score(y // 2, model.at(2).predict(X)) == 1.0
    np.testing.assert_array_equal(model.at(2).holdings.sum(axis=1), model.holdings.sum(axis=1))


def test_gaussians_are_joined_by_their_moments():
    found, _, _ = fitted()
    model = found.model_
    mixture, one = model.gaussians, model.at(1).gaussians
    np.testing.assert_allclose(one.centers[0], mixture.weights @ mixture.centers)
    gaps = (mixture.centers - one.centers[0]) @ mixture.axes.T
    between = np.einsum("k,ki,kj->ij", mixture.weights, gaps, gaps)
    within = np.einsum("k,kij->ij", mixture.weights, mixture.covariances)
    np.testing.assert_allclose(one.covariances[0], within + between, rtol=1e-9)


def test_a_number_of_clusters_that_the_tree_does_not_have_is_refused_with_those_it_has():
    model = fitted()[0].model_
    last = model.available[-1]
    for k in (0, last + 1):
        with pytest.raises(ValueError, match=f"this model has, 1 to {last}; got {k}"):
            model.at(k)


def test_a_saved_model_has_its_tree(tmp_path):
    model = fitted()[0].model_
    model.save(tmp_path / "m.koncord")
    loaded = type(model).load(tmp_path / "m.koncord")
    assert loaded == model
    assert loaded.at(2) == model.at(2)
    assert loaded.confidence == model.confidence


@pytest.mark.skipif(not PENGUINS.is_file(), reason="the penguins are not here")
@pytest.mark.parametrize("seed", [0, 1])
def test_penguins_by_island_are_three_species_and_gentoo_by_sex(seed):
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(PENGUINS).dropna()
    columns = [name for name in table.columns if name.endswith(("_mm", "_g"))]
    sites = {island: rows[columns] for island, rows in table.groupby("island")}
    model = FederatedClustering(KnownCounts(1), standardize=True, random_state=seed).fit(sites).model_
    assert adjusted_rand_score(table.species, model.at(3).predict(table[columns])) > 0.9
    gentoo = (table.species == "Gentoo").to_numpy()
    by_sex = [
        adjusted_rand_score(table.sex[gentoo], model.at(k).predict(table[columns])[gentoo]) for k in model.available
    ]
    # The sexes of all three species are nearly as far apart, so which of them is cut first is a matter of chance.
    assert max(by_sex[:3]) < 0.1
    assert by_sex[-1] > 0.6
