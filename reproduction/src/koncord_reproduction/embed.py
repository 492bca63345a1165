"""Embeddings of images by a variational autoencoder (Kingma and Welling 2014), as the paper's image data are.

The networks are those that FedGEM's authors specify for Fashion-MNIST, EMNIST and CIFAR-10 and that the paper takes
over: images pass two convolutions, vectors two dense layers, and the loss is the cross-entropy of the pixels plus the
Kullback-Leibler divergence to a standard normal. PyTorch is an extra; it is imported in functions only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koncord._progress import report
from koncord._validation import check_count
from koncord._words import counted, listed
from koncord.data.files import NUMBERS, shown, suggestion, without_pickle
from koncord.errors import KoncordError, MissingExtra, TableArgumentError, TableError

Images = NDArray[Any]
Embedded = NDArray[np.float32]

CHANNELS = (32, 64)  # of the two convolutions
HIDDEN = 128  # units between them and the latent dimensions
DENSE = (256, 128)  # units of the two dense layers
LEARNING_RATE, EPSILON = 1e-3, 1e-7  # of Adam, as Keras has them
SMALLEST_SIDE = 4  # pixels: two convolutions halve it twice
MOST_CHANNELS = 4
ACTIVE = 0.01  # variance from which a dimension counts as used (Burda, Grosse and Salakhutdinov 2016)
AT_ONCE = 1024  # rows whose means are computed together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embedding:
    """Posterior means of all rows, and what was done to get them."""

    X: Embedded  # (n_rows, latent)
    meta: dict[str, Any]  # settings, and the loss of every epoch in its two parts

    @property
    def n_active(self) -> int:
        """Dimensions that say something; the others have collapsed to the prior."""
        return int((self.X.var(axis=0) > ACTIVE).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Mean loss of a row."""

    reconstruction: float
    kl: float

    @property
    def total(self) -> float:
        return self.reconstruction + self.kl


def embed(
    images: Images, *, latent: int = 10, epochs: int = 30, batch: int = 256, seed: int = 42, fit_rows: int | None = None
) -> Embedding:
    """Train a variational autoencoder on images or vectors and return the posterior means of all of them.

    Parameters
    ----------
    images : array (n, height, width) or (n, height, width, channels) of bytes, or of floats from 0 to 1: convolutional
        networks; or array (n, n_features) of any numbers: dense networks, every row scaled to 0..1 by its own smallest
        and largest value
    latent : int, default 10
        Dimensions of the embedding.
    epochs, batch : int, default 30
        How long is trained, and on how many rows at once.
    seed : int, default 42
        Of everything drawn; on one machine, with as many threads, the same seed gives the same bytes.
    fit_rows : int or None, default None
        Train on the first so many rows only; None trains on all.
    """
    for name, value in (("latent", latent), ("epochs", epochs), ("batch", batch)):
        check_count(name, value, owner="embed")
    check_count("seed", seed, owner="embed", least=0)
    images = np.asarray(images)
    check_images(images, "'images' of embed")
    n_fit = len(images) if fit_rows is None else check_count("fit_rows", fit_rows, owner="embed")
    if n_fit > len(images):
        raise ValueError(
            f"'fit_rows' of embed must be at most {len(images)}, as there are only that many; got {n_fit}."
        )
    torch = torch_module()
    nets = networks(images.shape[1:], latent, seed)
    losses = list(train(nets, images[:n_fit], epochs=epochs, batch=batch, seed=seed))
    X, held_out = means(nets, images), evaluate(nets, images[n_fit:])
    if not np.isfinite(X).all():
        raise KoncordError("The training of the embedding diverged: it has no finite means; look for odd values in it.")
    meta = {
        "model": "dense" if images.ndim == 2 else "conv",
        "latent": latent,
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "n_rows": len(images),
        "n_fit": n_fit,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rec": [loss.reconstruction for loss in losses],
        "kl": [loss.kl for loss in losses],
        "val_rec": None if held_out is None else held_out.reconstruction,
        "val_kl": None if held_out is None else held_out.kl,
    }
    return Embedding(X=X, meta=meta)


def torch_module() -> Any:
    """PyTorch, or one sentence on how to install it."""
    if find_spec("torch") is None:
        raise MissingExtra("An embedding", "embed", "koncord-reproduction")
    import torch

    return torch


# --- what goes in ---


def read_images(path: Path, array: str | None = None, labels: Path | None = None) -> tuple[Images, Images | None]:
    """The images of an NPY or NPZ file, and the class of each if there is one: array ``y``, or the file `labels`."""
    content = arrays_of(path)
    name = array or name_of_images(content, path)
    if name not in content:
        raise TableArgumentError(f"{shown(path)} has no array {name!r}; {suggestion(name, list(content))}")
    images = content[name]
    check_images(images, f"Array {name!r} of {shown(path)}" if name else shown(path))
    y = content.get("y") if labels is None else only_array(labels)
    if y is not None and (y.shape != (len(images),) or y.dtype.kind not in "biu"):
        raise TableError(
            f"The labels of {shown(labels or path)} must be {len(images):,} integers, one an image; got an array of "
            f"shape {y.shape} that holds {y.dtype.name}."
        )
    return images, y


