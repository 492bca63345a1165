"""Checks of arguments. Every message names the argument, its owner, what was wanted and what came."""

from collections.abc import Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from koncord.types import FloatArray

# Squares of larger values, summed over a table, leave the range of a float.
LARGEST_VALUE = 1e150


def owner_name(owner: object) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__


def check_number(name: str, value: Any, *, owner: object, least: float, above: bool = False) -> float:
    """`value` as a float that is at least `least` (or, with `above`, greater)."""
    bound = f"greater than {least:g}" if above else f"at least {least:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"'{name}' of {owner_name(owner)} must be a number {bound}; got {value!r}.")
    if not isfinite(value) or value < least or (above and value == least):
        raise ValueError(f"'{name}' of {owner_name(owner)} must be a finite number {bound}; got {value!r}.")
    return float(value)


def check_count(name: str, value: Any, *, owner: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"'{name}' of {owner_name(owner)} must be an integer of at least {least}; got {value!r}.")
    if value < least:
        raise ValueError(f"'{name}' of {owner_name(owner)} must be at least {least}; got {value!r}.")
    return int(value)


def check_option(name: str, value: Any, options: Sequence[str], *, owner: object) -> str:
    if value not in options:
        wanted = " or ".join(repr(option) for option in options)
        raise ValueError(f"'{name}' of {owner_name(owner)} must be {wanted}; got {value!r}.")
    return str(value)


def check_magnitude(X: FloatArray, *, owner: object) -> FloatArray:
    """Refuse values whose squares are no longer floats, naming the column."""
    if max(-X.min(), X.max()) > LARGEST_VALUE:
        column = int(np.abs(X).max(axis=0).argmax())
        value = float(np.abs(X[:, column]).max())
        raise ValueError(
            f"Column {column} of X for {owner_name(owner)} holds values up to {value:.3g}, whose squares overflow; "
            f"rescale it (values up to {LARGEST_VALUE:g} are accepted)."
        )
    return X
