"""What a person should know of tables before they believe a clustering of them: columns that are no measurements.

The sentences hold counts of rows. They are for the owner of the files, and go on no page and into no message.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from koncord._words import counted, joined
from koncord.data.files import FEWEST_COUNTED, LARGEST_EXACT, Table, drop_option, is_constant
from koncord.types import FloatArray

# Names of a column that nobody named: by koncord, by pandas, by pandas once more.
UNNAMED_OR_NUMBERED = re.compile(r"x\d+|Unnamed: \d+|index|level_0")
READ = " is read with "  # between a column and how its numbers are written
# What programs write where a value is missing, with either sign.
SENTINELS = frozenset({99, 999, 999.25, 999.9, 9999, 9999.9, 99999, 999999})


def notes_on(tables: Sequence[Table]) -> list[str]:
    """A sentence for every kind of column that is no measurement; of several tables, it says which have it."""
    found: dict[str, list[str]] = {}
    for table in tables:
        notes = (*table.notes, *left_out_notes(table), *index_notes(table), *identifier_notes(table))
        for note in (*notes, *sentinel_notes(table)):
            found.setdefault(note, []).append(table.name)
    named = [note if len(tables) == 1 else f"{', '.join(names)}: {note}" for note, names in alike_in_one(found)]
    return [*named, *constant_notes(tables)]


def alike_in_one(found: Mapping[str, Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Notes and the tables that have each; columns that the same tables write in the same way share a note."""
    written: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for note, names in found.items():
        column, is_read, how = note.partition(READ)
        own = written.setdefault((how if is_read else note, tuple(names)), [])
        own += [column] if is_read else []
    return [
        (f"{joined(columns)} {'is' if len(columns) == 1 else 'are'} read with {text}" if columns else text, names)
        for (text, names), columns in written.items()
    ]


def left_out_notes(table: Table) -> list[str]:
    """Of columns that are not used as they are no measurements."""
    return [f"{name} is left out: {why}" for name, why in table.left_out.items()]


def index_notes(table: Table) -> list[str]:
    """Of columns without a name that count upwards."""
    counting = [
        name
        for at, name in enumerate(table.columns)
        if UNNAMED_OR_NUMBERED.fullmatch(name) and len(table.X) >= FEWEST_COUNTED and counts_upwards(table.X[:, at])
    ]
    return [
        f"{name} has no name and counts the rows, as an index does; leave it out with {drop_option([name])}"
        for name in counting
    ]


def counts_upwards(values: FloatArray) -> bool:
    """Whether every value is an integer greater than the one before."""
    return bool((np.diff(values) > 0).all() and (values == np.trunc(values)).all())


def identifier_notes(table: Table) -> list[str]:
    return [
        f"{name} holds integers beyond {LARGEST_EXACT:,}, which are rounded: an identifier is no measurement; "
        f"leave it out with {drop_option([name])}"
        for name in table.rounded
    ]


def sentinel_notes(table: Table) -> list[str]:
    """Of columns with a number that programs write for a missing value, far from the rest."""
    notes = []
    numbers = [(at, name) for at, name in enumerate(table.columns) if name not in table.levels]
    for at, name in numbers:
        for value, n_rows in sentinels(table.X[:, at]):
            notes.append(
                f"{name} holds {value:g} in {counted(n_rows, 'row')}, far from all its other values: if it stands for "
                f"a missing value, say so with --na {value:g}"
            )
    return notes


def sentinels(values: FloatArray) -> list[tuple[float, int]]:
    """The lowest and the highest value if they are sentinels, with their rows.

    One is if the gap to the next value is wider than the range of all the others.
    """
    found = []
    values = values[~np.isnan(values)]
    if not len(values):
        return []
    for extreme in {float(values.min()), float(values.max())}:
        if abs(extreme) not in SENTINELS:
            continue
        others = values[values != extreme]
        if len(others) and np.abs(others - extreme).min() > others.max() - others.min():
            found.append((extreme, len(values) - len(others)))
    return sorted(found)


def first_value(table: Table, name: str) -> float:
    """The first value of a column that is there, if any is."""
    values = table.X[:, table.columns.index(name)]
    return float(values[int((~np.isnan(values)).argmax())])


def is_same_at_all(tables: Sequence[Table], name: str) -> bool:
    """Whether a column that is constant in each of some tables is the same in all: the number, or the level."""
    levels = {table.levels.get(name) for table in tables}
    if levels != {None}:
        return len(levels) == 1
    return bool(is_constant(np.array([[first_value(table, name)] for table in tables]))[0])


def constant_notes(tables: Sequence[Table]) -> list[str]:
    """Of columns that hold one value, in one table or at every site."""
    several = [table for table in tables if len(table.X) > 1]
    if not several:
        return []
    first, *others = [table.constant_columns for table in several]
    constant = [name for name in first if all(name in names for names in others)]
    same = [name for name in constant if is_same_at_all(several, name)]
    other = [name for name in constant if name not in same]
    everywhere = "constant" if len(tables) == 1 else "constant at every site"
    notes = [f"{everywhere}, and so without information: {', '.join(same)}"] if same else []
    if other:
        notes.append(
            f"the same in every row of a site, but not at every site: {', '.join(other)}; "
            "it tells sites apart, not clusters"
        )
    return notes
