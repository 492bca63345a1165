"""Tables as they are, with and without the preparation: plants with known faults, and sets of classes.

    .venv/bin/python benchmarks/tables.py [--seeds 0 1 2] [--parts shape units gaps real] [--sets wine]

The plant has five sites of about 2,000 rows, eight sensors and six states: normal operation, and five faults 4 to 7
standard deviations off in one to three sensors, each at two or three sites, of 10 % or 3 % of a site's rows. Three
sensors are log-normal ("logged": given as logarithms, "skewed": as measured); with wrong readings, 0.2 % of the rows
have one value that is negated, or 10 or 50 times too large. Printed are K of every seed and the mean ARI of all rows:
`scaled` is mean and standard deviation alone, as before there was a preparation; `prepared` is the default.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import warnings
from collections.abc import Callable, Sequence
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
REAL = ("digits", "drybean", "ecoli", "segment", "shuttle", "wine", "vowel", "letter")
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


def found(case: Case, **options: Any) -> tuple[int, float]:
    """K and ARI of the default method."""
    tables, states = case
    fitted = FederatedClustering(KnownCounts(1), Consensus(), random_state=0, **options).fit(tables)
    return fitted.n_clusters_, float(
        adjusted_rand_score(np.concatenate(list(states.values())), np.concatenate(fitted.labels_))
    )


def line(name: str, cases: Sequence[Case], ways: dict[str, dict[str, Any]]) -> dict[str, float]:
    """One line of a table: K and mean ARI of every way."""
    results = {way: [found(case, **options) for case in cases] for way, options in ways.items()}
    means = {way: float(np.mean([ari for _, ari in each])) for way, each in results.items()}
    cells = [f"{way} {','.join(str(k) for k, _ in each)} {means[way]:.2f}" for way, each in results.items()]
    print(f"{name:34}  " + "   ".join(f"{cell:24}" for cell in cells), flush=True)
    return means


def shape(seeds: Sequence[int]) -> None:
    print("\nskew and wrong readings: K of each seed, mean ARI")
    ways: dict[str, dict[str, Any]] = {"scaled": PLAIN, "prepared": {}}
    rows = []
    for skewed in (False, True):
        for wrong in (False, True):
            for share in (0.10, 0.03):
                name = f"{'skewed' if skewed else 'logged'} {share:.0%}{' + wrong readings' if wrong else ''}"
                cases = [plant(seed, share=share, skewed=skewed, wrong=wrong) for seed in seeds]
                rows.append(line(name, cases, ways))
    print(f"{'mean':34}  " + "   ".join(f"{way} {np.mean([row[way] for row in rows]):.3f}" for way in ways))


def real(seeds: Sequence[int], sets: Sequence[str]) -> None:
    print("\nsets of classes, regime A: K of each seed, mean ARI")
    ways: dict[str, dict[str, Any]] = {"scaled": PLAIN, "prepared": {}}
    rows = [line(name, [dealt(name, seed) for seed in seeds], ways) for name in sets]
    print(f"{'mean':34}  " + "   ".join(f"{way} {np.mean([row[way] for row in rows]):.3f}" for way in ways))


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


def gaps(seeds: Sequence[int], sets: Sequence[str]) -> None:
    print("\nmissing at random: K of each seed, mean ARI")
    ways = {how: {"missing": how} for how in ("gaussian", "mean", "drop")}
    sources: dict[str, Callable[[int], Case]] = {
        "plant 10%": lambda seed: plant(seed, share=0.1),
        "plant 3%": lambda seed: plant(seed, share=0.03),
        **{
            name: (lambda seed, name=name: dealt(name, seed)) for name in sets if name in ("drybean", "segment", "wine")
        },
    }
    for name, source in sources.items():
        line(f"{name}, complete", [source(seed) for seed in seeds], {"complete": {}})
        for share in (0.1, 0.2):
            line(f"{name}, {share:.0%} missing", [with_gaps(source(seed), share, seed) for seed in seeds], ways)


def with_gaps(case: Case, share: float, seed: int) -> Case:
    rng = np.random.default_rng([seed, 3])
    return {site: np.where(rng.random(X.shape) < share, np.nan, X) for site, X in case[0].items()}, case[1]


def units(seeds: Sequence[int]) -> None:
    print("\none site in Fahrenheit: K of each seed, mean ARI; and what is warned of")
    for share in (0.10, 0.03):
        cases = [plant(seed, share=share) for seed in seeds]
        wrong = []
        for tables, states in cases:
            X = tables["site-1"].copy()
            X[:, 0] = 1.8 * X[:, 0] + 32
            wrong.append(({**tables, "site-1": X}, states))
        line(f"{share:.0%}", cases, {"as it should be": {}})
        line(f"{share:.0%}, one in F", wrong, {"as it is": {}})
        for case in wrong:
            fitted = FederatedClustering(KnownCounts(1), random_state=0).fit(case[0])
            print(f"    {fitted.model_.info['preparation']['units']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    parser.add_argument("--parts", nargs="*", default=("shape", "units", "gaps", "real"))
    parser.add_argument("--sets", nargs="*", default=REAL)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if "shape" in args.parts:
        shape(args.seeds)
    if "units" in args.parts:
        units(args.seeds)
    if "gaps" in args.parts:
        gaps(args.seeds, args.sets)
    if "real" in args.parts:
        real(args.seeds, args.sets)


if __name__ == "__main__":
    main()
