"""What one lying site of ten does to K and to the ARI of the others' rows, and what min_support shows of it.

    .venv/bin/python benchmarks/liars.py [--seeds 0-2] [--sets waveform mnist] [--aggregators fedgem consensus]

Ten sites by regime A, the local counts known, the columns standardized over the sites; every aggregator that finds K
itself. The last site keeps to the protocol and its limits, so nothing refuses it, and lies:

    honest   it does not
    far      its components lie 30 standard deviations away
    counts   it counts a thousand million rows, wherever it counts
    scale    it says that its columns lie a thousand standard deviations away, before the columns are scaled
    many     it has 200 components
    crowd    all its components lie at the mean of all rows
    rows far    its rows are its own, 30 standard deviations away, and it is honest about them
    rows crowd  its rows all lie about the mean of all rows, and it is honest about them

The first ones do not add up to the moments that the site itself sent, so it is set aside; invented rows add up.

Printed, as means over the seeds: K; the ARI of the rows of the nine others; how many clusters fewer than two sites
support; K and ARI when these are left out; and the sites that were set aside.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FedGEM, KnownCounts
from koncord._threads import one_thread
from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.fedgem import Judgement
from koncord.kernels.assign import nearest
from koncord.protocol.schema import LARGEST
from koncord.protocol.setup import Holdings, Moments, Prepared
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.types import LocalEstimate
from koncord_reproduction import load, partition

LIES = ("honest", "far", "counts", "scale", "many", "crowd", "rows far", "rows crowd")
N_SITES, N_MANY, FAR, FARTHER = 10, 200, 30.0, 1000.0
MIN_SUPPORT = 2
# Those that find the number of clusters themselves.
AGGREGATORS = {
    "fedgem": FedGEM(),
    "consensus": Consensus(),
    "consensus, min_support": Consensus(min_support=MIN_SUPPORT),
}


class Liar(Site):
    """A site that keeps to the protocol and tells what it likes."""

    lie = "honest"

    def _reply(self, message, round_):
        reply = super()._reply(message, round_)
        if self.lie == "many" and isinstance(reply, Prepared):
            rows = np.random.default_rng(0).choice(len(self.X), N_MANY, replace=False)
            self.estimate = LocalEstimate(n_components=N_MANY, means=self.X[rows])
            return Prepared(local_k=N_MANY)
        if self.lie == "many" and isinstance(reply, MicroClusters):
            return many_micro_clusters(self.X)
        if self.lie == "scale" and isinstance(reply, Moments):
            return replace(reply, means=reply.means + FARTHER * np.sqrt(reply.scatters / reply.count))
        if self.lie == "counts":
            return with_counts(reply)
        if self.lie in ("far", "crowd") and not isinstance(reply, Moments | Prepared | Holdings | Judgement):
            return with_means(reply, self.lie)
        return reply


def with_counts(reply):
    """Whatever the site counts sums to the most it may."""
    if isinstance(reply, Moments):
        return replace(reply, count=LARGEST["rows"])
    counted = {f.name for f in fields(reply)} & {"counts"}
    return replace(reply, **{name: inflated(getattr(reply, name)) for name in counted})


def inflated(counts):
    return counts * (LARGEST["rows"] // max(int(counts.sum()), 1))


def with_means(reply, lie):
    """Means, or sums of rows, elsewhere."""
    name = "sums" if hasattr(reply, "sums") else "means"
    honest = getattr(reply, name)
    weights = reply.counts[:, None] if name == "sums" else 1.0
    lied = (
        honest + FAR * weights if lie == "far" else 1e-3 * weights * np.random.default_rng(1).normal(size=honest.shape)
    )
    return replace(reply, **{name: lied})


def many_micro_clusters(X):
    rows = np.random.default_rng(0).choice(len(X), N_MANY, replace=False)
    counts = np.full(N_MANY, len(X) // N_MANY)
    d = X.shape[1]
    return MicroClusters(
        counts=counts, means=X[rows], scatters=np.zeros(N_MANY), spread=np.zeros(d), axes=np.empty((0, d))
    )


def invented(X, part, lie):
    """The table of the liar."""
    deviations = X.std(axis=0)
    if lie == "rows far":
        return X[part] + FAR * deviations
    if lie == "rows crowd":
        return X.mean(axis=0) + 0.01 * deviations * np.random.default_rng(2).normal(size=X[part].shape)
    return X[part]


def one_run(data, aggregator, lie, seed):
    parts = partition(data.y, N_SITES, "A", seed)
    columns = tuple(f"x{at}" for at in range(data.X.shape[1]))
    sites, policy = [], SitePolicy(min_report=1)
    for at, part in enumerate(parts):
        is_liar = at == N_SITES - 1
        estimator = KnownCounts(len(np.unique(data.y[part])))
        kind = Liar if is_liar else Site
        X = invented(data.X, part, lie) if is_liar else data.X[part]
        site = kind(f"site-{at:02}", X, columns, estimator=estimator, aggregator=aggregator, policy=policy)
        if is_liar:
            site.lie = lie
        sites.append(site)
    with one_thread():
        model = run_federation(InProcess(sites), aggregator, seed=seed, standardize=True, settings={})
    rows = np.concatenate([model.plan.apply(site.table, site.columns, centers=model.centers) for site in sites[:-1]])
    classes = np.concatenate([data.y[part] for part in parts[:-1]])
    weak = [cluster for cluster, n_sites in enumerate(model.info["support"]) if n_sites < MIN_SUPPORT]
    kept = np.delete(model.centers, weak, axis=0)
    return {
        "k": model.n_clusters,
        "ari": adjusted_rand_score(classes, nearest(rows, model.centers)),
        "weak": len(weak),
        "kept_k": len(kept),
        "kept_ari": adjusted_rand_score(classes, nearest(rows, kept)) if len(kept) else 0.0,
        "set_aside": len({absence["site"] for absence in model.info["missing"]}),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--sets", nargs="+", default=["waveform", "mnist"])
    parser.add_argument("--aggregators", nargs="+", default=list(AGGREGATORS), choices=list(AGGREGATORS))
    parser.add_argument("--lies", nargs="+", default=LIES, choices=LIES)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    heads = f"{'K':>6} {'ARI':>6} {'weak':>5} {'K kept':>7} {'ARI kept':>9} {'set aside':>10}"
    print(f"{'set':9} {'aggregator':22} {'lie':10} {heads}")
    rows = []
    for name in args.sets:
        data = load(name)
        for label in args.aggregators:
            for lie in args.lies:
                runs = [one_run(data, AGGREGATORS[label], lie, seed) for seed in range(first, last + 1)]
                mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
                facts = f"{mean['k']:6.1f} {mean['ari']:6.3f} {mean['weak']:5.1f} {mean['kept_k']:7.1f}"
                shown = f"{mean['kept_ari']:9.3f} {mean['set_aside']:10.1f}"
                print(f"{name:9} {label:22} {lie:10} {facts} {shown}", flush=True)
                rows.append({"set": name, "aggregator": label, "lie": lie, "runs": runs})
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
