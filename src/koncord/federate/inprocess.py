"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any

import numpy as np

from koncord._progress import part
from koncord.federate.link import Message, Replies
from koncord.federate.site import Site
from koncord.federate.wire import pack, unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One message that left a site."""

    exchange: int  # from 1
    site: str
    message: str
    numbers: int
    n_bytes: int
    seconds: float  # the site took to answer


class InProcess:
    """Link to sites in this process; `departures` lists every message that left one."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}
        self.clients = tuple(self.sites)
        self.departures: list[Departure] = []
        self.n_exchanges = 0

    def exchange(self, round_: int, down: Mapping[str, Message], replies: tuple[type[Any], ...]) -> Replies:
        self.n_exchanges += 1
        received = {}
        packed: dict[int, bytes] = {}
        for at, (client, site) in enumerate(self.sites.items()):
            message = down[client]
            if id(message) not in packed:
                packed[id(message)] = pack(message, round_=round_)
            began = perf_counter()
            with part(at / len(self.sites), (at + 1) / len(self.sites), f"{type(message).__name__} at {client}"):
                answer = site.answer(packed[id(message)])
            seconds = perf_counter() - began
            received[client], _ = unpack(answer, replies)
            self.departures.append(
                Departure(
                    exchange=self.n_exchanges,
                    site=client,
                    message=type(received[client]).__name__,
                    numbers=count_numbers(received[client]),
                    n_bytes=len(answer),
                    seconds=round(seconds, 6),
                )
            )
        return received


def count_numbers(message: Any) -> int:
    """Numbers a message holds, in arrays and alone; names of columns are not numbers."""
    values = [getattr(message, each.name) for each in fields(message)]
    return sum(value.size if isinstance(value, np.ndarray) else isinstance(value, int | float) for value in values)
