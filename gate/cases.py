"""The tables that accuracy is measured on: each a group, a set, and how its rows are dealt to sites.

Real sets are in the folder that KONCORD_DATA names; a group whose files are not there is left out.
"""

import csv
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gate.made import CLOUDS, PLANTS, Dealt, cloud, mixture
from koncord_reproduction import partition

REAL = ("dermatology", "digits", "drybean", "ecoli", "letter", "segment", "shuttle", "vowel", "wine")
MADE = (
    *("a1", "a3", "aggregation", "chameleon_t4_8k", "compound", "engytime", "fuzzyx", "hepta", "isolation", "lsun"),
    *("mk3", "r15", "s2", "s4", "twodiamonds", "unbalance", "windows", "z2"),
)
PAPER = ("waveform", "abalone", "frog species", "frog genus")
FILES = {"frog species": ("frogs", "y_species"), "frog genus": ("frogs", "y_genus"), "MNIST": ("mnist_vae10", "y")}
OWN_SITES = ("olive", "wisdm", "gasdrift", "leafshape")
FIRST_SEED = 301  # of dealings; that of made tables is ten times as much

Deal = tuple[str, int]  # regime, or "own sites", and seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table at its sites. Two cases of one set have the same rows."""

    group: str
    name: str
    deal: Deal
    n_sites: int | None = None  # by the number of rows where it is None

    def dealt(self) -> Dealt:
        if self.group in PLANTS:
            return PLANTS[self.group](self.deal[1])
        if self.group == "clouds":
            return cloud(self.name, self.deal[1])
        if self.group == "drawn mixtures":
            return mixture(self.deal[1])
        X, y, site = rows_of(self.group, self.name)
        parts = self.parts(y, site)
        return [X[own] for own in parts], [y[own] for own in parts]

    def parts(self, y: Any, site: Any) -> list[Any]:
        """Rows of each site."""
        regime, seed = self.deal
        if regime == "own sites":
            return [np.flatnonzero(site == each) for each in np.unique(site)]
        n_sites = self.n_sites or (10 if len(y) > 3000 else 5 if len(y) > 600 else 3)
        try:
            return list(partition(y, n_sites, regime, seed))
        except ValueError:  # two classes, or one of too few rows: each site has all of them
            return np.array_split(np.random.default_rng([seed, "AB".index(regime)]).permutation(len(y)), n_sites)

    @property
    def is_embedding(self) -> bool:
        """Whether the columns are axes of an embedding, on a common scale already."""
        return self.group.startswith("MNIST")


@cache
def rows_of(group: str, name: str) -> tuple[Any, Any, Any]:
    """Rows, classes and sites of a set; the sites are None where it has none."""
    folder = data_folder()
    if name == "penguins":
        return penguins(folder / "natural" / "penguins.csv")
    file, key = FILES.get(name, (name, "y"))
    inside = {"fresh": "fresh", "fresh by own sites": "fresh", "clusters real": "clusters", "clusters made": "clusters"}
    if name == "frogs by recording":
        file, key = "frogs", "y_species"
    with np.load(folder / inside.get(group, "") / f"{file}.npz") as stored:
        X, y = stored["X"].astype(float), np.unique(stored[key], return_inverse=True)[1]
        site = stored["site"] if "site" in stored.files else None
    if name == "frogs by recording":
        with np.load(folder / "natural" / "frogs_recordings.npz") as stored:
            site = stored["record"]
    return X, y, site


def penguins(path: Path) -> tuple[Any, Any, Any]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["body_mass_g"] not in ("", "NA")]
    measured = [column for column in rows[0] if column.endswith(("_mm", "_g"))]
    X = np.array([[float(row[column]) for column in measured] for row in rows])
    return X, *(np.unique([row[key] for row in rows], return_inverse=True)[1] for key in ("species", "island"))


def data_folder() -> Path:
    return Path(os.environ.get("KONCORD_DATA", "no folder of data"))


def cases(is_full: bool, say: Callable[[str], None]) -> list[Case]:
    found = list(every_case(is_full))
    here = [case for case in found if is_here(case)]
    if left_out := {case.group for case in found} - {case.group for case in here}:
        say(f"left out, as their files are not in the folder that KONCORD_DATA names: {', '.join(sorted(left_out))}")
    return here


def is_here(case: Case) -> bool:
    if case.group in PLANTS or case.group in ("clouds", "drawn mixtures"):
        return True
    try:
        rows_of(case.group, case.name)
    except FileNotFoundError:
        return False
    return True


def fresh_sets() -> list[str]:
    """Sets of fresh/, small ones first."""
    files = (data_folder() / "fresh").glob("*.npz")
    return [path.stem for path in sorted(files, key=lambda path: (path.stat().st_size, path.stem))]


def every_case(is_full: bool) -> Iterator[Case]:
    two = [(regime, FIRST_SEED) for regime in "AB"]
    four = [*two, *((regime, FIRST_SEED + 1) for regime in "AB")]
    for group, names, deals in (
        ("fresh", fresh_sets(), four if is_full else two),
        ("fresh by own sites", OWN_SITES, [("own sites", 0)]),
        ("clusters real", REAL, four if is_full else two[:1]),
        ("clusters made", MADE, two if is_full else two[:1]),
        ("paper tabular", PAPER, four if is_full else two[:1]),
        ("natural", ("frogs by recording", "penguins"), [("own sites", 0)]),
    ):
        yield from (Case(group=group, name=name, deal=deal) for name in names for deal in deals)
    for n_sites in (100, 10):
        for deal in two if is_full else two[:1]:
            yield Case(group=f"MNIST at {n_sites} sites", name="MNIST", deal=deal, n_sites=n_sites)
    for group in PLANTS:
        for seed in range(10 * FIRST_SEED, 10 * FIRST_SEED + (6 if is_full else 2)):
            yield Case(group=group, name=f"{group} {seed}", deal=("own sites", seed))
    for name in CLOUDS:
        for seed in range(10 * FIRST_SEED, 10 * FIRST_SEED + (3 if is_full else 1)):
            yield Case(group="clouds", name=name, deal=("own sites", seed))
    for seed in range(10 * FIRST_SEED, 10 * FIRST_SEED + (24 if is_full else 6)):
        yield Case(group="drawn mixtures", name=f"mixture {seed}", deal=("own sites", seed))
