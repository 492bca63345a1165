"""The coordinator's programs: Flower's SuperLink on this machine only, and nginx in front of it."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from koncord.errors import KoncordError
from koncord.federate.flower.programs import environment, superlink_command, write_connection
from koncord.network.places import Coordinator
from koncord.network.processes import Program, wait_until
from koncord.network.proxy import nginx, write_config

READY_WITHIN = 90.0
WATCH_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Serving:
    """The running programs of a coordinator."""

    programs: tuple[Program, ...]

    def watch(self) -> None:
        """Wait until one of them ends, which is an error."""
        while True:
            for program in self.programs:
                if program.has_ended:
                    raise KoncordError(f"{program.name} has ended: {program.last_lines()} (see {program.log}).")
            time.sleep(WATCH_EVERY)


@contextmanager
def serving(place: Coordinator) -> Iterator[Serving]:
    """Within the block the coordinator is up; at its end nothing that was started is left."""
    proxy = nginx()
    for port in (place.internal_port, place.port):
        check_free(port)
    write_connection(place.flower_home, port=place.internal_port, authority=place.authority)
    config = write_config(
        place.folder / "nginx",
        listen=place.listen,
        port=place.port,
        internal_port=place.internal_port,
        certificates=place.folder,
        log=place.logs / "nginx.log",
    )
    variables = environment(place.flower_home)
    programs: list[Program] = []
    try:
        command = superlink_command(
            port=place.internal_port, certificates=place.folder, database=place.folder / "superlink.db"
        )
        programs.append(Program("Flower", command, log=place.logs / "flower.log", environment=variables))
        wait_for(programs[-1], place.internal_port, place.authority)
        command = [proxy, "-p", str(config.parent), "-c", str(config), "-e", str(place.logs / "nginx.log")]
        programs.append(Program("nginx", command, log=place.logs / "nginx.log", environment=variables))
        own = "127.0.0.1" if place.listen == "*" else place.listen
        wait_for(programs[-1], place.port, place.authority, host=own)
        yield Serving(tuple(programs))
    finally:
        for program in reversed(programs):
            program.stop()


def check_free(port: int) -> None:
    if answers(port):
        raise KoncordError(f"Port {port} of this machine is in use; is another koncord serve running?")


def wait_for(program: Program, port: int, authority: Path, host: str = "127.0.0.1") -> None:
    """Wait until the program speaks TLS on its port."""
    wait_until(lambda: program.has_ended or speaks_tls(port, authority, host), READY_WITHIN)
    if program.has_ended or not speaks_tls(port, authority, host):
        raise KoncordError(f"{program.name} did not start: {program.last_lines()} (see {program.log}).")


def answers(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def speaks_tls(port: int, authority: Path, host: str = "127.0.0.1") -> bool:
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection((host, port), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
