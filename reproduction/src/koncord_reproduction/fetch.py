"""Data sets from their public sources: downloaded, read, compared with a checksum, and only then kept.

The checksum is one of the rows and not of a file. So every copy with the same rows in the same order passes, whatever
its header, its line ends or the archive around it, and nothing else does.
"""

import os
import re
import ssl
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
from numpy.typing import NDArray

from koncord._files import write_atomic
from koncord.data.columns import is_number
from koncord.errors import KoncordError

OFFLINE = "KONCORD_OFFLINE"  # environment variable that forbids fetching
SILENCE = 20.0  # seconds without a byte after which a server is given up
PATIENCE = 300.0  # seconds for one file
LARGEST_DOWNLOAD = 64 << 20  # bytes; the largest file here has three million
CHUNK = 1 << 16

Arrays = dict[str, NDArray[Any]]


class FetchError(KoncordError):
    """A data set that could not be fetched: no connection, another answer than the file, or rows that are not its."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One public copy of a data set."""

    urls: tuple[str, ...]  # its parts, in order
    member: str = ""  # the file to read, where the copy is a ZIP archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A data set that is public: how its files are read, and copies of them, tried in turn."""

    read: Callable[[Sequence[bytes]], Arrays]
    sources: tuple[Source, ...]


def fetch(file: str, folder: Path, checksums: Mapping[str, str]) -> Path:
    """Fetch a data set into `folder`, as an NPZ archive, and return where it lies.

    Parameters
    ----------
    file : str
        Its name, one of `PUBLISHED`.
    folder : Path
        Made if it is not there; what lies in it under this name is whole at any moment.
    checksums : mapping of str to str
        `checksum` of the table with each array of classes, by the name of the array.
    """
    published, failures = PUBLISHED[file], []
    for source in published.sources:
        try:
            arrays = read_copy(source, published.read)
            check_rows(arrays, checksums, source)
        except FetchError as failure:
            failures.append(str(failure))
        else:
            return keep(arrays, folder / file)
    raise FetchError("; ".join(failures))


def is_offline() -> bool:
    return os.environ.get(OFFLINE, "").strip().lower() not in ("", "0", "no", "false")


# --- download ---


class StayOnTheWeb(HTTPRedirectHandler):
    """Follows a redirection, but never from https to something weaker."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            fp.close()
            raise FetchError(f"{req.full_url} sends elsewhere without encryption, to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str, *, silence: float = SILENCE, patience: float = PATIENCE, largest: int = LARGEST_DOWNLOAD
) -> bytes:
    """The whole answer of `url`; `FetchError` says in words of a person why there is none."""
    opener = build_opener(StayOnTheWeb)
    try:
        with opener.open(Request(url, headers={"User-Agent": "koncord"}), timeout=silence) as response:
            return read_answer(response, url, patience=patience, largest=largest)
    except HTTPError as error:
        error.close()
        raise FetchError(f"{url} answered {error.code} ({error.reason})") from error
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise FetchError(f"{url} {failure_in_words(reason, silence)}") from error


def read_answer(response: Any, url: str, *, patience: float, largest: int) -> bytes:
    """The body of a response: all that was announced, in time, and no more than `largest` bytes."""
    ends = monotonic() + patience
    announced = response.headers.get("Content-Length", "")
    content = bytearray()
    while chunk := response.read1(CHUNK):
        content += chunk
        if len(content) > largest:
            raise FetchError(f"{url} sends more than {largest:,} bytes, so it is not the file")
        if monotonic() > ends:
            raise FetchError(f"{url} was not done after {patience:g} seconds")
    if announced.isdecimal() and len(content) < int(announced):
        raise FetchError(f"{url} broke off after {len(content):,} of {int(announced):,} bytes")
    return bytes(content)


def failure_in_words(reason: object, silence: float) -> str:
    if isinstance(reason, TimeoutError):
        return f"was silent for {silence:g} seconds"
    if isinstance(reason, ssl.SSLError):
        return f"has no certificate that this machine trusts ({reason.reason})"
    if isinstance(reason, HTTPException | ConnectionResetError):
        return f"broke off ({type(reason).__name__})"
    return f"cannot be reached ({getattr(reason, 'strerror', None) or reason})"


# --- what a copy holds ---


def read_copy(source: Source, read: Callable[[Sequence[bytes]], Arrays]) -> Arrays:
    parts = [download(url) for url in source.urls]
    try:
        return read([member_of(part, source.member) for part in parts] if source.member else parts)
    except (ValueError, LookupError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise FetchError(f"{source.urls[0]} is not laid out as expected ({error})") from error


def member_of(archive: bytes, name: str) -> bytes:
    """The file of this name in a ZIP archive, in whichever of its folders."""
    with zipfile.ZipFile(BytesIO(archive)) as content:
        found = [info for info in content.infolist() if Path(info.filename).name == name]
        if not found:
            raise ValueError(f"there is no {name} in the archive")
        if found[0].file_size > LARGEST_DOWNLOAD:
            raise ValueError(f"{name} has more than {LARGEST_DOWNLOAD:,} bytes")
        return content.read(found[0])


def read_waveform(parts: Sequence[bytes]) -> Arrays:
    """UCI's waveform.data: 21 attributes and the class."""
    table = np.loadtxt(data_lines(parts[0]), delimiter=",", ndmin=2)
    return {"X": table[:, :21].astype(np.float32), "y": table[:, 21].astype(np.int16)}


