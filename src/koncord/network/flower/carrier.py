"""The run of Flower that carries the messages of a run of koncord: claimed, kept and ended by `koncord run` itself.

Flower makes a task of every run and has a program started for it, by a SuperExec. At a coordinator of koncord there is
none: `koncord run` takes the task itself, by the published messages of Flower's Runtime API. No process is started for
a run, and no program that comes with one is unpacked.
"""

import hashlib
import threading
import time
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import httpx
from flwr.proto.control_pb2 import StartRunRequest, StartRunResponse
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    Message,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    AcquireTaskResponse,
    GetNodesRequest,
    GetNodesResponse,
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PullTaskInputRequest,
    PullTaskInputResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
    PushTaskOutputRequest,
    PushTaskOutputResponse,
    SendTaskHeartbeatRequest,
    SendTaskHeartbeatResponse,
)
from google.protobuf.message import Message as Published

from koncord.errors import KoncordError
from koncord.network.flower.calls import Calls
from koncord.network.flower.control import CONTROL, control
from koncord.network.flower.objects import COORDINATOR_NODE, question_to, record_in
from koncord.network.places import Coordinator

Reply = TypeVar("Reply", bound=Published)

RUNTIME = "/v1/runtime"
RECORD = "koncord"
TASK = "flwr-serverapp"  # Flower's word for the task of a run
TOKEN_HEADER = "flwr-task-token"
COMPLETED, GIVEN_UP = "completed", "stopped"
MOST_CLAIMS = 20  # tries: another koncord run may claim what this one began, and this one takes what that one began
BEAT_EVERY = 10.0  # seconds; Flower gives up a run that it has not heard of for 60
MOST_TRIES = 3  # of a call that is not answered in time
STOPPED = "The coordinator's Flower has stopped (is koncord serve running?)."
# Flower wants a program of every run. This one is never started: there is nothing in it but its name.
APP = """\
[project]
name = "koncord-carrier"
version = "1.0.0"
description = "Carries koncord's messages."
dependencies = []

[tool.flwr.app]
publisher = "koncord"

[tool.flwr.app.components]
serverapp = "none:app"
clientapp = "none:app"

[tool.flwr.app.config]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message for one node."""

    node: int
    kind: str
    group: str
    ttl: float  # seconds
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back to a message, by its number: a record, or why there is none."""

    question: str
    record: Mapping[str, Any] = field(default_factory=dict)
    code: int | None = None  # Flower's, of an error
    reason: str = ""
    is_readable: bool = True


class Carries(Protocol):
    """A way to the nodes."""

    def connected(self) -> set[int]:
        """The nodes that are connected now."""

    def push(self, messages: Sequence[Sent]) -> list[str]:
        """Give nodes their messages; the number of each, empty where its node is gone."""

    def pull(self, numbers: Collection[str]) -> list[Answer]:
        """What has come back to some messages."""

    def renew(self) -> None:
        """Carry on after `CarrierLost`; what was pushed before is not answered any more."""


class CarrierLost(Exception):
    """Flower has given up the run that carries the messages: it was not heard of for a while."""


class NotYet(Exception):
    """A part of a reply is still on its way."""


class Carrier:
    """A run of Flower within a `with` block.

    Parameters
    ----------
    place : Coordinator
        The coordinator on this machine, which serves.
    """

    def __init__(self, place: Coordinator) -> None:
        self.place = place
        self.run = self.task = 0
        self._token = ""
        self._calls: Calls | None = None
        self._coming: dict[str, tuple[Message, ObjectTree]] = {}  # replies whose parts are not all there, by question
        self._is_over = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._calls = calls_of(self.place, lambda: {TOKEN_HEADER: self._token})
        try:
            self.renew()
        except BaseException:
            self._calls.client.close()
            raise
        self._beats.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        assert self._calls is not None
        try:
            with suppress(httpx.HTTPError, ValueError):
                output = PushTaskOutputRequest(sub_status=COMPLETED if kind is None else GIVEN_UP)
                self._calls.call(f"{RUNTIME}/push-task-output", output, PushTaskOutputResponse)
            self._beats.join(BEAT_EVERY)
        finally:
            self._calls.client.close()

    def renew(self) -> None:
        """Claim a run of Flower, begun for this purpose."""
        self._coming = {}
        self._token = claimed(self.place)
        begun = self._call("pull-task-input", PullTaskInputRequest(), PullTaskInputResponse)
        self.run, self.task = begun.run.run_id, begun.task_id

    def connected(self) -> set[int]:
        """The nodes that are connected now."""
        return {each.node_id for each in self._call("get-nodes", GetNodesRequest(), GetNodesResponse).nodes}

    def push(self, messages: Sequence[Sent]) -> list[str]:
        """Give nodes their messages; the number of each, empty where its node is gone."""
        if not messages:
            return []
        ready = [
            question_to(
                each.node,
                run=self.run,
                task=self.task,
                kind=each.kind,
                group=each.group,
                ttl=each.ttl,
                name=RECORD,
                record=each.record,
            )
            for each in messages
        ]
        pushed = self._call(
            "push-messages",
            PushAppMessagesRequest(
                messages_list=[each.message for each in ready], message_object_trees=[each.tree for each in ready]
            ),
            PushAppMessagesResponse,
        )
        # A site may have read its message, and Flower forgotten it, before the next site has its own: heads first.
        heads = {each.tree.object_id: each.objects[each.tree.object_id] for each in ready}
        objects = {**heads, **{number: content for each in ready for number, content in each.objects.items()}}
        wanted = set(pushed.objects_to_push)
        for number, content in objects.items():
            if number in wanted:
                part = PushObjectRequest(
                    node=Node(node_id=COORDINATOR_NODE),
                    run_id=self.run,
                    object_id=number,
                    object_content=content,
                    session_id=pushed.session_id,
                )
                self._call("push-object", part, PushObjectResponse)
        return list(pushed.message_ids)

    def pull(self, numbers: Collection[str]) -> list[Answer]:
        """What has come back to some messages; one whose parts are not all there is left for the next time."""
        coming = {question: each for question, each in self._coming.items() if question in numbers}
        if new := [number for number in numbers if number not in coming]:  # Flower hands a reply out once
            came = self._call("pull-messages", PullAppMessagesRequest(message_ids=new), PullAppMessagesResponse)
            for message, tree in zip(came.messages_list, came.message_object_trees, strict=True):
                coming[message.metadata.reply_to_message_id] = message, tree
        self._coming = coming
        answers = []
        for question, (message, tree) in list(coming.items()):
            with suppress(NotYet):
                answers.append(self._answer(question, message, tree))
                del coming[question]
        return answers

    def _answer(self, question: str, message: Message, tree: ObjectTree) -> Answer:
        if message.HasField("error"):
            answer = Answer(question=question, code=message.error.code, reason=message.error.reason)
        else:
            try:
                answer = Answer(question=question, record=record_in(tree, RECORD, self._pulled) or {})
            except (CarrierLost, KoncordError, NotYet):
                raise
            except Exception:  # whatever Flower's reader raises at bytes that a site made up
                answer = Answer(question=question, is_readable=False)
        received = ConfirmMessageReceivedRequest(
            node=Node(node_id=COORDINATOR_NODE), run_id=self.run, message_object_id=tree.object_id
        )
        self._call("confirm-message-received", received, ConfirmMessageReceivedResponse)
        return answer

    def _pulled(self, number: str) -> bytes:
        """One object of a reply."""
        request = PullObjectRequest(node=Node(node_id=COORDINATOR_NODE), run_id=self.run, object_id=number)
        came = self._call("pull-object", request, PullObjectResponse)
        if not came.object_found:
            raise ValueError("a part of the reply is not there.")
        if not came.object_available:
            raise NotYet
        return came.object_content

    def _beat(self) -> None:
        """Let Flower know, from time to time, that the run goes on."""
        while not self._is_over.wait(BEAT_EVERY):
            with suppress(KoncordError, CarrierLost):  # the next call says so
                self._call("send-task-heartbeat", SendTaskHeartbeatRequest(), SendTaskHeartbeatResponse)

    def _call(self, path: str, request: Published, kind: type[Reply]) -> Reply:
        assert self._calls is not None
        n_tries = 0
        while True:
            try:
                return self._calls.call(f"{RUNTIME}/{path}", request, kind)
            except httpx.HTTPStatusError as error:
                code = error.response.status_code
                if code == httpx.codes.UNAUTHORIZED:
                    raise CarrierLost from error
                raise KoncordError(f"Flower does not carry the run's messages: {path}: it answered {code}.") from error
            except httpx.TimeoutException as error:
                n_tries += 1
                if n_tries == MOST_TRIES:
                    raise KoncordError(STOPPED) from error
            except (httpx.HTTPError, ValueError) as error:
                raise KoncordError(STOPPED) from error


def calls_of(place: Coordinator, headers: Callable[[], Mapping[str, str]]) -> Calls:
    """A connection to Flower's Runtime API, on this machine."""
    authority = place.internal_authority
    try:
        trusted = None if authority is None else authority.read_bytes()
    except OSError as error:
        raise KoncordError(STOPPED) from error
    return Calls(place.flower_address, authority=trusted, component=TASK, signed=headers)


def claimed(place: Coordinator) -> str:
    """The token of a run of Flower that nobody else has claimed.

    One that was begun and never claimed, because its koncord run was killed, is as good as any.
    """
    with control(place, "begin a run") as calls:
        for at in range(MOST_CLAIMS):
            request = AcquireTaskRequest(supported_task_types=[TASK])
            found = calls.call(f"{RUNTIME}/acquire-task", request, AcquireTaskResponse)
            if found.token:
                return found.token
            if at:
                time.sleep(0.05 * at)
            program = bundled()
            begin = StartRunRequest(fab=Fab(hash_str=hashlib.sha256(program).hexdigest(), content=program))
            calls.call(f"{CONTROL}/start-run", begin, StartRunResponse)
    raise KoncordError("Flower did not begin a run.")


def bundled() -> bytes:
    """The program that Flower wants, as it wants it; the same bytes every time."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), APP)
    return file.getvalue()
