import re

import numpy as np
import pytest

from koncord import Consensus, FederatedClustering, KnownCounts
from koncord.aggregate.diagnostics import KCandidate, KChoice
from koncord.report.choice import best_by_k, candidates, captions, choice, figure, summary


def told(k, separation, gap, hierarchy="ward"):
    return KCandidate(hierarchy=hierarchy, n_clusters=k, silhouette=0.5, separation=separation, gap=gap)


def made(chosen, runner_up, *others):
    looked_at = [each for each in (told(1, 0.0, 0.0), chosen, runner_up, *others) if each]
    return KChoice(chosen=chosen, runner_up=runner_up, candidates=tuple(looked_at))


def test_the_words_name_the_chosen_k_and_the_runner_up():
    words = summary(made(told(4, 0.31, 1.2), told(7, 0.30, 1.1)))
    assert "4 clusters are the fewest" in words
    assert "The runner-up is 7, with 0.300 and 1.100." in words
    assert "there is one cluster" in summary(made(told(1, 0.0, 0.0), told(2, 0.01, 0.01)))


def test_of_two_clusterings_of_one_k_the_chosen_one_is_shown_and_else_the_more_separated():
    chosen = told(4, 0.3, 1.0)
    rows = best_by_k(made(chosen, None, told(4, 0.4, 0.5, "average"), told(5, 0.1, 1.0), told(5, 0.2, 0.9, "average")))
    assert [(row.n_clusters, row.hierarchy) for row in rows] == [(1, "ward"), (4, "ward"), (5, "average")]
    assert rows[1] == chosen


def test_the_figure_marks_both_in_both_panels_and_no_point_leaves_its_frame():
    drawn = figure(made(told(4, 0.3, 1.0), told(3, 0.2, -0.5), *(told(k, 1 / k, 0.1 * k) for k in range(5, 30))))
    assert drawn.count("<circle") == drawn.count("l10 10") == drawn.count("<polyline") == 2
    frames = re.findall(r'<rect class="frame" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawn)
    for frame, points in zip(frames, re.findall(r'points="([^"]+)"', drawn), strict=True):
        x, y, width, height = map(float, frame)
        places = np.array([[float(value) for value in point.split(",")] for point in points.split()])
        assert (places >= [x, y]).all()
        assert (places <= [x + width, y + height]).all()


def test_the_table_is_short_and_holds_the_chosen_k_and_the_runner_up():
    shown = candidates(
        made(told(60, 0.3, 1.0), told(2, 0.2, 0.5), *(told(k, 0.1, 0.1) for k in range(3, 90) if k != 60))
    )
    assert len(shown.rows) <= 15
    assert {row[0]: row[-1] for row in shown.rows if row[-1]} == {"60": "chosen", "2": "runner-up"}


@pytest.mark.parametrize("n_clusters", [1, 2])
def test_a_run_of_consensus_tells_its_choice_and_another_tells_none(n_clusters):
    rng = np.random.default_rng(0)
    sites = [np.concatenate([rng.normal(9 * k, 1, (60, 2)) for k in range(n_clusters)]) for _ in range(4)]
    model = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(sites).model_
    view = choice(model)
    assert ("one cluster" in view["summary"]) == (n_clusters == 1)
    others = [row[0] for row in view["runners_up"].rows]
    assert others == [str(each.n_clusters) for each in model.confidence.runners_up]
    assert str(n_clusters) not in others
    plain = FederatedClustering(KnownCounts(n_clusters), random_state=0, standardize=False).fit(sites).model_
    assert (choice(plain) == {}) is (not isinstance(plain.diagnostics.choice, KChoice))


@pytest.mark.parametrize("gap", [9.0, 2.2])
def test_the_words_say_whether_the_clusters_stand_apart_or_the_null_model_decided(gap):
    rng = np.random.default_rng(0)
    centers = gap * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    sites = [np.concatenate([rng.normal(center, 1, (200, 2)) for center in centers]) for _ in range(4)]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, standardize=False).fit(sites)
    made = fitted.model_.diagnostics.choice
    assert made.stands_apart or gap < 9.0
    assert ("clusters stand apart from each other: each is at least" in summary(made)) is made.stands_apart
    assert ("Among the K whose silhouette" in captions(made)[1]) is not made.stands_apart
