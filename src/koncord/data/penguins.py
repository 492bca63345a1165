"""Penguins of the Palmer Archipelago (Gorman, Williams and Fraser 2014; CC0), which come with koncord."""

import csv
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
class Penguins:
    """The measured penguins: 342 of the 344, two have no measurements."""

    X: FloatArray  # (342, 4), columns MEASUREMENTS
    species: IntArray  # (342,), position in SPECIES
    island: IntArray  # (342,), position in ISLANDS
    sex: IntArray  # (342,), position in SEXES, -1 where it is not known


def penguins() -> Penguins:
    """Bill, flipper and body mass of 342 penguins with their species, island and sex.

    Returns
    -------
    Penguins
        In the order of the file.

    Examples
    --------
    >>> birds = penguins()
    >>> birds.X.shape, np.bincount(birds.species).tolist(), np.bincount(birds.island).tolist()
    ((342, 4), [151, 68, 123], [167, 124, 51])
    """
    text = files("koncord.data").joinpath("shipped/penguins.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if GAP not in [row[name] for name in MEASUREMENTS]]
    return Penguins(
        X=np.array([[float(row[name]) for name in MEASUREMENTS] for row in rows]),
        species=np.array([SPECIES.index(row["species"]) for row in rows], dtype=np.int64),
        island=np.array([ISLANDS.index(row["island"]) for row in rows], dtype=np.int64),
        sex=np.array([SEXES.index(row["sex"]) if row["sex"] != GAP else -1 for row in rows], dtype=np.int64),
    )
