"""The progress bar: on a terminal, and only when the work takes long; elsewhere nothing."""

import sys
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Work that is over sooner needs no bar.
PATIENCE = 1.0
STEPS = 1000


class ProgressBar:
    """A listener for `koncord._progress.reporting` that draws what it hears on stderr, and removes it when done."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.done, self.what = 0.0, ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._is_over = False
        self._lock = Lock()
        self._timer = Timer(patience, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __call__(self, done: float, what: str) -> None:
        with self._lock:
            self.done, self.what = done, what or self.what
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=round(STEPS * self.done), description=self.what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._is_over:
                return
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
            )
            self._task = self._bar.add_task(self.what, total=STEPS, completed=round(STEPS * self.done))
            self._bar.start()
