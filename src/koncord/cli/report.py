"""``koncord report DIR``: the page of a finished run, built again from its files."""

import argparse
from pathlib import Path
from typing import Any

from koncord.cli.output import as_json
from koncord.cli.parsing import add_command

NAME = "report"
SUMMARY = "the page for a finished run"
DESCRIPTION = """\
Build report.html again from the files a run has left, model.koncord and run.json. The same run gives the same page.
"""
EPILOG = """\
example:
  koncord report run
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord report DIR [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder of a run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if not args.folder.is_dir():
        raise ValueError(f"'{args.folder}' is not a folder; name the one that koncord fit wrote.")
    from koncord.report.federation import headline
    from koncord.report.page import write_report
    from koncord.runs.folder import PAGE

    model = write_report(args.folder)
    page = str(args.folder / PAGE)
    print(as_json({"report": page, "n_clusters": model.n_clusters}) if args.json else f"{headline(model)}: {page}")