def read_abalone(parts: Sequence[bytes]) -> Arrays:
    """UCI's abalone.data: sex, seven measures, rings; the classes are the paper's eight bins of age."""
    table = np.loadtxt(data_lines(parts[0]), delimiter=",", usecols=range(1, 9), ndmin=2)
    rings = table[:, 7].astype(np.int16)
    return {"X": table[:, :7].astype(np.float32), "y": age_bins(rings), "rings": rings}


def age_bins(rings: NDArray[np.int16]) -> NDArray[np.int16]:
    """Bins of r = rings - 1: up to 5, 6, 7, 8, 9, 10, 11 or 12, more.

    >>> age_bins(np.array([3, 6, 7, 11, 12, 13, 14, 29], dtype=np.int16)).tolist()
    [0, 0, 1, 5, 6, 6, 7, 7]
    """
    return np.searchsorted([5, 6, 7, 8, 9, 10, 12], rings - 1).astype(np.int16)


def read_frogs(parts: Sequence[bytes]) -> Arrays:
    """UCI's Frogs_MFCCs.csv, by the names of its columns; UCI writes a blank into some of them."""
    header, *rows = lines_of(parts[0])
    names = [re.sub(r"\s", "", name) for name in header.split(",")]
    X = np.loadtxt(rows, delimiter=",", usecols=[names.index(f"MFCCs_{at}") for at in range(2, 23)], ndmin=2)
    arrays = {"X": X.astype(np.float32)}
    for name in ("Species", "Genus"):
        texts = np.loadtxt(rows, delimiter=",", usecols=names.index(name), dtype=str, ndmin=1)
        known, classes = np.unique(texts, return_inverse=True)
        arrays |= {f"y_{name.lower()}": classes.astype(np.int16), name.lower(): known}
    return arrays


def read_mnist(parts: Sequence[bytes]) -> Arrays:
    """Embeddings and labels of the training images, then of the test images."""
    X_train, y_train, X_test, y_test = (np.load(BytesIO(part), allow_pickle=False) for part in parts)
    X, y = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
    return {"X": X.astype(np.float32), "y": y.astype(np.int16)}


def lines_of(content: bytes) -> list[str]:
    return [line for line in content.decode("utf-8-sig").splitlines() if line.strip()]


