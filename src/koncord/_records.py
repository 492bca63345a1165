"""Records to JSON values and back: frozen dataclasses of plain values, tuples, mappings and other records."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def json_values(value: Any) -> Any:
    """A record as JSON values: records and mappings become dictionaries, tuples become lists."""
    if is_dataclass(value):
        return {field.name: json_values(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: json_values(each) for name, each in value.items()}
    return [json_values(each) for each in value] if isinstance(value, list | tuple) else value


def from_json(kind: type[Record], value: Any) -> Record:
    """The record of that kind; `TypeError` where a value is not what the annotation of its field says.

    A field that is not given has its default, and a name that is no field is left out.
    """
    return cast(Record, read(kind, value))


def read(kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or (origin is Literal and value in args):
        return value
    if origin in (Union, UnionType):
        return read_first(args, value)
    if origin is tuple and isinstance(value, list):
        return tuple(read(args[0], each) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {name: read(args[1], each) for name, each in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind) if field.name in value]
        return cast(Any, kind)(**{name: read(hints[name], value[name]) for name in names})
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    raise TypeError(f"{value!r} is no {kind}.")


def read_first(kinds: tuple[Any, ...], value: Any) -> Any:
    """The value as the first of these kinds that it can be."""
    for kind in kinds:
        try:
            return read(kind, value)
        except TypeError:
            continue
    raise TypeError(f"{value!r} is none of {kinds}.")
