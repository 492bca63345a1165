"""``koncord release RUN``: let held replies of a site leave."""

import argparse
from typing import Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.owner import add_owner_options, consent_record, state_folder
from koncord.cli.parsing import add_command

NAME = "release"
SUMMARY = "let held replies of a site leave"
DESCRIPTION = """\
At a site that joined with --hold-results: let the replies of a run leave that wait. Each is in a file that can be
read first, with every number in it (koncord approve shows where). With --all, later replies of the run do not wait.
"""
EPILOG = """\
examples:
  koncord release 20261116-174157-0a1b2c3d
  koncord release 20261116-174157-0a1b2c3d --all
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord release RUN [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="RUN", help="name of the run")
    parser.add_argument("--all", action="store_true", help="hold no later reply of this run either")
    add_owner_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord release")
    from koncord.network.consent import release

    released = release(state_folder(args), args.name, every=args.all)
    exchanges = "all exchanges" if released.releases_all else f"exchanges up to {released.released}"
    print(as_json(consent_record(released)) if args.json else f"run {released.run}: replies to {exchanges} may leave")
