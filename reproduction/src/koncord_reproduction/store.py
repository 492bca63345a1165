"""Rows on disk: a file that only grows, one line a finished run, which no kill can spoil.

Every line is forced to the disk before the next run is counted as done. A line that a kill cut short is dropped when
the store is opened again; its run was not yet reported as done, so it is made once more.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from koncord._files import locked, sync_folder
from koncord_reproduction.rows import HEADER, Row, Run, as_line, from_bytes, whole_lines

ROWS = "rows.csv"
LOCK = ".lock"
BUSY = "Another koncord reproduce is at work in '{}': wait for it, or give another folder with --out."


class Store:
    """The rows of one folder, open for one process at a time.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / ROWS
        self.rows: dict[Run, Row] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            opened.enter_context(locked(self.folder / LOCK, busy=BUSY.format(self.folder)))
            self._file = opened.enter_context(self.path.open("r+b" if self.path.exists() else "w+b"))
            self._read()
            self._opened = opened.pop_all()
        return self

    def _read(self) -> None:
        content = self._file.read()
        whole = whole_lines(content)
        is_begun = whole or not HEADER.encode().startswith(content)
        self.rows = from_bytes(content, str(self.path)) if is_begun else {}
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        if not whole:
            self._write(HEADER)
            sync_folder(self.folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def add(self, row: Row) -> None:
        """Keep the row; when this returns, it is on the disk."""
        self._write(as_line(row))
        self.rows[row.run] = row

    def _write(self, line: str) -> None:
        self._file.write(line.encode())
        self._file.flush()
        os.fsync(self._file.fileno())
