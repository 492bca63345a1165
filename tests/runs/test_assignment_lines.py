"""Lines of labels, and labels in one pass over the distances."""

import csv
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import koncord
from koncord._jobs import jobs
from koncord.runs import assignments
from koncord.runs.assignments import HEADER, Assignments, as_csv, assign

DISTANCES = st.floats(0, allow_nan=False, allow_infinity=False)


def plain(found):
    """Line after line, by the csv module."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(HEADER)
    for at, (label, distance) in enumerate(zip(found.labels.tolist(), found.distances.tolist(), strict=True)):
        others = ["", ""]
        if found.runner_ups is not None:
            others = [found.runner_ups[at], f"{found.runner_up_distances[at]:.6g}"]
        lines.writerow([at + 1, label, f"{distance:.6g}", *others])
    return text.getvalue()


@given(st.lists(st.tuples(st.integers(-1, 40), DISTANCES, st.integers(0, 40), DISTANCES), max_size=20), st.booleans())
def test_lines_are_those_of_the_csv_module_whatever_is_done_at_once(rows, has_others):
    labels, distances, others, their = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([],) * 4
    found = Assignments(
        labels=np.asarray(labels, dtype=np.int64),
        distances=np.asarray(distances, dtype=float),
        runner_ups=np.asarray(others, dtype=np.int64) if has_others else None,
        runner_up_distances=np.asarray(their, dtype=float) if has_others else None,
    )
    expected = plain(found)
    with pytest.MonkeyPatch.context() as patch:
        for at_once in (1, 7, 1 << 16):
            patch.setattr(assignments, "LINES_AT_ONCE", at_once)
            assert as_csv(found) == expected


def test_lines_do_not_depend_on_the_number_of_processes(monkeypatch):
    monkeypatch.setattr(assignments, "LINES_AT_ONCE", 10)
    rng = np.random.default_rng(0)
    found = Assignments(
        labels=rng.integers(0, 3, 95), distances=rng.random(95), runner_ups=None, runner_up_distances=None
    )
    with jobs(3):
        spread_out = as_csv(found)
    assert spread_out == as_csv(found) == plain(found)


@pytest.mark.parametrize("aggregator", [koncord.Consensus(), koncord.KFed(3)], ids=["gaussians", "centers"])
def test_labels_of_one_pass_are_those_of_predict(aggregator, monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(m, 1, (300, 3)) for m in (0, 2.5, 7)])
    sites = {"a": rows[::2], "b": rows[1::2]}
    model = koncord.FederatedClustering(aggregator=aggregator, random_state=0).fit(sites).model_
    assert (model.gaussians is None) == (aggregator.name == "kfed")
    monkeypatch.setattr("koncord.kernels.gaussians.GAUSSIANS_BLOCK_FLOATS", 64)
    found = assign(model, rows)
    np.testing.assert_array_equal(found.labels, model.predict(rows))
    distances = model.distances(rows)
    np.testing.assert_allclose(found.distances, distances[np.arange(len(rows)), found.labels], rtol=1e-12)
