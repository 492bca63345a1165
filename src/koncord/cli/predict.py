"""``koncord predict MODEL FILE``: global labels for a table, of a site that took part or of a new one."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._files import atomic_file
from koncord._jobs import jobs, n_cores
from koncord._progress import report, reporting
from koncord.cli.options import (
    add_convert_option,
    add_notation_options,
    add_stream_options,
    at_least_one,
    conversions_of,
    is_streamed,
)
from koncord.cli.output import as_json, check_output_file
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar
from koncord.model.outliers import OUTLIER_QUANTILE

if TYPE_CHECKING:
    from koncord.data.files import Table
    from koncord.model.globalmodel import GlobalModel
    from koncord.prepare.plan import Plan

NAME = "predict"
SUMMARY = "global labels for a table, by a model that fit has left"
DESCRIPTION = """\
Give every row of a table its global cluster, the most likely one or, where a model has centers only, that of the
nearest center: rows of a site that took part, or of a new one.

MODEL is a model file or the folder of a run. The columns of FILE are matched by name, others are not read; those of an
array without names are taken in order if their number fits. Rows count from 1, clusters from 0.

A model holds nested answers: with --clusters it joins the clusters that are least apart, or cuts the one that falls
apart best, until there are as many. With --outliers a row that lies outside of its cluster gets -1.
"""
EPILOG = """\
examples:
  koncord predict run east.csv --out east-labels.csv
  koncord predict run/model.koncord east.csv --json
  koncord predict run east.csv --clusters 3 --outliers
"""
ARRAYS = (".npy", ".npz")


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord predict MODEL FILE [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="model.koncord, or the folder it is in")
    parser.add_argument("file", metavar="FILE", type=Path, help="the table")
    parser.add_argument(
        "--array", metavar="NAME", help="which array of an NPZ file is the table (default: X, or the only one)"
    )
    add_notation_options(parser)
    add_convert_option(parser, of_site=False)
    parser.add_argument(
        "--site",
        metavar="NAME",
        help="the site that the table is of, whose offset is taken out where sites were aligned by --harmonize "
        "(default: none, as of a new site)",
    )
    add_stream_options(parser, sampled=False)
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=at_least_one,
        default=-1,
        help="cores that label and write rows, at most; it changes no result (default: all)",
    )
    group = parser.add_argument_group("labels")
    group.add_argument(
        "--clusters", metavar="K", type=int, help="label by the nested answer with so many clusters (default: as found)"
    )
    group.add_argument(
        "--outliers",
        nargs="?",
        metavar="QUANTILE",
        type=float,
        const=OUTLIER_QUANTILE,
        help="give -1 to rows beyond this quantile of their own cluster's distances "
        f"(without a number: {OUTLIER_QUANTILE})",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out",
        metavar="LABELS.csv",
        type=Path,
        help="write the labels there and print how many rows each cluster got (default: print the labels)",
    )
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if args.outliers is not None and not 0 < args.outliers < 1:
        raise ValueError(f"--outliers needs a quantile of more than 0 and less than 1; got {args.outliers:g}.")
    if args.out is not None:
        check_output_file("--out", args.out, ".csv")
    from koncord.data.units import converted
    from koncord.model.globalmodel import GlobalModel
    from koncord.runs.assignments import (
        as_counts_text,
        as_csv,
        assignments_record,
        csv_bytes,
        label_counts,
        labeled,
    )
    from koncord.runs.folder import model_file

    n_jobs = n_cores() if args.jobs == -1 else args.jobs
    with ProgressBar() as bar, reporting(bar):
        model = GlobalModel.load(model_file(args.model))
        check_site(model, args.site)
        if args.clusters is not None:
            model = at_clusters(model, args.clusters)
        if args.outliers is not None and model.gaussians is None:
            raise ValueError("--outliers needs the shape of the clusters; this model has centers only.")
        if is_streamed(args, args.file):
            stream(args, model, n_jobs)
            return
        report(0.1, f"reading {args.file.name}")
        table = matching_table(args, model.plan)
        table = converted(replace(table, columns=model.plan.inputs), conversions_of(args))
        report(0.6, "labeling")
        found = labeled(model, table, args.site, quantile=args.outliers)
        if args.out is not None:
            with jobs(n_jobs), atomic_file(args.out) as file:
                file.write(csv_bytes(found))
    if args.json:
        places = {"model": str(args.model), "file": str(args.file), "out": None if args.out is None else str(args.out)}
        print(as_json({**assignments_record(found, model.n_clusters), **places}))
    elif args.out is not None:
        print(f"{as_counts_text(label_counts(found, model.n_clusters))}\n\nwritten: {args.out}")
    else:
        print(as_csv(found), end="")


def check_site(model: "GlobalModel", site: str | None) -> None:
    """Refuse a site that did not take part: without an offset its rows would be labeled as if it had none."""
    if site is not None and site not in model.sites:
        raise ValueError(f"--site names {site!r}, who did not take part; the sites are {', '.join(model.sites)}.")


def stream(args: argparse.Namespace, model: "GlobalModel", n_jobs: int) -> None:
    """Label a table batch by batch: one pass, of which nothing is held."""
    from koncord.data.batches import batched_table
    from koncord.runs.assignments import as_counts_text, counts_record, write_labels

    if args.out is None:
        raise ValueError(f"'{args.file}' is read batch by batch; say with --out where its labels go.")
    refused = ["--decimal"] * bool(args.decimal) + ["--convert"] * bool(conversions_of(args))
    if refused or model.plan.categories:
        what = refused[0] if refused else "A model with categories"
        raise ValueError(f"{what} does not go with '{args.file}', which is read batch by batch.")
    table = batched_table(args.file, columns=list(model.plan.inputs), array=args.array, na=args.na or ())
    with jobs(n_jobs), atomic_file(args.out) as file:
        counted = write_labels(file, model, table, args.site, quantile=args.outliers).counts
    if args.json:
        places = {"model": str(args.model), "file": str(args.file), "out": str(args.out)}
        print(as_json({**counts_record(counted), **places}))
    else:
        print(f"{as_counts_text(counted)}\n\nwritten: {args.out}")


def at_clusters(model: "GlobalModel", k: int) -> "GlobalModel":
    if k not in model.available:
        first, last = model.available[0], model.available[-1]
        has = f"{first} to {last}" if first < last else f"{first} only"
        raise ValueError(f"--clusters must be a number of clusters that the model has, {has}; got {k}.")
    return model.at(k)


def matching_table(args: argparse.Namespace, plan: "Plan") -> "Table":
    """The table with the model's columns: by name, or by place where an array has no names but as many columns."""
    from koncord.data.files import numbered, read_table

    given = {"array": args.array, "decimal": args.decimal, "na": args.na or (), "may_miss": plan.missing is not None}
    if args.file.suffix.lower() in ARRAYS:
        names = numbered(len(plan.inputs))
        levels = [name for name, column in zip(names, plan.inputs, strict=True) if column in plan.categories]
        table = read_table(args.file, **given, categories=levels, may_lack=True)
        if list(table.columns) == names:
            own = {
                column: table.levels[name] for name, column in zip(names, plan.inputs, strict=True) if name in levels
            }
            return replace(table, levels=own)
    return read_table(args.file, columns=list(plan.inputs), categories=plan.categories, **given)
