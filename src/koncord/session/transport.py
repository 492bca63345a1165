"""A link over anything that carries bytes: it packs what goes down, checks what comes up, and keeps who was missing.

What comes up is taken as it was sent or not at all: a client that does not answer is missing from the exchange, and one
that answers with something else than it was asked for is set aside for the rest of the run. What is refused goes no
further than the reason: the journal keeps the replies that were taken, and who was refused and why.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from koncord._text import shortened
from koncord.aggregate.base import Message, Replies
from koncord.errors import BadReply, TooFewSites
from koncord.protocol.departures import Absence, Departure
from koncord.protocol.wire import pack
from koncord.session.guard import ReplyGuard
from koncord.session.rounds import RoundRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What came back from one exchange, as bytes."""

    replies: Mapping[str, Sequence[bytes]]  # by client, one for each message it was given
    missing: Mapping[str, str] = field(default_factory=dict)  # why, by client
    refused: Mapping[str, str] = field(
        default_factory=dict
    )  # why what it sent is not taken, by client: it is set aside
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)  # each reply took at the client


class Journal(Protocol):
    """What was carried before, so that a run goes on where it stopped."""

    def recall(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried | None:
        """What came back when `down` was sent in this exchange; None if it was not."""

    def keep(self, exchange: int, down: Mapping[str, Sequence[bytes]], carried: Carried) -> None:
        """Remember it."""


class PackedLink(ABC):
    """Link over bytes; `departures` lists every message that left a site, `absences` who was missing when.

    Parameters
    ----------
    clients : sequence of str
        Names of the sites.
    min_sites : int, default 1
        Fewest sites that must answer an exchange; with fewer the run stops with `TooFewSites`.
    journal : Journal or None, default None
        Where exchanges are kept and looked up first, or None.
    """

    n_workers = 1  # processes that the work of this side may be spread over

    def __init__(self, clients: Sequence[str], *, min_sites: int = 1, journal: Journal | None = None) -> None:
        self.clients = tuple(sorted(clients))
        self.min_sites = min_sites
        self.answering: set[str] = set()  # clients that answered when they were last asked
        self.journal = journal
        self.n_exchanges = 0
        self.departures: list[Departure] = []
        self.absences: list[Absence] = []
        self.set_aside: dict[str, str] = {}
        self.guard = ReplyGuard()

    @abstractmethod
    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        """Give every client named in `down` its messages and wait for the answers, not longer than it takes."""

    def close(self) -> None:  # noqa: B027, most links hold nothing
        """Give back what the link holds beside its sites; it may be called again."""

    def exchange(self, round_: int, down: Mapping[str, Message]) -> Replies:
        """An exchange of one message a client."""
        return self.exchange_all([RoundRequest(round_=round_, down=down)])[0]

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        self.n_exchanges += 1
        by_client = {client: [at for at, each in enumerate(asked) if client in each.down] for client in self.clients}
        wanted = {client: parts for client, parts in by_client.items() if parts and client not in self.set_aside}
        down = packed(asked, wanted)
        known = None if self.journal is None else self.journal.recall(self.n_exchanges, down)
        carried = self.carry(self.n_exchanges, down) if known is None else known
        taken, refused = accepted(carried, {c: [asked[at] for at in wanted[c]] for c in wanted}, self.guard)
        missing = {c: carried.missing.get(c, "no answer") for c in wanted if c not in taken and c not in refused}
        reasons = missing | refused
        if known is None:
            n_present = len(taken) + len(self.answering - wanted.keys())  # some are not asked in every exchange
            if n_present < self.min_sites:
                raise TooFewSites(self.n_exchanges, n_present, self.min_sites, reasons)
            if self.journal is not None:
                self.journal.keep(self.n_exchanges, down, only_taken(carried, taken, missing, refused))
        self.set_aside |= refused
        self.answering = (self.answering | taken.keys()) - reasons.keys()
        self.absences += [
            Absence(
                exchange=self.n_exchanges,
                site=client,
                asked=type(asked[wanted[client][-1]].down[client]).__name__,
                reason=reasons[client],
            )
            for client in wanted
            if client in reasons
        ]
        for client, messages in taken.items():
            self._note_departures(client, messages, carried)
        received: list[Replies] = [
            {c: taken[c][wanted[c].index(at)] for c in taken if at in wanted[c]} for at in range(len(asked))
        ]
        return received

    def _note_departures(self, client: str, messages: Sequence[Any], carried: Carried) -> None:
        seconds = carried.seconds.get(client, [0.0] * len(messages))
        self.departures += [
            Departure(
                exchange=self.n_exchanges,
                site=client,
                message=type(message).__name__,
                numbers=count_numbers(message),
                n_bytes=len(data),
                seconds=round(took, 6),
            )
            for message, data, took in zip(messages, carried.replies[client], seconds, strict=True)
        ]


def packed(asked: Sequence[RoundRequest], parts: Mapping[str, Sequence[int]]) -> dict[str, list[bytes]]:
    """Bytes of every client's messages; one that goes to many is packed once."""
    known: dict[tuple[int, int], bytes] = {}
    down: dict[str, list[bytes]] = {}
    for client, positions in parts.items():
        down[client] = []
        for at in positions:
            key = at, id(asked[at].down[client])
            if key not in known:
                known[key] = pack(asked[at].down[client], round_=asked[at].round_)
            down[client].append(known[key])
    return down


def accepted(
    carried: Carried, asked: Mapping[str, Sequence[RoundRequest]], guard: ReplyGuard
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """The messages of the clients that sent what they were asked for, and why the others are refused."""
    taken: dict[str, list[Any]] = {}
    refused = {client: carried.refused[client] for client in asked if client in carried.refused}
    for client in asked:
        if client in carried.replies and client not in refused:
            agreed = dict(guard.agreed)
            try:
                taken[client] = unpacked(client, carried.replies[client], asked[client], guard)
            except BadReply as error:
                guard.agreed = agreed  # as in a run that is resumed and never sees the reply
                refused[client] = set_aside_for(error.reason)
    return taken, refused


def set_aside_for(reason: str) -> str:
    """Why a client is asked no more, as it is shown."""
    return shortened(f"set aside: {reason}")


def only_taken(
    carried: Carried, taken: Collection[str], missing: Mapping[str, str], refused: Mapping[str, str]
) -> Carried:
    """What a resumed run must know: the replies that were taken, and of the others why they were not."""
    return Carried(
        replies={client: carried.replies[client] for client in taken},
        missing=missing,
        refused=refused,
        seconds={client: took for client, took in carried.seconds.items() if client in taken},
    )


def unpacked(client: str, replies: Sequence[bytes], asked: Sequence[RoundRequest], guard: ReplyGuard) -> list[Any]:
    """The messages in `replies`, one for each that was asked and as it was asked for."""
    if len(replies) != len(asked):
        raise BadReply(client, f"{len(replies)} replies came where {len(asked)} were expected.")
    return [guard.read(client, data, each.down[client], each.round_) for data, each in zip(replies, asked, strict=True)]


def count_numbers(message: Any) -> int:
    """Numbers a message holds, in arrays and alone; names of columns are not numbers."""
    values = [getattr(message, each.name) for each in fields(message)]
    return sum(value.size if isinstance(value, np.ndarray) else isinstance(value, int | float) for value in values)
