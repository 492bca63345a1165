"""Waveform over some sites: coordinator and sites as processes of their own, with TLS, beside the run in one process.

Everything is on this machine, so what is measured is Flower and koncord, not a network. The two models must be equal.
Every run is a JSON line of `--out`.

    python benchmarks/network.py                        # all methods: 5 minutes
    python benchmarks/network.py --show exchanges.jsonl # the table, as docs/network.md has it
    python benchmarks/network.py --methods kfed --rows 300
    python benchmarks/network.py --methods consensus --sites 5 25 50 --rows 100     # 50 sites take 13 GB

Another version of koncord is measured with its own command, and with the options that its `koncord join` needs:

    python benchmarks/network.py --koncord old/bin/koncord --version c7834ae --join-options="--min-report 1"
"""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import numpy as np

import koncord
from koncord.network.processes import Program, children, wait_until
from koncord.types import IntArray
from koncord_reproduction import partition
from koncord_reproduction.waveform import waveform

TICKS = os.sysconf("SC_CLK_TCK")
METHODS = {
    "fedgem": ("--aggregator", "fedgem"),
    "fedgem, upsilon given": ("--aggregator", "fedgem", "--set", "upsilon=10"),
    "consensus": ("--aggregator", "consensus"),
    "kfed": ("--aggregator", "kfed", "--clusters", "3"),
    "fedkmeans": ("--aggregator", "fedkmeans", "--clusters", "3"),
}
READY_WITHIN = 300
AT_A_TIME = 4  # sites that join at once
LOOKED_AT = 10.0  # seconds after a run in which nothing is sent: sites look as often as between its exchanges
LOOK_EVERY = 0.05  # seconds between looks at the processes of a site
SECONDS = re.compile(r"^exchange \d+: .* \(([\d.]+) s\)", re.MULTILINE)
KEPT = re.compile(r"^(Private_\w+|Rss):\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run over the network."""

    version: str
    method: str
    sites: int
    rows: int | None  # of each site; None is all of its share
    exchanges: list[float]  # seconds
    run: float  # seconds, with the start of Python and of Flower's run
    in_one_process: float  # seconds
    superlink_cpu: float  # seconds of computing in this run
    coordinator_cpu: float  # of all processes of the coordinator and of koncord run
    site_processes: int  # most at one time
    site_mb: float  # most at one time, pages of all its processes counted once
    superlink_mb: float
    n_clusters: int
    load: float  # of the machine in the minute before the run
    at: str
    superlink_looked_at: float | None = None  # its seconds of computing a second after the run, sites looking as in it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sites", type=int, nargs="+", default=[3], help="numbers of sites, one after the other")
    parser.add_argument("--rows", type=int, help="of each site (default: all of its share of the 5,000)")
    parser.add_argument("--koncord", default=str(Path(sys.executable).parent / "koncord"), help="the command")
    parser.add_argument("--version", default="now", help="what the rows call this version")
    # fedgem is not among the methods that a site takes part in unless it says so
    parser.add_argument("--join-options", default="--methods consensus,fedgem,fedkmeans,kfed")
    parser.add_argument("--out", type=Path, default=Path("exchanges.jsonl"), help="one JSON line a run, appended")
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print the table of stored lines, and do nothing else"
    )
    args = parser.parse_args()
    if args.show:
        print(show(rows_of(args.show)))
        return
    args.out = args.out.absolute()
    for n_sites in args.sites:
        measure_all(n_sites, args)


def measure_all(n_sites: int, args: argparse.Namespace) -> None:
    """A run of each method with so many sites, each a line of the file."""
    with TemporaryDirectory(prefix="koncord-benchmark-") as name:
        os.chdir(name)
        bench = Bench(args.koncord, shlex.split(args.join_options), [f"site{at:02}" for at in range(n_sites)])
        write_tables(args.rows, bench.sites)
        with ExitStack() as stack:
            serve = bench.start(
                stack, "serve", "--port", str(free_port()), "--internal-port", str(free_port()), until=b"ready: "
            )
            for site in bench.sites:
                bench.call("invite", site)
            for method in args.methods:
                row = bench.measure(method, serve, version=args.version, rows=args.rows)
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
                print(json.dumps(asdict(row)), flush=True)


