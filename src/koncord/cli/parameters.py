"""Parameters of a class as options: ``--set NAME=VALUE``, checked against the signature of its constructor."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, isclass, signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# How each type is written on a command line, in the order they are tried.
TYPE_WORDS: Mapping[Any, str] = {NoneType: "none", bool: "true or false", int: "integer", float: "number", str: "text"}
TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What has parameters: an aggregator or an estimator by its name, and the class or function that makes it."""

    what: str
    name: str
    make: Callable[..., Any]
    flags: Mapping[str, str]  # parameters that have an option of their own, and that option


def parameters_of(make: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of the constructor, by name."""
    return signature(make).parameters


def owner_of(name: str, owners: Iterable[Owner]) -> Owner:
    """The first that has a parameter of this name; `ValueError`, with what all of them have, if none does."""
    passed = []
    for owner in owners:
        if name in settable(owner.make):
            return owner
        passed.append(owner)
    raise ValueError(f"--set {name}: there is no such parameter; {'; '.join(map(parameters_text, passed))}.")


def value_for(make: Callable[..., Any], name: str, text: str) -> Any:
    """The value of a parameter as it is written; `ValueError` if it is none of its.

    >>> from koncord import KFed
    >>> value_for(KFed, "server_iters", "none"), value_for(KFed, "n_init", "20")
    (None, 20)
    """
    for option in options_of(make, name):
        try:
            return read_as(option, text)
        except ValueError:
            continue
    raise ValueError(f"--set {name} must be {wanted(make, name)}; got {text!r}.")


def settable(make: Callable[..., Any]) -> list[str]:
    """Parameters that can be written on a command line."""
    return [name for name in parameters_of(make) if options_of(make, name)]


def options_of(make: Callable[..., Any], name: str) -> list[Any]:
    """What a parameter may be, of that which can be written: types in the order they are tried, and words."""
    hint = get_type_hints(make.__init__ if isclass(make) else make).get(name, str)
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


def wanted(make: Callable[..., Any], name: str) -> str:
    return " or ".join(TYPE_WORDS.get(option, str(option)) for option in options_of(make, name))


def parameters_text(owner: Owner) -> str:
    """What can be set, for a person."""
    names = [name for name in settable(owner.make) if name not in owner.flags]
    has = ", ".join(f"{name} ({parameter_text(owner.make, name)})" for name in names)
    return f"the {owner.what} {owner.name} has {has or 'none'}"


def parameter_text(make: Callable[..., Any], name: str) -> str:
    """A parameter for a person: what it may be, and what it is unless it is set."""
    default = parameters_of(make)[name].default
    shown = "" if default is Parameter.empty else f", default {'none' if default is None else default}"
    return f"{wanted(make, name)}{shown}"
