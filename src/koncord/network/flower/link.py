"""The link of `koncord run`: every exchange goes through the relay that Flower runs beside the SuperLink."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Self

from koncord._files import writing
from koncord.aggregate.base import Replies
from koncord.errors import KoncordError, MessageError
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.flower.programs import SUPERLINK, call, write_app
from koncord.network.places import Coordinator
from koncord.protocol.chain import Receipt, Verify
from koncord.protocol.setup import Prepare
from koncord.session.policy import ServerPolicy
from koncord.session.rounds import RoundRequest
from koncord.session.transport import Carried, Journal, PackedLink, set_aside_for

CONNECTS_WITHIN = 300.0  # seconds; on a busy machine Flower takes minutes to start a run
LOOK_EVERY = 2.0
STOPPED = "The coordinator's Flower has stopped (is koncord serve running?)."
ASK_AGAIN = 2.0  # seconds until a site that waits for its owner is asked the same again
NOT_YET = {
    "consent": "its owner has not agreed to the run yet",
    "release": "its owner has not released its reply yet",
}
REVOKED = "its key was revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came back from one or more questions of one exchange."""

    replies: dict[str, list[bytes]] = field(default_factory=dict)
    seconds: dict[str, Sequence[float]] = field(default_factory=dict)
    receipts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)  # by the owner of the site, and why
    waiting: dict[str, str] = field(default_factory=dict)  # for the owner of the site, and for what

    def with_later(self, later: "Came") -> "Came":
        """The same after the sites that waited were asked again."""
        return Came(
            **{
                name: {**getattr(self, name), **getattr(later, name)}
                for name in ("replies", "seconds", "receipts", "versions", "missing", "refused", "declined")
            },
            waiting=later.waiting,
        )


