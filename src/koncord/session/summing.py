"""Runs in which the server sees sums over sites only: the sites answer as one.

To the aggregator there is one client, "10 sites together". What it releases is asked of the sites of a link, in this
process or over a network, by the messages of `koncord.privacy.securesums`.
"""

from collections.abc import Mapping
from dataclasses import replace
from secrets import token_bytes
from typing import Any

import numpy as np

from koncord.aggregate.base import Aggregator, Replies
from koncord.aggregate.private import check_private_form
from koncord.model.globalmodel import GlobalModel
from koncord.privacy.budget import HOLDINGS, Accountant, Budget
from koncord.privacy.masking import SECRET_BYTES
from koncord.privacy.mechanism import Ball, SummedMechanism
from koncord.privacy.releases import REPLIES, AskNumbers, parties_in_process, session_of
from koncord.privacy.securesums import SumServer, least_threshold
from koncord.protocol import setup
from koncord.protocol.schema import sent_by
from koncord.session import federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.roster import Roster
from koncord.session.rounds import RoundRequest
from koncord.session.site import Site
from koncord.session.transport import PackedLink
from koncord.types import FloatArray, IntArray

# What a run with secure sums does not know, for a reader.
LOST_IN_SUMS = (
    "The server saw sums over all sites only: which site holds which clusters, how many sites support a cluster, and "
    "how stable it is when sites are left out are not known."
)

IN_PROCESS = b"one process"  # the session of sites whose keys are of one run


def summed_in_process(
    tables: Mapping[str, tuple[FloatArray, tuple[str, ...]]], *, aggregator: Aggregator, policy: SitePolicy
) -> InProcess:
    """Link to the sites of some tables, which add to sums of `run_in_sums` and tell nothing else.

    Parameters
    ----------
    tables : mapping of str to (array (n_samples, n_features), tuple of str)
        Rows and column names of each site, by its name.
    aggregator : Aggregator
        Phase 2.
    policy : SitePolicy
        What may leave every site; it has a budget.
    """
    check_summed(aggregator, policy, len(tables))
    secrets = {name: token_bytes(SECRET_BYTES) for name in tables}
    parties = parties_in_process(frozenset(tables), secrets, IN_PROCESS)
    return InProcess(
        [
            Site(name, X, columns, estimator=None, aggregator=aggregator, policy=policy, parties=parties[name])
            for name, (X, columns) in tables.items()
        ]
    )


def run_in_sums(
    link: PackedLink,
    aggregator: Aggregator,
    *,
    session: bytes,
    policy: SitePolicy,
    seed: int,
    n_parties: int | None = None,
    common_columns: bool = False,
    **arguments: Any,
) -> federation.RunResult:
    """Both phases over the sites of a link, of which the server sees sums alone.

    Parameters
    ----------
    link : PackedLink
        The sites, each with the same budget and with the others as its `parties`.
    aggregator : Aggregator
        Phase 2; one that needs the answers of single sites is refused by its name.
    session : bytes
        Names the run, the same as at the sites.
    policy : SitePolicy
        Of every site; it has a budget.
    seed : int
        Of all random streams but the noise.
    n_parties : int or None, default None
        Sites that the run was stated with, of which some may not be asked; None is those of the link.
    common_columns : bool, default False
        Use the columns that all sites have and leave out the others.
    **arguments
        Others of `koncord.session.federation.run`.
    """
    n_parties = n_parties or len(link.clients)
    budget = check_summed(aggregator, policy, n_parties)
    sums = SumsOverLink(link, session=session, seed=seed, n_parties=n_parties)
    columns = sums.open(common=common_columns)
    plan = aggregator.private_plan(budget.rounds)
    accountant = Accountant(budget, plan, n_sharing=least_threshold(n_parties))
    together = Site(
        f"{n_parties} sites together",
        np.empty((0, len(columns))),
        columns,
        estimator=None,
        aggregator=aggregator,
        policy=policy,
        mechanism=SummedMechanism(len(columns), accountant, n_parties, sums),
    )
    notes = (*arguments.pop("notes", ()), LOST_IN_SUMS)
    found = federation.run(
        InProcess([together]), aggregator, seed=seed, standardize=False, site_policy=policy, notes=notes, **arguments
    )
    sums.close(found.model)
    facts = replace(found.model.session, exchanges=link.n_exchanges, missing=tuple(link.absences))
    return replace(
        found,
        model=replace(found.model, session=facts),
        record=replace(
            found.record, departures=tuple(link.departures), sends=(*setup.SENDS, *sent_by(REPLIES.values()))
        ),
        reports=None,
    )


