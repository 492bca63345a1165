"""``koncord ledger [verify] FILE|DIR``: what left a site, message by message, and whether the ledger is as it was."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.protocol.chain import Verify
    from koncord.protocol.ledger import Entry

NAME = "ledger"
SUMMARY = "what left a site, message by message"
DESCRIPTION = """\
Show the ledger of a site: one line for each message, noted before it left. The shape of a field tells how many numbers
it held; a lone number has none. A question that was refused has the reason, which stayed here; what left is a sentence
that tells nothing of the rows. With a folder, the ledgers of all sites in it.

koncord ledger verify holds every line against its neighbors, the signature of the site's key, the head beside the
ledger and, with --receipts, what a coordinator kept of it; a line that was changed, or is missing, is named, and the
exit code is 1. With the folder of a run over a network (koncord run --out), the receipts in it are held against the
keys that its coordinator (--folder) registered, and against the replies that the run has.
"""
EPILOG = """\
examples:
  koncord fit north.csv south.csv west.csv --out run --ledger ledgers
  koncord ledger ledgers/north.ledger.jsonl
  koncord ledger ledgers --json
  koncord ledger verify koncord-site-north
  koncord ledger verify koncord-site-north --receipts receipts.jsonl
  koncord ledger verify run --folder koncord-coordinator
"""

DIGEST_DIGITS = 16  # of a SHA-256 that are shown
VERIFY_WORDS = 2


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        SUMMARY,
        usage="koncord ledger [verify] FILE|DIR [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument(
        "words", metavar="[verify] FILE|DIR", nargs="+", help="a ledger, a folder with one a site, or that of a run"
    )
    group = parser.add_argument_group("verify")
    group.add_argument("--key", metavar="FILE", type=Path, help="public keys of the site (default: NAME.pub beside it)")
    group.add_argument("--receipts", metavar="FILE", type=Path, help="receipts that a coordinator kept of the site")
    add_folder_option(group)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from koncord.protocol.ledger import ledger_files, read_ledger

    is_verified = len(args.words) == VERIFY_WORDS and args.words[0] == "verify"
    if len(args.words) > 1 and not is_verified:
        raise ValueError(f"koncord ledger takes one FILE or DIR, or verify before it; got {' '.join(args.words)}.")
    path = Path(args.words[-1])
    if is_verified:
        verify(args, path)
        return
    if args.key is not None or args.receipts is not None:
        raise ValueError("--key and --receipts go with koncord ledger verify.")
    entries = [entry for each in ledger_files(path) for entry in read_ledger(each)]
    print(as_json(ledger_record(entries)) if args.json else ledger_text(entries))


def verify(args: argparse.Namespace, path: Path) -> None:
    """Print what became of every ledger, or of the receipts of a run; `KoncordError` names the first problem."""
    from koncord.errors import KoncordError
    from koncord.network.begun import RECEIPTS
    from koncord.protocol.ledger import SUFFIX, ledger_files

    if (path / RECEIPTS).is_file():
        found = [verified_receipts(args, path / RECEIPTS)]
    else:
        found = [verified_ledger(args, each, each.name.removesuffix(SUFFIX)) for each in ledger_files(path)]
    problems = [f"{each['file']}: {problem}" for each in found for problem in each["problems"]]
    if args.json:
        print(as_json({"ledgers": found, "is_whole": not problems}))
    else:
        print("\n".join(verdict_lines(found)))
    if problems:
        raise KoncordError(f"{problems[0]}." + (f" And {len(problems) - 1} more." if problems[1:] else ""))


def verified_ledger(args: argparse.Namespace, path: Path, site: str) -> dict[str, Any]:
    from koncord.protocol.chain import read_receipts, verified

    keys = public_keys(args.key or path.with_name(f"{site}.pub"), is_asked=args.key is not None)
    receipts = [] if args.receipts is None else read_receipts(args.receipts, site)
    verdict = verified(path, keys, receipts)
    return {
        "file": str(path),
        "lines": verdict.n_lines,
        "signed": verdict.n_signed,
        "before_the_chain": verdict.n_before,
        "receipts": len(receipts),
        "problems": list(verdict.problems),
        "notes": list(verdict.notes),
    }


def public_keys(path: Path, *, is_asked: bool) -> "Verify | None":
    """Whether one of the keys in a file signed some bytes; None where there is no such file."""
    if not path.exists() and not is_asked:
        return None
    from koncord.network.certificates import is_signed, public_key

    keys = [line.encode() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    try:
        for key in keys:
            public_key(key)
    except ValueError as error:
        raise ValueError(f"'{path}' is {error}") from error
    return lambda data, signature: any(is_signed(key, data, signature) for key in keys)


def verified_receipts(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Whether the receipts of a run are all there, and of the keys that its coordinator registered."""
    from functools import partial

    from koncord.network.certificates import is_signed
    from koncord.network.places import Coordinator
    from koncord.protocol.chain import kept_problems, read_receipts

    registered = Coordinator.load(args.folder).registered()
    keys = {site.name: partial(is_signed, site.public.encode()) for site in registered if site.public}
    receipts = read_receipts(path)
    came, notes = replies_of(path.parent)
    problems = kept_problems(receipts, keys, came)
    n_signed = sum(each.site in keys and each.is_signed(keys[each.site]) for each in receipts)
    return {"file": str(path), "lines": len(receipts), "signed": n_signed, "problems": problems, "notes": notes}