def data_lines(content: bytes) -> list[str]:
    """Lines of a table without its header, if there is one: some copies have it, some have not."""
    first, *others = lines_of(content)
    rows = [first, *others] if is_number(first.split(",")[-1]) else others
    if not rows:
        raise ValueError("there is no row in it")
    return rows


# --- the checksum ---


def checksum(X: NDArray[Any], y: NDArray[Any]) -> str:
    """SHA-256 of the table as float32, row by row, followed by the classes as int64, both little-endian.

    >>> checksum(np.array([[-0.0, 1.5]]), np.array([2])) == checksum(np.array([[0.0, 1.5]]), np.array([2.0]))
    True
    """
    with np.errstate(over="ignore"):  # a value too large for float32 is in no published set
        digest = sha256(np.add(X, 0, dtype="<f4", casting="same_kind", order="C").tobytes())  # adding 0 turns -0 into 0
    digest.update(y.astype("<i8").tobytes())
    return digest.hexdigest()


def check_rows(arrays: Arrays, checksums: Mapping[str, str], source: Source) -> None:
    for name, wanted in checksums.items():
        found = checksum(arrays["X"], arrays[name])
        if found != wanted:
            raise FetchError(
                f"{source.urls[0]} holds other rows than the published ones (SHA-256 {found[:12]}..., wanted "
                f"{wanted[:12]}...)"
            )


# --- the file ---


def keep(arrays: Arrays, path: Path) -> Path:
    """Write the archive; the file appears whole or not at all."""
    archive = BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, archive.getbuffer())
    except OSError as error:
        raise FetchError(f"it was fetched, but '{path}' cannot be written ({error.strerror})") from error
    return path


# --- where the copies are ---

RAW = "https://raw.githubusercontent.com"
UCI_ARCHIVE = "https://archive.ics.uci.edu/static/public"
MNIST = f"{RAW}/fbickfordsmith/vae-embeddings/11d0f7a1e72c0f6e1c0f29408d24557121bc6036/data/mnist"
# A commit names its content, so copies at a commit never change. The archives of UCI come second for that reason; that
# of Waveform holds its file compressed in a way the standard library does not read.
PUBLISHED = {
    "waveform.npz": Published(
        read=read_waveform,
        sources=(
            Source(
                urls=(f"{RAW}/dhankasushil/Database-for-SE/fe8cf7e50dd3894e1a289d659a656f124c4efe19/waveform.data",)
            ),
            Source(
                urls=(
                    f"{RAW}/mahimahari/KNN-with-Waveform-Dataset/c8ebb09eae1b2d2b985d9338dcc8dd27eda400d2/waveform.data",
                )
            ),
        ),
    ),
    "abalone.npz": Published(
        read=read_abalone,
        sources=(
            Source(urls=(f"{RAW}/gustavovazquez/datasets/90ffb73eda13fca676ef5b778352246ba260f114/abalone.data",)),
            Source(urls=(f"{UCI_ARCHIVE}/1/abalone.zip",), member="abalone.data"),
        ),
    ),
    "frogs.npz": Published(
        read=read_frogs,
        sources=(
            Source(
                urls=(
                    f"{RAW}/epigos/Neural-Computing-Coursework/d95db75fc19c9e4c3e5e12f7b1d3ef879628bcfa/"
                    "data/Frogs_MFCCs.csv",
                )
            ),
            Source(urls=(f"{UCI_ARCHIVE}/406/anuran+calls+mfccs.zip",), member="Frogs_MFCCs.csv"),
        ),
    ),
    "mnist_vae10.npz": Published(
        read=read_mnist,
        sources=(
            Source(
                urls=(
                    f"{MNIST}/embeddings_vae_train.npy",
                    f"{MNIST}/labels_train.npy",
                    f"{MNIST}/embeddings_vae_test.npy",
                    f"{MNIST}/labels_test.npy",
                )
            ),
        ),
    ),
}
