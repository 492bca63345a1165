"""``koncord check FILE ...``: what each column is, what a run would do with it, and what looks wrong across files."""

import argparse
from typing import Any

from koncord.cli.fit import check_site_names
from koncord.cli.options import add_file_options, add_floor_option, conversions_by_site, preparation_of, table_of
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command

NAME = "check"
SUMMARY = "what the columns of tables are, what a run would do with them, what looks wrong"
DESCRIPTION = """\
Read the tables of several sites and tell, column by column, what it is, what a run will do with it, and what looks
wrong across the files: gaps, values that stand for missing ones, text and its levels, columns that some sites lack,
another unit at one site. Nothing is written and nothing is fitted. It takes the options of koncord fit that say how
tables are read, so that the same options can be tried here first.

Exit code 1: koncord fit would refuse these files, for the reasons at the end.
"""
EPILOG = """\
examples:
  koncord check north.csv south.csv west.csv
  koncord check *.csv --common-columns --categories state --na -999
  koncord check north.csv south.csv --json
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord check FILE [FILE ...] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add_file_options(parser)
    add_floor_option(parser.add_argument_group("what may leave a site"))
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_site_names(args.files)
    from koncord.cli.fit import check_dropped
    from koncord.data.units import converted
    from koncord.errors import TableArgumentError, TableError, TablesRefused
    from koncord.prepare.checking import check_tables
    from koncord.report.check import as_record, as_text

    tables, errors = [], []
    for file in args.files:
        try:
            tables.append(table_of(args, file, may_lack=True, may_miss=True, refuses=False))
        except TableArgumentError:  # a wrong call
            raise
        except TableError as error:
            errors.append(str(error))
    if not errors:
        check_dropped(args.drop or (), tables)
        check_dropped(args.categories or (), tables, "--categories")
    conversions = conversions_by_site(args, [table.name for table in tables])
    tables = [converted(table, conversions.get(table.name, {})) for table in tables]
    check = check_tables(tables, preparation_of(args), common=args.common_columns, floor=args.min_report, errors=errors)
    print(as_json(as_record(check)) if args.json else as_text(check))
    if check.is_refused:
        raise TablesRefused(f"koncord fit would refuse these files: {check.refusals[0]}")
