"""What came from a site, checked before anything is done with it: types, lengths, numbers, and text that can be shown.

Flower hands over whatever values a site put into its record. What does not look as koncord's own client writes it is
refused here, whole, and its site is set aside.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from koncord._text import shortened
from koncord.errors import MessageError
from koncord.protocol.schema import LARGEST_ANSWER

LONGEST_VERSION = 40  # characters
MOST_SECONDS = 366 * 86400.0  # of one answer: a year; many sites' sums stay finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The answer of one site to one exchange: its replies, or why there are none."""

    replies: tuple[bytes, ...] = ()
    seconds: tuple[float, ...] = ()  # that each reply took at the site; empty where it does not say
    version: str = ""  # of koncord at the site, as it says
    error: str | None = None
    refused: str | None = None  # why its owner takes no part in the run


def read_record(record: Mapping[str, Any], n_asked: int) -> Received:
    """The answer in the record of a site that was asked `n_asked` messages; `MessageError` if it is none."""
    if "error" in record:
        error = record["error"]
        if not isinstance(error, str):
            raise MessageError("its error is not text.")
        return Received(error=shortened(error) or "no reason given")
    if "refused" in record:
        refused = record["refused"]
        if not isinstance(refused, str):
            raise MessageError("why its owner refused is not text.")
        return Received(refused=shortened(refused) or "no reason given")
    replies = record.get("replies")
    # An integer in the place of bytes would become that many bytes.
    if not isinstance(replies, list) or not all(type(reply) is bytes for reply in replies):
        raise MessageError("its replies are not a list of bytes.")
    if len(replies) != n_asked:
        raise MessageError(f"{len(replies)} replies came where {n_asked} were expected.")
    n_bytes = sum(map(len, replies))
    if n_bytes > LARGEST_ANSWER:
        raise MessageError(f"its replies have {n_bytes} bytes; at most {LARGEST_ANSWER} are taken.")
    version = record.get("version", "")
    if not isinstance(version, str):
        raise MessageError("its version is not text.")
    return Received(
        replies=tuple(replies),
        seconds=read_seconds(record.get("seconds", []), n_asked),
        version=shortened(version, LONGEST_VERSION),
    )


def read_seconds(seconds: Any, n_replies: int) -> tuple[float, ...]:
    """The seconds that each of the replies took, or none; `MessageError` unless they are finite and not negative."""
    if not isinstance(seconds, list) or not all(type(took) in (int, float) for took in seconds):
        raise MessageError("its seconds are not a list of numbers.")
    if len(seconds) not in (0, n_replies):
        raise MessageError(f"the seconds of {len(seconds)} replies came with {n_replies} replies.")
    if not all(isfinite(took) and 0 <= took <= MOST_SECONDS for took in seconds):
        raise MessageError(f"its seconds are not from 0 to {MOST_SECONDS:g}.")
    return tuple(map(float, seconds))