class Bench:
    """The command that is measured, and the sites."""

    def __init__(self, command: str, join_options: list[str], sites: list[str]) -> None:
        self.command, self.join_options, self.sites = command, join_options, sites

    def measure(self, method: str, serve: Program, *, version: str, rows: int | None) -> Measured:
        # A site with a past has a finer joint partition: each method gets sites without one.
        with ExitStack() as joined:
            first, *_ = [program.process.pid for program in self.join_all(joined, method)]
            name = re.sub(r"\W+", "-", method)
            coordinator = serve.process.pid
            superlink = pid_of("flower-superlink", coordinator)
            load = os.getloadavg()[0]
            before = computed(superlink), computed_by_all(coordinator) + computed_by_commands()
            began = perf_counter()
            with Watch(first) as site:
                over = self.call("run", "--out", f"{name}-run", "--min-sites", str(len(self.sites)), *METHODS[method])
            took = perf_counter() - began
            after = computed(superlink), computed_by_all(coordinator) + computed_by_commands()
            superlink_mb = kept(superlink)["Rss"]
            sleep(LOOKED_AT)
            looked_at = (computed(superlink) - after[0]) / LOOKED_AT
        files = (f"{each}.csv" for each in self.sites)
        alone = self.call("fit", *files, "--out", f"{name}-fit", "--json", *METHODS[method])
        return Measured(
            version=version,
            method=method,
            sites=len(self.sites),
            rows=rows,
            exchanges=[float(seconds) for seconds in SECONDS.findall(over.stderr)],
            run=round(took, 1),
            in_one_process=round(json.loads(alone.stdout)["seconds"], 1),
            superlink_cpu=round(after[0] - before[0], 2),
            coordinator_cpu=round(after[1] - before[1], 2),
            site_processes=site.processes,
            site_mb=round(site.megabytes),
            superlink_mb=round(superlink_mb),
            n_clusters=same_clusters(method, name),
            load=round(load, 1),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            superlink_looked_at=round(looked_at, 3),
        )

    def join_all(self, stack: ExitStack, method: str) -> list[Program]:
        """All sites, some at a time."""
        os.environ["KONCORD_TABLES"] = str(Path(f"tables-{method}").resolve())  # nothing was answered to another method
        joined: list[Program] = []
        for at in range(0, len(self.sites), AT_A_TIME):
            some = [self.begin(stack, *self.words(site, method)) for site in self.sites[at : at + AT_A_TIME]]
            joined += [ready(program, b"joined ") for program in some]
        return joined

    def words(self, site: str, method: str) -> tuple[str, ...]:
        state = re.sub(r"\W+", "-", f"{site}-{method}")
        return ("join", "--state", state, "--invite", f"{site}.invite", "--data", f"{site}.csv", *self.join_options)

    def start(self, stack: ExitStack, *words: str, until: bytes) -> Program:
        """Start a koncord command that lasts to the end, and wait for its word."""
        return ready(self.begin(stack, *words), until)

    def begin(self, stack: ExitStack, *words: str) -> Program:
        log = Path(f"{'-'.join(words[:3])}.log".replace("/", "-"))
        program = Program("koncord", [self.command, *words], log=log, environment=os.environ)
        stack.callback(program.stop)
        return program

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([self.command, *words], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"koncord {' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done


def ready(program: Program, word: bytes) -> Program:
    """The program, as soon as it has said this."""
    wait_until(lambda: program.has_ended or word in program.log.read_bytes(), READY_WITHIN)
    if program.has_ended or word not in program.log.read_bytes():
        raise SystemExit(f"{program.log.name}: did not start: {program.last_lines()}")
    return program


class Watch:
    """The processes of a site, looked at again and again within the block: the most at one time, and their memory."""

    def __init__(self, pid: int) -> None:
        self.pid, self.processes, self.megabytes = pid, 0, 0.0
        self.is_over = threading.Event()
        self.looking = threading.Thread(target=self.look)

    def __enter__(self) -> "Watch":
        self.looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.looking.join()

    def look(self) -> None:
        while not self.is_over.wait(LOOK_EVERY):
            each = [kept(pid) for pid in family(self.pid)]
            each = [pages for pages in each if pages]
            if each:
                self.processes = max(self.processes, len(each))
                self.megabytes = max(self.megabytes, together(each))


def together(each: list[dict[str, float]]) -> float:
    """Megabytes of some processes that share pages: the largest, and what the others have to themselves."""
    largest = max(each, key=lambda pages: pages["Rss"])
    own = sum(pages["Private_Clean"] + pages["Private_Dirty"] for pages in each if pages is not largest)
    return largest["Rss"] + own


def kept(pid: int) -> dict[str, float]:
    """Megabytes of a process by kind; empty if it is gone."""
    try:
        found = KEPT.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return {}
    return {name: int(value) / 1024 for name, value in found}


def family(pid: int) -> list[int]:
    """A process and all it started that live now."""
    found = [pid]
    for each in found:  # grows
        found += children(each)
    return found


def pid_of(word: str, coordinator: int) -> int:
    """The process of the coordinator whose command line has the word."""
    return next(pid for pid in family(coordinator) if word in Path(f"/proc/{pid}/cmdline").read_text())


def computed(pid: int, *, with_ended: bool = False) -> float:
    """Seconds of computing of a process so far, and if so wished of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / TICKS


def computed_by_all(pid: int) -> float:
    return sum(computed(each, with_ended=True) for each in family(pid))


def computed_by_commands() -> float:
    """Seconds of computing of the commands of this program that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def same_clusters(method: str, name: str) -> int:
    ours, theirs = (koncord.GlobalModel.load(Path(f"{name}-{where}/model.koncord")) for where in ("run", "fit"))
    if not (np.array_equal(ours.centers, theirs.centers) and np.array_equal(ours.holdings, theirs.holdings)):
        raise SystemExit(f"{method}: the two models differ")
    return ours.n_clusters


def write_tables(rows: int | None, sites: list[str]) -> None:
    X, y = waveform()
    header = ",".join(f"x{at}" for at in range(X.shape[1]))
    for site, held in zip(sites, dealt(y, len(sites)), strict=True):
        np.savetxt(f"{site}.csv", X[held][:rows], fmt="%.2f", delimiter=",", header=header, comments="")


def dealt(y: IntArray, n_sites: int) -> list[IntArray]:
    """The rows of every site; by class, which needs three sites, or two halves."""
    if n_sites > 2:
        return list(partition(y, n_sites, regime="A", seed=42))
    return np.array_split(np.random.default_rng(42).permutation(len(y)), n_sites)


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


# --- the page ---


def rows_of(path: Path) -> list[Measured]:
    return [Measured(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def show(rows: list[Measured]) -> str:
    """The table of some runs, by number of sites and version."""
    lines = [
        "| sites | rows of each | version | method | exchanges | exchange, s: median (least to most) | run, s | "
        "CPU of the SuperLink an exchange, s | CPU of the coordinator, whole run, s | "
        "processes of a site | memory of a site, MB | load before |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row.sites, row.version == "now", row.method, row.at)):
        each = row.exchanges
        lines.append(
            f"| {row.sites} | {row.rows or 'all'} | {row.version} | {row.method} | {len(each)} | "
            f"{median(each):.1f} ({min(each):.1f} to {max(each):.1f}) | {row.run:.0f} | "
            f"{row.superlink_cpu / len(each):.2f} | {row.coordinator_cpu:.0f} | "
            f"{row.site_processes} | {row.site_mb:.0f} | {row.load:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
