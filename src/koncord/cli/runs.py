"""``koncord runs [RUN]``: the runs of a coordinator, those that go on and those that are over."""

import argparse
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.runstate import RunState

NAME = "runs"
SUMMARY = "the runs of a coordinator, those that go on and those that are over"
DESCRIPTION = """\
Show every run: its state, how many exchanges it has had, who was missing, who asked for it. With RUN, its exchanges one
by one: who answered, seconds and bytes. A run that stopped says why, and is resumed by koncord run --resume.
"""
EPILOG = """\
examples:
  koncord runs
  koncord runs 20261116-174157-0a1b2c3d --json
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord runs [RUN] [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="RUN", nargs="?", help="name of a run (default: all)")
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord runs")
    from koncord._words import text_table
    from koncord.network.places import Coordinator
    from koncord.network.runstate import read_states

    states = read_states(Coordinator.load(args.folder).folder)
    if args.name is not None:
        found = [state for state in states if state.run == args.name]
        if not found:
            raise ValueError(f"No run {args.name!r} is known; known: {', '.join(s.run for s in states) or 'none'}.")
        print(as_json(run_state_record(found[0])) if args.json else run_state_text(found[0]))
    elif args.json:
        print(as_json({"runs": [run_state_record(state) for state in states]}))
    elif not states:
        print("No run was started.")
    else:
        print(text_table(RUN_COLUMNS, [row_of(state) for state in states]))


RUN_COLUMNS = ("run", "state", "method", "K", "exchanges", "missing", "asked by", "result")


def row_of(state: "RunState") -> tuple[str, ...]:
    return (
        state.run,
        state.state,
        state.aggregator,
        "" if state.clusters is None else str(state.clusters),
        str(len(state.exchanges)),
        ", ".join(dict.fromkeys(str(each["site"]) for each in state.missing)),
        state.asked_by,
        state.out,
    )


def run_state_record(state: "RunState") -> dict[str, Any]:
    """For a machine."""
    from dataclasses import asdict

    content = {name: value for name, value in asdict(state).items() if not name.startswith("pid")}
    return {**content, "n_exchanges": len(state.exchanges), "seconds": state.seconds, "bytes": state.n_bytes}


def run_state_text(state: "RunState") -> str:
    """One run for a person."""
    from koncord._words import text_table

    rows = [
        (
            str(each["exchange"]),
            " + ".join(each["asked"]),
            ", ".join(each["answered"]),
            ", ".join(
                f"{absence['site']} ({absence['reason']})"
                for absence in state.missing
                if absence["exchange"] == each["exchange"]
            ),
            f"{each['seconds']:.1f}",
            f"{each['bytes']:,}",
        )
        for each in state.exchanges
    ]
    lines = [
        f"run {state.run}, identifier {state.identifier}: {state.state}",
        f"{state.aggregator}, asked by {state.asked_by}; purpose: {state.purpose}",
        f"sites: {', '.join(state.sites)}; started {state.started}; result in {state.out}",
    ]
    if state.problem and state.state == "stopped":
        lines.append(f"why: {state.problem}")
    if state.awaited:
        lines.append(f"awaited: {', '.join(state.awaited)}")
    table = text_table(("exchange", "asked", "answered", "missing", "seconds", "bytes"), rows) if rows else ""
    return "\n".join([*lines, table]).rstrip()
