import sys

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from koncord._progress import reporting
from koncord.errors import KoncordError, MissingExtra, TableArgumentError, TableError
from koncord_reproduction import embed as module
from koncord_reproduction.embed import as_pixels, embed, evaluate, loss_parts, means, networks, read_images, train


@pytest.fixture
def torch():
    """PyTorch, which only some machines have."""
    return pytest.importorskip("torch", reason="needs PyTorch: pip install 'koncord-reproduction[embed]'")


@pytest.fixture(scope="module")
def digits():
    digits = load_digits()
    return (digits.images[:500] / 16).astype(np.float32), digits.target[:500]


# --- what goes in ---


def saved(tmp_path, name="images.npz", **arrays):
    np.savez(tmp_path / name, **arrays)
    return tmp_path / name


def test_images_are_x_or_the_only_array_that_may_be_images(tmp_path):
    pixels = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)
    for path in (
        saved(tmp_path, X=pixels, other=np.zeros((3, 3))),
        saved(tmp_path, pictures=pixels, y=np.array([1, 0]), names=np.array(["a", "b"])),
    ):
        assert np.array_equal(read_images(path)[0], pixels)
    np.save(tmp_path / "images.npy", pixels)
    images, y = read_images(tmp_path / "images.npy")
    assert np.array_equal(images, pixels)
    assert y is None
    assert np.array_equal(read_images(saved(tmp_path, a=pixels, b=pixels[:, :, ::-1]), "b")[0], pixels[:, :, ::-1])


def test_labels_are_y_or_a_file_of_their_own(tmp_path):
    path = saved(tmp_path, X=np.zeros((2, 6)), y=np.array([4, 7]))
    assert read_images(path)[1].tolist() == [4, 7]
    np.save(tmp_path / "labels.npy", np.array([1, 2]))
    assert read_images(path, labels=tmp_path / "labels.npy")[1].tolist() == [1, 2]
    assert read_images(path, labels=saved(tmp_path, "labels.npz", y=[3, 4], z=[0, 0]))[1].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (
            {"a": np.zeros((2, 3)), "b": np.zeros((2, 3))},
            "2 arrays that may be images, 'a' and 'b'; say which one with",
        ),
        ({"a": np.zeros(3)}, "holds no images; say which one with --array NAME"),
        ({"X": np.array([["a", "b"]] * 3)}, "Array 'X' of .* holds str.* values; images are numbers"),
        ({"X": np.zeros((2, 2, 2, 2, 2))}, r"has 5 axes; images have 3 \(rows, height, width\) or 4"),
        ({"X": np.zeros((1, 8, 8))}, r"has shape \(1, 8, 8\); at least 2 rows"),
        ({"X": np.zeros((0, 8))}, r"has shape \(0, 8\); at least 2 rows"),
        ({"X": np.zeros((5, 0))}, r"has shape \(5, 0\); at least 2 rows with something in them"),
        ({"X": np.zeros((5, 3, 32, 32))}, "images of 3 x 32 pixels; at least 4 x 4 are needed, and channels come last"),
        ({"X": np.zeros((5, 32, 32, 8))}, "has 8 channels; at most 4 are expected"),
        ({"X": np.array([[1.0, np.nan], [0, 0]])}, "has values that are missing or infinite"),
        (
            {"X": np.full((2, 4, 4), 16.0)},
            "values from 16 to 16; pixels are integers from 0 to 255, or floats from 0 to 1",
        ),
        ({"X": np.full((2, 4, 4), -1)}, "values from -1 to -1; pixels are integers"),
        ({"X": np.full((2, 4, 4), 256)}, "values from 256 to 256; pixels are integers"),
        (
            {"X": np.zeros((2, 4)), "y": np.zeros(3, dtype=int)},
            r"must be 2 integers, one an image; got .* shape \(3,\)",
        ),
        ({"X": np.zeros((2, 4)), "y": np.zeros(2)}, "must be 2 integers, one an image; got .* holds float64"),
    ],
)
def test_a_file_that_holds_no_images_is_refused_with_a_sentence(tmp_path, arrays, sentence):
    with pytest.raises(TableError, match=sentence):
        read_images(saved(tmp_path, **arrays))


