"""Runs in worker processes: every end of a run is a row."""

import multiprocessing
import os
import signal
import sys

import pytest

from koncord_reproduction.execute import THREADS, Clock, execute, first_ready, one_blas_thread
from koncord_reproduction.plan import needs, plan, rough_seconds
from koncord_reproduction.rows import DONE, FAILED, TIMED_OUT, Row, Run
from koncord_reproduction.runner import values_of
from koncord_reproduction.store import Store

TIMES = ("phase1_ms", "phase2_seconds")
OTHER = Run("classes", "waveform", "classes", 0)
SLOW = Run("tune-pooled", "waveform", "dpgmm", 1000)


def make(folder, runs, known=(), n_jobs=1, **how):
    with Store(folder) as store:
        execute(runs, store, known={row.run: row for row in known}, n_jobs=n_jobs, **how)
        return store.rows


def without_times(values):
    return {name: value for name, value in values.items() if name not in TIMES}


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """A machine that holds no data set; workers start from the same environment."""
    monkeypatch.setenv("KONCORD_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("KONCORD_OFFLINE", "1")


def test_rows_hold_what_the_runs_give_here_one_after_the_other(tmp_path):
    runs = plan(["federated-a"], datasets=["waveform"], methods=["oracle"], seeds=[42, 43])
    rows = make(tmp_path, runs, n_jobs=2)
    assert set(rows) == set(runs)
    for run in runs:
        assert rows[run].status == DONE
        assert rows[run].seconds > 0
        assert "numpy" in rows[run].versions
        here = values_of(run, [rows[need] for need in needs(run)])
        assert without_times(rows[run].values) == without_times(here)


def test_a_run_that_fails_is_a_row_with_the_reason_and_so_is_one_that_needs_it(no_data, tmp_path):
    runs = plan(["federated-a"], datasets=["abalone"], methods=["oracle"], seeds=[42])
    rows = make(tmp_path / "rows", [*runs, OTHER], n_jobs=2)
    assert {row.status for run, row in rows.items() if run != OTHER} == {FAILED}
    assert "'abalone' is not on this machine" in rows[runs[0]].reason
    assert rows[runs[0]].values == {}
    assert rows[OTHER].status == DONE


def test_a_run_whose_tuning_failed_says_so(tmp_path):
    run = Run("federated-a", "waveform", "oracle", 42)
    tuning = [Row(run=need, status=FAILED, reason="why", seconds=0, versions="") for need in needs(run)]
    row = make(tmp_path, [run], known=tuning)[run]
    assert row.status == FAILED
    assert row.reason.startswith("KoncordError: no upsilon could be chosen")


def test_a_run_that_takes_too_long_is_a_row_and_the_next_one_is_made(tmp_path):
    rows = make(tmp_path, [SLOW, OTHER], limit_of=lambda run: 0.2 if run == SLOW else 60.0)
    assert (rows[SLOW].status, rows[SLOW].reason, rows[SLOW].seconds) == (TIMED_OUT, "more than 0.2 s", 0.2)
    assert rows[OTHER].status == DONE


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_run_whose_process_is_killed_is_a_row_and_the_next_one_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("koncord_reproduction.execute.BEAT", 0.1)  # a quiet machine is done within two seconds
    beats, killed = [], []

    def kill_in_the_second_run(progress):
        beats.append(progress.running)
        if beats[-2:] == [[SLOW], [SLOW]] and not killed:
            killed.extend(child.pid for child in multiprocessing.active_children())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    last = Run("partition-a", "waveform", "partition", 42)
    rows = make(tmp_path, [OTHER, SLOW, last], listen=kill_in_the_second_run)
    assert len(killed) == 1
    assert (rows[SLOW].status, rows[SLOW].reason) == (FAILED, "its process ended with code -9")
    assert rows[OTHER].status == rows[last].status == DONE


def test_the_listener_hears_of_every_end_once(tmp_path):
    heard = []
    runs = plan(["points-per-cluster"], datasets=["waveform"], seeds=[42, 43])
    make(tmp_path, runs, listen=heard.append)
    assert sorted(row.run for progress in heard for row in progress.ended) == sorted(runs)
    assert [progress.n_done for progress in heard] == sorted(progress.n_done for progress in heard)
    assert (heard[-1].n_done, heard[-1].n_all, heard[-1].running) == (5, 5, ())
    assert all(len(progress.running) == 1 for progress in heard[:-1])


def test_nothing_to_do_starts_no_process(tmp_path):
    assert make(tmp_path, []) == {}
    assert multiprocessing.active_children() == []


def test_a_run_waits_for_what_it_needs_and_lets_others_pass():
    first, second, run = plan(["federated-a"], datasets=["waveform"], methods=["oracle"], seeds=[42])
    assert first_ready([run, first, second], []) == first
    assert first_ready([run, OTHER], [first]) == OTHER
    assert first_ready([run], [second]) is None
    assert first_ready([run], [OTHER]) == run
    assert first_ready([], []) is None


def test_new_processes_start_with_one_thread_a_library(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with one_blas_thread():
        assert {os.environ[name] for name in THREADS} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_the_time_left_falls_to_nothing():
    runs = plan(["federated-a"], datasets=["waveform"], methods=["oracle"], seeds=[42])
    clock = Clock(runs, n_jobs=2)
    assert clock.progress(runs, []).seconds_left == pytest.approx(sum(map(rough_seconds, runs)) / 2)
    for run in runs:
        clock.note(run)
    assert clock.progress((), []).seconds_left == pytest.approx(0, abs=1e-9)
