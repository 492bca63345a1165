"""Tables as they are, with and without the preparation: plants with known faults, and sets of classes.

    .venv/bin/python benchmarks/tables.py --out rows.jsonl [--seeds 0 1 2] [--parts shape units ...] [--names wine]
    .venv/bin/python benchmarks/tables.py --out docs/tables/rows.jsonl --show    # the tables of docs/tables.md

The plant has five sites of about 2,000 rows, eight sensors and six states: normal operation, and five faults 4 to 7
standard deviations off in one to three sensors, each at two or three sites, of 10 % or 3 % of a site's rows. Three
sensors are log-normal ("logged": given as logarithms, "skewed": as measured); with wrong readings, 0.2 % of the rows
have one value that is negated, or 10 or 50 times too large. Every fit is a line of the file: K and the ARI of all
rows. `scaled` is mean and standard deviation alone; `prepared` is the default. With offsets, every sensor of every site
is shifted by a normal number of so many standard deviations of the sensor in normal operation. `never` looks for
offsets in dealings that have none: penguins by island, frogs by recording, and both regimes of the paper for all sets.
Fits that are in the file are not made again.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FederatedClustering, KnownCounts
from koncord.aggregate.base import Outcome
from koncord.aggregate.consensus import Report, choosing
from koncord.aggregate.consensus.calibration import find_offsets
from koncord.aggregate.consensus.microclusters import micro_clusters_of
from koncord.aggregate.diagnostics import Diagnostics
from koncord.data.files import Table
from koncord.data.penguins import ISLANDS, penguins
from koncord.data.units import converted
from koncord.prepare.columns import describe_columns
from koncord.prepare.units import other_units
from koncord.types import FloatArray, IntArray
from koncord_reproduction import partition

SENSORS = ("temperature", "pressure", "flow", "current", "speed", "vibration", "noise", "humidity")
LEVELS = np.array([60.0, 5.0, 120.0, 20.0, 1500.0, 0.0, 0.0, 0.0])
SPREADS = np.array([4.0, 0.3, 8.0, 1.5, 40.0, 0.5, 0.5, 0.5])
LOGS = (5, 6, 7)
FILES = {
    "waveform": ("waveform", "y"),
    "abalone": ("abalone", "y"),
    "frog species": ("frogs", "y_species"),
    "frog genus": ("frogs", "y_genus"),
    "mnist": ("mnist_vae10", "y"),
    "emnist": ("emnist_vae16", "y"),
}
CLUSTERS = ("dermatology", "digits", "drybean", "ecoli", "letter", "segment", "shuttle", "vowel", "wine")
REAL = (*CLUSTERS, "penguins", *FILES)
# What is done with gaps was chosen on every other set by name, and is reported on the rest.
CHOSEN_ON, REPORTED = sorted(REAL)[0::2], sorted(REAL)[1::2]
MOST_ROWS, MOST_WEIGHED = 5000, 2000  # of a set; and where columns are weighed
PLAIN = {"log": False, "fence": False}
Case = tuple[dict[str, Any], dict[str, Any]]  # tables and states by site


def plant(
    seed: int, *, share: float, skewed: bool = False, wrong: bool = False, spoils: bool = True, n: int = 2000
) -> Case:
    """Five sites of one plant; without `spoils`, the readings as they were before some went wrong."""
    rng = np.random.default_rng([seed, 17])
    shifts = shifts_of(rng)
    holders = {fault: rng.choice(5, rng.integers(2, 4), replace=False) for fault in range(1, 6)}
    tables, states = {}, {}
    for at in range(5):
        held = [fault for fault in holders if at in holders[fault]]
        y = np.concatenate([np.zeros(n, dtype=int), *(np.full(int(share * n), fault) for fault in held)])
        Z = rng.normal(size=(len(y), len(SENSORS))) + shifts[y]
        X = LEVELS + SPREADS * Z
        if skewed:
            X[:, LOGS] = np.exp(1.6 * X[:, LOGS] + np.array([0.0, 1.0, 3.0]))
        if wrong:
            rows = rng.choice(len(X), max(int(0.002 * len(X)), 1), replace=False)
            spoilt = X.copy()
            spoilt[rows, rng.integers(0, len(SENSORS), len(rows))] *= rng.choice([-1, 10, 50], len(rows))
            X = spoilt if spoils else X
        order = rng.permutation(len(y))
        tables[f"site-{at}"], states[f"site-{at}"] = X[order], y[order]
    return tables, states


def shifts_of(rng: np.random.Generator) -> FloatArray:
    """Where the states (6, n_sensors) of a plant lie, in standard deviations; the first one is normal operation."""
    shifts = np.zeros((6, len(SENSORS)))
    for fault in range(1, 6):
        touched = rng.choice(len(SENSORS), rng.integers(1, 4), replace=False)
        shifts[fault, touched] = rng.uniform(4, 7, len(touched)) * rng.choice([-1, 1], len(touched))
    return shifts


def with_known_states(case: Case, seed: int) -> dict[str, Any]:
    """K and ARI of whoever knows the states of a plant and how often each is: the most likely one given each row."""
    shifts = shifts_of(np.random.default_rng([seed, 17]))
    y = np.concatenate(list(case[1].values()))
    X = (np.concatenate(list(case[0].values())) - LEVELS) / SPREADS
    squares = np.nansum((X[:, None] - shifts) ** 2, axis=2)
    labels = (np.log(np.bincount(y, minlength=6) / len(y)) - 0.5 * squares).argmax(axis=1)
    return {"k": 6, "ari": round(float(adjusted_rand_score(y, labels)), 4), "units": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One fit."""

    part: str
    name: str  # of the data
    seed: int
    way: str

    @property
    def key(self) -> tuple[str, ...]:
        return (self.part, self.name, str(self.seed), self.way)


