"""Damaged bytes give a message or a `MessageError`: no other error, no hang, no memory beyond what they account for."""

import json
import runpy
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from koncord.aggregate import kfed
from koncord.errors import MessageError
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack

HERE = Path(__file__).parent
FUZZ = runpy.run_path(str(HERE / "codec.py"), run_name="codec")
CORPUS = sorted((HERE / "corpus").iterdir())
GOOD = [path.read_bytes() for path in CORPUS if path.name.startswith("good-")]
# What reading a message may allocate beside its own bytes: the objects of its header, and a table of what was read.
MOST_TIMES, MOST_MORE = 64, 1 << 18


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus_gives_messages_or_message_errors(path):
    data = path.read_bytes()
    began = time.perf_counter()
    FUZZ["one_input"](data)
    assert time.perf_counter() - began < 5
    if path.name.startswith("good-"):
        unpack(data, FUZZ["KINDS"])
    if path.name.startswith("bad-"):
        with pytest.raises(MessageError):
            unpack(data, FUZZ["KINDS"])


def test_the_corpus_holds_every_message():
    assert len(GOOD) == len(FUZZ["KINDS"])
    assert {type(unpack(data, FUZZ["KINDS"])[0]) for data in GOOD} == set(FUZZ["KINDS"])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
@example(b"")
def test_random_bytes(data):
    FUZZ["try_codec"](data)


@st.composite
def damaged(draw):
    """A good message with pieces cut, doubled, moved or overwritten."""
    data = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 40)))
        how = draw(st.sampled_from(["cut", "double", "overwrite", "flip"]))
        if how == "cut":
            del data[at:to]
        elif how == "double":
            data[at:at] = data[at:to]
        elif how == "overwrite":
            data[at:to] = draw(st.binary(min_size=to - at, max_size=to - at))
        elif at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_damaged_messages(data):
    FUZZ["try_codec"](data)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(GOOD), st.integers(0, 2000))
def test_a_message_that_was_cut_short_is_refused(data, at):
    if at < len(data):
        with pytest.raises(MessageError):
            unpack(data[:at], FUZZ["KINDS"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def with_other_header(draw):
    """A good message whose header has other values, well-formed as JSON and told with its right length."""
    data = draw(st.sampled_from(GOOD))
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["koncord"])
    places = [(header, key) for key in header] + [(header["values"], key) for key in header["values"]]
    for entry in (entry for name, entry in entries.items() if name != "__metadata__"):
        places += [(entry, key) for key in entry]
        places += [(entry["shape"], at) for at in range(len(entry["shape"]))]
        places += [(entry["data_offsets"], at) for at in (0, 1)]
    for _ in range(draw(st.integers(1, 3))):
        owner, key = draw(st.sampled_from(places))
        owner[key] = draw(json_values)
    entries["__metadata__"] = {"koncord": json.dumps(header)}
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(with_other_header())
def test_headers_with_other_values(data):
    FUZZ["try_codec"](data)


@st.composite
def with_other_numbers(draw):
    """A good message with any bits in its arrays and a round of its own."""
    data = draw(st.sampled_from(GOOD))
    length = int.from_bytes(data[:8], "little")
    body = len(data) - 8 - length
    numbers = draw(st.lists(st.floats() | st.sampled_from([0.0, 1.0, 1e150, -1e150, 5e-324]), max_size=body // 8))
    raw = np.array(numbers, dtype="<f8").tobytes()
    return data[: 8 + length] + raw + data[8 + length + len(raw) :]


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(with_other_numbers())
def test_a_site_answers_or_refuses_whatever_numbers_it_is_sent(data):
    FUZZ["one_input"](data)


def of_size(size):
    """Messages that are this long and mean harm."""
    metadata = '"__metadata__":{"koncord":"{}"}'
    texts = [
        "[" * (size - 8),
        "{" + ",".join(f'"{at}":[]' for at in range(size // 9)) + "," + metadata + "}",
        '{"__metadata__":{"koncord":"' + "[" * (size - 40) + '"}}',
        '{"centers":{"dtype":"F64","shape":[' + ",".join(["9999999"] * (size // 10)) + '],"data_offsets":[0,8]}}',
        '{"centers":{"dtype":"F64","shape":[99999999999999,2],"data_offsets":[0,1599999999999984]}}',
        '{"n":' + "9" * (size - 20) + "}",
    ]
    for text in texts:
        data = text.encode()
        yield len(data).to_bytes(8, "little") + data
        yield (1 << 62).to_bytes(8, "little") + data


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_message_makes_nobody_allocate_more_than_a_stated_multiple_of_its_bytes(size):
    for data in of_size(size):
        tracemalloc.start()
        began = time.perf_counter()
        with pytest.raises(MessageError):
            unpack(data, FUZZ["KINDS"])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_TIMES * len(data) + MOST_MORE
        assert time.perf_counter() - began < 5


def test_many_large_headers_do_not_stay_in_memory():
    tracemalloc.start()
    for at in range(60):
        text = json.dumps({"__metadata__": {"koncord": json.dumps({"pad": f"{at}" + "x" * 200_000})}}).encode()
        with pytest.raises(MessageError):
            unpack(len(text).to_bytes(8, "little") + text, FUZZ["KINDS"])
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 2_000_000


def test_bytes_beyond_the_limit_are_refused_before_they_are_read():
    data = pack(kfed.LocalCenters(centers=np.zeros((10, 10))))
    with pytest.raises(MessageError, match=r"a message of \d+ bytes came; at most 500 are read"):
        unpack(data, [kfed.LocalCenters], most_bytes=500)


def test_a_round_is_a_number_of_a_round():
    for round_ in (-1, 10**7):
        with pytest.raises(MessageError, match="round"):
            unpack(pack(setup.Prepared(local_k=1), round_=round_), [setup.Prepared])
