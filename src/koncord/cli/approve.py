"""``koncord approve [RUN]``: agree, as the owner of a site, to a run that asks."""

import argparse
from typing import Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.owner import add_owner_options, consent_record, consent_text, state_folder
from koncord.cli.parsing import add_command

NAME = "approve"
SUMMARY = "agree, as the owner of a site, to a run that asks"
DESCRIPTION = """\
At a site that joined with --ask, or whose policy leaves a run to its owner: agree to the run. Until then nothing is
computed for it, and the site sends nothing but that it waits. Without RUN, show every run that was asked of the site,
and what each asks. Agreement holds for the run as it was stated: one with another statement asks anew.
"""
EPILOG = """\
examples:
  koncord approve
  koncord approve 20261116-174157-0a1b2c3d
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord approve [RUN] [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="RUN", nargs="?", help="name of the run (default: show all)")
    add_owner_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord approve")
    from koncord.network.consent import APPROVED, consents, decide

    folder = state_folder(args)
    if args.name is None:
        asked = consents(folder)
        if args.json:
            print(as_json({"runs": [consent_record(each) for each in asked]}))
        else:
            print("\n".join(consent_text(each, folder) for each in asked) or "No run was asked of this site.")
        return
    decided = decide(folder, args.name, APPROVED)
    print(as_json(consent_record(decided)) if args.json else f"run {decided.run} ({decided.identifier}): agreed")
