"""Labels in C against the same in NumPy: the same clusters, the same groups, the same text."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koncord.data import batches
from koncord.data.batches import in_rows
from koncord.kernels import cutting, gaussians, labeling, scaling
from koncord.kernels.cutting import cut_tree
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.labeling import ColumnLabeler
from koncord.model import globalmodel
from koncord.prepare.plan import Plan
from koncord.runs import assignments
from koncord.runs.assignments import Assignments, csv_bytes, written
from koncord.types import FloatArray

_labeling = gaussians._labeling
pytestmark = pytest.mark.skipif(_labeling is None, reason="koncord was built without a compiler")
USERS = (gaussians, cutting, scaling, labeling, globalmodel, assignments, batches)


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch):
    def switch() -> None:
        for user in USERS:
            assert isinstance(user._labeling, ModuleType)
            monkeypatch.setattr(user, "_labeling", None)

    return switch


def mixture(k: int, q: int, d: int, seed: int) -> tuple[Gaussians, FloatArray]:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, q, q))
    found = Gaussians(
        centers=3 * rng.normal(size=(k, d)),
        axes=rng.normal(size=(q, d)),
        covariances=roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(q),
        weights=rng.dirichlet(np.full(k, 5.0)),
    )
    n = int(rng.integers(1, 200)) if seed % 2 else int(rng.integers(64 * k, 2500))  # many are put in order first
    return found, found.centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))


@given(k=st.integers(1, 9), d=st.integers(1, 20), seed=st.integers(0, 10_000), level=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_two_most_likely_clusters_are_those_of_numpy(k: int, d: int, seed: int, level: int) -> None:
    model, X = mixture(k, 1 + seed % d, d, seed)
    if seed % 3 == 0:
        X[::5, seed % d] = np.nan  # rows with gaps are judged in NumPy
    _labeling.limit(level)
    ours, theirs = model.two_nearest(X), model._two_in_numpy(X)
    _labeling.limit(2)
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_allclose(ours.squared, theirs.squared, rtol=1e-9)
    if k > 1:
        np.testing.assert_array_equal(ours.runner_ups, theirs.runner_ups)
        np.testing.assert_allclose(ours.runner_up_squared, theirs.runner_up_squared, rtol=1e-9)


def test_the_lowest_cluster_is_taken_on_ties() -> None:
    model = Gaussians(
        centers=np.array([[9.0], [1.0], [1.0], [1.0]]),
        axes=np.ones((1, 1)),
        covariances=np.ones((4, 1, 1)),
        weights=np.full(4, 0.25),
    )
    found = model.two_nearest(np.array([[0.0], [1.0], [9.0]]))
    assert found.labels.tolist() == [1, 1, 0]
    assert found.runner_ups.tolist() == [2, 2, 1]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("k", "wanted"), [(3, (0, 1)), (4, (3, 0))])
def test_the_lowest_cluster_is_taken_on_ties_whichever_is_looked_at_first(
    level: int, k: int, wanted: tuple[int, int]
) -> None:
    """The first axes say cluster 2, next to which 1 comes before 0; to 0 and 1 the rows are equally near."""
    centers = np.zeros((4, 8))
    centers[[0, 1, 2, 3, 2], [0, 1, 1, 2, 6]] = 1.0, 1.0, 0.5, 0.7, 10.0
    model = Gaussians(
        centers=centers[:k], axes=np.eye(8), covariances=np.tile(np.eye(8), (k, 1, 1)), weights=np.full(k, 1 / k)
    )
    _labeling.limit(level)
    found = model.two_nearest(np.zeros((1000, 8)))
    _labeling.limit(2)
    assert set(zip(found.labels.tolist(), found.runner_ups.tolist(), strict=True)) == {wanted}


def labeler(model: Gaussians, seed: int) -> ColumnLabeler:
    """With a fence on some columns, scales, and an offset."""
    rng, d = np.random.default_rng(seed), model.centers.shape[1]
    fence = np.where(rng.random(d) < 0.5, np.inf, 4.0)
    return ColumnLabeler(
        scaling=np.stack([-fence, fence, rng.normal(size=d), rng.uniform(0.3, 3, d), 0.1 * rng.normal(size=d)]),
        factors=model.factors(),
        centers=np.ascontiguousarray(model.centers),
        spreads=np.maximum(model.column_deviations(), 0.5),
        reach=3.0,
    )


@given(k=st.integers(1, 9), d=st.integers(1, 20), seed=st.integers(0, 10_000), level=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_labels_of_columns_are_those_of_rows_to_the_bit(k: int, d: int, seed: int, level: int) -> None:
    model, X = mixture(k, 1 + seed % d, d, seed)
    label = labeler(model, seed)
    columns = [X[:, at].astype(np.float32 if at % 3 else np.float64) for at in range(d)]
    low, high, means, scales, offsets = label.scaling
    rows = np.stack([each.astype(np.float64) for each in columns], axis=1)
    np.testing.assert_array_equal(in_rows(columns), rows)
    wanted = model.two_nearest(scaling.on_scale(rows, means, scales, low, high) - offsets)
    unfenced = scaling.on_scale(rows, means, scales) - offsets
    far = _labeling.far(unfenced, label.centers, label.spreads, wanted.labels, label.reach)
    _labeling.limit(level)
    found = label(columns)
    _labeling.limit(2)
    assert found is not None
    for one, other in zip(found.nearest, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    beyond = np.abs(unfenced - label.centers[wanted.labels]) / label.spreads[wanted.labels]
    at = np.nonzero(beyond > label.reach)
    np.testing.assert_array_equal([found.far.rows, found.far.columns], at)
    np.testing.assert_array_equal(found.far.beyond, beyond[at])
    np.testing.assert_array_equal(found.far.labels, wanted.labels[at[0]])
    assert found.far.beyond.tobytes() == far[2]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_columns_with_a_value_that_is_no_measurement_are_left_to_others(value: float) -> None:
    model, X = mixture(3, 4, 4, 0)
    columns = list(X.T.copy())
    assert labeler(model, 0)(columns) is not None
    columns[2][-1] = value
    assert labeler(model, 0)(columns) is None


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("d", [1, 7, 8, 19])
def test_rows_fall_into_the_groups_that_numpy_finds(level: int, d: int, in_numpy) -> None:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(3000, d)) + 4 * rng.integers(0, 3, (3000, 1))
    tree = cut_tree(X[:1000], 10)
    assert tree.n_groups > 20
    _labeling.limit(level)
    ours = tree.assign(X)
    _labeling.limit(2)
    in_numpy()
    np.testing.assert_array_equal(ours, tree.assign(X))


def test_rows_are_scaled_to_the_bit(in_numpy) -> None:
    rng = np.random.default_rng(0)
    X = 10 ** rng.uniform(-3, 160, (500, 3)) * rng.choice([-1, 1], (500, 3))
    X[::7, 1] = np.nan
    fenced = Plan(
        columns=("a", "b", "c"),
        means=rng.normal(size=3),
        scales=np.array([1e-9, 1.0, 3.0]),
        logged=np.array([0, 0, 1]),
        low=np.array([-5.0, -np.inf, 0.5]),
        high=np.array([5.0, 1e300, 7.0]),
    )
    ours = fenced.scaled(X), fenced.scaled_unfenced(X[:, ::-1], ("c", "b", "a"))
    in_numpy()
    for one, other in zip(ours, (fenced.scaled(X), fenced.scaled_unfenced(X, fenced.columns)), strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.lists(st.floats() | st.integers(0, 10**7).map(lambda n: n / 1000)))
@settings(max_examples=300, deadline=None)
def test_numbers_are_written_as_python_writes_them(values: list[float]) -> None:
    odd = [0.0, 1e-4, 9.999995e-5, 999999.5, 999999.4999999999, 123456.5, 0.5, 99999.95, 0.00012345650, 1e6, 5e-324]
    distances = np.array([*values, *odd])
    found = Assignments(
        labels=np.arange(len(distances)), distances=distances, runner_ups=None, runner_up_distances=None
    )
    wanted = "".join(f"{at + 1},{at},{value:.6g},,\n" for at, value in enumerate(distances.tolist()))
    assert written(found, slice(None), 1).text.decode() == wanted


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@settings(max_examples=200, deadline=None)
def test_whole_numbers_are_written_as_python_writes_them(values: list[int]) -> None:
    ends = [10**n + by for n in range(19) for by in (-1, 0)]
    labels = np.array([*values, *ends, *(-each for each in ends), 2**63 - 1, -(2**63)], dtype=np.int64)
    found = Assignments(labels=labels, distances=np.ones(len(labels)), runner_ups=None, runner_up_distances=None)
    wanted = "".join(f"{at + 99},{value},1,,\n" for at, value in enumerate(labels.tolist()))
    assert written(found, slice(None), 99).text.decode() == wanted


def test_lines_and_where_they_end_are_those_of_numpy(in_numpy) -> None:
    rng = np.random.default_rng(1)
    n = 400
    found = Assignments(
        labels=rng.integers(-1, 12, n),
        distances=rng.gamma(2, 3, n),
        runner_ups=rng.integers(0, 12, n),
        runner_up_distances=10 ** rng.uniform(-6, 9, n),
    )
    rows = np.flatnonzero(rng.random(n) < 0.1)
    ours, whole = written(found, slice(10, 390), 98765, rows[(rows > 9) & (rows < 390)] - 10), csv_bytes(found)
    in_numpy()
    theirs = written(found, slice(10, 390), 98765, rows[(rows > 9) & (rows < 390)] - 10)
    assert ours.text == theirs.text
    assert ours.ends.tolist() == theirs.ends.tolist()
    assert whole == csv_bytes(found)


def test_wrong_sizes_are_refused() -> None:
    zeros, labels = np.zeros(4), np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="'X' must have 2 numbers"):
        _labeling.walk(zeros, zeros[:1], zeros[:1], np.array([-1, -2]), labels)
    with pytest.raises(ValueError, match="'sides' must lead to later cuts"):
        _labeling.walk(zeros[:2], zeros[:1], zeros[:1], np.array([0, -1]), labels)
    with pytest.raises(ValueError, match="'labels' must be those of the centers"):
        _labeling.far(zeros, zeros[:2], zeros[:2], labels + 1, 8.0)
    with pytest.raises(ValueError, match="'runner_ups' must have 2 numbers"):
        _labeling.lines(1, labels, zeros[:2], labels[:1], zeros[:1], False, labels[:0], labels[:0])
    with pytest.raises(ValueError, match="'Z' must have 4 numbers"):
        _labeling.scale(zeros, *[zeros[:2]] * 4, 1.0, zeros[:3])
    with pytest.raises(ValueError, match="'squared' must have 2 numbers"):
        _labeling.judge(zeros, np.ones(2), np.ones(1), np.ones(1), np.ones(1), labels, zeros[:1], labels, zeros[:2])
    with pytest.raises(ValueError, match="'columns' must be of 2 floats or doubles each"):
        _labeling.turn([zeros[:2], labels], zeros)
    with pytest.raises(ValueError, match="'X' must have 2 numbers"):
        _labeling.turn([zeros[:1], zeros[:1]], zeros[:3])
    model, X = mixture(2, 1, 1, 0)
    label = labeler(model, 0)
    given = label.scaling, 1e9, *label.factors, label.centers, label.spreads, 3.0, *model.two_nearest(X)
    with pytest.raises(ValueError, match=f"'columns' must be of {len(X)} floats or doubles each"):
        _labeling.label([X[1:, 0]], *given)
    with pytest.raises(ValueError, match="'scaling' must have 10 numbers"):
        _labeling.label([X[:, 0], X[:, 0]], *given)
