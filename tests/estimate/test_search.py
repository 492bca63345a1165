import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from koncord import ASM, LabelFreeSearch
from koncord.estimate.search import GridResult, best_configuration, split_rows


def test_any_clusterer_with_fit_and_predict_can_be_searched(blobs):
    X, _ = blobs([[0, 0], [9, 0], [0, 9]], 40)
    search = LabelFreeSearch(KMeans(n_init=3), {"n_clusters": [2, 3, 5]}, random_state=0).fit(X)
    assert search.best_params_ == {"n_clusters": 3}
    assert search.n_components_ == 3
    assert len(search.labels_) == len(X)
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))


def test_the_score_is_the_silhouette_of_the_held_out_rows(blobs):
    X, _ = blobs([[0, 0], [3, 0], [0, 3]], 40)
    search = LabelFreeSearch(KMeans(n_init=1, random_state=5), {"n_clusters": [2, 4]}, random_state=1).fit(X)
    order = np.random.default_rng(1).permutation(len(X))
    held, fitted = X[order[:24]], X[order[24:]]
    for candidate in search.results_:
        labels = KMeans(**candidate.params, n_init=1, random_state=5).fit(fitted).predict(held)
        assert abs(candidate.score - silhouette_score(held, labels)) < 1e-12
    assert search.best_score_ == max(candidate.score for candidate in search.results_)


def test_ties_go_to_fewer_components_then_to_grid_order_and_no_silhouette_loses():
    nan = float("nan")

    def candidate(at, n_components, score):
        return GridResult(params={"at": at}, n_components=n_components, score=score)

    assert best_configuration([candidate(0, 1, nan), candidate(1, 5, -0.4)]).params["at"] == 1
    assert best_configuration([candidate(0, 5, 0.3), candidate(1, 4, 0.3), candidate(2, 4, 0.3)]).params["at"] == 1
    assert best_configuration([candidate(0, 2, nan), candidate(1, 1, nan), candidate(2, 1, nan)]).params["at"] == 1


def test_the_last_name_of_the_grid_varies_fastest(blobs):
    X, _ = blobs([[0, 0], [9, 0]], 20)
    grid = {"min_mass": [5, 6], "split_factor": [1.0], "merge_factor": [0.5, 1.0]}
    search = LabelFreeSearch(ASM(), grid, random_state=0).fit(X)
    assert [(c.params["min_mass"], c.params["merge_factor"]) for c in search.results_] == [
        (5, 0.5),
        (5, 1.0),
        (6, 0.5),
        (6, 1.0),
    ]


def test_the_same_seed_gives_the_same_choice_and_estimators_without_a_seed_get_one(blobs):
    X, _ = blobs([[0, 0], [2, 0], [0, 2]], 30)
    search = LabelFreeSearch(KMeans(n_init=1, init="random"), {"n_clusters": [2, 3, 4]}, random_state=3)
    first, second = clone(search).fit(X), clone(search).fit(X)
    assert first.results_ == second.results_
    np.testing.assert_array_equal(first.labels_, second.labels_)
    assert search.estimator.random_state is None


def test_one_row_has_no_hold_out_and_is_still_fitted():
    search = LabelFreeSearch(ASM(split_factor=1.0, merge_factor=1.0), {"min_mass": [2, 3]}, random_state=0)
    assert search.fit(np.ones((1, 2))).n_components_ == 1
    assert np.isnan(search.best_score_)


@pytest.mark.parametrize(("n", "n_held"), [(1, 0), (2, 0), (3, 1), (10, 2), (490, 98)])
def test_rows_are_split_once_and_at_least_one_is_fitted(n, n_held):
    fitted, held = split_rows(n, 0.2, np.random.default_rng(0), owner="x")
    assert len(held) == n_held
    assert sorted([*fitted, *held]) == list(range(n))


@pytest.mark.parametrize("holdout", [0, 1, 1.5, -0.1])
def test_a_share_held_out_that_is_no_share_is_refused(holdout):
    with pytest.raises(ValueError, match="'holdout' of LabelFreeSearch"):
        LabelFreeSearch(ASM(), {"min_mass": [3]}, holdout=holdout).fit(np.zeros((9, 2)))


def test_an_empty_grid_value_is_refused_by_name():
    with pytest.raises(ValueError, match="'param_grid' of LabelFreeSearch must map 'min_mass'"):
        LabelFreeSearch(ASM(), {"min_mass": []}).fit(np.zeros((9, 2)))
