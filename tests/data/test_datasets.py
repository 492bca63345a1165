import sys

import numpy as np
import pytest

import koncord
import koncord.data
from koncord.data.datasets import FOLDER, STORED, cache_folder, load
from koncord.data.waveform import waveform


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine with no file of any data set; returns its empty cache folder."""
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr("koncord.data.datasets.cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_what_koncord_exports_are_the_functions():
    import koncord.data.partitions

    assert koncord.data.load is load
    assert koncord.data.partition is koncord.data.partitions.partition
    assert koncord.data.__all__ == dir(koncord.data) == ["load", "partition"]
    with pytest.raises(AttributeError, match="no attribute 'loads'"):
        _ = koncord.data.loads


def test_digits_are_always_there(no_data):
    digits = load("digits")
    assert (digits.name, digits.X.shape, digits.X.dtype, digits.y.dtype) == ("digits", (1797, 64), float, np.int64)
    assert set(digits.y) == set(range(10))


def test_waveform_is_generated_without_its_file_and_read_with_it(no_data):
    X, y = waveform()
    generated = load("waveform")
    assert np.array_equal(generated.X, X)
    assert np.array_equal(generated.y, y)
    assert "generator" in generated.note
    np.savez(no_data / "waveform.npz", X=np.ones((4, 21), dtype=np.float32), y=np.array([2, 1, 0, 0], dtype=np.int16))
    stored = load("waveform")
    assert (stored.X.shape, stored.X.dtype, stored.y.tolist()) == ((4, 21), float, [2, 1, 0, 0])
    assert "UCI" in stored.note


def test_the_named_folder_comes_before_the_cache(no_data, tmp_path, monkeypatch):
    (tmp_path / "named").mkdir()
    monkeypatch.setenv(FOLDER, str(tmp_path / "named"))
    np.savez(no_data / "abalone.npz", X=np.zeros((2, 7)), y=np.array([0, 1]))
    assert len(load("abalone").X) == 2
    np.savez(tmp_path / "named" / "abalone.npz", X=np.zeros((3, 7)), y=np.array([0, 1, 2]))
    assert len(load("abalone").X) == 3


def test_the_frogs_have_two_sets_of_classes_on_the_same_rows(no_data):
    np.savez(no_data / "frogs.npz", X=np.arange(6.0).reshape(3, 2), y_species=[0, 1, 2], y_genus=[0, 0, 1], y=[9, 9, 9])
    species, genus = load("frog_species"), load("frog_genus")
    assert np.array_equal(species.X, genus.X)
    assert (species.y.tolist(), genus.y.tolist()) == ([0, 1, 2], [0, 0, 1])


@pytest.mark.parametrize("name", sorted(set(STORED) - {"waveform"}))
def test_a_set_that_is_not_here_is_told_where_to_get_it(no_data, name, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "named"))
    with pytest.raises(koncord.KoncordError) as told:
        load(name)
    sentence = str(told.value)
    for part in (repr(name), STORED[name].file, f"{tmp_path / 'named'}", f"{no_data}", FOLDER, "https://"):
        assert part in sentence


def test_a_file_that_is_not_the_set_is_said_to_be_none(no_data):
    (no_data / "mnist_vae10.npz").write_bytes(b"nothing")
    with pytest.raises(koncord.KoncordError, match=r"mnist_vae10\.npz' cannot be read as the data set 'mnist'"):
        load("mnist")
    np.savez(no_data / "mnist_vae10.npz", X=np.zeros((2, 2)))
    with pytest.raises(koncord.KoncordError, match="it needs the arrays X and y"):
        load("mnist")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'name' of load must be one of abalone, cifar10, digits, .*; got 'iris'"):
        load("iris")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the custom of other platforms")
def test_the_cache_folder_follows_the_custom_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "koncord"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "koncord"


@pytest.mark.parametrize(
    ("name", "shape", "n_classes"),
    [
        ("waveform", (5000, 21), 3),
        ("abalone", (4177, 7), 8),
        ("frog_species", (7195, 21), 10),
        ("frog_genus", (7195, 21), 8),
        ("mnist", (70000, 10), 10),
        ("fmnist", (70000, 64), 10),
        ("emnist", (43099, 16), 47),
        ("cifar10", (20000, 64), 10),
    ],
)
def test_the_files_of_the_benchmark_load(benchmark_set, name, shape, n_classes):
    benchmark_set(STORED[name].file.removesuffix(".npz"), "X")
    found = load(name)
    assert (found.X.shape, len(np.unique(found.y)), len(found.y)) == (shape, n_classes, shape[0])
    assert np.isfinite(found.X).all()
