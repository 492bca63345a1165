"""The progress bar: on a terminal or in a notebook, and only when the work takes long; elsewhere nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from threading import Lock, Timer
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from koncord._progress import reporting

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Work that is over sooner needs no bar.
BAR_PATIENCE = 1.0
BAR_STEPS = 1000
# A notebook redraws a whole cell: not more often than this, in seconds.
PACE = 0.2


@contextmanager
def progress(patience: float = BAR_PATIENCE) -> Iterator[None]:
    """Show how far the work in the block is: on a terminal, or in the cell of a notebook.

    Parameters
    ----------
    patience : float, default 1.0
        Seconds before anything is shown. What was shown goes when the block ends.

    Examples
    --------
    >>> import koncord
    >>> sites = koncord.data.penguins().tables
    >>> with koncord.progress():
    ...     clustering = koncord.FederatedClustering(standardize=True, random_state=0).fit(sites)
    """
    with ProgressBar(patience) as bar, reporting(bar):
        yield


class ProgressBar:
    """A listener for `koncord._progress.reporting` that draws what it hears, and removes it when done.

    On a terminal it draws on stderr, in a notebook in the output of the cell.
    """

    def __init__(self, patience: float = BAR_PATIENCE) -> None:
        self.done, self.what = 0.0, ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._cell: NotebookBar | None = None
        self._is_over = False
        self._lock = Lock()
        self._timer = Timer(patience, self._show)
        self._timer.daemon = True
        self._patience = patience

    def __enter__(self) -> Self:
        if in_notebook():
            self._cell = NotebookBar(self._patience)
        elif sys.stderr.isatty():
            self._timer.start()
        return self

    def __call__(self, done: float, what: str) -> None:
        with self._lock:
            self.done, self.what = done, what or self.what
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=round(BAR_STEPS * self.done), description=self.what)
            if self._cell is not None:
                self._cell.update(self.done, self.what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()
            if self._cell is not None:
                self._cell.clear()

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
            self._task = self._bar.add_task(self.what, total=BAR_STEPS, completed=round(BAR_STEPS * self.done))
            self._bar.start()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")  # a notebook has imported it
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookBar:
    """A bar in the output of a notebook's cell, the browser's own: rich draws there with ipywidgets only."""

    def __init__(self, patience: float) -> None:
        self._next = monotonic() + patience
        self._shown: Any = None

    def update(self, done: float, what: str) -> None:
        if monotonic() < self._next:
            return
        self._next = monotonic() + PACE
        self._draw(
            f'<progress value="{round(BAR_STEPS * done)}" max="{BAR_STEPS}"></progress> '
            f"{round(100 * done)} % {escape(what)}"
        )

    def clear(self) -> None:
        if self._shown is not None:
            self._draw("")

    def _draw(self, content: str) -> None:
        shown_by: Any = import_module("IPython.display")  # koncord does not depend on it
        if self._shown is None:
            self._shown = shown_by.display(shown_by.HTML(content), display_id=True)
        else:
            self._shown.update(shown_by.HTML(content))
