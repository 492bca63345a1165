"""Files that are whole or not there, and locks between processes."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from koncord import _files
from koncord._files import atomic_file, is_at, locked, write_atomic
from koncord.errors import KoncordError

HELD = """
import sys
from pathlib import Path
from koncord._files import locked
with locked(Path(sys.argv[1]), removes=sys.argv[2] == "True"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def only(folder):
    """Name and content of the only file of a folder."""
    (path,) = folder.iterdir()
    return path.name, path.read_bytes()


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_the_owner_or_the_umask_decides_who_reads_a_file(tmp_path, private, mode):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"1", private=private)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == mode
    assert only(tmp_path) == ("a", b"1")


def test_a_private_file_is_private_before_it_has_its_name(tmp_path):
    with atomic_file(tmp_path / "a", private=True) as file:
        file.write(b"secret")
        (partial,) = tmp_path.iterdir()
        assert (partial.name == "a", mode_of(partial)) == (False, 0o600)
    assert only(tmp_path) == ("a", b"secret")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError("no"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, error):
    write_atomic(tmp_path / "a", b"old")

    def write():
        with atomic_file(tmp_path / "a") as file:
            file.write(b"new")
            raise error

    with pytest.raises(type(error)):
        write()
    assert only(tmp_path) == ("a", b"old")


def test_an_error_of_the_disk_names_the_file_and_not_the_one_beside_it(tmp_path):
    path = tmp_path / "none" / "a"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(path, b"1")
    assert caught.value.filename == str(path)


def test_a_name_as_long_as_names_go_is_written(tmp_path):
    write_atomic(tmp_path / ("n" * 255), b"1")
    assert only(tmp_path)[1] == b"1"


def test_what_is_durable_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def noted(handle):
        synced.append(("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file", (tmp_path / "a").exists()))
        fsync(handle)

    monkeypatch.setattr(_files.os, "fsync", noted)
    write_atomic(tmp_path / "a", b"1", durable=True)
    assert synced == [("file", False), ("folder", True)]
    write_atomic(tmp_path / "b", b"1")
    assert len(synced) == 2


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock of a file until it is told to let go."""
    processes = []

    def hold(path, removes=False, waits=False):
        process = subprocess.Popen(
            [sys.executable, "-c", HELD, path, str(removes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert waits or process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def let_go(process):
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(timeout=30) == 0


def test_a_lock_that_another_process_holds_is_refused_in_the_words_of_the_caller(tmp_path, other):
    process = other(tmp_path / "lock")
    with pytest.raises(KoncordError, match="busy here"), locked(tmp_path / "lock", busy="busy here"):
        pass
    let_go(process)
    with locked(tmp_path / "lock", busy="busy here"):
        pass
    assert (tmp_path / "lock").exists()


def test_a_lock_that_another_process_holds_is_waited_for(tmp_path, other):
    process = other(tmp_path / "lock", removes=True)
    waiting = other(tmp_path / "lock", removes=True, waits=True)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=1)
    let_go(process)
    # the file it waited for is gone by now: it holds the lock of a new one
    assert waiting.stdout.readline() == "held\n"
    with pytest.raises(KoncordError), locked(tmp_path / "lock", busy="taken"):
        pass
    let_go(waiting)
    assert not (tmp_path / "lock").exists()


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path, other):
    other(tmp_path / "lock").kill()
    with locked(tmp_path / "lock"):
        pass


def test_the_error_of_a_block_is_not_taken_for_a_lock(tmp_path):
    with pytest.raises(BlockingIOError), locked(tmp_path / "lock", busy="busy"):
        raise BlockingIOError(errno.EWOULDBLOCK, "of the block")


def test_a_lock_that_is_removed_at_any_moment_is_not_this_one(tmp_path, monkeypatch):
    """A process that ends removes its lock, also between two looks at it."""
    path = tmp_path / "lock"
    with path.open("a+b") as file:
        assert is_at(path, file)
        path.unlink()
        monkeypatch.setattr(Path, "exists", lambda self, **_: True)  # it was there a moment ago
        assert not is_at(path, file)
        path.touch()
        assert not is_at(path, file)
