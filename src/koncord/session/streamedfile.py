"""What a site keeps of a table that is read batch by batch: where it is, its sample, and what was answered of it.

The table itself is not copied. It must stay as it is: each time it is used, names, sizes and times of its files are
compared with those that it was joined with, and its rows by a digest when a site joins anew. The joint partition is a
record of the cuts that made it (`koncord.protocol.streamed`), and which cells that left.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from koncord._files import locked
from koncord.data.batches import SampledTable, batched_table, sampled_table, table_files
from koncord.errors import TableError
from koncord.kernels.cutting import CutTree
from koncord.protocol.streamed import ScaledLabel, Scaling, Sorting, StreamedCells, StreamedRows
from koncord.protocol.wire import pack, unpack
from koncord.session.checkpoint import read_blobs, write_blobs
from koncord.session.versions import ASKED, first_of
from koncord.types import FloatArray, IntArray

SAMPLED, BOUNDS, SORTINGS, LOCK = "sampled", "bounds", "sortings", "sortings.lock"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedSource:
    """A table that is read batch by batch, as a site knows it: the files, and what the first pass found."""

    path: Path
    na: tuple[str, ...]
    table: SampledTable
    digest: str  # of all rows
    files: tuple[tuple[str, int, int], ...]  # name, size, and time of the last change

    @classmethod
    def read(cls, path: Path, na: tuple[str, ...], table: Any, most_rows: int | None) -> Self:
        """Read a table once, to the end.

        Parameters
        ----------
        path : Path
            The file or folder.
        na : tuple of str
            What stands for a missing value.
        table : BatchedTable
            The same, with the columns that are used.
        most_rows : int or None
            Rows to hold.
        """
        whole = hashlib.sha256(json.dumps(table.columns).encode())
        files = state_of(path)
        sampled = sampled_table(
            table, most_rows, each=lambda X: whole.update(np.ascontiguousarray(X, dtype="<f8").data)
        )
        return cls(path=path.resolve(), na=na, table=sampled, digest=whole.hexdigest(), files=files)

    def save(self, folder: Path) -> None:
        """Write what the first pass found; on the disk when this returns."""
        header = {
            "path": str(self.path),
            "na": self.na,
            "columns": self.table.columns,
            "n_rows": self.table.n_rows,
            "digest": self.digest,
            "files": self.files,
        }
        blobs = {
            "sample": np.ascontiguousarray(self.table.sample, dtype="<f8").tobytes(),
            "pairs": np.ascontiguousarray(self.table.pairs, dtype="<f8").tobytes(),
            "n_rarer": self.table.n_rarer.astype("<i8").tobytes(),
        }
        write_blobs(folder / SAMPLED, header, blobs)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The table of a site's folder; `TableError` if its files are not those that it was joined with."""
        header, blobs = read_blobs(folder / SAMPLED)
        path, columns = Path(header["path"]), tuple(header["columns"])
        files = tuple((name, size, changed) for name, size, changed in header["files"])
        if state_of(path) != files:
            raise TableError(f"'{path}' has changed since this site joined with it; it is read again by koncord join.")
        table = SampledTable(
            table=batched_table(path, columns=columns, na=tuple(header["na"])),
            n_rows=header["n_rows"],
            sample=np.frombuffer(blobs["sample"], dtype="<f8").reshape(-1, len(columns)).astype(float),
            pairs=np.frombuffer(blobs["pairs"], dtype="<f8").reshape(2, len(columns)).astype(float),
            n_rarer=np.frombuffer(blobs["n_rarer"], dtype="<i8").astype(np.int64),
        )
        return cls(path=path, na=tuple(header["na"]), table=table, digest=header["digest"], files=files)


def kept_digest(folder: Path) -> str | None:
    """Digest of the rows that a site's folder knows of a table read batch by batch; None where there is none."""
    return str(read_blobs(folder / SAMPLED)[0]["digest"]) if (folder / SAMPLED).exists() else None


def state_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the last change of the files of a table."""
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in table_files(path))


class SortingsFile:
    """The cells of a table on disk: there before an answer leaves, and one process at a time.

    Parameters
    ----------
    folder : Path
        Of the site; of one run where nothing is kept from one to the next.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def update(self, rows: StreamedRows, change: Callable[[StreamedCells | None], StreamedCells]) -> StreamedCells:
        with locked(self.folder / LOCK):
            before = self._read(rows)
            after = change(before)
            if after is not before:
                self._write(after)
        return after

    def first_asked(self, asked: bytes) -> bytes:
        with locked(self.folder / LOCK):
            return first_of(self.folder, ASKED, asked)

    def bounds(self, find: Callable[[], tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
        with locked(self.folder / LOCK):
            if not (self.folder / BOUNDS).exists():
                low, high = find()
                write_blobs(self.folder / BOUNDS, {}, {"low": as_bytes(low), "high": as_bytes(high)})
            blobs = read_blobs(self.folder / BOUNDS)[1]
        return np.frombuffer(blobs["low"]).copy(), np.frombuffer(blobs["high"]).copy()

    def _read(self, rows: StreamedRows) -> StreamedCells | None:
        if not (self.folder / SORTINGS).exists():
            return None
        header, blobs = read_blobs(self.folder / SORTINGS)

        def whole(name: str) -> IntArray:
            return np.frombuffer(blobs[name], dtype="<i8").astype(np.int64).reshape(header["shapes"][name])

        sortings = tuple(
            Sorting(
                label=ScaledLabel(
                    rows=rows,
                    scaling=unpack(blobs[f"{at}/scaling"], (Scaling,))[0],
                    by=unpack(blobs[f"{at}/by"], (CutTree,))[0],
                ),
                cells=whole(f"{at}/cells"),
            )
            for at in range(header["n_sortings"])
        )
        means = np.frombuffer(blobs["means"]).reshape(len(whole("counts")), -1).copy() if "means" in blobs else None
        counts = {name: whole(name) for name in ("counts", "rarer", "n_rarer")}
        return StreamedCells(sortings=sortings, means=means, **counts)

    def _write(self, cells: StreamedCells) -> None:
        arrays = {"counts": cells.counts, "rarer": cells.rarer, "n_rarer": cells.n_rarer}
        blobs: dict[str, bytes] = {}
        for at, sorting in enumerate(cells.sortings):
            assert isinstance(sorting.label, ScaledLabel)
            blobs |= {f"{at}/scaling": pack(sorting.label.scaling), f"{at}/by": pack(sorting.label.by)}
            arrays[f"{at}/cells"] = sorting.cells
        header = {"n_sortings": len(cells.sortings), "shapes": {name: each.shape for name, each in arrays.items()}}
        blobs |= {name: np.ascontiguousarray(each, dtype="<i8").tobytes() for name, each in arrays.items()}
        if cells.means is not None:
            blobs["means"] = as_bytes(cells.means)
        write_blobs(self.folder / SORTINGS, header, blobs)


def as_bytes(values: FloatArray) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()
