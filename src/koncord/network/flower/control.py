"""The coordinator's calls to its own Flower: register a key, take it away, and see who is connected.

Flower's Control API asks for no credentials; it is reached on this machine alone, with the certificate of
`koncord serve` checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListNodesResponse,
    RegisterNodeRequest,
    RegisterNodeResponse,
    UnregisterNodeRequest,
    UnregisterNodeResponse,
)
from flwr.proto.node_pb2 import NodeInfo

from koncord.errors import KoncordError
from koncord.network.certificates import public_pem
from koncord.network.flower.calls import Calls
from koncord.network.places import Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One key that Flower knows."""

    state: str  # "connected", "away", "not seen yet" or "revoked"
    last_seen: str  # ISO 8601, UTC; empty where it never was


CONTROL = "/v1/control"
HEARTBEAT_PATIENCE = 2  # intervals, after which Flower holds a site for away
KEY_STATES = {"online": "connected", "offline": "away", "registered": "not seen yet", "unregistered": "revoked"}


def register(place: Coordinator, site: str, public: str) -> int:
    """Flower's number of a new key."""
    with control(place, f"register site {site!r}") as calls:
        request = RegisterNodeRequest(public_key=public_pem(public.encode()), name=site)
        return int(calls.call(f"{CONTROL}/register-node", request, RegisterNodeResponse).node_id)


def unregister(place: Coordinator, node: int) -> None:
    """Take a key from Flower, which from then on refuses every call that it signs."""
    with control(place, "take a key from Flower") as calls:
        calls.call(f"{CONTROL}/unregister-node", UnregisterNodeRequest(node_id=node), UnregisterNodeResponse)


def nodes(place: Coordinator) -> dict[int, KnownKey]:
    """Every key that Flower knows, by its number."""
    with control(place, "list the sites") as calls:
        listed = calls.call(f"{CONTROL}/list-nodes", ListNodesRequest(), ListNodesResponse).nodes_info
    return {each.node_id: node_of(each) for each in listed}


def node_of(info: NodeInfo) -> KnownKey:
    """What Flower says of a node, in koncord's words."""
    state = KEY_STATES[info.status]
    # Flower holds a site for connected until so many intervals after it heard from it.
    ahead = HEARTBEAT_PATIENCE * info.heartbeat_interval if state == "connected" else 0.0
    heard = datetime.fromtimestamp(info.online_until - ahead, UTC).isoformat(timespec="seconds")
    return KnownKey(state=state, last_seen=heard if info.online_until else "")


@contextmanager
def control(place: Coordinator, what: str) -> Iterator[Calls]:
    """Calls of Flower's Control API; `KoncordError` says what could not be done."""
    authority = place.internal_authority
    calls = Calls(
        place.flower_address,
        authority=None if authority is None else authority.read_bytes(),
        component="koncord",
    )
    with calls:
        try:
            yield calls
        except httpx.HTTPStatusError as error:
            reason = " ".join(error.response.text.split())[:300]
            raise KoncordError(f"Flower did not {what}: it answered {error.response.status_code}: {reason}") from error
        except httpx.HTTPError as error:
            raise KoncordError(f"Flower did not {what}: {error} (is koncord serve running?)") from error
