"""HTML in small pieces. A string that comes from outside passes `text` first; everything else is markup already."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10

from koncord._text import showable

# Numbers that differ by less or by more than this are written with an exponent where they need one.
LEAST_SPREAD, MOST_SPREAD = 1e-5, 1e7
# Characters of a name that fit beside a table on a phone.
LONGEST_UNBROKEN = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How one column of a table is headed and aligned."""

    head: str  # markup
    is_text: bool = False  # to the left; numbers go to the right


def text(value: object) -> str:
    """`value` as text that is safe in markup and in attributes."""
    return escape(showable(str(value)), quote=True)


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; ``class_`` and the like lose their underscore, others turn it into a hyphen; None is left out.

    >>> tag("td", "3", class_="n", data_site='a"b', hidden=None)
    '<td class="n" data-site="a&quot;b">3</td>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def section(identifier: str, heading: str, *content: str) -> str:
    head = tag("h2", heading, id=f"{identifier}-heading")
    return tag(
        "section", "\n".join([head, *filter(None, content)]), id=identifier, aria_labelledby=f"{identifier}-heading"
    )


def paragraph(content: str, class_: str | None = None) -> str:
    return tag("p", content, class_=class_)


def notice(kind: str, content: str) -> str:
    """A sentence that must not be missed; `kind` is the word it begins with."""
    return tag("p", f"{tag('strong', f'{kind}:')} {content}", class_="notice", role="note")


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    last_is_total: bool = False,
    class_: str = "",
) -> str:
    """A table in a box of its own that scrolls where the page is narrow; the first cell of a row is its head.

    The caption is text, cells are markup: a whole ``td``, or the content of one.
    """
    classes = [None if column.is_text else "n" for column in columns]
    head = "".join(
        tag("th", column.head, scope="col", class_=kind) for column, kind in zip(columns, classes, strict=True)
    )
    body = [
        tag("th", row[0], scope="row", class_=head_class(row[0], classes[0]))
        + "".join(
            cell if cell.startswith("<td") else tag("td", cell, class_=kind)
            for cell, kind in zip(row[1:], classes[1:], strict=True)
        )
        for row in rows
    ]
    lines = [tag("tr", row) for row in body]
    foot = tag("tfoot", lines.pop()) if last_is_total else ""
    named = tag("caption", tag("span", text(caption)))
    parts = [named, tag("thead", tag("tr", head)), tag("tbody", "\n".join(lines)), foot]
    inner = tag("table", "\n".join(filter(None, parts)), class_=class_ or None)
    return tag("div", inner, class_="box", role="region", aria_label=caption, tabindex=0)


def head_class(content: str, kind: str | None) -> str | None:
    """Of the head of a row: a short one is not broken into lines."""
    return " ".join(filter(None, (kind, "short" if len(content) <= LONGEST_UNBROKEN else None))) or None


def bar(value: float | None, low: float, high: float) -> str:
    """A bar from zero to `value` on the scale from `low` to `high`; the number stands beside it, so it has no voice."""
    if value is None or not isfinite(value) or high <= low:
        return tag("span", tag("span", "", style="width:0"), class_="bar", aria_hidden="true")
    start, stop = (100 * (at - low) / (high - low) for at in sorted((0.0, value)))
    style = f"margin-left:{start:.2f}%;width:{stop - start:.2f}%"
    return tag(
        "span", tag("span", "", style=style, class_="below" if value < 0 else None), class_="bar", aria_hidden="true"
    )


def definitions(pairs: Sequence[tuple[str, str]], class_: str | None = None) -> str:
    return tag(
        "dl",
        "\n".join(tag("div", tag("dt", term) + tag("dd", meaning)) for term, meaning in pairs),
        class_=class_,
    )


# --- numbers as text ---


def number(value: float) -> str:
    """Four significant digits, with a true minus sign and no exponent where none is needed.

    >>> number(1234567.0), number(1000.0), number(1234.5), number(0.00012345), number(3.0)
    ('1,234,567', '1,000', '1,234', '0.0001234', '3')
    """
    return with_minus(f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}")


def aligned(values: Sequence[float]) -> list[str]:
    """Numbers that stand together: all with as many decimals as tell them apart.

    >>> aligned([0.4567, 12.3, -0.001])
    ['0.5', '12.3', '0.0']
    >>> aligned([1e9, 2.5])
    ['1,000,000,000', '2.5']
    """
    spread = max(values) - min(values) or max(map(abs, values))
    if not LEAST_SPREAD <= spread <= MOST_SPREAD:
        return [number(value) for value in values]
    n_decimals = max(2 - floor(log10(spread)), 0)
    return [with_minus(f"{value:z,.{n_decimals}f}") for value in values]


def fixed(value: float, n_decimals: int) -> str:
    return with_minus(f"{value:z.{n_decimals}f}")


def with_minus(shown: str) -> str:
    return shown.replace("-", "\N{MINUS SIGN}")


def size_of(n_bytes: int) -> str:
    """Bytes in the unit that suits their number.

    >>> size_of(812), size_of(20480), size_of(3_400_000)
    ('812 B', '20.5 kB', '3.4 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes} B"
    return f"{n_bytes / 1e3:,.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:,.1f} MB"
