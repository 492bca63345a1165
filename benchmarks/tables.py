"""Tables as they are, with and without the preparation: plants with known faults, and sets of classes.

    .venv/bin/python benchmarks/tables.py --out rows.jsonl [--seeds 0 1 2] [--parts shape units gaps absent real]
    .venv/bin/python benchmarks/tables.py --out docs/tables/rows.jsonl --show    # the tables of docs/tables.md

The plant has five sites of about 2,000 rows, eight sensors and six states: normal operation, and five faults 4 to 7
standard deviations off in one to three sensors, each at two or three sites, of 10 % or 3 % of a site's rows. Three
sensors are log-normal ("logged": given as logarithms, "skewed": as measured); with wrong readings, 0.2 % of the rows
have one value that is negated, or 10 or 50 times too large. Every fit is a line of the file: K and the ARI of all
rows. `scaled` is mean and standard deviation alone; `prepared` is the default. Fits that are in the file are not made
again.
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
from koncord.data import partition

SENSORS = ("temperature", "pressure", "flow", "current", "speed", "vibration", "noise", "humidity")
LEVELS = np.array([60.0, 5.0, 120.0, 20.0, 1500.0, 0.0, 0.0, 0.0])
SPREADS = np.array([4.0, 0.3, 8.0, 1.5, 40.0, 0.5, 0.5, 0.5])
LOGS = (5, 6, 7)
REAL = ("dermatology", "digits", "drybean", "ecoli", "letter", "segment", "shuttle", "vowel", "wine")
WITH_GAPS = ("drybean", "segment", "wine")
PLAIN = {"log": False, "fence": False}
Case = tuple[dict[str, Any], dict[str, Any]]  # tables and states by site


def plant(seed: int, *, share: float, skewed: bool = False, wrong: bool = False, n: int = 2000) -> Case:
    """Five sites of one plant."""
    rng = np.random.default_rng([seed, 17])
    shifts = np.zeros((6, len(SENSORS)))
    for fault in range(1, 6):
        touched = rng.choice(len(SENSORS), rng.integers(1, 4), replace=False)
        shifts[fault, touched] = rng.uniform(4, 7, len(touched)) * rng.choice([-1, 1], len(touched))
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
            X[rows, rng.integers(0, len(SENSORS), len(rows))] *= rng.choice([-1, 10, 50], len(rows))
        order = rng.permutation(len(y))
        tables[f"site-{at}"], states[f"site-{at}"] = X[order], y[order]
    return tables, states


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


def real(seeds: Sequence[int]) -> Iterator[Asked]:
    for name in REAL:
        for seed in seeds:
            yield Question(part="real", name=name, seed=seed, way="scaled"), partial(dealt, name, seed), PLAIN
            yield Question(part="real", name=name, seed=seed, way="prepared"), partial(dealt, name, seed), {}


def gaps(seeds: Sequence[int]) -> Iterator[Asked]:
    sources: dict[str, Callable[[int], Case]] = {
        "plant 10%": partial(plant, share=0.10),
        "plant 3%": partial(plant, share=0.03),
        **{name: partial(dealt, name) for name in WITH_GAPS},
    }
    for name, source in sources.items():
        for seed in seeds:
            yield Question(part="gaps", name=f"{name}, complete", seed=seed, way="complete"), partial(source, seed), {}
            for share in (0.10, 0.20):
                make = partial(with_gaps, partial(source, seed), share, seed)
                for how in ("neighbors", "gaussian", "mean"):
                    asked = Question(part="gaps", name=f"{name}, {share:.0%} missing", seed=seed, way=how)
                    yield asked, make, {"missing": how}


def absent(seeds: Sequence[int]) -> Iterator[Asked]:
    """One sensor is absent at one of five sites, and left out everywhere."""
    for share in (0.10, 0.03):
        for seed in seeds:
            make = partial(without_a_column, partial(plant, seed, share=share))
            asked = Question(part="absent", name=f"plant {share:.0%}", seed=seed, way="common columns")
            yield asked, make, {"common_columns": True}


def units(seeds: Sequence[int]) -> Iterator[Asked]:
    for share in (0.10, 0.03):
        for seed in seeds:
            right = partial(plant, seed, share=share)
            name = f"plant {share:.0%}"
            yield Question(part="units", name=name, seed=seed, way="all in C"), right, {}
            yield Question(part="units", name=name, seed=seed, way="one in F"), partial(in_fahrenheit, right), {}


def in_fahrenheit(source: Callable[[], Case]) -> Case:
    tables, states = source()
    X = tables["site-1"].copy()
    X[:, 0] = 1.8 * X[:, 0] + 32
    return {**tables, "site-1": X}, states


def without_a_column(source: Callable[[], Case]) -> Case:
    """Tables as frames; the first site lacks the sensor that is last."""
    import pandas as pd

    tables, states = source()
    frames = {site: pd.DataFrame(X, columns=list(SENSORS)) for site, X in tables.items()}
    frames["site-0"] = frames["site-0"].drop(columns=SENSORS[-1])
    return frames, states


def dealt(name: str, seed: int) -> Case:
    with np.load(Path(os.environ["KONCORD_DATA"]) / "clusters" / f"{name}.npz") as file:
        X, y = file["X"].astype(float), np.unique(file["y"], return_inverse=True)[1]
    rows = np.random.default_rng(0).permutation(len(y))[:8000]
    X, y = X[rows], y[rows]
    n_sites = 3 if len(X) < 1000 else 5 if len(X) < 3000 else 10
    try:
        parts = partition(y, n_sites, "A", seed)
    except ValueError:
        parts = np.array_split(np.random.default_rng(seed).permutation(len(y)), n_sites)
    return {f"s{at}": X[part] for at, part in enumerate(parts)}, {f"s{at}": y[part] for at, part in enumerate(parts)}


def with_gaps(source: Callable[[], Case], share: float, seed: int) -> Case:
    case = source()
    rng = np.random.default_rng([seed, 3])
    return {site: np.where(rng.random(X.shape) < share, np.nan, X) for site, X in case[0].items()}, case[1]


PARTS = {"shape": shape, "units": units, "gaps": gaps, "absent": absent, "real": real}


def run(path: Path, asked: Sequence[Asked]) -> None:
    """Make the fits that are not in the file; each is a line as soon as it is done."""
    done = {Question(**{name: row[name] for name in Question.__slots__}).key for row in rows_of(path)}
    with path.open("a", encoding="utf-8") as file:
        for question, make, options in asked:
            if question.key not in done:
                print(json.dumps({**asdict(question), **found(make(), **options)}), file=file, flush=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def show(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as tables: K of every seed, and the mean ARI."""
    lines = []
    for part in dict.fromkeys(row["part"] for row in rows):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=tuple(PARTS))
    parser.add_argument("--show", action="store_true", help="make no fit")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.show:
        run(args.out, [asked for part in args.parts for asked in PARTS[part](args.seeds)])
    print(show(rows_of(args.out)))


if __name__ == "__main__":
    main()
