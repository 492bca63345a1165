"""How every command is declared."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any


def add_command(
    subparsers: Any, name: str, summary: str, *, usage: str, description: str, epilog: str
) -> ArgumentParser:
    """The parser of a command, whose text is shown as it is written and whose options are not abbreviated."""
    parser: ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser
