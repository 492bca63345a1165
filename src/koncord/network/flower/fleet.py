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
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from koncord.errors import KoncordError
from koncord.network.certificates import private_key
from koncord.network.flower.programs import SITE

RECORD = "koncord"
EXCHANGE, NAME = "query.exchange", "query.name"
# Seconds. Flower holds a site for away when it has not heard from it for two intervals; it takes no shorter ones.
INTERVAL, HEARTBEAT_EVERY = 10.0, 4.0
OBJECT_WITHIN, OBJECT_POLL = 60.0, 0.1
WORDS = {
    httpx.codes.UNAUTHORIZED: "it does not know this site's key",
    httpx.codes.FORBIDDEN: "it does not know this site's key",
    httpx.codes.PRECONDITION_FAILED: "it does not know this site's key, revoked it, or holds the site for connected",
}


class ConnectionLost(KoncordError):
    """The coordinator does not answer, or does not take this site; the sentence says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One message that came for this site."""

    kind: str
    record: Mapping[str, Any]  # what stands under koncord's name in it; empty if nothing does
    message: Message


class Fleet:
    """An open connection of one site; `connected` makes one.

    Parameters
    ----------
    client : FleetHttpClient
        Flower's own client of its Fleet API.
    node : int
        Flower's number of the site.
    """

    def __init__(self, client: FleetHttpClient, node: int) -> None:
        self.client, self.node = client, Node(node_id=node)
        self._heard = time.monotonic()

    def stay(self) -> None:
        """Let the coordinator know that the site is there, if it is time to."""
        if time.monotonic() - self._heard < HEARTBEAT_EVERY:
            return
        with told_as_lost():
            request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=INTERVAL)
            if not self.client.SendNodeHeartbeat(request).success:
                raise ConnectionLost("it does not know this site any more")
        self._heard = time.monotonic()

    def receive(self) -> Question | None:
        """The next message for this site; None if there is none."""
        with told_as_lost():
            response = self.client.PullMessages(PullMessagesRequest(node=self.node))
            if not response.messages_list:
                return None
            metadata = message_from_proto(response.messages_list[0]).metadata
            run, tree = metadata.run_id, response.message_object_trees[0]
            inflated = pull_and_inflate_object_from_tree(
                tree,
                make_pull_object_fn_protobuf(self.client.PullObject, self.node, run),
                make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run),
                return_type=Message,
                max_time=OBJECT_WITHIN,
                initial_backoff=OBJECT_POLL,
            )
        content = inflated.content if inflated.has_content() else None
        # What was pulled does not know its own number, which the reply must name.
        message = make_message(metadata, content, None if content is not None else inflated.error)
        found = None if content is None else content.config_records.get(RECORD)
        return Question(kind=metadata.message_type, record=dict(found or {}), message=message)

    def reply(self, question: Question, record: Mapping[str, Any] | None) -> None:
        """Answer a message with a record, or without one as a message that koncord does not know."""
        if record is None:
            error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "a site of koncord does not answer this.")
            reply = Message(error, reply_to=question.message)
        else:
            reply = Message(RecordDict({RECORD: ConfigRecord(dict(record))}), reply_to=question.message)
        bare = message_to_proto(remove_content_from_message(reply))
        bare.metadata.message_id = reply.object_id
        run = reply.metadata.run_id
        with told_as_lost(), no_object_id_recompute():
            pushed = self.client.PushMessages(
                PushMessagesRequest(
                    node=self.node,
                    messages_list=[bare],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[0.0],  # how long an answer took depends on the rows
                )
            )
            push = make_push_object_fn_protobuf(
                self.client.PushObject, self.node, run_id=run, session_id=pushed.session_id
            )
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(pushed.objects_to_push))


@contextmanager
def connected(address: str, *, credentials: Path | None, node_file: Path) -> Iterator[Fleet]:
    """A connection within the block; `ConnectionLost` if the coordinator does not take the site.

    `credentials` is the folder of the site's key and of the certificates it trusts; None is a connection without TLS.
    `node_file` keeps Flower's number of the site as long as it is connected: a site that was killed is at once taken
    again, instead of when Flower holds it for away.
    """
    private = generate_key_pairs()[0] if credentials is None else private_key((credentials / "key").read_bytes())
    public = private.public_key()
    client = FleetHttpClient.from_server_address(
        address,
        insecure=credentials is None,
        root_certificates=None if credentials is None else (credentials / "ca.crt").read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
        ],
    )
    with client:
        with told_as_lost():
            if credentials is None:
                client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(public)))
            elif node_file.exists():
                with suppress(httpx.HTTPStatusError, ValueError):
                    before = int(node_file.read_text(encoding="ascii"))
                    client.DeactivateNode(DeactivateNodeRequest(node_id=before))
            request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=INTERVAL)
            node = client.ActivateNode(request).node_id
        node_file.write_text(f"{node}", encoding="ascii")
        try:
            yield Fleet(client, node)
        finally:
            with suppress(httpx.HTTPError, RuntimeError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node))
                node_file.unlink(missing_ok=True)
                if credentials is None:
                    client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))


@contextmanager
def told_as_lost() -> Iterator[None]:
    """Within the block what Flower's client raises becomes `ConnectionLost`, in a few words."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise ConnectionLost(WORDS.get(httpx.codes(code), f"it answered {code}")) from error
    except httpx.HTTPError as error:
        raise ConnectionLost(in_words(f"{error}")) from error
    except (RuntimeError, ValueError) as error:  # Flower's reader, at what it cannot read
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
