"""What to believe, in words: every sentence follows from distances, support and stability."""

from dataclasses import replace

import numpy as np
import pytest

from koncord import FederatedClustering, KFed, KnownCounts
from koncord._records import from_json, json_values
from koncord.aggregate.confidence import ClusterConfidence, Confidence, KShare, NextCut
from koncord.report.federation import about_site_effect, notes_of
from koncord.report.page import tree
from koncord.report.sure import (
    about_distances,
    about_fewer,
    about_next,
    about_valleys,
    belief,
    ordinal,
    sentences,
    stability_of,
)


def cluster(apart=2.5, nearest=1, sites=3, rows=100, stability=0.9):
    return ClusterConfidence(apart=apart, nearest=nearest, sites=sites, rows=rows, stability=stability)


def sure(*clusters, **options):
    return Confidence(clusters=clusters, **options)


def fitted(tables, aggregator=None, seed=0):
    return FederatedClustering(KnownCounts(1), aggregator, random_state=seed).fit(tables)


def three(n=120, alone=False, seed=0):
    """Three clusters, 12 apart; with `alone`, the last one at a single site."""
    rng = np.random.default_rng(seed)
    places = 12.0 * np.eye(3)
    held = [(0, 1, 2)] * 4 if not alone else [(0, 1), (0, 1), (0, 1), (0, 1, 2)]
    return {f"s{at}": np.concatenate([rng.normal(places[c], 1, (n, 3)) for c in own]) for at, own in enumerate(held)}


def test_clusters_that_stand_apart_are_said_to_with_the_least_distance():
    said = about_distances(sure(cluster(2.5), cluster(2.1, 0), cluster(3.0, 0)))
    assert said.startswith("Each cluster is at least 2.1 from its nearest; halves of a cloud with a single peak would")


@pytest.mark.parametrize(
    ("apart", "words"),
    [(1.2, "1.2 from each other, no more than two halves of one Gaussian (1.3)"), (1.6, "skewed or flat cloud")],
)
def test_clusters_that_may_be_cuts_are_named(apart, words):
    said = about_distances(sure(cluster(2.5, 1), cluster(apart, 2), cluster(apart, 1)))
    assert said.startswith("1 cluster of 3 stands clearly apart from all others; 1 and 2 are ")
    assert words in said
    assert about_distances(sure(cluster(apart, 1), cluster(apart, 0))).startswith("No cluster stands clearly apart")


def test_clusters_without_a_valley_between_them_are_named_and_counted_as_one():
    def with_valley(nearest, valley, apart=1.6):
        return replace(cluster(apart, nearest), valley=valley)

    found = [with_valley(1, 0.01), with_valley(0, 0.01), with_valley(1, 0.9), with_valley(2, 0.02)]
    said = about_valleys(sure(*found))
    assert said.startswith("The density has no valley between clusters 0 and 1; 2 and 3: ")
    assert said.endswith("With these joined, K would be 2.")
    chain = [with_valley(max(at - 1, 1 - at), 0.0) for at in range(8)]
    assert "3 and 4; 3 more pairs: " in about_valleys(sure(*chain))
    assert about_valleys(sure(*chain)).endswith("K would be 1.")
    assert about_valleys(sure(with_valley(1, 0.3), with_valley(0, 0.3))) is None
    assert about_valleys(sure(with_valley(1, 0.0, apart=2.1), with_valley(0, 0.0, apart=2.1))) is None  # no single peak
    assert about_valleys(sure(cluster(), cluster(nearest=0))) is None  # of a model before valleys were told


def test_a_real_run_tells_how_deep_the_valleys_are():
    model = fitted(three()).model_
    assert min(each.valley for each in model.confidence.clusters) > 0.9
    assert from_json(Confidence, json_values(model.confidence)) == model.confidence
    rng = np.random.default_rng(0)
    cloud = fitted([rng.standard_exponential((2000, 2)) ** 2 for _ in range(5)]).model_
    if cloud.n_clusters > 1:
        assert min(each.valley for each in cloud.confidence.clusters) < 0.3


def test_the_next_cluster_is_a_cut_through_a_named_one():
    found = (cluster(rows=500), cluster(rows=20))
    assert about_next(sure(*found, next_cut=NextCut(cluster=0, apart=1.28))) == (
        "A third would cut the largest, 0, at 1.3."
    )
    assert about_next(sure(*found, next_cut=NextCut(cluster=1, apart=1.28))) == "A third would cut cluster 1 at 1.3."
    assert "there may be more" in about_next(sure(*found, next_cut=NextCut(cluster=1, apart=1.9)))
    assert about_next(sure(cluster(None, None), next_cut=NextCut(cluster=0, apart=1.1))).startswith(
        "A second would cut it"
    )
    assert about_next(sure(*found)) is None


