"""Data sets by name: what is generated, what scikit-learn brings, what lies on this machine, and what is fetched."""

import json
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from koncord.errors import KoncordError
from koncord.types import FloatArray, IntArray
from koncord_reproduction.fetch import OFFLINE, PUBLISHED, FetchError, checksum, is_offline
from koncord_reproduction.fetch import fetch as fetch_file
from koncord_reproduction.waveform import waveform

FOLDER = "KONCORD_DATA"  # environment variable that names the folder of the files


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Rows with the class of each; the classes are for scores, no estimator sees them."""

    name: str
    X: FloatArray  # (n_samples, n_features), not standardized
    y: IntArray  # (n_samples,)
    note: str  # what it is and where it came from
    differs: str = ""  # how this copy differs from the data of the paper; nothing if it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A set that is a file: an NPZ archive with the table ``X`` and the classes under the name `classes`."""

    file: str
    note: str
    source: str  # where a person gets it, or the images it is made of
    checksum: str  # of the copy that `differs` speaks of
    differs: str = ""
    classes: str = "y"
    recipe: str = ""  # how it is made where no public copy exists


UCI = "https://archive.ics.uci.edu/dataset"
FROGS = "Anuran Calls, coefficients 2 to 22"
STORED = {
    "waveform": Stored(
        file="waveform.npz",
        note="Waveform, the 5,000 rows UCI distributes",
        source=f"{UCI}/107 (waveform.data)",
        checksum="25acf1982ff3730486407d922f5284481815ba45bb1dfd43f17afc4df567af42",
    ),
    "abalone": Stored(
        file="abalone.npz",
        note="Abalone without the column sex; the classes are eight bins of age",
        source=f"{UCI}/1 (abalone.data)",
        checksum="c880ef959223fde7dc2b20ede9d52f270e2ad538e32d9483e4130e298d0074a1",
    ),
    "frog_species": Stored(
        file="frogs.npz",
        note=f"{FROGS}, by species",
        source=f"{UCI}/406 (Frogs_MFCCs.csv)",
        checksum="64b2ef88f2c907baf759b25c9000e83fc01674496513f7fe38bc986215e6e0d8",
        classes="y_species",
    ),
    "frog_genus": Stored(
        file="frogs.npz",
        note=f"{FROGS}, by genus",
        source=f"{UCI}/406 (Frogs_MFCCs.csv)",
        checksum="61139557e9f0e0ebdbddbf178a1a0bfa0c0efa8b71cc32ecec3028d258d79213",
        classes="y_genus",
    ),
    "mnist": Stored(
        file="mnist_vae10.npz",
        note="MNIST, released embeddings in 10 dimensions by a variational autoencoder",
        source="https://github.com/fbickfordsmith/vae-embeddings (data/mnist)",
        checksum="4b41cf91eda338449474bf06546178ebda5e2b44a487b38820b287af35aa20a4",
    ),
    "fmnist": Stored(
        file="fmnist_vae64.npz",
        note="Fashion-MNIST, own embeddings in 64 dimensions by a variational autoencoder",
        source="https://github.com/zalandoresearch/fashion-mnist",
        checksum="5ecf2f76109f606b093e798f47fc65a7e6e7e8b1ba4fca6b6c3179cfd017ef88",
        differs="own embedding, trained for 7 epochs (the paper: 30)",
        recipe="koncord embed IMAGES.npz --latent 64 --fit-rows 54000",
    ),
    "emnist": Stored(
        file="emnist_vae16.npz",
        note="EMNIST, a balanced subset, own embeddings in 16 dimensions by a variational autoencoder",
        source="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        checksum="f2293758eb7c606544236ca8ed29d496e3f0f41b6c5318e6fe1ac752cc9d3aaf",
        differs="43,099 of the 131,600 rows; own embedding, trained for 10 epochs (the paper: 30)",
        recipe="koncord embed IMAGES.npz --latent 16 --fit-rows 101520",
    ),
    "cifar10": Stored(
        file="cifar10_efflite0_vae64.npz",
        note="CIFAR-10, 20,000 images, features of EfficientNet-Lite0 in 64 dimensions by a variational autoencoder",
        source="https://github.com/fbickfordsmith/ssl-embeddings (data/cifar10, Barlow Twins)",
        checksum="4d0bc321b6296abd547e950402b943150bb2b10e350efd07987ef9124e12b5eb",
        differs="stand-in features (EfficientNet-Lite0, the paper: Barlow Twins) of 20,000 of the 60,000 images",
        recipe="koncord embed FEATURES.npz --latent 64 --epochs 20 --batch 32 --fit-rows 45000",
    ),
}


