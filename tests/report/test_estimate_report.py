"""Phase 1 on one table, as text or as a record."""

from types import SimpleNamespace

import numpy as np
import pytest

import koncord
from koncord.data.files import Table
from koncord.estimate.search import GridResult, split_rows
from koncord.report.estimate import describe_estimate, estimate_record, estimate_text

CANDIDATES = tuple(
    GridResult(params={"a": a}, n_components=k, score=score) for a, k, score in ((1, 2, 0.5), (2, 3, 0.9))
)


def estimate_of(X, fitted, **asked):
    given = {"file": "folder/t.csv", "estimator": "asm", "seed": 0, "is_standardized": True, "seconds": 1.5} | asked
    scale = np.full(X.shape[1], 2.0)
    table = Table(X=X, columns=tuple("abcdef"[: X.shape[1]]), name="t")
    return describe_estimate(fitted, table, mean=np.ones(X.shape[1]), scale=scale, **given)


@pytest.fixture
def halves(blobs):
    """Ten rows in two components, as a search would leave them that had chosen three."""
    X, _ = blobs([[0, 0], [9, 9]], n_each=5)
    model = koncord.XMeans(random_state=0).fit(X)
    assert model.n_components_ == 2
    return X, SimpleNamespace(best_estimator_=model, best_params_={"a": 2}, best_score_=0.9, results_=CANDIDATES)


def test_means_are_told_in_the_units_of_the_file_too(halves):
    record = estimate_record(estimate_of(*halves))
    assert np.allclose(record["means_original"], 1 + 2 * np.array(record["means"]))


def test_a_count_that_changed_on_all_rows_is_reported(halves):
    text = estimate_text(estimate_of(*halves))
    assert "without the held-out rows it found K = 3, on all rows K = 2\n" in text
    assert "chosen among 2 configurations: silhouette 0.9000 on 2 held-out rows\n" in text
    assert "configuration: a 2\n" in text


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 13, 1000, 15_002])
def test_held_out_rows_are_as_many_as_the_choice_held_out(n, halves):
    _, fitted = halves
    X = np.random.default_rng(0).normal(size=(n, 2))
    model = koncord.GMeans(max_components=1).fit(X)
    estimate = estimate_of(X, SimpleNamespace(**vars(fitted) | {"best_estimator_": model}))
    _, held_rows = split_rows(n, 0.2, np.random.default_rng(0), owner="")
    assert estimate.n_held_out == len(held_rows)


def test_the_split_rule_is_explained_where_it_was_used(blobs):
    X, _ = blobs([[0, 0], [20, 20]], n_each=300)
    sentence = "Past its critical size the split rule of ASM"
    asm = estimate_of(X, koncord.ASM(min_mass=200, split_factor=1, merge_factor=2).fit(X))
    xmeans = estimate_of(X, koncord.XMeans(random_state=0).fit(X), estimator="xmeans")
    for estimate in (asm, xmeans):
        assert any(row.is_past_critical_size for row in estimate.components)
    assert sentence in estimate_text(asm)
    assert sentence not in estimate_text(xmeans)


def test_a_fit_that_did_not_converge_is_noted(halves):
    X, fitted = halves
    for converged, is_noted in ((True, False), (False, True)):
        fitted.best_estimator_.converged_ = converged
        estimate = estimate_of(X, fitted)
        assert estimate_record(estimate)["converged"] is converged
        assert ("had not converged" in estimate_text(estimate)) == is_noted
