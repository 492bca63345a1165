"""Messages of Flower as the objects they travel in: a message has a dictionary of records, which has its records.

An object is a line of text (its kind, the numbers of its children, the length of its body), a zero byte and its body.
Its number is the SHA-256 of all that.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.proto.error_pb2 import Error
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.recorddict_pb2 import RecordDict as NoRecords

COORDINATOR_NODE = 1  # Flower's number of what asks
FAILED = 2  # Flower's code of a message that was not answered because the program at the site failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message without its content, and the objects of all of it by number, the message itself first.

    Who receives it has read it when its last record is there: then Flower forgets it, and takes no more of it.
    """

    message: Message
    tree: ObjectTree
    objects: Mapping[str, bytes]


def record_in(tree: ObjectTree, name: str, pull: Callable[[str], bytes]) -> dict[str, Any] | None:
    """The record of that name in a message; None if there is none.

    No other object is fetched. `ValueError` for an object that is not what its number or the tree says.
    """
    if not tree.children:
        return None
    body = body_of(checked(tree.children[0].object_id, pull), "RecordDict")
    try:
        names = dict(json.loads(body))
    except (ValueError, TypeError) as error:
        raise ValueError("the records of a message are not named.") from error
    if name not in names:
        return None
    number = str(names[name])
    if number not in {child.object_id for child in tree.children[0].children}:
        raise ValueError("a record is not of its message.")
    content = checked(number, pull)
    body_of(content, "ConfigRecord")
    return dict(ConfigRecord.inflate(content))


def question_to(
    node: int, *, run: int, task: int, kind: str, group: str, ttl: float, name: str, record: Mapping[str, Any]
) -> Outgoing:
    """A message with one record for a node, from the task of a run."""
    metadata = Metadata(
        run_id=run,
        src_node_id=COORDINATOR_NODE,
        dst_node_id=node,
        group_id=group,
        created_at=time.time(),
        ttl=ttl,
        message_type=kind,
        src_task_id=task,
    )
    return with_record(metadata, name, record)


def reply_to(asked: Metadata, name: str, record: Mapping[str, Any] | None) -> Outgoing:
    """The reply with one record, or without one an error: that the site does not answer this."""
    now = time.time()
    metadata = Metadata(
        run_id=asked.run_id,
        src_node_id=asked.dst_node_id,
        dst_node_id=asked.src_node_id,
        reply_to_message_id=asked.message_id,
        group_id=asked.group_id,
        created_at=now,
        ttl=asked.created_at + asked.ttl - now,  # no reply outlives its question
        message_type=asked.message_type,
        src_task_id=asked.dst_task_id if asked.HasField("dst_task_id") else None,
        dst_task_id=asked.src_task_id if asked.HasField("src_task_id") else None,
    )
    if record is None:
        error = Error(code=FAILED, reason="a site of koncord does not answer this.")
        return outgoing(Message(metadata=metadata, error=error), {}, None)
    return with_record(metadata, name, record)


def with_record(metadata: Metadata, name: str, record: Mapping[str, Any]) -> Outgoing:
    config = ConfigRecord(dict(record))
    content = RecordDict({name: config})
    inner = ObjectTree(object_id=content.object_id, children=[ObjectTree(object_id=config.object_id)])
    objects = {content.object_id: content.deflate(), config.object_id: config.deflate()}
    return outgoing(Message(metadata=metadata), objects, inner)


def outgoing(bare: Message, objects: Mapping[str, bytes], inner: ObjectTree | None) -> Outgoing:
    body = bare.SerializeToString(deterministic=True)
    children = [] if inner is None else [inner]
    head = f"Message {','.join(child.object_id for child in children)} {len(body)}"
    whole = head.encode() + b"\0" + body
    number = number_of(whole)
    bare.metadata.message_id = number
    if inner is not None:
        bare.content.CopyFrom(NoRecords())
    return Outgoing(
        message=bare, tree=ObjectTree(object_id=number, children=children), objects={number: whole, **objects}
    )


def number_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def checked(number: str, pull: Callable[[str], bytes]) -> bytes:
    content = pull(number)
    if number_of(content) != number:
        raise ValueError("an object is not the one that was asked for.")
    return content


def body_of(content: bytes, kind: str) -> bytes:
    """The body of an object of that kind."""
    head, _, body = content.partition(b"\0")
    found, *rest = head.decode("utf-8", "replace").split(" ")
    if found != kind or len(rest) != 2 or rest[1] != str(len(body)):
        raise ValueError(f"an object is no {kind}.")
    return body
