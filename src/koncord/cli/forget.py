"""``koncord forget SITE --run DIR``: the model of a run as if a site had not taken part."""

import argparse
from pathlib import Path
from typing import Any

from koncord.cli.output import as_json
from koncord.cli.parsing import add_command

NAME = "forget"
SUMMARY = "the model of a run without one of its sites, computed anew without asking the others"
DESCRIPTION = """\
Take a site out of a finished run. The model and the report of DIR are computed anew from what the other sites sent
then; nobody is asked again, and what the site sent is deleted. The model is, to the bit, that of a run without the
site on the scale that was agreed on. That scale stays: it holds the site's sums among those of all sites, and only a
new run forgets these too.

It works for methods that ask every site once (consensus, kfed, spahm), without a privacy budget: with one, each
question follows from the noisy sums of all sites, so a run without the site is a new run, which costs the others their
budget anew. Labels in DIR are deleted, as they are those of the model before; koncord predict DIR FILE gives new ones.
"""
EPILOG = """\
examples:
  koncord forget west --run run
  koncord forget west --run run --json
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord forget SITE --run DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("site", metavar="SITE", help="the site that withdraws")
    parser.add_argument("--run", metavar="DIR", type=Path, required=True, dest="folder", help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from koncord._files import locked
    from koncord.errors import KoncordError
    from koncord.report.federation import federation_record, federation_text
    from koncord.report.page import page
    from koncord.runs.folder import LOCK, MODEL, PAGE, REPORTS, read_run, replace_run
    from koncord.runs.reports import Reports
    from koncord.session.federation import RunResult
    from koncord.session.growing import NO_REPORTS_WITH_BUDGET, without

    if not args.folder.is_dir():
        raise ValueError(f"--run needs the folder of a run; there is no '{args.folder}'.")
    with locked(args.folder / LOCK, busy=f"A koncord run works in '{args.folder}'; wait until it ends.", removes=True):
        model, record = read_run(args.folder)
        if model.session.privacy:
            raise KoncordError(NO_REPORTS_WITH_BUDGET)
        reports = Reports.load(args.folder / REPORTS)
        if args.site not in reports.sites:
            raise ValueError(f"SITE must be one of this run, {', '.join(reports.sites)}; got {args.site!r}.")
        left = without(RunResult(model=model, record=record, reports=reports), args.site)
        replace_run(args.folder, left.model, left.record, page(left.model, left.record), left.reports)
    if args.json:
        places = {"model": str(args.folder / MODEL), "report": str(args.folder / PAGE), "out": str(args.folder)}
        print(
            as_json({**federation_record(left.model, left.record), **places, "forgotten": list(left.record.forgotten)})
        )
    else:
        print(f"{federation_text(left.model, left.record)}\n\nforgotten: {args.site}; nobody was asked again")
        print(f"written: {args.folder / PAGE} and, beside it, the model; labels are given by koncord predict")
