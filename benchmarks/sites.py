"""Many sites in one process, every message packed and unpacked: time and memory against the number of sites.

Each number of sites runs in a process of its own, so that its peak memory is its own. Phase 1 is told the counts: what
is measured is the federation, not the estimator.

    python benchmarks/sites.py                 # 25, 50, 100 and 200 sites
    python benchmarks/sites.py --sites 10 20 --aggregator kfed
    python benchmarks/sites.py --server 1000 10000     # Consensus' server alone, 8 micro-clusters of each site
    python benchmarks/sites.py --jobs 2 --rows 400 4000    # 50 sites in this many processes beside one, both phases
    python benchmarks/sites.py --page 250 1000 10000   # bytes of the page: a run of 250 sites, each so often
"""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import log
from time import perf_counter, process_time
from typing import Any

import numpy as np

import koncord
from koncord.aggregate.consensus.microclusters import MicroClusters, labeled_micro_clusters
from koncord.model.globalmodel import GlobalModel
from koncord.report.page import page
from koncord.runs.record import RunRecord
from koncord.runs.sites import sites_csv

N_FEATURES, N_CLUSTERS, HELD, ROWS = 20, 12, 3, 500
N_SITES = 50  # of the comparison of numbers of processes
N_RUN = 250  # sites of the run whose page is made
AGGREGATORS = {
    "consensus": koncord.Consensus,
    "fedgem": lambda: koncord.FedGEM(upsilon=10),
    "fedkmeans": lambda: koncord.FedKMeans(N_CLUSTERS),
    "kfed": lambda: koncord.KFed(N_CLUSTERS),
    "ffcm": lambda: koncord.FFCM(N_CLUSTERS, max_rounds=10),
}


def tables(n_sites: int) -> dict[str, np.ndarray]:
    """Sites with rows of three of twelve separated clusters each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=8, size=(N_CLUSTERS, N_FEATURES))
    made = {}
    for at in range(n_sites):
        held = rng.choice(N_CLUSTERS, HELD, replace=False)
        made[f"site-{at:04}"] = centers[rng.choice(held, ROWS)] + rng.normal(size=(ROWS, N_FEATURES))
    return made


def federate(aggregator: str, X: dict[str, np.ndarray]) -> koncord.FederatedClustering:
    clustering = koncord.FederatedClustering(
        koncord.KnownCounts(HELD), AGGREGATORS[aggregator](), random_state=0, min_report=1
    )
    return clustering.fit(X)


def measure(aggregator: str, n_sites: int) -> dict[str, float]:
    federate(aggregator, tables(8))  # everything is loaded
    X = tables(n_sites)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu_began = perf_counter(), process_time()
    clustering = federate(aggregator, X)
    return {
        "sites": n_sites,
        "seconds": perf_counter() - began,
        "cpu": process_time() - cpu_began,
        "exchanges": clustering.model_.info["exchanges"],
        "mb_sent": sum(departed.n_bytes for departed in clustering.departures_) / 1e6,
        "mb_tables": n_sites * ROWS * N_FEATURES * 8 / 1e6,
        "mb_peak_growth": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
        "clusters": clustering.n_clusters_,
    }


def reports(n_sites: int) -> dict[str, MicroClusters]:
    """What sites send that hold 200 rows of eight clusters each, in micro-clusters of about 25 rows."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=4, size=(8, 16))
    made = {}
    for at in range(n_sites):
        y = rng.integers(0, 8, 200)
        made[f"site-{at:05}"] = labeled_micro_clusters(centers[y] + rng.normal(size=(200, 16)), y)
    return made


