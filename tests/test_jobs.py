"""Work that is spread over processes."""

import os
import sys

import numpy as np
import pytest

from koncord._jobs import jobs, spread
from koncord.errors import KoncordError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_results_come_in_the_order_of_the_items_whatever_the_number_of_processes(n):
    offset = np.arange(3.0)
    with jobs(n):
        found = spread(lambda item: (item, item + offset), [5, 1, 4, 2, 3])
    assert [item for item, _ in found] == [5, 1, 4, 2, 3]
    assert all(np.array_equal(values, item + offset) for item, values in found)


def test_each_process_takes_its_own_items_and_none_is_spread_further():
    with jobs(2):
        pids = spread(lambda _: (os.getpid(), *spread(lambda _: os.getpid(), [0, 1])), [0, 1, 2])
    assert pids[0] == pids[2] != pids[1]
    assert os.getpid() not in pids[0]
    assert all(len(set(each)) == 1 for each in pids)


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


def test_a_process_that_dies_is_an_error():
    with jobs(2), pytest.raises(KoncordError, match="--jobs 1"):
        spread(lambda item: os._exit(1), [0, 1])
