"""Tables of several sites whose classes are known: what ``koncord demo`` shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from koncord._validation import check_option
from koncord.data.penguins import ISLANDS, MEASUREMENTS, SEXES, SPECIES, penguins
from koncord.data.pumps import SENSORS, STATES, pumps
from koncord.data.waveform import waveform
from koncord.types import FloatArray, IntArray

WAVEFORM_SEED, HELD_OUT = 42, 0.3
# Classes of waves that each site has.
WAVES_AT = {"site-1": (0, 1), "site-2": (0, 2), "site-3": (1, 2), "site-4": (1, 2), "site-5": (0, 2)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """A way to class the rows, known to nobody in the federation."""

    what: str  # of what kind the classes are, in the singular: species
    names: tuple[str, ...]
    of_rows: Mapping[str, IntArray]  # site -> (n_rows,), position in `names`; -1 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demonstration:
    """Tables of sites, and what is known of their rows.

    Parameters
    ----------
    name : str
        By which it is asked for.
    about : str
        What the data are, in a sentence.
    site : str
        What a site is, in the singular.
    columns : tuple of str
        Of every table.
    tables : mapping of str to array (n_rows, n_columns)
        The rows of each site, by its name.
    classes : tuple of Classes
        The classes of these rows; the first are what clusters are compared with, later ones are finer.
    held_out, held_out_classes : array, default None
        Rows that take no part, and their classes of the first kind; None where all rows take part.
    decimals : int, default 2
        With which the values are written to files.
    """

    name: str
    about: str
    site: str
    columns: tuple[str, ...]
    tables: Mapping[str, FloatArray]
    classes: tuple[Classes, ...]
    held_out: FloatArray | None = None
    held_out_classes: IntArray | None = None
    decimals: int = 2
    seed: int = field(default=0)  # of the run

    @property
    def pooled(self) -> FloatArray:
        """All rows that take part, in one place: what a federation never has."""
        return np.concatenate(list(self.tables.values()))

    @property
    def true_counts(self) -> dict[str, int]:
        """How many of the first classes each site holds."""
        return {site: len(set(of_rows.tolist()) - {-1}) for site, of_rows in self.classes[0].of_rows.items()}


def demonstration(name: str = "penguins") -> Demonstration:
    """Tables of several sites whose classes are known, by name.

    Parameters
    ----------
    name : {"penguins", "waveform", "plant"}, default "penguins"
        Penguins of three islands, Breiman's waveforms dealt to five sites, or simulated pumps of four plants.

    Returns
    -------
    Demonstration
        The tables by site, and the classes of their rows.

    Examples
    --------
    >>> shown = demonstration("penguins")
    >>> {site: len(table) for site, table in shown.tables.items()}, shown.true_counts
    ({'Biscoe': 167, 'Dream': 124, 'Torgersen': 51}, {'Biscoe': 2, 'Dream': 2, 'Torgersen': 1})
    """
    return DEMONSTRATIONS[check_option("name", name, tuple(DEMONSTRATIONS), owner="demonstration")]()


def islands() -> Demonstration:
    """Every island is a site; two hold two species, one holds one."""
    birds = penguins()
    at = {island: np.flatnonzero(birds.island == number) for number, island in enumerate(ISLANDS)}
    both = np.where(birds.sex < 0, -1, birds.species * len(SEXES) + birds.sex)
    return Demonstration(
        name="penguins",
        about="Palmer penguins: bill, flipper and body mass of 342 birds on three islands.",
        site="island",
        columns=MEASUREMENTS,
        tables={island: birds.X[rows] for island, rows in at.items()},
        classes=(
            Classes(
                what="species", names=SPECIES, of_rows={island: birds.species[rows] for island, rows in at.items()}
            ),
            Classes(
                what="species and sex",
                names=tuple(f"{species} {sex}" for species in SPECIES for sex in SEXES),
                of_rows={island: both[rows] for island, rows in at.items()},
            ),
        ),
        decimals=1,
    )


def five_waveform_sites() -> Demonstration:
    """70 % of the rows at five sites of two classes each; the others take no part."""
    from sklearn.model_selection import train_test_split

    X, y = waveform()
    X = np.round(X, 2)  # as UCI distributes it
    train, test = train_test_split(np.arange(len(y)), test_size=HELD_OUT, stratify=y, random_state=WAVEFORM_SEED)
    at = equal_shares(train, y, WAVES_AT)
    return Demonstration(
        name="waveform",
        about="Waveform (Breiman et al. 1984): 21 noisy points of three overlapping kinds of wave, at five sites.",
        site="site",
        columns=tuple(f"x{column}" for column in range(X.shape[1])),
        tables={site: X[rows] for site, rows in at.items()},
        classes=(
            Classes(
                what="wave",
                names=("waves 1 and 2", "waves 1 and 3", "waves 2 and 3"),
                of_rows={site: y[rows] for site, rows in at.items()},
            ),
        ),
        held_out=X[test],
        held_out_classes=y[test],
        seed=WAVEFORM_SEED,
    )


def equal_shares(rows: IntArray, y: IntArray, holds: Mapping[str, tuple[int, ...]]) -> dict[str, IntArray]:
    """The rows of each site, sorted: each class of `y` in equal parts to the sites that hold it."""
    parts: dict[str, list[IntArray]] = {site: [] for site in holds}
    for label in sorted({label for classes in holds.values() for label in classes}):
        owners = [site for site, classes in holds.items() if label in classes]
        for site, share in zip(owners, np.array_split(rows[y[rows] == label], len(owners)), strict=True):
            parts[site].append(share)
    return {site: np.sort(np.concatenate(shares)) for site, shares in parts.items()}


def plants() -> Demonstration:
    """Every plant is a site: normal operation everywhere, and some of four rare faults."""
    readings = pumps()
    return Demonstration(
        name="plant",
        about="Simulated pumps of four plants: normal operation and four rare faults, each met at some plants only.",
        site="plant",
        columns=SENSORS,
        tables={plant: np.round(held.X, 3) for plant, held in readings.items()},
        classes=(Classes(what="state", names=STATES, of_rows={plant: held.state for plant, held in readings.items()}),),
        decimals=3,
    )


DEMONSTRATIONS: dict[str, Callable[[], Demonstration]] = {
    "penguins": islands,
    "waveform": five_waveform_sites,
    "plant": plants,
}
