"""``koncord refuse RUN``: refuse, as the owner of a site, a run that asks or goes on."""

import argparse
from typing import Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.owner import add_owner_options, consent_record, state_folder
from koncord.cli.parsing import add_command

NAME = "refuse"
SUMMARY = "refuse, as the owner of a site, a run that asks or goes on"
DESCRIPTION = """\
At a site: take no part in a run. The coordinator hears the reason, and goes on without this site if enough others are
left. Of a run that was agreed to before, nothing more leaves, a reply that is held included; what has left, has left.
"""
EPILOG = """\
examples:
  koncord refuse 20261116-174157-0a1b2c3d --reason "not before the ethics committee has met"
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord refuse RUN [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="RUN", help="name of the run")
    parser.add_argument("--reason", metavar="TEXT", default="", help="for the coordinator (default: none)")
    add_owner_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord refuse")
    from koncord.network.consent import REFUSED, decide

    folder = state_folder(args)
    decided = decide(folder, args.name, REFUSED, args.reason)
    print(as_json(consent_record(decided)) if args.json else f"run {decided.run} ({decided.identifier}): refused")
