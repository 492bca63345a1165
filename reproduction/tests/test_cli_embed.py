import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from koncord_reproduction import datasets, load
from koncord_reproduction.cli.embed import EPILOG
from koncord_reproduction.embed import embed

ONE_LINE = re.compile(r"koncord: [^\n]+\n")
TRAINING = ("--latent", "3", "--epochs", "2", "--batch", "32")


@pytest.fixture
def torch():
    """PyTorch, which only some machines have."""
    return pytest.importorskip("torch", reason="needs PyTorch: pip install 'koncord-reproduction[embed]'")


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder one is in with images.npz (bytes, with classes), features.npy and labels.npy."""
    monkeypatch.chdir(tmp_path)
    digits = load_digits()
    pixels = (digits.images[:90] * 15).astype(np.uint8)
    np.savez("images.npz", X=pixels, y=digits.target[:90])
    np.save("features.npy", digits.data[:90])
    np.save("labels.npy", digits.target[:90])
    return pixels


def test_the_file_holds_what_the_library_finds(torch, images, result):
    printed = result("embed", "images.npz", *TRAINING, "--seed", "5", "--fit-rows", "80", "--out", "embedded.npz")
    found = embed(images, latent=3, epochs=2, batch=32, seed=5, fit_rows=80)
    with np.load("embedded.npz", allow_pickle=False) as file:
        assert set(file.files) == {"X", "y", "meta"}
        assert np.array_equal(file["X"], found.X)
        assert np.array_equal(file["y"], np.load("labels.npy"))
        assert json.loads(str(file["meta"])) == found.meta
    assert {key: printed[key] for key in found.meta} == found.meta
    assert (printed["out"], printed["has_labels"], printed["n_active"]) == ("embedded.npz", True, found.n_active)


def test_the_text_tells_the_loss_and_where_the_file_is(torch, images, run):
    code, out, err = run("embed", "images.npz", *TRAINING, "--fit-rows", "80", "--out", "embedded.npz")
    assert (code, err) == (0, "")
    assert out.startswith("images.npz: 90 images of 8 x 8 to 3 dimensions (conv network, 2 epochs, seed 42, ")
    first, last = map(float, re.search(r"loss: +([\d.]+) in the first epoch, ([\d.]+) in the last", out).groups())
    assert first > last
    assert "on the 10 rows that were not trained on" in out
    assert out.endswith("written: embedded.npz (X, y and meta)\n")


def test_vectors_pass_a_dense_network_and_labels_may_be_missing(torch, images, result, run):
    assert result("embed", "features.npy", *TRAINING, "--out", "embedded.npz")["model"] == "dense"
    with np.load("embedded.npz") as file:
        assert set(file.files) == {"X", "meta"}
    assert run("embed", "features.npy", *TRAINING, "--out", "embedded.npz")[1].endswith("(X and meta)\n")


def test_the_file_is_a_table_for_estimate_and_a_data_set_for_load(torch, images, result, monkeypatch):
    result("embed", "images.npz", *TRAINING, "--out", "fmnist_vae64.npz")
    assert result("estimate", "fmnist_vae64.npz", "--set", "min_mass=20")["n_components"] >= 1
    monkeypatch.setenv(datasets.FOLDER, ".")
    loaded = load("fmnist")
    assert (loaded.X.shape, loaded.differs) == ((90, 3), "own embedding of 90 rows, trained for 2 epochs")


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (("--latent", "0"), 2, "--latent must be at least 1; got 0."),
        (("--epochs", "-3"), 2, "--epochs must be at least 1; got -3."),
        (("--fit-rows", "0"), 2, "--fit-rows must be at least 1; got 0."),
        (("--fit-rows", "91"), 2, "--fit-rows must be at most 90, as there are only that many; got 91."),
        (("--batch", "many"), 2, "argument --batch: invalid int value: 'many'"),
        (("--seed", "-1"), 2, "argument --seed: must be an integer of at least 0; got '-1'"),
        (("--out", "embedded.csv"), 2, "--out writes a .npz file; got 'embedded.csv'."),
        (("--out", "no/embedded.npz"), 2, "The folder 'no' of --out does not exist; make it first."),
        (("--array", "pixels"), 2, "'images.npz' has no array 'pixels'; it has 'X' and 'y'."),
        (("--array", "y"), 1, "Array 'y' of 'images.npz' has 1 axis; images have 3"),
        (("--labels", "none.npy"), 2, "'none.npy' does not exist; check the name and the folder."),
        (("--labels", "features.npy"), 1, "The labels of 'features.npy' must be 90 integers, one an image"),
    ],
)
def test_what_is_wrong_is_one_line_before_the_work(images, run, monkeypatch, options, code, line):
    monkeypatch.setitem(sys.modules, "torch", None)
    given = dict(zip(options[::2], options[1::2], strict=True))
    call = {"--latent": "3", "--out": "embedded.npz", **given}
    found, out, err = run("embed", "images.npz", *(word for pair in call.items() for word in pair))
    assert (found, out) == (code, "")
    assert ONE_LINE.fullmatch(err)
    assert line in err
    assert {path.name for path in Path().iterdir()} == {"images.npz", "features.npy", "labels.npy"}


def test_a_file_that_is_not_there_is_a_wrong_call(images, run):
    code, _, err = run("embed", "none.npz", "--latent", "3", "--out", "embedded.npz")
    assert (code, err) == (2, "koncord: 'none.npz' does not exist; check the name and the folder.\n")


def test_without_pytorch_one_line_says_what_to_install(images, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("embed", "images.npz", "--latent", "3", "--out", "embedded.npz")
    assert (code, out) == (1, "")
    assert err.startswith("koncord: An embedding needs an optional part of koncord-reproduction, 'embed': ")
    assert err.endswith("[embed]'\n")
    assert err.count("\n") == 1


def examples():
    return [line.split() for line in EPILOG.splitlines() if line.startswith("  koncord ")]


@pytest.mark.parametrize("example", examples(), ids=" ".join)
def test_the_examples_of_the_help_work(torch, images, run, example):
    code, out, err = run(*example[1:])
    assert (code, err) == (0, "")
    assert out
    assert Path("embedded.npz").exists()
