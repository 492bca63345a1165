import numpy as np
import pytest
from sklearn.decomposition import PCA

from koncord.model.globalmodel import GlobalModel
from koncord.report.parametermap import (
    HEIGHT,
    SITE_MARKS,
    WIDTH,
    color,
    labels,
    on_canvas,
    on_two_axes,
    overlap,
    parameter_map,
    plane_of,
)


def model_of(centers, components):
    centers = np.array(centers, dtype=float)
    d = centers.shape[1]
    return GlobalModel(
        centers=centers,
        weights=np.ones(len(centers)) / len(centers),
        columns=tuple(f"x{at}" for at in range(d)),
        means=np.zeros(d),
        scales=np.ones(d),
        sites=tuple(components),
        local_counts=tuple(len(means) for means, _ in components.values()),
        holdings=np.ones((len(components), len(centers)), dtype=np.int64),
        groups={site: np.array(groups) for site, (_, groups) in components.items()},
        components={site: np.array(means, dtype=float) for site, (means, _) in components.items()},
    )


def test_the_axes_are_those_of_a_principal_component_analysis():
    points = np.random.default_rng(0).normal(size=(20, 6)) * [5, 4, 3, 2, 1, 1]
    flat, shares = on_two_axes(points)
    expected = PCA(2).fit(points)
    assert np.abs(flat) == pytest.approx(np.abs(expected.transform(points)))
    assert shares == pytest.approx(expected.explained_variance_ratio_)


def test_the_map_is_the_same_way_round_however_the_points_are_ordered():
    points = np.random.default_rng(1).normal(size=(12, 4))
    order = np.random.default_rng(2).permutation(12)
    assert on_two_axes(points[order])[0] == pytest.approx(on_two_axes(points)[0][order])


@pytest.mark.parametrize("points", [[[3.0, 4.0]], [[3.0, 4.0], [3.0, 4.0]], [[1.0], [2.0]], [[1.0]]])
def test_few_points_and_few_columns_have_empty_axes(points):
    flat, shares = on_two_axes(np.array(points))
    assert flat.shape == (len(points), 2)
    assert np.isfinite(flat).all()
    assert not flat[:, 1].any()
    assert shares[1] == pytest.approx(0)


def test_everything_is_on_the_canvas_and_distances_keep_their_proportion():
    rng = np.random.default_rng(3)
    model = model_of(rng.normal(size=(5, 2)) * [50, 1], {"a": (rng.normal(size=(4, 2)), [0, 1, 2, 4])})
    plane = plane_of(model)
    centers, components = on_canvas(plane)
    placed, flat = np.concatenate([centers, components]), np.concatenate([plane.centers, plane.components])
    assert (placed > 0).all()
    assert (placed < [WIDTH, HEIGHT]).all()
    ratio = np.linalg.norm(placed[1:] - placed[0], axis=1) / np.linalg.norm(flat[1:] - flat[0], axis=1)
    assert ratio == pytest.approx(ratio[0])


def test_one_column_sets_the_sites_apart_in_height():
    plane = plane_of(model_of([[0], [9]], {"a": ([[1], [8]], [0, 1]), "b": ([[0]], [0])}))
    assert plane.is_line
    heights = plane.components[:, 1].tolist()
    assert heights[0] == heights[1] != heights[2]
    assert plane.centers[:, 1].tolist() == [0, 0]


def test_labels_avoid_each_other():
    centers = np.array([[200.0, 200.0], [208.0, 200.0], [200.0, 207.0], [230.0, 200.0]])
    drawn = labels(centers, np.empty((0, 2)))
    places = [tuple(float(part.split('"')[1]) for part in label.split()[1:3]) for label in drawn]
    boxes = [(x - 5, y - 12, x + 5, y + 2) for x, y in places]
    assert all(overlap(one, other) == 0 for at, one in enumerate(boxes) for other in boxes[:at])


def test_a_model_without_components_draws_its_centers():
    model = model_of([[0, 0], [1, 1]], {})
    drawn = parameter_map(model, plane_of(model))
    assert drawn.count("<circle") == 2
    assert "<polygon" not in drawn


def test_no_two_of_56_clusters_share_both_colour_and_shape():
    looks = {(color(number), number % len(SITE_MARKS)) for number in range(56)}
    assert len(looks) == 56
