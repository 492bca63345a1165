"""``koncord estimate FILE``: phase 1 on one table, how many components it holds and what they look like."""

import argparse
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from koncord._jobs import jobs, n_cores
from koncord._progress import part, report, reporting
from koncord.cli.options import (
    add_estimator_options,
    add_set_option,
    add_stream_options,
    add_table_options,
    at_least_one,
    estimator_of,
    is_streamed,
    parameters_set,
    scaled_table,
    streamed_table,
    table_of,
)
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar

if TYPE_CHECKING:
    from koncord.data.batches import SampledTable
    from koncord.data.files import Table
    from koncord.kernels.moments import LabelMoments
    from koncord.types import FloatArray

NAME = "estimate"
SUMMARY = "how many components one table holds, with no labels and no count"
DESCRIPTION = """\
Estimate how many components the rows of a table form, and describe each of them.

An estimator by itself finds several components in almost any table, also in one Gaussian. So the table is first
compared with draws of one Gaussian, as koncord fit does; if it shows no more structure than these, K is 1.
--no-null-test gives the estimator's own answer; that of asm is the paper's method.

FILE is CSV, TSV, Parquet, Excel, NPY or NPZ and holds numbers: one row a sample, one column a feature. A folder of
Parquet or CSV files is one table, and may be larger than memory: components are found in a sample of its rows, and
their counts, means and spreads are those of all rows, in three passes.
"""
EPILOG = """\
examples:
  koncord estimate visits.csv
  koncord estimate visits.parquet --columns age,stay --estimator gmeans --json
  koncord estimate visits.csv --no-null-test --set min_mass=20
  koncord estimate visits.csv --stream --sample-rows 200000
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord estimate FILE [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("file", metavar="FILE", help="the table")
    add_stream_options(add_table_options(parser))
    add_set_option(add_estimator_options(parser), "the estimator")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=at_least_one,
        default=-1,
        help="cores that asm uses, at most; it changes no result (default: all)",
    )
    group = parser.add_argument_group("test")
    group.add_argument(
        "--null-test",
        action=argparse.BooleanOptionalAction,
        help="answer 1 for a table that shows no more structure than one Gaussian (default: yes)",
    )
    parser.set_defaults(null_test=True)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object and nothing else; its means are those of the standardized table, "
        "its means_original those of the file",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    parameters_set(args)  # refuses what is wrong before anything is read
    with ProgressBar() as bar, reporting(bar), jobs(n_cores() if args.jobs == -1 else args.jobs):
        report(0.0, f"reading {Path(args.file).name}")
        table, mean, scale, notes, sampled = read_for_estimate(args)
        estimator = estimator_of(args, random_state=args.seed)
        started = perf_counter()
        fitted = estimator.fit(table.X)
        null_test = None
        if args.null_test:
            from koncord.aggregate.consensus.nulltest import against_one_gaussian

            report(1.0, "testing against one Gaussian")
            null_test = against_one_gaussian(table.X, args.seed)
        seconds = perf_counter() - started
        report(1.0, "describing the components")
        from koncord.report.estimate import describe_estimate, estimate_record, estimate_text

        estimate = describe_estimate(
            fitted,
            table,
            file=args.file,
            estimator=args.estimator,
            seed=args.seed,
            is_standardized=args.standardize,
            mean=mean,
            scale=scale,
            seconds=seconds,
            notes=notes,
            null_test=null_test,
            all_rows=None if sampled is None else partial(moments_of_all, sampled, mean, scale),
        )
    print(as_json(estimate_record(estimate)) if args.json else estimate_text(estimate))


def read_for_estimate(
    args: argparse.Namespace,
) -> "tuple[Table, FloatArray, FloatArray, list[str], SampledTable | None]":
    """The rows to fit, their scale, notes on columns, and the table they are a sample of, if they are one."""
    import numpy as np

    from koncord.data.batches import means_and_scales, sample_of, whole_table
    from koncord.data.notes import notes_on

    if is_streamed(args, args.file):
        with part(0.0, 0.5, "pass 1"):
            sampled = streamed_table(args, args.file)
        if not sampled.is_whole:
            with part(0.5, 1.0, "scale"):
                n, d = sampled.n_rows, len(sampled.columns)
                mean, scale = means_and_scales(sampled) if args.standardize else (np.zeros(d), np.ones(d))
            notes = [
                *sampled.table.left_out,
                f"read batch by batch, in {3 if args.standardize else 2} passes over {n:,} rows; the components were "
                f"found in a sample of {len(sampled.sample):,}, their counts, means and spreads are those of all rows",
            ]
            return sample_of(sampled, mean, scale), mean, scale, notes, sampled
        read = whole_table(sampled)
    else:
        read = table_of(args, args.file)
    table, mean, scale = scaled_table(read, args)
    return table, mean, scale, notes_on([read]), None


def moments_of_all(
    table: "SampledTable", mean: "FloatArray", scale: "FloatArray", means: "FloatArray"
) -> "LabelMoments":
    """Moments, on the scale of the fit, of all rows by the nearest of `means`: one pass."""
    from koncord.kernels.assign import nearest
    from koncord.kernels.moments import moments_by_label

    scaled = ((X - mean) / scale for X in table.batches("all rows"))
    return moments_by_label(((Z, nearest(Z, means)) for Z in scaled), means)
