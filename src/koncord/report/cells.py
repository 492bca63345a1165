"""What a table of a page holds: text, or one of a few kinds of cell that the templates draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

# More colors look alike; the number of the cluster stands beside each.
N_COLORS = 8
# The darkest shade of a cell: text on it keeps its contrast, light and dark.
DARKEST = 0.45
# Characters of a name that fit beside a table on a phone.
LONGEST_UNBROKEN = 14


@dataclass(frozen=True, slots=True)
class Chip:
    """The number of a cluster in its color."""

    kind: ClassVar[str] = "chip"
    cluster: int

    @property
    def color(self) -> str:
        return f"c{self.cluster % N_COLORS}"


@dataclass(frozen=True, slots=True)
class Strong:
    kind: ClassVar[str] = "strong"
    text: str


@dataclass(frozen=True, slots=True)
class Shade:
    """A count, and the part of the row that it is; the larger beside the largest part, the darker."""

    kind: ClassVar[str] = "shade"
    count: int
    share: float
    part_of_largest: float

    @property
    def percent(self) -> str:
        return f"{self.share:.0%}" if self.share >= 0.005 else "<1%"

    @property
    def alpha(self) -> str:
        return f"{DARKEST * self.part_of_largest:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A center in one column: its value, its spread, and how far it lies from the average of all rows.

    The farther, the stronger the shade; above and below have colors of their own. The strip below the number is the
    spread on the scale from the lowest to the highest of the line.
    """

    kind: ClassVar[str] = "heat"
    text: str
    step: float  # from the average, from -1 to 1: ±1 is as far as the shade goes
    is_top: bool = False  # whether the column is one of those that set the cluster apart most
    reach_text: str = ""  # one standard deviation to both sides
    strip: tuple[float, float, float] | None = None  # where on the scale it begins, ends, and the center is; 0 to 1

    @property
    def is_above(self) -> bool:
        return self.step > 0

    @property
    def alpha(self) -> str:
        return f"{DARKEST * min(abs(self.step), 1.0):.3f}"

    @property
    def strip_style(self) -> str:
        assert self.strip is not None
        start, stop, _ = self.strip
        return f"left:{100 * start:.1f}%;width:{100 * (stop - start):.1f}%"

    @property
    def tick_style(self) -> str:
        assert self.strip is not None
        return f"left:{100 * self.strip[2]:.1f}%"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from zero to `value` on the scale from `low` to `high`; the number stands beside it."""

    kind: ClassVar[str] = "bar"
    value: float | None
    low: float
    high: float

    @property
    def style(self) -> str:
        if self.value is None or not isfinite(self.value) or self.high <= self.low:
            return "width:0"
        start, stop = (100 * (at - self.low) / (self.high - self.low) for at in sorted((0.0, self.value)))
        return f"margin-left:{start:.2f}%;width:{stop - start:.2f}%"

    @property
    def is_below(self) -> bool:
        return self.value is not None and self.style != "width:0" and self.value < 0


Cell = str | Chip | Strong | Shade | Heat | Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How one column of a table is headed and aligned."""

    head: str | Chip
    is_text: bool = False  # to the left; numbers go to the right


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table; the first cell of a row is its head."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    last_is_total: bool = False
    is_wide: bool = False

    @property
    def body(self) -> Sequence[Sequence[Cell]]:
        return self.rows[:-1] if self.last_is_total else self.rows

    @property
    def foot(self) -> Sequence[Sequence[Cell]]:
        return self.rows[-1:] if self.last_is_total else []


def is_short(head: Cell) -> bool:
    """Whether the head of a row is not broken into lines."""
    return isinstance(head, str) and len(head) <= LONGEST_UNBROKEN


def words(*heads: str) -> list[Column]:
    return [Column(head=head, is_text=True) for head in heads]


def numeric(*heads: str | Chip) -> list[Column]:
    return [Column(head=head) for head in heads]
