"""A coordinator and sites as processes of their own, with TLS, on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from koncord.model.globalmodel import GlobalModel
from koncord.network.processes import die_with_parent, start_time, stat_fields
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord_reproduction.waveform import waveform
from network.pace import PACE
from network.ports import free_port

KONCORD = str(Path(sys.executable).parent / "koncord")
SITES = ("north", "south", "west")
ROWS = 300  # of each site: the network is tried here, not phase 1
READY_WITHIN = 180  # seconds on a quiet machine, like all limits here
NOT_JOINED = "; next try in "
USUAL = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")  # the run that most tests make
STARTED = []  # commands of the test that runs now


class Command:
    """A koncord command as a process; its output is kept and everything it started is known.

    It ends with the test that started it, unless it is `lasting`, and at the latest with pytest, however that ends.
    """

    def __init__(
        self, folder, *words, prefix=(), name="koncord", lasting=False, variables=None, stdin=subprocess.DEVNULL
    ):
        self.output = Path(folder) / f"{name}-{time.monotonic_ns()}.txt"
        own = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "KONCORD_TABLES": str(Path(folder) / "tables")}
        environment = {**os.environ, **own, **(variables or {})}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*prefix, KONCORD, *map(str, words)],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=stdin,
                env=environment,
                preexec_fn=die_with_parent,
            )
        if not lasting:
            STARTED.append(self)

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, words, seconds=READY_WITHIN):
        return self.wait_until(lambda: words in self.text, f"said {words!r}", seconds)

    def wait_joined(self, seconds=READY_WITHIN):
        """Wait until a site is connected, or is so again."""
        return self.wait_until(lambda: self.is_joined, "joined", seconds)

    def wait_until(self, condition, what, seconds):
        began = time.monotonic()
        while not condition():
            if self.process.poll() is not None and not condition():
                raise AssertionError(f"ended with {self.process.returncode} before it {what}:\n{self.text}")
            self.check_limit(began, seconds, f"never {what}")
            time.sleep(0.2)
        return self

    def check_limit(self, began, seconds, what):
        """Fail when more time is over than this takes on a machine as slow as this one now is."""
        PACE.saw_exchanges(self.text)
        took = time.monotonic() - began
        assert took < PACE.limit(seconds), f"{what} in {took:.0f} s (slowness {PACE.slowness:.1f}):\n{self.text}"

    @property
    def is_joined(self):
        """Whether the last word of a site was that it is connected."""
        return self.text.rfind("joined ") > self.text.rfind(NOT_JOINED)

    def family(self):
        """This process and all it started, with their start times."""
        return {self.process.pid: start_time(self.process.pid), **descendants(self.process.pid)}

    def end(self, seconds=60):
        """Wait for the end; the exit code."""
        began = time.monotonic()
        while self.process.poll() is None:
            self.check_limit(began, seconds, "did not end")
            time.sleep(0.2)
        return self.process.returncode

    @contextmanager
    def held(self):
        """Within the block it does nothing, as on a machine that sleeps."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, number=signal.SIGTERM):
        """Stop it as a person or the system would, and see that nothing it started is left."""
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.end()
        wait_gone(family)
        return code

    def kill(self):
        """As if the power went: everything at once."""
        family = self.family()
        for pid, started in family.items():
            if start_time(pid) == started:
                os.kill(pid, signal.SIGKILL)
        self.end()
        wait_gone(family)


def stop_started():
    """Stop what the test that is over started for itself."""
    while STARTED:
        command = STARTED.pop()
        if command.process.poll() is None:
            command.stop()


def wait_gone(family, seconds=20):
    began = time.monotonic()
    while left := [pid for pid, started in family.items() if started and start_time(pid) == started]:
        assert time.monotonic() - began < PACE.limit(seconds), f"processes {left} are left"
        time.sleep(0.1)


