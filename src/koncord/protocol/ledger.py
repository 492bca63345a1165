"""A site's ledger: one readable line for each message, and for each refusal, written before it leaves.

File format: JSON lines, one object a message, appended in the order of leaving. It holds no number of the message, only
what it was, how large it was, and the SHA-256 of its bytes, by which a recorded message is found. The line of a refusal
has the reason, which stays at the site; what left is one of a few sentences (`koncord.errors.told_outside`), and its
size and SHA-256 are of that.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from koncord._files import locked, writing
from koncord.errors import KoncordError, told_outside
from koncord.protocol.wire import wire_name

SUFFIX = ".ledger.jsonl"
REFUSAL = "refusal"  # in the place of a message's name
LONGEST_REASON = 300  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message that left a site, or one refusal."""

    time: str  # ISO 8601, UTC
    run: str
    site: str
    round_: int
    message: str
    fields: Mapping[str, Sequence[int]]  # shape of each; a lone number, word or truth value has none
    n_bytes: int
    sha256: str  # of its bytes
    epsilon: float | None = None  # of a site with a privacy budget: spent on all messages up to this one
    refused: str | None = None  # why nothing else left


class Ledger:
    """The ledger of one site in one run, appended to `path`.

    Parameters
    ----------
    path : Path
        The file; it is made if it is not there, its folder must be.
    run : str
        Name of the run, to tell runs apart in one file.
    site : str
        Name of the site.
    clock : callable, default lambda: datetime.now(UTC)
        Gives the time.
    """

    def __init__(
        self, path: Path, *, run: str, site: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.path = path
        self.run = run
        self.site = site
        self.clock = clock

    def write(self, message: Any, round_: int, data: bytes, epsilon: float | None = None) -> None:
        """Note `message`, packed as `data`; on the disk's side of the program when this returns."""
        self._note(wire_name(type(message)), shapes_of(message), round_, data, epsilon=epsilon)

    def refuse(self, error: BaseException, epsilon: float | None = None) -> None:
        """Note that a question was refused or failed, and why."""
        reason = as_line(f"{error}") or type(error).__name__
        self._note(REFUSAL, {}, 0, told_outside(error).encode(), epsilon=epsilon, refused=reason)

    def _note(
        self,
        message: str,
        fields: Mapping[str, Sequence[int]],
        round_: int,
        data: bytes,
        *,
        epsilon: float | None,
        refused: str | None = None,
    ) -> None:
        entry = Entry(
            time=self.clock().isoformat(timespec="milliseconds"),
            run=self.run,
            site=self.site,
            round_=round_,
            message=message,
            fields=fields,
            n_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            epsilon=epsilon,
            refused=refused,
        )
        with locked(self.path.with_name(f".{self.path.name}.lock"), removes=True):
            if is_cut_short(self.path):
                self._append(b"\n")
            self._append(f"{entry_line(entry)}\n".encode())

    def _append(self, line: bytes) -> None:
        with writing(self.path), self.path.open("ab") as file:
            file.write(line)


def entry_line(entry: Entry) -> str:
    return json.dumps({name: value for name, value in asdict(entry).items() if value is not None}, ensure_ascii=False)


def as_line(reason: str) -> str:
    """A reason as one line of printable characters, not too long: what came from outside may stand in it."""
    line = "".join(each if each.isprintable() else " " for each in reason[: 2 * LONGEST_REASON])
    return " ".join(line.split())[:LONGEST_REASON]


def spent_by_run(entries: Iterable[Entry], site: str) -> dict[str, float]:
    """Epsilon that a site has spent in each of its runs with a privacy budget, in the order of their beginning."""
    spent: dict[str, float] = {}
    for entry in entries:
        if entry.site == site and entry.epsilon is not None:
            spent[entry.run] = max(spent.get(entry.run, 0.0), entry.epsilon)
    return spent


def shapes_of(message: Any) -> dict[str, list[int]]:
    """Shape of every field that is not None."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return {
        name: [len(value)] if isinstance(value, tuple) else list(np.shape(value))
        for name, value in values.items()
        if value is not None
    }


def is_cut_short(path: Path) -> bool:
    """Whether the last line of a file has no end."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def ledger_file(folder: Path, site: str) -> Path:
    return folder / f"{site}{SUFFIX}"


def ledger_files(path: Path) -> list[Path]:
    """The ledger that a person means: the file itself, or all those of a folder, by name."""
    if path.is_file():
        return [path]
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if not found:
        what = f"holds no file that ends in {SUFFIX}" if path.is_dir() else "is not there"
        raise KoncordError(f"'{path}' {what}: there is no ledger to show.")
    return found


def read_ledger(path: Path) -> list[Entry]:
    """The entries of a ledger, in order; `KoncordError` names the first line that is none.

    A line without an end was cut short while it was written, so its message did not leave: it is left out.
    """
    entries = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.endswith(b"}"):
            try:
                entries.append(Entry(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise KoncordError(f"Line {number} of '{path}' is not an entry of a ledger.") from error
    return entries
