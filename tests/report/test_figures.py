"""Figures of an estimate: what they show, and the corners of the data they must survive."""

from io import BytesIO
from math import nan

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from PIL import Image

from koncord.estimate.search import GridResult
from koncord.report.figures import MOST_POINTS, as_png, estimate_figure, on_principal_axes, thinned

CANDIDATES = tuple(
    GridResult(params={}, n_components=k, score=score)
    for k, score in ((1, nan), (2, 0.4), (3, 0.8), (3, 0.2), (7, 0.1))
)


def drawn_points(axes):
    return [collection.get_offsets() for collection in axes.collections if isinstance(collection, PathCollection)]


def figure_of(X, labels, candidates=()):
    means = np.array([X[labels == number].mean(axis=0) for number in range(labels.max() + 1)])
    return estimate_figure(X, labels, means, candidates, title="t.csv: a title")


def test_every_row_is_drawn_in_the_shape_of_its_component_with_a_number_at_its_mean(blobs):
    X, labels = blobs([[0, 0, 0], [20, 0, 0], [0, 20, 0]], n_each=40)
    left, right = figure_of(X, labels, CANDIDATES).axes
    groups = drawn_points(left)
    assert [len(group) for group in groups] == [40, 40, 40]
    numbers = {text.get_text(): text.xy for text in left.texts if text.get_text().isdigit()}
    assert list(numbers) == ["0", "1", "2"]
    for number, group in enumerate(groups):
        assert np.allclose(np.mean(group, axis=0), numbers[str(number)])
    shapes = {tuple(collection.get_paths()[0].vertices.ravel()) for collection in left.collections}
    assert len(shapes) == 3
    assert right.get_xlabel() == "K, components found"


def test_the_choice_shows_every_configuration_and_marks_the_chosen_one(blobs):
    X, labels = blobs([[0, 0], [20, 0], [0, 20]], n_each=10)
    _, right = figure_of(X, labels, CANDIDATES).axes
    configurations, chosen = drawn_points(right)
    assert configurations.tolist() == [[2, 0.4], [3, 0.8], [3, 0.2], [7, 0.1]]
    assert chosen.tolist() == [[3, 0.8]]
    assert right.lines[0].get_xydata().tolist() == [[2, 0.4], [3, 0.8], [7, 0.1]]
    assert "chosen: K = 3" in [text.get_text() for text in right.get_legend().get_texts()]
    assert "1 of 5 configurations have no silhouette" in [text.get_text() for text in right.texts]


def test_the_legend_tells_when_all_rows_gave_another_count(blobs):
    X, labels = blobs([[0, 0], [20, 0]], n_each=10)
    _, right = figure_of(X, labels, CANDIDATES).axes
    assert "chosen: K = 3, on all rows 2" in [text.get_text() for text in right.get_legend().get_texts()]


def test_without_a_choice_there_is_one_panel(blobs):
    X, labels = blobs([[0, 0], [20, 0]], n_each=10)
    assert len(figure_of(X, labels).axes) == 1


def test_many_rows_are_thinned_and_the_picture_says_so():
    X = np.random.default_rng(0).normal(size=(MOST_POINTS + 5, 2))
    (axes,) = figure_of(X, np.zeros(len(X), dtype=int)).axes
    n_drawn = sum(map(len, drawn_points(axes)))
    assert MOST_POINTS - 20 <= n_drawn <= MOST_POINTS
    assert any("20,000 of 20,005 rows, drawn at random" in text.get_text() for text in axes.texts)
    assert len(np.unique(thinned(MOST_POINTS + 5))) == MOST_POINTS
    assert np.array_equal(thinned(7), np.arange(7))


def test_a_far_row_does_not_flatten_the_picture_and_is_counted():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    X[0] = [1e6, 0]
    (axes,) = figure_of(X, np.zeros(len(X), dtype=int)).axes
    assert np.concatenate(drawn_points(axes)).shape == (2999, 2)
    assert any("1 row outside the frame" in text.get_text() for text in axes.texts)


def test_a_small_far_component_is_in_the_frame():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    X[0] = [1e3, 0]
    labels = np.zeros(len(X), dtype=int)
    labels[0] = 1
    (axes,) = figure_of(X, labels).axes
    assert [len(group) for group in drawn_points(axes)] == [2999, 1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 1), (5, 1), (2, 3), (3, 40)])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_small_tables_are_drawn(shape, spread):
    X = 5 + spread * np.random.default_rng(0).normal(size=shape)
    figure = figure_of(X, np.zeros(len(X), dtype=int), CANDIDATES[:1])
    assert sum(map(len, drawn_points(figure.axes[0]))) == len(X)
    assert as_png(figure).startswith(b"\x89PNG")


def test_principal_axes_are_those_of_the_eigenvectors():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) * [5, 3, 1, 0.5] + 1e3
    points, centers, shares = on_principal_axes(rows, rows[:2])
    values = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    assert np.allclose(points.var(axis=0, ddof=1), values[:2])
    assert np.allclose(shares, values[:2] / values.sum())
    assert np.allclose(centers, points[:2])


def test_the_same_figure_gives_the_same_bytes_and_stays_legible_in_size(blobs):
    X, labels = blobs([[0, 0], [20, 0]], n_each=10)
    first, again = (as_png(figure_of(X, labels, CANDIDATES)) for _ in range(2))
    assert first == again
    with Image.open(BytesIO(first)) as image:
        assert image.size == (1725, 810)
