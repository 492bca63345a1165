"""The ServerApp: it carries what `koncord run` asks to the sites and back, and ends when `koncord run` does."""

import time
from collections.abc import Collection, Mapping
from multiprocessing.connection import Client, Connection
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from koncord._text import shortened
from koncord.errors import MessageError
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.flower.programs import SITE
from koncord.protocol.received import Received, read_record

RECORD = "koncord"
MESSAGE_TYPE, NAME_TYPE = "query.exchange", "query.name"
NAME_WITHIN = 60.0  # seconds
# Seconds between looks for replies, each of which costs the SuperLink some hundredths of a second: often at first, and
# the longer nothing came, the more rarely.
LOOKS = (0.15, 1.0)
LOOKS_IN_ALL = 6  # about so many, in a time as long as it has waited already
MOST_WORDS = 100  # characters
GRACE = 5.0  # seconds a message outlives the time it is waited for

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
        nodes = roll.connected(header["nodes"])
        if header["do"] == "connected":
            connection.send_bytes(as_frame({"connected": list(nodes)}))
        else:
            connection.send_bytes(exchanged(grid, nodes, header, blobs))


class Roll:
    """Which of Flower's nodes is which site: a key has its node; a node without one names itself, unverified."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.names: dict[int, str] = {}
        self.asked: dict[str, int] = {}  # nodes by the message that asks them

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


def exchanged(grid: Grid, nodes: Mapping[str, int], header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bytes:
    """Give every node its messages; the frame of what came back in time, and of why the rest did not."""
    missing = {site: "not connected" for site in header["nodes"] if site not in nodes}
    messages = {
        site: Message(
            content(header, [blobs[f"{site}/{at}"] for at in range(header["counts"][site])]),
            node,
            MESSAGE_TYPE,
            group_id=str(header["exchange"]),
            ttl=header["timeout"] + GRACE,
        )
        for site, node in nodes.items()
    }
    waiting = dict(zip(grid.push_messages(list(messages.values())), messages, strict=True)) if messages else {}
    received: dict[str, Received] = {}
    refused: dict[str, str] = {}
    of_owners: dict[str, dict[str, str]] = {"waiting": {}, "declined": {}}
    began = time.monotonic()
    end = began + header["timeout"]
    while waiting and time.monotonic() < end:
        replies, unreadable = pulled(grid, waiting)
        refused |= {waiting.pop(message): "its reply could not be read." for message in unreadable}
        for reply in replies:
            site = waiting.pop(reply.metadata.reply_to_message_id, None)
            if site is None:
                continue
            if reply.has_error():
                missing[site] = f"no answer (Flower: {first_words(reply.error.reason or 'no reason')})"
                continue
            try:
                answer = read_record(record_of(reply), header["counts"][site])
            except MessageError as error:
                refused[site] = str(error)
                continue
            if answer.error is not None:
                missing[site] = answer.error
            elif answer.waiting is not None:
                of_owners["waiting"][site] = answer.waiting
            elif answer.refused is not None:
                of_owners["declined"][site] = answer.refused
            else:
                received[site] = answer
        if waiting:
            time.sleep(min(max((time.monotonic() - began) / LOOKS_IN_ALL, LOOKS[0]), LOOKS[1]))
    missing |= dict.fromkeys(waiting.values(), f"no answer in {header['timeout']:g} s")
    return as_frame(
        {
            "counts": {site: len(answer.replies) for site, answer in received.items()},
            "seconds": {site: answer.seconds for site, answer in received.items() if answer.seconds},
            "receipts": {site: answer.receipt.as_text() for site, answer in received.items() if answer.receipt},
            "versions": {site: answer.version for site, answer in received.items() if answer.version},
            "missing": missing,
            "refused": refused,
            **of_owners,
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


def content(header: Mapping[str, Any], messages: list[bytes]) -> RecordDict:
    record = ConfigRecord(
        {
            "run": header["run"],
            "exchange": header["exchange"],
            "method": header["method"],
            "messages": messages,
        }
    )
    return RecordDict({RECORD: record})
