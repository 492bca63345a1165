"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from koncord._progress import part
from koncord.federate.link import Message, Replies
from koncord.federate.site import Site
from koncord.federate.wire import pack, unpack, wire_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One message that left a client."""

    client: str
    round_: int
    message: str
    n_bytes: int
    seconds: float  # the client took to answer


class InProcess:
    """Link to sites in this process; `departures` lists every message that left one."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}
        self.clients = tuple(self.sites)
        self.departures: list[Departure] = []

    def exchange(self, round_: int, down: Mapping[str, Message], replies: tuple[type[Any], ...]) -> Replies:
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
            kind = wire_name(type(received[client]))
            self.departures.append(
                Departure(client=client, round_=round_, message=kind, n_bytes=len(answer), seconds=seconds)
            )
        return received