def test_no_cluster_of_a_single_site_is_called_stable():
    model = fitted(three(alone=True)).model_
    alone = [at for at, each in enumerate(model.confidence.clusters) if each.sites == 1]
    assert len(alone) == 1
    assert model.confidence.clusters[alone[0]].stability is None
    assert stability_of(model.confidence.clusters[alone[0]]) == "not testable"
    said = " ".join(sentences(model))
    assert f"Cluster {alone[0]} is supported by a single site" in said
    assert "every cluster that can be tested comes back" in said


def test_the_words_of_a_real_run_follow_from_its_numbers():
    model = fitted(three()).model_
    confidence = model.confidence
    assert belief(model).startswith(f"Each cluster is at least {confidence.least_apart:.1f} from its nearest")
    assert confidence.least_apart > 4
    assert [each.sites for each in confidence.clusters] == [4, 4, 4]
    assert sum(each.rows for each in confidence.clusters) == 4 * 360
    assert all(confidence.clusters[each.nearest].apart <= each.apart for each in confidence.clusters)
    assert confidence.resampled == (KShare(n_clusters=3, share=1.0),)
    assert confidence.n_draws == 25
    assert confidence.next_cut.apart < 1.73


def test_one_gaussian_is_one_cluster_in_words_too():
    rng = np.random.default_rng(0)
    model = fitted({f"s{at}": rng.normal(size=(300, 3)) for at in range(4)}).model_
    assert model.n_clusters == 1
    assert belief(model).startswith(
        "One cluster: nothing stands apart by more than chance gives one Gaussian. A second"
    )
    assert model.confidence.least_apart is None
    assert model.confidence.next_cut.apart < 1.45


def test_where_clusters_run_into_each_other_the_fewer_that_stand_apart_are_named():
    rng = np.random.default_rng(0)
    places = np.array([[0, 0], [0, 12], [2.5, 0], [2.5, 12]])
    tables = {f"s{at}": places[rng.integers(4, size=800)] + rng.normal(size=(800, 2)) for at in range(5)}
    model = fitted(tables).model_
    confidence = replace(model.confidence, clusters=(cluster(1.4, 1), cluster(1.4, 0), *model.confidence.clusters))
    two = model.tree.apart_at(2)
    assert two > 1.73
    assert about_fewer(replace(model, confidence=confidence)).startswith("Joined into ")
    assert (
        about_fewer(replace(model, confidence=replace(confidence, clusters=(cluster(2.5, 1), cluster(2.5, 0))))) is None
    )


def test_a_single_site_is_not_resampled_and_nothing_is_testable():
    model = fitted({"only": three()["s0"]}).model_
    assert model.confidence.resampled == ()
    assert {each.stability for each in model.confidence.clusters} == {None}


def test_the_page_has_every_nested_answer_with_its_least_distance_and_marks_the_found_one():
    model = fitted(three()).model_
    rows = tree(model).rows
    assert [int(k) for k, _, _ in rows] == list(range(2, model.tree.n_leaves + 1))
    assert [apart for _, apart, _ in rows] == [f"{each:.1f}" for each in reversed(model.tree.apart)]
    assert [k for k, _, mark in rows if mark] == ["3"]


def test_a_method_that_does_not_tell_is_said_not_to():
    model = fitted(three(), KFed(3)).model_
    assert model.confidence is None
    assert "does not tell how sure" in belief(model)


@pytest.mark.usefixtures("has_shapes")
def test_confidence_is_the_same_for_the_same_seed_and_read_back():
    one, two = (fitted(three(seed=3)).model_.confidence for _ in range(2))
    assert one == two == from_json(Confidence, json_values(one))


def test_one_far_handful_of_rows_is_not_called_strong():
    rng = np.random.default_rng(1)
    tables = {f"s{at}": rng.normal(size=(400, 3)) for at in range(4)}
    tables["s0"] = np.concatenate([tables["s0"], rng.normal(60, 0.1, (30, 3))])
    model = fitted(tables).model_
    said = " ".join(sentences(model))
    assert "strong" not in said
    assert model.n_clusters == 1 or "supported by a single site" in said


def test_ordinals():
    assert [ordinal(n) for n in (2, 7, 12, 13, 21, 22, 33, 111)] == [
        "second", "seventh", "twelfth", "13th", "21st", "22nd", "33rd", "111th"
    ]  # fmt: skip


def test_clusters_that_follow_sites_are_noted_and_shared_ones_are_not():
    rng = np.random.default_rng(0)
    at_sites = [rng.normal(9 * at, 1, (200, 2)) for at in range(3)]
    apart = FederatedClustering(KnownCounts(1), random_state=0).fit(at_sites).model_
    shared = FederatedClustering(KnownCounts(1), random_state=0).fit([np.concatenate(at_sites)] * 3).model_
    assert apart.n_clusters == shared.n_clusters == 3
    assert [note for note in notes_of(apart) if "would look the same" in note]
    assert not [note for note in notes_of(shared) if "would look the same" in note]
    assert about_site_effect(FederatedClustering(KnownCounts(1), random_state=0).fit(at_sites[:1]).model_) is None