def serve(n_sites: int) -> dict[str, float]:
    """CPU, memory and result of the server, from the reports to the outcome."""
    sent = reports(n_sites)
    aggregator = koncord.Consensus().for_run(min_report=5, min_support=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu_began = perf_counter(), process_time()
    server = aggregator.server(tuple(sent), 16, np.random.default_rng(0))
    next(server)
    try:
        server.send(sent)
    except StopIteration as ended:
        outcome = ended.value
    return {
        "sites": n_sites,
        "micro_clusters": sum(map(len, sent.values())),
        "seconds": perf_counter() - began,
        "cpu": process_time() - cpu_began,
        "clusters": len(outcome.centers),
        "mb_peak_growth": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
        "mb_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def serve_all(sizes: list[int]) -> None:
    """The server with each number of sites, in a process of its own, and how its CPU grows."""
    print(" sites  micro-clusters  clusters  seconds  CPU s  MB peak  MB peak more  growth exponent")
    before: tuple[int, float] | None = None
    for n_sites in sizes:
        command = [sys.executable, __file__, "--one", "--server", str(n_sites)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        exponent = "" if before is None else f"{log(row['cpu'] / before[1]) / log(n_sites / before[0]):.2f}"
        print(
            f"{n_sites:>6}  {row['micro_clusters']:>14,}  {row['clusters']:>8}  {row['seconds']:>7.1f}  "
            f"{row['cpu']:>5.1f}  {row['mb_peak']:>7.0f}  {row['mb_peak_growth']:>12.0f}  {exponent:>15}",
            flush=True,
        )
        before = n_sites, row["cpu"]


def cpu_seconds() -> np.ndarray:
    """Wall time, and CPU of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([perf_counter(), *(each.ru_utime + each.ru_stime for each in used)])


def over_cores(n_jobs: int, sizes: list[int], n_sites: int, repeats: int) -> None:
    """The same federation in one process and in several, in turn: the quickest of each, and their ratio.

    On a machine that does other work the ratio of wall times says little. The bound is what CPU times allow: all that
    one process does, beside what is left in the first of several and an equal share of the rest.
    """
    print("rows a site  clusters  jobs  seconds  CPU s here  CPU s in workers  times as fast  by CPU at most  load")
    for n_rows in sizes:
        rng = np.random.default_rng(0)
        centers = rng.normal(scale=4, size=(8, 16))
        X = {
            f"site-{at:02}": centers[rng.integers(0, 8, n_rows)] + rng.normal(size=(n_rows, 16))
            for at in range(n_sites)
        }
        runs: dict[int, list[np.ndarray]] = {1: [], n_jobs: []}
        for _ in range(repeats):
            for jobs, found in runs.items():
                began = cpu_seconds()
                fitted = koncord.FederatedClustering(koncord.ASM(), random_state=0, n_jobs=jobs).fit(X)
                found.append(cpu_seconds() - began)
        one, several = (np.min(found, axis=0) for found in runs.values())
        for jobs, (seconds, here, workers) in zip(runs, (one, several), strict=True):
            ratios = f"{one[0] / seconds:>13.2f}  {one[1] / (here + workers / jobs):>14.2f}"
            print(
                f"{n_rows:>11}  {fitted.n_clusters_:>8}  {jobs:>4}  {seconds:>7.2f}  {here:>10.2f}  {workers:>16.2f}  "
                f"{ratios}  {os.getloadavg()[0]:>4.1f}",
                flush=True,
            )


def pages(sizes: list[int]) -> None:
    """The page of a run of 250 sites, and of the same with each of them several times."""
    found = koncord.FederatedClustering(random_state=0).fit(tables(N_RUN))
    print(" sites  page MB  sites.csv MB  CPU s")
    for n_sites in sizes:
        model, record = repeated(found.model_, found.record_, n_sites // N_RUN)
        began = process_time()
        text, beside = page(model, record), sites_csv(model, record)
        print(
            f"{len(model.sites):>6}  {len(text.encode()) / 1e6:>7.2f}  {len(beside.encode()) / 1e6:>12.2f}  "
            f"{process_time() - began:>5.1f}",
            flush=True,
        )


def repeated(model: GlobalModel, record: RunRecord, times: int) -> tuple[GlobalModel, RunRecord]:
    """The model and the record with every site so often."""

    def each(of_sites: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{site}-{at:03}": own for site, own in of_sites.items() for at in range(times)}

    assert model.tree is not None
    many = replace(
        model,
        sites=tuple(each(dict.fromkeys(model.sites))),
        holdings=np.repeat(model.holdings, times, axis=0),
        groups=each(model.groups),
        components=each(model.components),
        tree=replace(model.tree, groups=each(model.tree.groups)),
    )
    sent = tuple(replace(own, site=f"{own.site}-{at:03}") for own in record.departures for at in range(times))
    return many, replace(record, files=each(record.files), departures=sent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--aggregator", choices=AGGREGATORS, nargs="+", default=list(AGGREGATORS))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, nargs="+", help="numbers of sites for Consensus' server alone")
    parser.add_argument("--page", type=int, nargs="+", help="numbers of sites, multiples of 250, for the page alone")
    parser.add_argument("--jobs", type=int, help="processes to compare with one, for 50 sites and both phases")
    parser.add_argument("--rows", type=int, nargs="+", default=[400, 4000], help="rows a site, with --jobs")
    parser.add_argument("--repeats", type=int, default=3, help="with --jobs: runs of each, the quickest counts")
    args = parser.parse_args()
    if args.jobs:
        over_cores(args.jobs, args.rows, N_SITES, args.repeats)
        return
    if args.page:
        pages(args.page)
        return
    if args.server and args.one:
        print(json.dumps(serve(args.server[0])))
        return
    if args.server:
        serve_all(args.server)
        return
    if args.one:
        print(json.dumps(measure(args.aggregator[0], args.sites[0])))
        return
    print(
        "aggregator  sites  clusters  exchanges  seconds  CPU s  CPU ms/site/exchange  MB sent  MB tables  MB peak more"
    )
    for aggregator in args.aggregator:
        for n_sites in args.sites:
            command = [sys.executable, __file__, "--one", "--sites", str(n_sites), "--aggregator", aggregator]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            each = 1e3 * row["cpu"] / n_sites / row["exchanges"]
            print(
                f"{aggregator:<10}  {n_sites:>5}  {row['clusters']:>8}  {row['exchanges']:>9}  {row['seconds']:>7.2f}  "
                f"{row['cpu']:>5.2f}  {each:>20.2f}  {row['mb_sent']:>7.2f}  {row['mb_tables']:>9.1f}  "
                f"{row['mb_peak_growth']:>12.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
