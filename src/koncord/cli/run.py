"""``koncord run``: a federation over the sites that joined."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.options import (
    GIVEN,
    add_aggregator_options,
    add_common_option,
    add_estimator_options,
    add_support_option,
    aggregator_of,
    asked,
    check_aggregator_options,
    check_estimator_options,
    flag,
    names,
)
from koncord.cli.output import as_json
from koncord.cli.serve import add_folder_option, add_log_option, begin_log
from koncord.session.policy import ServerPolicy

if TYPE_CHECKING:
    from koncord.network.method import Asked
    from koncord.network.places import Coordinator
    from koncord.network.runstate import RunState

NAME = "run"
SUMMARY = "run a federation over the sites that joined"
DESCRIPTION = """\
Run both phases over the sites that joined the coordinator on this machine (koncord serve). It waits until they are
connected, shows every exchange and who took part, and writes the model and the report. Each site gets the clusters of
its own rows on its own disk.

Every site is first shown what is asked: --by, --purpose, --columns, the method with its parameters and rounds, and an
identifier of all that, which is printed here too. Where its owner wants to be asked, the run waits for the answer, at
most --owner-wait seconds; one that refuses takes no part, and the run goes on without it.

A site that does not answer in time is left out of that exchange and asked again in the next. With fewer than
--min-sites the run stops. Whatever stopped a run, --resume goes on where it was and ends with the same model. A site
that sends what it was not asked for is set aside; --resume --without NAME leaves one out by hand.

A site that comes late is added to a finished run by --add-site NAME: it alone is asked, on the scale that was agreed
on, and the model is, to the bit, that of a run with it on this scale. koncord forget takes a site out.
"""
EPILOG = """\
examples:
  koncord run --out run --min-sites 3
  koncord run --out run --by "J. Doe, Example University" --purpose "study 12: length of stay" --columns age,stay
  koncord run --out run --aggregator kfed --clusters 4 --min-sites 2 --round-timeout 120
  koncord run --out run --study stays
  koncord run --out run --resume
  koncord run --out run --resume --without west
  koncord run --out run --add-site east
