"""``koncord revoke NAME``: take the key of a site from it."""

import argparse
from typing import Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

NAME = "revoke"
SUMMARY = "take the key of a site from it"
DESCRIPTION = """\
From now on the coordinator refuses every call that the site's key signs. A run that goes on goes on without the site,
from its next exchange at the latest, and takes no answer of it any more. What it sent before stays in the model. To
let the site take part again, invite it anew, with another key.
"""
EPILOG = """\
examples:
  koncord revoke north --reason "laptop lost on 12 March"
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord revoke NAME [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="NAME", help="of the site")
    parser.add_argument("--reason", metavar="TEXT", default="", help="for koncord sites")
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord revoke")
    from dataclasses import replace

    from koncord._text import shortened
    from koncord.network.flower.control import unregister
    from koncord.network.places import Coordinator, now
    from koncord.network.serving import is_running

    place = Coordinator.load(args.folder)
    with place.changing_sites():
        site = place.find_site(args.name)
        if site.revoked is not None:
            raise ValueError(f"Site {site.name!r} was revoked on {site.revoked}.")
        gone = replace(site, revoked=now(), reason=shortened(args.reason))
        place.write_site(gone)  # first: a run that goes on looks here
    if gone.node is not None and is_running(place):  # at its start Flower gets the keys that are not revoked
        unregister(place, gone.node)
    shown = {"site": gone.name, "revoked": gone.revoked, "fingerprint": gone.fingerprint, "reason": gone.reason}
    print(as_json(shown) if args.json else f"site {gone.name} is revoked ({gone.fingerprint or 'no key'})")
