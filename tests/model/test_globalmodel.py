import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from koncord import FederatedClustering, GlobalModel
from koncord.errors import ModelFileError


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
        info={"upsilon": 2.0, "silhouettes": [0.5, None]},
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
    assert (one == replace(one, centers=one.centers[:1], weights=np.ones(1))) is False
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


def test_rows_are_scaled_before_they_are_labelled(model):
    np.testing.assert_array_equal(model.predict([[10, 20], [12, 28], [11.1, 24.1]]), [0, 1, 1])
    np.testing.assert_array_equal(model.centers_original, [[10, 20], [12, 28]])
    assert model.n_clusters == 2


def header(**changes):
    plain = {"format": "koncord-global-model", "version": 1, "columns": ["x"], "sites": [], "local_counts": []}
    plain |= {"seed": None, "settings": {}, "info": {}, "versions": {}}
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
        (save(ARRAYS, metadata=header(version=99)), "of version 99; this koncord reads up to 3"),
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
