"""The codec of every message: safetensors, arrays beside one JSON header, no pickle.

A message is a frozen dataclass whose fields are arrays (`FloatArray`, `IntArray`), numbers, strings, booleans, None or
tuples of strings. It travels under its wire name with the round it belongs to, and is checked against its fields
before it becomes an object again.
"""

import json
from collections.abc import Iterable
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from koncord.errors import MessageError
from koncord.types import FloatArray, IntArray

FORMAT = 1
_HEADER = "koncord"
_DTYPES = {FloatArray: np.dtype("float64"), IntArray: np.dtype("int64")}


def wire_name(kind: type[Any]) -> str:
    """Name a message travels under: its module and class, as in ``fedgem.Balls``."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def pack(message: Any, *, round_: int = 0) -> bytes:
    """Bytes of `message`, the same for the same message."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    values: dict[str, Any] = {}
    for name, options in _field_types(type(message)).items():
        value = getattr(message, name)
        dtype = _array_dtype(options)
        if dtype is not None and value is not None:
            arrays[name] = np.ascontiguousarray(value, dtype=dtype)
        else:
            values[name] = list(value) if isinstance(value, tuple) else value
    header = {"format": FORMAT, "message": wire_name(type(message)), "round": round_, "values": values}
    # One metadata entry only: safetensors does not keep the order of several, and equal messages must be equal bytes.
    return save(arrays, metadata={_HEADER: json.dumps(header, allow_nan=False, sort_keys=True)})


def unpack(data: bytes, kinds: Iterable[type[Any]]) -> tuple[Any, int]:
    """The message in `data` and its round; `MessageError` unless it is a well-formed message of one of `kinds`."""
    header, arrays = _open(data)
    by_name = {wire_name(kind): kind for kind in kinds}
    kind = by_name.get(header["message"])
    if kind is None:
        wanted = " or ".join(sorted(by_name)) or "no message"
        raise MessageError(f"a message {str(header['message'])[:60]!r} came where {wanted} was expected.")
    types = _field_types(kind)
    given = {**header["values"], **arrays}
    if set(given) - set(types) or set(types) - set(given) - {n for n, t in types.items() if NoneType in t}:
        raise MessageError(f"a message {wire_name(kind)} must hold {sorted(types)}; it holds {sorted(given)}.")
    checked = {name: _checked(kind, name, given.get(name), options) for name, options in types.items()}
    try:
        return kind(**checked), header["round"]
    except ValueError as error:
        raise MessageError(f"a message {wire_name(kind)} is not consistent: {error}") from error


def _open(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        header = json.loads(metadata[_HEADER])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError("the bytes are not a koncord message.") from error
    expected = {"format": int, "message": str, "round": int, "values": dict}
    if not isinstance(header, dict) or any(type(header.get(name)) is not kind for name, kind in expected.items()):
        raise MessageError("the header of the message is not that of koncord.")
    if header["format"] != FORMAT:
        raise MessageError(f"the message has format {header['format']}; this koncord reads format {FORMAT}.")
    return header, arrays


_known_fields: dict[type[Any], dict[str, tuple[Any, ...]]] = {}


def _field_types(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """For each field of a message the types it may have; looked up once a class."""
    if kind not in _known_fields:
        hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
        _known_fields[kind] = {
            name: get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,) for name, hint in hints.items()
        }
    return _known_fields[kind]


def _array_dtype(options: tuple[Any, ...]) -> np.dtype[Any] | None:
    return next((dtype for array, dtype in _DTYPES.items() if array in options), None)


def _checked(kind: type[Any], name: str, value: Any, options: tuple[Any, ...]) -> Any:
    dtype = _array_dtype(options)
    if value is None and NoneType in options:
        return None
    if isinstance(value, np.ndarray) and dtype is not None and value.dtype == dtype:
        return value
    if isinstance(value, list) and tuple[str, ...] in options and all(isinstance(item, str) for item in value):
        return tuple(value)
    if type(value) in options and dtype is None:
        return value
    if type(value) is int and float in options:
        return float(value)
    raise MessageError(f"field {name!r} of a message {wire_name(kind)} has the wrong type.")
