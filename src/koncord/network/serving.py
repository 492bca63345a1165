"""The coordinator's programs: Flower's SuperLink on this machine only, and nginx in front of it."""

import signal
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTP_PORT, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from koncord.errors import KoncordError
from koncord.network.certificates import announced, write_authority
from koncord.network.flower import control
from koncord.network.flower.programs import environment, superlink_command
from koncord.network.places import Coordinator
from koncord.network.processes import Program, say, wait_until
from koncord.network.proxy import ANNOUNCED_AT, nginx, write_config

NGINX = "nginx"
READY_WITHIN = 90.0
WATCH_EVERY = 0.5
LARGEST_ANNOUNCEMENT = 1 << 14  # bytes
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

    programs: list[Program]
    place: Coordinator

    def watch(self) -> None:
        """Wait until one of them ends, which is an error; take a renewed certificate into use."""
        shown = self._certificate()
        while True:
            for program in self.programs:
                if program.has_ended:
                    raise KoncordError(f"{program.end_in_words()}.")
            if self._certificate() != shown:
                shown = self._certificate()
                for program in self.programs:
                    if program.name == NGINX:
                        program.process.send_signal(signal.SIGHUP)  # it reads them; calls that go on are not cut
                say("the server's certificate was renewed, and is in use")
            time.sleep(WATCH_EVERY)

    def _certificate(self) -> bytes:
        return b"" if self.place.is_insecure else (self.place.folder / "server.crt").read_bytes()


@contextmanager
def serving(place: Coordinator) -> Iterator[Serving]:
    """Within the block the coordinator is up; at its end nothing that was started is left."""
    place.check_certificates()
    proxy = None if place.is_insecure else nginx_command(place)
    own = own_address(place)
    check_all_free(place)
    if not place.is_insecure:
        place.internal.mkdir(mode=0o700, exist_ok=True)
        write_authority(place.internal, [])
    authority = place.internal_authority
    variables = environment(place.flower_home)
    programs: list[Program] = []
    try:
        command = superlink_command(
            host=place.flower_host,
            port=place.internal_port,
            certificates=None if place.is_insecure else place.internal,
        )
        programs.append(Program("Flower", command, log=place.logs / "flower.log", environment=variables))
        wait_for(programs[-1], place.internal_port, authority, place.flower_host)
        register_sites(place)
        if proxy is not None:
            programs.append(Program(NGINX, proxy, log=place.logs / "nginx.log", environment=variables))
            wait_for(programs[-1], place.port, place.authority, own)
        yield Serving(programs, place)
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
        internal=place.internal,
        log=place.logs / "nginx.log",
    )
    return [program, "-p", str(config.parent), "-c", str(config), "-e", str(place.logs / "nginx.log")]


def own_address(place: Coordinator) -> str:
    """The address of this machine that sites' calls come in at, seen from itself."""
    return "127.0.0.1" if place.listen == "*" else place.listen


def check_all_free(place: Coordinator) -> None:
    """`KoncordError` if another program has a port that the coordinator needs."""
    check_free(place.internal_port, place.flower_host)
    check_free(place.port, own_address(place))


def check_free(port: int, host: str) -> None:
    if answers(port, host):
        raise KoncordError(
            f"Port {port} of this machine is in use: end the program that has it (another koncord serve?), or choose "
            "another port."
        )


def wait_for(program: Program, port: int, authority: Path | None, host: str) -> None:
    """Wait until the program answers on its port, with TLS where there is an authority."""
    wait_until(lambda: program.has_ended or is_ready(port, authority, host), READY_WITHIN)
    if program.has_ended:
        raise KoncordError(f"{program.name} did not start: {program.last_lines()} (see {program.log}).")
    if not is_ready(port, authority, host):
        raise KoncordError(
            f"{program.name} does not answer after {READY_WITHIN:g} s (see {program.log}); is this machine busy?"
        )


def is_running(place: Coordinator) -> bool:
    """Whether koncord serve is up in this folder."""
    if place.internal_authority is not None and not place.internal_authority.exists():
        return False  # it never was
    return is_ready(place.internal_port, place.internal_authority, place.flower_host)


def register_sites(place: Coordinator) -> None:
    """Give Flower, which knows nobody at its start, the key of every site that was invited and not revoked."""
    with place.changing_sites():
        for site in place.registered():
            if site.public and site.revoked is None:
                place.write_site(replace(site, node=control.register(place, site.name, site.public)))


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
    with closing(connection_to(address, authority)) as connection:
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


def connection_to(address: str, authority: Path) -> HTTPSConnection:
    """A connection of a site to its coordinator, through the proxy that the environment names (HTTPS_PROXY), if any."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.create_default_context(cafile=str(authority))
    named = "" if proxy_bypass(host) else getproxies().get("https", "")
    if not named:
        return HTTPSConnection(host, int(port), timeout=5, context=context)
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    connection = HTTPSConnection(proxy.hostname or "", proxy.port or HTTP_PORT, timeout=5, context=context)
    own = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else ""
    headers = {"Proxy-Authorization": f"Basic {b64encode(own.encode()).decode()}"} if own else {}
    connection.set_tunnel(host, int(port), headers)
    return connection


def learned_authority(address: str, trusted: Path) -> bytes | None:
    """The certificate of a new authority that the coordinator announces; None if there is none, or nobody answers."""
    with closing(connection_to(address, trusted)) as connection:
        try:
            connection.request("GET", ANNOUNCED_AT)
            response = connection.getresponse()
            content = response.read(LARGEST_ANNOUNCEMENT)
        except (OSError, HTTPException):
            return None
    return announced(content, trusted) if response.status == HTTPStatus.OK else None
