import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save
from scipy.spatial.distance import mahalanobis
from scipy.stats import chi2

from koncord import FederatedClustering, GlobalModel
from koncord.aggregate.diagnostics import Diagnostics, UpsilonChoice
from koncord.errors import ModelFileError
from koncord.kernels.gaussians import Gaussians
from koncord.model.facts import Promise, SessionFacts
from koncord.protocol.departures import Absence


@pytest.fixture
def model():
    return GlobalModel(
        centers=np.array([[0.0, 0.0], [1.0, 2.0]]),
        weights=np.array([0.25, 0.75]),
        columns=("length", "größe"),
        means=np.array([10.0, 20.0]),
        scales=np.array([2.0, 4.0]),
        sites=("a", "b"),
        local_counts=(1, 2),
        holdings=np.array([[5, 0], [0, 15]]),
        groups={"a": np.array([0]), "b": np.array([1, 1])},
        components={"a": np.zeros((1, 2)), "b": np.ones((2, 2))},
        seed=7,
        settings={"estimator": "ASM()"},
        excluded={"b": np.array([False, True])},
        diagnostics=Diagnostics(
            rounds=3,
            choice=UpsilonChoice(upsilon=2.0),
            stabilities=(0.9, None),
            micro_clusters={"a": 1, "b": 2},
            notes=("A note.",),
            extra={"nested": {"list": [1, 2.5, None, True]}},
        ),
        session=SessionFacts(
            silhouettes=(0.5, None),
            missing=(Absence(exchange=2, site="b", asked="Move", reason="no answer"),),
            privacy={"a": Promise(epsilon=2.0, delta=1e-6, bound=3.0)},
            left_out_columns={"other": ("b",)},
        ),
        versions={"koncord": "0"},
    )


def test_a_saved_model_comes_back_whole(model, tmp_path):
    model.save(tmp_path / "m.koncord")
    loaded = GlobalModel.load(tmp_path / "m.koncord")
    for name in model.__slots__:
        ours, theirs = getattr(model, name), getattr(loaded, name)
        if isinstance(ours, dict) and ours and isinstance(next(iter(ours.values())), np.ndarray):
            assert ours.keys() == theirs.keys()
            for key in ours:
                np.testing.assert_array_equal(ours[key], theirs[key])
        else:
            np.testing.assert_array_equal(ours, theirs)
    assert [path.name for path in tmp_path.iterdir()] == ["m.koncord"]


def test_models_are_equal_by_value(blobs, tmp_path):
    sites = {name: blobs([[0, 0], [9, 9]], 40, seed=at)[0] for at, name in enumerate("ab")}
    one, again, other = (
        FederatedClustering(random_state=seed, standardize=False).fit(sites).model_ for seed in (0, 0, 1)
    )
    assert (one == one) is True
    assert (one == again) is True
    assert (one != again) is False
    assert (one == other) is False  # another seed
    assert (one == replace(one, centers=one.centers + 1)) is False
    fewer = {"centers": one.centers[:1], "weights": np.ones(1), "groups": {}}
    assert (one == replace(one, **fewer)) is False
    assert (one == "a model") is False
    one.save(tmp_path / "m")
    assert GlobalModel.load(tmp_path / "m") == one
    assert one in [other, again]
    with pytest.raises(TypeError, match="unhashable type: 'GlobalModel'"):
        hash(one)


def test_equal_models_are_equal_files(model, tmp_path):
    model.save(tmp_path / "one")
    GlobalModel.load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_rows_are_scaled_before_they_are_labeled(model):
    np.testing.assert_array_equal(model.predict([[10, 20], [12, 28], [11.1, 24.1]]), [0, 1, 1])
    np.testing.assert_array_equal(model.centers_original, [[10, 20], [12, 28]])
    assert model.n_clusters == 2


def header(**changes):
    plain = {"format": "koncord-global-model", "version": 3, "columns": ["x"], "sites": [], "local_counts": []}
    plain |= {"seed": None, "settings": {}, "diagnostics": {}, "session": {}, "confidence": None, "versions": {}}
    plain |= {"plan": {"missing": None, "categories": []}}
    return {"koncord": json.dumps({**plain, **changes})}


ARRAYS = {"centers": np.ones((1, 1)), "weights": np.ones(1), "means": np.ones(1), "scales": np.ones(1)}
ARRAYS["holdings"] = np.empty((0, 0), dtype=np.int64)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "'m' is not a koncord model"),
        (b"\x80\x04not a pickle either", "'m' is not a koncord model"),
        (save(ARRAYS), "'m' is not a koncord model"),
        (save(ARRAYS, metadata=header(format="other")), "'m' is not a koncord model but 'other'"),
        (save(ARRAYS, metadata=header(version=99)), "of version 99; this koncord reads version 3"),
        (save(ARRAYS, metadata=header(version=2)), "of version 2; this koncord reads version 3"),
        (save({**ARRAYS, "weights": np.ones(2)}, metadata=header()), "'m' is not a koncord model"),
        (save({"centers": np.ones((1, 1))}, metadata=header()), "'m' is not a koncord model"),
    ],
)
def test_a_file_it_does_not_know_is_refused_in_a_sentence(tmp_path, data, message):
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        GlobalModel.load(tmp_path / "m")
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"no model file .*gone"):
        GlobalModel.load(tmp_path / "gone")


