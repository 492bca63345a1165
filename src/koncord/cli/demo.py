"""``koncord demo``: the whole pipeline on built-in data whose classes are known, in seconds."""

import argparse
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from koncord._progress import part, report, reporting
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar

if TYPE_CHECKING:
    from koncord.data.islands import Penguins

NAME = "demo"
SUMMARY = "the whole pipeline on penguins of three islands, with their species beside it"
DESCRIPTION = """\
Run both phases on tables that come with koncord, and compare the clusters with the species, which no site and no server
used: 342 penguins of three islands, three species; two islands hold two of them, one holds one (Gorman et al. 2014,
CC0).
"""
EPILOG = """\
examples:
  koncord demo
  koncord demo --out my-demo --json
"""
ABOUT = "Palmer penguins: bill, flipper and body mass of 342 birds on three islands."
SITES = "sites"  # folder of the tables, for the reader to try


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord demo [options]", description=DESCRIPTION, epilog=EPILOG
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
    from koncord.data.files import Table
    from koncord.data.islands import penguins
    from koncord.report.demonstration import bytes_by_site
    from koncord.report.demonstration import demonstration_text as about_classes
    from koncord.report.federation import federation_text
    from koncord.report.page import page
    from koncord.runs.assignments import counting, labeled
    from koncord.runs.folder import MODEL, PAGE, check_folder, whole_folder, write_run, write_site_labels
    from koncord.session.demonstration import demonstrate

    target = check_folder("--out", args.out, replaces=is_own(args.out))
    with ProgressBar() as bar, reporting(bar):
        shown = penguins()
        with part(0.0, 0.95, "fitting"):
            result = demonstrate(shown, {site: f"{SITES}/{site}.csv" for site in shown.tables})
        model, record = result.model, result.record
        report(0.95, f"writing {args.out}")
        tables = [Table(name=site, X=X, columns=shown.columns) for site, X in shown.tables.items()]
        labels = {table.name: labeled(model, table) for table in tables}
        with whole_folder(target, replaces=True) as folder:
            record = counting(record, write_site_labels(folder, model, labels))
            write_run(folder, model, record, page(model, record))
            write_tables(folder / SITES, shown)
    truth = record.truth
    assert truth is not None
    if args.json:
        found = {
            "n_clusters": model.n_clusters,
            "true_clusters": truth.n_clusters,
            "ari": truth.ari,
            "ari_at_true_clusters": truth.ari_at_k,
            "pooled_kmeans_ari": truth.pooled_ari,
            "local_counts": list(model.local_counts),
            "true_local_counts": list(truth.local_counts.values()),
            "classes": [asdict(each) for each in truth.crossings],
            "sent_bytes": {site: n_bytes for site, (_, n_bytes) in bytes_by_site(record, model.sites).items()},
            "report": str(args.out / PAGE),
            "model": str(args.out / MODEL),
            "out": str(args.out),
            "seconds": round(record.seconds, 3),
        }
        print(as_json(found))
        return
    print(
        f"{ABOUT}\n\n{federation_text(model, record)}\n\n{about_classes(model, record)}\n\n"
        f"report:  {args.out / PAGE}\n"
        f"next:    {own_command()} fit {shlex.quote(str(args.out / SITES))}/*.csv --out my-run\n"
        f"{about_path()}"
    )


def own_command() -> str:
    """How this program is called: by its name if the shell finds it, else by the path it was started with."""
    return "koncord" if is_on_path() else shlex.quote(sys.argv[0])


def about_path() -> str:
    """How to get the command on PATH, where it is not."""
    if is_on_path():
        return ""
    activate = Path(sys.argv[0]).with_name("activate")
    folder = shlex.quote(str(Path(sys.argv[0]).resolve().parent))
    how = f". {shlex.quote(str(activate))}" if activate.is_file() else f'export PATH={folder}:"$PATH"'
    return f"         for 'koncord' on PATH: {how}\n"


def is_on_path() -> bool:
    """Whether the shell finds this program, and no other one, by its name."""
    found = which("koncord")
    return found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve()


def is_own(folder: Path) -> bool:
    """Whether a demo wrote the folder, so that the next one may replace it."""
    from koncord.runs.folder import LABELS, MODEL, PAGE, RECORD

    return folder.is_dir() and {path.name for path in folder.iterdir()} == {MODEL, PAGE, RECORD, LABELS, SITES}


def write_tables(folder: Path, shown: "Penguins") -> None:
    import numpy as np

    folder.mkdir()
    for site, table in shown.tables.items():
        written = folder / f"{site}.csv"
        np.savetxt(written, table, fmt="%.1f", delimiter=",", header=",".join(shown.columns), comments="")
