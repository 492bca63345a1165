"""What koncord writes and reads of Flower's protocol, beside what Flower's own code makes of the same."""

import ast
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common import constant
from flwr.common.config import get_fab_config
from flwr.common.serde import message_to_proto, metadata_to_proto
from flwr.supercore import constant as wire
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import validate_object_content
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes, verify_signature
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

import koncord.network.flower as flower
from koncord.errors import KoncordError
from koncord.network.certificates import public_key, public_pem, site_key
from koncord.network.flower import calls, carrier, control, exchange, objects
from koncord.network.flower.objects import number_of, question_to, record_in, reply_to

PUBLISHED = ("flwr.app", "flwr.proto")
ASKED = Metadata(
    run_id=7,
    message_id="a" * 64,
    src_node_id=1,
    dst_node_id=12345678901234567890,
    reply_to_message_id="",
    group_id="3",
    created_at=1_790_000_000.0,
    ttl=1e9,
    message_type="query.exchange",
    src_task_id=11,
    dst_task_id=None,
)
RECORDS = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.one_of(
        st.integers(0, 2**63),
        st.floats(allow_nan=False),
        st.text(max_size=20),
        st.booleans(),
        st.binary(max_size=40),
        st.lists(st.binary(max_size=40), max_size=3),
        st.lists(st.floats(allow_nan=False), max_size=3),
    ),
    max_size=4,
)


def of_flower(content):
    """A question as Flower sends it: its objects by number, its tree and its metadata."""
    message = make_message(ASKED, content)
    contents = {number: each.deflate() for number, each in get_all_nested_objects(message).items()}
    return contents, get_object_tree(message), metadata_to_proto(ASKED)


@settings(max_examples=50, deadline=None)
@given(RECORDS)
def test_a_reply_is_what_flower_makes_of_it_to_the_byte(record):
    ours = reply_to(metadata_to_proto(ASKED), "koncord", record)
    theirs = Message(RecordDict({"koncord": ConfigRecord(dict(record))}), reply_to=make_message(ASKED, RecordDict()))
    theirs.metadata.__dict__["_created_at"] = ours.message.metadata.created_at  # the clock has gone on
    theirs.metadata.ttl = ours.message.metadata.ttl
    same_as_flower(ours, theirs)


def test_a_message_that_is_not_answered_is_the_error_that_flower_makes_of_it():
    ours = reply_to(metadata_to_proto(ASKED), "koncord", None)
    error = Error(constant.ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "a site of koncord does not answer this.")
    theirs = Message(error, reply_to=make_message(ASKED, RecordDict()))
    theirs.metadata.__dict__["_created_at"] = ours.message.metadata.created_at
    theirs.metadata.ttl = ours.message.metadata.ttl
    same_as_flower(ours, theirs)


def same_as_flower(ours, theirs):
    assert dict(ours.objects) == {number: each.deflate() for number, each in get_all_nested_objects(theirs).items()}
    assert ours.tree == get_object_tree(theirs)
    bare = message_to_proto(remove_content_from_message(theirs))
    bare.metadata.message_id = theirs.object_id
    assert ours.message == bare
    for content in ours.objects.values():
        validate_object_content(content)  # what Flower checks before it takes one


@settings(max_examples=50, deadline=None)
@given(RECORDS)
def test_a_question_is_what_flower_makes_of_it_to_the_byte(record):
    ours = question_to(9, run=7, task=11, kind="query.exchange", group="3", ttl=60.0, name="koncord", record=record)
    metadata = Metadata(
        run_id=7,
        message_id="",
        src_node_id=constant.SUPERLINK_NODE_ID,
        dst_node_id=9,
        reply_to_message_id="",
        group_id="3",
        created_at=ours.message.metadata.created_at,
        ttl=60.0,
        message_type="query.exchange",
        src_task_id=11,
    )
    theirs = make_message(metadata, RecordDict({"koncord": ConfigRecord(dict(record))}))
    same_as_flower(ours, theirs)


def test_flower_takes_the_program_of_a_run_that_has_none_and_there_is_nothing_in_it_to_start():
    program = carrier.bundled()
    assert program == carrier.bundled()
    assert get_fab_config(program)["project"]["name"] == "koncord-carrier"
    with ZipFile(BytesIO(program)) as archive:
        assert archive.namelist() == ["pyproject.toml"]


