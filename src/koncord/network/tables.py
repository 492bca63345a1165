"""The owner's record of tables: what was answered of a table is kept once, whichever state folder it was asked in.

Two state folders over one table, each with a joint partition of its own, would tell rows by the difference of their
answers. So the partition of a table that was answered about is in a folder of the user who runs the sites, a folder for
each table, and every state folder over the table answers by it. No row is in there: a table is known by keyed hashes of
its rows, and of the values of its columns for tables with other columns. What other users and other machines answered
is not seen.

Two tables that share at most half as many rows as the floor asks for may be answered about apart: a combination of sums
over cells of both stands for no fewer rows than the floor, for of two cells that are taken from one another at least
half of each is left.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from koncord._files import locked, sync_folder, write_atomic
from koncord.errors import KoncordError
from koncord.session.checkpoint import read_blobs, write_blobs
from koncord.types import BoolArray, FloatArray

Hashes = NDArray[np.uint64]

TABLES = "KONCORD_TABLES"  # the variable that names the folder of the record
KNOWN, KEY, MARKS = "known", "key", "marks"
# Hashes that are kept, the smallest ones: all rows of most tables, and enough values of a column to compare it by.
MOST_ROWS, MOST_VALUES = 100_000, 2_000
AT_ONCE = 1 << 15  # rows: of most of them no hash is kept, which is plain after the first
# A column of the same name is the same column if at least this share of the values that occur once are.
SAME_VALUES = 0.5
# Columns that tell rows apart have at least this share of values that occur once (as `koncord.protocol.partition`).
SINGLE_VALUES = 0.33
# Rows that are equal by chance, of those that are expected: so many times as many are still nothing to wonder at.
BY_CHANCE = 2.0
ALL_HASHES = 2.0**64


def record_folder() -> Path:
    """Where the record is, by the custom of the platform, unless the variable ``KONCORD_TABLES`` names it."""
    named = os.environ.get(TABLES)
    if named:
        return Path(named).absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "koncord" / "tables"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "koncord" / "tables"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "koncord" / "tables"


# --- hashes ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """The smallest of some hashes, each once, and how often each occurs; all of them, if there are few."""

    most: int
    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))  # rising
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    is_whole: bool = True
    n: int = 0  # of all

    def with_more(self, hashes: Hashes) -> Self:
        """Those of more rows as well. A hash that went never comes back, so counts are exact."""
        n = self.n + len(hashes)
        if not self.is_whole:
            hashes = hashes[hashes <= self.hashes[-1]]
        new, counts = np.unique(hashes, return_counts=True)
        return self._with(new, counts, n, self.is_whole, np.add)

    def with_others(self, other: Self) -> Self:
        """Those of two tables, a row of both once."""
        limit = min((each.hashes[-1] for each in (self, other) if not each.is_whole), default=np.uint64(-1 % 2**64))
        mine, theirs = (each.hashes <= limit for each in (self, other))
        own = replace(self, hashes=self.hashes[mine], counts=self.counts[mine])
        whole = self.is_whole and other.is_whole
        return own._with(other.hashes[theirs], other.counts[theirs], max(self.n, other.n), whole, np.maximum)

    def _with(self, new: Hashes, counts: NDArray[np.int64], n: int, is_whole: bool, joined: np.ufunc) -> Self:
        hashes = np.union1d(self.hashes, new)
        both = np.zeros((2, len(hashes)), dtype=np.int64)
        both[0, np.searchsorted(hashes, self.hashes)] = self.counts
        both[1, np.searchsorted(hashes, new)] = counts
        is_cut = len(hashes) > self.most
        kept = slice(self.most)
        return replace(self, hashes=hashes[kept], counts=joined(*both)[kept], n=n, is_whole=is_whole and not is_cut)

    @property
    def share(self) -> float:
        """Of all hashes there can be, those that are kept if they occur."""
        return 1.0 if self.is_whole or not len(self.hashes) else (float(self.hashes[-1]) + 1) / ALL_HASHES

    @property
    def n_single(self) -> float:
        """How many occur once, as far as the sample tells."""
        return float((self.counts == 1).sum()) / self.share

    @property
    def collisions(self) -> float:
        """Probability that two of them are equal, as far as the sample tells."""
        n_pairs = float((self.counts * (self.counts - 1)).sum()) / self.share
        return n_pairs / max(self.n * (self.n - 1), 1)

    def shared_with(self, other: Self) -> tuple[float, float]:
        """How many are in both, one to one, and how many of these occur once in both, as far as the samples tell."""
        _, mine, theirs = np.intersect1d(self.hashes, other.hashes, assume_unique=True, return_indices=True)
        share = min(self.share, other.share)
        counts = np.minimum(self.counts[mine], other.counts[theirs])
        is_single = (self.counts[mine] == 1) & (other.counts[theirs] == 1)
        return float(counts.sum()) / share, float(is_single.sum()) / share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """What a table is known by again: hashes of its rows, and of the values of every column."""

    columns: tuple[str, ...]
    rows: Sample
    values: tuple[Sample, ...]  # of each column

    def with_others(self, other: Self) -> Self:
        """Those of another version of the table as well."""
        values = tuple(one.with_others(new) for one, new in zip(self.values, other.values, strict=True))
        return replace(self, rows=self.rows.with_others(other.rows), values=values)

    def blobs(self, order: Hashes) -> tuple[dict[str, Any], dict[str, bytes]]:
        """As they are stored, with hashes of the rows in their order."""
        samples = (self.rows, *self.values)
        header = {
            "columns": self.columns,
            "samples": [{"most": each.most, "is_whole": each.is_whole, "n": each.n} for each in samples],
        }
        blobs = {f"{at}/hashes": each.hashes.astype("<u8").tobytes() for at, each in enumerate(samples)}
        blobs |= {f"{at}/counts": each.counts.astype("<i8").tobytes() for at, each in enumerate(samples)}
        return header, {**blobs, "order": order.astype("<u8").tobytes()}

    @classmethod
    def of_blobs(cls, header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> tuple[Self, Hashes]:
        samples = [
            Sample(
                hashes=np.frombuffer(blobs[f"{at}/hashes"], dtype="<u8").astype(np.uint64),
                counts=np.frombuffer(blobs[f"{at}/counts"], dtype="<i8").astype(np.int64),
                **each,
            )
            for at, each in enumerate(header["samples"])
        ]
        marks = cls(columns=tuple(header["columns"]), rows=samples[0], values=tuple(samples[1:]))
        return marks, np.frombuffer(blobs["order"], dtype="<u8").astype(np.uint64)


def share_rows(one: Marks, other: Marks, least: int) -> bool:
    """Whether two tables have so many rows in common that answers over both must be held together.

    That is more than half as many as the floor of rows that occur once in both, or half of the smaller table. Rows of
    a few values are equal by chance: as many as the equal rows within a table lead to expect do not count. Tables with
    other columns, or columns in other units, are found by the columns that they share: at least half of those that tell
    rows apart have the same values.
    """
    matched, single = one.rows.shared_with(other.rows)
    by_chance = one.rows.n * other.rows.n * max(one.rows.collisions, other.rows.collisions)
    if single > least / 2 + BY_CHANCE * by_chance or matched > max(least / 2, min(one.rows.n, other.rows.n) / 2):
        return True
    places = {name: at for at, name in enumerate(other.columns)}
    pairs = [(one.values[at], other.values[places[name]]) for at, name in enumerate(one.columns) if name in places]
    telling = [pair for pair in pairs if all(each.n_single > max(least / 2, SINGLE_VALUES * each.n) for each in pair)]
    n_same = sum(is_same_column(*pair, least) for pair in telling)
    return bool(telling) and n_same >= len(telling) / 2


def is_same_column(one: Sample, other: Sample, least: int) -> bool:
    _, single = one.shared_with(other)
    return single > least / 2 and single >= SAME_VALUES * min(one.n_single, other.n_single)


class Marking:
    """Marks a table by a key, batch by batch: categories by the names of their levels, columns by their names.

    Parameters
    ----------
    key : bytes
        Of the record: without it nobody knows which rows hashes are of.
    columns : sequence of str
        Of the table.
    levels : mapping of str to sequence of str, default None
        Of the columns that are categories.
    """

    def __init__(self, key: bytes, columns: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None) -> None:
        words = [[keyed(key, f"{part} {name}") for name in columns] for part in ("factor", "term")]
        self.factors, self.terms = (np.array(own, dtype=np.uint64) for own in words)
        self.factors |= np.uint64(1)
        self.end = np.uint64(keyed(key, "row"))
        self.levels = {
            list(columns).index(name): np.array([keyed(key, f"level {level}") for level in own], dtype=np.uint64)
            for name, own in (levels or {}).items()
        }
        self.marks = Marks(
            columns=tuple(columns), rows=Sample(most=MOST_ROWS), values=tuple(Sample(most=MOST_VALUES) for _ in columns)
        )

    def add(self, X: FloatArray) -> Hashes:
        """Add rows (n, n_columns); their hashes."""
        some = [self._added(X[at : at + AT_ONCE]) for at in range(0, len(X), AT_ONCE)]
        return np.concatenate([np.empty(0, dtype=np.uint64), *some])

    def _added(self, X: FloatArray) -> Hashes:
        values = self.hashed(X)
        rows = mixed(values.sum(axis=1, dtype=np.uint64) ^ self.end)
        self.marks = replace(
            self.marks,
            rows=self.marks.rows.with_more(rows),
            values=tuple(own.with_more(values[:, at]) for at, own in enumerate(self.marks.values)),
        )
        return rows

    def hashed(self, X: FloatArray) -> Hashes:
        """Hashes of the values, (n, n_columns)."""
        values = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # one zero
        values[np.isnan(values)] = np.nan  # and one gap
        bits = values.view(np.uint64).copy()
        for at, names in self.levels.items():
            is_there: BoolArray = ~np.isnan(values[:, at])
            bits[is_there, at] = names[values[is_there, at].astype(np.int64)]
        return mixed(bits * self.factors + self.terms)


def keyed(key: bytes, text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), key=key, digest_size=8).digest(), "little")


def mixed(words: Hashes) -> Hashes:
    """Words in which every bit depends on all bits (the end of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# --- the record ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownTable:
    """A table that was answered about."""

    folder: Path  # what was answered of it
    marks: Marks
    order: Hashes  # (n_rows,) of the rows that are answered about; none of a table that is read batch by batch
    levels: Mapping[str, tuple[str, ...]]  # of the columns that are categories
    min_report: int
    digest: str = ""  # of a table that is read batch by batch
    states: tuple[str, ...] = ()  # state folders over it

    def save(self) -> None:
        """Write it; on the disk when this returns."""
        header, blobs = self.marks.blobs(self.order)
        header |= {
            "levels": dict(self.levels),
            "min_report": self.min_report,
            "digest": self.digest,
            "states": self.states,
        }
        write_blobs(self.folder / KNOWN, header, blobs)

    @classmethod
    def load(cls, folder: Path) -> Self:
        header, blobs = read_blobs(folder / KNOWN)
        marks, order = Marks.of_blobs(header, blobs)
        return cls(
            folder=folder,
            marks=marks,
            order=order,
            levels={name: tuple(own) for name, own in header["levels"].items()},
            min_report=header["min_report"],
            digest=header["digest"],
            states=tuple(header["states"]),
        )

    def used_from(self, state: Path) -> Self:
        """The table with one more state folder over it."""
        return replace(self, states=tuple(dict.fromkeys((*self.states, str(state)))))

    @property
    def places(self) -> str:
        """The state folders, in a sentence."""
        return " and ".join(f"'{state}'" for state in self.states)

    def in_order(self, X: FloatArray, hashes: Hashes) -> FloatArray | None:
        """The rows in the order that they are known in; None if these are others."""
        theirs, mine = (np.argsort(each, kind="stable") for each in (self.order, hashes))
        if len(theirs) != len(mine) or (self.order[theirs] != hashes[mine]).any():
            return None
        places = np.empty(len(mine), dtype=np.int64)
        places[theirs] = mine
        return X[places]


class TableRecord:
    """The record of all tables of a user that sites have answered about.

    Parameters
    ----------
    folder : Path or None, default None
        Of the record; None is the user's.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = record_folder() if folder is None else folder
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise KoncordError(
                f"The record of what was answered of tables, '{self.folder}', cannot be made ({error.strerror}): let "
                f"the variable {TABLES} name a folder that stays, the same for all sites of this user."
            ) from error

    def alone(self) -> AbstractContextManager[None]:
        """Within the block no other process changes the record."""
        return locked(self.folder / "lock")

    def marking(self, columns: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None) -> Marking:
        """What marks a table with these columns."""
        path = self.folder / KEY
        if not path.exists():
            with self.alone():
                if not path.exists():
                    write_atomic(path, token_bytes(32), private=True, durable=True)
        return Marking(path.read_bytes(), columns, levels)

    def tables(self) -> Iterator[KnownTable]:
        """All of them."""
        for path in sorted(self.folder.glob(f"*/{KNOWN}")):
            yield KnownTable.load(path.parent)

    def sharing(self, marks: Marks, least: int, but: Path | None = None) -> list[KnownTable]:
        """Tables that share rows with this one, all `but` one."""
        own = None if but is None else but.resolve()
        return [
            table
            for table in self.tables()
            if table.folder.resolve() != own and share_rows(marks, table.marks, min(least, table.min_report))
        ]

    def new_folder(self) -> Path:
        """A folder for what is answered of one more table."""
        folder = self.folder / token_hex(8)
        folder.mkdir(mode=0o700)
        sync_folder(self.folder)
        return folder


def write_marks(folder: Path, marks: Marks, order: Hashes) -> None:
    """Keep the marks of a site's table in its state folder, for the record."""
    write_blobs(folder / MARKS, *marks.blobs(order))


def read_marks(folder: Path) -> tuple[Marks, Hashes]:
    """Marks of a site's table, and hashes of its rows in their order."""
    return Marks.of_blobs(*read_blobs(folder / MARKS))
