"""Whether a ledger is as its site wrote it: the chain of its lines, their signatures, and the receipts of others.

A receipt is what a site sends with the replies of an exchange and the coordinator keeps: the SHA-256 of each reply, and
number and SHA-256 of the last line of its ledger then, signed. It holds no time and nothing of the rows. A ledger that
was written anew, or cut, after a receipt was given no longer has that line.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from koncord.errors import KoncordError, MessageError
from koncord.protocol.ledger import End, Entry, end_of, entry_line, head_file

# Whether one of the site's keys signed some bytes: bytes and signature.
Verify = Callable[[bytes, bytes], bool]
LONGEST_RECEIPT = 4000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a site signs for one exchange."""

    site: str
    run: str
    exchange: int
    replies: tuple[str, ...]  # SHA-256 of each
    line: int  # the last of the ledger
    sha256: str  # of that line
    signature: str = ""  # base64, of all that is before

    @property
    def signed_content(self) -> bytes:
        return json.dumps({**asdict(self), "signature": ""}).encode()

    @property
    def end(self) -> End:
        return End(line=self.line, sha256=self.sha256)

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The receipt in one line; `MessageError` if it is none."""
        try:
            if len(text) > LONGEST_RECEIPT:
                raise ValueError
            content = json.loads(text)
            made = cls(**{**content, "replies": tuple(content["replies"])})
            words = (made.site, made.run, made.sha256, made.signature, *made.replies)
            if not all(isinstance(word, str) for word in words):
                raise TypeError
            if not all(type(number) is int for number in (made.exchange, made.line)):
                raise TypeError
            b64decode(made.signature, validate=True)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MessageError("its receipt is none.") from error
        return made

    def is_signed(self, verify: Verify) -> bool:
        return verify(self.signed_content, b64decode(self.signature))


def receipt_for(
    ledger: Path, replies: Sequence[bytes], sign: Callable[[bytes], bytes], *, site: str, run: str, exchange: int
) -> Receipt:
    """The receipt for the replies of one exchange, which the ledger has noted."""
    end = end_of(ledger)
    unsigned = Receipt(
        site=site,
        run=run,
        exchange=exchange,
        replies=digests(replies),
        line=end.line,
        sha256=end.sha256,
    )
    return replace(unsigned, signature=b64encode(sign(unsigned.signed_content)).decode())


def digests(replies: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(hashlib.sha256(reply).hexdigest() for reply in replies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the lines of a ledger."""

    n_lines: int
    n_signed: int
    n_before: int  # lines of before there was a chain, which the first line of the chain names as a whole
    problems: tuple[str, ...]  # each names a line
    notes: tuple[str, ...] = ()  # what could not be checked, and lines that were cut short


