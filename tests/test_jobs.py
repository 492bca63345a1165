"""Work that is spread over processes."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from koncord._jobs import begun, jobs, spread
from koncord.errors import KoncordError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_results_come_in_the_order_of_the_items_whatever_the_number_of_processes(n):
    offset = np.arange(3.0)
    with jobs(n):
        found = spread(lambda item: (item, item + offset), [5, 1, 4, 2, 3])
    assert [item for item, _ in found] == [5, 1, 4, 2, 3]
    assert all(np.array_equal(values, item + offset) for item, values in found)


def test_a_process_that_is_done_takes_the_next_item_and_none_is_spread_further():
    def work(seconds):
        time.sleep(seconds)
        return os.getpid(), *spread(lambda _: os.getpid(), [0, 1])

    with jobs(2):
        long, *short = spread(work, [2.0, 0.0, 0.0, 0.0])
    assert len(set(short)) == 1
    assert short[0] != long
    assert os.getpid() not in {*long, *short[0]}
    assert all(len(set(each)) == 1 for each in (long, short[0]))


def test_without_jobs_work_is_done_here():
    assert spread(lambda _: os.getpid(), [0, 1]) == [os.getpid()] * 2
    with jobs(4):
        assert spread(lambda item: item, []) == []


def test_the_error_of_the_first_item_is_raised():
    def fail(item):
        if item:
            raise ValueError(f"item {item}")

    with jobs(2), pytest.raises(ValueError, match="item 1"):
        spread(fail, [0, 1, 2, 3])


def test_a_process_that_dies_is_an_error_and_ends_the_others():
    before = {child.pid for child in multiprocessing.active_children()}
    with jobs(2), pytest.raises(KoncordError, match="--jobs 1"):
        spread(lambda item: os._exit(1) if item else time.sleep(600), [0, 1])
    assert {child.pid for child in multiprocessing.active_children()} == before


def test_work_that_was_begun_goes_on_in_another_process_and_is_waited_for():
    offset = np.arange(3.0)
    with jobs(2), begun(lambda: (os.getpid(), time.monotonic(), offset + 1)) as found:
        time.sleep(0.5)
        asked = time.monotonic()
        pid, done, values = found()
        assert found()[0] == pid
    assert pid != os.getpid()
    assert done < asked
    assert np.array_equal(values, offset + 1)


def test_without_jobs_work_that_was_begun_is_done_once_when_it_is_asked_for():
    done = []
    with begun(lambda: done.append(os.getpid())) as found:
        assert not done
        found()
        found()
    assert done == [os.getpid()]


def test_the_error_of_work_that_was_begun_is_raised_where_it_is_asked_for():
    def fail():
        raise ValueError("no luck")

    for n in (1, 2):
        with jobs(n), begun(fail) as found, pytest.raises(ValueError, match="no luck"):
            found()


def test_work_that_nobody_asks_for_is_ended_with_the_block():
    before = {child.pid for child in multiprocessing.active_children()}
    with pytest.raises(ValueError, match="other"), jobs(2), begun(lambda: time.sleep(600)):
        raise ValueError("other")
    assert {child.pid for child in multiprocessing.active_children()} == before


KILLED = """
import os, time
from koncord._jobs import fork, jobs, spread

def work(end):
    end.send(os.getpid())
    end.recv()

ends = [fork(work)[1] for _ in range(2)]
print(*(end.recv() for end in ends), flush=True)
with jobs(2):
    spread(lambda item: os.write(1, b"%d\\n" % os.getpid()) and time.sleep(item), [3, 0])  # a line in one piece
"""


def test_no_process_waits_for_more_work_once_the_one_that_began_it_is_killed():
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        pids = {int(pid) for _ in range(3) for pid in parent.stdout.readline().split()}
        parent.kill()
        assert parent.stderr.read() == ""  # read to its end: no process has it open
    assert len(pids) == 4
    until = time.monotonic() + 30
    while any(map(is_running, pids)):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
