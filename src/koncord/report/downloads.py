"""What a reader can take from a page: every table as CSV, every drawing as SVG, as links that hold the file itself.

A link needs no script and no network. A spreadsheet reads numbers as numbers; what others wrote is never a formula.
"""

import csv
import io
import re
from base64 import b64encode
from urllib.parse import quote

from markupsafe import Markup

from koncord.report.cells import Bar, Cell, Chip, Heat, Shade, TableView
from koncord.report.style import DRAWING_CSS
from koncord.report.svg import shown_value

# A spreadsheet takes text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?|-?\d+(\.\d+)?(e[+-]?\d+)?")
LONGEST_NAME = 40
SVG_NAMESPACE = "http://www.w3.org/2000/svg"


def csv_link(table: TableView) -> str:
    """The address of a table as CSV."""
    return f"data:text/csv;charset=utf-8,{quote(csv_of(table))}"


def svg_link(drawing: Markup) -> str:
    """The address of a drawing as a file of its own."""
    return f"data:image/svg+xml;base64,{b64encode(standalone(drawing).encode()).decode('ascii')}"


def file_name(words: str, suffix: str) -> str:
    """A name for what is saved.

    >>> file_name("Rows by site and cluster", "csv")
    'rows-by-site-and-cluster.csv'
    """
    slug = re.sub("[^a-z0-9]+", "-", words.split(",")[0].lower())[:LONGEST_NAME].strip("-")
    return f"{slug or 'koncord'}.{suffix}"


def csv_of(table: TableView) -> str:
    """The table as comma-separated text. Bars are left out: the number stands beside them."""
    kept = [at for at in range(len(table.columns)) if not any(isinstance(row[at], Bar) for row in table.rows)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([head for at in kept for head in heads_of(table, at)])
    for row in table.rows:
        writer.writerow([value for at in kept for value in values_of(row[at], is_heat=holds_heat(table, at))])
    return out.getvalue()


def holds_heat(table: TableView, at: int) -> bool:
    return any(isinstance(row[at], Heat) for row in table.rows)


def heads_of(table: TableView, at: int) -> list[str]:
    head = table.columns[at].head
    name = f"cluster {head.cluster}" if isinstance(head, Chip) else safe(head)
    return [f"{name} center", f"{name} low", f"{name} high"] if holds_heat(table, at) else [name]


def values_of(cell: Cell, *, is_heat: bool) -> list[str]:
    """A cell as values of the file: a heat cell is a center and, where it is known, its spread."""
    if isinstance(cell, Heat):
        return [f"{value:.6g}" if value is not None else "" for value in (cell.value, *(cell.reach or (None, None)))]
    if isinstance(cell, Shade):
        return [str(cell.count)]
    if isinstance(cell, Chip):
        return [str(cell.cluster)]
    text = cell if isinstance(cell, str) else getattr(cell, "text", "")
    return [safe(text), *(["", ""] if is_heat else [])]


def safe(text: str) -> str:
    """Text as a spreadsheet should read it: a number as a number, and nothing as a formula.

    >>> safe("1,234"), safe("\N{MINUS SIGN}0.5"), safe("=SUM(A1)"), safe("two, three")
    ('1234', '-0.5', "'=SUM(A1)", 'two, three')
    """
    plain = str(shown_value(text)).replace("\N{MINUS SIGN}", "-")
    if NUMBER.fullmatch(plain):
        return plain.replace(",", "")
    return f"'{plain}" if plain.startswith(FORMULA) else plain


def standalone(drawing: Markup) -> str:
    """An SVG file: the drawing with its size and the style it has on the page, in light colors."""
    opening, rest = str(drawing).split(">", 1)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', opening)
    assert box is not None
    size = f' xmlns="{SVG_NAMESPACE}" width="{box[1]}" height="{box[2]}"'
    return f"{opening}{size}><style>{DRAWING_CSS}</style>{rest}"
