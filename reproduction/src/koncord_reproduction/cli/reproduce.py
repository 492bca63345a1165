"""``koncord reproduce``: the tables and figures of the paper, made from data, with a verdict on every claim."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.errors import KoncordError

if TYPE_CHECKING:
    from koncord_reproduction.claims import Claim
    from koncord_reproduction.execute import Progress
    from koncord_reproduction.rows import Row, Run
    from koncord_reproduction.store import Store

NAME = "reproduce"
SUMMARY = "the tables and figures of the paper, with a verdict on every claim"
DESCRIPTION = """\
Make the tables and figures of the paper from data, and say of each of its claims whether ours agrees.

NAME is one of those that --list shows (default: all of them). A table is made from the runs of one or more
experiments, which --list shows too; --experiments makes only those it names, and the tuning runs they need. Every run
is one row of DIR/rows.csv, written when the run ends: a command that was stopped, however it was, goes on where it left
off and makes nothing twice. Data sets that are not on this machine are left out. Exit code 1 says that a run failed.
"""
EPILOG = """\
examples:
  koncord reproduce --list
  koncord reproduce federated-a federated-b --datasets waveform abalone --methods asm-s oracle --jobs 2
  koncord reproduce --seeds 42-44 --out three-seeds --json
  koncord reproduce --experiments pooled merge-sweep --datasets fmnist --out again
