"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


class InProcess:
    """Link to sites in this process; `departures` lists every message that left one."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}
        self.clients = tuple(self.sites)
        self.departures: list[Departure] = []

    def exchange(self, round_: int, down: Mapping[str, Message], replies: tuple[type[Any], ...]) -> Replies:
        received = {}
        packed: dict[int, bytes] = {}
        for client, site in self.sites.items():
            message = down[client]
            data = packed.setdefault(id(message), pack(message, round_=round_))
            answer = site.answer(data)
            received[client], _ = unpack(answer, replies)
            self.departures.append(
                Departure(client=client, round_=round_, message=wire_name(type(received[client])), n_bytes=len(answer))
            )
        return received
