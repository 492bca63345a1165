"""HTML in small pieces. A string that comes from outside passes `text` first; everything else is markup already."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from koncord._text import showable

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


def definitions(pairs: Sequence[tuple[str, str]], class_: str | None = None) -> str:
    return tag(
        "dl",
        "\n".join(tag("div", tag("dt", term) + tag("dd", meaning)) for term, meaning in pairs),
        class_=class_,
    )
