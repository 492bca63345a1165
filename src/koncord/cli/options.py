"""Options that several commands share, and what they mean."""

import argparse
import csv
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord.data.files import Table
    from koncord.types import FloatArray

ESTIMATORS = ("asm", "asm-identity", "xmeans", "gmeans", "dpgmm")
MERGE_GRIDS = ("paper", "mnist")
# Options of ASM alone, by the name of its parameter.
ASM_OPTIONS = ("min_mass", "split_factor", "merge_factor", "merge_grid")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("table")
    group.add_argument(
        "--columns", metavar="A,B", type=names, action="extend", help="columns to use, in this order (default: all)"
    )
    group.add_argument("--drop", metavar="A,B", type=names, action="extend", help="columns to leave out")
    group.add_argument(
        "--array", metavar="NAME", help="which array of an NPZ file is the table (default: X, or the only one)"
    )
    group.add_argument(
        "--standardize",
        action=argparse.BooleanOptionalAction,
        help="give every column mean 0 and variance 1 first (default: yes)",
    )
    parser.set_defaults(standardize=True)


def add_estimator_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("estimator")
    group.add_argument(
        "--estimator", choices=ESTIMATORS, default="asm", help="how the components are counted (default: asm)"
    )
    group.add_argument("--seed", metavar="N", type=seed, default=0, help="of everything drawn at random (default: 0)")
    group.add_argument(
        "--max-components", metavar="N", type=int, help="most components to look for (default: the estimator's own)"
    )
    group = parser.add_argument_group("asm and asm-identity", "What is not given is chosen on held-out rows.")
    group.add_argument("--min-mass", metavar="X", type=float, help="rows' worth of mass both halves of a split keep")
    group.add_argument("--split-factor", metavar="X", type=float, help="how far from the mean the two halves start")
    group.add_argument("--merge-factor", metavar="X", type=float, help="overlap from which components merge; 0: never")
    group.add_argument(
        "--merge-grid",
        choices=MERGE_GRIDS,
        help="merge factors to choose from: the paper's, or its finer ones for MNIST",
    )


def names(text: str) -> list[str]:
    """Names separated by commas; one that holds a comma stands in double quotes.

    >>> names('age, stay,"cost, total"')
    ['age', 'stay', 'cost, total']
    """
    given = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not given or not all(given):
        raise argparse.ArgumentTypeError(f"must be names separated by commas; got {text!r}")
    return given


def seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer of at least 0; got {text!r}")
    return int(text)


def table_of(args: argparse.Namespace, file: str) -> "Table":
    from koncord.data.files import read_table

    return read_table(file, columns=args.columns, drop=args.drop or (), array=args.array)


def scaled(table: "Table", args: argparse.Namespace) -> "tuple[Table, FloatArray, FloatArray]":
    """The table to fit, what was subtracted from each of its columns, and what it was divided by."""
    import numpy as np

    from koncord.data.files import standardise

    if not args.standardize:
        return table, np.zeros(len(table.columns)), np.ones(len(table.columns))
    Z, mean, scale = standardise(table.X)
    return replace(table, X=Z), mean, scale


def check_estimator_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything is imported or read."""
    for name in ASM_OPTIONS:
        if getattr(args, name) is not None and not args.estimator.startswith("asm"):
            raise ValueError(f"{flag(name)} goes with --estimator asm or asm-identity, not {args.estimator}.")
    if args.merge_factor is not None and args.merge_grid is not None:
        raise ValueError("--merge-factor and --merge-grid exclude each other; give one of them.")


def estimator_of(args: argparse.Namespace) -> Any:
    """The estimator the options describe, ready to fit."""
    import koncord

    given = {} if args.max_components is None else {"max_components": args.max_components}
    if args.estimator.startswith("asm"):
        from koncord.estimate.asm import MNIST_MERGE_FACTORS

        return koncord.ASM(
            covariance="identity" if args.estimator == "asm-identity" else "spherical",
            min_mass=args.min_mass,
            split_factor=args.split_factor,
            merge_factor=MNIST_MERGE_FACTORS if args.merge_grid == "mnist" else args.merge_factor,
            random_state=args.seed,
            **given,
        )
    if args.estimator == "xmeans":
        return koncord.XMeans(random_state=args.seed, **given)
    if args.estimator == "gmeans":
        return koncord.GMeans(random_state=args.seed, **given)
    from koncord.estimate.dpgmm import GRID

    given = {} if args.max_components is None else {"truncation": args.max_components}
    return koncord.LabelFreeSearch(koncord.DPGMM(**given), GRID, random_state=args.seed)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")
