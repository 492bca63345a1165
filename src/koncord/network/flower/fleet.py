"""A site's connection to the coordinator's Flower: messages come in, replies go out, and nothing else.

koncord speaks the published messages of Flower's Fleet API itself, in the place of Flower's SuperNode. So nothing that
comes with a run is fetched, unpacked or imported at a site, no other process of the machine takes part, and how often
the site looks for messages is its own affair.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    RegisterNodeFleetResponse,
    UnregisterNodeFleetRequest,
    UnregisterNodeFleetResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    Metadata,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node

from koncord.errors import KoncordError
from koncord.network.certificates import public_half, public_pem, site_key
from koncord.network.flower.calls import Calls, signed_by
from koncord.network.flower.objects import record_in, reply_to
from koncord.network.flower.programs import SITE

RECORD = "koncord"
FLEET = "/v1/fleet"
EXCHANGE, NAME = "query.exchange", "query.name"
# Seconds. Flower holds a site for away when it has not heard from it for two intervals; it takes no shorter ones.
INTERVAL, HEARTBEAT_EVERY = 10.0, 4.0
OBJECT_WITHIN, OBJECT_POLL = 60.0, 0.1
WORDS = {
    httpx.codes.UNAUTHORIZED: "it does not know this site's key",
    httpx.codes.FORBIDDEN: "it does not know this site's key",
    httpx.codes.PRECONDITION_FAILED: "it does not know this site's key, revoked it, or another koncord join is "
    "connected with it; the coordinator sees which: koncord sites",
}


class ConnectionLost(KoncordError):
    """The coordinator does not answer, or does not take this site; the sentence says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One message that came for this site."""

    kind: str
    record: Mapping[str, Any]  # what stands under koncord's name in it; empty if nothing does
    metadata: Metadata


class Fleet:
    """An open connection of one site; `connected` makes one.

    Parameters
    ----------
    calls : Calls
        Of Flower's Fleet API.
    node : int
        Flower's number of the site.
    """

    def __init__(self, calls: Calls, node: int) -> None:
        self.calls, self.node = calls, Node(node_id=node)
        self._heard = time.monotonic()

    def stay(self) -> None:
        """Let the coordinator know that the site is there, if it is time to."""
        if time.monotonic() - self._heard < HEARTBEAT_EVERY:
            return
        with told_as_lost():
            request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=INTERVAL)
            if not self.calls.call(f"{FLEET}/send-node-heartbeat", request, SendNodeHeartbeatResponse).success:
                raise ConnectionLost("it does not know this site any more")
        self._heard = time.monotonic()

    def receive(self) -> Question | None:
        """The next message for this site; None if there is none."""
        with told_as_lost():
            request = PullMessagesRequest(node=self.node)
            came = self.calls.call(f"{FLEET}/pull-messages", request, PullMessagesResponse)
            if not came.messages_list:
                return None
            if len(came.message_object_trees) != len(came.messages_list):
                raise ValueError("a message came without its objects.")
            metadata, tree = came.messages_list[0].metadata, came.message_object_trees[0]
            record = record_in(tree, RECORD, lambda number: self.pulled(metadata.run_id, number))
            confirm = ConfirmMessageReceivedRequest(
                node=self.node, run_id=metadata.run_id, message_object_id=tree.object_id
            )
            self.calls.call(f"{FLEET}/confirm-message-received", confirm, ConfirmMessageReceivedResponse)
        return Question(kind=metadata.message_type, record=record or {}, metadata=metadata)

    def pulled(self, run: int, number: str) -> bytes:
        """One object of a message, waited for if it is still on its way to the coordinator's Flower."""
        request = PullObjectRequest(node=self.node, run_id=run, object_id=number)
        end = time.monotonic() + OBJECT_WITHIN
        while time.monotonic() < end:
            came = self.calls.call(f"{FLEET}/pull-object", request, PullObjectResponse)
            if not came.object_found:
                break
            if came.object_available:
                return came.object_content
            time.sleep(OBJECT_POLL)
        raise ValueError("a part of the message is not there.")

    def reply(self, question: Question, record: Mapping[str, Any] | None) -> None:
        """Answer a message with a record, or without one as a message that koncord does not know."""
        reply = reply_to(question.metadata, RECORD, record)
        with told_as_lost():
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[reply.message],
                message_object_trees=[reply.tree],
                clientapp_runtime_list=[0.0],  # how long an answer took depends on the rows
            )
            pushed = self.calls.call(f"{FLEET}/push-messages", request, PushMessagesResponse)
            for number, content in reply.objects.items():
                if number in pushed.objects_to_push:
                    part = PushObjectRequest(
                        node=self.node,
                        run_id=question.metadata.run_id,
                        object_id=number,
                        object_content=content,
                        session_id=pushed.session_id,
                    )
                    if not self.calls.call(f"{FLEET}/push-object", part, PushObjectResponse).stored:
                        raise ConnectionLost("it did not take the answer")