def replies_of(folder: Path) -> tuple[set[tuple[str, int]], list[str]]:
    """Sites and exchanges of which a finished run has replies that came with a receipt, and what cannot be seen."""
    from koncord.runs.folder import RECORD, read_run

    if not (folder / RECORD).is_file():
        return set(), ["the run is not over: whether a line is missing cannot be seen"]
    _, record = read_run(folder)
    late = set(record.added)  # asked by a run of its own
    return {(each.site, each.exchange) for each in record.departures if each.site not in late}, []


def verdict_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    from koncord._words import counted

    lines = []
    for each in found:
        what = "as it was written" if not each["problems"] else counted(len(each["problems"]), "problem")
        lines.append(f"{each['file']}: {counted(each['lines'], 'line')}, {each['signed']} signed: {what}")
        lines += [f"  {problem}" for problem in each["problems"]]
        lines += [f"  note: {note}" for note in each["notes"]]
    return lines


def ledger_record(entries: "Sequence[Entry]") -> dict[str, Any]:
    """For a machine."""
    from koncord.protocol.ledger import spent_by_run

    return {
        "messages": [
            {
                "time": entry.time,
                "run": entry.run,
                "site": entry.site,
                "round": entry.round_,
                "message": entry.message,
                "fields": entry.fields,
                "bytes": entry.n_bytes,
                "sha256": entry.sha256,
                **({} if entry.epsilon is None else {"epsilon": entry.epsilon}),
                **({} if entry.refused is None else {"refused": entry.refused}),
            }
            for entry in entries
        ],
        "totals": {
            site: {
                "messages": len(own) - n_refused(own),
                "refusals": n_refused(own),
                "bytes": sum(entry.n_bytes for entry in own),
                **({"epsilon": spent_by_run(own, site)} if any(entry.epsilon is not None for entry in own) else {}),
            }
            for site, own in entries_by_site(entries).items()
        },
    }


def ledger_text(entries: "Sequence[Entry]") -> str:
    """For a person."""
    from koncord._words import counted, text_table

    has_budget = any(entry.epsilon is not None for entry in entries)
    messages = text_table(
        ("time", "run", "site", "round", "message", "bytes", "sha256", *["epsilon"] * has_budget, "fields"),
        [
            (
                entry.time,
                entry.run,
                entry.site,
                str(entry.round_),
                entry.message,
                f"{entry.n_bytes:,}",
                entry.sha256[:DIGEST_DIGITS],
                *["" if entry.epsilon is None else f"{entry.epsilon:.4g}"] * has_budget,
                entry.refused or ", ".join(field_text(name, shape) for name, shape in entry.fields.items()),
            )
            for entry in entries
        ],
    )
    totals = [
        f"{site}: {counted(len(own) - n_refused(own), 'message')}{refusals(own)}, "
        f"{sum(entry.n_bytes for entry in own):,} bytes{spent(own)}"
        for site, own in entries_by_site(entries).items()
    ]
    return "\n".join([messages, "", *totals])


def entries_by_site(entries: "Sequence[Entry]") -> "Mapping[str, list[Entry]]":
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.site, []).append(entry)
    return found


def n_refused(entries: "Sequence[Entry]") -> int:
    return sum(entry.refused is not None for entry in entries)


def refusals(entries: "Sequence[Entry]") -> str:
    from koncord._words import counted

    return f", {counted(n_refused(entries), 'refusal')}" if n_refused(entries) else ""


def spent(entries: "Sequence[Entry]") -> str:
    """What a site has spent of its privacy budgets: in the last run that had one, and in all of these."""
    from koncord.protocol.ledger import spent_by_run

    runs = spent_by_run(entries, entries[-1].site)
    if not runs:
        return ""
    *_, last = runs
    together = f", {sum(runs.values()):.4g} in its {len(runs)} runs together" if len(runs) > 1 else ""
    return f", epsilon {runs[last]:.4g} spent in run {last}{together}"


def field_text(name: str, shape: Sequence[int]) -> str:
    """A field and its shape.

    >>> field_text("means", (3, 21)), field_text("local_k", ())
    ('means 3x21', 'local_k')
    """
    return f"{name} {'x'.join(map(str, shape))}" if len(shape) else name
