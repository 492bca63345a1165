"""The link of `koncord run`: every exchange goes through the relay that Flower runs beside the SuperLink."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Self

from koncord.aggregate.base import Replies
from koncord.errors import KoncordError
from koncord.network.flower.frames import as_frame, from_frame
from koncord.network.flower.programs import SUPERLINK, call, write_app
from koncord.protocol.setup import Prepare
from koncord.session.policy import ServerPolicy
from koncord.session.rounds import Asked
from koncord.session.transport import Carried, Journal, PackedLink, set_aside_for

CONNECTS_WITHIN = 120.0


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
    """

    def __init__(
        self,
        relay: "Relay",
        nodes: Mapping[str, int | None],
        *,
        run: str,
        method: str,
        policy: ServerPolicy,
        journal: Journal,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(list(nodes), min_sites=policy.min_sites, journal=journal, left_out=left_out)
        self.relay, self.nodes, self.run, self.method = relay, dict(nodes), run, method
        self.policy = policy
        self._waits = policy.round_timeout

    def exchange_all(self, asked: Sequence[Asked]) -> list[Replies]:
        # One site that comes late does its phase 1 while the others go on.
        n_prepared = sum(isinstance(message, Prepare) for each in asked for message in each.down.values())
        self._waits = self.policy.first_timeout if n_prepared >= self.min_sites else self.policy.round_timeout
        return super().exchange_all(asked)

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        header = {
            "do": "exchange",
            "run": self.run,
            "exchange": exchange,
            "method": self.method,
            "timeout": self._waits,
            "nodes": {site: self.nodes[site] for site in down},
            "counts": {site: len(messages) for site, messages in down.items()},
        }
        blobs = {f"{site}/{at}": message for site, messages in down.items() for at, message in enumerate(messages)}
        answer, received = from_frame(self.relay.ask(as_frame(header, blobs)))
        counts: Mapping[str, int] = answer["counts"]
        return Carried(
            replies={site: [received[f"{site}/{at}"] for at in range(counts[site])] for site in down if site in counts},
            missing=answer["missing"],
            refused={site: set_aside_for(reason) for site, reason in answer["refused"].items()},
            seconds=answer["seconds"],
        )


class Relay:
    """Starts the relay as a Flower run, speaks with it, and ends it.

    Parameters
    ----------
    home : Path
        Folder of Flower's configuration at the coordinator.
    folder : Path
        An empty folder of one's own, for the socket and the program.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
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
            waiting.join(CONNECTS_WITHIN)
        if not accepted:
            self.close()
            raise KoncordError(f"Flower's run {self.run_id} did not begin in {CONNECTS_WITHIN:g} s.")
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
            raise KoncordError("The coordinator's Flower has stopped (is koncord serve running?).") from error

    def connected(self, nodes: Mapping[str, int | None]) -> set[str]:
        """Those of the sites that are connected now."""
        return set(from_frame(self.ask(as_frame({"do": "connected", "nodes": dict(nodes)})))[0]["connected"])


def accept_into(listener: Listener, accepted: list[Connection]) -> None:
    with suppress(OSError):  # nobody came in time
        accepted.append(listener.accept())
