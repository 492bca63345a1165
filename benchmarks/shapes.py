"""The default on made tables: clouds without clusters, plants, a far cluster; MNIST at ten sites; other seeds of a run.

    .venv/bin/python benchmarks/shapes.py clouds [--draws 10] [--large]
    .venv/bin/python benchmarks/shapes.py plants others flat [--draws 8] [--first-seed 100]
    .venv/bin/python benchmarks/shapes.py below [--draws 4]
    .venv/bin/python benchmarks/shapes.py mixtures [--draws 24]
    .venv/bin/python benchmarks/shapes.py mnist seeds natural    # need KONCORD_DATA

Columns are prepared as by default. `clouds`: one Gaussian, t, log-normal and uniform clouds at 10 sites of 200 rows or,
with `--large`, 5 of 8,000; the right answer is K = 1, or a note. `plants`: a dominating state and five faults at two or
three of five sites each; of rarer faults there are more rows. And five clusters that touch beside one far off.
`others`: the same with other sensors: fewer, more, heavy-tailed, skewed, moved by common causes, beside columns that
tell nothing. `flat`: the usual state is no Gaussian: uniform, uniform along two columns, moved along all sensors by a
load, bent, a ring.
`below`: a cluster of which each of forty sites has fewer rows than the floor of 20.
`mixtures`: two to twelve Gaussians of their own shapes and weights at sites that hold most of them, beside a mixture
that is fitted to 4,000 of all rows in one place, its K by BIC.
`mnist`: ten sites of 4,900 rows. `seeds`: how many K ten seeds of a run give on ten sets; `natural`: K and ARI for ten
seeds on sets whose rows have sites of their own.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from clusters import NATURAL, dealt, table
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from koncord import FederatedClustering
from koncord.data import partition

Dealt = tuple[Sequence[Any], Any]  # tables of the sites, and the classes of all rows

CLOUDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "Gaussian, 2 columns": lambda rng, n: rng.standard_normal((n, 2)),
    "Gaussian, 8 columns": lambda rng, n: rng.standard_normal((n, 8)),
    "stretched Gaussian, 4 columns": lambda rng, n: rng.standard_normal((n, 4)) @ np.diag([1, 2, 4, 8]),
    "t3, 2 columns": lambda rng, n: rng.standard_normal((n, 2)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3),
    "t3, 8 columns": lambda rng, n: rng.standard_normal((n, 8)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3),
    "t3 by column, 4 columns": lambda rng, n: rng.standard_t(3, (n, 4)),
    "log-normal, 2 columns": lambda rng, n: np.exp(rng.standard_normal((n, 2))),
    "log-normal, 8 columns": lambda rng, n: np.exp(rng.standard_normal((n, 8))),
    "uniform square": lambda rng, n: rng.random((n, 2)),
    "uniform cube": lambda rng, n: rng.random((n, 3)),
}
# Share of each fault in percent, rows of a site, and columns that tell nothing.
PLANTS = ((3, 2000, 0), (10, 2000, 0), (1, 8000, 0), (3, 2000, 1), (3, 2000, 5))
SETS = ("wine", "segment", "drybean", "dermatology", "s2", "aggregation", "digits", "vowel", "waveform", "frog_species")


def plant(seed: int, percent: int, n_rows: int, n_irrelevant: int) -> Dealt:
    tables, states, _, _ = drawn_plant(seed, percent, n_rows, n_irrelevant)
    return tables, states


def drawn_plant(seed: int, percent: int, n_rows: int, n_irrelevant: int) -> tuple[Sequence[Any], Any, Any, Any]:
    """Faults four to seven standard deviations off in one to three of eight sensors, which are then mixed.

    Returns tables, states, what the states are off by, and how the sensors are mixed.
    """
    rng = np.random.default_rng([seed, 17])
    faults = drawn_faults(rng, 5, 8, 4, 7)
    mixing = np.eye(8) + 0.2 * rng.standard_normal((8, 8))
    tables, states = [], []
    for shares in drawn_shares(rng, 5, percent):
        state = rng.choice(6, n_rows, p=shares)
        X = (rng.standard_normal((n_rows, 8)) + faults[state]) @ mixing
        tables.append(np.c_[X, rng.standard_normal((n_rows, n_irrelevant))])
        states.append(state)
    return tables, np.concatenate(states), faults, mixing


def drawn_faults(rng: np.random.Generator, n_faults: int, n_sensors: int, low: float, high: float) -> Any:
    """What the usual state, which is first, and each fault are off by, in one to three sensors."""
    faults = np.zeros((n_faults + 1, n_sensors))
    for fault in range(1, n_faults + 1):
        sensors = rng.choice(n_sensors, rng.integers(1, 4), replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], len(sensors)) * rng.uniform(low, high, len(sensors))
    return faults


def drawn_shares(rng: np.random.Generator, n_faults: int, percent: int) -> list[list[float]]:
    """How frequent each state is at each of five sites: two or three of them have a fault."""
    held = [rng.choice(5, rng.integers(2, 4), replace=False) for _ in range(n_faults)]
    faults = [np.array([percent / 100 if site in owners else 0.0 for owners in held]) for site in range(5)]
    return [[1 - shares.sum(), *shares] for shares in faults]


IRRELEVANT: dict[str, Callable[[np.random.Generator, tuple[int, int]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}


def other_plant(
    seed: int,
    percent: int,
    n_rows: int,
    *,
    n_faults: int = 5,
    n_sensors: int = 8,
    tail: int | None = None,
    n_common: int = 0,
    is_skewed: bool = False,
    irrelevant: tuple[str, int] = ("normal", 0),
) -> Dealt:
    """Faults five to eight standard deviations off in one to three sensors, whose noise is of another kind.

    It is that of a t distribution with `tail` degrees of freedom, if given; `n_common` causes move all sensors; half of
    the sensors are skewed (exponentials). Columns that tell nothing are of a kind and a number.
    """
    rng = np.random.default_rng([seed, 72])
    faults = drawn_faults(rng, n_faults, n_sensors, 5, 8)
    causes = 0.7 * rng.standard_normal((n_common, n_sensors)) if n_common else None
    kind, n_irrelevant = irrelevant
    tables, states = [], []
    for shares in drawn_shares(rng, n_faults, percent):
        state = rng.choice(n_faults + 1, n_rows, p=shares)
        shape = (n_rows, n_sensors)
        X = (rng.standard_normal(shape) if tail is None else rng.standard_t(tail, shape)) + faults[state]
        if causes is not None:
            X = X + rng.standard_normal((n_rows, n_common)) @ causes
        if is_skewed:
            X[:, : n_sensors // 2] = np.exp(0.35 * X[:, : n_sensors // 2])
        tables.append(np.c_[X, IRRELEVANT[kind](rng, (n_rows, n_irrelevant))])
        states.append(state)
    return tables, np.concatenate(states)


OTHER_PLANTS: dict[str, dict[str, Any]] = {
    "four sensors": {"n_sensors": 4},
    "fifteen sensors": {"n_sensors": 15},
    "eight faults": {"n_faults": 8},
    "t5 noise": {"tail": 5},
    "two common causes": {"n_common": 2},
    "skewed sensors": {"is_skewed": True},
    "three uniform irrelevant columns": {"irrelevant": ("uniform", 3)},
    "three exponential irrelevant columns": {"irrelevant": ("exponential", 3)},
}


def best_possible(seed: int, percent: int, n_rows: int) -> float:
    """ARI of who knows the states, how frequent they are and how the sensors are mixed (the Bayes rule)."""
    tables, states, faults, mixing = drawn_plant(seed, percent, n_rows, 0)
    rows = np.linalg.solve(mixing.T, np.concatenate(tables).T).T
    frequent = np.log(np.bincount(states, minlength=len(faults)) / len(states))
    likely = frequent - 0.5 * ((rows[:, None] - faults) ** 2).sum(axis=2)
    return float(adjusted_rand_score(states, likely.argmax(axis=1)))


def far_cluster(seed: int, gap: float) -> Dealt:
    rng = np.random.default_rng([seed, 18])
    turns = 2 * np.pi * np.arange(5) / 5
    centers = np.zeros((6, 4))
    centers[:5, :2] = gap / (2 * np.sin(np.pi / 5)) * np.c_[np.cos(turns), np.sin(turns)]
    centers[5, 2] = 25
    classes = [rng.choice(6, 1000, p=[0.19] * 5 + [0.05]) for _ in range(5)]
    return [centers[y] + rng.standard_normal((1000, 4)) for y in classes], np.concatenate(classes)


def fitted(tables: Sequence[Any], seed: int = 0, **parameters: Any) -> FederatedClustering:
    return FederatedClustering(random_state=seed, **parameters).fit(list(tables))


def score(found: FederatedClustering, classes: Any) -> tuple[int, float]:
    return found.n_clusters_, float(adjusted_rand_score(classes, np.concatenate(found.labels_)))


def clouds(n_draws: int, first_seed: int, is_large: bool) -> None:
    n_sites, n_rows = (5, 8000) if is_large else (10, 200)
    right = several = total = 0
    for name, drawn in CLOUDS.items():
        answers = []
        for seed in range(first_seed, first_seed + n_draws):
            X = drawn(np.random.default_rng([seed, 19]), n_sites * n_rows)
            found = fitted(np.split(X, n_sites))
            notes = found.model_.diagnostics.notes
            answers.append((found.n_clusters_, any("cloud" in note for note in notes)))
        right += sum(k == 1 or noted for k, noted in answers)
        several += sum(k > 1 for k, _ in answers)
        total += n_draws
        print(f"{name:30} " + " ".join(f"{k}{'n' if noted else ''}" for k, noted in answers), flush=True)
    print(f"{n_sites} x {n_rows}: K = 1 or a note (n) in {right} of {total}; several clusters with a note in {several}")


def scores(name: str, cases: Sequence[Dealt], true_k: int, **parameters: Any) -> None:
    found = [score(fitted(tables, **parameters), classes) for tables, classes in cases]
    exact = sum(k == true_k for k, _ in found)
    cells = " ".join(f"{k}/{ari:.2f}" for k, ari in found)
    mean = np.mean([ari for _, ari in found])
    print(f"{name:44} mean ARI {mean:.3f}, K {true_k} in {exact} of {len(found)}: {cells}", flush=True)


def plants(n_draws: int, first_seed: int) -> None:
    seeds = range(first_seed, first_seed + n_draws)
    for percent, n_rows, n_irrelevant in PLANTS:
        name = f"faults of {percent} %, 5 x {n_rows} rows, {n_irrelevant} irrelevant"
        scores(name, [plant(seed, percent, n_rows, n_irrelevant) for seed in seeds], 6)
        print(f"  best possible: {np.mean([best_possible(seed, percent, n_rows) for seed in seeds]):.3f}", flush=True)
    for gap in (3.5, 4.5):
        scores(f"five clusters {gap} apart, one far", [far_cluster(seed, gap) for seed in seeds], 6)


def others(n_draws: int, first_seed: int) -> None:
    seeds = range(first_seed, first_seed + n_draws)
    for percent, n_rows in ((10, 2000), (3, 2000), (1, 8000)):
        for name, how in OTHER_PLANTS.items():
            cases = [other_plant(seed, percent, n_rows, **how) for seed in seeds]
            scores(f"faults of {percent} %, {name}", cases, how.get("n_faults", 5) + 1)


USUAL_STATES: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "uniform": lambda rng, n, d: rng.uniform(-2, 2, (n, d)),
    "uniform along two": lambda rng, n, d: np.c_[rng.uniform(-2.5, 2.5, (n, 2)), 0.5 * rng.standard_normal((n, d - 2))],
    "moved by a load": lambda rng, n, d: (
        rng.uniform(-3, 3, (n, 1)) * np.linspace(1, -0.5, d) + 0.5 * rng.standard_normal((n, d))
    ),
    "bent": lambda rng, n, d: bent(rng.standard_normal((n, d))),
    "ring": lambda rng, n, d: on_a_ring(rng, n, d),
}


def bent(X: Any) -> Any:
    X[:, 1] += 0.8 * (X[:, 0] ** 2 - 1)
    return X


def on_a_ring(rng: np.random.Generator, n: int, d: int) -> Any:
    turns = rng.uniform(0, 2 * np.pi, n)
    return np.c_[2.5 * np.cos(turns), 2.5 * np.sin(turns), np.zeros((n, d - 2))] + 0.4 * rng.standard_normal((n, d))


def flat_plant(seed: int, state: str, n_sensors: int, n_faults: int, share: float) -> Dealt:
    """Five sites of 2,000 rows; faults, at every site, are off by 5 to 8 in two sensors, with half of the noise."""
    rng = np.random.default_rng([seed, 74])
    faults = np.zeros((n_faults + 1, n_sensors))
    for fault in range(1, n_faults + 1):
        sensors = rng.choice(n_sensors, 2, replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], 2) * rng.uniform(5, 8, 2)
    tables, states = [], []
    for _ in range(5):
        own = rng.choice(n_faults + 1, 2000, p=[1 - n_faults * share, *[share] * n_faults])
        X = 0.5 * rng.standard_normal((2000, n_sensors))
        X[own == 0] = USUAL_STATES[state](rng, int((own == 0).sum()), n_sensors)
        tables.append(X + faults[own])
        states.append(own)
    return tables, np.concatenate(states)


def flat(n_draws: int, first_seed: int) -> None:
    for state in USUAL_STATES:
        for n_sensors, n_faults, share in ((2, 2, 0.05), (4, 4, 0.03), (8, 4, 0.03), (4, 3, 0.15)):
            cases = [
                flat_plant(seed, state, n_sensors, n_faults, share) for seed in range(first_seed, first_seed + n_draws)
            ]
            scores(f"{state}, {n_sensors} sensors, {n_faults} faults of {share:.0%}", cases, n_faults + 1)


def drawn_mixture(seed: int) -> Dealt:
    """Two to twelve Gaussians in two to ten columns, at 3 to 20 sites of 300 to 3,000 rows that hold 70 % of them."""
    rng = np.random.default_rng([seed, 55])
    k, d = int(rng.integers(2, 13)), int(rng.integers(2, 11))
    n_sites, n_rows = int(rng.choice([3, 5, 10, 20])), int(rng.choice([300, 1000, 3000]))
    means = rng.standard_normal((k, d)) * rng.uniform(3, 8) / np.sqrt(d)
    roots = np.array([np.linalg.qr(rng.standard_normal((d, d)))[0] * rng.uniform(0.5, 1.5, d) for _ in range(k)])
    weights = rng.dirichlet(np.full(k, 3.0))
    tables, classes = [], []
    for _ in range(n_sites):
        held = rng.random(k) < 0.7
        held[rng.integers(k)] = True
        shares = weights * held * rng.dirichlet(np.full(k, 5.0))
        own = rng.choice(k, n_rows, p=shares / shares.sum())
        tables.append(means[own] + np.einsum("nij,nj->ni", roots[own], rng.standard_normal((n_rows, d))))
        classes.append(own)
    return tables, np.concatenate(classes)


def pooled_mixture(tables: Sequence[Any], classes: Any) -> tuple[int, float]:
    """K and ARI of the mixture with the least BIC, of up to 16 clusters, of all rows in one place."""
    X = StandardScaler().fit_transform(np.concatenate(tables))
    some = X[np.random.default_rng(0).permutation(len(X))[:4000]]
    fits = [GaussianMixture(k, n_init=2, random_state=0, reg_covar=1e-4).fit(some) for k in range(1, 17)]
    best = min(fits, key=lambda fit: fit.bic(some))
    return best.n_components, float(adjusted_rand_score(classes, best.predict(X)))


def mixtures(n_draws: int, first_seed: int) -> None:
    found = []
    for seed in range(first_seed, first_seed + n_draws):
        tables, classes = drawn_mixture(seed)
        ours, pooled = score(fitted(tables), classes), pooled_mixture(tables, classes)
        true_k, shape = int(classes.max()) + 1, f"{len(tables)} x {len(tables[0])} x {tables[0].shape[1]}"
        found.append((ours[1], pooled[1], abs(ours[0] - true_k), abs(pooled[0] - true_k)))
        print(
            f"{seed}: {shape:14} K {true_k:2}: {ours[0]:2}/{ours[1]:.2f}, pooled {pooled[0]:2}/{pooled[1]:.2f}",
            flush=True,
        )
    ari, of_pooled, off, pooled_off = np.mean(found, axis=0)
    print(
        f"mean ARI {ari:.3f}, pooled {of_pooled:.3f}, ratio {ari / of_pooled:.3f}; K off by {off:.1f}, {pooled_off:.1f}"
    )


def below_floor(seed: int, n_columns: int, n_rare: int) -> Dealt:
    """Forty sites of two clusters of 150 rows and one of `n_rare`, eight and ten standard deviations off."""
    rng = np.random.default_rng([seed, 73])
    centers = np.zeros((3, n_columns))
    centers[1, 0], centers[2, 1] = 8, 10
    classes = np.repeat([0, 1, 2], [150, 150, n_rare])
    tables = [centers[classes] + rng.standard_normal((len(classes), n_columns)) for _ in range(40)]
    return tables, np.tile(classes, 40)


def below(n_draws: int, first_seed: int) -> None:
    for n_columns in (2, 4, 8):
        for n_rare in (5, 8, 15):
            cases = [below_floor(seed, n_columns, n_rare) for seed in range(first_seed, first_seed + n_draws)]
            scores(f"{n_columns} columns, {n_rare} rows a site", cases, 3)


def mnist(n_draws: int, first_seed: int) -> None:
    X, y = table("mnist")
    for regime in "AB":
        cases = []
        for seed in range(first_seed, first_seed + n_draws):
            own = np.random.default_rng(seed).permutation(len(X))[:49_000]
            parts = [own[rows] for rows in partition(y[own], 10, regime, seed)]
            cases.append(([X[rows] for rows in parts], np.concatenate([y[rows] for rows in parts])))
        scores(f"MNIST, 10 sites, regime {regime}", cases, 10, standardize=False)


def seeds_of_a_run() -> None:
    same = 0
    for name in SETS:
        tables, _ = dealt(name, "A", 95)
        ks = [fitted(tables, seed, standardize=False).n_clusters_ for seed in range(10)]
        same += len(set(ks)) == 1
        print(f"{name:16} {ks}", flush=True)
    print(f"K the same for ten seeds: {same} of {len(SETS)} sets")


def natural() -> None:
    for name in NATURAL:
        tables, classes = dealt(name, "A", 0)
        found = [score(fitted(tables, seed), np.concatenate(classes)) for seed in range(10)]
        print(f"{name:20} " + " ".join(f"{k}/{ari:.3f}" for k, ari in found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts",
        nargs="+",
        choices=("clouds", "plants", "others", "flat", "mixtures", "below", "mnist", "seeds", "natural"),
    )
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if "clouds" in args.parts:
        clouds(args.draws, args.first_seed, args.large)
    if "plants" in args.parts:
        plants(args.draws, args.first_seed)
    if "others" in args.parts:
        others(args.draws, args.first_seed)
    if "flat" in args.parts:
        flat(args.draws, args.first_seed)
    if "mixtures" in args.parts:
        mixtures(args.draws, args.first_seed)
    if "below" in args.parts:
        below(args.draws, args.first_seed)
    if "mnist" in args.parts:
        mnist(args.draws, args.first_seed)
    if "seeds" in args.parts:
        seeds_of_a_run()
    if "natural" in args.parts:
        natural()


if __name__ == "__main__":
    main()
