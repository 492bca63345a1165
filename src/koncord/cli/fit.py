"""``koncord fit FILE FILE ...``: both phases, one file a site; the model, the labels and the page."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._jobs import jobs, n_cores
from koncord._progress import part, report, reporting
from koncord._text import is_showable
from koncord.cli.options import (
    ASM_OPTIONS,
    PRIVACY_OPTIONS,
    add_aggregator_options,
    add_estimator_options,
    add_file_options,
    add_local_counts_option,
    add_privacy_options,
    add_site_options,
    add_stream_options,
    add_support_option,
    aggregator_of,
    asked,
    asks_local_counts,
    at_least_one,
    check_aggregator_options,
    check_estimator_options,
    check_floor,
    conversions_by_site,
    estimator_of,
    is_streamed,
    preparation_of,
    site_policy_of,
    streamed_table,
    table_of,
)
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar
from koncord.prepare.settings import Preparation
from koncord.session.policy import ServerPolicy, SitePolicy

if TYPE_CHECKING:
    from koncord.data.batches import SampledTable
    from koncord.data.files import Table

NAME = "fit"
SUMMARY = "clusters over several sites, one file each, with no counts and no pooled rows"
DESCRIPTION = """\
Find the clusters of several sites as if each kept its rows: every file is a site, and only what a federation may send
is exchanged. What was exchanged is on the page it writes. Sites count their own components first where the aggregator
needs it, and with --local-counts.

A file is CSV, TSV, Parquet, Excel, NPY or NPZ; columns are matched by name. The name of a site is that of its file
without folder and extension. A table larger than memory is a folder of Parquet or CSV files, or a file with --stream.
"""
EPILOG = """\
examples:
  koncord fit north.csv south.csv west.csv --out run
  koncord fit north.csv south.csv west.csv --out run --force --aggregator fedgem --upsilon 10 --json
  koncord fit north.csv south.csv --out run --epsilon 2 --delta 1e-6 --bound 10
