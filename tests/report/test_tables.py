"""Rows that describe an estimate."""

from math import isnan, nan

import numpy as np
import pytest

from koncord import theory
from koncord.estimate.search import GridResult
from koncord.report.tables import ComponentRow, component_rows, components_text, count_rows, counts_text

X = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0], [9.0, 9.0], [5.0, 5.0], [5.0, 5.0]])
LABELS = np.array([0, 0, 0, 1, 2, 2])
VARIANCES = np.array([4 / 3, 1.0, 0.25])


def candidate(n_components, score):
    return GridResult(params={"a": score}, n_components=n_components, score=score)


def test_a_component_row_counts_its_own_rows():
    line, point, twins = component_rows(X, LABELS, VARIANCES)
    assert [row.number for row in (line, point, twins)] == [0, 1, 2]
    assert [row.count for row in (line, point, twins)] == [3, 1, 2]
    assert [row.share for row in (line, point, twins)] == [0.5, 1 / 6, 2 / 6]
    assert [row.spread for row in (line, point, twins)] == [np.sqrt(4 / 3), 1.0, 0.5]


def test_points_on_a_line_are_long_and_points_without_spread_are_round():
    line, point, twins = component_rows(X, LABELS, VARIANCES)
    assert line.anisotropy == pytest.approx(2.0)
    assert (point.anisotropy, twins.anisotropy) == (1.0, 1.0)


def test_the_critical_size_is_that_of_the_rows_themselves():
    cloud = np.random.default_rng(0).normal(size=(200, 8))
    (row,) = component_rows(cloud, np.zeros(200, dtype=int), np.ones(1))
    assert row.critical_size == theory.critical_size(8, theory.anisotropy(cloud))


@pytest.mark.parametrize(("count", "is_past"), [(50, False), (51, True)])
def test_a_component_is_past_its_critical_size_when_it_has_more_rows(count, is_past):
    row = ComponentRow(number=0, count=count, share=1.0, spread=1.0, anisotropy=1.0, critical_size=50.0)
    assert row.is_past_critical_size is is_past


def test_a_component_without_rows_is_round_and_small():
    (_, _, _, empty) = component_rows(X, LABELS, np.append(VARIANCES, 1.0))
    assert (empty.count, empty.share, empty.anisotropy, empty.is_past_critical_size) == (0, 0.0, 1.0, False)


def test_count_rows_keep_the_best_of_each_count():
    rows = count_rows([candidate(3, 0.5), candidate(2, 0.4), candidate(3, 0.7), candidate(1, nan), candidate(3, nan)])
    assert [(row.n_components, row.n_configurations, row.is_chosen) for row in rows] == [
        (1, 1, False),
        (2, 1, False),
        (3, 3, True),
    ]
    assert isnan(rows[0].score)
    assert [row.score for row in rows[1:]] == [0.4, 0.7]


def test_a_tie_is_chosen_with_fewer_components():
    rows = count_rows([candidate(5, 0.5), candidate(2, 0.5)])
    assert [row.is_chosen for row in rows] == [True, False]


def test_nothing_to_choose_gives_no_rows():
    assert count_rows([]) == []


def test_the_text_of_components_marks_those_past_their_critical_size():
    text = components_text(component_rows(X, LABELS, VARIANCES))
    lines = text.splitlines()
    assert lines[0].split() == ["component", "rows", "share", "spread", "anisotropy", "critical", "size"]
    assert lines[1].split() == ["0", "3", "50.0%", "1.155", "2.00", "3", "past", "it"]
    assert lines[2].split()[:3] == ["1", "1", "16.7%"]
    assert "past it" not in lines[2]
    assert len({line.index("%") for line in lines[1:]}) == 1  # one under the other


def test_the_text_of_counts_is_cut_to_the_best_and_keeps_their_order():
    rows = count_rows([candidate(k, 1 / k) for k in range(2, 40)] + [candidate(1, nan)])
    lines = counts_text(rows).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [str(k) for k in range(2, 22)]
    assert lines[1].endswith("chosen")
    assert lines[-1] == "  and 19 with lower silhouettes"


def test_a_count_without_a_silhouette_says_none():
    assert counts_text(count_rows([candidate(1, nan), candidate(2, 0.5)])).splitlines()[1].split() == ["1", "none", "1"]
