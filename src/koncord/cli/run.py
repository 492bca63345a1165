"""``koncord run``: a federation over the sites that joined."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.options import (
    add_aggregator_options,
    add_common_option,
    add_estimator_options,
    add_local_counts_option,
    add_preparation_options,
    add_standardize_option,
    add_support_option,
    aggregator_of,
    asked,
    check_method_options,
    check_parameters,
    names,
    parameters_set,
    preparation_of,
)
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option, add_log_option, begin_log
from koncord.prepare.settings import FILLS, Preparation
from koncord.session.policy import ServerPolicy

if TYPE_CHECKING:
    from koncord.network.begun import BegunRun
    from koncord.network.method import RunRequest
    from koncord.network.places import Coordinator

NAME = "run"
SUMMARY = "run a federation over the sites that joined"
DESCRIPTION = """\
Run both phases over the sites that joined the coordinator on this machine (koncord serve). It waits until they are
connected, shows every exchange and who took part, and writes the model and the report. Each site gets the clusters of
its own rows on its own disk.

Every site is first shown what is asked: --by, --purpose, --columns, the method with its parameters and rounds, and an
identifier of all that, which is printed here too. One whose owner refuses takes no part, and the run goes on without
it.

A site that does not answer in time is left out of that exchange and asked again in the next. With fewer than
--min-sites the run stops. Whatever stopped a run, --resume goes on where it was and ends with the same model. A site
that sends what it was not asked for is set aside.
"""
EPILOG = """\
examples:
  koncord run --out run --min-sites 3
  koncord run --out run --by "J. Doe, Example University" --purpose "length of stay" --columns age,stay
  koncord run --out run --aggregator kfed --clusters 4 --min-sites 2 --round-timeout 120
  koncord run --out run --resume
"""
PREPARED = ("log", "no_log", "no_fence")
OF_METHOD = ("clusters", "harmonize", "allow_disclosure", "set", "common_columns")
# A resumed run has these as it was started with; the rest it may be given anew.
METHOD = (
    "estimator",
    "seed",
    "aggregator",
    "clusters",
    "harmonize",
    "allow_disclosure",
    "set",
    "standardize",
    "log",
    "no_log",
    "no_fence",
    "missing",
    "min_support",
    "common_columns",
    "local_counts",
    "by",
    "purpose",
    "columns",
)
# How a run goes: a resumed run has these as it was started with, unless others are given.
POLICY = ("min_sites", "round_timeout", "first_timeout", "wait")

# Fields of `ServerPolicy`, each an option of its name.
POLICY_OPTIONS = (
    ("min_sites", "N", int, "fewest sites that must answer an exchange"),
    ("round_timeout", "S", float, "seconds to wait for a site's answer"),
    ("first_timeout", "S", float, "seconds to wait for phase 1, which takes longest"),
    ("wait", "S", float, "seconds to wait for sites to connect before the run begins"),
)


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord run --out DIR [options]", description=DESCRIPTION, epilog=EPILOG
    )
    add_folder_option(parser)
    add_run_options(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the model and the report")
    group.add_argument("--resume", action="store_true", help="go on with the run of --out, with the method it has")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_log_option(group)
    parser.set_defaults(run=run, command=NAME)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What shapes a run and says how it goes."""
    group = parser.add_argument_group("sites")
    group.add_argument(
        "--sites", metavar="A,B", type=names, action="extend", help="who takes part (default: all invited)"
    )
    for name, metavar, kind, said in POLICY_OPTIONS:
        usual = getattr(ServerPolicy, name)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            type=kind,
            default=usual,
            help=f"{said} (default: {usual:g})",
        )
    group = parser.add_argument_group("what the owners of the sites are shown")
    group.add_argument("--by", metavar="TEXT", help="who asks (default: the user and the name of this machine)")
    group.add_argument("--purpose", metavar="TEXT", help="what for (default: not said)")
    group.add_argument(
        "--columns",
        metavar="A,B",
        type=names,
        action="extend",
        help="columns the run is about; a site reads no others for it (default: all it has)",
    )
    group = add_preparation_options(parser, FILLS)
    add_standardize_option(group)
    parser.set_defaults(standardize=True)
    add_common_option(parser)
    add_estimator_options(parser)
    add_local_counts_option(parser)
    add_aggregator_options(parser)
    add_support_option(parser)
    # What was not given is known as such until the run that is resumed had its say.
    usual = {name: parser.get_default(name) for name in (*METHOD, *POLICY)}
    parser.set_defaults(usual=usual, **dict.fromkeys(usual))


