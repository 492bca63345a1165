"""A ledger that was changed in any line, anywhere, is found out, and the line is named."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koncord.cli import main
from koncord.errors import MessageError
from koncord.protocol import setup
from koncord.protocol.chain import Receipt, kept_problems, receipt_for, verified
from koncord.protocol.ledger import Ledger, head_file, ledger_file, read_ledger
from koncord.protocol.wire import pack

N_LINES = 6


@pytest.fixture(scope="module")
def key():
    certificates = pytest.importorskip("koncord.network.certificates")
    private, public = certificates.site_key()
    return partial(certificates.signed, private), partial(certificates.is_signed, public), public.decode()


def write(path, sign, n=N_LINES, run="r"):
    ledger = Ledger(path, run=run, site="a", sign=sign)
    for at in range(n):
        message = setup.Prepared(local_k=at)
        ledger.write(message, at, pack(message, round_=at))
    return path


@pytest.fixture(scope="module")
def whole(key, tmp_path_factory):
    path = write(ledger_file(tmp_path_factory.mktemp("ledger"), "a"), key[0])
    return path.read_bytes(), head_file(path).read_bytes()


def put(folder, content, head):
    path = ledger_file(folder, "a")
    path.write_bytes(content)
    if head is not None:
        head_file(path).write_bytes(head)
    return path


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_ledger_as_it_was_written_has_no_problem(is_signed, key, tmp_path):
    path = write(ledger_file(tmp_path, "a"), key[0] if is_signed else None)
    verdict = verified(path, key[1] if is_signed else None)
    assert (verdict.problems, verdict.notes) == ((), ())
    assert (verdict.n_lines, verdict.n_signed) == (N_LINES, N_LINES * is_signed)
    assert [entry.line for entry in read_ledger(path)] == list(range(1, N_LINES + 1))


def test_the_head_and_a_line_are_what_a_stranger_can_check_with_sha256_alone(whole):
    lines = whole[0].splitlines()
    import hashlib

    digests = [hashlib.sha256(line).hexdigest() for line in lines]
    assert [json.loads(line)["previous"] for line in lines[1:]] == digests[:-1]
    assert json.loads(whole[1])["sha256"] == digests[-1]


@pytest.mark.parametrize("at", range(N_LINES))
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_line_that_is_missing_is_named(at, is_signed, whole, key, tmp_path):
    lines = whole[0].splitlines(keepends=True)
    path = put(tmp_path, b"".join(lines[:at] + lines[at + 1 :]), whole[1])
    problems = verified(path, key[1] if is_signed else None).problems
    assert problems[0].startswith(f"line {at + 1} is missing")


@given(data=st.data())
def test_a_byte_that_was_changed_anywhere_names_its_line(data, whole, key, tmp_path_factory):
    content = bytearray(whole[0])
    at = data.draw(st.integers(0, len(content) - 1))
    if content[at] == ord("\n"):
        return  # two lines become one: the next test but one
    content[at] ^= data.draw(st.integers(1, 127))
    line = whole[0][:at].count(b"\n") + 1
    path = put(tmp_path_factory.mktemp("changed"), bytes(content), whole[1])
    problems = verified(path, key[1]).problems
    assert problems
    # A changed number, or one that became the end of a line, shows at the neighbors as well.
    assert any(f"line {near} " in problem for problem in problems for near in (line - 1, line, line + 1)), problems


def test_lines_that_were_swapped_joined_doubled_or_put_in_are_found(whole, key, tmp_path):
    lines = whole[0].splitlines(keepends=True)
    for changed in (
        [lines[0], lines[2], lines[1], *lines[3:]],
        [lines[0], lines[1][:-1], *lines[2:]],
        [*lines[:3], lines[2], *lines[3:]],
        [*lines, lines[-1]],
        [lines[0], b"{}\n", *lines[1:]],
    ):
        assert verified(put(tmp_path, b"".join(changed), whole[1]), key[1]).problems


def test_what_is_said_of_a_missing_or_a_moved_line_is_that_and_nothing_else(whole, key, tmp_path):
    lines = whole[0].splitlines(keepends=True)
    told = verified(put(tmp_path, b"".join([*lines[:2], *lines[3:]]), whole[1]), key[1]).problems
    assert told == ("line 3 is missing",)
    told = verified(put(tmp_path, b"".join([lines[0], lines[2], lines[1], *lines[3:]]), whole[1]), key[1]).problems
    assert told == (
        "line 3 stands where line 2 should: lines were moved",
        "line 2 stands where line 3 should: lines were moved",
    )


def test_a_receipt_that_is_missing_moved_changed_or_of_another_run_is_named(key, tmp_path):
    path = write(ledger_file(tmp_path, "a"), key[0])

    def receipt(exchange, run="r", site="a"):
        return receipt_for(path, [b"reply"], key[0], site=site, run=run, exchange=exchange)

    receipts = [receipt(number) for number in (1, 2, 2, 3)]  # the second was asked again after a kill
    keys, came = {"a": key[1]}, {("a", 1), ("a", 2), ("a", 3)}
    assert kept_problems(receipts, keys, came) == []
    assert kept_problems(receipts[:3], keys, came) == [
        "the line of a for exchange 3 is missing: its replies are in the run"
    ]
    (told,) = kept_problems([*receipts[1:], receipts[0]], keys, came)
    assert told == "line 4, of a for exchange 1, stands behind a later one: lines were moved"
    (told,) = kept_problems([*receipts[:3], replace(receipts[3], line=7)], keys, came)
    assert told == "line 4, of a for exchange 3, was not signed by the site's key"
    (told,) = kept_problems([*receipts, receipt(4, run="another")], keys, came)
    assert told == "line 5, of a for exchange 4, is of another run"
    assert kept_problems(receipts, keys, {*came, ("without a key", 1)}) == []
    assert "not signed" in kept_problems([receipt(1, site="b")], keys, set())[0]


def test_a_ledger_written_anew_without_the_key_is_not_the_sites(key, tmp_path):
    certificates = pytest.importorskip("koncord.network.certificates")
    other = certificates.site_key()[0]
    path = write(ledger_file(tmp_path, "a"), partial(certificates.signed, other))
    assert len(verified(path, key[1]).problems) == N_LINES + 1  # every line, and the head
    unsigned = write(ledger_file(tmp_path, "b"), None)
    write(unsigned, key[0], 1)
    write(unsigned, None, 1)
    told = verified(unsigned, key[1]).problems
    assert told == (f"line {N_LINES + 2} is not signed, though lines before it are",)


def test_lines_cut_from_the_end_with_their_head_are_missed_by_the_receipts(whole, key, tmp_path):
    path = write(ledger_file(tmp_path, "a"), key[0])
    receipt = receipt_for(path, [b"reply"], key[0], site="a", run="r", exchange=3)
    assert verified(path, key[1], [Receipt.from_text(receipt.as_text())]).problems == ()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    head_file(path).unlink()
    verdict = verified(path, key[1])
    assert verdict.problems == ()
    assert "whether lines are missing at the end cannot be seen" in verdict.notes[0]
    (told,) = verified(path, key[1], [receipt]).problems
    assert told == "lines 5 to 6 are missing: the receipt for exchange 3 of run r names line 6 as the last"
    # Written anew with the site's own key, and as long as before: only the receipt tells.
    path.unlink()
    write(path, key[0], run="another")
    assert verified(path, key[1]).problems == ()
    (told,) = verified(path, key[1], [receipt]).problems
    assert told == "line 6 was changed: the receipt for exchange 3 of run r names another"


def test_a_receipt_that_was_changed_is_not_one(key, tmp_path):
    path = write(ledger_file(tmp_path, "a"), key[0])
    receipt = receipt_for(path, [b"reply"], key[0], site="a", run="r", exchange=3)
    for name, value in {"exchange": 4, "line": 5, "run": "x", "site": "b", "replies": ["0" * 64]}.items():
        changed = Receipt.from_text(json.dumps(json.loads(receipt.as_text()) | {name: value}))
        assert not changed.is_signed(key[1])
    for text in ("", "[]", "{}", "x" * 5000, json.dumps(json.loads(receipt.as_text()) | {"line": "6"})):
        with pytest.raises(MessageError, match="its receipt is none"):
            Receipt.from_text(text)


def test_a_line_cut_short_by_a_crash_is_a_note_and_not_a_problem(key, tmp_path):
    path = write(ledger_file(tmp_path, "a"), key[0], 2)
    cut = path.read_bytes()
    path.write_bytes(cut + cut[:40])
    assert verified(path, key[1]).notes == ("line 3 was cut short: its message did not leave",)
    write(path, key[0], 2)
    verdict = verified(path, key[1])
    assert (verdict.problems, verdict.n_lines) == ((), 5)
    assert verdict.notes == ("line 3 was cut short: its message did not leave",)
    path.write_bytes(path.read_bytes().replace(cut[:40] + b"\n", cut[:39] + b"\n"))
    assert verified(path, key[1]).problems[0].startswith("line 3 was changed")


def test_a_ledger_of_before_there_was_a_chain_goes_on_and_its_lines_are_held_too(key, tmp_path):
    path = ledger_file(tmp_path, "a")
    old = {"time": "t", "run": "r", "site": "a", "round_": 0, "message": "m", "fields": {}, "n_bytes": 1, "sha256": "0"}
    path.write_text("".join(json.dumps(old | {"n_bytes": n}) + "\n" for n in range(3)))
    write(path, key[0], 2)
    verdict = verified(path, key[1])
    assert (verdict.problems, verdict.n_before, verdict.n_lines) == ((), 3, 5)
    path.write_bytes(path.read_bytes().replace(b'"n_bytes": 1', b'"n_bytes": 7', 1))
    assert verified(path, key[1]).problems == ("lines 1 to 3 were changed: the line after it names another",)


def test_processes_that_write_at_once_make_one_chain(tmp_path):
    path = ledger_file(tmp_path, "a")
    code = (
        "import sys; from pathlib import Path; from koncord.protocol import setup\n"
        "from koncord.protocol.ledger import Ledger; from koncord.protocol.wire import pack\n"
        "m = setup.Prepared(local_k=1); l = Ledger(Path(sys.argv[1]), run='r', site='a')\n"
        "[l.write(m, 0, pack(m)) for _ in range(20)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert verified(path, None).problems == ()
    assert [entry.line for entry in read_ledger(path)] == list(range(1, 61))
    assert {each.name for each in tmp_path.iterdir()} == {"a.ledger.jsonl", "a.ledger.head"}


def test_the_command_names_the_line_and_fails(key, tmp_path, capsys):
    path = write(ledger_file(tmp_path, "a"), key[0])
    (tmp_path / "a.pub").write_text(key[2] + "\n")
    assert main(["ledger", "verify", str(tmp_path)]) == 0
    assert "6 lines, 6 signed: as it was written" in capsys.readouterr().out
    path.write_bytes(path.read_bytes().replace(b'"round_": 3', b'"round_": 4', 1))
    assert main(["ledger", "verify", str(path), "--json"]) == 1
    shown = capsys.readouterr()
    (record,) = json.loads(shown.out)["ledgers"]
    assert record["problems"][0] == "line 4 was changed: the line after it names another"
    assert "a.ledger.jsonl: line 4 was changed" in shown.err
    assert main(["ledger", "verify", str(path), "--receipts", str(tmp_path / "none")]) == 1
    assert main(["ledger", str(path), "--receipts", "x"]) == 2
    assert main(["ledger", "check", str(path)]) == 2
