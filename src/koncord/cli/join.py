"""``koncord join``: a site's side of a federation over a network."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord._progress import reporting
from koncord.aggregate.registry import AGGREGATORS
from koncord.cli.options import (
    add_aggregator_options,
    add_categories_option,
    add_convert_option,
    add_estimator_options,
    add_privacy_options,
    add_site_options,
    add_stream_options,
    add_table_options,
    aggregator_of,
    at_least_one,
    batched_of,
    check_floor,
    check_method_options,
    conversions_of,
    estimator_of,
    flag,
    is_streamed,
    names,
    site_policy_of,
    table_of,
)
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar
from koncord.cli.serve import add_log_option, begin_log
from koncord.estimate.registry import ESTIMATORS
from koncord.prepare.settings import Preparation
from koncord.session.policy import CHANGED, SitePolicy

if TYPE_CHECKING:
    from koncord.data.files import Table
    from koncord.network.places import Invitation
    from koncord.session.streamedfile import StreamedSource

NAME = "join"
SUMMARY = "take part, as a site, in the federations of a coordinator, until Ctrl-C"
DESCRIPTION = """\
Connect to the coordinator of an invitation and answer what its federations ask about the table. The table stays here.
What a site needs to go on after a restart is kept in its state folder, with a ledger of every message that left and,
after a run, the cluster of every row (runs/RUN/labels.csv). While the coordinator is away, it tries again.

Nothing leaves that stands for fewer than --min-report rows, nor does any combination of what left, in all runs over the
table, from all state folders of this user: what was answered is kept in ~/.local/state/koncord/tables, or where the
variable KONCORD_TABLES says. fedgem and ffcm send soft sums, for which that does not hold: a site takes part in them
only if --methods names them. It answers no more rounds and messages than a method has, and at most --max-runs runs.
With a privacy budget, all that leaves in a run is noisy as well; the budget is this site's own, the other sites may
have others or none, and every run spends it anew. Limits that a state folder was joined with are kept: weaker ones need
--weaken.

With --ask, which needs a terminal, each run first shows who asks, what for, the method, the columns and its rounds, and
nothing of it is computed until yes is typed. The coordinator waits for the word as for any answer.