def run(args: argparse.Namespace) -> None:
    if args.resume:
        take_policy(args)
    fill_usual(args)
    check_options(args)
    require("flower", "koncord run")
    begin_log(args)
    from koncord.cli.invite import check_running
    from koncord.network.begun import check_begun, sole_run
    from koncord.network.driving import drive, resumable
    from koncord.network.places import INSECURE, Coordinator
    from koncord.network.processes import say, stopped_by_signals
    from koncord.report.federation import federation_record, federation_text
    from koncord.runs.folder import PAGE

    place, policy = Coordinator.load(args.folder), server_policy_of(args)
    check_running(place)
    if place.is_insecure:
        say(INSECURE)
    begun = None if args.resume else begun_anew(args, place)
    check_begun(args.out)
    with stopped_by_signals(), sole_run(args.out):
        begun = begun or resumed(args)
        check_parameters(aggregator_of(args))
        with resumable(place, begun, f"koncord run --out {args.out} --resume"):
            finished = drive(
                place,
                begun,
                aggregator_of(args),
                estimator=estimator_arguments(args),
                request=request_of(args),
                policy=policy,
                seed=args.seed,
                standardize=args.standardize,
                common_columns=args.common_columns,
                preparation=preparation_of(args),
                local_counts=bool(args.local_counts),
                **recorded(args),
            )
    model, record = finished.result.model, finished.result.record
    if args.json:
        names_ = {"run": finished.run, "identifier": finished.identifier}
        print(as_json({**federation_record(model, record), **written_places(args.out), **names_}))
    else:
        print(f"{federation_text(model, record)}\n\n{finished.n_exchanges} exchanges; run {finished.run}")
        print(f"written: {args.out / PAGE} and, beside it, the model; the labels are at the sites")


def check_options(args: argparse.Namespace) -> None:
    if not args.resume:
        check_method_options(args, local_counts=bool(args.local_counts))
    if args.min_sites < 1:
        raise ValueError(f"--min-sites must be at least 1; got {args.min_sites}.")
    for option in ("round_timeout", "first_timeout", "wait"):
        if not 0 < getattr(args, option) < float("inf"):
            raise ValueError(
                f"--{option.replace('_', '-')} must be a number of seconds above 0; got {getattr(args, option):g}."
            )


def fill_usual(args: argparse.Namespace) -> None:
    """Give options that nobody gave their defaults."""
    for name, value in args.usual.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def take_policy(args: argparse.Namespace) -> None:
    """Give quorum and timeouts the values that a run was begun with, where none are given now."""
    from koncord.network.begun import BegunRun

    for name, before in BegunRun.load(args.out).policy.items():
        if name in POLICY and getattr(args, name) is None:
            setattr(args, name, before)


def policy_given(args: argparse.Namespace) -> dict[str, float]:
    return {name: getattr(args, name) for name in POLICY}


def estimator_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The estimator as it is stated to the sites."""
    return {"name": args.estimator, **parameters_set(args)["estimator"]}


def begun_anew(args: argparse.Namespace, place: "Coordinator") -> "BegunRun":
    from koncord.network.begun import begin_run, this_user

    args.by = args.by or this_user()
    method = {name: getattr(args, name) for name in METHOD}
    return begin_run(place, args.out, method, sites=args.sites, min_sites=args.min_sites, policy=policy_given(args))


def resumed(args: argparse.Namespace) -> "BegunRun":
    """The run of the folder; its method takes the place of the options given now."""
    from koncord._words import counted
    from koncord.errors import KoncordError
    from koncord.network.begun import SETTINGS, BegunRun

    begun = BegunRun.load(args.out)
    missing = [name for name in METHOD if name not in begun.method]
    if missing:
        raise KoncordError(
            f"'{args.out / SETTINGS}' does not say how to resume a run: {', '.join(missing)} is missing."
        )
    for name in METHOD:
        setattr(args, name, begun.method[name])
    if len(begun.sites) < args.min_sites:
        raise KoncordError(f"The run has {counted(len(begun.sites), 'site')}; --min-sites asks for {args.min_sites}.")
    begun = replace(begun, policy=policy_given(args))
    begun.save()
    return begun


def written_places(out: Path) -> dict[str, str]:
    """Where a run was written."""
    from koncord.runs.folder import MODEL, PAGE

    return {"model": str(out / MODEL), "report": str(out / PAGE), "out": str(out)}


def request_of(args: argparse.Namespace) -> "RunRequest":
    """Who asks for the run, what for and about which columns."""
    from koncord.network.method import NOT_SAID, RunRequest

    return RunRequest(
        by=args.by or NOT_SAID,
        purpose=args.purpose or NOT_SAID,
        columns=None if args.columns is None else tuple(args.columns),
    )


def recorded(args: argparse.Namespace) -> dict[str, Any]:
    """What the record of a run says of the options."""
    return {"estimator_name": args.estimator, "options": options_given(args)}


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """The options that shaped the run, by name, for its record."""
    given = asked(
        args,
        (*OF_METHOD, *PREPARED),
        unless={"min_support": ServerPolicy.min_support, "missing": Preparation.missing},
    )
    return {**given, "--min-sites": args.min_sites, "--round-timeout": args.round_timeout}


def server_policy_of(args: argparse.Namespace) -> ServerPolicy:
    """How the run goes, as the options say."""
    return ServerPolicy(
        min_sites=args.min_sites,
        min_support=args.min_support,
        round_timeout=args.round_timeout,
        first_timeout=args.first_timeout,
        wait=args.wait,
    )
