"""What a run keeps on disk so that a crash loses nothing: the coordinator's journal, and each site's memory.

The server's side of a run follows from the replies alone, so the coordinator keeps every exchange's replies and a
resumed run is fed with them before it asks anybody. A site keeps, in one file, what it needs to go on and its last
replies: asked the same again, it answers the same bytes. With a privacy budget that is more than a convenience: a
second answer with other noise would tell more of the rows than was promised.

Both are safetensors files, written beside their place, flushed to the disk and renamed: whole or not there.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from koncord._files import write_atomic
from koncord.aggregate.base import Aggregator, step_types
from koncord.aggregate.private import Known
from koncord.errors import CheckpointError, MessageError
from koncord.protocol import setup
from koncord.protocol.received import read_seconds
from koncord.protocol.wire import pack, unpack
from koncord.session.site import SentScale, Site
from koncord.session.transport import Carried
from koncord.types import LocalEstimate

# --- the coordinator ---


class FileJournal:
    """The exchanges of one run, a file each, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recall(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried | None:
        path = self._file(exchange)
        if not path.exists():
            return None
        header, blobs = read_blobs(path)
        if header["asked"] != digest_of(down):
            raise CheckpointError(
                f"'{path}' answers another question than this run asks in exchange {exchange}; "
                "a run is resumed with the koncord and the settings it was started with. "
                "Begin it anew with another --out."
            )
        return carried_in(path, header, blobs)

    def keep(self, exchange: int, down: Mapping[str, Sequence[bytes]], carried: Carried) -> None:
        header = {
            "asked": digest_of(down),
            "replies": {client: len(replies) for client, replies in carried.replies.items()},
            "missing": dict(carried.missing),
            "refused": dict(carried.refused),
            "seconds": {client: list(seconds) for client, seconds in carried.seconds.items()},
        }
        blobs = {f"{c}/{at}": reply for c, replies in carried.replies.items() for at, reply in enumerate(replies)}
        self.folder.mkdir(exist_ok=True)
        write_blobs(self._file(exchange), header, blobs)

    @property
    def n_kept(self) -> int:
        """The last exchange that is kept."""
        return max((int(path.stem) for path in self.folder.glob("*.exchange")), default=0)

    def _file(self, exchange: int) -> Path:
        return self.folder / f"{exchange:05}.exchange"


def carried_in(path: Path, header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Carried:
    """What one file of the journal keeps; `CheckpointError` if it cannot be."""
    try:
        counts: Mapping[str, int] = header["replies"]
        return Carried(
            replies={client: [blobs[f"{client}/{at}"] for at in range(n)] for client, n in counts.items()},
            missing=header["missing"],
            refused=header["refused"],
            seconds={client: read_seconds(took, counts[client]) for client, took in header["seconds"].items()},
        )
    except (KeyError, TypeError, AttributeError, MessageError) as error:
        raise CheckpointError(f"'{path}' is damaged: it does not hold an exchange of a run.") from error


def digest_of(down: Mapping[str, Sequence[bytes]]) -> str:
    """One word for all that was asked of all clients."""
    whole = hashlib.sha256()
    for client in sorted(down):
        whole.update(json.dumps([client, messages_digest(down[client])]).encode())
    return whole.hexdigest()


def messages_digest(messages: Sequence[bytes]) -> str:
    whole = hashlib.sha256()
    for message in messages:
        whole.update(len(message).to_bytes(8, "little") + message)
    return whole.hexdigest()


# --- a site ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The last exchange a site answered in a run, as far as it did."""

    exchange: int  # 0 before the first
    asked: str = ""  # digest of the messages
    replies: Sequence[bytes] = ()
    seconds: Sequence[float] = ()


class SiteMemory:
    """One site's part in one run, in one file: it answers each exchange once, whatever process it lives in.

    The file is on the disk before a reply, or the reason why there is none, is handed on. What a site with a privacy
    budget has spent and released is in it, so no process after this one spends it again.

    Parameters
    ----------
    path : Path
        The file; its folder exists.
    site : Site
        The site as it was before the run; its state is taken from the file if there is one.
    aggregator : type
        Class whose client steps it takes.
    identity : mapping of str to object
        What must not change while the run goes on (the table, the estimator), by name; JSON values. The site's privacy
        budget is one of these.
    """

    def __init__(self, path: Path, site: Site, aggregator: type[Aggregator], identity: Mapping[str, Any]) -> None:
        self.path = path
        self.site = site
        self.identity = {**identity, **stated_budget(site)}
        self.last = Answered(exchange=0)
        if path.exists():
            self._restore(aggregator)

    def answer(self, exchange: int, messages: Sequence[bytes]) -> Answered:
        """The replies to one exchange; if it was answered before, the same again."""
        asked = messages_digest(messages)
        if (exchange, asked) != (self.last.exchange, self.last.asked):
            try:
                self._check(exchange, len(messages))
            except MessageError as error:
                self.site.note_refusal(error)
                self._keep()
                raise
            self.last = Answered(exchange=exchange, asked=asked)
        for message in messages[len(self.last.replies) :]:
            self._answer_next(message)
        return self.last

    def _check(self, exchange: int, n_messages: int) -> None:
        if exchange <= self.last.exchange:
            raise MessageError(
                f"site {self.site.name!r} has answered exchange {self.last.exchange} and was asked exchange "
                f"{exchange} anew."
            )
        self.site.guard.check_exchange(n_messages)

    def _answer_next(self, message: bytes) -> None:
        try:
            (reply,), (took,) = self.site.answer_all([message])
            self.last = replace(self.last, replies=[*self.last.replies, reply], seconds=[*self.last.seconds, took])
        finally:
            self._keep()  # also what an answer that failed has spent, and that it failed

    def _keep(self) -> None:
        kept: dict[str, Any] = {
            "measured": self.site.measured,
            "sent_scale": self.site.sent_scale,
            "prepared": self.site.prepared,
            "estimate": self.site.estimate,
            "state": self.site.state,
        }
        if self.site.private is not None:
            kept["known"] = self.site.private.known
        blobs = {name: pack(record) for name, record in kept.items() if record is not None}
        blobs |= {f"reply/{at}": reply for at, reply in enumerate(self.last.replies)}
        header = {
            "identity": self.identity,
            "exchange": self.last.exchange,
            "asked": self.last.asked,
            "n_replies": len(self.last.replies),
            "seconds": list(self.last.seconds),
            "guard": self.site.guard.kept(),
        }
        write_blobs(self.path, header, blobs)

    def _restore(self, aggregator: type[Aggregator]) -> None:
        header, blobs = read_blobs(self.path)
        began: dict[str, Any] = header["identity"]
        changed = [name for name in {**began, **self.identity} if began.get(name) != self.identity.get(name)]
        if changed:
            raise CheckpointError(
                f"site {self.site.name!r} began this run with another {' and another '.join(changed)}; "
                "it cannot go on with this one."
            )
        self.last = Answered(
            exchange=header["exchange"],
            asked=header["asked"],
            replies=[blobs[f"reply/{at}"] for at in range(header["n_replies"])],
            seconds=header["seconds"],
        )
        self.site.guard.restore(header["guard"])
        if "sent_scale" in blobs:
            self.site.sent_scale = unpack(blobs["sent_scale"], (SentScale,))[0]
        if "measured" in blobs:
            self.site.resume_measured(unpack(blobs["measured"], (setup.Measure,))[0])
        prepared = unpack(blobs["prepared"], (setup.Prepare,))[0] if "prepared" in blobs else None
        if self.site.private is not None:
            self.site.resume_private(unpack(blobs["known"], (Known,))[0], prepared)
        elif prepared is not None:
            state = unpack(blobs["state"], state_kinds(aggregator))[0] if "state" in blobs else None
            found = unpack(blobs["estimate"], (LocalEstimate,))[0] if "estimate" in blobs else None
            self.site.resume(prepared, found, state)


def stated_budget(site: Site) -> dict[str, Any]:
    """The privacy budget of a site, by the name it has in a sentence."""
    return {} if site.private is None else {"privacy budget": site.private.budget.as_dict()}


def state_kinds(aggregator: type[Aggregator]) -> tuple[type[Any], ...]:
    """The records a client of this aggregator may keep between messages, as its client steps declare them."""
    kinds: list[type[Any]] = []
    for step in aggregator.client_steps.values():
        state, _ = step_types(step)
        kinds += [kind for kind in (get_args(state) or (state,)) if kind not in (type(None), None, *kinds)]
    return tuple(kinds)


# --- files ---


def write_blobs(path: Path, header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
    """A file of named bytes and a header of JSON values, readable by its owner only; on the disk when this returns."""
    arrays = {name: np.frombuffer(blob, dtype=np.uint8) for name, blob in blobs.items()}
    data = save(arrays, metadata={"koncord": json.dumps(header)})
    write_atomic(path, data, private=True, durable=True)


def read_blobs(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and bytes of a file of `write_blobs`; `CheckpointError` for anything else."""
    try:
        with safe_open(path, framework="numpy") as stored:
            header = json.loads((stored.metadata() or {})["koncord"])
            return header, {key: stored.get_tensor(key).tobytes() for key in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"'{path}' is not a koncord checkpoint.") from error
