"""What the gate prints: one figure a line, beside stored ones, and whether it fell."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")
FIRST, LAST = "ce43024", "last"
HIGHER, LOWER, NEITHER = "higher", "lower", "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A figure.

    Parameters
    ----------
    name : str
        Section and line, as "accuracy: fresh, ARI".
    value : float
    better : "higher", "lower" or "neither"
        "neither" is a figure of something else than koncord's default, or one that is only shown.
    tolerance : float, default 0
        By how much it may be worse than the last stored figure.
    is_share : bool, default False
        Whether the tolerance is a share of the stored figure.
    """

    name: str
    value: float
    better: str = NEITHER
    tolerance: float = 0.0
    is_share: bool = False

    def fell(self, stored: float | None) -> bool:
        if stored is None or self.better == NEITHER:
            return False
        allowed = self.tolerance * (abs(stored) if self.is_share else 1.0)
        worse = stored - self.value if self.better == HIGHER else self.value - stored
        return worse > allowed + 1e-9


Stored = Mapping[str, Mapping[str, Mapping[str, float]]]  # part -> which -> name of a line -> figure


def read_figures() -> Stored:
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def write_figures(part: str, which: str, lines: Sequence[Line]) -> None:
    figures = {name: dict(own) for name, own in read_figures().items()}
    kept = figures.setdefault(part, {}).get(which, {})
    figures[part][which] = {**kept, **{line.name: round(line.value, 4) for line in lines}}
    FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def table(part: str, lines: Sequence[Line]) -> tuple[str, list[str]]:
    """The table as text, and the names of the lines that fell."""
    own = read_figures().get(part, {})
    first, last = own.get(FIRST, {}), own.get(LAST, {})
    width = max(len(line.name) for line in lines)
    rows = [f"{'':{width}}  {FIRST:>9}  {LAST:>9}  {'now':>9}"]
    fallen = []
    for line in lines:
        marks = "  fell" if line.fell(last.get(line.name)) else ""
        fallen += [line.name] if marks else []
        cells = "  ".join(shown(value) for value in (first.get(line.name), last.get(line.name), line.value))
        rows.append(f"{line.name:{width}}  {cells}{marks}")
    return "\n".join(rows), fallen


def shown(value: float | None) -> str:
    if value is None:
        return f"{'-':>9}"
    return f"{value:>9,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:>9.3f}"
