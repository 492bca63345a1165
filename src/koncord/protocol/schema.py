"""What a field of a message may hold, stated beside the field and checked before anything is computed with it.

A rule stands in the annotation of its field::

    means: Annotated[FloatArray, Array("at most local_k", "n_features")]

Sizes have names. One that is known already (the number of columns, once agreed; the number of centers that were asked
about) must be met; another is taken from the first field that has it, and the other fields must agree. No size is
larger than its entry in `LARGEST`. What a client's message discloses is read from the same rules (`sent_by`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

import numpy as np

from koncord._text import is_showable
from koncord._validation import LARGEST_VALUE

# Largest size of each name. They bound what one message can make the other side allocate and compute, and are far
# above what a federation needs.
LARGEST = {
    "n_features": 100_000,
    "n_columns": 100_000,  # of a table; features are columns of numbers, and levels of categories
    "n_categories": 10_000,
    "n_levels": 100_000,  # of all categories
    "n_blocks": 1_000,  # of the sketch of a column
    "rows": 10**9,  # of one client
    "local_k": 1_000,
    "global_k": 20_000,
    "n_candidates": 100,  # global models that clients judge in one round
    "judged_k": 500_000,  # centers of all of them
    "n_seeds": 20_000,
    "n_micro_clusters": 1_000,  # of one client
    "n_axes": 16,
}
LARGEST_MESSAGE = 1 << 28  # bytes
LARGEST_ANSWER = 1 << 25  # bytes of all replies of a client in one exchange: four million numbers
LARGEST_ROUND = 1_000_000
LONGEST_NAME = 1_000
LARGEST_FLOAT = float(np.finfo(float).max)
SMALLEST_FLOAT = float(np.finfo(float).smallest_subnormal)  # the least that is more than 0
# A sum of weights that are at most one each may exceed their number by rounding.
SUM_ROUNDING = 1e-6
AT_MOST = "at most "

Sizes = dict[str, int]


class Rule(Protocol):
    """What one field may hold."""

    @property
    def shape_in_words(self) -> str:
        """How much the field holds, for a reader."""

    @property
    def grows_with_rows(self) -> bool:
        """Whether a client with more rows sends more in this field."""

    def check(self, value: Any, sizes: Sizes) -> None:
        """ValueError, with what was wanted, unless `value` keeps to the rule; sizes it settles are added."""

    def settle(self, value: Any, sizes: Sizes) -> None:
        """Add the sizes that `value`, taken as right, settles for the answer."""


class Array:
    """An array of named sizes whose entries lie between two bounds; NaN only where `may_be_nan`.

    A size "at most NAME" may be anything from 0 to that of NAME. `total` names the size that the sum of all entries
    may not exceed. `holds_rows` says that entries are rows of the client's table, or as good as these; an array of the
    size "rows" grows with them in any case. `only_from` says in words which clients send it, if not all do.
    """

    def __init__(
        self,
        *shape: str,
        least: float = -LARGEST_VALUE,
        most: float = LARGEST_VALUE,
        may_be_nan: bool = False,
        total: str | None = None,
        holds_rows: bool = False,
        only_from: str | None = None,
    ) -> None:
        self.shape = shape
        self.least = least
        self.most = most
        self.may_be_nan = may_be_nan
        self.total = total
        self.holds_rows = holds_rows
        self.only_from = only_from

    @property
    def shape_in_words(self) -> str:
        first, *rest = self.shape
        shape = " x ".join([f"{first} rows" if self.holds_rows else first, *rest])
        return shape if self.only_from is None else f"{shape}, of {self.only_from}"

    @property
    def grows_with_rows(self) -> bool:
        return self.holds_rows or any(size.removeprefix(AT_MOST) == "rows" for size in self.shape)

    def check(self, value: np.ndarray[Any, Any], sizes: Sizes) -> None:
        if value.ndim != len(self.shape):
            raise ValueError(f"must be {' x '.join(self.shape)}; it has {value.ndim} dimensions")
        for name, size in zip(self.shape, value.shape, strict=True):
            if sizes.get(name) != size:
                check_size(name, size, sizes)
        if not value.size:
            return
        if self.may_be_nan:
            is_within = not ((value < self.least) | (value > self.most)).any()
        else:  # a NaN is neither; these are the bare reductions, as a round checks many small arrays
            lowest, highest = np.minimum.reduce(value, axis=None), np.maximum.reduce(value, axis=None)
            is_within = lowest >= self.least and highest <= self.most
        if not is_within:
            raise ValueError(f"must hold numbers from {self.least:g} to {self.most:g}")
        if self.total is not None:
            most = sizes.get(self.total, LARGEST[self.total])
            if value.sum() > most * (1 + SUM_ROUNDING):
                raise ValueError(f"must not sum to more than {most}, the {self.total}")

    def settle(self, value: np.ndarray[Any, Any], sizes: Sizes) -> None:
        for name, size in zip(self.shape, value.shape, strict=True):
            sizes[name.removeprefix(AT_MOST)] = size


class Number:
    """One number between two bounds; with `size`, it is the size of that name and bounded as such.

    `only_from` says in words which clients send it, if not all do.
    """

    grows_with_rows = False

    def __init__(
        self,
        *,
        least: float = -LARGEST_VALUE,
        most: float = LARGEST_VALUE,
        size: str | None = None,
        only_from: str | None = None,
    ) -> None:
        self.least = least
        self.most = most if size is None else LARGEST[size]
        self.size = size
        self.only_from = only_from

    @property
    def shape_in_words(self) -> str:
        return "1" if self.only_from is None else f"1, of {self.only_from}"

    def check(self, value: float, sizes: Sizes) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"must be from {self.least:g} to {self.most:g}")

    def settle(self, value: int, sizes: Sizes) -> None:
        if self.size is not None:
            sizes[self.size] = value


class Word:
    """One of several words."""

    grows_with_rows = False
    shape_in_words = "1 word"

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, value: str, sizes: Sizes) -> None:
        if value not in self.words:
            raise ValueError(f"must be {' or '.join(map(repr, self.words))}")

    def settle(self, value: str, sizes: Sizes) -> None:
        pass


class Names:
    """Distinct names, as many as the size says, that can be written and shown."""

    grows_with_rows = False

    def __init__(self, size: str) -> None:
        self.size = size

    @property
    def shape_in_words(self) -> str:
        return f"{self.size} names"

    def check(self, value: tuple[str, ...], sizes: Sizes) -> None:
        check_size(self.size, len(value), sizes)
        if len(set(value)) < len(value):
            raise ValueError("must not hold a name twice")
        if not all(map(is_plain, value)):
            raise ValueError(f"must be names of at most {LONGEST_NAME} characters that can be shown")

    def settle(self, value: tuple[str, ...], sizes: Sizes) -> None:
        sizes[self.size] = len(value)


def check_size(name: str, size: int, sizes: Sizes) -> None:
    """ValueError unless `size` is that of `name`; where it is not known yet, it is now."""
    if name in sizes:
        if size != sizes[name]:
            raise ValueError(f"must have {sizes[name]} for {name}; it has {size}")
        return
    if name.startswith(AT_MOST):
        bounded = name.removeprefix(AT_MOST)
        least, most = 0, sizes.get(bounded, LARGEST[bounded])
    else:
        least, most = 1, LARGEST[name]
    if not least <= size <= most:
        raise ValueError(f"must have from {least} to {most} for {name}; it has {size}")
    sizes[name] = size


def is_plain(name: str) -> bool:
    """Whether a name is short and disturbs nothing where it is shown."""
    return len(name) <= LONGEST_NAME and is_showable(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One array or number a client sends: its message and field, its shape in words, and whether rows enlarge it."""

    message: str
    field: str
    shape: str
    grows_with_rows: bool = False


def sent_by(kinds: Iterable[type[Any]]) -> tuple[Sent, ...]:
    """All that messages of these kinds disclose, field by field, as their annotations declare it.

    >>> from koncord.protocol.setup import Prepared
    >>> sent_by([Prepared])
    (Sent(message='Prepared', field='local_k', shape='1', grows_with_rows=False),)
    """
    return tuple(sent_in(kind, field.name) for kind in dict.fromkeys(kinds) for field in fields(kind))


def sent_in(kind: type[Any], name: str) -> Sent:
    rule = rule_of(kind, name)
    if rule is None:  # a boolean, as a check of all messages demands
        return Sent(message=kind.__name__, field=name, shape="1")
    return Sent(message=kind.__name__, field=name, shape=rule.shape_in_words, grows_with_rows=rule.grows_with_rows)


def rule_of(kind: type[Any], name: str) -> Rule | None:
    """The rule in the annotation of a field; None if it has none."""
    hint = get_type_hints(kind, include_extras=True)[name]
    return get_args(hint)[1] if get_origin(hint) is Annotated else None
