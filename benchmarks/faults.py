"""Kill processes of a federation at random moments, start again what ended, and see what becomes of the run.

A coordinator and three sites with TLS on this machine. Every trial begins a run, kills one process (SIGKILL) at some
random moment of it, starts again what ended, as systemd would, and resumes the run until it ends with exit code 0. A
process that is not there at that moment is killed as soon as it is; where the run was over before, the trial is made
again. The model must be that of an undisturbed run to the
last bit, or name who was missing; every site that was not missing at the end must have its labels. After every trial
the sites must be connected again and no process may be left that nobody waits for; at the end every site must answer.

    python benchmarks/faults.py                        # 40 trials, seed 0: about 20 minutes on a quiet machine
    python benchmarks/faults.py --trials 5 --seed 3 --out faults.jsonl
    python benchmarks/faults.py --show faults.jsonl    # the table, as docs/network.md has it

Every trial is a JSON line of `--out`, and so is what was found at the end.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from koncord.network.processes import children, command_line
from koncord.network.runstate import read_states
from network.federation import ROWS, SITES, USUAL, Command, Federation, descendants

# What is killed: a command, or a process that one started, by a word of its command line.
AT_SITES = ("koncord join", "the copy that answers", "all of a site")
AT_COORDINATOR = ("koncord run", "koncord serve", "flower-superlink", "nginx")
MOST_RESUMES = 6
RUN_WITHIN = 900.0  # seconds: a run that takes longer hangs
IS_THERE_EVERY = 0.005
GONE_WITHIN = 30.0
READY_WITHIN = 300.0
MOST_TRIED, SHORTER = 4, 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=AT_SITES + AT_COORDINATOR, help="kill this and nothing else")
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"), help="one JSON line a trial, appended")
    parser.add_argument(
        "--show", type=Path, metavar="FILE", help="print the table of stored lines, and do nothing else"
    )
    args = parser.parse_args()
    if args.show:
        print(show(rows_of(args.show)))
        return
    rng = random.Random(args.seed)
    with TemporaryDirectory(prefix="koncord-faults-") as name:
        federation = Federation(Path(name))
        try:
            federation.serve().invite().join().wait_joined()
            began = time.monotonic()
            federation.measure()
            length = time.monotonic() - began
            print(f"ready; an undisturbed run takes {length:.0f} s", flush=True)
            number = 0
            for n_tried in range(1, MOST_TRIED * args.trials + 1):
                row = trial(federation, n_tried, rng, length, args.only)
                if row is None:
                    length *= SHORTER
                    continue
                number += 1
                note(args.out, {"seed": args.seed, "trial": number, "tree": tree(), **row})
                if number == args.trials:
                    break
            verdict = checked_at_the_end(federation)
        finally:
            federation.stop()
        note(args.out, {"seed": args.seed, "trials": args.trials, **verdict, "orphans": left_over(name)})


def tree() -> str:
    """The commit that is tried."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def note(out: Path, row: dict[str, object]) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def trial(
    federation: Federation, number: int, rng: random.Random, length: float, only: str | None
) -> dict[str, object] | None:
    """What became of one run; None if it was over before anything was killed."""
    what, site, moment = rng.choice(AT_SITES + AT_COORDINATOR), rng.choice(SITES), rng.uniform(0, length)
    what = only or what
    out = f"trial-{number}"
    began = time.monotonic()
    run = federation.run("--out", out, "--min-sites", "2", "--round-timeout", "60", *USUAL)
    time.sleep(moment)
    if not kill_when_there(federation, run, what, site):
        ended(federation, run)
        settle(federation)
        return None
    exits = []
    for _ in range(MOST_RESUMES):
        exits.append(ended(federation, run))
        if exits[-1] == 0:
            break
        # A run that was killed before it had begun is simply begun.
        begun = (federation.folder / out / "resume.json").exists()
        more = ("--resume",) if begun else USUAL
        run = federation.run("--out", out, "--min-sites", "2", "--round-timeout", "60", *more)
    settle(federation)
    is_over = exits[-1] == 0
    return {
        "killed": what,
        "site": site if what in AT_SITES else None,
        "after": round(moment, 1),
        "exits": exits,
        "is_over": is_over,
        "is_equal": is_over and is_same(federation, out),
        "missing": [list(each) for each in missing_of(federation, out)] if is_over else None,
        "without_labels": without_labels(federation, out) if is_over else None,
        "orphans": orphans(federation),
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def ended(federation: Federation, run: Command) -> int | None:
    """The exit code of a run, while what ended is started again; None if it hung, and was ended."""
    end = time.monotonic() + RUN_WITHIN
    while run.process.poll() is None:
        if time.monotonic() > end:
            run.kill()
            return None
        start_again(federation)
        time.sleep(0.3)
    start_again(federation)
    return int(run.process.returncode)


def settle(federation: Federation) -> None:
    """Wait until all sites are connected; what was killed may be noticed, and start again, only now."""
    end = time.monotonic() + READY_WITHIN
    while True:
        start_again(federation)
        if all(federation.joined[site].is_joined for site in SITES) and is_served(federation):
            return
        if time.monotonic() > end:
            raise SystemExit(f"the sites are not back within {READY_WITHIN:g} s")
        time.sleep(0.5)


def is_served(federation: Federation) -> bool:
    """Whether Flower and nginx both run."""
    below = [command_line(pid) for pid in descendants(federation.server.process.pid)]
    return all(any(word in line for line in below) for word in ("flower-superlink", "nginx"))


def kill_when_there(federation: Federation, run: Command, what: str, site: str) -> bool:
    """Kill one process as soon as it is there; whether it was before the run ended."""
    while run.process.poll() is None:
        if kill(federation, run, what, site):
            return True
        time.sleep(IS_THERE_EVERY)
    return False


def kill(federation: Federation, run: Command, what: str, site: str) -> bool:
    joined = federation.joined[site].process.pid
    if what == "all of a site":
        federation.joined[site].kill()
        return True
    if what in ("koncord run", "koncord join", "koncord serve"):
        found = [
            {"koncord run": run, "koncord serve": federation.server}.get(what, federation.joined[site]).process.pid
        ]
    elif what == "the copy that answers":
        found = children(joined)
    else:
        found = [pid for pid in descendants(federation.server.process.pid) if what in command_line(pid)]
    for pid in found[:1]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return bool(found)


def missing_of(federation: Federation, out: str) -> list[tuple[str, int, str]]:
    return [(each["site"], each["exchange"], each["reason"]) for each in federation.model(out).info["missing"]]


def without_labels(federation: Federation, out: str) -> list[str]:
    """Sites that have no label for each of their rows, although they were not missing when labels were made."""
    model = federation.model(out)
    at_the_end = {site for site, exchange, _ in missing_of(federation, out) if exchange == model.session.exchanges}
    run = run_of(federation, out)
    found = []
    for site in set(SITES) - at_the_end:
        path = federation.folder / f"state-{site}" / "runs" / run / "labels.csv"
        if not path.exists() or len(path.read_text().splitlines()) != ROWS + 1:
            found.append(site)
    return sorted(found)


def run_of(federation: Federation, out: str) -> str:
    """What the run is called."""
    path = str((federation.folder / out).resolve())
    return next(state.run for state in read_states(federation.folder / "coordinator") if state.out == path)


def orphans(federation: Federation) -> list[str]:
    """Processes in the folder of the federation that are of no command that runs, and do not end by themselves."""
    end = time.monotonic() + GONE_WITHIN
    while True:
        known = descendants(os.getpid())
        found = [line for pid, line in of_folder(str(federation.folder)) if pid not in known]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.5)


