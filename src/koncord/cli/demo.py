"""``koncord demo``: the whole pipeline on built-in data, five sites, in seconds."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from koncord._progress import part, report, reporting
from koncord.cli.output import as_json
from koncord.cli.progress import ProgressBar
from koncord.prepare.settings import Preparation
from koncord.session.policy import SitePolicy

if TYPE_CHECKING:
    from koncord.data.files import Table
    from koncord.types import FloatArray, IntArray

NAME = "demo"
SUMMARY = "the whole pipeline on built-in data, five sites"
DESCRIPTION = """\
Waveform (Breiman et al. 1984), 5,000 rows of three classes, generated here. 70 % of the rows are dealt to five sites,
each of which gets two of the three classes; no site and no server knows how many there are. The
other rows, which took no part, measure how well the clusters that were found agree with the classes.
"""
EPILOG = """\
examples:
  koncord demo
  koncord demo --out my-demo --json
"""
# The paper's protocol for Waveform: five clients, partition A.
SEED, N_SITES, HELD_OUT = 42, 5, 0.3
SITES = "sites"  # folder of the tables, for the reader to try


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        NAME,
        help=SUMMARY,
        usage="koncord demo [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("koncord-demo"),
        help="folder for all it writes, replaced if a demo wrote it before (default: koncord-demo)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from sklearn.metrics import adjusted_rand_score

    import koncord
    from koncord.report.federation import as_text
    from koncord.report.page import page
    from koncord.runs.folder import MODEL, PAGE, check_folder, whole_folder, write_run
    from koncord.runs.record import Truth
    from koncord.session import federation
    from koncord.session.inprocess import in_process

    target = check_folder("--out", args.out, replaces=is_own(args.out))
    with ProgressBar() as bar, reporting(bar):
        tables, classes, held_out, held_out_classes = five_sites()
        with part(0.0, 0.95, "fitting"):
            estimator, aggregator = koncord.ASM(), koncord.Consensus()
            rows = {table.name: (table.X, table.columns) for table in tables}
            result = federation.run(
                in_process(rows, estimator=estimator, aggregator=aggregator),
                aggregator,
                estimator=estimator,
                seed=SEED,
                standardize=True,
                preparation=Preparation(),
                site_policy=SitePolicy(),
                estimator_name="asm",
                files={table.name: f"{SITES}/{table.name}.csv" for table in tables},
            )
        model = result.model
        ari = float(adjusted_rand_score(held_out_classes, model.predict(held_out)))
        true_counts = {table.name: len(set(y.tolist())) for table, y in zip(tables, classes, strict=True)}
        n_true = len(set(held_out_classes.tolist()))
        truth = Truth(n_clusters=n_true, ari=ari, rows=len(held_out), local_counts=true_counts)
        record = replace(result.record, truth=truth)
        report(0.95, f"writing {args.out}")
        with whole_folder(target, replaces=True) as folder:
            ordered = {table.name: model.rows(table) for table in tables}
            write_run(folder, model, record, page(model, record), ordered)
            write_tables(folder / SITES, tables)
    written = args.out / PAGE
    if args.json:
        found = {
            "n_clusters": model.n_clusters,
            "true_clusters": n_true,
            "ari": ari,
            "local_counts": list(model.local_counts),
            "true_local_counts": list(true_counts.values()),
            "report": str(written),
            "model": str(args.out / MODEL),
            "out": str(args.out),
            "seconds": round(record.seconds, 3),
        }
        print(as_json(found))
        return
    print(
        f"Waveform, {len(held_out)} rows held out; no site knew any count.\n\n"
        f"{as_text(model, record)}\n\n"
        f"known: {n_true} classes, at the sites {', '.join(map(str, true_counts.values()))}\n"
        f"adjusted Rand index on the held-out rows: {ari:.3f} (1 is perfect agreement, 0 is chance)\n\n"
        f"report:  {written}\n"
        f"next:    {own_command()} fit {args.out / SITES}/*.csv --out my-run"
    )


def own_command() -> str:
    """How this program is called: by its name if the shell finds it, else by the path it was started with."""
    return "koncord" if which("koncord") else sys.argv[0]


def is_own(folder: Path) -> bool:
    """Whether a demo wrote the folder, so that the next one may replace it."""
    from koncord.runs.folder import LABELS, MODEL, PAGE, RECORD

    return folder.is_dir() and {path.name for path in folder.iterdir()} == {MODEL, PAGE, RECORD, LABELS, SITES}


def five_sites() -> "tuple[list[Table], list[IntArray], FloatArray, IntArray]":
    """The tables of the sites, the classes of their rows, and the rows that take no part with theirs."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from koncord.data.files import Table, numbered
    from koncord.data.partitions import partition
    from koncord.data.waveform import waveform

    X, y = waveform()
    X = np.round(X, 2)  # as UCI distributes it
    train, test = train_test_split(np.arange(len(y)), test_size=HELD_OUT, stratify=y, random_state=SEED)
    parts = [train[rows] for rows in partition(y[train], N_SITES, regime="A", seed=SEED)]
    columns = tuple(numbered(X.shape[1]))
    tables = [Table(X=X[rows], columns=columns, name=f"site-{at}") for at, rows in enumerate(parts, start=1)]
    return tables, [y[rows] for rows in parts], X[test], y[test]


def write_tables(folder: Path, tables: "list[Table]") -> None:
    import numpy as np

    folder.mkdir()
    for table in tables:
        header = ",".join(table.columns)
        np.savetxt(folder / f"{table.name}.csv", table.X, fmt="%.2f", delimiter=",", header=header, comments="")
