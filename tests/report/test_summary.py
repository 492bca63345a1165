"""The sentences that a page opens with, against what is known of the run."""

import re
from dataclasses import replace

import pytest

import koncord
from koncord.aggregate.confidence import ClusterConfidence, Confidence, KShare
from koncord.report.summary import about_evidence, opening_sentences
from koncord.session.demonstration import demonstrate


@pytest.fixture(scope="module")
def result():
    shown = koncord.data.penguins()
    return demonstrate(shown, {site: f"{site}.csv" for site in shown.tables})


def cluster(**changes):
    usual = {"apart": 3.0, "nearest": 0, "sites": 3, "rows": 100, "stability": 0.9}
    return ClusterConfidence(**{**usual, **changes})


def sure(*clusters, same=1.0):
    k = len(clusters)
    shares = [KShare(n_clusters=k, share=same), KShare(n_clusters=k + 1, share=1 - same)]
    return Confidence(clusters=clusters, resampled=tuple(shares), n_draws=25)


def test_a_run_is_told_in_three_sentences(result):
    said = opening_sentences(result.model, result.record)
    assert len(said) == 3
    assert all(len(re.findall(r"\.(?:\s|$)", sentence)) == 1 for sentence in said)
    assert said[0].startswith("The 342 rows of 3 sites fall into 3 clusters: the largest, 2, holds 46% of the rows")
    numbers = sum(left.numbers for left in result.ledger)
    assert f"No row left its site; {numbers:,} numbers" in said[2]
    assert "each of which stands for at least 20 rows" in said[2]


@pytest.mark.parametrize(
    ("found", "for_them", "against_them"),
    [
        ((cluster(), cluster(), cluster()), ["clearly apart", "all come back", "100% of the draws"], []),
        ((cluster(apart=1.2), cluster(), cluster()), ["all come back"], ["cuts through one cloud"]),
        ((cluster(stability=0.4), cluster(), cluster()), ["clearly apart"], ["cluster 0 does not fully come back"]),
        (
            (cluster(sites=1, stability=None), cluster(), cluster()),
            ["those that several sites hold come back"],
            ["cluster 0 is held by a single site"],
        ),
        ((cluster(sites=1, stability=None),) * 3, ["clearly apart"], ["each is held by a single site"]),
    ],
)
def test_what_speaks_for_and_against_is_what_is_known(result, found, for_them, against_them):
    said = about_evidence(replace(result.model, confidence=sure(*found)))
    good, _, bad = said.partition("against them")
    assert all(each in good for each in for_them)
    assert all(each in bad for each in against_them)
    assert bool(bad) == bool(against_them)
    assert "stable" not in said
    if all(each.stability is None for each in found):
        assert "come back" not in said


def test_draws_that_disagree_speak_against(result):
    said = about_evidence(replace(result.model, confidence=sure(cluster(), cluster(), cluster(), same=0.3)))
    assert "against them, that only 30% of the draws" in said


def test_without_evidence_nothing_is_claimed(result):
    assert (
        about_evidence(replace(result.model, confidence=None))
        == "How sure they are is not known: this method does not tell."
    )