def arrays_of(path: Path) -> dict[str, Images]:
    """Arrays of an NPZ file by name; that of an NPY file has none."""
    if path.suffix.lower() not in (".npy", ".npz"):
        raise TableArgumentError(f"{shown(path)} must end in .npy or .npz; images are read as NumPy saves them.")
    if not path.is_file():
        raise TableArgumentError(f"{shown(path)} does not exist; check the name and the folder.")
    with path.open("rb") as file, without_pickle(shown(path)):
        content = np.load(file, allow_pickle=False)
        return {"": content} if isinstance(content, np.ndarray) else dict(content)


def only_array(path: Path) -> Images:
    content = arrays_of(path)
    if len(content) == 1:
        return next(iter(content.values()))
    if "y" in content:
        return content["y"]
    raise TableArgumentError(
        f"{shown(path)} holds {listed(list(content)) or 'nothing'}; labels are an array called 'y'."
    )


def name_of_images(content: dict[str, Images], path: Path) -> str:
    """Which array is the images: X, or else the only one of numbers with two axes or more."""
    if "X" in content:
        return "X"
    found = [name for name, array in content.items() if array.ndim >= 2 and array.dtype.kind in NUMBERS]
    if len(found) == 1 or "" in content:
        return found[0] if found else ""
    what = f"{len(found)} arrays that may be images, {listed(found)}" if found else "no images"
    raise TableArgumentError(f"{shown(path)} holds {what}; say which one with --array NAME.")


def check_images(images: Images, what: str) -> None:
    """Refuse what no network can be trained on."""
    if images.dtype.kind not in NUMBERS:
        raise TableError(f"{what} holds {images.dtype.name} values; images are numbers.")
    if images.ndim not in (2, 3, 4):
        raise TableError(
            f"{what} has {counted(images.ndim, 'axis', 'axes')}; images have 3 (rows, height, width) or 4 (and "
            "channels), vectors have 2."
        )
    if len(images) < 2 or not images[0].size:
        raise TableError(f"{what} has shape {images.shape}; at least 2 rows with something in them are needed.")
    if images.ndim > 2 and min(images.shape[1:3]) < SMALLEST_SIDE:
        raise TableError(
            f"{what} has images of {images.shape[1]} x {images.shape[2]} pixels; at least {SMALLEST_SIDE} x "
            f"{SMALLEST_SIDE} are needed, and channels come last."
        )
    if images.ndim == 4 and images.shape[3] > MOST_CHANNELS:
        raise TableError(
            f"{what} has {images.shape[3]} channels; at most {MOST_CHANNELS} are expected, and channels come last."
        )
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise TableError(f"{what} has values that are missing or infinite; fill them in or remove the rows.")
    if images.ndim > 2:
        low, high = images.min(), images.max()
        most = 1 if images.dtype.kind in "fb" else 255
        if low < 0 or high > most:
            raise TableError(
                f"{what} holds values from {low:g} to {high:g}; pixels are integers from 0 to 255, or floats from 0 "
                "to 1."
            )


def as_pixels(rows: Images) -> Any:
    """Rows as a tensor of floats from 0 to 1: (n, n_features), or (n, channels, height, width)."""
    import torch

    values = rows.astype(np.float32)
    if rows.ndim == 2:
        low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
        return torch.from_numpy((values - low) / np.where(high > low, high - low, 1))
    if rows.dtype.kind in "iu":
        values /= 255
    if rows.ndim == 3:
        values = values[..., None]
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(values, 3, 1)))


# --- the networks ---