@pytest.mark.parametrize("X", [np.ones(2), np.ones((3, 1)), np.array([[1.0, np.nan]])])
def test_rows_that_do_not_fit_are_refused(model, X):
    with pytest.raises(ValueError, match="'X' for this GlobalModel"):
        model.predict(X)


# --- outliers and distances in the metric of a cluster ---


def shaped(model):
    covariances = np.array([[[1.0, 0.5], [0.5, 2.0]], [[0.25, 0.0], [0.0, 4.0]]])
    shapes = Gaussians(centers=model.centers, axes=np.eye(2), covariances=covariances, weights=model.weights)
    return replace(model, gaussians=shapes)


def test_distances_are_in_the_metric_of_each_cluster(model):
    model = shaped(model)
    X = np.random.default_rng(0).normal([10, 22], [3, 5], (50, 2))
    plain = [
        [mahalanobis(row, center, np.linalg.inv(covariance)) for center, covariance in zip(*each, strict=True)]
        for row in model.scaled(X)
        for each in [(model.centers, model.gaussians.covariances)]
    ]
    np.testing.assert_allclose(model.distances(X), plain)


def test_distances_without_shapes_are_those_to_the_centers(model):
    np.testing.assert_allclose(model.distances([[10, 20], [12, 28]]), [[0, 5**0.5], [5**0.5, 0]])


@pytest.mark.parametrize("quantile", [0.9, 0.99, 0.999])
def test_the_stated_share_of_the_rows_of_a_gaussian_are_outliers(model, quantile):
    model = shaped(model)
    covariances = model.gaussians.covariances[:1]
    one = replace(model.gaussians, centers=model.centers[:1], covariances=covariances, weights=np.ones(1))
    alone = replace(model, centers=model.centers[:1], weights=np.ones(1), gaussians=one, groups={}, excluded={})
    rng = np.random.default_rng(1)
    X = rng.multivariate_normal([0, 0], one.covariances[0], 100_000) * model.scales + model.means
    is_out = alone.outliers(X, quantile=quantile)
    assert is_out.mean() == pytest.approx(1 - quantile, rel=0.25)
    np.testing.assert_array_equal(alone.predict(X, outliers=True, quantile=quantile) == -1, is_out)
    reach = chi2.ppf(quantile, 2) ** 0.5
    np.testing.assert_array_equal(is_out, alone.distances(X)[:, 0] > reach)


def test_outliers_are_beyond_the_cluster_that_a_row_was_given_to(model):
    model = shaped(model)
    X = np.array([[10.0, 20.0], [60.0, 20.0], [12.0, 28.0]])
    np.testing.assert_array_equal(model.predict(X, outliers=True), [0, -1, 1])
    np.testing.assert_array_equal(model.predict(X), [0, 0, 1])


def test_outliers_need_shapes_and_a_quantile(model):
    with pytest.raises(ValueError, match="has centers only"):
        model.predict([[10, 20]], outliers=True)
    for quantile in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="'quantile' of GlobalModel must be more than 0 and less than 1; got"):
            shaped(model).outliers([[10, 20]], quantile=quantile)


@pytest.mark.parametrize(
    "wrong",
    [
        {"diagnostics": {"rounds": "three"}},
        {"diagnostics": {"notes": "no list"}},
        {"diagnostics": {"choice": {"upsilon": "1"}}},
        {"diagnostics": {"stopped": "by hand"}},
        {"session": {"missing": [{"site": "a"}]}},
        {"session": {"privacy": {"a": {"epsilon": None}}}},
        {"session": None},
    ],
)
def test_facts_of_another_type_are_no_model(tmp_path, wrong):
    (tmp_path / "m").write_bytes(save(ARRAYS, metadata=header()))
    assert GlobalModel.load(tmp_path / "m").diagnostics == Diagnostics()
    (tmp_path / "m").write_bytes(save(ARRAYS, metadata=header(**wrong)))
    with pytest.raises(ModelFileError, match="'m' is not a koncord model"):
        GlobalModel.load(tmp_path / "m")


def test_groups_name_clusters_and_masks_belong_to_groups(model):
    with pytest.raises(ValueError, match=r"from 0 to 1; 'a' has others.*'excluded'"):
        replace(model, groups={**model.groups, "a": np.array([-1])})
    with pytest.raises(ValueError, match="must be a mask of the 'groups' of 'b'"):
        replace(model, excluded={"b": np.array([True])})


@pytest.mark.parametrize(
    ("extra", "error", "sentence"),
    [
        ({"rounds": 1}, ValueError, "give it as the argument 'rounds'"),
        ({"reach": np.float64(1.0)}, TypeError, "finite JSON values; 'reach' is"),
        ({"reach": float("nan")}, TypeError, "finite JSON values; 'reach' is"),
        ({"of": {1: 2}}, TypeError, "finite JSON values; 'of' is"),
    ],
)
def test_facts_of_an_aggregator_alone_are_json_and_have_names_of_their_own(extra, error, sentence):
    with pytest.raises(error, match=sentence):
        Diagnostics(extra=extra)
