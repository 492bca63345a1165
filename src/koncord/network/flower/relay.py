"""The ServerApp: it carries what `koncord run` asks to the sites and back, and ends when `koncord run` does."""

import time
from collections.abc import Collection, Mapping
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from koncord._text import shortened
from koncord.errors import MessageError
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.flower.programs import SITE
from koncord.network.places import Coordinator
from koncord.protocol.received import Received, read_record

RECORD = "koncord"
MESSAGE_TYPE, NAME_TYPE = "query.exchange", "query.name"
NODE_UNAVAILABLE = 5  # Flower's code of a message whose site lost its connection
NAME_WITHIN = 60.0  # seconds
# Seconds between looks for replies, each of which costs the SuperLink some hundredths of a second: often at first, and
# the longer nothing came, the more rarely.
LOOKS = (0.15, 1.0)
LOOKS_IN_ALL = 6  # about so many, in a time as long as it has waited already
MOST_WORDS = 100  # characters
GRACE = 5.0  # seconds a message outlives the time it is waited for
ASK_AGAIN = 10.0  # seconds until a silent site is asked the same again; twice as many the next time

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    with Client(str(context.run_config["socket"]), family="AF_UNIX") as connection:
        relay(grid, connection)


def relay(grid: Grid, connection: Connection) -> None:
    """Answer every frame until the other end is gone."""
    roll = Roll(grid)
    while True:
        try:
            header, blobs = from_frame(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return
        if header["do"] == "connected":
            connection.send_bytes(as_frame({"connected": list(roll.connected(header["nodes"]))}))
        else:
            connection.send_bytes(Exchange(grid, roll, header, blobs).carry_out())


class Roll:
    """Which of Flower's nodes is which site: a key has its node; a node without one names itself, unverified."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.names: dict[int, str] = {}
        self.asked: dict[str, int] = {}  # nodes by the message that asks them
        self.answered: set[str] = set()  # sites that answered when they were last asked

    def connected(self, nodes: Mapping[str, int | None]) -> dict[str, int]:
        """The node of every site that is connected now; None in `nodes` stands for one that says its name."""
        online = set(self.grid.get_node_ids())
        if None in nodes.values():
            self.ask(online)
        said = {name: node for node, name in self.names.items() if node in online}
        found = {site: said.get(site) if node is None else node for site, node in nodes.items()}
        return {site: node for site, node in found.items() if node is not None and node in online}

    def ask(self, online: set[int]) -> None:
        """Ask new nodes for their names and take what came; nobody waits for it."""
        new = sorted(online - self.names.keys() - set(self.asked.values()))
        record = RecordDict({RECORD: ConfigRecord({"ask": "name"})})
        messages = [Message(record, node, NAME_TYPE, ttl=NAME_WITHIN) for node in new]
        if messages:
            self.asked |= dict(zip(self.grid.push_messages(messages), new, strict=True))
        for reply in self.grid.pull_messages(list(self.asked)) if self.asked else ():
            node = self.asked.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and not reply.has_error():
                self.names[node] = str(dict(reply.content.config_records.get(RECORD, {})).get(SITE, ""))


class Exchange:
    """One exchange: every site is asked until it answers, it is away for too long, or the time is over.

    A site that loses its connection is asked again when it is back: whatever it had answered, it answers the same. One
    that is away from the beginning is waited for if it answered the exchange before, or if too few answer without it.

    Parameters
    ----------
    grid : Grid
        Flower's way to the nodes.
    roll : Roll
        Which node is which site.
    header : mapping of str to any
        What `koncord run` asks: run, exchange, method, the nodes of the sites, how long each is waited for, and the
        folder of the coordinator.
    blobs : mapping of str to bytes
        The messages of every site.
    """

    def __init__(self, grid: Grid, roll: "Roll", header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
        self.grid, self.roll, self.header, self.blobs = grid, roll, header, blobs
        self.nodes: Mapping[str, int | None] = header["nodes"]
        self.waiting: dict[str, str] = {}  # site of every message that was not answered yet
        self.asked: dict[str, tuple[float, float]] = {}  # when each site was last asked, and seconds to the next time
        self.away: dict[str, tuple[float, str]] = {}  # since when, and how a report says it
        self.received: dict[str, Received] = {}
        self.missing: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.of_owners: dict[str, dict[str, str]] = {"waiting": {}, "declined": {}}

    def carry_out(self) -> bytes:
        """Ask and wait; the frame of what came back in time, and of why the rest did not."""
        began = time.monotonic()
        end = began + self.header["timeout"]
        self.ask(self.roll.connected(self.nodes), end)
        self.away = {site: (began, "not connected") for site in self.nodes if site not in self.asked}
        expected = {*self.asked, *self.roll.answered}
        while time.monotonic() < end:
            self.take_replies()
            if not self.waiting and not self.is_waited_for(expected):
                break
            time.sleep(min(max((time.monotonic() - began) / LOOKS_IN_ALL, LOOKS[0]), LOOKS[1]))
            self.ask_again(end)
        self.missing |= {site: why for site, (_, why) in self.away.items()}
        self.missing |= dict.fromkeys(self.waiting.values(), f"no answer in {self.header['timeout']:g} s")
        self.roll.answered = {*(self.roll.answered - set(self.nodes)), *self.received, *self.of_owners["waiting"]}
        return self.frame()

    def is_waited_for(self, expected: Collection[str]) -> bool:
        """Whether a site that is away may still come back in time, and is wanted."""
        if not self.away:
            return False
        others = {*self.received, *self.of_owners["waiting"], *self.waiting.values()}
        too_few = len(others) < self.header["needed"]
        earliest = time.monotonic() - self.header["returns_within"]
        wanted = {site for site, (since, _) in self.away.items() if since > earliest and (too_few or site in expected)}
        return bool(wanted - self.revoked())

    def revoked(self) -> set[str]:
        """Sites that cannot come back."""
        folder = self.header["coordinator"]
        return set() if folder is None else Coordinator.load(Path(folder)).revoked()

    def ask(self, nodes: Mapping[str, int], end: float) -> None:
        """Give the nodes of some sites their messages."""
        if not nodes:
            return
        ttl = end - time.monotonic() + GRACE
        kind, group = MESSAGE_TYPE, str(self.header["exchange"])
        messages = [Message(self.content(site), node, kind, group_id=group, ttl=ttl) for site, node in nodes.items()]
        self.waiting |= dict(zip(self.grid.push_messages(messages), nodes, strict=True))
        for site in nodes:
            pause = 2 * self.asked[site][1] if site in self.asked else ASK_AGAIN
            self.asked[site] = time.monotonic(), pause

    def ask_again(self, end: float) -> None:
        """Ask those that are back, and those that say nothing: a site that was killed has lost what it was asked."""
        now = time.monotonic()
        silent = {site for site in self.waiting.values() if now - self.asked[site][0] > self.asked[site][1]}
        if not silent and not self.away:
            return
        back = self.roll.connected({site: self.nodes[site] for site in {*silent, *self.away}})
        for site in back:
            self.away.pop(site, None)
        self.ask(back, end)

    def take_replies(self) -> None:
        """Take what has come; the rest is still waited for."""
        if not self.waiting:
            return
        replies, unreadable = pulled(self.grid, self.waiting)
        for message in unreadable:
            if (site := self.waiting.get(message)) is not None:
                self.is_answered(site)
                self.refused[site] = "its reply could not be read."
        for reply in replies:
            site = self.waiting.get(reply.metadata.reply_to_message_id)
            if site is not None:  # the first of the same answers
                self.is_answered(site)
                self.take(site, reply)

    def is_answered(self, site: str) -> None:
        self.waiting = {message: each for message, each in self.waiting.items() if each != site}

    def take(self, site: str, reply: Message) -> None:
        if reply.has_error():
            if reply.error.code == NODE_UNAVAILABLE:
                self.away[site] = time.monotonic(), "it lost its connection"
            else:
                self.missing[site] = f"no answer (Flower: {first_words(reply.error.reason or 'no reason')})"
            return
        try:
            answer = read_record(record_of(reply), self.header["counts"][site])
        except MessageError as error:
            self.refused[site] = str(error)
            return
        if answer.error is not None:
            self.missing[site] = answer.error
        elif answer.waiting is not None:
            self.of_owners["waiting"][site] = answer.waiting
        elif answer.refused is not None:
            self.of_owners["declined"][site] = answer.refused
        else:
            self.received[site] = answer

    def content(self, site: str) -> RecordDict:
        record = {name: self.header[name] for name in ("run", "exchange", "method")}
        messages = [self.blobs[f"{site}/{at}"] for at in range(self.header["counts"][site])]
        return RecordDict({RECORD: ConfigRecord({**record, "messages": messages})})

    def frame(self) -> bytes:
        received = self.received
        return as_frame(
            {
                "counts": {site: len(answer.replies) for site, answer in received.items()},
                "seconds": {site: answer.seconds for site, answer in received.items() if answer.seconds},
                "receipts": {site: answer.receipt.as_text() for site, answer in received.items() if answer.receipt},
                "versions": {site: answer.version for site, answer in received.items() if answer.version},
                "missing": self.missing,
                "refused": self.refused,
                **self.of_owners,
            },
            {f"{site}/{at}": each for site, answer in received.items() for at, each in enumerate(answer.replies)},
        )


def pulled(grid: Grid, waiting: Collection[str]) -> tuple[list[Message], set[str]]:
    """The replies that have come, and those of the messages waited for whose reply Flower itself cannot read."""
    try:
        return list(grid.pull_messages(list(waiting))), set()
    except Exception:  # whatever Flower's reader raises at bytes that a site made up
        grid.get_node_ids()  # if Flower itself is gone, this says so
    came: list[Message] = []
    unreadable: set[str] = set()
    for message in waiting:
        try:
            came += grid.pull_messages([message])
        except Exception:
            grid.get_node_ids()
            unreadable.add(message)
    return came, unreadable


def record_of(reply: Message) -> dict[str, Any]:
    """What a site put into its reply under koncord's name; empty if there is nothing."""
    return dict(reply.content.config_records.get(RECORD, {})) if reply.has_content() else {}


def first_words(reason: str) -> str:
    """What Flower says, as far as a line of a report holds it."""
    return shortened(reason.removeprefix("Error: ").partition(". ")[0], MOST_WORDS)