class FlowerLink(PackedLink):
    """Link to sites by way of Flower.

    Parameters
    ----------
    relay : Relay
        The running relay.
    nodes : mapping of str to int or None
        Flower's number of every site, by its name; None for one without a key, which is asked for its name.
    run : str
        Name of the run, the same when it is resumed.
    method : str
        Estimator and aggregator of the run, as JSON for the sites.
    policy : ServerPolicy
        Quorum and timeouts.
    left_out : mapping of str to int or None, default None
        Sites that are not asked any more, each with the last exchange it was asked in.
    keys : mapping of str to callable or None, default None
        Whether a site's key signed some bytes, by its name; what a site with one sends is taken with a receipt only.
    receipts : Path or None, default None
        File that the receipts are appended to.
    coordinator : Coordinator or None, default None
        Tells the sites whose key was revoked, which do not take part any more; looked up in every exchange.
    """

    def __init__(
        self,
        relay: "Relay",
        nodes: Mapping[str, int | None],
        *,
        run: str,
        method: str,
        policy: ServerPolicy,
        journal: Journal | None,
        left_out: Mapping[str, int] | None = None,
        keys: Mapping[str, Verify] | None = None,
        receipts: Path | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        super().__init__(list(nodes), min_sites=policy.min_sites, journal=journal, left_out=left_out)
        self.relay, self.nodes, self.run, self.method = relay, dict(nodes), run, method
        self.policy = policy
        self.keys, self.receipts, self.coordinator = dict(keys or {}), receipts, coordinator
        self._waits = policy.round_timeout
        self._waited: Counter[str] = Counter()  # seconds for the owner of each site

    def exchange_all(self, asked: Sequence[RoundRequest]) -> list[Replies]:
        # One site that comes late does its phase 1 while the others go on.
        n_prepared = sum(isinstance(message, Prepare) for each in asked for message in each.down.values())
        self._waits = self.policy.first_timeout if n_prepared >= self.min_sites else self.policy.round_timeout
        return super().exchange_all(asked)

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        gone = self.revoked()
        asked = {site: messages for site, messages in down.items() if site not in gone}
        came = self._ask(exchange, asked, needed=self.policy.min_sites)
        while waited := [site for site in came.waiting if self._waited[site] < self.policy.owner_wait]:
            self.note_waiting({site: NOT_YET.get(came.waiting[site], "its owner") for site in waited})
            began = time.monotonic()
            time.sleep(ASK_AGAIN)
            again = self._ask(exchange, {site: down[site] for site in waited if site not in self.revoked()})
            self._waited.update(dict.fromkeys(waited, time.monotonic() - began))
            came = came.with_later(again)
        gone = self.revoked()  # also one that answered in between
        self.note_answers(came.versions)
        refused = {site: set_aside_for(reason) for site, reason in {**came.refused, **self._unsigned(came)}.items()}
        refused |= {site: f"its owner refused: {reason}" for site, reason in came.declined.items()}
        refused |= {site: REVOKED for site in down if site in gone}
        self._keep_receipts(came, refused)
        return Carried(
            replies={site: replies for site, replies in came.replies.items() if site not in refused},
            missing={**came.missing, **{site: NOT_YET.get(why, why) for site, why in came.waiting.items()}},
            refused=refused,
            seconds={site: took for site, took in came.seconds.items() if site not in refused},
        )

    def revoked(self) -> set[str]:
        """Sites whose key was revoked by now."""
        return set() if self.coordinator is None else self.coordinator.revoked()

    def note_waiting(self, sites: Mapping[str, str]) -> None:
        """Called while the owners of some sites are waited for, with what for."""

    def note_answers(self, versions: Mapping[str, str]) -> None:
        """Called when some sites have answered, with the version of koncord each says it has."""

    def _ask(self, exchange: int, down: Mapping[str, Sequence[bytes]], *, needed: int = 0) -> Came:
        header = {
            "do": "exchange",
            "run": self.run,
            "exchange": exchange,
            "method": self.method,
            "timeout": self._waits,
            "returns_within": self.policy.round_timeout,
            "needed": needed,
            "coordinator": None if self.coordinator is None else str(self.coordinator.folder),
            "nodes": {site: self.nodes[site] for site in down},
            "counts": {site: len(messages) for site, messages in down.items()},
        }
        blobs = {f"{site}/{at}": message for site, messages in down.items() for at, message in enumerate(messages)}
        answer, received = from_frame(self.relay.ask(as_frame(header, blobs)))
        counts: Mapping[str, int] = answer["counts"]
        names = ("seconds", "receipts", "versions", "missing", "refused", "declined", "waiting")
        return Came(
            replies={site: [received[f"{site}/{at}"] for at in range(counts[site])] for site in down if site in counts},
            **{name: answer[name] for name in names},
        )

    def _unsigned(self, came: Came) -> dict[str, str]:
        """Why the replies of some sites are not taken: no receipt of the site's key goes with them."""
        return {
            site: reason
            for site in came.replies
            if site in self.keys and (reason := self._why_unsigned(site, came.receipts.get(site))) is not None
        }

    def _why_unsigned(self, site: str, text: str | None) -> str | None:
        if text is None:
            return "its replies came without a receipt."
        try:
            receipt = Receipt.from_text(text)
        except MessageError as error:
            return str(error)
        is_ours = (receipt.site, receipt.run, receipt.exchange) == (site, self.run, self.n_exchanges)
        if not is_ours or not receipt.is_signed(self.keys[site]):
            return "its receipt is not one of its key for this exchange."
        return None

    def _keep_receipts(self, came: Came, refused: Collection[str]) -> None:
        if self.receipts is not None:
            lines = [came.receipts[site] + "\n" for site in sorted(came.receipts) if site not in refused]
            before = self.receipts.stat().st_size if self.receipts.exists() else 0
            try:
                with writing(self.receipts), self.receipts.open("a", encoding="utf-8") as file:
                    file.writelines(lines)
            except OSError:
                os.truncate(self.receipts, before)  # no half of a line
                raise


class Relay:
    """Starts the relay as a Flower run, speaks with it, and ends it.

    Parameters
    ----------
    home : Path
        Folder of Flower's configuration at the coordinator.
    folder : Path
        An empty folder of one's own, for the socket and the program.
    is_carried : callable
        Whether Flower still has its run of a number; asked while the relay has not begun.
    give_up : callable
        Have Flower give up its run of a number, if the relay has not begun in time.
    """

    def __init__(
        self, home: Path, folder: Path, is_carried: Callable[[str], bool], give_up: Callable[[str], None]
    ) -> None:
        self.home = home
        self.folder = folder
        self.is_carried, self.give_up = is_carried, give_up
        self.run_id: str | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        socket = str(self.folder / "relay")
        app = write_app(self.folder / "app")
        with Listener(socket, family="AF_UNIX") as listener:
            accepted: list[Connection] = []
            waiting = threading.Thread(target=accept_into, args=(listener, accepted), daemon=True)
            waiting.start()
            started = call(self.home, "run", str(app), SUPERLINK, "--run-config", f'socket="{socket}"')
            self.run_id = str(started["run-id"])
            end = time.monotonic() + CONNECTS_WITHIN
            is_lost = False
            try:
                while waiting.is_alive() and time.monotonic() < end and not is_lost:
                    waiting.join(LOOK_EVERY)
                    is_lost = waiting.is_alive() and not self.is_carried(self.run_id)
            finally:
                if not accepted and not is_lost:
                    self.give_up(self.run_id)
        if not accepted:
            self.close()
            raise KoncordError(STOPPED if is_lost else f"Flower did not begin its run in {CONNECTS_WITHIN:g} s.")
        self._connection = accepted[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def ask(self, frame: bytes) -> bytes:
        if self._connection is None:
            raise KoncordError("The relay is not running.")
        try:
            self._connection.send_bytes(frame)
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise KoncordError(STOPPED) from error

    def connected(self, nodes: Mapping[str, int | None]) -> set[str]:
        """Those of the sites that are connected now."""
        return set(from_frame(self.ask(as_frame({"do": "connected", "nodes": dict(nodes)})))[0]["connected"])


def accept_into(listener: Listener, accepted: list[Connection]) -> None:
    with suppress(OSError):  # nobody came in time
        accepted.append(listener.accept())
