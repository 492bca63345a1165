import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load, save

from koncord.errors import MessageError
from koncord.protocol.wire import pack, unpack, wire_name
from koncord.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    table: FloatArray
    counts: IntArray
    maybe: FloatArray | None
    number: float
    whole: int
    word: str
    flag: bool
    names: tuple[str, ...]

    def __post_init__(self):
        if self.table.ndim != 2:
            raise ValueError("'table' must be a table.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    whole: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    whole: IntArray


def everything(**changes):
    fields = {
        "table": np.arange(6.0).reshape(2, 3),
        "counts": np.array([1, 2]),
        "maybe": None,
        "number": 0.1,
        "whole": -3,
        "word": "ünï",
        "flag": True,
        "names": ("a", "b"),
    }
    return Everything(**{**fields, **changes})


def assert_same(one, two):
    assert type(one) is type(two)
    for name in one.__slots__:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(0, 4)), elements=st.floats()),
    st.lists(st.text(max_size=5), max_size=4),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.text(max_size=20),
)
def test_a_message_comes_back_to_the_last_bit(table, names, number, whole, word):
    sent = everything(table=table, names=tuple(names), number=number, whole=whole, word=word)
    received, round_ = unpack(pack(sent, round_=7), [Other, Everything])
    assert_same(sent, received)
    assert received.table.tobytes() == table.tobytes()
    assert round_ == 7


def test_equal_messages_are_equal_bytes_whatever_the_memory_layout():
    table = np.arange(6.0).reshape(2, 3)
    assert pack(everything(table=table)) == pack(everything(table=np.asfortranarray(table)))


def test_a_message_is_a_safetensors_file_that_the_library_reads():
    sent = everything()
    arrays = load(pack(sent))
    np.testing.assert_array_equal(arrays["table"], sent.table)
    np.testing.assert_array_equal(arrays["counts"], sent.counts)
    assert arrays["table"].dtype == np.float64


def test_what_the_library_writes_can_be_read():
    received, _ = unpack(forged({"whole": np.arange(3)}, values={}, message=wire_name(Whole)), [Whole])
    np.testing.assert_array_equal(received.whole, [0, 1, 2])


def test_an_array_said_to_be_larger_than_the_message_is_refused():
    good = pack(Whole(whole=np.arange(3)))
    for lie in (b'"shape":[9]', b'"shape":[3,9]', b'"shape":[-3]', b'"shape":[1e9]'):
        with pytest.raises(MessageError):
            unpack(resized(good, b'"shape":[3]', lie), [Whole])


def resized(data, old, new):
    """The message with a piece of its header replaced and its length told anew."""
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(old, new)
    assert new in header
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def test_a_message_that_is_not_expected_is_refused_by_name():
    with pytest.raises(MessageError, match=f"{wire_name(Other)}.*{wire_name(Everything)} was expected"):
        unpack(pack(Other(whole=1)), [Everything])


def forged(arrays_=None, **header):
    plain = {"format": 1, "message": wire_name(Other), "round": 0, "values": {"whole": 1}}
    return save(arrays_ or {}, metadata={"koncord": json.dumps({**plain, **header})})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage that is no message at all",
        pack(Other(whole=1))[:-3],
        save({}),
        save({}, metadata={"koncord": "[" * 5000}),
        forged(format=2),
        forged(round="one"),
        forged(values=[1]),
        forged(values={}),
        forged(values={"whole": 1, "more": 2}),
        forged(values={"whole": 1.5}),
        forged(values={"whole": True}),
        forged(values={"whole": None}),
        forged({"whole": np.ones(3)}, values={}),
    ],
)
def test_malformed_bytes_are_a_message_error(data):
    with pytest.raises(MessageError):
        unpack(data, [Other])


def test_a_message_that_contradicts_itself_is_refused_with_its_reason():
    good = pack(everything())
    bad = save(
        {"table": np.ones(3), "counts": np.array([1])},
        metadata={
            "koncord": json.dumps(
                json.loads(json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])["__metadata__"]["koncord"])
            )
        },
    )
    with pytest.raises(MessageError, match="'table' must be a table"):
        unpack(bad, [Everything])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_damaged_bytes_never_give_anything_but_a_message_or_a_message_error(noise, at, is_spliced):
    good = pack(everything())
    data = good[:at] + noise + good[at + len(noise) :] if is_spliced else noise
    try:
        received, _ = unpack(data, [Everything])
    except MessageError:
        return
    assert isinstance(received, Everything)
