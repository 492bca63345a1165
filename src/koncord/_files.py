"""Files written whole, and locks between processes: the only home of both.

Every file of koncord that another process, or the next run, may read appears whole or not at all. Beyond that a writer
says what it needs: `private` (nobody but the owner may ever read it) and `durable` (on the disk, with its name, before
the call returns).
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO

from koncord.errors import KoncordError

# No space, no more for this user, larger than a file may be.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OWNER_ONLY, AS_THE_UMASK_SAYS = 0o600, 0o666


def write_atomic(path: Path, data: bytes | memoryview, *, private: bool = False, durable: bool = False) -> None:
    """Write a file that is whole or not there.

    Parameters
    ----------
    path : Path
        The file; its folder exists. What was there is replaced, or stays as it was if the write fails.
    data : bytes or memoryview
        The content.
    private : bool, default False
        Only the owner may read the file, from its first moment on.
    durable : bool, default False
        Content and name are on the disk when this returns: a crash of the machine loses neither.
    """
    with atomic_file(path, private=private, durable=durable) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path, *, private: bool = False, durable: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to and to read from, which takes its place at the end of the block and goes if the block fails.

    The parameters are those of `write_atomic`. Two processes that write at once do not mix: the last one to end wins.
    """
    partial = path.with_name(f".koncord-{token_hex(8)}.part")  # not of its name, which may be as long as names go
    mode = OWNER_ONLY if private else AS_THE_UMASK_SAYS
    try:
        opened = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with writing(path), os.fdopen(opened, "w+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, on systems that open folders."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block an error of the disk names the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        # NumPy tells of a file that was cut short in words alone.
        number = error.errno or errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error


def disk_problem(error: OSError) -> str:
    """What went wrong with which file, as a sentence."""
    where = f": '{error.filename}'" if error.filename else ""
    why = "; the disk may be full" if error.errno in FULL else ""
    return f"{error.strerror or error}{where}{why}."


# --- locks ---


@contextmanager
def locked(path: Path, *, busy: str | None = None, removes: bool = False) -> Iterator[None]:
    """Hold the lock of a file: within the block no other process does. It is free again when the process ends.

    Parameters
    ----------
    path : Path
        The file, made if it is not there.
    busy : str, default None
        Text of the `KoncordError` raised at once if another process holds the lock; None waits for it.
    removes : bool, default False
        Remove the file at the end of the block.
    """
    while True:
        with path.open("a+b") as file:
            acquire(file, busy)
            if removes and not is_at(path, file):  # removed by a process that ended at this moment: a lock of nothing
                continue
            try:
                yield
            finally:
                if removes:
                    path.unlink(missing_ok=True)
            return


def acquire(file: IO[bytes], busy: str | None) -> None:
    """Lock an open file, which unlocks it when it is closed; `KoncordError` if it is taken and `busy` is given."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if busy is None else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if busy is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if busy is None or error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            raise
        raise KoncordError(busy) from None


def is_at(path: Path, file: IO[bytes]) -> bool:
    """Whether the open file is the one of this name."""
    try:
        there = path.stat()
    except FileNotFoundError:  # at any moment, so one look must do
        return False
    return os.path.samestat(os.fstat(file.fileno()), there)
