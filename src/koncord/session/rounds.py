"""The loop that drives an aggregator's server over any link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koncord._progress import part
from koncord.aggregate.base import Batch, Message, Outcome, Replies, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRequest:
    """One message for each of some clients, and the round whose random streams it uses."""

    round_: int
    down: Mapping[str, Message]


class Link(Protocol):
    """How messages travel."""

    clients: tuple[str, ...]

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        """Give every client its messages in one exchange; the replies to each, ordered by client name.

        A client answers its messages in the order given, all of them, or is missing from all.
        """


def run_rounds(link: Link, server: Server, *, first_round: int, first_share: float = 0.1) -> tuple["Outcome", int]:
    """Drive `server` over `link` to its outcome; also the number of the next round.

    `first_share` is the share of the work that the first exchange is expected to be, for the progress bar.
    """
    last_round, n_exchanges = first_round - 1, 0
    down = next(server)
    while True:
        parts = down.parts if isinstance(down, Batch) else ((last_round + 1, down),)
        asked = [RoundRequest(round_=at, down=by_client(link, each)) for at, each in parts]
        last_round = max(last_round, *(each.round_ for each in asked))
        with part(share_done(n_exchanges, first_share), share_done(n_exchanges + 1, first_share), "rounds"):
            answers = link.exchange_all(asked)
        n_exchanges += 1
        try:
            down = server.send(tuple(answers) if isinstance(down, Batch) else answers[0])
        except StopIteration as finished:
            outcome: Outcome = finished.value
            return outcome, last_round + 1


def by_client(link: Link, down: Message | Mapping[str, Message]) -> Mapping[str, Message]:
    return down if isinstance(down, Mapping) else dict.fromkeys(link.clients, down)


def share_done(n_exchanges: int, first_share: float) -> float:
    """A guess that grows: how many rounds there will be is the server's affair."""
    return 1 - (1 - first_share) * 0.9 ** (n_exchanges - 1) if n_exchanges else 0.0
