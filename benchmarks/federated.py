"""A few cells of the paper's federated tables, regime A, on the data KONCORD_DATA holds.

    .venv/bin/python benchmarks/federated.py [--seeds 42-51] [--sets waveform abalone mnist] [--estimators oracle asm]

Every seed draws a stratified 70/30 split and a partition of the training rows, and runs both phases; the ARI is that of
the global model on the held-out rows, pooled. Printed: mean and 95 % half-width over the seeds, beside the paper's.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
from time import perf_counter

import numpy as np
from scipy.stats import t
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from koncord import ASM, FederatedClustering, FedGEM, KnownCounts
from koncord.data import load, partition
from koncord.estimate.asm import MNIST_MERGE_FACTORS

# Clients, the values of upsilon the paper tunes over (or fixes), and its cells: ARI and K.
SETS = {
    "waveform": (5, (1, 5, 10), {"oracle": (0.339, 2.0), "asm": (0.258, 4.5)}),
    "abalone": (5, (5000, 7000, 9000), {"oracle": (0.103, 6.0), "asm": (0.089, 4.9)}),
    "frog_species": (5, (1e4, 1e5, 1e6), {"oracle": (0.601, 7.9), "asm": (0.634, 7.9)}),
    "frog_genus": (5, (1e4, 1e5, 1e6), {"oracle": (0.451, 5.9), "asm": (0.401, 8.8)}),
    "mnist": (100, (2,), {"oracle": (0.446, 9.4), "asm": (0.418, 18.5)}),
}
EMBEDDINGS = ("mnist",)


def one_run(name, estimator, upsilon, seed):
    data = load(name)
    X = data.X if name in EMBEDDINGS else StandardScaler().fit_transform(data.X)
    rows, held = train_test_split(np.arange(len(X)), test_size=0.3, stratify=data.y, random_state=seed)
    parts = [rows[part] for part in partition(data.y[rows], SETS[name][0], "A", seed)]
    if estimator == "oracle":
        local = KnownCounts([len(np.unique(data.y[part])) for part in parts])
    else:
        local = ASM(merge_factor=MNIST_MERGE_FACTORS if name == "mnist" else None)
    fitted = FederatedClustering(local, FedGEM(upsilon=upsilon), random_state=seed).fit([X[part] for part in parts])
    return adjusted_rand_score(data.y[held], fitted.predict(X[held])), fitted.n_clusters_


def with_interval(values):
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):6.3f} +- {half:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--sets", nargs="+", default=["waveform", "abalone", "mnist"], choices=list(SETS))
    parser.add_argument("--estimators", nargs="+", default=["oracle", "asm"], choices=["oracle", "asm"])
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    print(f"{'set':13} {'estimator':9} {'upsilon':>8}  {'ARI':17} {'paper':>6}  {'K':17} {'paper':>6}  seconds")
    for name in args.sets:
        for estimator in args.estimators:
            for upsilon in SETS[name][1]:
                began = perf_counter()
                runs = [one_run(name, estimator, upsilon, seed) for seed in range(first, last + 1)]
                ari, k = ([run[at] for run in runs] for at in (0, 1))
                paper = SETS[name][2][estimator]
                cells = f"{with_interval(ari):17} {paper[0]:6}  {with_interval(k):17} {paper[1]:6}"
                print(f"{name:13} {estimator:9} {upsilon:8g}  {cells}  {perf_counter() - began:7.1f}", flush=True)


if __name__ == "__main__":
    main()
