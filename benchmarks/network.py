"""Waveform over some sites: coordinator and sites as processes of their own, with TLS, beside the run in one process.

Everything is on this machine, so what is measured is Flower and koncord, not a network. The two models must be equal.

    python benchmarks/network.py                        # the methods of docs/network.md: 8 minutes
    python benchmarks/network.py --methods kfed --rows 300
    python benchmarks/network.py --methods consensus --sites 25 --rows 200
"""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import json
import re
import socket
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

KONCORD = str(Path(sys.executable).parent / "koncord")
TICKS = os.sysconf("SC_CLK_TCK")
METHODS = {
    "fedgem": ("--aggregator", "fedgem"),
    "fedgem, upsilon given": ("--aggregator", "fedgem", "--upsilon", "10"),
    "consensus": ("--aggregator", "consensus"),
    "kfed": ("--aggregator", "kfed", "--clusters", "3"),
    "fedkmeans": ("--aggregator", "fedkmeans", "--clusters", "3"),
}
READY_WITHIN = 180
SECONDS = re.compile(r"^exchange \d+: .* \(([\d.]+) s\)", re.MULTILINE)


def free_port():
    """A port of this machine that nobody uses now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rows", type=int, help="of each site (default: all of its share of the 5,000)")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="koncord-benchmark-") as name:
        measure(Path(name), args.methods, args.rows, [f"site{at:02}" for at in range(args.sites)])


def measure(folder: Path, methods: list[str], rows: int | None, sites: list[str]) -> None:
    os.chdir(folder)
    write_tables(rows, sites)
    with ExitStack() as stack:
        start(stack, "serve", "--port", str(free_port()), "--internal-port", str(free_port()), until=b"ready: ")
        for site in sites:
            call("invite", site)
        superlink = pid_of("flower-superlink")
        print(
            "| method | sites | exchanges | exchange, s: median (least to most) | run, s | in one process, s | "
            "CPU of SuperLink an exchange, s | K |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for method in methods:
            # A site with a past has a finer joint partition: each method gets sites without one.
            with ExitStack() as joined:
                pids = [join(joined, site, method).process.pid for site in sites]
                print(row(method, sites, superlink), flush=True)
                print(f"memory of a site: {median(map(memory, pids)):.0f} MB; SuperLink: {memory(superlink):.0f} MB")
        print("load: {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))


def join(stack: ExitStack, site: str, method: str) -> Program:
    state = re.sub(r"\W+", "-", f"{site}-{method}")
    methods = ("--methods", "consensus,fedgem,fedkmeans,kfed")  # fedgem is not among the usual ones
    words = ("--state", state, "--invite", f"{site}.invite", "--data", f"{site}.csv", *methods)
    return start(stack, "join", *words, until=b"joined ")


def pid_of(word: str) -> int:
    """The process of this machine and of this coordinator whose command line has the word."""
    here = str(Path.cwd())
    lines = {entry: (entry / "cmdline").read_bytes().decode() for entry in Path("/proc").glob("[0-9]*")}
    return next(int(entry.name) for entry, line in lines.items() if word in line and here in line)


def memory(pid: int) -> float:
    """Megabytes of a process, its part of what it shares included."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[0]) / 1024


def computed(pid: int) -> float:
    """Seconds of computing of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def write_tables(rows: int | None, sites: list[str]) -> None:
    X, y = waveform()
    header = ",".join(f"x{at}" for at in range(X.shape[1]))
    for site, held in zip(sites, partition(y, len(sites), regime="A", seed=42), strict=True):
        np.savetxt(f"{site}.csv", X[held][:rows], fmt="%.2f", delimiter=",", header=header, comments="")


def start(stack: ExitStack, *words: str, until: bytes) -> Program:
    """Start a koncord command that lasts to the end, and wait for its word."""
    log = Path(f"{'-'.join(words[:3])}.log".replace("/", "-"))
    program = Program("koncord", [KONCORD, *words], log=log, environment=os.environ)
    stack.callback(program.stop)
    if not wait_until(lambda: program.has_ended or until in log.read_bytes(), READY_WITHIN) or program.has_ended:
        raise SystemExit(f"koncord {words[0]} did not start: {program.last_lines()}")
    return program


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KONCORD, *words], check=True, capture_output=True, text=True)


def row(method: str, sites: list[str], superlink: int) -> str:
    name = re.sub(r"\W+", "-", method)
    began, before = perf_counter(), computed(superlink)
    over = call("run", "--out", f"{name}-run", "--min-sites", str(len(sites)), *METHODS[method])
    took, cpu = perf_counter() - began, computed(superlink) - before
    alone = call("fit", *(f"{site}.csv" for site in sites), "--out", f"{name}-fit", "--json", *METHODS[method])
    ours, theirs = (koncord.GlobalModel.load(Path(f"{name}-{where}/model.koncord")) for where in ("run", "fit"))
    if not (np.array_equal(ours.centers, theirs.centers) and np.array_equal(ours.holdings, theirs.holdings)):
        raise SystemExit(f"{method}: the two models differ")
    each = [float(seconds) for seconds in SECONDS.findall(over.stderr)]
    return (
        f"| {method} | {len(sites)} | {len(each)} | {median(each):.1f} ({min(each):.1f} to {max(each):.1f}) | "
        f"{took:.0f} | {json.loads(alone.stdout)['seconds']:.1f} | {cpu / len(each):.2f} | "
        f"{ours.n_clusters} |"
    )


if __name__ == "__main__":
    main()