def load(name: str, *, fetch: bool | None = None) -> Dataset:
    """The data set of a name; `KoncordError` says where to get it if it is neither here nor to be fetched.

    Parameters
    ----------
    name : str
        Waveform, abalone, frog_species, frog_genus, mnist, fmnist, emnist, cifar10, digits or penguins.
    fetch : bool or None, default None
        Whether a set that is not on this machine is fetched from its public source, compared with a checksum and kept
        in the cache folder; None fetches what cannot be made here. The environment variable KONCORD_OFFLINE=1 forbids
        it whatever is asked.

    Notes
    -----
    Files are looked for in the folder that the environment variable KONCORD_DATA names, then in the cache folder of
    koncord. ``digits`` comes with scikit-learn, ``penguins`` with koncord. ``waveform`` is UCI's file where that is
    found; else it is generated at once by the rule UCI's rows were drawn by, and fetched only with ``fetch=True``.
    fmnist, emnist and cifar10 have no public copy: they are made by ``koncord embed``.

    What the data set has in `differs` tells how this copy differs from the data of the paper.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.name
    ((1797, 64), 'digits')
    """
    if name not in {*STORED, *MADE}:
        raise ValueError(f"'name' of load must be one of {', '.join(sorted({*STORED, *MADE}))}; got {name!r}.")
    if name in STORED:
        is_wanted = name not in MADE if fetch is None else fetch
        path = find(STORED[name].file) or (fetched(name) if is_wanted else None)
        if path is not None:
            return read_stored(name, path)
    if name in MADE:
        return MADE[name]()
    raise KoncordError(where_to_get(name))


def fetched(name: str) -> Path | None:
    """Where the file of a set lies now, None if it has no public copy."""
    file = STORED[name].file
    if file not in PUBLISHED:
        return None
    if is_offline():
        raise FetchError(where_to_get(name, f", and {OFFLINE} forbids to fetch it"))
    checksums = {stored.classes: stored.checksum for stored in STORED.values() if stored.file == file}
    try:
        return fetch_file(file, cache_folder(), checksums)
    except FetchError as error:
        raise FetchError(where_to_get(name, f", and it could not be fetched: {error}")) from error


def where_to_get(name: str, why: str = "") -> str:
    stored, folders = STORED[name], " or ".join(f"'{folder}'" for folder in folders_of_data())
    way = (
        f"make it from {stored.source} with: {stored.recipe} --out {stored.file}"
        if stored.recipe
        else f"make it (arrays X and {stored.classes}) from {stored.source}"
    )
    return (
        f"The data set {name!r} is not on this machine: there is no {stored.file} in {folders}{why}; "
        f"let the variable {FOLDER} name the folder that holds it, or {way}."
    )


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
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            X, y = content["X"].astype(np.float64), content[stored.classes].astype(np.int64)
            meta = str(content["meta"]) if "meta" in content.files else ""
    except (ValueError, OSError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise KoncordError(
            f"'{path}' cannot be read as the data set {name!r}: it needs the arrays X and {stored.classes}."
        ) from error
    differs = stored.differs if checksum(X, y) == stored.checksum else unknown_copy(stored, len(X), meta)
    return Dataset(name=name, X=X, y=y, note=stored.note, differs=differs)


def unknown_copy(stored: Stored, n_rows: int, meta: str) -> str:
    """What can be said of a file whose rows are not those of the copy koncord knows."""
    if not stored.recipe:
        return f"{n_rows:,} rows that are not the published ones"
    epochs = epochs_of(meta)
    return f"own embedding of {n_rows:,} rows" + (f", trained for {epochs} epochs" if epochs else "")


def epochs_of(meta: str) -> int:
    """How long an embedding was trained, as ``koncord embed`` wrote it down; 0 if that is not known."""
    try:
        settings: Any = json.loads(meta)
    except ValueError:
        return 0
    epochs = settings.get("epochs") if isinstance(settings, dict) else None
    return epochs if isinstance(epochs, int) else 0


def generated_waveform() -> Dataset:
    X, y = waveform()
    return Dataset(
        name="waveform",
        X=X,
        y=y,
        note="Waveform, 5,000 rows of Breiman's generator, seed 0",
        differs="generated by the rule of the UCI rows, not the rows themselves",
    )


def digits() -> Dataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return Dataset(
        name="digits",
        X=np.asarray(X, dtype=np.float64),
        y=np.asarray(y, dtype=np.int64),
        note="Digits, 8 x 8 pixels, as scikit-learn brings them",
        differs="not a data set of the paper",
    )


def palmer_penguins() -> Dataset:
    from koncord.data.islands import birds

    held = birds()
    return Dataset(
        name="penguins",
        X=held.X,
        y=held.species,
        note="Palmer penguins, four measurements, by species",
        differs="not a data set of the paper",
    )


MADE: dict[str, Callable[[], Dataset]] = {
    "waveform": generated_waveform,
    "digits": digits,
    "penguins": palmer_penguins,
}
