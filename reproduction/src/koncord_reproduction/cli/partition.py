"""``koncord partition FILE``: a labeled table dealt out to sites, to try a federation on one's own data."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._progress import report, reporting
from koncord.cli.options import names, seed
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.progress import ProgressBar

if TYPE_CHECKING:
    from koncord.types import IntArray
    from koncord_reproduction.labeled import LabeledTable

NAME = "partition"
SUMMARY = "deal a labeled table out to sites, as the paper does"
DESCRIPTION = """\
Deal the rows of one labeled table out to files, one a site, so that every site holds some of the classes, none holds
all and each class is at two sites or more: the two client partitions of the paper.

A site's file has the columns of FILE without the label, as koncord fit reads it. The labels are in a folder of their
own, in the same order; they are there to score what is found. Values are copied as they are written.
"""
EPILOG = """\
examples:
  koncord partition flowers.csv --label species --clients 5 --out sites
  koncord partition flowers.csv --label species --clients 5 --regime B --seed 42 --out sites --force --json

then:
  koncord fit sites/*.csv --out run
"""
LABELS, RECORD = "labels", "partition.json"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord partition FILE --label COL --clients G --out DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the table: CSV, TSV or Parquet")
    parser.add_argument("--label", metavar="COL", required=True, help="column with the class of every row")
    parser.add_argument("--drop", metavar="A,B", type=names, action="extend", default=[], help="columns to leave out")
    group = parser.add_argument_group("partition")
    group.add_argument("--clients", metavar="G", type=int, required=True, help="number of sites, at least 2")
    group.add_argument(
        "--regime",
        choices=("A", "B"),
        default="A",
        help="A: each class in equal parts to its sites, every row used; B: the same classes, but sizes that say "
        "nothing about their number (default: A)",
    )
    group.add_argument("--seed", metavar="N", type=seed, default=0, help="of everything drawn at random (default: 0)")
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the files of the sites")
    group.add_argument("--force", action="store_true", help="replace the folder if it is there, once all is done")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if args.clients < 2:
        raise ValueError(f"--clients must be at least 2; got {args.clients}.")
    from koncord.runs.folder import check_folder, whole_folder
    from koncord_reproduction.labeled import check_classes, read_labeled
    from koncord_reproduction.partitions import partition

    target = check_folder("--out", args.out, replaces=args.force, keeps=[args.file])
    with ProgressBar() as bar, reporting(bar):
        report(0.0, f"reading {args.file.name}")
        labeled = read_labeled(args.file, args.label, args.drop)
        check_classes(labeled, args.label, args.file)
        parts = dict(
            zip(site_names(args.clients), partition(labeled.y, args.clients, args.regime, args.seed), strict=True)
        )
        record = partition_record(args, labeled, parts)
        with whole_folder(target, replaces=args.force) as folder:
            (folder / LABELS).mkdir()
            for done, (site, rows) in enumerate(parts.items()):
                report(0.5 + 0.5 * done / len(parts), f"writing {site}")
                labeled.write(rows, folder / site, folder / LABELS / site)
            (folder / RECORD).write_text(as_json(record) + "\n", encoding="utf-8")
    if args.json:
        print(as_json({**record, "out": str(args.out), "files": files_of(args.out, parts, labeled)}))
    else:
        print(partition_text(record, args.out, labeled.suffix))


def site_names(n: int) -> list[str]:
    """Names that sort in their order."""
    return [f"site-{at:0{len(str(n))}}" for at in range(1, n + 1)]


def partition_record(args: argparse.Namespace, labeled: "LabeledTable", parts: "dict[str, IntArray]") -> dict[str, Any]:
    """What was asked and what each site got."""
    import numpy as np

    counts = {site: np.bincount(labeled.y[rows], minlength=len(labeled.classes)) for site, rows in parts.items()}
    return {
        "file": args.file.name,
        "label": args.label,
        "n_clients": args.clients,
        "regime": args.regime,
        "seed": args.seed,
        "rows": len(labeled.y),
        "rows_used": sum(len(rows) for rows in parts.values()),
        "classes": list(labeled.classes),
        "sites": {
            site: {
                "rows": len(rows),
                "classes": {name: n for name, n in zip(labeled.classes, counts[site].tolist(), strict=True) if n},
            }
            for site, rows in parts.items()
        },
    }


def files_of(folder: Path, parts: "dict[str, IntArray]", labeled: "LabeledTable") -> dict[str, dict[str, str]]:
    return {
        site: {
            "table": str(folder / f"{site}{labeled.suffix}"),
            "labels": str(folder / LABELS / f"{site}{labeled.suffix}"),
        }
        for site in parts
    }


def partition_text(record: dict[str, Any], folder: Path, suffix: str) -> str:
    from koncord._words import counted, joined, text_table
    from koncord_reproduction.partitions import SMALLEST_CLIENT

    sites = record["sites"]
    small = [site for site, held in sites.items() if held["rows"] < SMALLEST_CLIENT]
    table = text_table(
        ("site", "rows", "classes", ""),
        [
            (site, f"{held['rows']:,}", str(len(held["classes"])), joined(list(held["classes"])))
            for site, held in sites.items()
        ],
    )
    lines = [
        f"{record['file']}: {counted(len(record['classes']), 'class', 'classes')} of {record['label']!r} dealt to "
        f"{counted(len(sites), 'site')} (regime {record['regime']}, seed {record['seed']})",
        "",
        table,
        "",
        f"rows used: {record['rows_used']:,} of {record['rows']:,}",
    ]
    if small:
        lines.append(
            f"small:     {joined(small)} below {SMALLEST_CLIENT} rows, which the paper's clients have at least"
        )
    return "\n".join([*lines, f"written:   {folder}", f"next:      koncord fit {folder}/*{suffix} --out run"])
