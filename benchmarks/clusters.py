"""The default against ASM + FedGEM, its oracle and a pooled mixture, on sets that no rule of koncord was made for.

    .venv/bin/python benchmarks/clusters.py [--seeds 11 12] [--sets drybean wine] [--out rows.jsonl]

The sets are those of the folder clusters/ of KONCORD_DATA and the tabular ones of the paper, columns standardised over
all rows, dealt to 3, 5 or 10 sites by size: regime A with the first seed, regime B with the second. ARI is that of all
rows. Every method has the floor of 20 rows that is the default; the pooled mixture sees all rows (2,500 of them for its
fit) and chooses K by BIC. Both sides run in one process; the last lines are means, and their differences.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from koncord import ASM, Consensus, FederatedClustering, FedGEM, KnownCounts
from koncord.data import partition

REAL = ("dermatology", "digits", "drybean", "ecoli", "letter", "segment", "shuttle", "vowel", "wine")
MADE = (
    *("a1", "a3", "aggregation", "chameleon_t4_8k", "compound", "engytime", "fuzzyx", "hepta", "isolation", "lsun"),
    *("mk3", "r15", "s2", "s4", "twodiamonds", "unbalance", "windows", "z2"),
)
PAPER = {"waveform": "y", "abalone": "y", "frog_species": "y_species", "frog_genus": "y_genus"}
FILES = {"frog_species": "frogs", "frog_genus": "frogs"}
GROUPS = {"real": REAL, "made": MADE, "paper": tuple(PAPER)}
POOLED_ROWS = 2500
POOLED_K = (*range(1, 11), 12, 15, 20, 26, 35, 50)
Dealt = tuple[list[Any], list[Any]]  # tables and classes of the sites


def dealt(name: str, regime: str, seed: int) -> Dealt:
    folder = Path(os.environ["KONCORD_DATA"])
    with np.load(
        folder / f"{FILES.get(name, name)}.npz" if name in PAPER else folder / "clusters" / f"{name}.npz"
    ) as file:
        X, y = file["X"].astype(float), np.unique(file[PAPER.get(name, "y")], return_inverse=True)[1]
    scale = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)
    n_sites = 3 if len(X) < 400 else 5 if len(X) < 3000 else 10
    try:
        parts = partition(y, n_sites, regime, seed)
    except ValueError:  # two classes, or one with too few rows: shares drawn at random
        rng = np.random.default_rng([seed, 7])
        shares = rng.dirichlet(np.full(n_sites, 2.0), size=y.max() + 1)
        site = np.array([rng.choice(n_sites, p=shares[label]) for label in y])
        parts = [rows for rows in (np.flatnonzero(site == at) for at in range(n_sites)) if len(rows)]
    return [X[rows] for rows in parts], [y[rows] for rows in parts]


def federated(estimator: Any, aggregator: Any, tables: Sequence[Any]) -> tuple[Any, int]:
    fitted = FederatedClustering(estimator, aggregator, random_state=0, standardize=False).fit(list(tables))
    return np.concatenate(fitted.labels_), fitted.n_clusters_


def pooled(tables: Sequence[Any], classes: Sequence[Any]) -> tuple[Any, int]:
    X = np.concatenate(tables)
    sample = X[np.random.default_rng(0).permutation(len(X))[:POOLED_ROWS]]
    fits = [
        GaussianMixture(k, reg_covar=1e-4, random_state=0).fit(sample)
        for k in POOLED_K
        if k * X.shape[1] <= len(sample)
    ]
    best = min(fits, key=lambda fit: fit.bic(sample))
    return best.predict(X), best.n_components


METHODS: dict[str, Callable[[Any, Any], tuple[Any, int]]] = {
    "default": lambda tables, _: federated(KnownCounts(1), Consensus(), tables),
    "ASM + FedGEM": lambda tables, _: federated(ASM(), FedGEM(), tables),
    "oracle + FedGEM": lambda tables, classes: federated(
        KnownCounts([len(np.unique(own)) for own in classes]), FedGEM(), tables
    ),
    "pooled GMM + BIC": pooled,
}


def run(case: tuple[str, str, str, int]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    group, name, regime, seed = case
    tables, classes = dealt(name, regime, seed)
    y = np.concatenate(classes)
    row: dict[str, Any] = {"group": group, "set": name, "regime": regime, "seed": seed, "true_k": len(np.unique(y))}
    for method, fit in METHODS.items():
        labels, k = fit(tables, classes)
        row[method] = [round(float(adjusted_rand_score(y, labels)), 4), int(k)]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(11, 12), metavar=("A", "B"))
    parser.add_argument("--sets", nargs="*", default=None)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    cases = [
        (group, name, regime, seed)
        for group, names in GROUPS.items()
        for name in names
        if args.sets is None or name in args.sets
        for regime, seed in zip("AB", args.seeds, strict=True)
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, cases):
            rows.append(row)
            cells = "".join(f"  {row[method][0]:6.3f} ({row[method][1]:3d})" for method in METHODS)
            print(f"{row['set']:16} {row['regime']} K {row['true_k']:3d} {cells}", flush=True)
    if args.out is not None:
        args.out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    print(f"\nmean ARI (mean error of K): {', '.join(METHODS)}")
    for group in GROUPS:
        own = [row for row in rows if row["group"] == group]
        if own:
            means = [np.mean([row[method][0] for row in own]) for method in METHODS]
            errors = [np.mean([abs(row[method][1] - row["true_k"]) for row in own]) for method in METHODS]
            cells = "".join(f"  {ari:.3f} ({off:4.1f})" for ari, off in zip(means, errors, strict=True))
            print(f"{group:6} {len(own):3d} dealings{cells}   default - ASM + FedGEM {means[0] - means[1]:+.3f}")


if __name__ == "__main__":
    main()
