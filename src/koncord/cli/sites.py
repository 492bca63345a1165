"""``koncord sites``: the sites of a coordinator, and how each is."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.places import Coordinator

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
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord sites [options]", description=DESCRIPTION, epilog=EPILOG
    )
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord sites")
    from koncord._words import text_table
    from koncord.network.places import Coordinator

    rows = site_records(Coordinator.load(args.folder))
    if args.json:
        print(as_json({"sites": rows}))
    elif not rows:
        print("No site was invited.")
    else:
        print(
            text_table(SITE_COLUMNS, [tuple(str(row[name.replace(" ", "_")]) for name in SITE_COLUMNS) for row in rows])
        )


SITE_COLUMNS = ("name", "state", "last seen", "version", "key made", "fingerprint")


def site_records(place: "Coordinator") -> list[dict[str, Any]]:
    """One record a site."""
    from koncord.network.sites import sites_of

    return [asdict(site) for site in sites_of(place)]
