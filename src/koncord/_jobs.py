"""Work spread over cores by processes that are forked from this one, see its data, and send back what they found.

Most work here is many small NumPy calls, which hold Python's lock: threads would take turns. A fresh process would
first spend seconds on imports. Where there is no safe fork, work is done in turn. What is spread is pure, so its result
does not depend on the number of processes. Work in C that lets go of the lock is spread over threads instead.
"""

import os
import pickle
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from koncord._progress import silent
from koncord._threads import one_thread
from koncord.errors import KoncordError

T = TypeVar("T")
R = TypeVar("R")

_n_jobs: ContextVar[int] = ContextVar("n_jobs", default=1)


@contextmanager
def jobs(n: int) -> Iterator[None]:
    """Within the block, work that can be spread is done by `n` processes at a time."""
    token = _n_jobs.set(n)
    try:
        yield
    finally:
        _n_jobs.reset(token)


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    return sys.platform == "linux"


def spread(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The function of each item, in their order; what it raises of the first item is raised.

    Parameters
    ----------
    function : callable
        Pure: what it changes is lost.
    items : sequence
        Longer work first, if one takes much longer: a process that is done takes the next one.
    """
    n = min(_n_jobs.get(), len(items))
    if n < 2 or not can_fork():
        return [function(item) for item in items]
    started = [fork(_apply, function, items) for _ in range(n)]
    left = iter(range(len(items)))
    doing: dict[Any, int] = {}  # the item of each process
    found: dict[int, Any] = {}
    try:
        for (_, end), at in zip(started, left, strict=False):
            end.send(at)
            doing[end] = at
        while doing:
            ready: Any
            for ready in wait(list(doing)):
                found[doing.pop(ready)] = received(ready)
                following = next(left, None)
                ready.send(following)
                if following is not None:
                    doing[ready] = following
    finally:
        for process, end in started:
            if doing:
                process.terminate()
            process.join()
            end.close()
    for at in range(len(items)):
        if isinstance(found[at], Exception):
            raise found[at]
    return [found[at] for at in range(len(items))]


@contextmanager
def begun(function: Callable[[], R]) -> Iterator[Callable[[], R]]:
    """Begin some work beside what is done in the block: a function that waits for it and gives what it found.

    Parameters
    ----------
    function : callable
        Pure, as for `spread`. With one process it is called when its result is first asked for.
    """
    if _n_jobs.get() < 2 or not can_fork():
        yield cache(function)
        return
    process, end = fork(_do, function)

    @cache
    def found() -> R:
        result = received(end)
        if isinstance(result, Exception):
            raise result
        return cast(R, result)

    try:
        yield found
    finally:
        process.terminate()  # if nobody asked
        process.join()
        end.close()


def in_threads(function: Callable[[T], None], items: Iterable[T]) -> None:
    """Do the work of each item, several at a time; items share nothing that the work changes, so order is no matter."""
    n = _n_jobs.get()
    if n < 2:
        for item in items:
            function(item)
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(n) as pool:
            for _ in pool.map(function, items):
                pass


def in_order(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The function of each item, in their order, by threads; only a few items are held at a time.

    Parameters
    ----------
    function : callable
        Work in C that lets go of Python's lock.
    items : iterable
        Taken one after the other while the work goes on.
    """
    n = _n_jobs.get()
    if n < 2:
        yield from map(function, items)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(n) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * n:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _apply(end: Connection, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    while (at := end.recv()) is not None:
        _do(end, partial(function, items[at]))


def _do(end: Connection, function: Callable[[], Any]) -> None:
    try:
        found = function()
    except Exception as error:
        found = portable(error)
    end.send(found)


def fork(work: Callable[..., None], *given: Any) -> tuple[Any, Connection]:
    """A process that does ``work(end, *given)`` on one thread, ended with this one; and our end of its pipe."""
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_alone, args=(work, theirs, ours, *given), daemon=True)
    with warnings.catch_warnings():  # from Python 3.12 on: BLAS has threads of its own, which a fork stops
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return process, ours


def _alone(work: Callable[..., None], end: Connection, others: Connection, *given: Any) -> None:
    others.close()  # else this process would not see that the parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the person stops the parent, which ends its workers
    with suppress(EOFError, ConnectionError), silent(), one_thread(), jobs(1):
        work(end, *given)


def received(end: Connection) -> Any:
    """What a process sent; `KoncordError` if it is gone."""
    try:
        return end.recv()
    except EOFError:
        raise KoncordError(
            "A worker process ended before its work was done; the machine may have run out of memory. Fewer workers "
            "need less: --jobs 1 (in Python: n_jobs=1)."
        ) from None


def portable(error: Exception) -> Exception:
    """The error, or one that says the same, that another process can raise."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return KoncordError(str(error))
    return error
