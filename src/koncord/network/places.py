"""The folders and files of the two sides: the coordinator's folder, a site's invitation, a site's state."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from koncord._files import write_atomic
from koncord.errors import KoncordError

COORDINATOR_FORMAT, SITE_FORMAT, INVITE_FORMAT = "koncord-coordinator", "koncord-invited-site", "koncord-invite"
VERSION = 1
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
RUNTIME = "runtime"  # in a site's folder: what its SuperNode and its client know each other by
LOWEST_PORT, HIGHEST_PORT = 1, 65535
INSECURE = (
    "WARNING: this federation is insecure. Nothing is encrypted and no site proves who it is: anyone who can run a "
    "program on this machine can read every message, answer as any site and start runs. For trying things out only."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The coordinator's folder and what it is set to."""

    folder: Path
    hosts: tuple[str, ...]  # names and addresses that sites reach it by; the first goes into invitations
    listen: str  # address it listens on, "*" for all
    port: int
    internal_port: int  # of Flower, on this machine only
    is_insecure: bool = False  # no TLS, no keys, no nginx: sites reach Flower itself, from this machine only

    @property
    def address(self) -> str:
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def authority(self) -> Path | None:
        """Certificate of the authority that signed the server's; None where there is no TLS."""
        return None if self.is_insecure else self.folder / "ca.crt"

    @property
    def flower_host(self) -> str:
        return self.listen if self.is_insecure else "127.0.0.1"

    @property
    def flower_home(self) -> Path:
        return self.folder / "flower"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def check_certificates(self) -> None:
        """KoncordError if one of them has expired."""
        if self.is_insecure:
            return
        from koncord.network.certificates import check_not_expired

        for name in ("ca.crt", "server.crt"):
            path = self.folder / name
            way_out = "start a coordinator with another --folder and invite the sites anew"
            check_not_expired(path.read_bytes(), f"The certificate '{path}'", way_out)

    def sites(self) -> dict[str, int | None]:
        """Flower's number of every site that was invited, by name; None where it has none of its own without a key."""
        files = sorted((self.folder / "sites").glob("*.json"))
        content = [read_json(path, SITE_FORMAT, "the entry of an invited site") for path in files]
        return {each["site"]: each["node"] for each in content}

    def add_site(self, site: str, node: int | None) -> None:
        entry = {"format": SITE_FORMAT, "version": VERSION, "site": site, "node": node}
        write_atomic(self.folder / "sites" / f"{site}.json", json.dumps(entry).encode(), private=True)

    def create(self) -> None:
        """Make the folder with its certificates; the settings come last, so that half a folder is none."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        for inner in (self.flower_home, self.logs, self.folder / "sites"):
            inner.mkdir(exist_ok=True)
        if not self.is_insecure:
            from koncord.network.certificates import write_authority  # brings cryptography, which only this needs

            write_authority(self.folder, self.hosts)
        settings = {
            "format": COORDINATOR_FORMAT,
            "version": VERSION,
            **{name: value for name, value in asdict(self).items() if name != "folder"},
        }
        write_atomic(self.folder / "settings.json", json.dumps(settings, indent=1).encode(), private=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        settings = read_json(folder / "settings.json", COORDINATOR_FORMAT, "the folder of a koncord coordinator")
        return cls(
            folder=folder.resolve(),
            hosts=tuple(settings["hosts"]),
            listen=settings["listen"],
            port=settings["port"],
            internal_port=settings["internal_port"],
            is_insecure=settings.get("is_insecure", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """All a site needs to join: who it is, where the coordinator is, and how each knows the other."""

    site: str
    address: str
    authority: str  # certificate, PEM; empty without TLS
    key: str  # private, OpenSSH; empty without TLS
    is_insecure: bool = False

    def save(self, path: Path) -> None:
        content = {"format": INVITE_FORMAT, "version": VERSION, **asdict(self)}
        write_atomic(path, json.dumps(content, indent=1).encode(), private=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path, INVITE_FORMAT, "a koncord invitation")
        if not all(isinstance(content.get(name), str) for name in ("site", "address", "authority", "key")):
            raise KoncordError(f"'{path}' is not a koncord invitation.")
        check_site_name(content["site"])
        made = cls(
            **{name: content[name] for name in ("site", "address", "authority", "key")},
            is_insecure=content.get("is_insecure", False) is True,
        )
        host = made.address.rpartition(":")[0].strip("[]")
        if made.is_insecure and not is_loopback([host]):
            raise ValueError(
                f"'{path}' is an invitation without encryption to {made.address}, which is not this machine: refused."
            )
        return made


def read_json(path: Path, format_: str, what: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise KoncordError(f"'{path}' is not there: it would be {what}.") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise KoncordError(f"'{path}' is not {what}.") from error
    if not isinstance(content, dict) or content.get("format") != format_:
        raise KoncordError(f"'{path}' is not {what}.")
    if content.get("version") != VERSION:
        raise KoncordError(f"'{path}' has version {content.get('version')}; this koncord reads version {VERSION}.")
    return content


def check_site_name(name: str) -> str:
    """A name that is safe as a file name, in configuration files and in a command."""
    if not SITE_NAME.fullmatch(name):
        raise ValueError(
            "The name of a site must be of letters, digits, '.', '_' and '-', begin with a letter or digit and have at "
            f"most 63 characters; got {name!r}."
        )
    return name


def check_host(host: str) -> str:
    """A host name or address that is safe in configuration files."""
    try:
        return str(ip_address(host))
    except ValueError:
        if HOST_NAME.fullmatch(host):
            return host
        raise ValueError(f"--host must be a host name or an address; got {host!r}.") from None


def check_port(option: str, port: int) -> int:
    if not LOWEST_PORT <= port <= HIGHEST_PORT:
        raise ValueError(f"{option} must be from {LOWEST_PORT} to {HIGHEST_PORT}; got {port}.")
    return port


def is_loopback(hosts: Sequence[str]) -> bool:
    """Whether all of them are this machine and nobody else can reach it by them."""
    return all(host == "localhost" or is_loopback_address(host) for host in hosts)


def is_loopback_address(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