@settings(max_examples=50, deadline=None)
@given(RECORDS)
def test_a_question_is_read_as_flower_wrote_it(record):
    others = {"another": ConfigRecord({"a": 1})}
    contents, tree, _ = of_flower(RecordDict({**others, "koncord": ConfigRecord(dict(record))}))
    assert record_in(tree, "koncord", contents.__getitem__) == record
    assert record_in(tree, "nobody", contents.__getitem__) is None


def test_only_the_record_of_koncord_is_fetched():
    contents, tree, _ = of_flower(RecordDict({"program": ConfigRecord({"x": b"y"}), "koncord": ConfigRecord({"a": 1})}))
    asked = []
    record_in(tree, "koncord", lambda number: asked.append(number) or contents[number])
    assert [contents[number].split(b" ")[0] for number in asked] == [b"RecordDict", b"ConfigRecord"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda content: content + b"x", "not the one that was asked for"),
        (lambda content: b"", "not the one that was asked for"),
    ],
)
def test_an_object_that_is_not_the_one_asked_for_is_refused(spoil, said):
    contents, tree, _ = of_flower(RecordDict({"koncord": ConfigRecord({"a": 1})}))
    with pytest.raises(ValueError, match=said):
        record_in(tree, "koncord", lambda number: spoil(contents[number]))


@pytest.mark.parametrize("body", [b'{"koncord": "' + b"0" * 64 + b'"}', b"[1, 2]", b"\xff", b'"text"', b"{}"])
def test_records_that_are_not_of_the_message_are_refused_or_none(body):
    content = f"RecordDict  {len(body)}".encode() + b"\0" + body
    tree = objects.ObjectTree(object_id="m" * 64, children=[objects.ObjectTree(object_id=number_of(content))])
    contents = {number_of(content): content}
    if body == b"{}":
        assert record_in(tree, "koncord", contents.__getitem__) is None
    else:
        with pytest.raises(ValueError, match=r"not named|not of its message"):
            record_in(tree, "koncord", contents.__getitem__)


def test_an_object_of_another_kind_is_refused():
    contents, tree, _ = of_flower(RecordDict({"koncord": ConfigRecord({"a": 1})}))
    tree.children[0].object_id = tree.children[0].children[0].object_id
    with pytest.raises(ValueError, match="no RecordDict"):
        record_in(tree, "koncord", contents.__getitem__)


def test_a_call_is_signed_as_flower_checks_it_and_no_two_alike():
    private, public = site_key()
    headers = calls.signed_by(private)()
    shown = b64decode(headers[wire.FLEET_HTTP_PUBLIC_KEY_HEADER])
    assert shown == public_key_to_bytes(public_key(public)) == public_pem(public)
    signature = b64decode(headers[wire.FLEET_HTTP_SIGNATURE_HEADER])
    assert verify_signature(bytes_to_public_key(shown), headers[constant.TIMESTAMP_HEADER].encode(), signature)
    assert calls.signed_by(private)() != headers


def test_what_koncord_writes_down_of_flower_is_what_this_version_has():
    assert objects.FAILED == constant.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert exchange.NODE_UNAVAILABLE == constant.ErrorCode.NODE_UNAVAILABLE
    assert objects.COORDINATOR_NODE == constant.SUPERLINK_NODE_ID
    assert carrier.TASK == wire.TaskType.SERVER_APP
    assert carrier.TOKEN_HEADER == wire.TASK_TOKEN_HEADER
    assert {carrier.COMPLETED, carrier.GIVEN_UP} == {constant.SubStatus.COMPLETED, constant.SubStatus.STOPPED}
    assert carrier.BEAT_EVERY < constant.HEARTBEAT_DEFAULT_INTERVAL
    assert control.HEARTBEAT_PATIENCE == constant.HEARTBEAT_PATIENCE
    with calls.Calls("localhost:1", authority=None, component="SuperNode") as connection:
        expected = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
        assert expected.items() <= connection.headers.items()


@pytest.mark.parametrize("other", ["1.40.0", "1.42.0", "2.0.0"])
def test_koncord_does_not_start_with_a_flower_that_it_was_not_tested_with(monkeypatch, other):
    monkeypatch.setattr(calls, "version", lambda name: other)
    with pytest.raises(KoncordError, match=rf"Flower {other} is installed; .* pip install .*\[flower\]'"):
        calls.Calls("localhost:1", authority=None, component="SuperNode")


def test_koncord_imports_nothing_of_flower_but_what_it_publishes():
    found = set()
    for path in Path(flower.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
                found.add(node.module)
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names if each.name.split(".")[0] == "flwr"}
    assert found
    assert {name for name in found if ".".join(name.split(".")[:2]) not in PUBLISHED} == set()
