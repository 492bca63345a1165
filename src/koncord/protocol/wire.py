"""The codec of every message: a safetensors file, that is arrays behind one JSON header, and no pickle.

It is written and read here rather than by the library, which any of its readers can check: a federation of many small
messages spends its time in the codec, and every number of a header that came from outside is checked on the way.

A message is a frozen dataclass whose fields are arrays (`FloatArray`, `IntArray`), numbers, strings, booleans, None or
tuples of strings. It travels under its wire name with the round it belongs to, and is checked against its fields and
their rules (`limits`) before it becomes an object again.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import lru_cache
from math import prod
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from koncord.errors import MessageError
from koncord.protocol.schema import LARGEST_MESSAGE, LARGEST_ROUND, Rule, Sizes
from koncord.types import FloatArray, IntArray

WIRE_FORMAT = 1
_METADATA, _HEADER = "__metadata__", "koncord"
_DTYPES = {FloatArray: np.dtype("<f8"), IntArray: np.dtype("<i8")}
_CODES = {np.dtype("<f8"): "F64", np.dtype("<i8"): "I64"}
_STORED = {code: dtype for dtype, code in _CODES.items()}
_LENGTH_BYTES = 8
_LARGEST_HEADER = 1 << 22
_LARGEST_KEPT = 1 << 12  # a header beyond is read anew each time: many large ones would fill the memory
_MOST_DIMENSIONS = 3
_LARGEST_WHOLE = 10**300  # that becomes a float


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
        "format": WIRE_FORMAT,
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


def unpack(
    data: bytes,
    kinds: Collection[type[Any]],
    sizes: Mapping[str, int] | None = None,
    *,
    most_bytes: int = LARGEST_MESSAGE,
) -> tuple[Any, int]:
    """The message in `data` and its round; `MessageError` unless it is a well-formed message of one of `kinds`.

    Its fields keep to their rules and to the `sizes` that are known already.
    """
    if len(data) > most_bytes:
        raise MessageError(f"a message of {len(data)} bytes came; at most {most_bytes} are read.")
    header, arrays = _open(data)
    kind = next((kind for kind in kinds if wire_name(kind) == header["message"]), None)
    if kind is None:
        wanted = " or ".join(sorted(map(wire_name, kinds))) or "no message"
        raise MessageError(f"a message {str(header['message'])[:60]!r} came where {wanted} was expected.")
    types = _fields_of(kind)
    given = {**header["values"], **arrays}
    if given.keys() != types.keys() and not is_complete(given, types):
        raise MessageError(f"a message {wire_name(kind)} must hold {sorted(types)}; it holds {sorted(given)}.")
    found = dict(sizes or {})
    checked = {name: _checked(kind, name, given.get(name), field, found) for name, field in types.items()}
    try:
        return kind(**checked), header["round"]
    except ValueError as error:
        raise MessageError(f"a message {wire_name(kind)} is not consistent: {error}") from error


def settled_by(message: Any) -> Sizes:
    """The sizes that a message of our own settles for its answer."""
    sizes: Sizes = {}
    for name, field in _fields_of(type(message)).items():
        value = getattr(message, name)
        if field.rule is not None and value is not None:
            field.rule.settle(value, sizes)
    return sizes


def is_complete(given: Collection[str], types: Mapping[str, "_Field"]) -> bool:
    """Whether `given` names fields of a message only, and all of them but some that may be None."""
    return all(name in types for name in given) and all(
        name in given or field.may_be_none for name, field in types.items()
    )


def _open(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a message; the arrays must lie one after the other and fill the rest of the bytes."""
    try:
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        start = _LENGTH_BYTES + length
        if not _LENGTH_BYTES < start <= len(data) or length > _LARGEST_HEADER:
            raise ValueError
        read = _kept_head if length <= _LARGEST_KEPT else _read_head
        header, entries = read(data[_LENGTH_BYTES:start])
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
    if header["format"] != WIRE_FORMAT:
        raise MessageError(f"the message has format {header['format']}; this koncord reads format {WIRE_FORMAT}.")
    if not 0 <= header["round"] <= LARGEST_ROUND:
        raise MessageError(f"the round of a message must be from 0 to {LARGEST_ROUND}.")
    return header, arrays


def _read_head(text: bytes) -> tuple[Any, Mapping[str, Any]]:
    """Header of koncord and entries of the arrays, which nobody may change."""
    entries = _parse(text)
    header = _parse(entries.pop(_METADATA)[_HEADER])
    return header, entries


_kept_head = lru_cache(maxsize=256)(_read_head)


def _parse(text: bytes | str) -> Any:
    return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> NoReturn:
    """NaN and the infinities are no JSON; an array may hold them."""
    raise ValueError


def _array(data: bytes, start: int, offset: int, entry: Mapping[str, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """The array at `offset` behind the header, and where the next one begins; ValueError unless it is all there."""
    dtype = _STORED[entry["dtype"]]
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError
    if not all(type(size) is int and 0 <= size <= len(data) for size in shape):
        raise ValueError
    count = prod(shape)
    end = offset + count * dtype.itemsize
    if entry["data_offsets"] != [offset, end] or start + end > len(data):
        raise ValueError
    return np.frombuffer(data, dtype, count, start + offset).reshape(shape), end


class _Field(NamedTuple):
    """What a field of a message may be: an array of `dtype`, or one of the other types; and the rule it keeps to."""

    dtype: np.dtype[Any] | None
    others: tuple[Any, ...]
    may_be_none: bool
    rule: Rule | None


_known_fields: dict[type[Any], dict[str, _Field]] = {}


def _fields_of(kind: type[Any]) -> dict[str, _Field]:
    """What the fields of a message may be; looked up once a class."""
    if kind not in _known_fields:
        hints = get_type_hints(kind, include_extras=True)
        _known_fields[kind] = {field.name: _field(hints[field.name]) for field in fields(kind)}
    return _known_fields[kind]


def _field(hint: Any) -> _Field:
    rule = None
    if get_origin(hint) is Annotated:
        hint, rule = get_args(hint)
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    dtype = next((dtype for array, dtype in _DTYPES.items() if array in options), None)
    return _Field(dtype, () if dtype is not None else options, NoneType in options, rule)


def _checked(kind: type[Any], name: str, value: Any, field: _Field, sizes: Sizes) -> Any:
    """The value of a field, of its type and by its rule; `sizes` gains those it settles."""
    value = _typed(kind, name, value, field)
    if field.rule is not None and value is not None:
        try:
            field.rule.check(value, sizes)
        except ValueError as error:
            raise MessageError(f"field {name!r} of a message {wire_name(kind)} {error}.") from error
    return value


def _typed(kind: type[Any], name: str, value: Any, field: _Field) -> Any:
    if isinstance(value, np.ndarray):
        if field.dtype is not None and value.dtype == field.dtype:
            return value
    elif value is None:
        if field.may_be_none:
            return None
    elif type(value) in field.others:
        return value
    elif type(value) is int and float in field.others and abs(value) < _LARGEST_WHOLE:
        return float(value)
    elif isinstance(value, list) and tuple[str, ...] in field.others and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise MessageError(f"field {name!r} of a message {wire_name(kind)} has the wrong type.")