def test_a_file_that_cannot_be_read_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(TableArgumentError, match="does not exist"):
        read_images(tmp_path / "none.npy")
    (tmp_path / "images.png").write_bytes(b"picture")
    with pytest.raises(TableArgumentError, match=r"must end in \.npy or \.npz"):
        read_images(tmp_path / "images.png")
    (tmp_path / "images.npy").write_bytes(b"picture")
    with pytest.raises(TableError, match=r"is damaged or was not written by np\.save"):
        read_images(tmp_path / "images.npy")
    path = saved(tmp_path, X=np.zeros((2, 4)))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(TableError, match=r"is damaged or was not written by np\.save"):
        read_images(path)
    np.save(tmp_path / "images.npy", np.array([[{}]]))
    with pytest.raises(TableError, match="holds Python objects"):
        read_images(tmp_path / "images.npy")
    with pytest.raises(TableArgumentError, match="has no array 'Y'; it has 'X'"):
        read_images(saved(tmp_path, X=np.zeros((2, 4))), "Y")
    with pytest.raises(TableArgumentError, match="holds 'a' and 'b'; labels are an array called 'y'"):
        read_images(saved(tmp_path, X=np.zeros((2, 4))), labels=saved(tmp_path, "labels.npz", a=[1, 2], b=[1, 2]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"latent": 0}, "'latent' of embed must be at least 1; got 0"),
        ({"epochs": 0}, "'epochs' of embed must be at least 1; got 0"),
        ({"batch": 2.5}, "'batch' of embed must be an integer of at least 1; got 2.5"),
        ({"seed": -1}, "'seed' of embed must be at least 0; got -1"),
        ({"fit_rows": 0}, "'fit_rows' of embed must be at least 1; got 0"),
        ({"fit_rows": 4}, "'fit_rows' of embed must be at most 3, as there are only that many; got 4"),
    ],
)
def test_wrong_arguments_are_named(arguments, sentence):
    with pytest.raises((ValueError, TypeError)) as told:
        embed(np.zeros((3, 4)), **arguments)
    assert sentence in str(told.value)
    with pytest.raises(TableError, match="'images' of embed has 1 axis"):
        embed([1, 2, 3])


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"An embedding needs .*, 'embed': .*\[embed\]'"):
        embed(np.zeros((3, 4)))


# --- the parts ---


def test_pixels_are_scaled_to_0_and_1(torch):
    eight = np.arange(256, dtype=np.uint8).reshape(2, 8, 16)
    assert as_pixels(eight).shape == (2, 1, 8, 16)
    np.testing.assert_allclose(as_pixels(eight)[1, 0, 7].numpy(), np.arange(240, 256) / 255, rtol=1e-6)
    floats = np.random.default_rng(0).random((2, 4, 5, 3))
    assert np.array_equal(as_pixels(floats).numpy(), np.moveaxis(floats.astype("f4"), 3, 1))
    assert np.array_equal(as_pixels(floats[..., 0] > 0.5).numpy()[:, 0], floats[..., 0] > 0.5)
    vectors = np.array([[1, 3, 2], [-4, 0, 4], [5, 5, 5]])
    assert as_pixels(vectors).tolist() == [[0, 1, 0.5], [0, 0.5, 1], [0, 0, 0]]


def test_the_loss_is_that_of_a_plain_twin(torch):
    rng = np.random.default_rng(0)
    rows, noise = rng.random((5, 7)).astype("f4"), rng.normal(size=(5, 2)).astype("f4")
    nets = networks((7,), 2, seed=3)
    with torch.no_grad():
        for weights in nets.parameters():  # so that no bias is zero
            weights += torch.from_numpy(rng.normal(size=tuple(weights.shape)).astype("f4")) / 10
        found = [part.item() for part in loss_parts(nets, torch.from_numpy(rows), torch.from_numpy(noise))]

    def layer(net, values):
        return values @ net.weight.detach().numpy().T.astype(float) + net.bias.detach().numpy()

    def through(nets, values):
        for net in nets:
            values = layer(net, values) if hasattr(net, "weight") else np.maximum(values, 0)
        return values

    hidden = through(nets["body"], rows.astype(float))
    mean, log_variance = layer(nets["mean"], hidden), layer(nets["log_variance"], hidden)
    share = 1 / (1 + np.exp(-through(nets["decoder"], mean + np.exp(log_variance / 2) * noise)))
    reconstruction = -(rows * np.log(share) + (1 - rows) * np.log(1 - share)).sum(axis=1)
    divergence = (np.exp(log_variance) + mean**2 - 1 - log_variance).sum(axis=1) / 2
    np.testing.assert_allclose(found, [reconstruction.mean(), divergence.mean()], rtol=1e-5)
    assert [net.out_features for net in nets["body"] if hasattr(net, "out_features")] == [256, 128]


