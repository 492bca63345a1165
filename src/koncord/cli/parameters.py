"""Parameters of a class as options: ``--set NAME=VALUE``, checked against the signature of its constructor."""

from collections.abc import Mapping
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# How each type is written on a command line, in the order they are tried.
TYPE_WORDS: Mapping[Any, str] = {NoneType: "none", bool: "true or false", int: "integer", float: "number", str: "text"}
TRUTH = {"true": True, "false": False}


def parameters_of(kind: type[Any]) -> Mapping[str, Parameter]:
    """The parameters of the constructor, by name."""
    return signature(kind).parameters


def value_for(kind: type[Any], name: str, text: str) -> Any:
    """The value of a parameter as it is written; `ValueError` if there is no such parameter, or it is none of its.

    >>> from koncord import KFed
    >>> value_for(KFed, "server_iters", "none"), value_for(KFed, "n_init", "20")
    (None, 20)
    """
    if name not in settable(kind):
        has = "; ".join(f"{each} ({parameter_text(kind, each)})" for each in settable(kind)) or "none"
        raise ValueError(f"--set {name}: {kind.__name__} has no such parameter; it has {has}.")
    for option in options_of(kind, name):
        try:
            return read_as(option, text)
        except ValueError:
            continue
    raise ValueError(f"--set {name} must be {wanted(kind, name)}; got {text!r}.")


def settable(kind: type[Any]) -> list[str]:
    """Parameters that can be written on a command line."""
    return [name for name in parameters_of(kind) if options_of(kind, name)]


def options_of(kind: type[Any], name: str) -> list[Any]:
    """What a parameter may be, of that which can be written: types in the order they are tried, and words."""
    hint = get_type_hints(kind.__init__).get(name, str)
    given = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = [word for each in given if get_origin(each) is Literal for word in get_args(each)]
    return [*words, *(each for each in TYPE_WORDS if each in given)]


def read_as(option: Any, text: str) -> Any:
    """`text` as a value of a type, or as the word that is asked for; `ValueError` if it is none."""
    if option is NoneType:
        return one_of({"none": None}, text.lower())
    if option is bool:
        return one_of(TRUTH, text.lower())
    return option(text) if isinstance(option, type) else one_of({str(option): option}, text)


def one_of(values: Mapping[str, Any], text: str) -> Any:
    if text not in values:
        raise ValueError(text)
    return values[text]


def wanted(kind: type[Any], name: str) -> str:
    return " or ".join(TYPE_WORDS.get(option, str(option)) for option in options_of(kind, name))


def parameter_text(kind: type[Any], name: str) -> str:
    """A parameter for a person: what it may be, and what it is unless it is set."""
    default = parameters_of(kind)[name].default
    shown = "" if default is Parameter.empty else f", default {'none' if default is None else default}"
    return f"{wanted(kind, name)}{shown}"