def koncord(folder, *words, code=0):
    """Run a koncord command to its end; its stdout."""
    done = subprocess.run(
        [KONCORD, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == code, f"{words} ended with {done.returncode}: {done.stdout} {done.stderr}"
    return done.stdout if code == 0 else done.stderr


class Federation:
    """A coordinator in `folder`, its sites and their tables; `measured` is the run that it begins with."""

    def __init__(self, folder, sites=SITES, hosts="localhost", prefix=(), insecure=False, measured=USUAL):
        self.folder = folder
        self.sites = sites
        self.prefix = tuple(prefix)
        self.measured = measured
        self.ports = free_port(), free_port()
        guarded = ("--insecure",) if insecure else ("--internal-port", self.ports[1])
        self.options = ("--host", hosts, "--port", self.ports[0], *guarded)
        self.server = None
        self.joined = {}
        self.kept = {}  # what tests share, by name; gone with the federation
        write_tables(folder, sites)

    def serve(self):
        words = ("serve", "--folder", "coordinator", *self.options)
        self.server = Command(self.folder, *words, prefix=self.prefix, name="serve", lasting=True)
        self.options = ()
        began = time.monotonic()
        self.server.wait_for("ready: ")
        PACE.saw("serve", time.monotonic() - began)
        return self

    def invite(self):
        for site in self.sites:
            run = [*self.prefix, KONCORD, "invite", site, "--folder", "coordinator"]
            subprocess.run(run, cwd=self.folder, check=True, capture_output=True, timeout=180)
        return self

    def join(self, *sites, prefix=(), variables=None, options=(), stdin=subprocess.DEVNULL):
        for site in sites or self.sites:
            words = ("join", "--invite", f"{site}.invite", "--data", f"{site}.csv", "--state", f"state-{site}")
            if "--methods" not in options:
                words += ("--methods", "consensus,fedgem,fedkmeans,kfed,spahm")  # fedgem is not among the usual ones
            self.joined[site] = Command(
                self.folder,
                *words,
                *options,
                prefix=prefix,
                name=f"join-{site}",
                lasting=True,
                variables=variables,
                stdin=stdin,
            )
        return self

    def wait_joined(self, seconds=READY_WITHIN):
        for command in self.joined.values():
            command.wait_joined(seconds)
        return self

    def start(self):
        """Serve, invite and join; how long that takes, and then an exchange, is what limits are measured by."""
        self.serve().invite()
        began = time.monotonic()
        self.join().wait_joined()
        PACE.saw("join", time.monotonic() - began)
        return self.measure()

    def measure(self):
        """A short run: every site answers, and an exchange takes as long as it takes here and now.

        It is the run that most tests make: a question that was answered before has the same answer, another one would
        find the joint partition of a site finer than a site without a past has it.
        """
        run = self.run("--out", "measured", "--min-sites", len(self.sites), *self.measured)
        assert run.end(120) == 0, run.text
        PACE.saw_exchanges(run.text)
        return self

    def is_whole(self):
        """Whether the coordinator runs and every site is connected, or is so again before long."""
        if self.server is None or self.server.process.poll() is not None:
            return False
        try:
            self.wait_joined()
        except AssertionError:
            return False
        return all(command.process.poll() is None for command in self.joined.values())

    def keep(self, name, make):
        """What `make` returned for the first test of this federation that asked."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def run(self, *words):
        return Command(self.folder, "run", "--folder", "coordinator", *words, prefix=self.prefix, name="run")

    def in_process(self, out, *words, sites=None):
        """The model of the same tables in one process, with the floor that `koncord join` has."""
        files = (f"{site}.csv" for site in sites or self.sites)
        koncord(self.folder, "fit", *files, "--out", out, "--min-report", DEFAULT_MIN_REPORT, *words)
        return self.model(out)

    def model(self, out):
        return GlobalModel.load(self.folder / out / "model.koncord")

    def labels(self, site, out):
        """The labels a site wrote for the run whose result is in `out`."""
        run = json.loads((self.folder / out).read_text())["run"]
        return (self.folder / f"state-{site}" / "runs" / run / "labels.csv").read_text()

    def kill_superlink(self):
        for pid in descendants(self.server.process.pid):
            if b"flower-superlink" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def stop(self):
        """Stop all of it; what does not stop when asked is killed, and the test told so."""
        problems = []
        for command in (*self.joined.values(), self.server):
            if command is not None and command.process.poll() is None:
                try:
                    command.stop()
                except AssertionError as problem:
                    command.kill()
                    problems.append(problem)
        if problems:
            raise problems[0]


def write_connection(home, *, port, authority):
    """Tell Flower's own command line where a coordinator of this machine is."""
    lines = (
        '[superlink]\ndefault = "koncord"\n\n[superlink.koncord]\n'
        f'address = "127.0.0.1:{port}"\nroot-certificates = {json.dumps(str(authority))}\n'
    )
    (home / "config.toml").write_text(lines)


def descendants(pid: int) -> dict[int, str]:
    """Children, grandchildren, ... of a process that live now, each with its start time, which tells a number anew."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = stat_fields(int(entry.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = list(children.get(pid, []))
    while waiting:
        child = waiting.pop()
        found[child] = start_time(child)
        waiting += children.get(child, [])
    return found


def assert_same_model(ours, theirs):
    """To the last bit."""
    np.testing.assert_array_equal(ours.centers, theirs.centers)
    np.testing.assert_array_equal(ours.holdings, theirs.holdings)
    unknown = {"min_report": None}  # a coordinator does not know the floors of the sites
    assert ours.info | unknown == theirs.info | unknown
    assert ours.local_counts == theirs.local_counts


def write_tables(folder, sites):
    X, y = waveform()
    X = np.round(X, 2)
    header = ",".join(f"x{at}" for at in range(X.shape[1]))
    for at, site in enumerate(sites):
        rows = np.arange(at, len(y), len(sites))
        held = rows[y[rows] != at % 3]  # two of the three classes
        np.savetxt(folder / f"{site}.csv", X[held][:ROWS], fmt="%.2f", delimiter=",", header=header, comments="")
