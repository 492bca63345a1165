"""Sites that come and go: who was away at the beginning is brought up to date before it takes part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from koncord.aggregate.base import Message, Replies
from koncord.session.rounds import Link, RoundRequest

OPENING_ROUND = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A message every client answers once, before anything that follows it."""

    message: Message
    replies: dict[str, Any] = field(default_factory=dict)  # by client, as they come in


class Roster:
    """A link in which a client's messages follow the openings it has not answered yet, in the same exchange.

    A client that misses an exchange keeps its own state and is asked again in the next one. One that was away when the
    others were prepared gets the same preparation with its first message.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.clients = link.clients
        self.openings: list[Opening] = []

    def require(self, message: Message) -> dict[str, Any]:
        """From now on every client answers `message` first; the replies, filled as they come."""
        opening = Opening(message=message)
        self.openings.append(opening)
        return opening.replies

    def open(self) -> None:
        """Ask every client for the openings it has not answered."""
        self._exchange(self.clients, [])

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        return self._exchange([client for client in self.clients if any(client in each.down for each in asked)], asked)

    def _exchange(self, clients: Sequence[str], asked: Sequence[RoundRequest]) -> list[Replies]:
        openings = [
            (opening, {client: opening.message for client in clients if client not in opening.replies})
            for opening in self.openings
        ]
        openings = [(opening, down) for opening, down in openings if down]
        first = [RoundRequest(round_=OPENING_ROUND, down=down) for _, down in openings]
        received = self.link.exchange_all([*first, *asked])
        for (opening, _), replies in zip(openings, received, strict=False):
            opening.replies.update(replies)
        return received[len(first) :]