With --dry-run nothing is sent and nobody is called: it prints every message that this site would send in a federation
of its own, field by field. Options of estimator and aggregator are for that: in a run, the coordinator chooses them.
"""
# What the coordinator chooses for a run, with the defaults of a dry run.
REHEARSED = {"estimator": "asm", "seed": 0, "aggregator": "consensus", "standardize": True}
# Options that mean something in a dry run only.
# Every run spends a budget anew, and the coordinator begins runs: without a limit nothing would be promised.
RUNS_WITHIN_BUDGET = 10
DRY_RUN_ONLY = (*REHEARSED, "clusters", "harmonize", "set")
EPILOG = """\
examples:
  koncord join --invite north.invite --data visits.csv
  koncord join --invite north.invite --key north.key --data visits.csv
  koncord join --invite north.invite --data visits.csv --methods consensus,kfed --max-runs 10
  koncord join --invite north.invite --data visits.csv --epsilon 2 --delta 1e-6 --bound 10 --max-runs 3
  koncord join --invite north.invite --data visits.csv --epsilon 1 --delta 1e-6 --bound 10 --total-epsilon 4
  koncord join --invite north.invite --data visits.csv --ask
  koncord join --invite north.invite --data visits.csv --dry-run --aggregator consensus
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord join --invite FILE --data TABLE [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("--invite", metavar="FILE", type=Path, required=True, help="the coordinator's invitation")
    parser.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help="the site's own key, of koncord request (default: NAME.key beside the invitation, or the state folder's)",
    )
    parser.add_argument(
        "--data",
        metavar="TABLE",
        required=True,
        help="CSV, TSV, Parquet, Excel, NPY or NPZ; or a folder of Parquet or CSV files, read batch by batch",
    )
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="folder of this site's own (default: koncord-site-NAME)"
    )
    parser.add_argument(
        "--patience", metavar="S", type=float, help="give up when not connected for S seconds (default: never)"
    )
    parser.add_argument(
        "--ask",
        action="store_true",
        help="before each run, show here what it asks, and compute nothing of it until yes is typed",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent; send nothing")
    parser.add_argument("--json", action="store_true", help="with --dry-run: print one JSON object and nothing else")
    group = add_site_options(parser)
    group.add_argument(
        "--methods",
        metavar="A,B",
        type=names,
        action="extend",
        help="aggregators it takes part in (default: those of koncord whose answers the joint partition covers: "
        "consensus, fedkmeans, kfed, spahm); one of another package, or an estimator of one, is "
        "used only if it is named here",
    )
    group.add_argument(
        "--max-rounds",
        metavar="N",
        type=at_least_one,
        help="most rounds of a run (default: the aggregator's own: consensus 1, fedkmeans 10, fedgem 23)",
    )
    group.add_argument(
        "--max-runs",
        metavar="N",
        type=at_least_one,
        help="most runs; without a privacy budget, of all state folders over this table (default: "
        f"{RUNS_WITHIN_BUDGET} with a privacy budget and no --total-epsilon, else no limit)",
    )
    group.add_argument(
        "--changed",
        choices=CHANGED,
        default=SitePolicy.changed,
        help="while the table differs by fewer than --min-report rows from what was answered about: answer from the "
        "old rows, or refuse to join (default: %(default)s)",
    )
    group.add_argument(
        "--apart",
        action="store_true",
        help="answer apart from what other state folders answered about equal rows: they are of others, or their owner "
        "accepts that the answers of both together may tell single rows",
    )
    group.add_argument(
        "--weaken", action="store_true", help="yes, these limits may be weaker than those of the state folder"
    )
    budget = add_privacy_options(parser)
    budget.add_argument(
        "--total-epsilon",
        metavar="E",
        type=float,
        help="most that all runs may cost together, at --delta; no run is begun beyond it (default: no limit)",
    )
    group = add_table_options(parser)
    add_categories_option(group)
    add_convert_option(group, of_site=False)
    add_stream_options(group)
    add_estimator_options(parser)
    add_aggregator_options(parser)
    add_log_option(parser)
    parser.set_defaults(run=run, command=NAME, **dict.fromkeys(REHEARSED))


def run(args: argparse.Namespace) -> None:
    if args.json and not args.dry_run:
        raise ValueError("--json goes with --dry-run.")
    if args.ask:
        from koncord.network.asking import check_terminal

        check_terminal()
    begin_log(args)
    check_floor(args)
    check_methods(args)
    if args.epsilon is not None and args.max_runs is None and args.total_epsilon is None:
        args.max_runs = RUNS_WITHIN_BUDGET
    policy = site_policy_of(args)
    if args.dry_run:
        for name, usual in REHEARSED.items():
            setattr(args, name, usual if getattr(args, name) is None else getattr(args, name))
        check_method_options(args)
    else:
        require("flower", "koncord join")
        from koncord.network.flower.programs import ONE_THREAD, QUIET

        os.environ |= {**QUIET, **ONE_THREAD}  # before what reads them is loaded
    from koncord.data.notes import notes_on
    from koncord.data.units import converted
    from koncord.network.places import Invitation
    from koncord.network.processes import say
    from koncord.session.streamedfile import StreamedSource

    table: Table | StreamedSource
    invitation = Invitation.load(args.invite)
    if is_streamed(args, args.data):
        table = streamed_source(args)
    else:
        table = converted(table_of(args, args.data, may_miss=True), conversions_of(args))
    if not isinstance(table, StreamedSource):
        for note in notes_on([table]):
            say(f"note: {note}")
    if args.dry_run:
        dry_run(args, invitation, table, policy)
    else:
        join(args, invitation, table, policy)


def streamed_source(args: argparse.Namespace) -> "Table | StreamedSource":
    """A table that is read batch by batch, read once; one that its sample holds whole, as a table."""
    from koncord.data.batches import whole_table
    from koncord.session.streamedfile import StreamedSource

    if conversions_of(args):
        raise ValueError(f"--convert does not go with '{args.data}', which is read batch by batch.")
    with ProgressBar() as bar, reporting(bar):
        source = StreamedSource.read(
            Path(args.data), tuple(args.na or ()), batched_of(args, args.data), args.sample_rows
        )
    return whole_table(source.table) if source.table.is_whole else source


def check_methods(args: argparse.Namespace) -> None:
    """What a site takes part in is its owner's choice, how a run goes is the coordinator's."""
    given = [flag(name) for name in DRY_RUN_ONLY if getattr(args, name) is not None]
    if given and not args.dry_run:
        raise ValueError(
            f"{given[0]} goes with --dry-run: in a run the coordinator chooses it. --methods says what this site takes "
            "part in."
        )
    known = (*AGGREGATORS, *ESTIMATORS.outside)
    unknown = [name for name in args.methods or () if name not in known]
    if unknown:
        raise ValueError(f"--methods names {', '.join(unknown)}; known are {', '.join(known)}.")
    if args.methods and not args.allow_disclosure:
        check_no_rows([name for name in args.methods if name in AGGREGATORS])


def check_no_rows(methods: Sequence[str]) -> None:
    from koncord.aggregate.base import sends_rows
    from koncord.aggregate.registry import aggregator_named

    for name in methods:
        if sends_rows(aggregator_named(name)):
            raise ValueError(
                f"--methods names {name}, which sends every row; if rows may leave, add --allow-disclosure."
            )


def join(
    args: argparse.Namespace,
    invitation: "Invitation",
    table: "Table | StreamedSource",
    policy: SitePolicy,
) -> None:
    from koncord._words import counted
    from koncord.network.joining import stay_joined
    from koncord.network.places import INSECURE
    from koncord.network.processes import Stopped, say, stopped_by_signals
    from koncord.network.shared import other_states
    from koncord.network.sitefolder import SiteFolder, sole_owner
    from koncord.session.streamedfile import StreamedSource

    rows = table if isinstance(table, StreamedSource) else table.X
    columns = table.table.columns if isinstance(table, StreamedSource) else table.columns
    folder = args.state or Path(f"koncord-site-{invitation.site}")
    if not folder.resolve().parent.is_dir():
        raise ValueError(f"The folder '{folder.parent}' of --state does not exist; make it first.")
    if args.patience is not None and not args.patience > 0:
        raise ValueError(f"--patience must be greater than 0; got {args.patience:g}.")
    came_with_key = bool(invitation.key)
    invitation = with_own_key(args, invitation, folder)
    with stopped_by_signals(), sole_owner(folder):
        place = SiteFolder.create(
            folder,
            invitation,
            rows,
            columns,
            policy,
            levels=None if isinstance(table, StreamedSource) else table.levels,
            ledgers=args.ledger,
            may_weaken=args.weaken,
            is_apart=args.apart,
        )
        if invitation.is_insecure:
            say(INSECURE)
        elif came_with_key:
            say("note: the coordinator has seen this site's key; koncord request makes one that stays here")
        say(
            f"site {place.name}: {rows.table.n_rows if isinstance(rows, StreamedSource) else len(rows):,} rows, "
            f"{len(columns)} columns; they stay here. What leaves is listed in {place.ledger}"
        )
        if isinstance(rows, StreamedSource):
            say(f"'{rows.path}' is read batch by batch where it lies, and must not change while this site is joined")
        others = other_states(place)
        if others:
            say(f"answers as from {', '.join(others)}: what was answered of this table there counts here")
        _, change = place.change_of(rows)
        if change.is_held_back:
            say(
                f"answers from older rows: {counted(change.n_added, 'row')} of the table came and "
                f"{counted(change.n_removed, 'row')} went since it was answered about, and of these "
                f"{change.n_waiting} wait and {change.n_stale} stay until {policy.min_report} of a kind changed"
            )
        runs = "no limit" if policy.max_runs is None else policy.max_runs
        say(f"takes part in {', '.join(place.methods)}; runs: {runs}")
        if policy.budget is not None:
            spent = place.spent()
            say(
                f"privacy budget of every run: epsilon {policy.budget.epsilon:g}, delta {policy.budget.delta:g}; "
                f"spent before: epsilon {sum(spent.values()):.4g} in {counted(len(spent), 'run')}"
            )
        try:
            stay_joined(place.folder, invitation, patience=args.patience, asks=args.ask)
        except Stopped:
            say("stopped.")


def with_own_key(args: argparse.Namespace, invitation: "Invitation", folder: Path) -> "Invitation":
    """The invitation with the key that the site made itself, where it came without one."""
    if args.key is None and not invitation.needs_key:
        return invitation
    if invitation.is_insecure:
        raise ValueError("--key does not go with an invitation without encryption: nobody checks keys there.")
    beside = args.invite.with_name(f"{invitation.site}.key")
    path = args.key or (beside if beside.exists() else folder / "key")
    if not path.is_file():
        raise ValueError(
            f"The invitation holds no key, as site {invitation.site} made its own: name it by --key FILE ('{path}' is "
            "not there)."
        )
    return invitation.with_key(path.read_bytes(), path)


def dry_run(
    args: argparse.Namespace, invitation: "Invitation", table: "Table | StreamedSource", policy: SitePolicy
) -> None:
    """A federation of this site alone, in this process, and all that left it."""
    from koncord._words import text_table
    from koncord.network.dryrun import Rehearsal
    from koncord.session import federation
    from koncord.session.site import Site
    from koncord.session.streamedfile import StreamedSource
    from koncord.session.streamedsite import StreamedSite

    aggregator = aggregator_of(args)
    given = {"estimator": estimator_of(args, random_state=None), "aggregator": aggregator, "policy": policy}
    if isinstance(table, StreamedSource):
        site: Site = StreamedSite(invitation.site, table.table, **given)
    else:
        site = Site(invitation.site, table.X, table.columns, levels=table.levels, **given)
    link = Rehearsal(site)
    federation.run(
        link,
        aggregator,
        estimator=site.estimator,
        seed=args.seed,
        standardize=args.standardize and policy.budget is None,
        preparation=None if policy.budget is not None else Preparation(standardize=args.standardize),
        site_policy=policy,
    )
    spent = None if site.private is None else site.private.epsilon
    if args.json:
        print(as_json({"site": invitation.site, "sent": link.sent, **({} if spent is None else {"epsilon": spent})}))
        return
    rows = [tuple(str(row[name]) for name in DRY_RUN_COLUMNS) for row in link.sent]
    print(f"Nothing was sent. In a federation of its own, site {invitation.site} would send:\n")
    print(text_table(DRY_RUN_COLUMNS, rows))
    print(
        f"\n{total(link.sent)} bytes in {link.n_exchanges} exchanges; with other sites the number of global clusters,"
    )
    print("and with it the sizes that depend on it, may differ.")
    if spent is not None:
        print(f"It would have spent epsilon {spent:.4g}; nothing was spent, as nothing left.")


DRY_RUN_COLUMNS = ("exchange", "message", "field", "shape", "bytes")


def total(sent: Sequence[dict[str, Any]]) -> str:
    return f"{sum({(row['exchange'], row['at']): row['message_bytes'] for row in sent}.values()):,}"