"""
# What a person may have asked for beyond estimator, aggregator and seed: kept in the record of the run.
RECORDED = (
    "clusters",
    "upsilon",
    "micro_cluster_rows",
    "harmonize",
    "allow_disclosure",
    "set",
    "columns",
    "drop",
    "common_columns",
    "array",
    "stream",
    "sample_rows",
    "decimal",
    "na",
    "categories",
    "convert",
    "log",
    "no_log",
    "no_fence",
    "max_components",
    "local_counts",
    *ASM_OPTIONS,
    *PRIVACY_OPTIONS,
)
# Kept there too, unless they are as they are without being asked for.
GUARDS = {
    "min_report": SitePolicy.min_report,
    "min_support": ServerPolicy.min_support,
    "missing": Preparation.missing,
}


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord fit FILE [FILE ...] --out DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add_stream_options(add_file_options(parser))
    add_estimator_options(parser)
    add_local_counts_option(parser)
    add_aggregator_options(parser)
    add_support_option(parser)
    add_site_options(parser)
    add_privacy_options(parser)
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=at_least_one,
        default=-1,
        help="sites that work at a time, at most; it changes no result (default: as many as there are cores)",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="folder for the model, the labels and the page"
    )
    group.add_argument("--force", action="store_true", help="replace the folder if it is there, once all is done")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_estimator_options(args)
    check_aggregator_options(args)
    check_floor(args)
    check_site_names(args.files)
    policy = site_policy_of(args)
    if args.ledger is not None and args.ledger.exists() and not args.ledger.is_dir():
        raise ValueError(f"--ledger needs the name of a folder; '{args.ledger}' is a file.")
    from koncord.data.files import complete_rows
    from koncord.data.notes import notes_on
    from koncord.report.federation import federation_record, federation_text
    from koncord.report.page import page
    from koncord.runs.assignments import counting, labeled
    from koncord.runs.folder import MODEL, PAGE, check_folder, labels_file, whole_folder, write_run, write_site_labels
    from koncord.session import federation
    from koncord.session.inprocess import in_process
    from koncord.session.streamedsite import StreamedSite, check_streamed

    if any(is_streamed(args, file) for file in args.files):
        check_streamed(aggregator_of(args), policy)
    target = check_folder("--out", args.out, replaces=args.force, keeps=[Path(file) for file in args.files])
    with ProgressBar() as bar, reporting(bar):
        started = datetime.now(UTC)
        with part(0.0, 0.05, "reading"):
            tables, streamed = read_tables(args)
        notes = notes_on(tables)
        with part(0.05, 0.95, "fitting"):
            aggregator = aggregator_of(args)
            counts_first = aggregator.needs_local_counts or asks_local_counts(args) or policy.budget is not None
            # Every site draws from a stream of its own.
            estimator = estimator_of(args, random_state=None, is_needed=counts_first)
            taking_part = complete_rows(tables) if args.missing == "drop" and tables else tables
            rows = {table.name: (table.X, table.columns) for table in taking_part}
            link = in_process(
                rows,
                estimator=estimator,
                aggregator=aggregator,
                policy=policy,
                ledgers=args.ledger,
                run=started.isoformat(timespec="seconds"),
                levels={table.name: table.levels for table in tables},
                n_jobs=args.jobs,
                streamed={table.name: table for table in streamed},
            )
            result = federation.run(
                link,
                aggregator,
                estimator=estimator,
                seed=args.seed,
                standardize=args.standardize and policy.budget is None,
                site_policy=policy,
                server_policy=ServerPolicy(min_support=args.min_support),
                common_columns=args.common_columns,
                preparation=preparation_of(args) if policy.budget is None else None,
                local_counts=asks_local_counts(args),
                estimator_name=args.estimator,
                started=started,
                options=asked(args, RECORDED, unless=GUARDS),
                files={Path(file).stem: Path(file).name for file in args.files},
            )
            notes += [
                f"{name} was read batch by batch, in {site.n_passes + 1} passes over {site.all.n_rows:,} rows; its "
                f"micro-clusters were cut from a sample of {len(site.all.sample):,}"
                for name, site in link.sites.items()
                if isinstance(site, StreamedSite)
            ]
            model, record = result.model, result.record
        report(0.95, f"writing {args.out}")
        held = {table.name: labeled(model, table, table.name) for table in tables}
        labels: dict[str, Any] = {**held, **{each.name: each.table for each in streamed}}
        n_jobs = n_cores() if args.jobs == -1 else args.jobs
        with whole_folder(target, replaces=args.force) as folder, jobs(n_jobs):
            record = counting(record, write_site_labels(folder, model, labels))
            write_run(folder, model, record, page(model, record))
    if args.json:
        places = {
            "model": str(args.out / MODEL),
            "report": str(args.out / PAGE),
            "labels": {Path(file).stem: str(labels_file(args.out, Path(file).stem)) for file in args.files},
            "out": str(args.out),
        }
        print(as_json({**federation_record(model, record), **places, "notes": notes}))
    else:
        shown = "".join(f"note: {note}\n" for note in notes)
        print(
            f"{shown}{federation_text(model, record)}\n\n"
            f"written: {args.out / PAGE} and, beside it, the model and the labels"
        )


def check_site_names(files: Sequence[str]) -> None:
    """Refuse two files that would give two sites one name, also where a file system does not tell cases apart."""
    seen: dict[str, str] = {}
    for file in files:
        name = Path(file).stem
        if not is_showable(name):
            raise ValueError(f"{name!r} names a site and cannot be shown; rename the file.")
        if name.casefold() in seen:
            raise ValueError(
                f"'{seen[name.casefold()]}' and '{file}' would both be site {name!r}; "
                "give every file a name of its own, as it names the site."
            )
        seen[name.casefold()] = file


def read_tables(args: argparse.Namespace) -> "tuple[list[Table], list[SampledTable]]":
    """The tables that are held, and those that are read batch by batch; of these, small ones are held as well."""
    from koncord.data.batches import whole_table
    from koncord.data.units import converted

    tables, streamed = [], []
    for at, file in enumerate(args.files):
        with part(at / len(args.files), (at + 1) / len(args.files), Path(file).name):
            if not is_streamed(args, file):
                tables.append(table_of(args, file, may_lack=True, may_miss=True))
                continue
            table = streamed_table(args, file)
            if table.is_whole:
                tables.append(whole_table(table))
            else:
                streamed.append(table)
    if not streamed:
        check_dropped(args.drop or (), tables)
        check_dropped(args.categories or (), tables, "--categories")
    conversions = conversions_by_site(args, [*(table.name for table in tables), *(table.name for table in streamed)])
    for table in streamed:
        if conversions.get(table.name):
            raise ValueError(f"--convert does not go with {table.name}, which is read batch by batch.")
    return [converted(table, conversions.get(table.name, {})) for table in tables], streamed


def check_dropped(names: Sequence[str], tables: "Sequence[Table]", option: str = "--drop") -> None:
    """Refuse to name what no table has: a site may lack a column that another has to leave out."""
    from koncord.data.files import suggestion

    known = dict.fromkeys(column for table in tables for column in (*table.columns, *table.texts, *table.dropped))
    for name in names:
        if name not in known:
            raise ValueError(f"No file has the column {name!r} of {option}; {suggestion(name, list(known))}")
