"""``koncord sites``: the sites of a coordinator, and how each is."""

import argparse
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koncord.network.places import Coordinator, RegisteredSite
    from koncord.network.serving import Connection

NAME = "sites"
SUMMARY = "the sites of a coordinator, and how each is"
DESCRIPTION = """\
Show every site that was invited: whether it is connected now, away, not seen yet or revoked, when it was last seen, the
fingerprint of its key (koncord request shows the same at the site), and the version of koncord it said it has.
"""
EPILOG = """\
examples:
  koncord sites
  koncord sites --json
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        NAME,
        help=SUMMARY,
        usage="koncord sites [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord sites")
    from koncord._words import text_table
    from koncord.network.places import Coordinator

    rows = rows_of(Coordinator.load(args.folder))
    if args.json:
        print(as_json({"sites": rows}))
    elif not rows:
        print("No site was invited.")
    else:
        print(text_table(COLUMNS, [tuple(str(row[name.replace(" ", "_")]) for name in COLUMNS) for row in rows]))


COLUMNS = ("site", "state", "last seen", "version", "key made", "fingerprint")


def rows_of(place: "Coordinator") -> list[dict[str, Any]]:
    """One record a site."""
    from koncord.network.serving import connections

    known = connections(place)
    return [row_of(place, site, known) for site in place.registered()]


def row_of(place: "Coordinator", site: "RegisteredSite", known: "Mapping[int, Connection] | None") -> dict[str, Any]:
    answered, version = place.seen(site.name)
    connection = None if known is None or site.node is None else known.get(site.node)
    return {
        "site": site.name,
        "state": state_of(site, connection),
        "last_seen": max(answered, "" if connection is None else connection.last_seen) or "never",
        "last_answer": answered,
        "version": version or "not known",
        "fingerprint": site.fingerprint,
        "key_made": "" if not site.public else "at the site" if site.has_own_key else "by the coordinator",
        "invited": site.invited,
        "revoked": site.revoked,
        "reason": site.reason,
    }


def state_of(site: "RegisteredSite", connection: "Connection | None") -> str:
    """How a site is, in a word or a few."""
    if site.revoked is not None:
        return "revoked"
    if connection is None:
        return "not known"
    return connection.state
