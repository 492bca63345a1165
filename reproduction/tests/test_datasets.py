import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import koncord
from koncord_reproduction.datasets import FOLDER, MADE, STORED, cache_folder, load
from koncord_reproduction.waveform import waveform


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine with no file of any data set; returns its empty cache folder."""
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr("koncord_reproduction.datasets.cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_what_the_package_exports_are_the_functions():
    import koncord_reproduction.partitions

    assert koncord_reproduction.load is load
    assert koncord_reproduction.partition is koncord_reproduction.partitions.partition
    assert (
        koncord_reproduction.__all__ == dir(koncord_reproduction) == ["FedHDBSCAN", "FedKStarHC", "load", "partition"]
    )
    with pytest.raises(AttributeError, match="no attribute 'loads'"):
        _ = koncord_reproduction.loads


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
def test_a_set_that_is_not_here_is_reported_where_to_get_it(no_data, name, tmp_path, monkeypatch):
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
    np.savez_compressed(
        no_data / "mnist_vae10.npz", X=np.random.default_rng(0).random((90, 2)), y=np.zeros(90, dtype=int)
    )
    whole = (no_data / "mnist_vae10.npz").read_bytes()
    for content in (whole[:-100], whole[:400] + b"0123456789" + whole[410:]):
        (no_data / "mnist_vae10.npz").write_bytes(content)
        with pytest.raises(koncord.KoncordError, match="cannot be read as the data set 'mnist'"):
            load("mnist")


def test_values_beyond_single_precision_are_loaded_as_they_are(no_data):
    np.savez(no_data / "abalone.npz", X=np.full((2, 7), 1e300), y=np.array([0, 1]))
    assert load("abalone").X.max() == 1e300


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'name' of load must be one of abalone, cifar10, digits, .*; got 'iris'"):
        load("iris")


@pytest.mark.parametrize("name", ["fmnist", "emnist", "cifar10"])
def test_an_embedding_that_is_not_here_is_reported_how_to_train_it(no_data, name):
    with pytest.raises(koncord.KoncordError, match=rf"with: koncord embed .* --out {STORED[name].file}\.$"):
        load(name)


def test_rows_koncord_does_not_know_are_said_to_be_others(no_data):
    np.savez(no_data / "abalone.npz", X=np.zeros((1200, 7)), y=np.zeros(1200))
    assert load("abalone").differs == "1,200 rows that are not the published ones"


@pytest.mark.parametrize(
    ("meta", "differs"),
    [
        ({"meta": json.dumps({"epochs": 30})}, "own embedding of 3 rows, trained for 30 epochs"),
        ({"meta": json.dumps({"latent": 64})}, "own embedding of 3 rows"),
        ({"meta": "[30]"}, "own embedding of 3 rows"),
        ({"meta": "thirty"}, "own embedding of 3 rows"),
        ({}, "own embedding of 3 rows"),
    ],
)
def test_an_embedding_made_here_is_described_by_its_own_settings(no_data, meta, differs):
    np.savez(no_data / "fmnist_vae64.npz", X=np.zeros((3, 64)), y=np.arange(3), **meta)
    assert load("fmnist").differs == differs


def test_what_is_not_of_the_paper_says_so(no_data):
    assert load("waveform").differs == "generated by the rule of the UCI rows, not the rows themselves"
    assert load("digits").differs == "not a data set of the paper"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the custom of other platforms")
def test_the_cache_folder_follows_the_custom_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "koncord"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "koncord"


@pytest.mark.parametrize(
    ("name", "shape", "n_classes", "differs"),
    [
        ("waveform", (5000, 21), 3, ""),
        ("abalone", (4177, 7), 8, ""),
        ("frog_species", (7195, 21), 10, ""),
        ("frog_genus", (7195, 21), 8, ""),
        ("mnist", (70000, 10), 10, ""),
        ("fmnist", (70000, 64), 10, "own embedding, trained for 7 epochs (the paper: 30)"),
        (
            "emnist",
            (43099, 16),
            47,
            "43,099 of the 131,600 rows; own embedding, trained for 10 epochs (the paper: 30)",
        ),
        (
            "cifar10",
            (20000, 64),
            10,
            "stand-in features (EfficientNet-Lite0, the paper: Barlow Twins) of 20,000 of the 60,000 images",
        ),
    ],
)
def test_the_files_of_the_benchmark_are_those_koncord_knows(benchmark_set, name, shape, n_classes, differs):
    benchmark_set(STORED[name].file.removesuffix(".npz"), "X")
    found = load(name)
    assert (found.X.shape, len(np.unique(found.y)), len(found.y)) == (shape, n_classes, shape[0])
    assert np.isfinite(found.X).all()
    assert found.differs == differs


# --- what the page on data says ---

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_page_lists_every_set_with_its_file_and_how_it_differs():
    table = PAGE.split("\n\nRows, columns")[0]
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    for name, stored in STORED.items():
        assert f"`{stored.file}`" in rows[name]
        assert (stored.differs or "not at all") in rows[name]
    assert MADE["waveform"]().differs in rows["waveform"]
    assert MADE["digits"]().differs in rows["digits"]
    assert set(rows) == {*STORED, *MADE}


def test_the_page_and_the_sentences_give_the_same_recipes():
    for stored in STORED.values():
        for option in re.findall(r"--[a-z-]+ \d+", stored.recipe):
            assert option in PAGE


def test_the_recipe_for_the_images_reads_the_files_of_fashion_mnist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(5, 28, 28), dtype=np.uint8), np.array([3, 1, 4, 1, 5], dtype=np.uint8)
    for part, rows in (("train", slice(3)), ("t10k", slice(3, 5))):
        Path(f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images[rows].tobytes()))
        Path(f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels[rows].tobytes()))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "data.md", "exec"), {})
    with np.load("images.npz") as written:
        assert np.array_equal(written["X"], images)
        assert np.array_equal(written["y"], labels)
