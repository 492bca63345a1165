"""One exchange over Flower: sites are asked, asked again when they come back, and waited for as long as is agreed."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from koncord._text import shortened
from koncord.errors import MessageError
from koncord.network.flower.carrier import Answer, CarrierLost, Carries, Sent
from koncord.network.flower.programs import SITE
from koncord.protocol.received import Received, read_record

MESSAGE_TYPE, NAME_TYPE = "query.exchange", "query.name"
NODE_UNAVAILABLE = 5  # Flower's code of a message whose site lost its connection
LOST = "it lost its connection"
NAME_WITHIN = 60.0  # seconds
# Seconds between looks for replies, each of which costs the SuperLink some hundredths of a second: often at first, and
# the longer nothing came, the more rarely.
LOOKS = (0.15, 1.0)
LOOKS_IN_ALL = 6  # about so many, in a time as long as it has waited already
MOST_WORDS = 100  # characters
GRACE = 5.0  # seconds a message outlives the time it is waited for
ASK_AGAIN = 10.0  # seconds until a silent site is asked the same again; twice as many the next time


class Roll:
    """Which of Flower's nodes is which site: a key has its node; a node without one names itself, unverified.

    Parameters
    ----------
    carrier : Carries
        The way to the nodes.
    """

    def __init__(self, carrier: Carries) -> None:
        self.carrier = carrier
        self.names: dict[int, str] = {}
        self.asked: dict[str, int] = {}  # nodes by the message that asks them
        self.answered: set[str] = set()  # sites that answered when they were last asked
        self.n_renewed = 0

    def connected(self, nodes: Mapping[str, int | None]) -> dict[str, int]:
        """The node of every site that is connected now; None in `nodes` stands for one that says its name."""
        try:
            return self._connected(nodes)
        except CarrierLost:
            self.renew()
            return self._connected(nodes)

    def renew(self) -> None:
        """Go on with another run of Flower: what was asked by way of the old one is not answered any more."""
        self.carrier.renew()
        self.asked = {}
        self.n_renewed += 1

    def _connected(self, nodes: Mapping[str, int | None]) -> dict[str, int]:
        online = self.carrier.connected()
        if None in nodes.values():
            self.ask(online)
        said = {name: node for node, name in self.names.items() if node in online}
        found = {site: said.get(site) if node is None else node for site, node in nodes.items()}
        return {site: node for site, node in found.items() if node is not None and node in online}

    def ask(self, online: set[int]) -> None:
        """Ask new nodes for their names and take what came; nobody waits for it."""
        new = sorted(online - self.names.keys() - set(self.asked.values()))
        record = {"ask": "name"}
        sent = [Sent(node=node, kind=NAME_TYPE, group="", ttl=NAME_WITHIN, record=record) for node in new]
        self.asked |= {number: node for number, node in zip(self.carrier.push(sent), new, strict=True) if number}
        for answer in self.carrier.pull(self.asked) if self.asked else ():
            node = self.asked.pop(answer.question, None)
            if node is not None and answer.code is None and answer.is_readable:
                self.names[node] = str(answer.record.get(SITE, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked in one exchange, and how long it is waited for."""

    run: str
    exchange: int
    method: str  # estimator and aggregator, as JSON
    messages: Mapping[str, Sequence[bytes]]  # of every site
    nodes: Mapping[str, int | None]  # of every site
    timeout: float  # seconds
    returns_within: float  # seconds that a site which lost its connection is waited for
    needed: int = 0  # sites
    revoked: Callable[[], Collection[str]] = tuple  # sites that cannot come back, by now
    # Called now and then with the sites that have answered and those that have not.
    progress: Callable[[Collection[str], Collection[str]], None] = lambda answered, awaited: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came back in one exchange."""

    received: dict[str, Received] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)  # by the owner of the site, and why


class Exchange:
    """One exchange: every site is asked until it answers, it is away for too long, or the time is over.

    A site that loses its connection is asked again when it is back: whatever it had answered, it answers the same. One
    that is away from the beginning is waited for if it answered the exchange before, or if too few answer without it.

    Parameters
    ----------
    roll : Roll
        Which node is which site, and the way to them.
    asked : Asked
        What is asked.
    """

    def __init__(self, roll: Roll, asked: Asked) -> None:
        self.roll, self.asked, self.n_renewed = roll, asked, roll.n_renewed
        self.waiting: dict[str, str] = {}  # site of every message that was not answered yet
        self.last: dict[str, tuple[float, float]] = {}  # when each site was last asked, and seconds to the next time
        self.away: dict[str, tuple[float, str]] = {}  # since when, and how a report says it
        self.came = Came()

    def carry_out(self) -> Came:
        """Ask and wait; what came back in time, and why the rest did not."""
        began = time.monotonic()
        end = began + self.asked.timeout
        self.ask(self.roll.connected(self.asked.nodes), end)
        self.away |= {site: (began, "not connected") for site in self.asked.nodes if site not in self.last}
        expected = {*self.last, *self.roll.answered}
        while time.monotonic() < end:
            self.take_answers()
            self.asked.progress(self.came.received.keys(), {*self.waiting.values(), *self.away})
            if not self.waiting and not self.is_waited_for(expected):
                break
            time.sleep(min(max((time.monotonic() - began) / LOOKS_IN_ALL, LOOKS[0]), LOOKS[1]))
            self.ask_again(end)
        came = self.came
        came.missing.update({site: why for site, (_, why) in self.away.items()})
        came.missing.update(dict.fromkeys(self.waiting.values(), f"no answer in {self.asked.timeout:g} s"))
        self.roll.answered = {*(self.roll.answered - set(self.asked.nodes)), *came.received}
        return came

    def is_waited_for(self, expected: Collection[str]) -> bool:
        """Whether a site that is away may still come back in time, and is wanted."""
        if not self.away:
            return False
        others = {*self.came.received, *self.waiting.values()}
        too_few = len(others) < self.asked.needed
        earliest = time.monotonic() - self.asked.returns_within
        wanted = {site for site, (since, _) in self.away.items() if since > earliest and (too_few or site in expected)}
        return bool(wanted - set(self.asked.revoked()))

    def ask(self, nodes: Mapping[str, int], end: float) -> None:
        """Give the nodes of some sites their messages."""
        if not nodes:
            return
        sent = [self.message(site, node, end - time.monotonic() + GRACE) for site, node in nodes.items()]
        try:
            numbers = self.roll.carrier.push(sent)
        except CarrierLost:
            self.roll.renew()
            self.forget_old()
            numbers = self.roll.carrier.push(sent)
        for site, number in zip(nodes, numbers, strict=True):
            pause = 2 * self.last[site][1] if site in self.last else ASK_AGAIN
            self.last[site] = time.monotonic(), pause
            if number:
                self.waiting[number] = site
            else:  # gone between two calls
                self.away[site] = time.monotonic(), LOST

    def ask_again(self, end: float) -> None:
        """Ask those that are back, and those that say nothing: a site that was killed has lost what it was asked."""
        now = time.monotonic()
        silent = {site for site in self.waiting.values() if now - self.last[site][0] > self.last[site][1]}
        if not silent and not self.away:
            return
        back = self.roll.connected({site: self.asked.nodes[site] for site in {*silent, *self.away}})
        self.forget_old()
        for site in back:
            self.away.pop(site, None)
        self.ask(back, end)

    def take_answers(self) -> None:
        """Take what has come; the rest is still waited for."""
        if not self.waiting:
            return
        try:
            answers = self.roll.carrier.pull(self.waiting)
        except CarrierLost:
            self.roll.renew()
            self.forget_old()
            return
        for answer in answers:
            site = self.waiting.get(answer.question)
            if site is not None:  # the first of the same answers
                self.waiting = {number: each for number, each in self.waiting.items() if each != site}
                self.take(site, answer)

    def forget_old(self) -> None:
        """After Flower has given up its run nobody answers what was asked before: those sites are asked again."""
        if self.n_renewed != self.roll.n_renewed:
            self.n_renewed = self.roll.n_renewed
            self.away |= {site: (time.monotonic(), LOST) for site in self.waiting.values()}
            self.waiting = {}

    def take(self, site: str, answer: Answer) -> None:
        came = self.came
        if not answer.is_readable:
            came.refused[site] = "its reply could not be read."
            return
        if answer.code == NODE_UNAVAILABLE:
            self.away[site] = time.monotonic(), LOST
            return
        if answer.code is not None:
            came.missing[site] = f"no answer (Flower: {first_words(answer.reason or 'no reason')})"
            return
        try:
            received = read_record(answer.record, len(self.asked.messages[site]))
        except MessageError as error:
            came.refused[site] = str(error)
            return
        if received.error is not None:
            came.missing[site] = received.error
        elif received.refused is not None:
            came.declined[site] = received.refused
        else:
            came.received[site] = received

    def message(self, site: str, node: int, ttl: float) -> Sent:
        asked = self.asked
        record = {
            "run": asked.run,
            "exchange": asked.exchange,
            "method": asked.method,
            "messages": list(asked.messages[site]),
        }
        return Sent(node=node, kind=MESSAGE_TYPE, group=str(asked.exchange), ttl=ttl, record=record)


def first_words(reason: str) -> str:
    """What Flower says, as far as a line of a report holds it."""
    return shortened(reason.removeprefix("Error: ").partition(". ")[0], MOST_WORDS)
