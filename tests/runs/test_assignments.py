import numpy as np
import pytest

from koncord.model.globalmodel import GlobalModel
from koncord.runs import assignments
from koncord.runs.assignments import as_counts_text, as_csv, assign, assignments_record, label_counts


def model_of(centers, means=None, scales=None):
    centers = np.array(centers, dtype=float)
    d = centers.shape[1]
    return GlobalModel(
        centers=centers,
        weights=np.ones(len(centers)) / len(centers),
        columns=tuple(f"x{at}" for at in range(d)),
        means=np.zeros(d) if means is None else np.array(means, dtype=float),
        scales=np.ones(d) if scales is None else np.array(scales, dtype=float),
    )


def plainly(model, X):
    """Label, distance, runner-up and its distance of every row, one row at a time."""
    rows = []
    for x in X:
        scaled = [(value - mean) / scale for value, mean, scale in zip(x, model.means, model.scales, strict=True)]
        distances = [sum((a - b) ** 2 for a, b in zip(scaled, center, strict=True)) ** 0.5 for center in model.centers]
        first, second = sorted(range(len(distances)), key=lambda at: (distances[at], at))[:2]
        rows.append((first, distances[first], second, distances[second]))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("most", [1, 7, 1 << 23])
def test_every_row_gets_its_nearest_and_its_next_center(monkeypatch, most):
    monkeypatch.setattr(assignments, "MOST_DISTANCES", most)
    rng = np.random.default_rng(0)
    model = model_of(rng.normal(size=(4, 3)), means=[5, -3, 100], scales=[2, 0.1, 30])
    X = rng.normal(size=(50, 3)) * model.scales + model.means
    labels, distances, runner_ups, runner_up_distances = plainly(model, X)
    found = assign(model, X)
    assert found.labels.tolist() == labels
    assert found.runner_ups.tolist() == runner_ups
    assert found.distances == pytest.approx(distances)
    assert found.runner_up_distances == pytest.approx(runner_up_distances)


def test_between_two_centers_at_one_place_the_first_wins_and_the_other_is_next():
    found = assign(model_of([[1, 1], [1, 1], [9, 9]]), np.array([[2.0, 1.0]]))
    assert (found.labels.tolist(), found.runner_ups.tolist()) == ([0], [1])
    assert found.distances.tolist() == found.runner_up_distances.tolist() == [1]


def test_one_center_leaves_the_runner_up_empty():
    found = assign(model_of([[0.0]]), np.array([[3.0], [-4.0]]))
    assert found.runner_ups is found.runner_up_distances is None
    assert as_csv(found) == "row,cluster,distance,runner_up,runner_up_distance\n1,0,3,,\n2,0,4,,\n"
    assert assignments_record(found, 1)["runner_ups"] is None


def test_the_file_has_one_line_a_row_in_order():
    found = assign(model_of([[0.0], [10.0]]), np.array([[1.0], [9.5], [4.0]]))
    lines = as_csv(found).splitlines()
    assert lines[1:] == ["1,0,1,1,9", "2,1,0.5,0,9.5", "3,0,4,1,6"]


def test_the_summary_counts_rows_also_of_clusters_that_got_none():
    found = assign(model_of([[0.0], [10.0], [99.0]]), np.array([[1.0], [9.5], [4.0]]))
    assert assignments_record(found, 3)["counts"].tolist() == [2, 1, 0]
    assert [line.split() for line in as_counts_text(label_counts(found, 3)).splitlines()[1:]] == [
        ["0", "2", "66.7%", "2.500"],
        ["1", "1", "33.3%", "0.500"],
        ["2", "0", "0.0%", "none"],
    ]
