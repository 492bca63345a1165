"""``koncord study create NAME`` and ``koncord study list``: what sites have agreed to be asked, once for many runs."""

import argparse
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.options import aggregator_of, check_aggregator_options, check_estimator_options
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.run import (
    METHOD,
    add_run_options,
    check_method,
    estimator_arguments,
    fill_usual,
    policy_given,
    request_of,
)
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.studies import Study

NAME = "study"
SUMMARY = "make a study of some sites, or list the studies of a coordinator"
DESCRIPTION = """\
A study is a name for what some sites are asked together: columns, method, who asks and what for, and the sites. Several
studies share one coordinator, and a site takes part in all of its own with one koncord join. koncord run --study NAME
is a run of it; what it states to the owners of the sites has the identifier that is shown here.

create makes a study from the options that koncord run has. What was agreed on is not changed: another method is another
study. How long to wait, --min-sites and --seed are what runs have unless they are given others. list shows all.
"""
EPILOG = """\
examples:
  koncord study create stays --sites north,south --columns age,stay --purpose "length of stay" --aggregator consensus
  koncord study list
  koncord run --out run --study stays
"""
CREATE, LIST = "create", "list"
WORDS = 2  # of create


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord study create NAME [options] | koncord study list [--json]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("words", metavar="create NAME | list", nargs="+", help="what to do")
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_run_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord study")
    from koncord._words import text_table
    from koncord.network.places import Coordinator
    from koncord.network.studies import read_studies, write_study

    place = Coordinator.load(args.folder)
    if args.words == [LIST]:
        studies = read_studies(place.folder)
        if args.json:
            print(as_json({"studies": [study.as_record() for study in studies]}))
        else:
            print(
                text_table(STUDY_COLUMNS, [study_row(study) for study in studies]) if studies else "No study was made."
            )
        return
    if len(args.words) != WORDS or args.words[0] != CREATE:
        raise ValueError(f"koncord study takes create NAME, or list; got {' '.join(args.words)}.")
    study = created(args, args.words[1], place.sites())
    write_study(place.folder, study)
    if args.json:
        print(as_json(study.as_record()))
    else:
        print(f"study {study.name}, identifier {study.identifier}: {', '.join(study.sites)}")
        print(f"run it by: koncord run --out DIR --study {study.name}")


STUDY_COLUMNS = ("study", "identifier", "method", "columns", "sites", "asked by", "purpose")


def study_row(study: "Study") -> tuple[str, ...]:
    columns = study.method["columns"]
    return (
        study.name,
        study.identifier,
        study.method["aggregator"],
        "all" if columns is None else ", ".join(columns),
        ", ".join(study.sites),
        study.method["by"],
        study.method["purpose"] or "",
    )


def created(args: argparse.Namespace, name: str, invited: dict[str, int | None]) -> "Study":
    """The study that the options describe; `ValueError` for what no run could do."""
    from koncord._words import counted
    from koncord.network.begun import this_user
    from koncord.network.method import identifier, statement_text
    from koncord.network.places import now
    from koncord.network.studies import Study, check_study_name

    fill_usual(args)
    check_estimator_options(args)
    check_aggregator_options(args)
    args.study = check_study_name(name)
    args.by = args.by or this_user()
    check_method(args)
    sites = sorted(set(args.sites or invited))
    unknown = [site for site in sites if site not in invited]
    if unknown or not sites:
        known = ", ".join(invited) or "nobody"
        raise ValueError(f"--sites names {', '.join(unknown) or 'nobody'}, who was not invited; invited: {known}.")
    if len(sites) < args.min_sites:
        raise ValueError(
            f"The study would have {counted(len(sites), 'site')}; --min-sites asks for {args.min_sites}. Invite more "
            "first, or give a smaller --min-sites."
        )
    return Study(
        name=args.study,
        identifier=identifier(statement_text(aggregator_of(args), estimator_arguments(args), request_of(args))),
        sites=tuple(sites),
        method={each: getattr(args, each) for each in METHOD if each != "study"},
        policy=policy_given(args),
        created=now(),
    )