def verified(path: Path, verify: Verify | None, receipts: Sequence[Receipt] = ()) -> Verdict:
    """Hold every line of a ledger against its neighbors, its signature, the head and some receipts.

    Parameters
    ----------
    path : Path
        The ledger.
    verify : callable or None
        Whether one of the site's keys signed some bytes; None checks no signature.
    receipts : sequence of Receipt, default ()
        Those of this site that a coordinator kept; their own signatures are checked with `verify`.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    entries = [entry_in(line) for line in lines]
    first = next((at for at, entry in enumerate(entries) if entry is not None and entry.previous), len(lines))
    problems, notes = chain_problems(lines, entries, first)
    if rest:
        notes.append(f"line {len(lines) + 1} was cut short: its message did not leave")
    chained = [entry for entry in entries[first:] if entry is not None]
    n_signed = sum(entry.signature is not None for entry in chained)
    if verify is None:
        if n_signed:
            notes.append("the signatures were not checked: the site's public key is not there")
    else:
        problems += signature_problems(chained, verify)
    known = {entry.line: hashlib.sha256(line).hexdigest() for line, entry in zip(lines, entries, strict=True) if entry}
    problems += head_problems(head_file(path), known, len(lines), verify, notes, is_chained=bool(chained))
    problems += receipt_problems(receipts, known, len(lines), verify)
    return Verdict(
        n_lines=len(lines),
        n_signed=n_signed,
        n_before=first,
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes),
    )


def entry_in(line: bytes) -> Entry | None:
    """The entry in a line; None if it is none, or says of the chain what no line says."""
    try:
        entry = Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None
    is_well = isinstance(entry.line, int | None) and all(
        isinstance(word, str | None) for word in (entry.previous, entry.signature)
    )
    return entry if is_well else None


def chain_problems(lines: Sequence[bytes], entries: Sequence[Entry | None], first: int) -> tuple[list[str], list[str]]:
    """What is wrong with the numbers and the links from `first` on, and what is only worth saying."""
    problems: list[str] = []
    notes: list[str] = []
    before = b"".join(line + b"\n" for line in lines[:first])
    expected, number = hashlib.sha256(before).hexdigest(), first
    torn: int | None = None  # a line that is no entry; the next one names it if it was only cut short
    moved, chained = put_back(list(zip(lines[first:], entries[first:], strict=True)), first)
    problems += moved
    for line, entry in chained:
        number += 1
        if entry is None or entry.line is None:
            torn = number
            expected = hashlib.sha256(line).hexdigest()
            continue
        if entry.line > number:
            problems.append(f"{lines_span(number, entry.line - 1)} missing")
        elif entry.line < number:
            problems.append(f"line {entry.line} stands where line {number} should: lines were put in or moved")
        elif entry.previous != expected:
            where = (
                f"line {number - 1} was" if number - 1 > first or not first else f"{lines_span(1, first, past=True)}"
            )
            problems.append(f"{where} changed: the line after it names another" if number > 1 else "line 1 was changed")
        elif torn is not None:
            notes.append(f"line {torn} was cut short: its message did not leave")
        torn, number = None, entry.line
        expected = hashlib.sha256(line).hexdigest()
    if torn is not None:
        problems.append(f"line {torn} is not an entry of a ledger")
    return problems, notes


def put_back(
    chained: list[tuple[bytes, Entry | None]], first: int
) -> tuple[list[str], list[tuple[bytes, Entry | None]]]:
    """Where every line is there and only their order is another: which ones stand elsewhere, and the lines in order."""
    numbers = [None if entry is None else entry.line for _, entry in chained]
    places = range(first + 1, first + 1 + len(chained))
    if set(numbers) != set(places):
        return [], chained
    moved = [
        f"line {number} stands where line {place} should: lines were moved"
        for number, place in zip(numbers, places, strict=True)
        if number != place
    ]
    by_number = dict(zip(numbers, chained, strict=True))
    return moved, [by_number[place] for place in places]


def lines_span(first: int, last: int, *, past: bool = False) -> str:
    one, many = ("was", "were") if past else ("is", "are")
    return f"line {first} {one}" if first == last else f"lines {first} to {last} {many}"


def signature_problems(chained: Sequence[Entry], verify: Verify) -> list[str]:
    """Lines that no key of the site signed as they are; once a line is signed, all later ones must be."""
    problems, must_be = [], False
    for entry in chained:
        if entry.signature is None:
            if must_be:
                problems.append(f"line {entry.line} is not signed, though lines before it are")
            continue
        must_be = True
        if not fits(verify, entry_line(replace(entry, signature=None)).encode(), entry.signature):
            problems.append(f"line {entry.line} was changed: the site's key did not sign it as it is")
    return problems


def head_problems(
    head: Path, known: dict[int | None, str], n_lines: int, verify: Verify | None, notes: list[str], *, is_chained: bool
) -> list[str]:
    """Whether the last line that the head names is there."""
    if not head.exists():
        if is_chained:
            notes.append(f"'{head.name}' is not there: whether lines are missing at the end cannot be seen")
        return []
    try:
        content: dict[str, Any] = json.loads(head.read_bytes())
        end, signature = End(line=content["line"], sha256=content["sha256"]), content.get("signature")
    except (ValueError, KeyError, TypeError):
        return [f"'{head.name}' does not name a line"]
    if verify is not None and signature is not None and not fits(verify, end.signed_content, signature):
        return [f"'{head.name}' was changed: the site's key did not sign it as it is"]
    return end_problems(end, known, n_lines, f"'{head.name}'")


def receipt_problems(
    receipts: Sequence[Receipt], known: dict[int | None, str], n_lines: int, verify: Verify | None
) -> list[str]:
    problems = []
    for receipt in receipts:
        whose = f"the receipt for exchange {receipt.exchange} of run {receipt.run}"
        if verify is not None and not receipt.is_signed(verify):
            problems.append(f"{whose} was not signed by the site's key")
        else:
            problems += end_problems(receipt.end, known, n_lines, whose)
    return problems


def end_problems(end: End, known: dict[int | None, str], n_lines: int, whose: str) -> list[str]:
    last = max((line for line in known if line is not None), default=0)
    if end.line > max(last, n_lines):
        return [f"{lines_span(max(last, n_lines) + 1, end.line)} missing: {whose} names line {end.line} as the last"]
    if known.get(end.line) != end.sha256:
        return [f"line {end.line} was changed: {whose} names another"]
    return []


def kept_problems(
    receipts: Sequence[Receipt], keys: Mapping[str, Verify], came: Collection[tuple[str, int]]
) -> list[str]:
    """What is wrong with the receipts that a coordinator kept of a run.

    Parameters
    ----------
    receipts : sequence of Receipt
        Those of the run, in the order of their file.
    keys : mapping of str to callable
        Whether a site's key signed some bytes, by its name.
    came : collection of (str, int)
        Sites and exchanges of which the run has replies: each must have its receipt.
    """
    problems = []
    runs = Counter(receipt.run for receipt in receipts)
    last: dict[str, int] = {}
    for number, receipt in enumerate(receipts, start=1):
        what = f"line {number}, of {receipt.site} for exchange {receipt.exchange}, "
        if receipt.site not in keys or not receipt.is_signed(keys[receipt.site]):
            problems.append(f"{what}was not signed by the site's key")
        elif receipt.run != runs.most_common(1)[0][0]:
            problems.append(f"{what}is of another run")
        elif receipt.exchange < last.get(receipt.site, 0):
            problems.append(f"{what}stands behind a later one: lines were moved")
        last[receipt.site] = max(receipt.exchange, last.get(receipt.site, 0))
    kept = {(receipt.site, receipt.exchange) for receipt in receipts}
    problems += [
        f"the line of {site} for exchange {exchange} is missing: its replies are in the run"
        for site, exchange in sorted(set(came) - kept, key=lambda each: (each[1], each[0]))
        if site in keys
    ]
    return problems


def fits(verify: Verify, data: bytes, signature: str) -> bool:
    try:
        return verify(data, b64decode(signature, validate=True))
    except ValueError:
        return False


def read_receipts(path: Path, site: str | None = None) -> list[Receipt]:
    """The receipts in a file, of one site or of all; `KoncordError` names the first line that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found.append(Receipt.from_text(line))
        except MessageError as error:
            raise KoncordError(f"Line {number} of '{path}' is not a receipt.") from error
    return [receipt for receipt in found if site in (None, receipt.site)]
