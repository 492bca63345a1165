"""Kill processes of a federation at random moments, start again what ended, and see what becomes of the run.

A coordinator and three sites with TLS on this machine. Every trial begins a run, kills one process (SIGKILL) at some
random moment of it, starts again what ended, as systemd would, and resumes the run until it ends with exit code 0. The
model must be that of an undisturbed run to the last bit, or name who was missing. At the end every site must answer,
every ledger must be whole, and no process may be left.

    python benchmarks/faults.py                        # 40 trials, seed 0: about an hour on a quiet machine
    python benchmarks/faults.py --trials 5 --seed 3 --rows faults.jsonl
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from network.federation import SITES, USUAL, Federation, descendants, koncord

# What is killed: a command, or a process that one started, by a word of its command line.
AT_SITES = ("koncord join", "the copy that answers", "all of a site")
AT_COORDINATOR = ("koncord run", "koncord serve", "flower-superlink", "flower-superexec", "flwr-serverapp", "nginx")
MOST_RESUMES = 6
RUN_WITHIN = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, default=Path("faults.jsonl"), help="one JSON line a trial, appended")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with TemporaryDirectory(prefix="koncord-faults-") as name:
        federation = Federation(Path(name))
        try:
            began = time.monotonic()
            federation.start()
            length = run_seconds(federation)
            print(f"ready in {time.monotonic() - began:.0f} s; a run takes {length:.0f} s", flush=True)
            rows = []
            for number in range(1, args.trials + 1):
                rows.append(trial(federation, number, rng, length))
                with args.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"seed": args.seed, **rows[-1]}) + "\n")
                print(json.dumps(rows[-1]), flush=True)
            verdict = checked_at_the_end(federation)
        finally:
            federation.stop()
        verdict["orphans"] = left_over(name)
        print(json.dumps(verdict))
        print(table(rows))


def run_seconds(federation: Federation) -> float:
    """How long an undisturbed run takes here and now."""
    began = time.monotonic()
    run = federation.run("--out", "timed", "--min-sites", len(SITES), *USUAL)
    assert run.end(RUN_WITHIN) == 0, run.text
    return time.monotonic() - began


def trial(federation: Federation, number: int, rng: random.Random, length: float) -> dict[str, object]:
    what, site, moment = rng.choice(AT_SITES + AT_COORDINATOR), rng.choice(SITES), rng.uniform(0, length)
    out = f"trial-{number}"
    run = federation.run("--out", out, "--min-sites", "2", "--round-timeout", "60", *USUAL)
    time.sleep(moment)
    killed = kill(federation, run, what, site)
    exits = []
    for _ in range(MOST_RESUMES):
        while run.process.poll() is None:
            start_again(federation)
            time.sleep(0.5)
        exits.append(run.process.returncode)
        start_again(federation)
        if exits[-1] == 0:
            break
        # A run that was killed before it had begun is simply begun.
        begun = (federation.folder / out / "resume.json").exists()
        more = ("--resume",) if begun else USUAL
        run = federation.run("--out", out, "--min-sites", "2", "--round-timeout", "60", *more)
    federation.wait_joined()
    return {
        "trial": number,
        "killed": what,
        "site": site if what in AT_SITES else None,
        "after": round(moment, 1),
        "was_there": killed,
        "exits": exits,
        "is_over": exits[-1] == 0,
        "is_equal": exits[-1] == 0 and is_same(federation, out),
        "missing": sorted({each["site"] for each in federation.model(out).info["missing"]}) if exits[-1] == 0 else None,
    }


def kill(federation: Federation, run: object, what: str, site: str) -> bool:
    """Kill one process; whether it was there."""
    joined = federation.joined[site].process.pid
    if what == "all of a site":
        federation.joined[site].kill()
        return True
    found = {
        "koncord run": [run.process.pid],
        "koncord join": [joined],
        "koncord serve": [federation.server.process.pid],
        "the copy that answers": list(descendants(joined)),
    }.get(what)
    if found is None:
        found = [pid for pid in descendants(federation.server.process.pid) if what in command_line(pid)]
    for pid in found[:1]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return bool(found)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def start_again(federation: Federation) -> None:
    """What systemd does with a service that has ended."""
    if federation.server.process.poll() is not None:
        federation.serve()
    for site in SITES:
        if federation.joined[site].process.poll() is not None:
            federation.join(site)


def is_same(federation: Federation, out: str) -> bool:
    ours, theirs = federation.model(out), federation.model("measured")
    return np.array_equal(ours.centers, theirs.centers) and np.array_equal(ours.holdings, theirs.holdings)


def checked_at_the_end(federation: Federation) -> dict[str, object]:
    """Whether every site still answers as at the beginning, and every ledger is whole."""
    run = federation.run("--out", "last", "--min-sites", len(SITES), *USUAL)
    last = run.end(RUN_WITHIN)
    for site in SITES:
        koncord(federation.folder, "ledger", "verify", f"state-{site}")
    return {"last_run": last, "is_equal": last == 0 and is_same(federation, "last"), "ledgers": "whole"}


def left_over(folder: str) -> list[str]:
    """Processes that have the folder in their command line and should be gone."""
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*") if entry.name != str(os.getpid())]
    return [line.replace("\0", " ")[:200] for line in lines if folder in line]


def table(rows: list[dict[str, object]]) -> str:
    lines = ["| killed | trials | ended with exit 0 | as undisturbed, to the bit | site missing, named | resumed |"]
    lines.append("|---|---|---|---|---|---|")
    for what in sorted({str(row["killed"]) for row in rows}):
        of = [row for row in rows if row["killed"] == what]
        counts = Counter(name for row in of for name in ("is_over", "is_equal") if row[name])
        named, resumed = sum(bool(row["missing"]) for row in of), sum(len(row["exits"]) > 1 for row in of)
        lines.append(f"| {what} | {len(of)} | {counts['is_over']} | {counts['is_equal']} | {named} | {resumed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
