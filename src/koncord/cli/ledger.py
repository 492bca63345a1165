"""``koncord ledger FILE|DIR``: what left a site, message by message."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord.cli.output import as_json
from koncord.cli.parsing import add_command

if TYPE_CHECKING:
    from koncord.protocol.ledger import Entry

NAME = "ledger"
SUMMARY = "what left a site, message by message"
DESCRIPTION = """\
Show the ledger of a site: one line for each message, noted before it left. The shape of a field tells how many numbers
it held; a lone number has none. A question that was refused has the reason, which stayed here; what left is a sentence
that tells nothing of the rows. With a folder, the ledgers of all sites in it.
"""
EPILOG = """\
examples:
  koncord fit north.csv south.csv west.csv --out run --ledger ledgers
  koncord ledger ledgers/north.ledger.jsonl
  koncord ledger ledgers --json
"""

DIGEST_DIGITS = 16  # of a SHA-256 that are shown


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord ledger FILE|DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("path", metavar="FILE|DIR", type=Path, help="a ledger, or a folder with one a site")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from koncord.protocol.ledger import ledger_files, read_ledger

    entries = [entry for each in ledger_files(args.path) for entry in read_ledger(each)]
    print(as_json(ledger_record(entries)) if args.json else ledger_text(entries))


def ledger_record(entries: "Sequence[Entry]") -> dict[str, Any]:
    """For a machine."""
    from koncord.protocol.ledger import spent_by_run

    return {
        "messages": [
            {
                "time": entry.time,
                "run": entry.run,
                "site": entry.site,
                "round": entry.round_,
                "message": entry.message,
                "fields": entry.fields,
                "bytes": entry.n_bytes,
                "sha256": entry.sha256,
                **({} if entry.epsilon is None else {"epsilon": entry.epsilon}),
                **({} if entry.refused is None else {"refused": entry.refused}),
            }
            for entry in entries
        ],
        "totals": {
            site: {
                "messages": len(own) - n_refused(own),
                "refusals": n_refused(own),
                "bytes": sum(entry.n_bytes for entry in own),
                **({"epsilon": spent_by_run(own, site)} if any(entry.epsilon is not None for entry in own) else {}),
            }
            for site, own in entries_by_site(entries).items()
        },
    }


def ledger_text(entries: "Sequence[Entry]") -> str:
    """For a person."""
    from koncord._words import counted, text_table

    has_budget = any(entry.epsilon is not None for entry in entries)
    messages = text_table(
        ("time", "run", "site", "round", "message", "bytes", "sha256", *["epsilon"] * has_budget, "fields"),
        [
            (
                entry.time,
                entry.run,
                entry.site,
                str(entry.round_),
                entry.message,
                f"{entry.n_bytes:,}",
                entry.sha256[:DIGEST_DIGITS],
                *["" if entry.epsilon is None else f"{entry.epsilon:.4g}"] * has_budget,
                entry.refused or ", ".join(field_text(name, shape) for name, shape in entry.fields.items()),
            )
            for entry in entries
        ],
    )
    totals = [
        f"{site}: {counted(len(own) - n_refused(own), 'message')}{refusals(own)}, "
        f"{sum(entry.n_bytes for entry in own):,} bytes{spent(own)}"
        for site, own in entries_by_site(entries).items()
    ]
    return "\n".join([messages, "", *totals])


def entries_by_site(entries: "Sequence[Entry]") -> "Mapping[str, list[Entry]]":
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.site, []).append(entry)
    return found


def n_refused(entries: "Sequence[Entry]") -> int:
    return sum(entry.refused is not None for entry in entries)


def refusals(entries: "Sequence[Entry]") -> str:
    from koncord._words import counted

    return f", {counted(n_refused(entries), 'refusal')}" if n_refused(entries) else ""


def spent(entries: "Sequence[Entry]") -> str:
    """What a site has spent of its privacy budgets: in the last run that had one, and in all of these."""
    from koncord.protocol.ledger import spent_by_run

    runs = spent_by_run(entries, entries[-1].site)
    if not runs:
        return ""
    *_, last = runs
    together = f", {sum(runs.values()):.4g} in its {len(runs)} runs together" if len(runs) > 1 else ""
    return f", epsilon {runs[last]:.4g} spent in run {last}{together}"


def field_text(name: str, shape: Sequence[int]) -> str:
    """A field and its shape.

    >>> field_text("means", (3, 21)), field_text("local_k", ())
    ('means 3x21', 'local_k')
    """
    return f"{name} {'x'.join(map(str, shape))}" if len(shape) else name
