"""Commands of other distributions, which they name as entry points of the group ``koncord.commands``.

An entry point names a module of the same form as those of `koncord.cli`: NAME, SUMMARY and `add_parser`.
"""

import warnings
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from koncord.errors import KoncordError

GROUP = "koncord.commands"
# Commands of a distribution in the repository of koncord, and how to get it.
ELSEWHERE = dict.fromkeys(
    ("embed", "reproduce"), "koncord-reproduction: pip install ./reproduction, in a checkout of koncord"
)


class Command(Protocol):
    """A module that is one command.

    Attributes
    ----------
    NAME : str
        What a person types.
    SUMMARY : str
        What ``koncord --help`` says of it.
    """

    NAME: str
    SUMMARY: str

    def add_parser(self, subparsers: Any, /) -> None:
        """Add the parser of the command, with the function that runs it as the default of ``run``."""


def installed_commands(taken: Iterable[str]) -> list[Command]:
    """Load the commands of other distributions, ordered by name.

    One that cannot be loaded, or whose name is taken, is left out with a warning: the others must work.

    Parameters
    ----------
    taken : iterable of str
        Names of the commands there are.

    Returns
    -------
    list of Command
    """
    names = set(taken)
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, distribution_of(entry))):
        command = loaded_command(entry)
        if command is None:
            continue
        if command.NAME in names:
            warnings.warn(f"{origin(entry)} is left out: there is a command of that name.", stacklevel=2)
            continue
        names.add(command.NAME)
        found.append(command)
    return found


def loaded_command(entry: EntryPoint) -> Command | None:
    """Load the module that an entry point names; None, with a warning, if it is no command."""
    try:
        command: Command = entry.load()
        if entry.name != command.NAME or not command.SUMMARY or not callable(command.add_parser):
            raise ValueError(f"its module names itself {command.NAME!r}")
    except Exception as error:  # whatever another distribution raises, koncord's own commands must work
        warnings.warn(f"{origin(entry)} cannot be loaded: {type(error).__name__}: {error}.", stacklevel=3)
        return None
    return command


def origin(entry: EntryPoint) -> str:
    """The command of an entry point and its distribution, in words."""
    return f"The command {entry.name!r} of the distribution {distribution_of(entry)!r}"


def distribution_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else ""


def check_installed(word: str, names: Iterable[str]) -> None:
    """Raise `KoncordError` that says what to install if `word` is a command of a distribution that is not here."""
    if word in ELSEWHERE and word not in names:
        raise KoncordError(f"koncord {word} comes with another distribution, {ELSEWHERE[word]}.")
