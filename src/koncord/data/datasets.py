"""Data sets by name: what is generated, what scikit-learn brings, and what lies in a folder on this machine."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from koncord.data.waveform import waveform
from koncord.errors import KoncordError
from koncord.types import FloatArray, IntArray

FOLDER = "KONCORD_DATA"  # environment variable that names the folder of the files


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Rows with the class of each; the classes are for scores, no estimator sees them."""

    name: str
    X: FloatArray  # (n_samples, n_features), not standardised
    y: IntArray  # (n_samples,)
    note: str  # what it is and where it came from


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A set that is a file: an NPZ archive with the table ``X`` and the classes under the name `classes`."""

    file: str
    note: str
    source: str  # where a person gets it
    classes: str = "y"


UCI = "https://archive.ics.uci.edu/dataset"
FROGS = "Anuran Calls, coefficients 2 to 22"
STORED = {
    "waveform": Stored(
        file="waveform.npz", note="Waveform, the 5,000 rows UCI distributes", source=f"{UCI}/107 (waveform.data)"
    ),
    "abalone": Stored(
        file="abalone.npz",
        note="Abalone without the column sex; the classes are eight bins of age",
        source=f"{UCI}/1 (abalone.data)",
    ),
    "frog_species": Stored(
        file="frogs.npz", note=f"{FROGS}, by species", source=f"{UCI}/406 (Frogs_MFCCs.csv)", classes="y_species"
    ),
    "frog_genus": Stored(
        file="frogs.npz", note=f"{FROGS}, by genus", source=f"{UCI}/406 (Frogs_MFCCs.csv)", classes="y_genus"
    ),
    "mnist": Stored(
        file="mnist_vae10.npz",
        note="MNIST, released embeddings in 10 dimensions by a variational autoencoder",
        source="https://github.com/fbickfordsmith/vae-embeddings (data/mnist)",
    ),
    "fmnist": Stored(
        file="fmnist_vae64.npz",
        note="Fashion-MNIST, own embeddings in 64 dimensions by a variational autoencoder",
        source="https://github.com/zalandoresearch/fashion-mnist (the images; the embeddings are to be trained)",
    ),
    "emnist": Stored(
        file="emnist_vae16.npz",
        note="EMNIST, a balanced subset, own embeddings in 16 dimensions by a variational autoencoder",
        source="https://www.nist.gov/itl/products-and-services/emnist-dataset "
        "(the images; the embeddings are to be trained)",
    ),
    "cifar10": Stored(
        file="cifar10_efflite0_vae64.npz",
        note="CIFAR-10, 20,000 images, features of EfficientNet-Lite0 in 64 dimensions by a variational autoencoder",
        source="https://www.cs.toronto.edu/~kriz/cifar.html (the images; the embeddings are to be trained)",
    ),
}


def load(name: str) -> Dataset:
    """The data set of a name; `KoncordError` if its file is not on this machine.

    Files are looked for in the folder that the environment variable KONCORD_DATA names, then in the cache folder of
    koncord. ``waveform`` is generated where its file is not there, ``digits`` comes with scikit-learn.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.name
    ((1797, 64), 'digits')
    """
    if name in STORED:
        path = find(STORED[name].file)
        if path is not None:
            return read_stored(name, path)
    if name in MADE:
        return MADE[name]()
    if name in STORED:
        stored, folders = STORED[name], " or ".join(f"'{folder}'" for folder in folders_of_data())
        raise KoncordError(
            f"The data set {name!r} is not on this machine: there is no {stored.file} in {folders}; let the variable "
            f"{FOLDER} name the folder that holds it, or make it (arrays X and {stored.classes}) from {stored.source}."
        )
    raise ValueError(f"'name' of load must be one of {', '.join(sorted({*STORED, *MADE}))}; got {name!r}.")


def find(file: str) -> Path | None:
    return next((path for folder in folders_of_data() if (path := folder / file).is_file()), None)


def folders_of_data() -> list[Path]:
    """Where files of data sets are looked for, in this order."""
    named = os.environ.get(FOLDER)
    return [*([Path(named)] if named else []), cache_folder()]


def cache_folder() -> Path:
    """Where koncord keeps what it fetched, by the custom of the platform."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "koncord" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "koncord"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koncord"


def read_stored(name: str, path: Path) -> Dataset:
    stored = STORED[name]
    try:
        with np.load(path, allow_pickle=False) as content:
            X, y = content["X"].astype(np.float64), content[stored.classes].astype(np.int64)
    except (ValueError, OSError, KeyError, EOFError) as error:
        raise KoncordError(
            f"'{path}' cannot be read as the data set {name!r}: it needs the arrays X and {stored.classes}."
        ) from error
    return Dataset(name=name, X=X, y=y, note=stored.note)


def generated_waveform() -> Dataset:
    X, y = waveform()
    return Dataset(name="waveform", X=X, y=y, note="Waveform, 5,000 rows of Breiman's generator, seed 0")


def digits() -> Dataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    note = "Digits, 8 x 8 pixels, as scikit-learn brings them"
    return Dataset(name="digits", X=np.asarray(X, dtype=np.float64), y=np.asarray(y, dtype=np.int64), note=note)


MADE: dict[str, Callable[[], Dataset]] = {"waveform": generated_waveform, "digits": digits}
