"""What an aggregator is, and the loop that runs one over any link.

An aggregator is messages, pure client steps, and the server's side of the conversation. The server's side is a
generator: it yields what goes down (one message for all, or one for each client), receives the replies by client, and
returns an `Outcome`. It reads as the algorithm, and a run can be repeated from its recorded replies alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from koncord._progress import part
from koncord.types import FloatArray, IntArray, LocalEstimate

Message = Any
Replies = Mapping[str, Any]
Server = Generator[Message | Mapping[str, Message], Replies, "Outcome"]


@dataclass(frozen=True, kw_only=True)
class Local:
    """What a client step may read: it never leaves the client."""

    X: FloatArray  # (n_samples, n_features), scaled as agreed
    estimate: LocalEstimate  # phase 1
    stream: tuple[int, ...]  # names the random stream of this client in this round

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random stream, made when it is first drawn from: most steps draw nothing."""
        return np.random.default_rng(self.stream)


# A client step takes what the client holds, its state (None before its first step) and the server's message; it
# returns the new state, itself a record that the codec can pack, and the reply.
ClientStep = Callable[[Local, Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One array or number a client sends: its message and field, its shape in words, and whether rows enlarge it."""

    message: str
    field: str
    shape: str
    grows_with_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the server knows at the end."""

    centers: FloatArray  # (global_k, n_features)
    groups: Mapping[
        str, IntArray
    ]  # global cluster of each local component, by client; empty where there is no such map
    components: Mapping[str, FloatArray] = field(default_factory=dict)  # final means of what each client sent
    info: Mapping[str, Any] = field(default_factory=dict)  # for readers only: JSON values, nothing depends on them


class Aggregator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the aggregators: parameters stored as given, checked when the server starts."""

    name: ClassVar[str]
    sends: ClassVar[tuple[Sent, ...]]
    client_steps: ClassVar[Mapping[type[Any], ClientStep]]  # by the server's message; the reply type is its return type
    replies: ClassVar[tuple[type[Any], ...]]

    @abstractmethod
    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        """The server's side of one federation of `clients`, in name order."""


class Link(Protocol):
    """How messages travel."""

    clients: tuple[str, ...]

    def exchange(self, round_: int, down: Mapping[str, Message], replies: tuple[type[Any], ...]) -> Replies:
        """Give every client its message; return the replies, of the given types, ordered by client name."""


def run_rounds(
    link: Link, server: Server, replies: tuple[type[Any], ...], *, first_round: int
) -> tuple["Outcome", int]:
    """Drive `server` over `link` to its outcome; also the number of the next round."""
    round_ = first_round
    down = next(server)
    while True:
        by_client = down if isinstance(down, Mapping) else dict.fromkeys(link.clients, down)
        done = 1 - 0.9 ** (round_ - first_round)  # how many rounds there will be is the server's affair
        with part(done, 1 - 0.9 ** (round_ + 1 - first_round), f"round {round_}"):
            answers = link.exchange(round_, by_client, replies)
        round_ += 1
        try:
            down = server.send(answers)
        except StopIteration as finished:
            outcome: Outcome = finished.value
            return outcome, round_
