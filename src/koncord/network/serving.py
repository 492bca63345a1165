"""The coordinator's programs: Flower's SuperLink on this machine only, and nginx in front of it."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from koncord.errors import KoncordError
from koncord.network.flower.programs import environment, superlink_command, write_connection
from koncord.network.places import Coordinator
from koncord.network.processes import Program, wait_until
from koncord.network.proxy import nginx, write_config

READY_WITHIN = 90.0
WATCH_EVERY = 0.5
CERTIFICATE_HAS_EXPIRED = 10  # OpenSSL's number
EXPIRED = "the coordinator's certificate has expired, or the clock of this machine is wrong"
# Flower takes a signature whose time lies from 5 s ahead to 305 s behind; the server's date is in whole seconds.
EARLIEST, LATEST = -4.0, 304.0
CLOCK = (
    "check that this machine's clock is right: it is {difference} the coordinator's, which takes signatures "
    "from -5 s to +305 s"
)


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
    place.check_certificates()
    proxy = None if place.is_insecure else nginx_command(place)
    own = "127.0.0.1" if place.listen == "*" else place.listen
    check_free(place.internal_port, place.flower_host)
    check_free(place.port, own)
    write_connection(place.flower_home, host=place.flower_host, port=place.internal_port, authority=place.authority)
    variables = environment(place.flower_home)
    programs: list[Program] = []
    try:
        command = superlink_command(
            host=place.flower_host,
            port=place.internal_port,
            certificates=None if place.is_insecure else place.folder,
            database=place.folder / "superlink.db",
        )
        programs.append(Program("Flower", command, log=place.logs / "flower.log", environment=variables))
        wait_for(programs[-1], place.internal_port, place.authority, place.flower_host)
        if proxy is not None:
            programs.append(Program("nginx", proxy, log=place.logs / "nginx.log", environment=variables))
            wait_for(programs[-1], place.port, place.authority, own)
        yield Serving(tuple(programs))
    finally:
        for program in reversed(programs):
            program.stop()


def nginx_command(place: Coordinator) -> list[str]:
    program = nginx()
    config = write_config(
        place.folder / "nginx",
        listen=place.listen,
        port=place.port,
        internal_port=place.internal_port,
        certificates=place.folder,
        log=place.logs / "nginx.log",
    )
    return [program, "-p", str(config.parent), "-c", str(config), "-e", str(place.logs / "nginx.log")]


def check_free(port: int, host: str) -> None:
    if answers(port, host):
        raise KoncordError(f"Port {port} of this machine is in use; is another koncord serve running?")


def wait_for(program: Program, port: int, authority: Path | None, host: str) -> None:
    """Wait until the program answers on its port, with TLS where there is an authority."""
    wait_until(lambda: program.has_ended or is_ready(port, authority, host), READY_WITHIN)
    if program.has_ended or not is_ready(port, authority, host):
        raise KoncordError(f"{program.name} did not start: {program.last_lines()} (see {program.log}).")


def is_running(place: Coordinator) -> bool:
    return is_ready(place.internal_port, place.authority, place.flower_host)


def is_ready(port: int, authority: Path | None, host: str) -> bool:
    return answers(port, host) if authority is None else speaks_tls(port, authority, host)


def answers(port: int, host: str) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def speaks_tls(port: int, authority: Path, host: str) -> bool:
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection((host, port), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except OSError:
        return False


def problem_of(address: str, authority: Path) -> str | None:
    """What keeps a site with the right key out, as far as the server shows it: its certificate, or its clock."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    with closing(HTTPSConnection(host.strip("[]"), int(port), timeout=5, context=context)) as connection:
        try:
            connection.request("HEAD", "/")
            date = parsedate_to_datetime(connection.getresponse().getheader("Date", ""))
        except ssl.SSLCertVerificationError as error:
            return EXPIRED if error.verify_code == CERTIFICATE_HAS_EXPIRED else None
        except (OSError, HTTPException, ValueError):
            return None
    behind = date.timestamp() - time.time()
    if EARLIEST < behind < LATEST:
        return None
    return CLOCK.format(difference=f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'}")


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
