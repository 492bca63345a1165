"""What a privacy budget costs: K and ARI against epsilon, with delta 1e-5.

    .venv/bin/python benchmarks/privacy.py [--sets waveform mnist-10] [--seeds 0-1] [--epsilons 1 4] [--secure-sums]

With --secure-sums the server sees sums over sites only, and the noise is that of one site.

Sites by regime A; FedKMeans is told the number of classes, Consensus is not. Columns are not standardized, with or
without a budget. The balls that rows are clipped to are round numbers: Waveform's signals lie between 0 and 6, and
the MNIST embedding has columns of about unit variance. Noise is not seeded, so figures differ a little from run to run.

Printed, over the seeds: every K, and means of ARI, of the cells that a site found and of the seconds a run took.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
from time import perf_counter

import numpy as np
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FedKMeans, KnownCounts
from koncord._threads import one_thread
from koncord.data import load, partition
from koncord.kernels.assign import nearest
from koncord.privacy.budget import Budget
from koncord.session.federation import run_federation, scaled_rows
from koncord.session.inprocess import InProcess, summed_in_process
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

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


def one_run(name, kind, epsilon, seed, is_summed=False):
    stored, n_sites, n_rows, bound, center = SETS[name]
    table = separated(seed) if stored is None else (load(stored).X, load(stored).y)
    aggregator = Consensus() if kind == "consensus" else FedKMeans(len(np.unique(table[1])), n_rounds=N_ROUNDS)
    budget = None if epsilon is None else Budget(epsilon=epsilon, delta=DELTA, bound=bound, center=center)
    sites, classes = sites_of(table, n_sites, n_rows, seed, aggregator, budget)
    link = InProcess(sites)
    if is_summed and budget is not None:
        tables = {site.name: (site.table, site.columns) for site in sites}
        link = summed_in_process(tables, estimator=None, aggregator=aggregator, policy=sites[0].policy)
    began = perf_counter()
    with one_thread():
        model = run_federation(link, aggregator, seed=seed, standardize=False, settings={})
    labels = np.concatenate([nearest(scaled_rows(site, model), model.centers) for site in sites])
    seconds = perf_counter() - began
    return model.n_clusters, adjusted_rand_score(classes, labels), np.mean(model.local_counts), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--aggregators", nargs="+", default=["consensus", "fedkmeans"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 2, 4, 8, 16])
    parser.add_argument("--seeds", default="0-1")
    parser.add_argument("--secure-sums", action="store_true")
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    print("| set | aggregator | epsilon | K | ARI | local k | seconds |\n|---|---|--:|--:|--:|--:|--:|")
    for name in args.sets:
        for kind in args.aggregators:
            for epsilon in (*args.epsilons, *([] if args.secure_sums else [None])):
                runs = [one_run(name, kind, epsilon, seed, args.secure_sums) for seed in range(first, last + 1)]
                told = "none" if epsilon is None else f"{epsilon:g}"
                ks = ", ".join(str(run[0]) for run in runs)
                ari, local_k, seconds = np.mean([run[1:] for run in runs], axis=0)
                print(f"| {name} | {kind} | {told} | {ks} | {ari:.3f} | {local_k:.1f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
