"""All clients in one process. Every message is packed and unpacked, so one that cannot travel fails here too."""

from collections.abc import Mapping, Sequence

from koncord._progress import part
from koncord.protocol.departures import Departure
from koncord.session.site import Site
from koncord.session.transport import Carried, Journal, PackedLink

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
            with part(at / len(down), (at + 1) / len(down), client):
                replies[client], seconds[client] = self.sites[client].answer_all(messages)
        return Carried(replies=replies, seconds=seconds)