"""
SETTINGS, JOURNAL, RECEIPTS = "resume.json", "journal", "receipts.jsonl"
LOOK_EVERY = 1.0
# What owners are shown; runs begun before they were have none of it.
STATED = ("by", "purpose", "columns", "study")
# A resumed run has these as it was started with; the rest it may be given anew.
METHOD = (
    "estimator",
    "seed",
    "aggregator",
    "clusters",
    "upsilon",
    "micro_cluster_rows",
    "allow_disclosure",
    "set",
    "standardize",
    "min_support",
    "common_columns",
    "by",
    "purpose",
    "columns",
    "study",
    *GIVEN,
)
# How a run goes, and the seed, may differ from what its study has.
POLICY = ("min_sites", "round_timeout", "first_timeout", "wait", "owner_wait")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        NAME,
        help=SUMMARY,
        usage="koncord run --out DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_folder_option(parser)
    parser.add_argument(
        "--study", metavar="NAME", help="a run of this study (koncord study): its sites, columns and method"
    )
    add_run_options(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the model and the report")
    group.add_argument("--resume", action="store_true", help="go on with the run of --out, with the method it has")
    group.add_argument(
        "--without",
        metavar="NAME",
        type=names,
        action="extend",
        help="with --resume: leave this site out from now on; may be given again",
    )
    group.add_argument(
        "--add-site", metavar="NAME", help="add this site to the finished run of --out; the others are not asked again"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_log_option(group)
    parser.set_defaults(run=run, command=NAME)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What shapes a run and says how it goes: options of koncord run and of koncord study create."""
    group = parser.add_argument_group("sites")
    group.add_argument(
        "--sites", metavar="A,B", type=names, action="extend", help="who takes part (default: all invited)"
    )
    group.add_argument(
        "--min-sites",
        metavar="N",
        type=int,
        default=ServerPolicy.min_sites,
        help=f"fewest sites that must answer an exchange (default: {ServerPolicy.min_sites})",
    )
    group.add_argument(
        "--round-timeout",
        metavar="S",
        type=float,
        default=ServerPolicy.round_timeout,
        help=f"seconds to wait for a site's answer (default: {ServerPolicy.round_timeout:g})",
    )
    group.add_argument(
        "--first-timeout",
        metavar="S",
        type=float,
        default=ServerPolicy.first_timeout,
        help=f"seconds to wait for phase 1, which takes longest (default: {ServerPolicy.first_timeout:g})",
    )
    group.add_argument(
        "--wait",
        metavar="S",
        type=float,
        default=ServerPolicy.wait,
        help=f"seconds to wait for sites to connect before the run begins (default: {ServerPolicy.wait:g})",
    )
    group.add_argument(
        "--owner-wait",
        metavar="S",
        type=float,
        default=ServerPolicy.owner_wait,
        help="seconds to wait, in all, for the owner of a site that asks in person "
        f"(default: {ServerPolicy.owner_wait:g})",
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
    parser.add_argument(
        "--standardize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="give every column mean 0 and variance 1 over all sites first (default: yes)",
    )
    add_common_option(parser)
    add_estimator_options(parser)
    add_aggregator_options(parser)
    add_support_option(parser)
    # What was not given is known as such until a study had its say.
    usual = {name: parser.get_default(name) for name in (*METHOD, *POLICY)}
    parser.set_defaults(usual=usual, **dict.fromkeys(usual))


def run(args: argparse.Namespace) -> None:
    if args.study is not None:
        if args.resume or args.add_site:
            raise ValueError("--study goes with a new run: a run that was begun has its study already.")
        take_study(args)
    fill_usual(args)
    check_estimator_options(args)
    if not args.resume:
        check_aggregator_options(args)
    if args.add_site and (args.resume or args.sites):
        raise ValueError("--add-site goes with neither --resume nor --sites: it asks one site, for a finished run.")
    if args.without and not args.resume:
        raise ValueError("--without goes with --resume; a new run names its sites by --sites.")
    if args.min_sites < 1:
        raise ValueError(f"--min-sites must be at least 1; got {args.min_sites}.")
    for option in ("round_timeout", "first_timeout", "wait", "owner_wait"):
        if not 0 < getattr(args, option) < float("inf"):
            raise ValueError(
                f"--{option.replace('_', '-')} must be a number of seconds above 0; got {getattr(args, option):g}."
            )
    require("flower", "koncord run")
    begin_log(args)
    from koncord.cli.invite import check_running
    from koncord.errors import ColumnsDiffer, KoncordError
    from koncord.network.places import INSECURE, Coordinator
    from koncord.network.processes import Stopped, say, stopped_by_signals

    place = Coordinator.load(args.folder)
    check_running(place)
    if place.is_insecure:
        say(INSECURE)
    if args.add_site:
        with stopped_by_signals():
            add_site(args, place)
        return
    settings = {} if args.resume else begun(args, place)
    again = f"koncord run --out {args.out} --resume"
    check_begun(args.out)
    with stopped_by_signals(), sole_run(args.out):
        if args.resume:
            settings = resumed(args)
            leave_out(args, settings)
        check_method(args)
        try:
            with noting_problem(place, settings):
                federate(args, place, settings)
        except Stopped:
            say(f"stopped; go on with: {again}")
            raise KeyboardInterrupt from None
        except ColumnsDiffer:  # would differ again
            raise
        except KoncordError as error:
            raise KoncordError(f"{error} Go on with: {again}") from error
        except (ValueError, TypeError, ArithmeticError) as error:  # the call itself was checked before
            raise KoncordError(f"The run failed: {error} Go on with: {again}") from error


def fill_usual(args: argparse.Namespace) -> None:
    """Give options that nobody gave their defaults."""
    for name, value in args.usual.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def take_study(args: argparse.Namespace) -> None:
    """Give the options the values of the study; `ValueError` for one that was given and is agreed to be another."""
    from koncord.network.places import Coordinator
    from koncord.network.studies import read_study

    study = read_study(Coordinator.load(args.folder).folder, args.study)
    for name, agreed in {**study.method, **study.policy}.items():
        given = getattr(args, name)
        if given is None:
            setattr(args, name, agreed)
        elif given != agreed and name not in (*POLICY, "seed"):
            raise ValueError(
                f"{flag(name)} of the study {study.name!r} is {agreed!r}; got {given!r}. Another method is another "
                "study."
            )
    others = [site for site in args.sites or () if site not in study.sites]
    if others:
        raise ValueError(
            f"--sites names {', '.join(others)}, who is not of the study {study.name!r}: {', '.join(study.sites)}."
        )
    args.sites = args.sites or list(study.sites)


@contextmanager
def noting_problem(place: "Coordinator", settings: Mapping[str, Any]) -> Iterator[None]:
    """Keep, for koncord runs, why a run stopped."""
    from dataclasses import replace

    from koncord.network.processes import Stopped
    from koncord.network.runstate import STOPPED, read_state, run_file, write_state

    try:
        yield
    except BaseException as error:
        path = run_file(place.folder, settings["run"])
        if path.exists():
            problem = "stopped by hand" if isinstance(error, Stopped) else str(error) or type(error).__name__
            write_state(place.folder, replace(read_state(path), state=STOPPED, awaited=(), owners={}, problem=problem))
        raise


def begun(args: argparse.Namespace, place: "Coordinator") -> dict[str, Any]:
    """A new folder with what a resumed run must know."""
    import json
    from secrets import token_hex

    from koncord._files import write_atomic
    from koncord.errors import KoncordError
    from koncord.runs.folder import check_folder

    target = check_folder("--out", args.out, replaces=False)
    invited = place.sites()
    sites = sorted(set(args.sites or invited))
    unknown = [site for site in sites if site not in invited]
    if unknown:
        raise ValueError(
            f"--sites names {', '.join(unknown)}, who was not invited; invited: {', '.join(invited) or 'nobody'}."
        )
    if len(sites) < args.min_sites:
        raise KoncordError(f"{len(sites)} sites are invited; --min-sites asks for {args.min_sites}.")
    started = datetime.now(UTC)
    args.by = args.by or this_user()
    settings = {
        "run": f"{started:%Y%m%d-%H%M%S}-{token_hex(4)}",
        "started": started.isoformat(timespec="seconds"),
        "sites": sites,
        "method": {name: getattr(args, name) for name in METHOD},
    }
    target.mkdir(exist_ok=True)
    write_atomic(target / SETTINGS, json.dumps(settings, indent=1).encode(), private=True)
    return settings


def this_user() -> str:
    from getpass import getuser
    from socket import gethostname

    return f"{getuser()}@{gethostname()}"


def resumed(args: argparse.Namespace) -> dict[str, Any]:
    """What the run of the folder was started with; its method takes the place of the options given now."""
    import json

    from koncord.errors import KoncordError

    check_begun(args.out)
    path = args.out / SETTINGS
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in METHOD:
            setattr(args, name, settings["method"].get(name) if name in STATED else settings["method"][name])
    except (ValueError, KeyError, TypeError) as error:
        raise KoncordError(f"'{path}' does not tell how to resume a run.") from error
    return settings


def check_begun(folder: Path) -> None:
    from koncord.errors import KoncordError

    if not (folder / SETTINGS).is_file():
        what = "is finished" if (folder / "model.koncord").exists() else "holds no run that was begun"
        raise KoncordError(f"'{folder}' {what}; there is nothing to resume.")


@contextmanager
def sole_run(folder: Path) -> Iterator[None]:
    """Within the block no other koncord run works in the folder; `KoncordError` if one does."""
    from koncord._files import locked
    from koncord.runs.folder import LOCK

    busy = f"Another koncord run works in '{folder}'; wait until it ends, or stop it."
    with locked(folder / LOCK, busy=busy, removes=True):
        yield


def leave_out(args: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Note the sites of --without: they are asked no more.

    Where the run stopped on what an exchange had brought, they are taken out of that exchange as well.
    """
    import json

    from koncord._files import write_atomic
    from koncord.errors import KoncordError
    from koncord.session.checkpoint import FileJournal

    unknown = [site for site in args.without or () if site not in settings["sites"]]
    if unknown:
        raise ValueError(
            f"--without names {', '.join(unknown)}, who is not of this run; its sites: {', '.join(settings['sites'])}."
        )
    journal = FileJournal(args.out / JOURNAL)
    last = journal.n_kept
    stopped_after = settings.pop("stopped_after", None)
    left_out = settings.setdefault("left_out", {})
    for site in args.without or ():
        if site not in left_out:
            if last and stopped_after == last:
                journal.leave_out(last, site)
            left_out[site] = last
    n_left = len(settings["sites"]) - len(left_out)
    if n_left < args.min_sites:
        raise KoncordError(
            f"Without {', '.join(left_out)} {n_left} sites are left; --min-sites asks for {args.min_sites}."
        )
    write_atomic(args.out / SETTINGS, json.dumps(settings, indent=1).encode(), private=True)


def check_method(args: argparse.Namespace) -> None:
    """ValueError for a parameter of the method that is wrong, before anybody is asked."""
    import numpy as np

    next(aggregator_of(args).server(("a", "b"), 1, np.random.default_rng(0)))


def federate(args: argparse.Namespace, place: "Coordinator", settings: dict[str, Any]) -> None:
    import json
    from tempfile import TemporaryDirectory

    from koncord._files import write_atomic
    from koncord.errors import KoncordError
    from koncord.estimate.named import estimator_named
    from koncord.network import method as methods
    from koncord.network.flower.link import Relay
    from koncord.network.processes import say
    from koncord.network.runstate import FINISHED, write_state
    from koncord.network.watch import Watched
    from koncord.report.federation import as_record, as_text
    from koncord.report.page import page
    from koncord.runs.folder import MODEL, PAGE, write_run
    from koncord.session import federation
    from koncord.session.checkpoint import FileJournal

    aggregator, policy = aggregator_of(args), server_policy_of(args)
    method = estimator_arguments(args)
    nodes = {site: node for site, node in place.sites().items() if site in settings["sites"]}
    stated = methods.as_text(aggregator, method, asked_of(args))
    check_study(args, place, methods.identifier(stated))
    state = state_of(args, settings, stated, aggregator)
    write_state(place.folder, state)
    of_study = f" of the study {args.study}" if args.study else ""
    say(f"run {settings['run']}{of_study}, identifier {state.identifier}: {aggregator.name}, asked by {state.asked_by}")
    with TemporaryDirectory(prefix="koncord-") as folder, Relay(place.flower_home, Path(folder)) as relay:
        say(f"Flower run {relay.run_id} carries run {settings['run']}")
        left_out = settings.get("left_out", {})
        wait_for_sites(relay, {site: nodes[site] for site in nodes if site not in left_out}, policy)
        journal = FileJournal(args.out / JOURNAL)
        link = Watched(
            place,
            state,
            relay,
            nodes,
            run=settings["run"],
            method=stated,
            policy=policy,
            journal=journal,
            left_out=left_out,
            keys=keys_of(place, nodes),
            receipts=args.out / RECEIPTS,
        )
        try:
            result = federation.run(
                link,
                aggregator,
                estimator=estimator_named(**method),
                seed=args.seed,
                standardize=args.standardize,
                server_policy=policy,
                common_columns=args.common_columns,
                **recorded(args, settings),
            )
        except (KoncordError, ValueError, TypeError, ArithmeticError) as error:
            if link.n_exchanges and link.n_exchanges == journal.n_kept:  # the answers were taken, and are the cause
                settings["stopped_after"] = link.n_exchanges
                write_atomic(args.out / SETTINGS, json.dumps(settings, indent=1).encode(), private=True)
                raise KoncordError(f"{error} A site is left out by --resume --without NAME.") from error
            raise
    model, record = result.model, result.record
    write_run(args.out, model, record, page(model, record), reports=result.reports)
    remove_journal(args.out)
    link.note(state=FINISHED, awaited=(), owners={}, clusters=model.n_clusters)
    if args.json:
        places = {"model": str(args.out / MODEL), "report": str(args.out / PAGE), "out": str(args.out)}
        names_ = {"run": settings["run"], "identifier": state.identifier}
        print(as_json({**as_record(model, record), **places, **names_}))
    else:
        print(f"{as_text(model, record)}\n\n{link.n_exchanges} exchanges; run {settings['run']}")
        print(f"written: {args.out / PAGE} and, beside it, the model; the labels are at the sites")


def estimator_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The estimator as it is stated to the sites."""
    return {"name": args.estimator, **{name: getattr(args, name) for name in GIVEN}}


def check_study(args: argparse.Namespace, place: "Coordinator", identifier: str) -> None:
    """Say, before owners are asked, that they will be: the run does not state what was stated of its study."""
    from koncord.network.processes import say
    from koncord.network.studies import read_study

    if args.study is not None and read_study(place.folder, args.study).identifier != identifier:
        say(
            f"note: this koncord states the study {args.study!r} otherwise than when it was made; owners are asked anew"
        )


def add_site(args: argparse.Namespace, place: "Coordinator") -> None:
    """Ask one site what the others were asked in a finished run, and compute the model of all."""
    from dataclasses import replace
    from secrets import token_hex
    from tempfile import TemporaryDirectory

    from koncord._files import locked
    from koncord.errors import KoncordError
    from koncord.network.flower.link import FlowerLink, Relay
    from koncord.network.processes import say
    from koncord.report.federation import as_record, as_text
    from koncord.report.page import page
    from koncord.runs.folder import LOCK, MODEL, PAGE, REPORTS, read_run, replace_run
    from koncord.runs.reports import Reports
    from koncord.session.federation import RunResult
    from koncord.session.growing import with_late

    site, nodes = args.add_site, place.sites()
    if site not in nodes:
        invited = ", ".join(nodes) or "nobody"
        raise ValueError(f"--add-site names {site}, who was not invited; invited: {invited}.")
    with locked(args.out / LOCK, busy=f"Another koncord run works in '{args.out}'.", removes=True):
        reports = Reports.load(args.out / REPORTS)
        if site in reports.sites:
            raise ValueError(f"--add-site names {site}, who takes part already; the sites: {', '.join(reports.sites)}.")
        if not reports.method:
            raise KoncordError(f"'{args.out}' is not of a run over a network; its sites are files on this machine.")
        model, record = read_run(args.out)
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(4)}"
        # Phase 1 and the report are one exchange, so every answer may take as long as phase 1.
        policy = replace(server_policy_of(args), min_sites=1, round_timeout=args.first_timeout)
        with TemporaryDirectory(prefix="koncord-") as folder, Relay(place.flower_home, Path(folder)) as relay:
            say(f"Flower run {relay.run_id} carries run {run}")
            wait_for_sites(relay, {site: nodes[site]}, policy)
            link = FlowerLink(relay, {site: nodes[site]}, run=run, method=reports.method, policy=policy, journal=None)
            late = with_late(RunResult(model=model, record=record, reports=reports), link, file="at the site")
        replace_run(args.out, late.model, late.record, page(late.model, late.record), late.reports)
    if args.json:
        places = {"model": str(args.out / MODEL), "report": str(args.out / PAGE), "out": str(args.out)}
        print(as_json({**as_record(late.model, late.record), **places, "run": run, "added": list(late.record.added)}))
    else:
        print(f"{as_text(late.model, late.record)}\n\nadded: {site}; the others were not asked again; run {run}")
        print(f"written: {args.out / PAGE} and, beside it, the model")


def asked_of(args: argparse.Namespace) -> "Asked":
    """Who asks for the run, what for and about which columns."""
    from koncord.network.method import NOT_SAID, Asked

    return Asked(
        by=args.by or NOT_SAID,
        purpose=args.purpose or NOT_SAID,
        columns=None if args.columns is None else tuple(args.columns),
        study=args.study,
    )


def state_of(args: argparse.Namespace, settings: Mapping[str, Any], stated: str, aggregator: Any) -> "RunState":
    """What is known of the run before its first exchange."""
    from koncord.network.method import identifier
    from koncord.network.runstate import RunState, driven_by_this

    asked = asked_of(args)
    return driven_by_this(
        RunState(
            run=settings["run"],
            identifier=identifier(stated),
            asked_by=asked.by,
            purpose=asked.purpose,
            aggregator=aggregator.name,
            out=str(args.out.resolve()),
            sites=tuple(settings["sites"]),
            started=settings["started"],
            study=args.study or "",
        )
    )


def keys_of(place: "Coordinator", nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a site's key signed some bytes, for those of the sites that have one."""
    from functools import partial

    from koncord.network.certificates import is_signed

    sites = [site for site in place.registered() if site.name in nodes and site.public]
    return {site.name: partial(is_signed, site.public.encode()) for site in sites}


def recorded(args: argparse.Namespace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the record of a run tells whose tables and labels are at the sites."""
    return {
        "estimator_name": args.estimator,
        "started": datetime.fromisoformat(settings["started"]),
        "options": options_given(args),
        "files": "at the site",
        "labels_at_sites": True,
    }


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """The options that shaped the run, by name, for its record."""
    given = asked(
        args,
        ("clusters", "upsilon", "micro_cluster_rows", "allow_disclosure", "set", "common_columns", *GIVEN),
        unless={"min_support": ServerPolicy.min_support},
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
        owner_wait=args.owner_wait,
    )


def wait_for_sites(relay: Any, nodes: "dict[str, int | None]", policy: ServerPolicy) -> None:
    """Wait for all sites to connect, and when the time is over go on if there are enough."""
    from koncord.errors import KoncordError
    from koncord.network.processes import say

    end = perf_counter() + policy.wait
    shown: Sequence[str] = ()
    while True:
        connected = relay.connected(nodes)
        away = [site for site in nodes if site not in connected]
        if away != shown:
            say(f"connected: {listed([site for site in nodes if site not in away])}; away: {listed(away)}")
            shown = away
        if not away:
            return
        if perf_counter() > end:
            if len(nodes) - len(away) >= policy.min_sites:
                say("the run begins without those that are away; they take part when they come")
                return
            raise KoncordError(
                f"{len(nodes) - len(away)} sites connected within {policy.wait:g} s; --min-sites asks for "
                f"{policy.min_sites} "
                f"(away: {listed(away)})."
            )
        sleep(LOOK_EVERY)


def listed(sites: Sequence[str]) -> str:
    return ", ".join(sites) or "nobody"


def remove_journal(folder: Path) -> None:
    """The run is over: what the sites sent is kept as far as a later one needs it (`koncord.runs.reports`)."""
    from shutil import rmtree

    (folder / SETTINGS).unlink()
    rmtree(folder / JOURNAL, ignore_errors=True)