@contextmanager
def connected(address: str, *, credentials: Path | None, node_file: Path) -> Iterator[Fleet]:
    """A connection within the block; `ConnectionLost` if the coordinator does not take the site.

    `credentials` is the folder of the site's key and of the certificates it trusts; None is a connection without TLS.
    `node_file` keeps Flower's number of the site as long as it is connected: a site that was killed is at once taken
    again, instead of when Flower holds it for away.
    """
    # Without TLS nobody checks the key, but there must be one.
    private = site_key()[0] if credentials is None else (credentials / "key").read_bytes()
    public = public_pem(public_half(private))
    calls = Calls(
        address,
        authority=None if credentials is None else (credentials / "ca.crt").read_bytes(),
        component="SuperNode",
        signed=signed_by(private),
    )
    with calls:
        with told_as_lost():
            if credentials is None:
                register = RegisterNodeFleetRequest(public_key=public)
                calls.call(f"{FLEET}/register-node", register, RegisterNodeFleetResponse)
            elif node_file.exists():
                with suppress(httpx.HTTPStatusError, ValueError):
                    deactivate(calls, int(node_file.read_text(encoding="ascii")))
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=INTERVAL)
            node = calls.call(f"{FLEET}/activate-node", request, ActivateNodeResponse).node_id
        node_file.write_text(f"{node}", encoding="ascii")
        try:
            yield Fleet(calls, node)
        finally:
            with suppress(httpx.HTTPError, RuntimeError, ValueError):
                deactivate(calls, node)
                node_file.unlink(missing_ok=True)
                if credentials is None:
                    gone = UnregisterNodeFleetRequest(node_id=node)
                    calls.call(f"{FLEET}/unregister-node", gone, UnregisterNodeFleetResponse)


def deactivate(calls: Calls, node: int) -> None:
    calls.call(f"{FLEET}/deactivate-node", DeactivateNodeRequest(node_id=node), DeactivateNodeResponse)


@contextmanager
def told_as_lost() -> Iterator[None]:
    """Within the block what a call raises becomes `ConnectionLost`, in a few words."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise ConnectionLost(WORDS.get(httpx.codes(code), f"it answered {code}")) from error
    except httpx.HTTPError as error:
        raise ConnectionLost(in_words(f"{error}")) from error
    except (RuntimeError, ValueError, TypeError, KeyError) as error:  # at what cannot be read
        raise ConnectionLost(f"its message could not be read ({type(error).__name__})") from error


def in_words(error: str) -> str:
    known = {
        "certificate has expired": "the coordinator's certificate has expired, or the clock of this machine is wrong",
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not of the authority of the invitation",
        "Connection refused": "nobody answers there",
        "Name or service not known": "nobody knows that name",
        "timed out": "it does not answer in time",
    }
    return next((meaning for word, meaning in known.items() if word in error), "it ended the connection")


def name_record(site: str) -> dict[str, Any]:
    """What a site without a key says of itself."""
    return {SITE: site}
