"""Options that several commands share, and what they mean."""

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._registry import Registry
from koncord.aggregate.registry import AGGREGATORS
from koncord.cli.parameters import Owner, owner_of, parameters_of, value_for
from koncord.errors import DisclosureRefused
from koncord.estimate.registry import ESTIMATORS
from koncord.prepare.settings import MISSING, Preparation
from koncord.session.policy import ServerPolicy, SitePolicy

if TYPE_CHECKING:
    from koncord.aggregate.base import Aggregator
    from koncord.data.batches import BatchedTable, SampledTable
    from koncord.data.files import Table
    from koncord.privacy.budget import Budget
    from koncord.types import FloatArray

PRIVACY_OPTIONS = ("epsilon", "delta", "bound", "center")
# Parameters that have an option of their own.
AGGREGATOR_FLAGS = {"allow_disclosure": "--allow-disclosure", "harmonize": "--harmonize"}
ESTIMATOR_FLAGS = {"random_state": "--seed"}


def add_table_options(parser: argparse.ArgumentParser) -> Any:
    """Adds, and returns, the group of options for tables."""
    group = parser.add_argument_group("table")
    group.add_argument(
        "--columns", metavar="A,B", type=names, action="extend", help="columns to use, in this order (default: all)"
    )
    group.add_argument("--drop", metavar="A,B", type=names, action="extend", help="columns to leave out")
    group.add_argument(
        "--array",
        metavar="NAME",
        help="which array of an NPZ file (default: X, or the only one) or sheet of an Excel file (default: the first) "
        "is the table",
    )
    add_notation_options(group)
    add_standardize_option(group)
    parser.set_defaults(standardize=True)
    return group


def add_stream_options(group: Any, *, sampled: bool = True) -> None:
    """How a table larger than memory is read."""
    group.add_argument(
        "--stream",
        action="store_true",
        help="read Parquet and CSV files batch by batch, in several passes, and never hold them whole; a folder of "
        "such files, which is one table, always is",
    )
    if sampled:
        group.add_argument(
            "--sample-rows",
            metavar="N",
            type=at_least_one,
            help="rows that are held of a table that is read batch by batch (default: 100,000)",
        )


def is_streamed(args: argparse.Namespace, file: str | Path) -> bool:
    """Whether a table is read batch by batch."""
    return bool(args.stream) or Path(file).is_dir()


def streamed_table(args: argparse.Namespace, file: str) -> "SampledTable":
    """The table the options describe, read once, batch by batch."""
    from koncord.data.batches import sampled_table

    return sampled_table(batched_of(args, file), args.sample_rows)


def batched_of(args: argparse.Namespace, file: str) -> "BatchedTable":
    """The table the options describe, to be read batch by batch."""
    from koncord.data.batches import batched_table

    refused = [name for name in ("categories", "decimal") if getattr(args, name, None)]
    if refused:
        raise ValueError(
            f"{flag(refused[0])} does not go with '{file}', which is read batch by batch: its columns are numbers, "
            "with a point before the decimals."
        )
    return batched_table(
        file, columns=args.columns, drop=args.drop or (), array=args.array, may_lack=True, na=args.na or ()
    )


def add_notation_options(group: Any) -> None:
    group.add_argument(
        "--decimal",
        metavar="SIGN",
        choices=(".", ","),
        help="what stands before decimals, a point or a comma; the other one stands between thousands (default: seen)",
    )
    group.add_argument(
        "--na",
        metavar="VALUE",
        action="append",
        help="what stands for a missing value, as -999, beside empty cells and NA; may be given again",
    )


def add_standardize_option(group: Any) -> None:
    group.add_argument(
        "--standardize",
        action=argparse.BooleanOptionalAction,
        help="give every column mean 0 and variance 1 first, over all sites (default: yes)",
    )


