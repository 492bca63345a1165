"""Progress of long work: the library reports, and a caller listens with `reporting`.

A library that nobody listens to stays silent, and no signature carries a callback.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[float, str], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Within the block, `listener` gets the share of the work that is done, from 0 to 1, and what is being done."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Within the block nobody listens."""
    token = _listener.set(None)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part(start: float, stop: float, what: str) -> Iterator[None]:
    """Within the block, reports from 0 to 1 fill `start` to `stop` of the work outside."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    with reporting(lambda done, inner: outer(start + (stop - start) * done, f"{what}: {inner}" if inner else what)):
        report(0.0)
        yield


def report(done: float, what: str = "") -> None:
    listener = _listener.get()
    if listener is not None:
        listener(min(max(done, 0.0), 1.0), what)
