"""The check of several tables, as text or as a record."""

from typing import Any

from koncord._words import counted, text_table
from koncord.prepare.checking import Check

MOST_SITES_SHOWN = 3
MOST_LEVELS_SHOWN = 8


def as_text(check: Check) -> str:
    """For a person."""
    rows = [
        (column.name, column.kind, gaps_cell(column.missing), column.action + about_levels(column.levels))
        for column in check.columns
    ]
    sites = ", ".join(f"{site} ({counted(n, 'row')})" for site, n in check.rows.items())
    parts = [
        f"{counted(len(check.rows), 'site')}: {sites}",
        text_table(("column", "is", "missing", "what is done"), rows),
    ]
    parts += ["\n".join(f"warning: {warning}" for warning in check.warnings)] * bool(check.warnings)
    verdict = "A run would be refused:" if check.is_refused else "A run would go ahead."
    return "\n\n".join([*parts, "\n".join([verdict, *(f"  {refusal}" for refusal in check.refusals)])])


def gaps_cell(missing: Any) -> str:
    shown = [f"{percent(share)} {site}" for site, share in sorted(missing.items(), key=lambda each: -each[1])]
    return ", ".join([*shown[:MOST_SITES_SHOWN], *(["..."] * (len(shown) > MOST_SITES_SHOWN))])


def percent(share: float) -> str:
    """A share that is not 0 never reads as one that is."""
    return "<1%" if share < 0.005 else f"{share:.0%}"


def about_levels(levels: tuple[str, ...]) -> str:
    if not levels:
        return ""
    return f" [{', '.join(levels[:MOST_LEVELS_SHOWN])}{', ...' if len(levels) > MOST_LEVELS_SHOWN else ''}]"


def as_record(check: Check) -> dict[str, Any]:
    """For a machine."""
    return {
        "sites": dict(check.rows),
        "columns": [
            {
                "name": column.name,
                "kind": column.kind,
                "action": column.action,
                "used": column.is_used,
                "missing": dict(column.missing),
                "lacking": list(column.lacking),
                "levels": list(column.levels),
            }
            for column in check.columns
        ],
        "warnings": list(check.warnings),
        "refusals": list(check.refusals),
        "refused": check.is_refused,
    }