def add_categories_option(group: Any) -> None:
    group.add_argument(
        "--categories",
        metavar="A,B",
        type=names,
        action="extend",
        help="columns whose values are levels, be they numbers or text; each counts as much as one column of numbers",
    )


def add_convert_option(group: Any, *, of_site: bool = True) -> None:
    """The option for columns in another unit; with `of_site`, it names one of several sites."""
    group.add_argument(
        "--convert",
        metavar="SITE:COLUMN=UNIT" if of_site else "COLUMN=UNIT",
        action="append",
        help=f"the column{' of this site' if of_site else ''} is in another unit than that of the others: F, K, psi, "
        "mbar, Hz, in, lb, km/h, or as F-to-C, C-to-F, x0.001; may be given again",
    )


def add_file_options(parser: argparse.ArgumentParser) -> Any:
    """The files of several sites, and how they are read and prepared; the group of options on reading."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="the table of one site")
    tables = add_table_options(parser)
    add_common_option(tables)
    add_categories_option(tables)
    add_convert_option(tables)
    add_preparation_options(parser)
    return tables


def conversions_of(args: argparse.Namespace) -> dict[str, str]:
    """What --convert names, of one site: the conversion of each column."""
    found: dict[str, str] = {}
    for text in args.convert or ():
        column, equals, unit = text.rpartition("=")
        if not (equals and column and unit):
            raise ValueError(f"--convert must be COLUMN=UNIT, as temperature=F; got {text!r}.")
        found[column] = unit
    return found


def conversions_by_site(args: argparse.Namespace, sites: Sequence[str]) -> dict[str, dict[str, str]]:
    """What --convert names, of several sites: the conversion of each column, by site."""
    found: dict[str, dict[str, str]] = {}
    for text in args.convert or ():
        place, equals, unit = text.rpartition("=")
        site, colon, column = place.partition(":")
        if not (equals and colon and column and unit):
            raise ValueError(f"--convert must be SITE:COLUMN=UNIT, as north:temperature=F; got {text!r}.")
        if site not in sites:
            raise ValueError(f"--convert names the site {site!r}; the sites are {', '.join(sites)}.")
        found.setdefault(site, {})[column] = unit
    return found


def add_preparation_options(parser: argparse.ArgumentParser, missing: Sequence[str] = MISSING) -> Any:
    """Adds, and returns, the group of options for what is done with columns before phase 1."""
    group = parser.add_argument_group(
        "preparation",
        "What is done with the columns of all sites before phase 1, agreed between them from sums. The plan is part\n"
        "of the model, so that koncord predict applies it. With a privacy budget there is none.",
    )
    group.add_argument(
        "--log",
        metavar="A,B",
        type=names,
        action="extend",
        help="take the logarithm of these columns (default: of positive columns that are skewed and less so after it)",
    )
    group.add_argument("--no-log", action="store_true", help="take no logarithm but those of --log")
    group.add_argument(
        "--no-fence",
        action="store_true",
        help="leave values beyond 8 robust standard deviations from the quartiles where they are",
    )
    group.add_argument(
        "--missing",
        metavar="HOW",
        choices=missing,
        default=Preparation.missing,
        help="what stands in for a missing value: neighbors, the mean of the five rows of its site that are nearest in "
        "the other columns; gaussian, what all sites together let expect from these; mean, that of its column"
        + ("; drop: rows with gaps take no part" if "drop" in missing else "")
        + " (default: neighbors)",
    )
    return group


def preparation_of(args: argparse.Namespace) -> Preparation:
    """What is done with columns, as the options say."""
    return Preparation(
        standardize=args.standardize,
        log=not args.no_log,
        logged=tuple(args.log or ()),
        fence=not args.no_fence,
        missing=args.missing,
    )


def add_estimator_options(parser: argparse.ArgumentParser) -> Any:
    """Adds, and returns, the group of options for phase 1."""
    group = parser.add_argument_group("estimator", summaries(ESTIMATORS))
    group.add_argument(
        "--estimator",
        metavar="NAME",
        choices=ESTIMATORS,
        default="asm",
        help="how the components are counted: %(choices)s (default: asm)",
    )
    group.add_argument("--seed", metavar="N", type=seed, default=0, help="of everything drawn at random (default: 0)")
    return group


def add_aggregator_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("aggregator", summaries(AGGREGATORS))
    group.add_argument(
        "--aggregator",
        metavar="NAME",
        choices=AGGREGATORS,
        default="consensus",
        help="how the sites agree on clusters: %(choices)s (default: consensus)",
    )
    group.add_argument(
        "--clusters", metavar="K", type=int, help="for kfed, fedkmeans and ffcm: how many; for afcl: at most how many"
    )
    group.add_argument(
        "--harmonize",
        action="store_true",
        default=None,
        help="for consensus: take out offsets between sites, as of instruments with another zero, where they are "
        "credible (default: they are only reported)",
    )
    group.add_argument("--allow-disclosure", action="store_true", help="for afcl: yes, it may send rows")
    add_set_option(group, "the aggregator or of the estimator")


def add_set_option(group: Any, owner: str) -> None:
    group.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        help=f"a parameter of {owner} by its name in Python, as min_mass=20; may be given again. A name that is not "
        "known lists those that are",
    )


def add_local_counts_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--local-counts",
        action=argparse.BooleanOptionalAction,
        help="have every site count its own components also where the aggregator does without (default: with --json)",
    )


def asks_local_counts(args: argparse.Namespace) -> bool:
    """Whether sites are to count their components: as was asked, else where a program reads the counts."""
    return bool(args.json if args.local_counts is None else args.local_counts)


def summaries(registry: Registry) -> str:
    """What koncord offers, one a line; the metadata of installed packages is read when their names are needed."""
    width = max(map(len, registry.own))
    return "\n".join(f"{name:{width}}  {offer.summary}" for name, offer in registry.own.items())


def add_site_options(parser: argparse.ArgumentParser) -> Any:
    """Adds, and returns, the group of options for what the owner of a site decides."""
    group = parser.add_argument_group("what may leave a site")
    add_floor_option(group)
    group.add_argument("--ledger", metavar="DIR", type=Path, help="folder for a ledger of every message a site sends")
    return group


def add_floor_option(group: Any) -> None:
    group.add_argument(
        "--min-report",
        metavar="N",
        type=at_least_one,
        default=SitePolicy.min_report,
        help="rows that whatever a site sends stands for at least; 1 withholds nothing "
        f"(default: {SitePolicy.min_report})",
    )


def add_privacy_options(parser: argparse.ArgumentParser) -> Any:
    """Adds, and returns, the group of options for a privacy budget."""
    group = parser.add_argument_group(
        "privacy budget",
        "Everything a site sends in a run is (E, D)-differentially private: noise is added to sums of clipped rows.\n"
        "For consensus and fedkmeans. Columns are brought to one scale beforehand instead of standardized, and --seed\n"
        "does not repeat the noise.",
    )
    group.add_argument("--epsilon", metavar="E", type=float, help="of all messages of a site together")
    group.add_argument("--delta", metavar="D", type=float, help="far below one over the rows of a site, as 1e-6")
    group.add_argument(
        "--bound", metavar="B", type=float, help="rows are clipped to this distance from the center, in their units"
    )
    group.add_argument(
        "--center", metavar="C", type=float, help="of what rows are clipped to, the same in every column (default: 0)"
    )
    return group


def budget_of(args: argparse.Namespace) -> "Budget | None":
    """The privacy budget the options describe, or None."""
    given = {name: getattr(args, name) for name in PRIVACY_OPTIONS if getattr(args, name) is not None}
    if not given:
        return None
    missing = [flag(name) for name in ("epsilon", "delta", "bound") if name not in given]
    if missing:
        raise ValueError(f"A privacy budget needs --epsilon, --delta and --bound; {' and '.join(missing)} not given.")
    from koncord.privacy.budget import Budget

    return Budget(**given)


def site_policy_of(args: argparse.Namespace) -> SitePolicy:
    """What may leave a site, as the options say."""
    names = ("max_rounds", "max_runs", "total_epsilon", "changed")
    limits = {name: getattr(args, name) for name in names if hasattr(args, name)}
    methods = getattr(args, "methods", None)
    return SitePolicy(
        min_report=args.min_report,
        budget=budget_of(args),
        methods=None if methods is None else tuple(methods),
        allows_disclosure=args.allow_disclosure,
        **limits,
    )


def add_common_option(group: Any) -> None:
    group.add_argument(
        "--common-columns",
        action="store_true",
        help="use the columns that all sites have and leave out the others (default: they must be the same)",
    )


def add_support_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min-support",
        metavar="N",
        type=at_least_one,
        default=ServerPolicy.min_support,
        help="mark clusters with components of fewer sites; consensus sets such micro-clusters aside "
        f"(default: {ServerPolicy.min_support})",
    )


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1; got {text!r}")
    return int(text)


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


def table_of(
    args: argparse.Namespace, file: str, *, may_lack: bool = False, may_miss: bool = False, refuses: bool = True
) -> "Table":
    """The table the options describe; with `may_lack`, a column to drop, or a category, need not be there."""
    from koncord.data.files import read_table

    return read_table(
        file,
        columns=args.columns,
        drop=args.drop or (),
        array=args.array,
        may_lack=may_lack,
        decimal=args.decimal,
        na=args.na or (),
        categories=(args.categories or ()) if hasattr(args, "categories") else None,
        may_miss=may_miss,
        refuses=refuses,
    )


def scaled_table(table: "Table", args: argparse.Namespace) -> "tuple[Table, FloatArray, FloatArray]":
    """The table to fit, what was subtracted from each of its columns, and what it was divided by."""
    import numpy as np

    from koncord.data.files import standardize

    if not args.standardize:
        return table, np.zeros(len(table.columns)), np.ones(len(table.columns))
    Z, mean, scale = standardize(table.X)
    return replace(table, X=Z), mean, scale


def estimator_of(args: argparse.Namespace, *, random_state: int | None, is_needed: bool = True) -> Any:
    """The estimator the options describe, ready to fit; one that is not needed is left for later."""
    from koncord.estimate.named import LateEstimator, estimator_named

    if not is_needed:
        return LateEstimator(args.estimator)
    return estimator_named(args.estimator, random_state=random_state, **parameters_set(args)["estimator"])


def check_method_options(args: argparse.Namespace, *, local_counts: bool = False) -> None:
    """Refuse options that do not go together, before anything is read.

    With `local_counts`, sites count their components also where the aggregator does without.
    """
    if args.clusters is not None and args.clusters < 1:
        raise ValueError(f"--clusters must be at least 1; got {args.clusters}.")
    from koncord.aggregate.base import sends_rows
    from koncord.aggregate.registry import aggregator_named

    kind = aggregator_named(args.aggregator)
    if args.harmonize and "harmonize" not in parameters_of(kind):
        raise ValueError(f"--harmonize goes with --aggregator consensus, not {args.aggregator}.")
    takes = takes_clusters(kind)
    if takes is None and args.clusters is not None:
        raise ValueError(
            f"--clusters does not go with --aggregator {args.aggregator}, which finds their number itself."
        )
    if takes is not None and args.clusters is None and parameters_of(kind)[takes].default is None:
        what = "the most clusters there can be" if kind.count_is_bound else "the number of clusters"
        raise ValueError(f"--aggregator {args.aggregator} needs {what}: --clusters K.")
    if args.allow_disclosure and not sends_rows(kind):
        raise ValueError(f"--allow-disclosure goes with --aggregator afcl; {args.aggregator} sends no rows.")
    if sends_rows(kind) and not args.allow_disclosure:
        raise DisclosureRefused(
            f"--aggregator {args.aggregator} sends every row of every site in a form the server can read; "
            "--allow-disclosure runs it all the same."
        )
    check_estimator_runs(args, counts=local_counts or kind.needs_local_counts)


def check_estimator_runs(args: argparse.Namespace, *, counts: bool) -> None:
    """Refuse a parameter of an estimator that nothing is counted with."""
    name = next(iter(parameters_set(args)["estimator"]), None)
    is_private = getattr(args, "epsilon", None) is not None
    if name is None or (counts and not is_private):
        return
    alone = f"with --aggregator {args.aggregator}" + " unless --local-counts is given" * hasattr(args, "local_counts")
    raise ValueError(
        f"--set {name} is of the estimator {args.estimator}, which does not run "
        f"{'within a privacy budget' if is_private else alone}."
    )


def takes_clusters(kind: "type[Aggregator]") -> str | None:
    """The parameter that --clusters gives, if the aggregator has one."""
    return kind.count_parameter if kind.count_parameter in parameters_of(kind) else None


def parameters_set(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What --set gives to the aggregator and to the estimator, checked against their signatures."""
    given: dict[str, dict[str, Any]] = {"aggregator": {}, "estimator": {}}
    for text in args.set or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE; got {text!r}.")
        owner = owner_of(name, owners(args))
        if name in owner.flags:
            raise ValueError(f"--set {name}: give {owner.flags[name]} instead.")
        if name in given[owner.what]:
            raise ValueError(f"--set {name} is given twice.")
        given[owner.what][name] = value_for(owner.make, name, value)
    return given


