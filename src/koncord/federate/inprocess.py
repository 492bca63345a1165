"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from koncord._progress import part
from koncord.federate.packed import Carried, Departure, Journal, PackedLink
from koncord.federate.site import Site

__all__ = ["Departure", "InProcess"]


class InProcess(PackedLink):
    """Link to sites in this process."""

    def __init__(self, sites: Sequence[Site], *, min_sites: int = 1, journal: Journal | None = None) -> None:
        super().__init__([site.name for site in sites], min_sites=min_sites, journal=journal)
        self.sites = {site.name: site for site in sorted(sites, key=lambda site: site.name)}

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        replies: dict[str, list[bytes]] = {}
        seconds: dict[str, list[float]] = {}
        for at, (client, messages) in enumerate(down.items()):
            replies[client], seconds[client] = [], []
            with part(at / len(down), (at + 1) / len(down), client):
                for message in messages:
                    began = perf_counter()
                    replies[client].append(self.sites[client].answer(message))
                    seconds[client].append(perf_counter() - began)
        return Carried(replies=replies, seconds=seconds)
