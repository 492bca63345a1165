"""What a privacy budget costs: K and ARI against epsilon, with delta 1e-5.

    .venv/bin/python benchmarks/privacy.py [--sets waveform mnist-10] [--methods consensus] [--seeds 10-14]
                                           [--epsilons 1 4 none] [--out rows.jsonl]
    .venv/bin/python benchmarks/privacy.py table --out rows.jsonl

Sites by regime A; FedKMeans is given the number of classes, Consensus is not; "pooled" is diffprivlib's k-means of all
rows in one place, given it too (it needs diffprivlib, which no part of koncord does). Columns are not standardized,
with or without a budget. The balls that rows are clipped to are round numbers: Waveform's signals lie between 0 and 6,
and the MNIST embedding has columns of about unit variance. Noise is not seeded, so figures differ a little from run to
run. Constants of the private methods were chosen on seeds 0 to 4. Rows of the file that are there already are not run
again.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FedKMeans, KnownCounts
from koncord._threads import one_thread
from koncord.kernels.assign import nearest
from koncord.privacy.budget import Budget
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord_reproduction import load, partition

METHODS = ("consensus", "fedkmeans", "pooled")
PARTS = ("set", "method", "epsilon", "seed")  # of a row, beside what was found
DELTA = 1e-5
N_ROUNDS = 4
# Data set, sites, rows in all, radius and center of the ball.
SETS = {
    "waveform": ("waveform", 5, 5_000, 10.0, 2.0),
    "mnist-10": ("mnist", 10, 49_000, 6.0, 0.0),
    "mnist-100": ("mnist", 100, 49_000, 6.0, 0.0),
    "separated": (None, 10, 10_000, 25.0, 0.0),
}


def separated(seed):
    """Eight round clusters in eight columns, about eight standard deviations apart, 1,250 rows each."""
    rng = np.random.default_rng([seed, 8])
    y = np.repeat(np.arange(8), 1_250)
    return rng.normal(0, 8 / np.sqrt(2), (8, 8))[y] + rng.standard_normal((len(y), 8)), y


def sites_of(table, n_sites, n_rows, seed, aggregator, budget):
    rows = np.random.default_rng(seed).permutation(len(table[0]))[:n_rows]
    X, y = (each[rows] for each in table)
    parts = partition(y, n_sites, "A", seed)
    columns = tuple(f"x{at}" for at in range(X.shape[1]))
    sites = [
        Site(
            f"site-{at:03}",
            X[part],
            columns,
            estimator=KnownCounts(len(np.unique(y[part]))),
            aggregator=aggregator,
            policy=SitePolicy(min_report=1, budget=budget),
        )
        for at, part in enumerate(parts)
    ]
    return sites, np.concatenate([y[part] for part in parts])


def one_run(name, kind, epsilon, seed):
    """K, ARI and seconds of a run; `kind` is "pooled" for diffprivlib's k-means of all rows together."""
    stored, n_sites, n_rows, bound, center = SETS[name]
    table = separated(seed) if stored is None else (load(stored).X, load(stored).y)
    k = len(np.unique(table[1]))
    aggregator = Consensus() if kind == "consensus" else FedKMeans(k, n_rounds=N_ROUNDS)
    budget = None if epsilon is None else Budget(epsilon=epsilon, delta=DELTA, bound=bound, center=center)
    sites, classes = sites_of(table, n_sites, n_rows, seed, aggregator, budget)
    began = perf_counter()
    with one_thread():
        if kind == "pooled":
            labels = pooled(np.concatenate([site.table for site in sites]), k, epsilon, seed, bound, center)
            return k, adjusted_rand_score(classes, labels), perf_counter() - began
        model = run_federation(InProcess(sites), aggregator, seed=seed, standardize=False, settings={})
    seconds = perf_counter() - began
    rows = [model.plan.apply(site.table, site.columns, centers=model.centers) for site in sites]
    labels = nearest(np.concatenate(rows), model.centers)
    return model.n_clusters, adjusted_rand_score(classes, labels), seconds


def pooled(X, k, epsilon, seed, bound, center):
    """Labels of k-means on all rows: diffprivlib's within (epsilon, 0), scikit-learn's without a budget.

    Rows are clipped to a box instead of a ball: twice the radius over the root of the number of columns to each side.
    """
    if epsilon is None:
        return KMeans(k, n_init=10, random_state=seed).fit(X).labels_
    from diffprivlib.models import KMeans as PrivateKMeans

    half = 2 * bound / np.sqrt(X.shape[1])
    bounds = (np.full(X.shape[1], center - half), np.full(X.shape[1], center + half))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivateKMeans(k, epsilon=epsilon, bounds=bounds, random_state=seed).fit(X).predict(X)


def show(rows):
    """A line for each set, method and epsilon, over the seeds."""
    print("| set | method | epsilon | seeds | K | ARI | seconds |\n|---|---|--:|--:|---|--:|--:|")
    cells = {}
    for row in rows:
        cells.setdefault((row["set"], row["method"], row["epsilon"]), []).append(row)
    for (name, kind, epsilon), own in cells.items():
        ks = ", ".join(str(row["k"]) for row in own)
        ari, seconds = (np.mean([row[part] for row in own]) for part in ("ari", "seconds"))
        budget = "none" if epsilon is None else f"{epsilon:g}"
        print(f"| {name} | {kind} | {budget} | {len(own)} | {ks} | {ari:.3f} | {seconds:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="run", choices=("run", "table"))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--methods", nargs="+", default=["consensus", "fedkmeans"], choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=as_epsilon, default=[0.5, 1, 2, 4, 8, None])
    parser.add_argument("--seeds", default="10-14")
    parser.add_argument("--out", type=Path, default=Path("privacy.jsonl"))
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {tuple(row[part] for part in PARTS) for row in rows}
    cells = [
        (name, kind, epsilon, seed)
        for name in args.sets
        for kind in args.methods
        for epsilon in args.epsilons
        for seed in range(first, last + 1)
    ]
    for cell in cells if args.what == "run" else ():
        if cell not in done:
            k, ari, seconds = one_run(*cell)
            found = {"k": int(k), "ari": round(float(ari), 4), "seconds": round(seconds, 1)}
            rows.append(dict(zip(PARTS, cell, strict=True)) | found)
            with args.out.open("a", encoding="utf-8") as file:  # as they come
                file.write(f"{json.dumps(rows[-1])}\n")
    show(rows)


def as_epsilon(text):
    return None if text == "none" else float(text)


if __name__ == "__main__":
    main()
