"""python -m gate quick | full [--only SECTION ...] [--update | --store NAME] [--report]"""

import os

os.environ |= {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from gate.accuracy import accuracy
from gate.lines import LAST, Line, table, write_figures
from gate.size import size
from gate.speed import speed
from gate.steadiness import steadiness
from gate.suite import suite

SECTIONS = ("accuracy", "steadiness", "speed", "suite", "size")
ROWS = Path(__file__).parents[1] / "build" / "gate"


def main() -> int:
    parser = argparse.ArgumentParser(prog="gate", description="Whether a change made koncord better or worse.")
    parser.add_argument("part", choices=("quick", "full"), nargs="?", default="quick")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure")
    parser.add_argument("--update", action="store_true", help="store the figures as those of the last commit")
    parser.add_argument("--store", metavar="NAME", help="store them by another name, as ce43024")
    parser.add_argument("--report", action="store_true", help="exit 0 whatever fell")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    start = perf_counter()
    lines, rows = measure(args.part == "full", args.only, args.workers)
    ROWS.mkdir(parents=True, exist_ok=True)
    (ROWS / f"{args.part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    text, fallen = table(args.part, lines)
    print(text)
    print(f"{args.part}: {(perf_counter() - start) / 60:.1f} minutes; {len(fallen)} lines fell")
    if args.update or args.store:
        write_figures(args.part, args.store or LAST, lines)
    return int(bool(fallen) and not args.report)


def measure(is_full: bool, sections: tuple[str, ...], n_workers: int) -> tuple[list[Line], list[Any]]:
    lines: list[Line] = []
    rows: list[Any] = []
    steps: dict[str, Callable[[], list[Line]]] = {"size": size, "suite": lambda: suite(say)}
    steps["speed"] = lambda: speed(is_full, say)
    with ProcessPoolExecutor(n_workers) as pool:
        steps["accuracy"] = lambda: accuracy(is_full, pool, rows, say)
        steps["steadiness"] = lambda: steadiness(is_full, pool, rows, say)
        for section in (each for each in SECTIONS if each in sections):
            named = section if section != "suite" else ""
            lines += [replace(line, name=f"{named}: {line.name}" if named else line.name) for line in steps[section]()]
    return lines, rows


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