def check_summed(aggregator: Aggregator, policy: SitePolicy, n_sites: int) -> Budget:
    """The budget of a run with secure sums; an error where there can be none."""
    if policy.budget is None:
        raise ValueError(
            "'secure_sums' needs a privacy budget: without noise a sum over sites tells what one of them adds to it."
        )
    check_private_form(aggregator)
    if n_sites < 2:
        raise ValueError(f"'secure_sums' needs at least 2 sites; got {n_sites}.")
    return policy.budget


class SumsOverLink:
    """Asks the sites of a link for sums, one after the other.

    A sum takes three exchanges: the keys and shares of the next one go with the last two. A site that drops out is left
    out of the sum, and asked again for the next.

    Parameters
    ----------
    link : PackedLink
        The sites.
    session : bytes
        Names the run.
    seed : int
        Of the run, for the sites' labels.
    n_parties : int or None, default None
        Sites that know of each other in this run; None is those of the link.
    """

    def __init__(self, link: PackedLink, *, session: bytes, seed: int, n_parties: int | None = None) -> None:
        self.link, self.session, self.seed = link, session, seed
        self.roster = Roster(link)
        self.least = least_threshold(n_parties or len(link.clients))
        self._round = self._number = 0
        self._coming: tuple[SumServer, Replies] | None = None
        link.guard.expect(REPLIES)

    def open(self, *, common: bool = False) -> tuple[str, ...]:
        """Agree on the columns: those that sites have in `common`, or `ColumnsDiffer` unless all have the same."""
        surveyed = self.roster.require(setup.Survey())
        self.roster.open()
        columns = setup.agreed_columns(surveyed, common=common)
        means, scales = setup.no_scale(columns)
        self.roster.require(
            setup.Prepare(seed=self.seed, columns=columns, means=means, scales=scales, asks_local_k=False)
        )
        return columns

    def __call__(self, kind: str, centers: FloatArray | None, ball: Ball | None, n: int) -> tuple[IntArray, int]:
        """The sum of a release of all sites, and how many are in it."""
        question = AskNumbers(
            kind=kind,
            centers=centers,
            ball_center=None if ball is None else ball.center,
            ball_radius=None if ball is None else float(ball.radius),
        )
        server, shares = self._coming or self._begun()
        server.n_numbers = n
        masked = server.next(shares)
        _, sent = self._ask(dict.fromkeys(masked, question), masked)
        agreement = server.next(sent)
        if kind == HOLDINGS:  # the last release of any run
            (signed,) = self._ask(agreement)
            (opened,) = self._ask(server.next(signed))
        else:
            coming = self._next_server()
            signed, keys = self._ask(agreement, coming.begin())
            opened, of_next = self._ask(server.next(signed), coming.next(keys))
            self._coming = coming, of_next
        return server.opened(opened), len(server.in_sum)

    def close(self, model: GlobalModel) -> None:
        """Give every site the clusters, to label its rows by; it tells nothing of these."""
        self._round += 1
        down = {client: federation.attribution_of(model, client) for client in self.link.clients}
        self.roster.exchange_all([RoundRequest(round_=self._round, down=down)])

    def _begun(self) -> tuple[SumServer, Replies]:
        server = self._next_server()
        (keys,) = self._ask(server.begin())
        (shares,) = self._ask(server.next(keys))
        return server, shares

    def _next_server(self) -> SumServer:
        self._number += 1
        session = session_of(self.session, self._number)
        return SumServer(session=session, number=self._number, sites=self.link.clients, threshold=self.least)

    def _ask(self, *parts: Mapping[str, Any]) -> list[Replies]:
        """One exchange of several messages; each must be answered by as many sites as a sum needs."""
        asked = []
        for down in parts:
            self._round += 1
            asked.append(RoundRequest(round_=self._round, down=down, needed=self.least))
        return self.roster.exchange_all(asked)
