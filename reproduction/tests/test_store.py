"""The store: whatever happens to the process, finished rows stay and half a row does not."""

import os
import signal
import subprocess
import sys

import pytest

from koncord.errors import KoncordError
from koncord_reproduction.rows import HEADER, Row, Run, as_line, read_rows
from koncord_reproduction.store import ROWS, Store

HOLD = """
import sys, time
from pathlib import Path
from koncord_reproduction.store import Store
with Store(Path(sys.argv[1])):
    print("open", flush=True)
    time.sleep(60)
"""


def row(seed, status="done"):
    return Row(
        run=Run("pooled", "waveform", "asm-s", seed),
        status=status,
        reason="",
        seconds=0.25,
        versions="koncord",
        values={"ari": 0.25, "local_counts": [2, 3]},
    )


def test_rows_are_there_when_the_store_is_opened_again(tmp_path):
    folder = tmp_path / "new" / "folder"
    with Store(folder) as store:
        assert store.rows == {}
        store.add(row(42))
        store.add(row(43))
        assert store.rows == {row(42).run: row(42), row(43).run: row(43)}
    with Store(folder) as store:
        assert list(store.rows.values()) == [row(42), row(43)]
    assert read_rows(folder / ROWS) == {row(42).run: row(42), row(43).run: row(43)}


def test_a_row_is_on_the_disk_when_add_returns(tmp_path):
    with Store(tmp_path) as store:
        for seed in (42, 43):
            store.add(row(seed))
            assert (tmp_path / ROWS).read_text().endswith(as_line(row(seed)))


def test_a_file_cut_anywhere_keeps_its_whole_rows_and_takes_more(tmp_path):
    whole = (HEADER + as_line(row(42)) + as_line(row(43))).encode()
    for cut in range(len(whole) + 1):
        (tmp_path / ROWS).write_bytes(whole[:cut])
        n_whole = max(whole[:cut].count(b"\n") - 1, 0)
        with Store(tmp_path) as store:
            assert list(store.rows.values()) == [row(42), row(43)][:n_whole]
            store.add(row(50))
        assert list(read_rows(tmp_path / ROWS)) == [row(seed).run for seed in [*[42, 43][:n_whole], 50]]


def test_the_last_row_of_a_run_counts(tmp_path):
    with Store(tmp_path) as store:
        store.add(row(42, "failed"))
        store.add(row(42))
    with Store(tmp_path) as store:
        assert list(store.rows.values()) == [row(42)]


def test_a_second_store_in_the_folder_is_refused_until_the_first_is_closed(tmp_path):
    with Store(tmp_path) as store:
        store.add(row(42))
        with pytest.raises(KoncordError, match=r"Another koncord reproduce is at work in .* --out"), Store(tmp_path):
            pass
    with Store(tmp_path) as store:
        assert list(store.rows.values()) == [row(42)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(KoncordError, match="Another"), Store(tmp_path):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with Store(tmp_path) as store:
        store.add(row(42))


@pytest.mark.parametrize("content", [b"name,age\nAnn,30\n", b"\xff\xfe\n", b"no end of line"])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / ROWS).write_bytes(content)
    with pytest.raises(KoncordError, match="does not hold rows"), Store(tmp_path):
        pass
    assert (tmp_path / ROWS).read_bytes() == content
    (tmp_path / ROWS).unlink()
    with Store(tmp_path) as store:  # the lock was given back
        assert store.rows == {}
