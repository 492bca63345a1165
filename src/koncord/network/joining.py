"""A site while it is joined: it takes messages, answers each in a copy of this process, and comes back when cut off.

One process does it all, and it has one thread, so that it may be copied. The copy has everything loaded, computes one
answer and ends: whatever becomes of it, this process says so to the coordinator and goes on.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from select import select
from traceback import print_exception
from typing import Any, NoReturn

from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import NO_ANSWER, KoncordError, told_outside
from koncord.network.asking import typed_word
from koncord.network.certificates import check_not_expired
from koncord.network.flower.fleet import EXCHANGE, NAME, ConnectionLost, Fleet, Question, connected, name_record
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.places import Invitation
from koncord.network.processes import die_with_parent, say
from koncord.network.serving import learned_authority, problem_of
from koncord.network.sitefolder import LABELS, RUN_NAME, SiteFolder, answer_record, trust
from koncord.privacy.budget import rho_of

PAUSES = (2.0, 5.0, 10.0, 15.0)  # seconds between tries; the last one from then on
# How often a site looks for messages: seconds, while the last one is not older than this. Every look costs Flower some
# hundredths of a second of computing.
TASK_LOOKS = ((20.0, 0.2), (300.0, 1.0), (float("inf"), 3.0))
# Many sites that look this often would fill the coordinator, whose Flower answers one after the other, with looks, and
# answers would wait behind them: where a look takes long, a site looks more rarely.
PAUSE_BY_LOOK, LONGEST_PAUSE = 4.0, TASK_LOOKS[-1][1]
NOTICE_EVERY = 0.5
LEARN_EVERY = 600.0
ANSWERS_LOG = "answers.log"
NODE = "node"  # Flower's number of the site, while it is connected


def stay_joined(folder: Path, invitation: Invitation, *, patience: float | None, asks: bool = False) -> NoReturn:
    """Keep the site connected; `KoncordError` if it was not for `patience` seconds. Ends only by an exception.

    With `asks`, a person at this terminal is asked before each run.
    """
    check_not_expired(
        invitation.authority.encode(), "The certificate in the invitation", "ask the coordinator for a new invitation"
    )
    folder = folder.resolve()
    load_methods(folder)
    site = Joined(folder, invitation, asks)
    n_failures, last_connected = 0, time.monotonic()
    while True:
        why = ""
        try:
            site.check()
            with connected(invitation.address, credentials=site.credentials, node_file=folder / NODE) as fleet:
                n_failures = 0
                say(f"joined {invitation.address}")
                try:
                    site.answer_all(fleet)
                finally:
                    last_connected = time.monotonic()
        except ConnectionLost as error:
            why = str(error)
        pause = PAUSES[min(n_failures, len(PAUSES) - 1)]
        if patience is not None and time.monotonic() - last_connected + pause > patience:
            raise KoncordError(f"{invitation.address} did not take this site within {patience:g} s: {why}.")
        n_failures += 1
        say(f"{invitation.address} does not take this site now ({why}); next try in {pause:g} s")
        time.sleep(pause)


def load_methods(folder: Path) -> None:
    """Load what an answer needs, ahead of the first one."""
    place = SiteFolder.load(folder)
    for name in set(place.methods) & set(AGGREGATORS.outside):
        aggregator_named(name)
    budget = place.policy.budget
    if budget is not None:
        rho_of(budget.epsilon, budget.delta)  # loads OpenDP; no noise is drawn here, where all copies would share it


class Joined:
    """What a site does between connecting and being cut off."""

    def __init__(self, folder: Path, invitation: Invitation, asks: bool) -> None:
        self.folder, self.invitation, self.asks = folder, invitation, asks
        self.credentials = None if invitation.is_insecure else folder
        self._learned = 0.0
        self._told: set[str] = set()
        self._agreed: dict[tuple[str, str], bool] = {}  # the word of the owner, by run and statement

    def check(self) -> None:
        """Say what keeps the site out, as far as the server shows it, and learn of a new authority."""
        if self.credentials is None:
            return
        problem = problem_of(self.invitation.address, self.folder / "ca.crt")
        if problem is not None:
            say(f"{self.invitation.address} cannot take this site: {problem}")
        self.learn()

    def learn(self) -> bool:
        """Trust a new authority if one that is trusted announced it; whether there was one."""
        self._learned = time.monotonic()
        new = learned_authority(self.invitation.address, self.folder / "ca.crt")
        if new is not None:
            trust(self.folder, self.invitation, new)
            say("the coordinator has announced a new certificate authority: this site trusts both from now on")
        return new is not None

    def answer_all(self, fleet: Fleet) -> NoReturn:
        """Answer every message, one after the other; ends by `ConnectionLost`."""
        last = time.monotonic() - TASK_LOOKS[0][0]  # one that has just joined is not in a hurry, but near it
        while True:
            fleet.stay()
            began = time.monotonic()
            question = fleet.receive()
            if question is None:
                now = time.monotonic()
                self.sleep(fleet, pause_after(now - last, look=now - began))
            else:
                fleet.reply(question, self.record_for(fleet, question))
                last = time.monotonic()
            if self.credentials is not None and time.monotonic() - self._learned > LEARN_EVERY and self.learn():
                raise ConnectionLost("it has a new authority")

    def record_for(self, fleet: Fleet, question: Question) -> Mapping[str, Any] | None:
        if question.kind == NAME and self.credentials is None:
            return name_record(self.invitation.site)
        if question.kind != EXCHANGE:
            return None
        record = self.answered(question.record, fleet.stay)
        self.tell(outcome(self.folder, str(question.record.get("run")), record))
        return record

    def answered(self, asked: Mapping[str, Any], meanwhile: Callable[[], None]) -> Mapping[str, Any]:
        """The record of an answer; where the owner is asked, nothing of a run is computed before a yes."""
        key = str(asked.get("run")), str(asked.get("method"))
        agreed = self._agreed.get(key) if self.asks else True
        record = answered_by_copy(self.folder, asked, meanwhile, agreed=agreed)
        if "question" not in record:
            return record
        self._agreed[key] = typed_word(record["question"], meanwhile)
        return answered_by_copy(self.folder, asked, meanwhile, agreed=self._agreed[key])

    def tell(self, text: str) -> None:
        """Say something of a run, once."""
        if text and text not in self._told:
            self._told.add(text)
            say(text)

    def sleep(self, fleet: Fleet, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, NOTICE_EVERY))
            fleet.stay()


def pause_after(silence: float, look: float = 0.0) -> float:
    """Seconds to the next look when the last message came so long ago, and the last look took so long."""
    usual = next(pause for until, pause in TASK_LOOKS if silence < until)
    return max(usual, min(PAUSE_BY_LOOK * look, LONGEST_PAUSE))


def outcome(folder: Path, run: str, record: Mapping[str, Any]) -> str:
    """What became of a question of a run, for who looks after the site; empty for a name that is none."""
    if not RUN_NAME.fullmatch(run):
        return ""
    if "refused" in record:
        return f"run {run}: takes no part: {record['refused']}"
    if "error" in record:
        return f"run {run}: this site {record['error']} Why is in {folder / ANSWERS_LOG}"
    labels = folder / "runs" / run / LABELS
    return f"run {run}: over; the cluster of every row is in {labels}" if labels.exists() else f"run {run}: takes part"


# --- one answer ---


def answered_by_copy(
    state: Path, record: Mapping[str, Any], meanwhile: Callable[[], None], *, agreed: bool | None = True
) -> dict[str, Any]:
    """The record of an answer, made by a copy of this process; an error if the copy ends without one.

    A copy that was killed, as for want of memory, is made once more: what it had noted before it died it answers the
    same. `meanwhile` is called again and again until then; if it raises, the copy is ended.
    """
    for is_last in (False, True):
        code, came = copied(state, partial(record_of_answer, state, record, agreed=agreed), meanwhile)
        if code == 0:
            return unframed(came)
        is_tried_again = code < 0 and not is_last
        say(
            f"the process that answered a message ended with {code} (see {state / ANSWERS_LOG}); "
            + ("it is answered once more" if is_tried_again else "the next one is answered again")
        )
        if not is_tried_again:
            break
    return {"error": NO_ANSWER}


def copied(state: Path, answer: Callable[[], Mapping[str, Any]], meanwhile: Callable[[], None]) -> tuple[int, bytes]:
    """The exit code of a copy of this process that answers, negative if a signal ended it, and what it wrote."""
    reads, writes = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.close(reads)
        answer_and_end(state, answer, writes)
    os.close(writes)
    came: list[bytes] = []
    try:
        while True:
            if not select([reads], [], [], NOTICE_EVERY)[0]:
                meanwhile()
            elif part := os.read(reads, 1 << 20):
                came.append(part)
            else:
                break
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        raise
    finally:
        os.close(reads)
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    return code, b"".join(came)


def answer_and_end(state: Path, answer: Callable[[], Mapping[str, Any]], writes: int) -> NoReturn:
    """In the copy: answer, write the record to a pipe, and end."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            die_with_parent()
        log = os.open(state / ANSWERS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        with os.fdopen(writes, "wb") as file:
            file.write(framed(answer()))
        code = 0
    except BaseException as error:
        print_exception(error)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def record_of_answer(state: Path, record: Mapping[str, Any], *, agreed: bool | None = True) -> dict[str, Any]:
    """What is sent: an answer, or a sentence that says nothing of the rows; the reason itself stays in the log."""
    try:
        return answer_record(
            state,
            str(record["run"]),
            int(record["exchange"]),
            str(record["method"]),
            [bytes(message) for message in record["messages"]],
            agreed=agreed,
        )
    except Exception as error:
        print_exception(error)
        return {"error": told_outside(error)}


def framed(record: Mapping[str, Any]) -> bytes:
    """A record whose only bytes are its replies."""
    replies = record.get("replies", [])
    header = {name: value for name, value in record.items() if name != "replies"}
    return as_frame(
        {"record": header, "n_replies": len(replies) if "replies" in record else None}, replies_by_number(replies)
    )


def replies_by_number(replies: list[bytes]) -> dict[str, bytes]:
    return {f"{at}": reply for at, reply in enumerate(replies)}


def unframed(frame: bytes) -> dict[str, Any]:
    header, blobs = from_frame(frame)
    record: dict[str, Any] = header["record"]
    if header["n_replies"] is not None:
        record["replies"] = [blobs[f"{at}"] for at in range(header["n_replies"])]
    return record