def owners(args: argparse.Namespace) -> Iterator[Owner]:
    """What --set gives parameters to, in this order; the estimator is imported only if it comes to that."""
    if hasattr(args, "aggregator"):
        from koncord.aggregate.registry import aggregator_named

        kind = aggregator_named(args.aggregator)
        flags = {**AGGREGATOR_FLAGS, kind.count_parameter: "--clusters"}
        yield Owner(what="aggregator", name=args.aggregator, make=kind, flags=flags)
    make = ESTIMATORS[args.estimator].load()
    yield Owner(what="estimator", name=args.estimator, make=make, flags=ESTIMATOR_FLAGS)


def check_floor(args: argparse.Namespace) -> None:
    """Refuse options that ask a site for what its floor forbids."""
    if args.allow_disclosure and args.min_report > 1:
        raise ValueError(
            f"--allow-disclosure lets rows leave, --min-report {args.min_report} nothing of fewer rows than that; "
            "if rows may leave, add --min-report 1."
        )


def aggregator_of(args: argparse.Namespace) -> Any:
    """The aggregator the options describe."""
    from koncord.aggregate.registry import aggregator_named

    kind = aggregator_named(args.aggregator)
    given = parameters_set(args)["aggregator"]
    takes = takes_clusters(kind)
    if takes is not None and args.clusters is not None:
        given[takes] = args.clusters
    if args.harmonize:
        given["harmonize"] = True
    if args.allow_disclosure and "allow_disclosure" in parameters_of(kind):
        given["allow_disclosure"] = True
    return kind(**given)


def check_parameters(aggregator: "Aggregator") -> None:
    """ValueError for a parameter of the aggregator that is wrong, before anything is read or anybody is asked."""
    import numpy as np

    next(aggregator.server(("a", "b"), 1, np.random.default_rng(0)))


def asked(args: argparse.Namespace, names: Iterable[str], *, unless: Mapping[str, Any]) -> dict[str, Any]:
    """Options that were given, by flag, for the record of a run; those of `unless` are left out if they are that."""
    values = {name: getattr(args, name) for name in names}
    values |= {name: getattr(args, name) for name, usual in unless.items() if getattr(args, name) != usual}
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    return {flag(name): ", ".join(value) if isinstance(value, list) else value for name, value in given.items()}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")
