"""Usual conversions of units, by name: of a column whose owner says what it is in, and to guess by."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from koncord.data.files import Table, suggestion
from koncord.errors import TableArgumentError


class Conversion(NamedTuple):
    """``factor * value + shift`` is the value in the other unit."""

    factor: float
    shift: float = 0.0


BOTH_WAYS = {
    ("F", "C"): Conversion(1 / 1.8, -32 / 1.8),
    ("K", "C"): Conversion(1.0, -273.15),
    ("psi", "bar"): Conversion(0.0689476),
    ("mbar", "bar"): Conversion(0.001),
    ("Hz", "rpm"): Conversion(60.0),
    ("in", "mm"): Conversion(25.4),
    ("lb", "kg"): Conversion(0.453592),
    ("km/h", "m/s"): Conversion(1 / 3.6),
}
FACTORS = (0.001, 0.01, 0.1, 10.0, 100.0, 1000.0)
CONVERSIONS: dict[str, Conversion] = {
    **{f"{one}-to-{other}": each for (one, other), each in BOTH_WAYS.items()},
    **{f"{other}-to-{one}": Conversion(1 / e.factor, -e.shift / e.factor) for (one, other), e in BOTH_WAYS.items()},
    **{f"x{factor:g}": Conversion(factor) for factor in FACTORS},
}
# The unit alone, where it says enough.
SHORT = {one: f"{one}-to-{other}" for one, other in BOTH_WAYS}


def conversion_named(name: str) -> Conversion:
    """The conversion of this name; `TableArgumentError` if there is none."""
    full = SHORT.get(name, name)
    if full not in CONVERSIONS:
        known = (*SHORT, *CONVERSIONS)
        raise TableArgumentError(f"--convert knows no unit {name!r}; {suggestion(name, known)}")
    return CONVERSIONS[full]


def converted(table: Table, asked: Mapping[str, str]) -> Table:
    """The table with some columns in other units; `asked` names the conversion of each.

    >>> import numpy as np
    >>> table = Table(X=np.array([[212.0, 1.0]]), columns=("t", "p"), name="north")
    >>> converted(table, {"t": "F"}).X.round(6).tolist()
    [[100.0, 1.0]]
    """
    X = table.X.copy()
    for column, name in asked.items():
        if column not in table.columns or column in table.levels:
            raise TableArgumentError(
                f"--convert names {column!r}, which is no column of numbers of {table.name!r}; "
                f"{suggestion(column, table.columns)}"
            )
        factor, shift = conversion_named(name)
        at = table.columns.index(column)
        X[:, at] = factor * X[:, at] + shift
    return replace(table, X=X)