Asked = tuple[Question, Callable[[], Case], dict[str, Any]]  # what it is of, the tables, the options


def found(case: Case, **options: Any) -> dict[str, Any]:
    """K and ARI of the default method, and the columns that are said to be in another unit."""
    tables, states = case
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, **options).fit(tables)
    ari = adjusted_rand_score(np.concatenate(list(states.values())), np.concatenate(fitted.labels_))
    units = [asdict(each) for each in fitted.model_.session.preparation.units]
    return {"k": fitted.n_clusters_, "ari": round(float(ari), 4), "units": units}


def shape(seeds: Sequence[int]) -> Iterator[Asked]:
    for skewed in (False, True):
        for wrong in (False, True):
            for share in (0.10, 0.03):
                name = f"{'skewed' if skewed else 'logged'} {share:.0%}{' + wrong readings' if wrong else ''}"
                for seed in seeds:
                    make = partial(plant, seed, share=share, skewed=skewed, wrong=wrong)
                    yield Question(part="shape", name=name, seed=seed, way="scaled"), make, PLAIN
                    yield Question(part="shape", name=name, seed=seed, way="prepared"), make, {}


def outliers(seeds: Sequence[int]) -> Iterator[Asked]:
    """Wrong readings that are known: which of them are flagged, and what else is."""
    for skewed in (False, True):
        for share in (0.10, 0.03):
            name = f"{'skewed' if skewed else 'logged'} {share:.0%} + wrong readings"
            for seed in seeds:
                make = partial(plant, seed, share=share, skewed=skewed, wrong=True)
                yield Question(part="outliers", name=name, seed=seed, way=FLAGGED), make, {"right": make}


def flagged(case: Case, right: Callable[..., Case]) -> dict[str, Any]:
    """How many wrong readings there are, how many of them are outliers, and how many other rows are."""
    as_they_were = right(spoils=False)[0]
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0).fit(case[0])
    is_wrong = np.concatenate([(as_they_were[site] != X).any(axis=1) for site, X in case[0].items()])
    is_flagged = np.concatenate(fitted.outliers_)
    counts = fitted.record_.outliers
    return {
        "k": fitted.n_clusters_,
        "wrong": int(is_wrong.sum()),
        "found": int((is_wrong & is_flagged).sum()),
        "false": int((~is_wrong & is_flagged).sum()),
        "crowded": [] if counts is None else [asdict(each) for each in counts.crowded],
    }


def weights(seeds: Sequence[int]) -> Iterator[Asked]:
    """Columns weighed by the choice of K, before it, or not at all."""
    sources: dict[str, Callable[..., Case]] = {f"3 clusters + {n} noise": partial(with_noise, n) for n in (1, 5, 20)}
    sources |= {f"plant {share:.0%}": partial(plant, share=share) for share in (0.10, 0.03)}
    sources |= {name: partial(dealt, name, most=MOST_WEIGHED) for name in (*CHOSEN_ON, *REPORTED)}
    for name, source in sources.items():
        for seed in seeds:
            for way in WEIGHED:
                yield Question(part="weights", name=name, seed=seed, way=way), partial(source, seed=seed), {}


