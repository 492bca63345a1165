"""Build reproduction/docs/reproduction.md, and the claims and figures beside it, from stored rows.

python reproduction/scripts/reproduction_page.py --rows part/rows.csv  # keep these rows, and build
python reproduction/scripts/reproduction_page.py                       # build from the rows that are kept
python reproduction/scripts/reproduction_page.py --check               # exit 1 and say what is stale
"""

import argparse
import difflib
import sys
from collections import Counter
from pathlib import Path

from koncord_reproduction.page import BESIDE, Report, docs_texts, figures_of, put, write_docs
from koncord_reproduction.rows import Row, Run, as_text, read_rows

DOCS = Path(__file__).parent.parent / "docs"
MOST_LINES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", nargs="+", help="rows to keep; of a run the last one counts"
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--docs", type=Path, metavar="DIR", default=DOCS, help="folder of the page (default: reproduction/docs)"
    )
    args = parser.parse_args()
    kept = args.docs / BESIDE / "rows.csv"
    if not args.rows and not kept.exists():
        sys.exit(f"There are no rows in '{kept}'; give those of a run of koncord reproduce with --rows.")
    if args.check:
        stale = differences(args.docs, list(read_rows(kept).values()))
        sys.exit(f"{stale}\nThe page is stale; run {sys.argv[0]} and look at what moved." if stale else 0)
    if args.rows:
        rows: dict[Run, Row] = {}
        for path in args.rows:
            rows |= read_rows(path)
        put(kept, as_text(rows.values()).encode())
    claims = write_docs(read_rows(kept).values(), args.docs)
    print(dict(Counter(claim.verdict for claim in claims)))


def differences(docs: Path, rows: list[Row]) -> str:
    """What the stored rows say and the files do not, in short; empty if they agree."""
    report = Report(rows)
    figures = figures_of(report)
    told = []
    for path, wanted in docs_texts(report, list(figures)).items():
        there = (docs / path).read_text(encoding="utf-8") if (docs / path).exists() else ""
        lines = list(
            difflib.unified_diff(there.splitlines(), wanted.splitlines(), str(path), "made from the rows", n=0)
        )
        if lines or there != wanted:
            rest = [f"... and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
            told += [*(line[:200].rstrip() for line in lines[:MOST_LINES]), *rest]
    names = {f"{name}.{kind}" for name in figures for kind in ("png", "svg")}
    stored = {path.name for path in (docs / BESIDE / "figures").glob("*")}
    told += [
        f"figure {name} is {'missing' if name in names else 'not of these rows'}" for name in sorted(names ^ stored)
    ]
    return "\n".join(told)


if __name__ == "__main__":
    main()