def networks(shape: tuple[int, ...], latent: int, seed: int) -> Any:
    """Encoder and decoder for rows of this shape; weights as Keras starts them (Glorot and Bengio 2010)."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, decoder, n_hidden = dense_networks(shape[0], latent) if len(shape) == 1 else conv_networks(shape, latent)
        nets = nn.ModuleDict(
            {
                "body": body,
                "mean": nn.Linear(n_hidden, latent),
                "log_variance": nn.Linear(n_hidden, latent),
                "decoder": decoder,
            }
        )
        for weights in nets.parameters():
            if weights.ndim > 1:
                nn.init.xavier_uniform_(weights)
            else:
                nn.init.zeros_(weights)
    return nets


def dense_networks(n_features: int, latent: int) -> tuple[Any, Any, int]:
    from torch import nn

    body, decoder = nn.Sequential(), nn.Sequential()
    for n_in, n_out in pairwise((n_features, *DENSE)):
        body.extend([nn.Linear(n_in, n_out), nn.ReLU()])
    for n_in, n_out in pairwise((latent, *reversed(DENSE))):
        decoder.extend([nn.Linear(n_in, n_out), nn.ReLU()])
    decoder.append(nn.Linear(DENSE[0], n_features))
    return body, decoder, DENSE[-1]


def conv_networks(shape: tuple[int, ...], latent: int) -> tuple[Any, Any, int]:
    """Two convolutions that halve the sides, and back; sides that 4 does not divide come back larger and are cut."""
    from torch import nn

    height, width, n_channels = *(-(-side // 4) for side in shape[:2]), (*shape, 1)[2]
    first, second = CHANNELS
    halve, double = {"stride": 2, "padding": 1}, {"stride": 2, "padding": 1, "output_padding": 1}
    body = nn.Sequential(
        nn.Conv2d(n_channels, first, 3, **halve),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, **halve),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * height * width, HIDDEN),
        nn.ReLU(),
    )
    decoder = nn.Sequential(
        nn.Linear(latent, second * height * width),
        nn.ReLU(),
        nn.Unflatten(1, (second, height, width)),
        nn.ConvTranspose2d(second, second, 3, **double),
        nn.ReLU(),
        nn.ConvTranspose2d(second, first, 3, **double),
        nn.ReLU(),
        nn.ConvTranspose2d(first, n_channels, 3, padding=1),
    )
    return body, decoder, HIDDEN


def loss_parts(nets: Any, pixels: Any, noise: Any) -> tuple[Any, Any]:
    """Summed cross-entropy of the pixels and summed divergence to the prior, each a mean over the rows."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    hidden = nets["body"](pixels)
    mean, log_variance = nets["mean"](hidden), nets["log_variance"](hidden)
    logits = nets["decoder"](mean + torch.exp(0.5 * log_variance) * noise)
    if pixels.ndim == 4:
        logits = logits[:, :, : pixels.shape[2], : pixels.shape[3]]
    reconstruction = binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
    kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return reconstruction / len(pixels), kl / len(pixels)


# --- training ---


def train(nets: Any, images: Images, *, epochs: int, batch: int, seed: int) -> Iterator[Loss]:
    """Train in place; yields the mean loss of every epoch. Order and noise of an epoch depend on the seed and on it."""
    import torch

    optimizer = torch.optim.Adam(nets.parameters(), lr=LEARNING_RATE, eps=EPSILON)
    loss: Loss | None = None
    for epoch in range(epochs):
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(images))
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        sums = np.zeros(2)
        for start in range(0, len(order), batch):
            was = "" if loss is None else f", loss {loss.total:.2f}"
            report((epoch + start / len(order)) / epochs, f"epoch {epoch + 1} of {epochs}{was}")
            pixels = as_pixels(images[order[start : start + batch]])
            noise = torch.randn((len(pixels), nets["mean"].out_features), generator=generator)
            reconstruction, kl = loss_parts(nets, pixels, noise)
            optimizer.zero_grad()
            (reconstruction + kl).backward()
            optimizer.step()
            sums += len(pixels) * np.array([reconstruction.item(), kl.item()])
        loss = Loss(reconstruction=float(sums[0]) / len(order), kl=float(sums[1]) / len(order))
        report((epoch + 1) / epochs, f"epoch {epoch + 1} of {epochs}, loss {loss.total:.2f}")
        yield loss


def means(nets: Any, images: Images) -> Embedded:
    """Posterior means, (n, latent)."""
    import torch

    found = np.empty((len(images), nets["mean"].out_features), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(images), AT_ONCE):
            pixels = as_pixels(images[start : start + AT_ONCE])
            found[start : start + AT_ONCE] = nets["mean"](nets["body"](pixels)).numpy()
    return found


def evaluate(nets: Any, images: Images) -> Loss | None:
    """Mean loss of rows that took no part in the training, decoded from their means; None if there are none."""
    import torch

    if not len(images):
        return None
    sums = np.zeros(2)
    with torch.inference_mode():
        for start in range(0, len(images), AT_ONCE):
            pixels = as_pixels(images[start : start + AT_ONCE])
            parts = loss_parts(nets, pixels, torch.zeros(1))
            sums += len(pixels) * np.array([part.item() for part in parts])
    return Loss(reconstruction=float(sums[0]) / len(images), kl=float(sums[1]) / len(images))


def size_of(images: Images) -> str:
    """What one row is, in words.

    >>> size_of(np.zeros((2, 28, 28))), size_of(np.zeros((2, 512)))
    ('images of 28 x 28', 'vectors of 512')
    """
    sides = [str(side) for side in images.shape[1:]]
    return f"vectors of {sides[0]}" if images.ndim == 2 else f"images of {' x '.join(sides)}"
