"""One run and what came of it, and the line of CSV that says so."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from koncord.errors import KoncordError

DONE, FAILED, TIMED_OUT = STATUSES = ("done", "failed", "timed out")
COLUMNS = ("experiment", "dataset", "method", "seed", "status", "reason", "seconds", "versions", "values")


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One run of one experiment; these four names decide every number in it."""

    experiment: str
    dataset: str
    method: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.experiment}/{self.dataset}/{self.method}/{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run and what came of it; `values` holds what JSON can, and is empty unless the run is done."""

    run: Run
    status: str
    reason: str = ""  # one line, empty for a run that is done
    seconds: float
    versions: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"'status' of Row must be one of {', '.join(STATUSES)}; got {self.status!r}.")

    @property
    def experiment(self) -> str:
        return self.run.experiment

    @property
    def dataset(self) -> str:
        return self.run.dataset

    @property
    def method(self) -> str:
        return self.run.method

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def is_done(self) -> bool:
        return self.status == DONE


HEADER = ",".join(COLUMNS) + "\n"


def as_line(row: Row) -> str:
    """The row as one line of CSV, its end included; a reason of several lines is written as one."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        [
            row.experiment,
            row.dataset,
            row.method,
            row.seed,
            row.status,
            " ".join(row.reason.split()),
            f"{row.seconds:.3f}",
            row.versions,
            json.dumps(without_nan(row.values), allow_nan=False, separators=(",", ":")),
        ]
    )
    return text.getvalue()


def without_nan(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {str(name): without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def from_line(line: str) -> Row:
    """The row of one line; ValueError if it is none."""
    cells = next(csv.reader([line]), [])
    if len(cells) != len(COLUMNS):
        raise ValueError(f"a row has {len(COLUMNS)} cells, not {len(cells)}")
    experiment, dataset, method, seed, status, reason, seconds, versions, values = cells
    return Row(
        run=Run(experiment, dataset, method, int(seed)),
        status=status,
        reason=reason,
        seconds=float(seconds),
        versions=versions,
        values=json.loads(values),
    )


def from_text(text: str, source: str) -> dict[Run, Row]:
    """All rows of a file, by run; where a run has several the last one counts. `source` is named in an error."""
    header, *lines = text.removesuffix("\n").split("\n")
    if header != HEADER.rstrip():
        raise KoncordError(f"'{source}' does not hold rows of koncord reproduce: its first line is not their header.")
    found = {}
    for at, line in enumerate(lines, start=2):
        try:
            row = from_line(line)
        except ValueError as error:
            raise KoncordError(f"Line {at} of '{source}' is not a row of koncord reproduce: {error}.") from error
        found[row.run] = row
    return found


def read_rows(path: Path) -> dict[Run, Row]:
    """The rows of a file; somebody may be adding some."""
    return from_bytes(path.read_bytes(), str(path))


def from_bytes(content: bytes, source: str) -> dict[Run, Row]:
    """All rows that are whole: a last line without an end is still being written, or was cut short."""
    try:
        return from_text(whole_lines(content).decode(), source)
    except UnicodeDecodeError as error:
        raise KoncordError(f"'{source}' does not hold rows of koncord reproduce: it is not text.") from error


def whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def as_text(rows: Iterable[Row]) -> str:
    """A whole file of rows, in the order of their runs."""
    return HEADER + "".join(as_line(row) for row in sorted(rows, key=lambda row: row.run))
