"""What a site would send, found out without sending anything: a federation of the site alone."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from koncord.aggregate.base import Replies
from koncord.protocol.wire import pack
from koncord.session.inprocess import InProcess
from koncord.session.rounds import RoundRequest
from koncord.session.site import Site


class Rehearsal(InProcess):
    """Link to one site in this process; `sent` has a row for every field of every message that would leave."""

    def __init__(self, site: Site) -> None:
        super().__init__([site])
        self.sent: list[dict[str, Any]] = []

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        received = super().exchange_all(asked)
        for at, (replies, each) in enumerate(zip(received, asked, strict=True)):
            for message in replies.values():
                size = len(pack(message, round_=each.round_))
                self.sent += [
                    {"exchange": self.n_exchanges, "at": at, "message_bytes": size, **row} for row in described(message)
                ]
        return received


def described(message: Any) -> list[dict[str, Any]]:
    """Every field of a message that holds something: its name, shape and the bytes of its content."""
    rows = []
    for field in fields(message):
        value = getattr(message, field.name)
        if value is None:
            continue
        is_array = isinstance(value, np.ndarray)
        rows.append(
            {
                "message": type(message).__name__,
                "field": field.name,
                "shape": " x ".join(map(str, value.shape)) if is_array else str(len(value) if is_list(value) else 1),
                "bytes": value.nbytes if is_array else len(str(value).encode()),
            }
        )
    return rows


def is_list(value: Any) -> bool:
    return isinstance(value, tuple)
