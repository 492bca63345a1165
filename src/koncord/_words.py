"""Counts and lists in sentences."""

from collections.abc import Sequence

MOST_LISTED = 8


def counted(n: int, thing: str, things: str | None = None) -> str:
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    return joined([repr(name) for name in names], last)


def joined(items: Sequence[str], last: str = "and") -> str:
    """A list as in prose, cut short where it would not end."""
    if len(items) > MOST_LISTED:
        items = [*items[: MOST_LISTED - 1], f"{len(items) - MOST_LISTED + 1} more"]
    return f" {last} ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the right, two spaces apart; the last one, for remarks, to the left.

    >>> print(text_table(("K", "rows", ""), [("2", "1,000", ""), ("13", "7", "small")]))
       K   rows
       2  1,000
      13      7  small
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for line in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        lines.append(("  " + "  ".join([*cells, line[-1]])).rstrip())
    return "\n".join(lines)