def with_noise(n_noise: int, seed: int) -> Case:
    """Three clusters 9 standard deviations apart in three columns, 480 rows at four sites, and columns of noise."""
    rng = np.random.default_rng([seed, n_noise])
    tables, states = {}, {}
    for at in range(4):
        y = np.repeat(np.arange(3), 40)
        tables[f"s{at}"] = np.c_[9 * np.eye(3)[y] + rng.normal(size=(120, 3)), rng.normal(size=(120, n_noise))]
        states[f"s{at}"] = y
    return tables, states


def weighed(case: Case, way: str) -> dict[str, Any]:
    """K and ARI with columns weighed in this way."""
    tables, states = case
    own = choosing.column_scales
    try:
        if way != BY_CHOICE:
            choosing.column_scales = lambda micro, labels: np.ones(micro.means.shape[1])
        return found((before(tables), states), standardize=False) if way == BEFORE else found((tables, states))
    finally:
        choosing.column_scales = own


def before(tables: dict[str, Any]) -> dict[str, Any]:
    """Prepared rows times the root of the share of a column's variance between micro-clusters, the largest being 1."""
    fitted = FederatedClustering(KnownCounts(1), Looking(), local_counts=False, random_state=0).fit(tables)
    plan, columns = fitted.model_.plan, [f"x{at}" for at in range(next(iter(tables.values())).shape[1])]
    rows = {site: plan.apply(X, columns) for site, X in tables.items()}
    sums = [micro_clusters_of(Z, 20) for Z in rows.values()]
    inside = sum(each.spread for each in sums) / sum(each.counts.sum() for each in sums)
    share = np.maximum(1 - inside / np.concatenate(list(rows.values())).var(axis=0).clip(1e-12), 0.0)
    factors = np.maximum(np.sqrt(share / share.max()), 0.05)
    return {site: Z * factors for site, Z in rows.items()}


def real(seeds: Sequence[int]) -> Iterator[Asked]:
    for seed in seeds:
        for name in REAL:
            yield Question(part="real", name=name, seed=seed, way="scaled"), partial(dealt, name, seed), PLAIN
            yield Question(part="real", name=name, seed=seed, way="prepared"), partial(dealt, name, seed), {}


def offsets(seeds: Sequence[int]) -> Iterator[Asked]:
    for seed in seeds:
        for share in (0.10, 0.03):
            for size in (0.5, 1.0, 2.0):
                make = partial(shifted, partial(plant, seed, share=share), size, seed)
                name = f"plant {share:.0%}, {size:g} sd"
                yield Question(part="offsets", name=name, seed=seed, way="as they are"), make, {}
                yield Question(part="offsets", name=name, seed=seed, way="harmonized"), make, {"harmonize": True}


def gaps(seeds: Sequence[int]) -> Iterator[Asked]:
    sources: dict[str, Callable[[int], Case]] = {
        "plant 10%": partial(plant, share=0.10),
        "plant 3%": partial(plant, share=0.03),
        **{name: partial(dealt, name) for name in REPORTED},
    }
    for name, source in sources.items():
        for seed in seeds:
            yield Question(part="gaps", name=name, seed=seed, way="complete"), partial(source, seed), {}
            for share in (0.10, 0.20):
                make = partial(with_gaps, partial(source, seed), share, seed)
                yield Question(part="gaps", name=name, seed=seed, way=f"{share:.0%} missing"), make, {}
            if name.startswith("plant"):
                yield Question(part="gaps", name=name, seed=seed, way=KNOWN), make, {"seed": seed}


def absent(seeds: Sequence[int]) -> Iterator[Asked]:
    """One sensor is absent at one of five sites, and left out everywhere."""
    for share in (0.10, 0.03):
        for seed in seeds:
            whole = partial(plant, seed, share=share)
            name = f"plant {share:.0%}"
            asked = Question(part="absent", name=name, seed=seed, way="one absent at a site")
            yield asked, partial(without_a_column, whole), {"common_columns": True}


def units(seeds: Sequence[int]) -> Iterator[Asked]:
    for share in (0.10, 0.03):
        for seed in seeds:
            right = partial(plant, seed, share=share)
            name = f"plant {share:.0%}"
            yield Question(part="units", name=name, seed=seed, way="all in C"), right, {}
            wrong = partial(in_fahrenheit, right)
            yield Question(part="units", name=name, seed=seed, way="one in F"), wrong, {}
            yield Question(part="units", name=name, seed=seed, way="one in F, converted"), partial(as_named, wrong), {}


