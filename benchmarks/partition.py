"""What the joint partition costs: K and ARI of default runs with the floor of 20 rows and without any.

    .venv/bin/python benchmarks/partition.py [--sets waveform wine] [--seeds 0-2] [--out rows.jsonl]
    .venv/bin/python benchmarks/partition.py table [--out rows.jsonl]

With the floor, which is the default, everything that a site sends are sums over cells of one partition, each of at
least 20 rows, in rounded numbers, and no row dominates a column. Without it (`min_report=1`) sites send sums of the
groups that the method made, as they are; micro-clusters of Consensus have at least 20 rows either way. Both runs of a
pair have the same rows, sites (regime A, 3, 5 or 10 of them by size) and seeds, and prepare their columns by default.
Sets with images are a sample of 20,000 rows. Rows of the file that are there already are not run again.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from clusters import MADE, REAL
from sklearn.metrics import adjusted_rand_score

from koncord import FederatedClustering
from koncord_reproduction import load, partition

EIGHT = ("waveform", "abalone", "frog_genus", "frog_species", "mnist", "fmnist", "emnist", "cifar10")
FLOORS = {"with": 20, "without": 1}
MOST_ROWS = 20_000
GROUPS = {"eight sets": EIGHT, "clusters, real": REAL, "clusters, made": MADE}


def table_of(name: str, seed: int) -> tuple[Any, Any]:
    if name in EIGHT:
        data = load(name)
        X, y = data.X.astype(float), np.unique(data.y, return_inverse=True)[1]
    else:
        with np.load(Path(os.environ["KONCORD_DATA"]) / "clusters" / f"{name}.npz") as file:
            X, y = file["X"].astype(float), np.unique(file["y"], return_inverse=True)[1]
    rows = np.random.default_rng([seed, 3]).permutation(len(X))[:MOST_ROWS]
    return X[rows], y[rows]


def dealt(name: str, seed: int) -> tuple[list[Any], Any]:
    """Tables of the sites, and the classes of all rows in their order."""
    X, y = table_of(name, seed)
    n_sites = 3 if len(X) < 400 else 5 if len(X) < 3000 else 10
    try:
        parts = partition(y, n_sites, "A", seed)
    except ValueError:  # two classes, or one with too few rows: shares drawn at random
        rng = np.random.default_rng([seed, 7])
        shares = rng.dirichlet(np.full(n_sites, 2.0), size=y.max() + 1)
        site = np.array([rng.choice(n_sites, p=shares[label]) for label in y])
        parts = [rows for rows in (np.flatnonzero(site == at) for at in range(n_sites)) if len(rows)]
    return [X[rows] for rows in parts], np.concatenate([y[rows] for rows in parts])


def run(name: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    tables, y = dealt(name, seed)
    row: dict[str, Any] = {"set": name, "seed": seed, "true_k": len(np.unique(y)), "rows": len(y), "sites": len(tables)}
    for kind, floor in FLOORS.items():
        began = perf_counter()
        fitted = FederatedClustering(random_state=seed, min_report=floor).fit(tables)
        ari = adjusted_rand_score(y, np.concatenate(fitted.labels_))
        row[kind] = {"ari": round(float(ari), 4), "k": fitted.n_clusters_, "seconds": round(perf_counter() - began, 1)}
    return row


def show(rows: list[dict[str, Any]]) -> None:
    """A line a set, means over its seeds; then the means of the groups."""
    print("| set | seeds | ARI without | ARI with | difference | K without | K with | classes |")
    print("|---|--:|--:|--:|--:|---|---|--:|")
    for group, names in GROUPS.items():
        of_group = []
        for name in names:
            own = sorted((row for row in rows if row["set"] == name), key=lambda row: row["seed"])
            if own:
                without, with_ = ([row[kind]["ari"] for row in own] for kind in ("without", "with"))
                ks = [", ".join(str(row[kind]["k"]) for row in own) for kind in ("without", "with")]
                of_group.append((np.mean(without), np.mean(with_)))
                print(
                    f"| {name} | {len(own)} | {np.mean(without):.3f} | {np.mean(with_):.3f} | "
                    f"{np.mean(with_) - np.mean(without):+.3f} | {ks[0]} | {ks[1]} | {own[0]['true_k']} |"
                )
        if of_group:
            mean = np.mean(of_group, axis=0)
            print(f"| **{group}** | | {mean[0]:.3f} | {mean[1]:.3f} | {mean[1] - mean[0]:+.3f} | | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="run", choices=("run", "table"))
    parser.add_argument("--sets", nargs="+", default=[name for names in GROUPS.values() for name in names])
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--out", type=Path, default=Path("partition.jsonl"))
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    known = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(row["set"], row["seed"]) for row in known}
    for seed in range(first, last + 1) if args.what == "run" else ():
        for name in args.sets:
            if (name, seed) not in done:
                known.append(run(name, seed))
                with args.out.open("a", encoding="utf-8") as file:  # as they come
                    file.write(f"{json.dumps(known[-1])}\n")
    show(known)


if __name__ == "__main__":
    main()
