"""Sites of one process spread over several cores (see `koncord._jobs`).

Each worker keeps some of the sites for the whole run, shares their tables, and takes and gives the bytes that a network
would carry. A site's answer depends on the site and on what it was asked alone: the number of workers changes no byte.
"""

from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from koncord._jobs import can_fork, fork, n_cores, portable, received
from koncord._validation import check_count
from koncord.session.site import Site
from koncord.session.streamedsite import StreamedSite

# Values of the tables that a worker should have at least: below, starting it takes longer than its work.
LEAST_VALUES = 1 << 15


class Answer(NamedTuple):
    """What one site replied, and the seconds that each reply took."""

    replies: list[bytes]
    seconds: list[float]


def n_workers(n_jobs: int | None, sites: Sequence[Site]) -> int:
    """How many workers to start for some sites; 1 starts none.

    Parameters
    ----------
    n_jobs : int or None
        Most workers; None is 1, -1 all cores.
    sites : sequence of Site
        A site with a privacy budget, whose noise is not to be drawn twice, stays in this process with all others; so
        does one whose table is read batch by batch.
    """
    if n_jobs is None:
        return 1
    most = n_cores() if n_jobs == -1 else check_count("n_jobs", n_jobs, owner="fit")
    if not can_fork() or any(site.private is not None or isinstance(site, StreamedSite) for site in sites):
        return 1
    paying = sum(site.table.size for site in sites) // LEAST_VALUES
    return max(min(most, len(sites), paying), 1)


class Workers:
    """Processes that answer for some sites until they are closed.

    Parameters
    ----------
    sites : mapping of str to Site
        By name.
    n : int
        How many processes.
    """

    def __init__(self, sites: Mapping[str, Site], n: int) -> None:
        self.sites = sites
        self.processes: list[Any] = []
        self.ends: list[Connection] = []
        self.worker_of: dict[str, int] = {}
        self.is_amid = False  # whether answers may be under way
        for at, names in enumerate(shares_of(sites, n)):
            process, end = fork(work, {name: sites[name] for name in names})
            self.processes.append(process)
            self.ends.append(end)
            self.worker_of |= dict.fromkeys(names, at)

    def answers(self, down: Mapping[str, Sequence[bytes]]) -> Iterator[tuple[str, Answer]]:
        """The answer of each site to its messages, as they come; if some fail, the error of the first by name."""
        waiting: dict[Any, int] = {}
        self.is_amid = True
        for at, end in enumerate(self.ends):
            own = {name: list(messages) for name, messages in down.items() if self.worker_of[name] == at}
            if own:
                end.send(own)
                waiting[end] = len(own)
        failed: dict[str, Exception] = {}
        while waiting:
            ready: Any
            for ready in wait(list(waiting)):
                name, answer = received(ready)
                waiting[ready] -= 1
                if not waiting[ready]:
                    del waiting[ready]
                if isinstance(answer, Exception):
                    failed[name] = answer
                else:
                    yield name, answer
        self.is_amid = False
        if failed:
            raise failed[min(failed)]

    def close(self) -> None:
        """End the workers; unless they are amid an answer, the sites of this process then know what they found."""
        if self.is_amid:
            for process in self.processes:
                process.terminate()
                process.join()
            self.ends = []
        for end in self.ends:
            end.send(None)
        for end, process in zip(self.ends, self.processes, strict=False):
            for name, kept in received(end)[1].items():
                if kept is not None:
                    self.sites[name].learn(*kept)
            process.join()
            end.close()
        self.ends, self.processes = [], []


def shares_of(sites: Mapping[str, Site], n: int) -> list[list[str]]:
    """Names of the sites of each worker: the largest first, each to the worker that has the fewest values."""
    shares: list[list[str]] = [[] for _ in range(n)]
    loads = [0] * n
    for name in sorted(sites, key=lambda name: (-sites[name].table.size, name)):
        least = loads.index(min(loads))
        shares[least].append(name)
        loads[least] += sites[name].table.size
    return shares


def work(end: Connection, sites: Mapping[str, Site]) -> None:
    """What a worker does: answer for its sites until there is no more to answer, then tell what it found."""
    while (down := end.recv()) is not None:
        for name, messages in down.items():
            try:
                end.send((name, Answer(*sites[name].answer_all(messages))))
            except Exception as error:
                end.send((name, portable(error)))
    end.send(("", {name: kept_of(site) for name, site in sites.items()}))


def kept_of(site: Site) -> tuple[Any, Any, Any, Any] | None:
    """What a site knows at the end of a run, for the same site in another process."""
    return None if site.prepared is None else (site.measured, site.prepared, site.estimate, site.state)