def in_fahrenheit(source: Callable[[], Case]) -> Case:
    tables, states = source()
    X = tables["site-1"].copy()
    X[:, 0] = 1.8 * X[:, 0] + 32
    return {**tables, "site-1": X}, states


def as_named(source: Callable[[], Case]) -> Case:
    """The tables with the conversions that the sketches of the sites name."""
    tables, states = source()
    sent = {site: describe_columns(X, SENSORS, {}, 20) for site, X in tables.items()}
    named = {site: Table(name=site, X=X, columns=SENSORS) for site, X in tables.items()}
    for found in other_units(sent, SENSORS):
        if found.conversion is not None:
            named[found.site] = converted(named[found.site], {found.column: found.conversion})
    return {site: table.X for site, table in named.items()}, states


def shifted(source: Callable[[], Case], size: float, seed: int) -> Case:
    tables, states = source()
    rng = np.random.default_rng([seed, 5])
    return {site: X + SPREADS * rng.normal(0, size, len(SENSORS)) for site, X in tables.items()}, states


def without_a_column(source: Callable[[], Case]) -> Case:
    """Tables as frames; the first site lacks the sensor that is last."""
    import pandas as pd

    tables, states = source()
    frames = {site: pd.DataFrame(X, columns=list(SENSORS)) for site, X in tables.items()}
    frames["site-0"] = frames["site-0"].drop(columns=SENSORS[-1])
    return frames, states


def dealt(name: str, seed: int, regime: str = "A", most: int = MOST_ROWS) -> Case:
    """A set dealt to sites; in equal parts, where it has too few classes for the regimes."""
    X, y = table_of(name, most)
    n_sites = 3 if len(X) < 1000 else 5 if len(X) < 3000 else 10
    try:
        parts = partition(y, n_sites, regime, seed)
    except ValueError:
        parts = np.array_split(np.random.default_rng(seed).permutation(len(y)), n_sites)
    return {f"s{at}": X[part] for at, part in enumerate(parts)}, {f"s{at}": y[part] for at, part in enumerate(parts)}


def table_of(name: str, most: int = MOST_ROWS) -> tuple[FloatArray, IntArray]:
    """Rows and classes of a set, of a large one some of them."""
    if name == "penguins":
        return penguins().X, penguins().species
    file, column = FILES.get(name, (f"clusters/{name}", "y"))
    with np.load(data_folder() / f"{file}.npz") as stored:
        X, y = stored["X"].astype(float), np.unique(stored[column], return_inverse=True)[1]
    rows = np.random.default_rng(0).permutation(len(y))[:most]
    return X[rows], y[rows]


def data_folder() -> Path:
    return Path(os.environ["KONCORD_DATA"])


def by_island() -> Case:
    birds = penguins()
    return {name: birds.X[birds.island == at] for at, name in enumerate(ISLANDS)}, {}


def by_recording() -> Case:
    with np.load(data_folder() / "frogs.npz") as frogs, np.load(data_folder() / "natural/frogs_recordings.npz") as own:
        X, record = frogs["X"].astype(float), own["record"]
    return {f"r{at}": X[record == at] for at in np.unique(record)}, {}


def never(seeds: Sequence[int]) -> Iterator[Asked]:
    """Dealings without an offset; they are only looked at, not fitted."""
    yield Question(part="never", name="penguins by island", seed=0, way=LOOKED_AT), by_island, {}
    yield Question(part="never", name="frogs by recording", seed=0, way=LOOKED_AT), by_recording, {}
    made = sorted(path.stem for path in (data_folder() / "clusters").glob("*.npz"))
    for name in dict.fromkeys([*REAL, *made]):
        for regime in "AB":
            for seed in seeds:
                asked = Question(part="never", name=f"{name}, regime {regime}", seed=seed, way=LOOKED_AT)
                yield asked, partial(dealt, name, seed, regime), {}


class Looking(Consensus):
    """Asks for micro-clusters, looks for offsets, and stops."""

    def _serve(self, n_features: int, rng: np.random.Generator) -> Any:
        reports = dict((yield Report(min_report=self.micro_rows)))
        found = find_offsets(reports, rng.spawn(1)[0])
        said = {} if found is None else {"credible": found.is_credible, **asdict(found.prediction)}
        return Outcome(centers=np.zeros((1, n_features)), groups={}, diagnostics=Diagnostics(extra=said))


