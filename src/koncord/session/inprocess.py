"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from koncord._progress import part, report
from koncord.aggregate.base import Aggregator
from koncord.data.batches import SampledTable
from koncord.protocol.departures import Departure
from koncord.protocol.ledger import Ledger, ledger_file
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.streamedsite import StreamedSite
from koncord.session.transport import Carried, Journal, PackedLink
from koncord.session.workers import Answer, Workers, n_workers
from koncord.types import FloatArray

__all__ = ["Departure", "InProcess", "in_process"]


class InProcess(PackedLink):
    """Link to sites in this process, or in workers forked from it.

    Parameters
    ----------
    sites : sequence of Site
        In any order.
    min_sites : int, default 1
        Fewest sites that must answer an exchange.
    journal : Journal or None, default None
        Where exchanges are kept and looked up first, or None.
    n_jobs : int or None, default None
        Most workers that answer at a time; None is 1, in this process, and -1 all cores.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        *,
        min_sites: int = 1,
        journal: Journal | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__([site.name for site in sites], min_sites=min_sites, journal=journal)
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}
        self.n_workers = n_workers(n_jobs, list(self.sites.values()))
        self.workers: Workers | None = None

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        answers: dict[str, Answer] = {}
        for client, answer in self._spread(down) if self.n_workers > 1 else self._in_turn(down):
            answers[client] = answer
        return Carried(
            replies={client: answers[client].replies for client in down},
            seconds={client: answers[client].seconds for client in down},
        )

    def _in_turn(self, down: Mapping[str, Sequence[bytes]]) -> Iterator[tuple[str, Answer]]:
        for at, (client, messages) in enumerate(down.items()):
            with part(at / len(down), (at + 1) / len(down), client):
                yield client, Answer(*self.sites[client].answer_all(messages))

    def _spread(self, down: Mapping[str, Sequence[bytes]]) -> Iterator[tuple[str, Answer]]:
        if self.workers is None:
            self.workers = Workers(self.sites, self.n_workers)
        for at, answered in enumerate(self.workers.answers(down), start=1):
            report(at / len(down), answered[0])
            yield answered

    def close(self) -> None:
        """End the workers, if there are any; the sites of this process then know what was found."""
        if self.workers is not None:
            self.workers.close()
            self.workers = None


def in_process(
    tables: Mapping[str, tuple[FloatArray, tuple[str, ...]]],
    *,
    estimator: Any,
    aggregator: Aggregator,
    policy: SitePolicy | None = None,
    ledgers: Path | None = None,
    run: str = "",
    levels: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
    n_jobs: int | None = None,
    streamed: Mapping[str, SampledTable] | None = None,
) -> InProcess:
    """Link to the sites of some tables, all with the same method and the same limits.

    Parameters
    ----------
    tables : mapping of str to (array (n_samples, n_features), tuple of str)
        Rows and column names of each site, by its name.
    estimator : estimator
        Phase 1, the same at every site; one with `for_client`, as `KnownCounts`, gives each site its own.
    aggregator : Aggregator
        Phase 2.
    policy : SitePolicy, default None
        What may leave every site; None is `SitePolicy()`.
    ledgers : Path, default None
        Folder in which every site appends to a ledger of its own; made if it is not there.
    run : str, default ""
        Name of the run in the ledgers.
    levels : mapping of str to mapping, default None
        The levels of each category, by site.
    n_jobs : int or None, default None
        Most sites that work at a time, each in a worker process; None is 1, -1 all cores. It changes no result.
    streamed : mapping of str to SampledTable, default None
        Tables of further sites, which are read batch by batch.
    """
    if ledgers is not None:
        ledgers.mkdir(parents=True, exist_ok=True)

    def shared(name: str, at: int) -> dict[str, Any]:
        return {
            "estimator": estimator.for_client(name, at) if hasattr(estimator, "for_client") else estimator,
            "aggregator": aggregator,
            "policy": policy,
            "ledger": None if ledgers is None else Ledger(ledger_file(ledgers, name), run=run, site=name),
        }

    in_memory = [
        Site(name, X, columns, levels=(levels or {}).get(name), **shared(name, at))
        for at, (name, (X, columns)) in enumerate(tables.items())
    ]
    by_batches = [
        StreamedSite(name, table, **shared(name, at))
        for at, (name, table) in enumerate((streamed or {}).items(), start=len(tables))
    ]
    return InProcess([*in_memory, *by_batches], n_jobs=n_jobs)
