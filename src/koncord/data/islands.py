"""Penguins of the Palmer Archipelago (Gorman, Williams and Fraser 2014; CC0), which come with koncord, by island."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from koncord.types import FloatArray, IntArray

SPECIES = ("Adelie", "Chinstrap", "Gentoo")
SEXES = ("female", "male")
ISLANDS = ("Biscoe", "Dream", "Torgersen")
MEASUREMENTS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
GAP = "NA"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Birds:
    """The measured penguins: 342 of the 344, two have no measurements."""

    X: FloatArray  # (342, 4), columns MEASUREMENTS
    species: IntArray  # (342,), position in SPECIES
    island: IntArray  # (342,), position in ISLANDS
    sex: IntArray  # (342,), position in SEXES, -1 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """A way to class the rows, known to nobody in the federation."""

    what: str  # of what kind the classes are, in the singular: species
    names: tuple[str, ...]
    of_rows: Mapping[str, IntArray]  # island -> (n_rows,), position in `names`; -1 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Penguins:
    """Tables of three islands, and what is known of their rows.

    Parameters
    ----------
    columns : tuple of str
        Bill length and depth, flipper length and body mass.
    tables : mapping of str to array (n_rows, 4)
        The birds of each island, by its name.
    classes : tuple of Classes
        The species of these birds, which clusters are compared with; then species and sex.
    """

    columns: tuple[str, ...]
    tables: Mapping[str, FloatArray]
    classes: tuple[Classes, ...]

    @property
    def pooled(self) -> FloatArray:
        """All rows in one place: what a federation never has."""
        return np.concatenate(list(self.tables.values()))

    @property
    def true_counts(self) -> dict[str, int]:
        """How many species each island holds."""
        return {island: len(set(of_rows.tolist())) for island, of_rows in self.classes[0].of_rows.items()}


def penguins() -> Penguins:
    """Bill, flipper and body mass of 342 penguins, a table an island: two islands hold two species, one holds one.

    Returns
    -------
    Penguins
        The tables by island, and the species and sex of their rows.

    Examples
    --------
    >>> shown = penguins()
    >>> {island: len(table) for island, table in shown.tables.items()}, shown.true_counts
    ({'Biscoe': 167, 'Dream': 124, 'Torgersen': 51}, {'Biscoe': 2, 'Dream': 2, 'Torgersen': 1})
    """
    held = birds()
    at = {island: np.flatnonzero(held.island == number) for number, island in enumerate(ISLANDS)}
    both = np.where(held.sex < 0, -1, held.species * len(SEXES) + held.sex)
    return Penguins(
        columns=MEASUREMENTS,
        tables={island: held.X[rows] for island, rows in at.items()},
        classes=(
            Classes(what="species", names=SPECIES, of_rows={island: held.species[rows] for island, rows in at.items()}),
            Classes(
                what="species and sex",
                names=tuple(f"{species} {sex}" for species in SPECIES for sex in SEXES),
                of_rows={island: both[rows] for island, rows in at.items()},
            ),
        ),
    )


def birds() -> Birds:
    """All penguins in the order of the file.

    >>> held = birds()
    >>> held.X.shape, np.bincount(held.species).tolist(), np.bincount(held.island).tolist()
    ((342, 4), [151, 68, 123], [167, 124, 51])
    """
    text = files("koncord.data").joinpath("shipped/penguins.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if GAP not in [row[name] for name in MEASUREMENTS]]
    return Birds(
        X=np.array([[float(row[name]) for name in MEASUREMENTS] for row in rows]),
        species=np.array([SPECIES.index(row["species"]) for row in rows], dtype=np.int64),
        island=np.array([ISLANDS.index(row["island"]) for row in rows], dtype=np.int64),
        sex=np.array([SEXES.index(row["sex"]) if row["sex"] != GAP else -1 for row in rows], dtype=np.int64),
    )