def looked_at(case: Case) -> dict[str, Any]:
    """Whether offsets are credible in tables, and what speaks for them."""
    fitted = FederatedClustering(KnownCounts(1), Looking(), local_counts=False, random_state=0).fit(case[0])
    said = fitted.model_.diagnostics.extra
    return {"credible": False} | {name: round(each, 3) if type(each) is float else each for name, each in said.items()}


def with_gaps(source: Callable[[], Case], share: float, seed: int) -> Case:
    case = source()
    rng = np.random.default_rng([seed, 3])
    return {site: np.where(rng.random(X.shape) < share, np.nan, X) for site, X in case[0].items()}, case[1]


PARTS = {
    "shape": shape,
    "units": units,
    "offsets": offsets,
    "never": never,
    "outliers": outliers,
    "absent": absent,
    "gaps": gaps,
    "real": real,
    "weights": weights,
}
LOOKED_AT, FLAGGED, KNOWN = "looked at", "flagged", "20% missing, states known"
BY_CHOICE, BEFORE = "by the choice", "before"
WEIGHED = ("not", BY_CHOICE, BEFORE)


def run(path: Path, asked: Sequence[Asked]) -> None:
    """Make the fits that are not in the file; each is a line as soon as it is done."""
    done = {Question(**{name: row[name] for name in Question.__slots__}).key for row in rows_of(path)}
    with path.open("a", encoding="utf-8") as file:
        for question, make, options in asked:
            if question.key not in done:
                print(json.dumps({**asdict(question), **answer(question, make(), options)}), file=file, flush=True)


def answer(question: Question, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    if question.way == LOOKED_AT:
        return looked_at(case)
    if question.way == KNOWN:
        return with_known_states(case, **options)
    if question.way in WEIGHED:
        return weighed(case, question.way)
    return flagged(case, **options) if question.way == FLAGGED else found(case, **options)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def show(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as tables: K of every seed, and the mean ARI."""
    lines = []
    for part in (part for part in PARTS if any(row["part"] == part for row in rows)):
        if part == "never":
            lines += ["", *show_never([row for row in rows if row["part"] == part])]
            continue
        if part == "outliers":
            lines += ["", *show_outliers([row for row in rows if row["part"] == part])]
            continue
        own = [row for row in rows if row["part"] == part]
        ways = list(dict.fromkeys(row["way"] for row in own))
        lines += ["", f"| {part} | {' | '.join(ways)} |", "|---|" + "---|" * len(ways)]
        means: dict[str, list[float]] = {way: [] for way in ways}
        for name in dict.fromkeys(row["name"] for row in own):
            cells = []
            for way in ways:
                each = [row for row in own if (row["name"], row["way"]) == (name, way)]
                mean = float(np.mean([row["ari"] for row in each])) if each else np.nan
                means[way] += [mean] if each else []
                cells.append(f"{','.join(str(row['k']) for row in each)} {mean:.2f}" if each else "")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append(f"| mean | {' | '.join(f'{np.mean(each):.3f}' for each in means.values())} |")
    return "\n".join(lines[1:])


def show_never(rows: Sequence[dict[str, Any]]) -> list[str]:
    """In how many dealings without an offset one is credible."""
    lines = ["| never | dealings | with credible offsets |", "|---|---|---|"]
    for what, own in (
        ("penguins by island", [row for row in rows if "by island" in row["name"]]),
        ("frogs by recording", [row for row in rows if "by recording" in row["name"]]),
        ("regimes A and B", [row for row in rows if "regime" in row["name"]]),
    ):
        lines.append(f"| {what} | {len(own)} | {sum(row['credible'] for row in own)} |")
    return lines


def show_outliers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Of how many wrong readings how many are flagged, and how many other rows are."""
    lines = ["| outliers | K | wrong readings | found | other rows flagged |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        wrong, right, false = (sum(row[each] for row in own) for each in ("wrong", "found", "false"))
        ks = ",".join(str(row["k"]) for row in own)
        lines.append(f"| {name} | {ks} | {wrong} | {right} ({right / wrong:.0%}) | {false} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=tuple(PARTS))
    parser.add_argument("--names", nargs="*", help="only these of the data")
    parser.add_argument("--show", action="store_true", help="make no fit")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.show:
        asked = [each for part in args.parts for each in PARTS[part](args.seeds)]
        run(args.out, [each for each in asked if args.names is None or each[0].name in args.names])
    print(show(rows_of(args.out)))


if __name__ == "__main__":
    main()
