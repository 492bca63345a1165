"""What is said of known classes."""

from dataclasses import replace

import pytest

import koncord
from koncord.report.demonstration import about_agreement, about_crossing, bytes_by_site, demonstration_text
from koncord.runs.record import Crossing
from koncord.session.demonstration import demonstrate

BIRDS = ("duck", "goose", "swan")


@pytest.fixture(scope="module")
def result():
    shown = koncord.data.penguins()
    return demonstrate(shown, {site: f"{site}.csv" for site in shown.tables})


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (((9, 0, 0), (1, 8, 0), (0, 0, 7)), "24 of 25 rows are in a cluster that is mostly their own."),
        (((9, 0, 0), (8, 0, 1), (0, 6, 0)), "duck falls into several clusters; swan has no cluster of its own."),
        (((9, 0, 0), (8, 0, 0), (0, 6, 0), (0, 5, 0), (0, 0, 4)), "duck and goose fall into several clusters."),
        (((9, 2, 2),), "goose and swan have no cluster of their own."),
    ],
)
def test_split_and_lost_classes_are_named(counts, said):
    sentence = about_crossing(Crossing(what="bird", classes=BIRDS, counts=counts, ari=0.5))
    assert sentence.startswith("By bird, ")
    assert sentence.endswith(said)


def test_what_left_a_site_is_the_sum_of_its_messages(result):
    sent = bytes_by_site(result.record, result.model.sites)
    for site, (messages, n_bytes) in sent.items():
        own = [left for left in result.ledger if left.site == site]
        assert (messages, n_bytes) == (len(own), sum(left.n_bytes for left in own))
    assert sum(n_bytes for _, n_bytes in sent.values()) == sum(left.n_bytes for left in result.ledger)


def test_the_terminal_shows_every_figure(result):
    out = demonstration_text(result.model, result.record)
    truth = result.record.truth
    assert f"class is {truth.ari:.3f}" in out
    assert f"K = 3 given and all rows in one place: {truth.pooled_ari:.3f}" in out
    for site, (_, n_bytes) in bytes_by_site(result.record, result.model.sites).items():
        assert any(line.split()[:1] == [site] and f"{n_bytes:,}" in line for line in out.splitlines())


def test_the_nested_answer_is_mentioned_where_there_is_one(result):
    truth = replace(result.record.truth, ari_at_k=0.987, n_clusters=result.model.n_clusters + 1)
    said = " ".join(about_agreement(result.model, truth))
    assert "by the tree of the model and without labels: 0.987." in said
    same = replace(truth, n_clusters=result.model.n_clusters)
    assert "0.987" not in " ".join(about_agreement(result.model, same))