@pytest.mark.parametrize("shape", [(28, 28), (8, 8, 3), (5, 6), (23, 4, 1), (7, 9, 4)])
def test_images_of_any_side_come_back_in_their_size(torch, shape):
    rows = np.random.default_rng(0).random((3, *shape))
    nets = networks(shape, 6, seed=0)
    decoded = nets["decoder"](torch.zeros(3, 6))
    assert decoded.shape[1:] == (shape[2] if len(shape) == 3 else 1, -(-shape[0] // 4) * 4, -(-shape[1] // 4) * 4)
    reconstruction, divergence = loss_parts(nets, as_pixels(rows), torch.zeros(3, 6))
    assert reconstruction.item() > 0
    assert divergence.item() > 0
    assert means(nets, rows).shape == (3, 6)


def test_weights_start_as_keras_starts_them(torch):
    nets = networks((28, 28), 10, seed=0)
    assert not any(weights.any() for weights in nets.parameters() if weights.ndim == 1)
    dense = nets["body"][5].weight
    assert dense.shape == (128, 64 * 7 * 7)
    assert dense.abs().max().item() == pytest.approx(np.sqrt(6 / (128 + 3136)), rel=1e-3)


def test_the_loss_of_other_rows_is_a_mean_over_all_of_them(torch, monkeypatch):
    rows = np.random.default_rng(0).random((7, 9))
    nets = networks((9,), 2, seed=0)
    whole = evaluate(nets, rows)
    monkeypatch.setattr(module, "AT_ONCE", 3)
    parts = evaluate(nets, rows)
    assert (parts.reconstruction, parts.kl) == pytest.approx((whole.reconstruction, whole.kl), rel=1e-4)
    assert evaluate(nets, rows[:0]) is None


# --- training ---


def test_the_loss_falls_and_every_epoch_is_reported(torch, digits):
    heard = []
    with reporting(lambda done, what: heard.append((done, what))):
        losses = list(train(networks((8, 8), 4, seed=0), digits[0][:200], epochs=4, batch=64, seed=0))
    totals = [loss.total for loss in losses]
    assert len(totals) == 4
    assert totals == sorted(totals, reverse=True)
    assert heard[-1] == (1.0, f"epoch 4 of 4, loss {totals[-1]:.2f}")
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_the_same_seed_gives_the_same_bytes_and_leaves_other_streams_alone(torch, digits):
    images = digits[0][:80]
    settings = {"latent": 3, "epochs": 2, "batch": 32}
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two, other = (embed(images, seed=seed, **settings) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.X.tobytes() == two.X.tobytes()
    assert one.meta == two.meta
    assert not np.allclose(one.X, other.X)


def test_rows_beyond_fit_rows_are_placed_but_not_learnt_from(torch, digits):
    images = digits[0][:90]
    others = images.copy()
    others[60:] = 1 - others[60:]
    one, two = (embed(rows, latent=3, epochs=2, batch=32, fit_rows=60) for rows in (images, others))
    assert one.X.shape == (90, 3)
    assert np.array_equal(one.X[:60], two.X[:60])
    assert not np.array_equal(one.X[60:], two.X[60:])
    assert (one.meta["n_rows"], one.meta["n_fit"]) == (90, 60)
    assert one.meta["rec"] == two.meta["rec"]
    assert one.meta["val_rec"] != two.meta["val_rec"]


def test_the_record_tells_all_settings(torch, digits):
    found = embed(digits[0][:40].reshape(40, 64), latent=2, epochs=3, batch=16, seed=7)
    meta = found.meta
    assert {key: meta[key] for key in ("model", "latent", "epochs", "batch", "seed", "n_rows", "n_fit")} == {
        "model": "dense",
        "latent": 2,
        "epochs": 3,
        "batch": 16,
        "seed": 7,
        "n_rows": 40,
        "n_fit": 40,
    }
    assert (len(meta["rec"]), len(meta["kl"]), meta["val_rec"], meta["val_kl"]) == (3, 3, None, None)
    assert meta["torch"] == torch.__version__
    assert (found.X.shape, found.X.dtype) == ((40, 2), np.float32)


def test_training_that_diverges_is_an_error_and_no_table(torch, digits, monkeypatch):
    monkeypatch.setattr(module, "LEARNING_RATE", 1e30)
    with pytest.raises(KoncordError, match="diverged"):
        embed(digits[0][:40], latent=2, epochs=3, batch=16)


def test_dimensions_that_say_nothing_are_not_counted():
    X = np.random.default_rng(0).normal(size=(50, 3)).astype("f4") * [1, 0.05, 0.5]
    assert module.Embedding(X=X, meta={}).n_active == 2


@pytest.mark.parametrize("kind", ["conv", "dense"])
def test_digits_are_apart_in_the_embedding(torch, digits, kind):
    images, y = digits
    found = embed(images if kind == "conv" else images.reshape(len(images), -1), latent=10, epochs=30, batch=32)
    labels = KMeans(10, n_init=3, random_state=0).fit_predict(found.X)
    assert adjusted_rand_score(y, labels) > 0.35  # pixels have 0.6, chance has 0
    totals = np.add(found.meta["rec"], found.meta["kl"])
    assert totals[-1] < 0.8 * totals[0]
