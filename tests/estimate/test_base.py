"""Any clusterer as a local estimator: what is read from it, and what is refused in a sentence."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    SpectralClustering,
)
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from koncord import ASM, FederatedClustering, FedGEM, KnownCounts, KoncordError, LabelFreeSearch, XMeans
from koncord.estimate.base import adapted

CENTERS = np.array([[0.0, 0.0], [12.0, 0.0]])
OUTLIER = np.array([[500.0, 500.0]])

BAYESIAN = BayesianGaussianMixture(n_components=8, max_iter=500, covariance_type="spherical", random_state=0)

FIND_TWO = [
    ASM(),
    XMeans(),
    KnownCounts(2),
    LabelFreeSearch(GaussianMixture(), {"n_components": [2]}),
    LabelFreeSearch(KMeans(), {"n_clusters": [2]}),
    GaussianMixture(2),
    BAYESIAN,
    KMeans(2),
    BisectingKMeans(2),
    AgglomerativeClustering(2),
    SpectralClustering(2),
    Birch(n_clusters=2, threshold=1.0),
    MeanShift(bandwidth=5),
    AffinityPropagation(damping=0.9, preference=-2000),
    DBSCAN(eps=2),
    HDBSCAN(min_cluster_size=10, copy=True),
    OPTICS(min_samples=10, cluster_method="dbscan", eps=2),
    make_pipeline(StandardScaler(), KMeans(2, n_init=5)),
]
FIND_NOISE = [
    DBSCAN(eps=2),
    HDBSCAN(min_cluster_size=10, copy=True),
    OPTICS(min_samples=10, cluster_method="dbscan", eps=2),
    MeanShift(bandwidth=5, cluster_all=False, min_bin_freq=2, bin_seeding=True),
]


@pytest.fixture
def two(blobs):
    """A table of two separated clusters."""
    return blobs(CENTERS, 40)[0]


@pytest.mark.parametrize("estimator", FIND_TWO, ids=repr)
def test_the_components_of_any_clusterer_are_found(estimator, two):
    before = repr(estimator)
    estimate = adapted(estimator).estimate(two, seed=0)
    assert estimate.n_components == 2
    gaps = np.linalg.norm(estimate.means[:, None] - CENTERS, axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1]
    assert gaps.min(axis=1).max() < 1
    assert repr(estimator) == before  # a clone was fitted


def test_the_steps_of_a_pipeline_draw_from_the_seed_too(two):
    pipeline = make_pipeline(StandardScaler(), KMeans(5, n_init=1, init="random"))
    found = [adapted(pipeline).estimate(two, seed=3).means for _ in range(3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("estimator", FIND_NOISE, ids=repr)
def test_noise_is_no_component(estimator, two):
    estimate = adapted(estimator).estimate(np.concatenate([two, OUTLIER]), seed=0)
    assert estimate.n_components == 2
    assert np.abs(estimate.means).max() < 20


def test_components_without_rows_do_not_count(two):
    mixture = clone(BAYESIAN).fit(two)
    assert len(mixture.means_) == 8
    estimate = adapted(BAYESIAN).estimate(two, seed=0)
    assert estimate.n_components == len(np.unique(mixture.predict(two))) == 2
    assert len(estimate.means) == 2


@pytest.mark.parametrize(
    "estimator", [GaussianMixture(2), HDBSCAN(min_cluster_size=10, copy=True), DBSCAN(eps=2)], ids=repr
)
def test_a_federation_runs_with_any_clusterer(estimator, blobs):
    sites = {name: np.concatenate([blobs(CENTERS, 40, seed=at)[0], OUTLIER]) for at, name in enumerate("abc")}
    if isinstance(estimator, GaussianMixture):
        sites = {name: X[:-1] for name, X in sites.items()}
    fitted = FederatedClustering(estimator, FedGEM(), random_state=0, min_report=1, standardize=False).fit(
        sites
    )  # a ball is the outlier
    assert fitted.local_counts_ == [2, 2, 2]
    assert fitted.n_clusters_ == 2


def test_a_seed_is_given_to_an_estimator_that_takes_one(two):
    X = np.random.default_rng(0).normal(size=(200, 2))
    one, same, other = (adapted(GaussianMixture(5)).estimate(X, seed=seed).means for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


class Odd(BaseEstimator):
    """An estimator that learns what it is told to."""

    def __init__(self, learnt=None):
        self.learnt = learnt

    def fit(self, X):
        for name, value in (self.learnt or {}).items():
            setattr(self, name, value)
        return self


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        ("asm", "'estimator' of FederatedClustering must be an estimator such as koncord.ASM(); got the name 'asm'."),
        (ASM, "'estimator' of FederatedClustering must be an estimator such as koncord.ASM(); got the class ASM."),
        (5, "'estimator' of FederatedClustering must be an estimator such as koncord.ASM(); got int, which has no fit"),
        (LinearRegression(), "LinearRegression is a regressor"),
        (LogisticRegression(), "LogisticRegression is a classifier"),
        (PCA(), "PCA has no components after fit"),
        (StandardScaler(), "StandardScaler has no components after fit"),
        (Odd(), "Odd has no components after fit"),
        (Odd({"n_components_": 2, "means_": np.zeros((3, 2))}), "'means_' of Odd must have shape (2, 2)"),
        (Odd({"n_components_": 1, "means_": np.full((1, 2), np.nan)}), "'means_' of Odd must be finite"),
        (Odd({"labels_": np.zeros(7, dtype=int)}), "'labels_' of Odd must hold one integer a row"),
        (Odd({"labels_": np.zeros(80)}), "'labels_' of Odd must hold one integer a row"),
    ],
    ids=repr,
)
def test_what_has_no_components_is_refused_in_a_sentence(estimator, sentence, two):
    with pytest.raises(TypeError) as caught:
        FederatedClustering(estimator, random_state=0, standardize=False).fit([two])
    assert sentence in str(caught.value)


def test_a_site_of_which_every_row_is_noise_is_reported(two):
    with pytest.raises(KoncordError, match=r"DBSCAN finds no component in 80 rows: it takes every row for noise\."):
        FederatedClustering(DBSCAN(eps=1e-9), random_state=0, standardize=False).fit([two])


def test_a_search_needs_an_estimator_that_predicts(two):
    with pytest.raises(TypeError, match="'estimator' of LabelFreeSearch must have predict; DBSCAN has none"):
        LabelFreeSearch(DBSCAN(), {"eps": [1.0, 2.0]}).fit(two)
