"""Waveform over three sites: coordinator and sites as processes of their own, with TLS, beside the run in one process.

Everything is on this machine, so what is measured is Flower and koncord, not a network. The two models must be equal.

    python benchmarks/network.py                        # the methods of docs/network.md: 8 minutes
    python benchmarks/network.py --methods kfed --rows 300
"""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import koncord
from koncord.data.partitions import partition
from koncord.data.waveform import waveform
from koncord.network.processes import Program, wait_until
from koncord.network.serving import free_port

KONCORD = str(Path(sys.executable).parent / "koncord")
SITES = ("north", "south", "west")
METHODS = {
    "fedgem": ("--aggregator", "fedgem"),
    "fedgem, upsilon given": ("--aggregator", "fedgem", "--upsilon", "10"),
    "consensus": ("--aggregator", "consensus"),
    "kfed": ("--aggregator", "kfed", "--clusters", "3"),
    "fedkmeans": ("--aggregator", "fedkmeans", "--clusters", "3"),
}
READY_WITHIN = 180
SECONDS = re.compile(r"^exchange \d+: .* \(([\d.]+) s\)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rows", type=int, help="of each site (default: all of its share of the 5,000)")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="koncord-benchmark-") as name:
        measure(Path(name), args.methods, args.rows)


def measure(folder: Path, methods: list[str], rows: int | None) -> None:
    os.chdir(folder)
    write_tables(rows)
    with ExitStack() as stack:
        start(stack, "serve", "--port", str(free_port()), "--internal-port", str(free_port()), until=b"ready: ")
        for site in SITES:
            call("invite", site)
        for site in SITES:
            words = ("--invite", f"{site}.invite", "--data", f"{site}.csv", "--min-report", "1")
            start(stack, "join", *words, until=b"joined ")
        print("| method | exchanges | exchange, s: median (least to most) | run, s | in one process, s | K |")
        print("|---|---|---|---|---|---|")
        for method in methods:
            print(row(method), flush=True)


def write_tables(rows: int | None) -> None:
    X, y = waveform()
    header = ",".join(f"x{at}" for at in range(X.shape[1]))
    for site, held in zip(SITES, partition(y, len(SITES), regime="A", seed=42), strict=True):
        np.savetxt(f"{site}.csv", X[held][:rows], fmt="%.2f", delimiter=",", header=header, comments="")


def start(stack: ExitStack, *words: str, until: bytes) -> None:
    """Start a koncord command that lasts to the end, and wait for its word."""
    log = Path(f"{'-'.join(words[:3])}.log".replace("/", "-"))
    program = Program("koncord", [KONCORD, *words], log=log, environment=os.environ)
    stack.callback(program.stop)
    if not wait_until(lambda: program.has_ended or until in log.read_bytes(), READY_WITHIN) or program.has_ended:
        raise SystemExit(f"koncord {words[0]} did not start: {program.last_lines()}")


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KONCORD, *words], check=True, capture_output=True, text=True)


def row(method: str) -> str:
    name = re.sub(r"\W+", "-", method)
    began = perf_counter()
    over = call("run", "--out", f"{name}-run", "--min-sites", str(len(SITES)), *METHODS[method])
    took = perf_counter() - began
    alone = call("fit", *(f"{site}.csv" for site in SITES), "--out", f"{name}-fit", "--json", *METHODS[method])
    ours, theirs = (koncord.GlobalModel.load(Path(f"{name}-{where}/model.koncord")) for where in ("run", "fit"))
    if not (np.array_equal(ours.centers, theirs.centers) and np.array_equal(ours.holdings, theirs.holdings)):
        raise SystemExit(f"{method}: the two models differ")
    each = [float(seconds) for seconds in SECONDS.findall(over.stderr)]
    return (
        f"| {method} | {len(each)} | {median(each):.1f} ({min(each):.1f} to {max(each):.1f}) | {took:.0f} | "
        f"{json.loads(alone.stdout)['seconds']:.1f} | {ours.n_clusters} |"
    )


if __name__ == "__main__":
    main()
