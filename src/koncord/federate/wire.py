"""The codec of every message: a safetensors file, that is arrays behind one JSON header, and no pickle.

It is written and read here rather than by the library, which any of its readers can check: a federation of many small
messages spends its time in the codec, and every number of a header that came from outside is checked on the way.

A message is a frozen dataclass whose fields are arrays (`FloatArray`, `IntArray`), numbers, strings, booleans, None or
tuples of strings. It travels under its wire name with the round it belongs to, and is checked against its fields
before it becomes an object again.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import lru_cache
from math import prod
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from koncord.errors import MessageError
from koncord.types import FloatArray, IntArray

FORMAT = 1
_METADATA, _HEADER = "__metadata__", "koncord"
_DTYPES = {FloatArray: np.dtype("<f8"), IntArray: np.dtype("<i8")}
_CODES = {np.dtype("<f8"): "F64", np.dtype("<i8"): "I64"}
_STORED = {code: dtype for dtype, code in _CODES.items()}
_LENGTH_BYTES = 8


def wire_name(kind: type[Any]) -> str:
    """Name a message travels under: its module and class, as in ``fedgem.Balls``."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def pack(message: Any, *, round_: int = 0) -> bytes:
    """Bytes of `message`, the same for the same message."""
    kind = type(message)
    values: list[tuple[str, str]] = []
    arrays: list[tuple[str, str, tuple[int, ...]]] = []
    parts: list[bytes] = []
    for name, field in _fields_of(kind).items():
        value = getattr(message, name)
        if field.dtype is None or value is None:
            values.append((name, json.dumps(value, allow_nan=False)))
        else:
            array = np.asarray(value, dtype=field.dtype)
            arrays.append((name, _CODES[field.dtype], array.shape))
            parts.append(array.tobytes())
    head = _head(wire_name(kind), round_, tuple(values), tuple(arrays))
    return b"".join([head, *parts])


@lru_cache(maxsize=256)  # the messages of one round differ in their numbers only
def _head(
    message: str, round_: int, values: tuple[tuple[str, str], ...], arrays: tuple[tuple[str, str, tuple[int, ...]], ...]
) -> bytes:
    """Everything before the arrays: the length of the header and the header itself."""
    header = {
        "format": FORMAT,
        "message": message,
        "round": round_,
        "values": {name: json.loads(text) for name, text in values},
    }
    entries: dict[str, Any] = {}
    end = 0
    for name, code, shape in arrays:
        start, end = end, end + prod(shape) * _STORED[code].itemsize
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": (start, end)}
    entries[_METADATA] = {_HEADER: json.dumps(header)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # the arrays begin at a multiple of eight
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def unpack(data: bytes, kinds: Collection[type[Any]]) -> tuple[Any, int]:
    """The message in `data` and its round; `MessageError` unless it is a well-formed message of one of `kinds`."""
    header, arrays = _open(data)
    kind = next((kind for kind in kinds if wire_name(kind) == header["message"]), None)
    if kind is None:
        wanted = " or ".join(sorted(map(wire_name, kinds))) or "no message"
        raise MessageError(f"a message {str(header['message'])[:60]!r} came where {wanted} was expected.")
    types = _fields_of(kind)
    given = {**header["values"], **arrays}
    if given.keys() != types.keys() and not is_complete(given, types):
        raise MessageError(f"a message {wire_name(kind)} must hold {sorted(types)}; it holds {sorted(given)}.")
    checked = {name: _checked(kind, name, given.get(name), field) for name, field in types.items()}
    try:
        return kind(**checked), header["round"]
    except ValueError as error:
        raise MessageError(f"a message {wire_name(kind)} is not consistent: {error}") from error


def is_complete(given: Collection[str], types: Mapping[str, "_Field"]) -> bool:
    """Whether `given` names fields of a message only, and all of them but some that may be None."""
    return all(name in types for name in given) and all(
        name in given or field.may_be_none for name, field in types.items()
    )


def _open(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a message; the arrays must lie one after the other and fill the rest of the bytes."""
    try:
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        if not _LENGTH_BYTES < start <= len(data):
            raise ValueError
        header, entries = _read_head(data[_LENGTH_BYTES:start])
        arrays, end = {}, 0
        for name, entry in entries.items():
            arrays[name], end = _array(data, start, end, entry)
        if start + end != len(data):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError("the bytes are not a koncord message.") from error
    expected = {"format": int, "message": str, "round": int, "values": dict}
    if not isinstance(header, dict) or any(type(header.get(name)) is not kind for name, kind in expected.items()):
        raise MessageError("the header of the message is not that of koncord.")
    if header["format"] != FORMAT:
        raise MessageError(f"the message has format {header['format']}; this koncord reads format {FORMAT}.")
    return header, arrays


@lru_cache(maxsize=256)
def _read_head(text: bytes) -> tuple[Any, Mapping[str, Any]]:
    """Header of koncord and entries of the arrays, which nobody may change."""
    entries = json.loads(text)
    header = json.loads(entries.pop(_METADATA)[_HEADER])
    return header, entries


def _array(data: bytes, start: int, offset: int, entry: Mapping[str, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """The array at `offset` behind the header, and where the next one begins; ValueError unless it is all there."""
    dtype = _STORED[entry["dtype"]]
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError
    count = prod(shape)
    end = offset + count * dtype.itemsize
    if entry["data_offsets"] != [offset, end] or start + end > len(data):
        raise ValueError
    return np.frombuffer(data, dtype, count, start + offset).reshape(shape), end


class _Field(NamedTuple):
    """What a field of a message may be: an array of `dtype`, or one of the other types."""

    dtype: np.dtype[Any] | None
    others: tuple[Any, ...]
    may_be_none: bool


_known_fields: dict[type[Any], dict[str, _Field]] = {}


def _fields_of(kind: type[Any]) -> dict[str, _Field]:
    """What the fields of a message may be; looked up once a class."""
    if kind not in _known_fields:
        hints = get_type_hints(kind)
        _known_fields[kind] = {field.name: _field(hints[field.name]) for field in fields(kind)}
    return _known_fields[kind]


def _field(hint: Any) -> _Field:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    dtype = next((dtype for array, dtype in _DTYPES.items() if array in options), None)
    return _Field(dtype, () if dtype is not None else options, NoneType in options)


def _checked(kind: type[Any], name: str, value: Any, field: _Field) -> Any:
    if isinstance(value, np.ndarray):
        if field.dtype is not None and value.dtype == field.dtype:
            return value
    elif value is None:
        if field.may_be_none:
            return None
    elif type(value) in field.others:
        return value
    elif type(value) is int and float in field.others:
        return float(value)
    elif isinstance(value, list) and tuple[str, ...] in field.others and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise MessageError(f"field {name!r} of a message {wire_name(kind)} has the wrong type.")
