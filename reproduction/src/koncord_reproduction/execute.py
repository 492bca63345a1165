"""Runs in worker processes, each with one thread and a time limit; every row is stored when its run ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from multiprocessing import connection, get_context, parent_process
from time import monotonic, perf_counter
from typing import Any

from pebble import ProcessExpired, ProcessPool

from koncord.errors import KoncordError
from koncord_reproduction.plan import needs, rough_seconds, time_limit
from koncord_reproduction.rows import DONE, FAILED, TIMED_OUT, Row, Run
from koncord_reproduction.store import Store

# Seconds between two reports while nothing ends.
BEAT = 1.0
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the work is."""

    n_done: int
    n_all: int
    seconds_left: float
    running: Sequence[Run]
    ended: Sequence[Row] = field(default=())  # since the last report


def execute(
    runs: Sequence[Run],
    store: Store,
    *,
    known: Mapping[Run, Row],
    n_jobs: int,
    listen: Callable[[Progress], None] = lambda progress: None,
    limit_of: Callable[[Run], float] = time_limit,
) -> None:
    """Make all `runs`, in their order as far as what they need allows, and store a row of each.

    Parameters
    ----------
    runs : sequence of Run
        To make, none of them twice; their order decides which of those that wait for nothing comes next.
    known : mapping of Run to Row
        Rows of runs that are not to be made, for those that need them.
    n_jobs : int
        Worker processes.
    listen : callable, default lambda progress: None
        Is called at every end of a run, and once a second.
    limit_of : callable, default time_limit
        Seconds a run may take.
    """
    if not runs:
        return
    rows = dict(known)
    waiting, clock = list(runs), Clock(runs, n_jobs)
    running: dict[Future[Ended], Run] = {}
    with one_blas_thread():
        pool = ProcessPool(max_workers=n_jobs, initializer=prepare_worker, context=get_context("spawn"))
        try:
            ended: list[Row] = []
            while waiting or running:
                while len(running) < n_jobs and (run := first_ready(waiting, running.values())) is not None:
                    waiting.remove(run)
                    needed = [rows[need] for need in needs(run) if need in rows]
                    running[pool.schedule(work, (run, needed), timeout=limit_of(run))] = run
                listen(clock.progress(list(running.values()), ended))
                ended = []
                for future in wait(running, timeout=BEAT, return_when=FIRST_COMPLETED).done:
                    run = running.pop(future)
                    rows[run] = row_of(run, future, limit_of(run))
                    store.add(rows[run])
                    clock.note(run)
                    ended.append(rows[run])
            listen(clock.progress((), ended))
        except BaseException:
            pool.stop()  # type: ignore[no-untyped-call]
            raise
        else:
            pool.close()  # type: ignore[no-untyped-call]
        finally:
            pool.join()


def first_ready(waiting: Sequence[Run], running: Iterable[Run]) -> Run | None:
    """The first run that waits for none of the others."""
    unfinished = {*waiting, *running}
    return next((run for run in waiting if unfinished.isdisjoint(needs(run))), None)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within the block new processes start with one thread a library, whatever this one has."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Clock:
    """Tells how long it will still take, from the rough times of the plan and the true ones so far."""

    def __init__(self, runs: Sequence[Run], n_jobs: int) -> None:
        self.n_all, self.n_done = len(runs), 0
        self.left = sum(map(rough_seconds, runs))
        self.done, self.began, self.n_jobs = 0.0, monotonic(), n_jobs

    def note(self, run: Run) -> None:
        rough = rough_seconds(run)
        self.n_done += 1
        self.left -= rough
        self.done += rough

    def progress(self, running: Sequence[Run], ended: Sequence[Row]) -> Progress:
        pace = (monotonic() - self.began) / self.done if self.done else 1 / self.n_jobs
        left = max(pace * self.left, 0.0)
        return Progress(n_done=self.n_done, n_all=self.n_all, seconds_left=left, running=running, ended=ended)


def row_of(run: Run, future: "Future[Ended]", limit: float) -> Row:
    """What came of a run that has ended, one way or another."""
    try:
        ended = future.result()
    except TimeoutError:
        return Row(run=run, status=TIMED_OUT, reason=f"more than {limit:g} s", seconds=limit, versions=versions())
    except BrokenProcessPool as error:
        raise KoncordError("The worker processes end before they begin; what was finished is stored.") from error
    except ProcessExpired as error:
        ended = Ended(seconds=0.0, reason=f"its process ended with code {error.exitcode}")
    return Row(
        run=run,
        status=FAILED if ended.reason else DONE,
        reason=ended.reason,
        seconds=ended.seconds,
        versions=versions(),
        values=ended.values,
    )


@cache
def versions() -> str:
    return " ".join(f"{name} {version(name)}" for name in ("koncord", "numpy", "scipy", "scikit-learn"))


# --- in a worker ---


def prepare_worker() -> None:
    """Ctrl-C is the parent's to handle; a worker whose parent is gone, however it went, goes too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a worker tells of a run: its values, or the reason why there are none."""

    seconds: float
    values: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def work(run: Run, needed: Sequence[Row]) -> Ended:
    from koncord_reproduction.runner import values_of

    began = perf_counter()
    try:
        values = values_of(run, needed)
    except Exception as error:  # whatever it is, it becomes a row
        return Ended(seconds=perf_counter() - began, reason=f"{type(error).__name__}: {error}")
    return Ended(seconds=perf_counter() - began, values=values)
