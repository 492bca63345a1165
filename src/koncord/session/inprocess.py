"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from koncord._extras import require
from koncord._progress import part
from koncord.aggregate.base import Aggregator
from koncord.aggregate.private import check_private_form
from koncord.errors import ColumnsDiffer
from koncord.estimate.known import KnownCounts
from koncord.privacy.budget import Accountant, Budget
from koncord.privacy.mechanism import Mechanism, SummedMechanism
from koncord.protocol import setup
from koncord.protocol.departures import Departure
from koncord.protocol.ledger import Ledger, ledger_file
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried, Journal, PackedLink
from koncord.types import FloatArray

__all__ = ["Departure", "InProcess", "in_process", "summed_in_process"]


class InProcess(PackedLink):
    """Link to sites in this process."""

    def __init__(self, sites: Sequence[Site], *, min_sites: int = 1, journal: Journal | None = None) -> None:
        super().__init__([site.name for site in sites], min_sites=min_sites, journal=journal)
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        replies: dict[str, list[bytes]] = {}
        seconds: dict[str, list[float]] = {}
        for at, (client, messages) in enumerate(down.items()):
            with part(at / len(down), (at + 1) / len(down), client):
                replies[client], seconds[client] = self.sites[client].answer_all(messages)
        return Carried(replies=replies, seconds=seconds)


def in_process(
    tables: Mapping[str, tuple[FloatArray, tuple[str, ...]]],
    *,
    estimator: Any,
    aggregator: Aggregator,
    policy: SitePolicy | None = None,
    ledgers: Path | None = None,
    run: str = "",
) -> InProcess:
    """Link to the sites of some tables, all with the same method and the same limits.

    Parameters
    ----------
    tables : mapping of str to (array (n_samples, n_features), tuple of str)
        Rows and column names of each site, by its name.
    estimator : estimator
        Phase 1, the same at every site; `KnownCounts` gives each site its own count.
    aggregator : Aggregator
        Phase 2.
    policy : SitePolicy, default None
        What may leave every site; None is `SitePolicy()`.
    ledgers : Path, default None
        Folder in which every site appends to a ledger of its own; made if it is not there.
    run : str, default ""
        Name of the run in the ledgers.
    """
    if ledgers is not None:
        ledgers.mkdir(parents=True, exist_ok=True)
    return InProcess(
        [
            Site(
                name,
                X,
                columns,
                estimator=estimator.for_client(name, at) if isinstance(estimator, KnownCounts) else estimator,
                aggregator=aggregator,
                policy=policy,
                ledger=None if ledgers is None else Ledger(ledger_file(ledgers, name), run=run, site=name),
            )
            for at, (name, (X, columns)) in enumerate(tables.items())
        ]
    )


def summed_in_process(
    tables: Mapping[str, tuple[FloatArray, tuple[str, ...]]],
    *,
    estimator: Any,
    aggregator: Aggregator,
    policy: SitePolicy,
) -> InProcess:
    """Link to the sites of some tables of which the server sees sums alone: they answer as one site.

    Every release of a site is a vector of whole numbers with its share of the noise. These are added up under masks
    (`koncord.privacy.securesums`); the server is told the sum, whose noise is that of one site with the whole budget.

    Parameters
    ----------
    tables : mapping of str to (array (n_samples, n_features), tuple of str)
        Rows and column names of each site, by its name.
    estimator : estimator
        Phase 1, which is left out.
    aggregator : Aggregator
        Phase 2; one that needs the answers of single sites is refused by its name.
    policy : SitePolicy
        What may leave every site; it has a budget.
    """
    require("secure", "A secure sum")
    from koncord.privacy.securesums import AddsUpInProcess, least_threshold

    budget: Budget | None = policy.budget
    if budget is None:
        raise ValueError(
            "'secure_sums' needs a privacy budget: without noise a sum over sites tells what one of them adds to it."
        )
    check_private_form(aggregator)
    if len(tables) < 2:
        raise ValueError(f"'secure_sums' needs at least 2 sites; got {len(tables)}.")
    columns = next(iter(tables.values()))[1]
    members = {}
    for name, (X, own) in sorted(tables.items()):
        if set(own) != set(columns):
            raise ColumnsDiffer(f"With 'secure_sums' all sites need the same columns; those of site {name!r} differ.")
        plan = aggregator.private_plan(budget.rounds)
        accountant = Accountant(budget, plan, n_sharing=least_threshold(len(tables)))
        members[name] = Mechanism(X[:, setup.order_of(own, columns)], accountant)
    together = Site(
        f"{len(tables)} sites together",
        np.empty((0, len(columns))),
        columns,
        estimator=estimator,
        aggregator=aggregator,
        policy=policy,
        mechanism=SummedMechanism(members, AddsUpInProcess(members)),
    )
    return InProcess([together])
