"""The command line: parses, calls, prints.

Each command is a module of this package with `add_parser(subparsers)`, which sets ``run`` as the default of its parser;
other distributions bring more (`koncord.cli.installed`). The modules import NumPy and the rest inside their functions,
so that ``koncord --help`` waits for none of it.

Results go to stdout, progress and the one line that says what is wrong to stderr. Exit codes: 0 success, 2 a wrong
call, 1 any other failure, 130 stopped by the person.
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import koncord
from koncord._files import disk_problem
from koncord._text import showable
from koncord.cli import (
    check,
    demo,
    estimate,
    fit,
    invite,
    join,
    ledger,
    predict,
    renew,
    report,
    request,
    revoke,
    runs,
    serve,
    sites,
)
from koncord.cli import run as run_
from koncord.cli.installed import Command, check_installed, installed_commands
from koncord.errors import KoncordError

COMMANDS: tuple[Command, ...] = (
    *(check, estimate, fit, predict, report),
    *(serve, request, invite, join),
    *(run_, runs, sites, revoke, renew, ledger),
    demo,
)

SUCCESS, FAILURE, WRONG_CALL, STOPPED = 0, 1, 2, 130

DESCRIPTION = "Federated clustering when nobody knows K: no labels, no counts, no pooled rows."
EPILOG = """\
examples:
  koncord demo                 # the whole pipeline on built-in data
  koncord estimate visits.csv  # how many components one table holds

koncord COMMAND --help shows the options of a command and more examples.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves."""
    try:
        with one_line_warnings():
            run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout_alone()
        return SUCCESS
    except KeyboardInterrupt:
        return fail("stopped.", STOPPED)
    except (ValueError, TypeError) as error:
        return fail(str(error), WRONG_CALL)
    except KoncordError as error:
        return fail(str(error), FAILURE)
    except MemoryError as error:
        return fail(f"not enough memory: {error or 'the table is too large for this machine'}.", FAILURE)
    except OSError as error:
        return fail(disk_problem(error), FAILURE)
    except Exception as error:  # a person gets a line, whatever happened
        return fail(f"a mistake in koncord itself, {type(error).__name__}: {error}; please report it.", FAILURE)
    return SUCCESS


def run(argv: Sequence[str] | None) -> None:
    words = sys.argv[1:] if argv is None else argv
    commands = all_commands()
    names = [command.NAME for command in commands]
    if words:
        check_installed(words[0], names)
    parser = build_parser(commands)
    try:
        args = parser.parse_args(words)
    except SystemExit:  # --help and --version have printed
        return
    if args.run is None:
        parser.error(f"say what to do: {', '.join(names)}")
    args.run(args)


def all_commands() -> tuple[Command, ...]:
    """The commands of this package, then those of other distributions that are installed."""
    return (*COMMANDS, *installed_commands(command.NAME for command in COMMANDS))


def build_parser(commands: Sequence[Command] = COMMANDS) -> Parser:
    parser = Parser(
        prog="koncord",
        usage="koncord COMMAND [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"koncord {koncord.__version__}")
    parser.set_defaults(run=None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", prog="koncord")
    for command in commands:
        command.add_parser(subparsers)
    return parser


def fail(message: str, code: int) -> int:
    """Say in one line what is wrong; with KONCORD_TRACEBACK set, also where."""
    if os.environ.get("KONCORD_TRACEBACK") and code != STOPPED:
        traceback.print_exc()
    print("koncord:", showable(" ".join(message.split())), file=sys.stderr)
    return code


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Show a warning as one line, without the place in the source it came from."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print("koncord: warning:", showable(" ".join(str(message).split())), file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def leave_stdout_alone() -> None:
    """The reader of stdout has gone: what is still in its buffer must not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