"""
AGAIN = ("failed", "timed-out")
# Seconds between two lines of progress where there is no terminal.
QUIET = 15.0


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord reproduce [NAME ...] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="table or figure")
    parser.add_argument("--list", action="store_true", help="say what can be made, from how many runs, and stop")
    group = parser.add_argument_group("which runs")
    group.add_argument(
        "--experiments",
        metavar="EXPERIMENT",
        nargs="+",
        default=[],
        help="kinds of runs, as --list names them (default: all)",
    )
    group.add_argument("--datasets", metavar="SET", nargs="+", default=[], help="data sets (default: all)")
    group.add_argument("--methods", metavar="METHOD", nargs="+", default=[], help="methods (default: all)")
    group.add_argument(
        "--seeds", metavar="SEEDS", type=seeds, help="evaluation seeds, as in 42-51 or 42,45 (default: 42-51)"
    )
    group.add_argument(
        "--again",
        metavar="STATUS",
        nargs="+",
        choices=AGAIN,
        default=[],
        help="make runs that ended so once more: failed, timed-out",
    )
    group.add_argument("--no-runs", action="store_true", help="make none: tables and figures of the rows there are")
    group = parser.add_argument_group("how and where")
    group.add_argument("--jobs", metavar="N", type=jobs, default=1, help="processes, one thread each (default: 1)")
    group.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("reproduction"),
        help="folder of the rows and of all that is made from them (default: reproduction)",
    )
    group.add_argument(
        "--rows",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="rows made elsewhere: their runs are not made again",
    )
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def seeds(text: str) -> list[int]:
    """Seeds of a list with ranges.

    >>> seeds("42-44,50")
    [42, 43, 44, 50]
    """
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        last = last or first
        if not first.isdecimal() or not last.isdecimal() or int(last) < int(first):
            raise argparse.ArgumentTypeError(f"must be seeds as in 42-51 or 42,45; got {text!r}")
        found += range(int(first), int(last) + 1)
    return list(dict.fromkeys(found))


def jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1; got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> None:
    from koncord_reproduction.plan import OUTPUTS
    from koncord_reproduction.rows import FAILED, TIMED_OUT, read_rows
    from koncord_reproduction.store import Store

    names = checked("NAME", args.names, tuple(OUTPUTS))
    if args.list:
        show_list(names, args)
        return
    wanted = wanted_runs(names, args)
    from koncord_reproduction.page import write

    known: dict[Run, Row] = {}
    for path in args.rows:
        known |= read_rows(path)
    with Store(args.out) as store:
        known |= store.rows
        if not args.no_runs:
            make(to_make(wanted, known, args.again), store, known, args.jobs)
        known |= store.rows
    ended = [known[run] for run in wanted if run in known]
    if not ended:
        raise KoncordError(
            f"Nothing can be made: there is no row of what was asked for, neither in '{args.out}' nor new."
        )
    claims = write(list(known.values()), args.out, names)
    failed, timed_out = (of_status(ended, status) for status in (FAILED, TIMED_OUT))
    if args.json:
        print(as_json(as_record(claims, ended, failed, timed_out, args.out)))
    else:
        print(as_text(claims, ended, failed, timed_out, args.out))
    if failed:
        raise KoncordError(f"{len(failed)} of {len(ended)} runs failed; make them again with --again failed.")


def checked(option: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """What is asked for, in the order of `known`; all of it if nothing is."""
    for name in given:
        if name not in known:
            raise ValueError(f"{option} must be of {', '.join(known)}; got {name!r}.")
    return tuple(name for name in known if name in given) if given else tuple(known)


def wanted_runs(names: Iterable[str], args: argparse.Namespace) -> "list[Run]":
    from koncord_reproduction.plan import DATASETS, EXPERIMENTS, plan
    from koncord_reproduction.protocol import EVALUATION_SEEDS, METHODS

    return plan(
        names,
        datasets=checked("--datasets", args.datasets, DATASETS),
        methods=checked("--methods", args.methods, METHODS),
        seeds=args.seeds or EVALUATION_SEEDS,
        experiments=checked("--experiments", args.experiments, tuple(EXPERIMENTS)),
    )


def show_list(names: Sequence[str], args: argparse.Namespace) -> None:
    from koncord_reproduction.tables import OUTPUTS

    together = wanted_runs(names, args)
    outputs = [
        {"name": name, "title": OUTPUTS[name].title, **amount(runs, args.jobs)}
        for name in names
        if (runs := wanted_runs([name], args))
    ]
    experiments = [
        {"name": name, **amount([run for run in together if run.experiment == name], args.jobs)}
        for name in sorted({run.experiment for run in together})
    ]
    total = amount(together, args.jobs)
    if args.json:
        print(as_json({"outputs": outputs, "experiments": experiments, **total}))
        return
    print(*map(listed_line, outputs), sep="\n")
    print("\nTheir runs, by experiment:", *map(listed_line, experiments), sep="\n")
    print(
        f"\nTogether {total['runs']} runs, as tables share them, about {how_long(total['seconds'])} "
        f"with --jobs {args.jobs}."
    )


def amount(runs: "Sequence[Run]", n_jobs: int) -> dict[str, int]:
    """How many runs there are, and roughly for how long."""
    from koncord_reproduction.plan import rough_seconds

    return {"runs": len(runs), "seconds": round(sum(map(rough_seconds, runs)) / n_jobs)}


def listed_line(item: Mapping[str, Any]) -> str:
    said = f"{item['name']:<21}{item['runs']:>5} runs, about {how_long(item['seconds']):<7} {item.get('title', '')}"
    return said.rstrip()


def to_make(wanted: "Iterable[Run]", known: "Mapping[Run, Row]", again: Iterable[str]) -> "list[Run]":
    """The runs that have no row, or one with a status that is to be made again."""
    repeated = {status.replace("-", " ") for status in again}
    return [run for run in wanted if run not in known or known[run].status in repeated]


def make(todo: "Sequence[Run]", store: "Store", known: "Mapping[Run, Row]", n_jobs: int) -> None:
    """Make the runs whose data are here."""
    from koncord_reproduction.execute import execute

    absent = without_data(todo)
    repeated = set(todo)
    execute(
        [run for run in todo if run.dataset not in absent],
        store,
        known={run: row for run, row in known.items() if run not in repeated},
        n_jobs=n_jobs,
        listen=Teller(),
    )


def without_data(todo: "Iterable[Run]") -> set[str]:
    """The data sets that are not on this machine; a sentence on stderr tells where to get each."""
    from koncord_reproduction.datasets import load
    from koncord_reproduction.protocol import SETS

    absent = set()
    for name in dict.fromkeys(run.dataset for run in todo if run.dataset in SETS):
        try:
            load(name)
        except KoncordError as error:
            absent.add(name)
            print(f"koncord: left out: {error}", file=sys.stderr)
    return absent


# --- what it tells ---


class Teller:
    """Tells the progress on stderr: on a terminal a line that is rewritten, elsewhere a line now and then."""

    def __init__(self) -> None:
        self.is_terminal = sys.stderr.isatty()
        self.told_at = -QUIET

    def __call__(self, progress: "Progress") -> None:
        for row in progress.ended:
            if not row.is_done:
                self._tell(problem_line(row), stays=True)
        is_over = progress.n_done == progress.n_all
        if self.is_terminal or is_over or monotonic() - self.told_at > QUIET:
            self.told_at = monotonic()
            self._tell(progress_line(progress), stays=is_over)

    def _tell(self, line: str, *, stays: bool) -> None:
        start, end = ("\r\x1b[K", "\n" if stays else "") if self.is_terminal else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)


def progress_line(progress: "Progress") -> str:
    said = f"{progress.n_done} of {progress.n_all} runs"
    if not progress.running:
        return said
    now = ", ".join(run.key for run in progress.running)
    return f"{said}, about {how_long(progress.seconds_left)} left, now {now}"


def how_long(seconds: float) -> str:
    """A time in words.

    >>> how_long(40), how_long(400), how_long(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def problem_line(row: "Row") -> str:
    return f"{row.run.key} {row.status}: {row.reason}"


def of_status(rows: "Iterable[Row]", status: str) -> "list[Row]":
    return [row for row in rows if row.status == status]


def as_record(
    claims: "Sequence[Claim]",
    ended: "Sequence[Row]",
    failed: "Sequence[Row]",
    timed_out: "Sequence[Row]",
    out: Path,
) -> dict[str, Any]:
    return {
        "claims": [
            {"name": claim.name, "paper": claim.paper, "ours": claim.ours, "verdict": claim.verdict} for claim in claims
        ],
        "verdicts": Counter(claim.verdict for claim in claims),
        "runs": len(ended),
        "failed": [problem_line(row) for row in failed],
        "timed_out": [problem_line(row) for row in timed_out],
        "out": str(out),
    }


def as_text(
    claims: "Sequence[Claim]",
    ended: "Sequence[Row]",
    failed: "Sequence[Row]",
    timed_out: "Sequence[Row]",
    out: Path,
) -> str:
    from koncord_reproduction.claims import NOT_RUN

    lines = [claim_line(claim) for claim in claims if claim.verdict != NOT_RUN]
    counts = Counter(claim.verdict for claim in claims)
    lines += ["", "claims: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())]
    lines += [f"runs: {len(ended)}, {len(failed)} failed, {len(timed_out)} timed out"]
    lines += [f"  {problem_line(row)}" for row in (*failed, *timed_out)]
    return "\n".join([*lines, f"tables and figures: {out}"])


def claim_line(claim: "Claim") -> str:
    paper, ours = number(claim.paper, claim.paper_half), number(claim.ours, claim.ours_half)
    return f"{claim.name:<48} paper {paper:<16} ours {ours:<16} {claim.verdict}"


def number(value: float | str | None, half: float | None) -> str:
    """A number with its half-width, or a text as it is.

    >>> number(0.25831, 0.0112), number(28, None), number("yes", None), number(None, None)
    ('0.258 +- 0.011', '28', 'yes', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if half is None else f"{value:.3f} +- {half:.3f}"