def of_folder(folder: str) -> list[tuple[int, str]]:
    """Processes that work in a folder or have it in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        line = command_line(pid)
        try:
            place = str((entry / "cwd").readlink())
        except OSError:
            continue
        if pid != os.getpid() and (folder in line or place.startswith(folder)):
            found.append((pid, line[:200]))
    return found


def start_again(federation: Federation) -> None:
    """What systemd does with a service that has ended."""
    while federation.server.process.poll() is not None:
        with suppress(AssertionError):  # it did not start in time, and systemd would try again
            federation.serve()
    for site in SITES:
        if federation.joined[site].process.poll() is not None:
            federation.join(site)


def is_same(federation: Federation, out: str) -> bool:
    ours, theirs = federation.model(out), federation.model("measured")
    return np.array_equal(ours.centers, theirs.centers) and np.array_equal(ours.holdings, theirs.holdings)


def checked_at_the_end(federation: Federation) -> dict[str, object]:
    """Whether every site still answers as at the beginning."""
    run = federation.run("--out", "last", "--min-sites", len(SITES), *USUAL)
    last = run.end(RUN_WITHIN)
    return {"last_run": last, "is_equal": last == 0 and is_same(federation, "last")}


def left_over(folder: str) -> list[str]:
    """What should be gone."""
    return [line for _, line in of_folder(folder)]


# --- the page ---


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(rows: list[dict[str, Any]]) -> str:
    """The table of what became of the trials, by what was killed."""
    trials = [row for row in rows if "killed" in row]
    lines = [
        "| killed (SIGKILL) | trials | before the run was over | resumed | ended with exit code 0 | "
        "model as undisturbed, to the bit | else: who was missing is named |",
        "|---|---|---|---|---|---|---|",
    ]
    *earlier, last = dict.fromkeys(row["tree"] for row in trials if "tree" in row)
    now = [row for row in trials if row.get("tree") == last]
    kinds = sorted({row["killed"] for row in now}, key=(AT_SITES + AT_COORDINATOR).index)
    lines += [line_of(what, [row for row in now if row["killed"] == what]) for what in kinds]
    lines += [line_of(f"all, commit {last}", now)]
    lines += [line_of(f"all, commit {tree}", [row for row in trials if row.get("tree") == tree]) for tree in earlier]
    before = [row for row in trials if "tree" not in row]
    return "\n".join([*lines, line_of("all, when Flower still started a program a run", before)])


def line_of(what: str, rows: list[dict[str, Any]]) -> str:
    counts = (
        len(rows),
        sum(not was_over(row) for row in rows),
        sum(len(row["exits"]) > 1 for row in rows),
        sum(row["is_over"] for row in rows),
        sum(row["is_equal"] for row in rows),
        sum(bool(row["is_over"] and not row["is_equal"] and row["missing"]) for row in rows),
    )
    return f"| {what} | " + " | ".join(map(str, counts)) + " |"


def was_over(row: dict[str, Any]) -> bool:
    """Whether the run had ended before the kill, as some of the first trials have it."""
    return not row.get("was_there", True) or (row["exits"] == [0] and row["seconds"] - row["after"] < 1.0)


if __name__ == "__main__":
    main()
