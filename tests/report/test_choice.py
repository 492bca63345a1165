"""How K was chosen, in words: each sentence follows from the record of the choice."""

from types import SimpleNamespace

import numpy as np
import pytest

from koncord import Consensus, FederatedClustering, FedKMeans, KnownCounts
from koncord.aggregate.diagnostics import Diagnostics, KCandidate, KChoice
from koncord.report.choice import about_choice
from koncord.report.federation import federation_text
from koncord.report.page import page


def candidate(k, separation=0.0, gap=0.0, least_apart=0.0, hierarchy="ward"):
    return KCandidate(
        hierarchy=hierarchy,
        n_clusters=k,
        silhouette=0.5,
        separation=separation,
        gap=gap,
        least_apart=least_apart,
    )


def words(chosen, runner_up, **options):
    candidates = tuple(each for each in (candidate(1), chosen, runner_up) if each and each.n_clusters > 1)
    made = KChoice(chosen=chosen, runner_up=runner_up, candidates=(candidate(1), *candidates), **options)
    return about_choice(SimpleNamespace(diagnostics=Diagnostics(choice=made)))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            words(candidate(3, least_apart=2.1), candidate(6, least_apart=1.55), stands_apart=True),
            "3 clusters were chosen because all, or nearly all, of them are clearly apart. "
            "The runner-up is 6 clusters, whose two nearest clusters are 1.6 apart.",
        ),
        (
            words(candidate(4, 0.31, 1.2), candidate(7, 0.3, 1.1)),
            "4 clusters were chosen by comparison with one Gaussian: of the clusterings that are nearly as separated "
            "as any, theirs is the most compact for its number of clusters. Its silhouette is 0.310 above that of the "
            "Gaussian, its gap 1.20. The runner-up is 7 clusters, with 0.300 and 1.10.",
        ),
        (
            words(candidate(1), candidate(2, 0.01, 0.01, 1.14)),
            "One cluster was chosen: no clusters are clearly apart, and none show more structure than one Gaussian. "
            "The runner-up is 2 clusters, whose two nearest clusters are 1.1 apart.",
        ),
        (
            words(candidate(3, 0.4, 1.5, hierarchy="mixture"), candidate(4, 0.4, 1.3, hierarchy="mixture")),
            "3 clusters were chosen, the fewest that are nearly as likely as any. The runner-up is 4 clusters.",
        ),
        (
            words(candidate(2, least_apart=3.0), candidate(1), stands_apart=True),
            "2 clusters were chosen because all, or nearly all, of them are clearly apart. The runner-up is 1 cluster.",
        ),
        (words(candidate(1), None), "The sites reported too little to compare one cluster with more."),
    ],
)
def test_the_words_name_the_chosen_k_why_and_the_runner_up(said, expected):
    assert said == expected


@pytest.mark.parametrize("gap", [9.0, 2.2, 0.0])
def test_page_and_terminal_say_what_decided(gap):
    rng = np.random.default_rng(0)
    centers = gap * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    sites = [np.concatenate([rng.normal(center, 1, (200, 2)) for center in centers]) for _ in range(4)]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(sites)
    said, made = about_choice(fitted.model_), fitted.model_.diagnostics.choice
    assert said.startswith("One cluster was chosen" if gap == 0 else f"{made.chosen.n_clusters} clusters were chosen")
    assert made.stands_apart or gap < 9.0
    assert ("them are clearly apart." in said) is made.stands_apart
    assert said in federation_text(fitted.model_, fitted.record_)
    assert f"<p>{said}</p>" in page(fitted.model_, fitted.record_)


def test_a_method_that_does_not_choose_k_tells_no_choice():
    rng = np.random.default_rng(0)
    sites = [rng.normal(size=(60, 2)) for _ in range(3)]
    assert about_choice(FederatedClustering(KnownCounts(1), FedKMeans(2), random_state=0).fit(sites).model_) is None
