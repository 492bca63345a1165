"""The folders and files of the two sides: the coordinator's folder, a site's invitation, a site's state."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from koncord._files import locked, write_atomic
from koncord.errors import KoncordError

COORDINATOR_FORMAT, SITE_FORMAT, INVITE_FORMAT = "koncord-coordinator", "koncord-invited-site", "koncord-invite"
REQUEST_FORMAT = "koncord-request"
PLACES_VERSION = 1
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
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
    def internal(self) -> Path:
        """Folder of the certificates of Flower itself, which only this machine sees: new at every start."""
        return self.folder / "internal"

    @property
    def internal_authority(self) -> Path | None:
        return None if self.is_insecure else self.internal / "ca.crt"

    @property
    def flower_host(self) -> str:
        return self.listen if self.is_insecure else "127.0.0.1"

    @property
    def flower_address(self) -> str:
        """Host and port of Flower's own interfaces."""
        host = f"[{self.flower_host}]" if ":" in self.flower_host else self.flower_host
        return f"{host}:{self.internal_port}"

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

        ways_out = {
            "ca.crt": "start a coordinator with another --folder and invite the sites anew",
            "server.crt": "make a new one: koncord renew",
        }
        for name, way_out in ways_out.items():
            path = self.folder / name
            check_not_expired(path.read_bytes(), f"The certificate '{path}'", way_out)

    def sites(self) -> dict[str, int | None]:
        """Flower's number of every site that may take part, by name; None without a key."""
        return {site.name: site.node for site in self.registered() if site.revoked is None}

    def registered(self) -> list["RegisteredSite"]:
        """Every site that was invited, by name, those whose key was revoked among them."""
        return [RegisteredSite.load(path) for path in sorted((self.folder / "sites").glob("*.json"))]

    def find_site(self, name: str) -> "RegisteredSite":
        """The site of this name; `ValueError` if none was invited."""
        known = {site.name: site for site in self.registered()}
        if name not in known:
            raise ValueError(f"No site {name!r} was invited; invited: {', '.join(known) or 'nobody'}.")
        return known[name]

    def write_site(self, site: "RegisteredSite") -> None:
        site.save(self.folder / "sites" / f"{site.name}.json")

    def changing_sites(self) -> AbstractContextManager[None]:
        """Within the block nobody else changes what is kept of sites that were invited."""
        return locked(self.folder / "sites.lock")

    def note_seen(self, versions: Mapping[str, str]) -> None:
        """Keep that some sites have just answered, with the version of koncord each says it has."""
        folder = self.folder / "seen"
        folder.mkdir(exist_ok=True)
        for site, version in versions.items():
            write_atomic(folder / f"{site}.json", json.dumps({"seen": now(), "version": version}).encode())

    def seen(self, site: str) -> tuple[str, str]:
        """When a site last answered, and the version it said it has; empty where it never did."""
        path = self.folder / "seen" / f"{site}.json"
        if not path.exists():
            return "", ""
        content = json.loads(path.read_text(encoding="utf-8"))
        return content["seen"], content["version"]

    def revoked(self) -> set[str]:
        """Names of the sites whose key was revoked."""
        return {site.name for site in self.registered() if site.revoked is not None}

    def serving_alone(self) -> AbstractContextManager[None]:
        """Within the block no other koncord serve uses the folder; `KoncordError` if one does."""
        return locked(self.folder / "serving", busy=f"koncord serve runs already in '{self.folder}'.")

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
            "version": PLACES_VERSION,
            **{name: value for name, value in asdict(self).items() if name != "folder"},
        }
        write_atomic(self.folder / "settings.json", json.dumps(settings, indent=1).encode(), private=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        if not (folder / "settings.json").exists():
            raise KoncordError(
                f"'{folder}' is not the folder of a coordinator: run this where koncord serve was started, or name its "
                "folder by --folder."
            )
        settings = read_json(folder / "settings.json", COORDINATOR_FORMAT, "the folder of a koncord coordinator")
        return cls(
            folder=folder.resolve(),
            hosts=tuple(settings["hosts"]),
            listen=settings["listen"],
            port=settings["port"],
            internal_port=settings["internal_port"],
            is_insecure=settings["is_insecure"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSite:
    """What a coordinator keeps of a site that it invited."""

    name: str
    node: int | None  # Flower's number, another one after every start of koncord serve; None without a key
    public: str = ""  # the public half of its key, OpenSSH; empty without TLS
    has_own_key: bool = False  # made at the site, so that nobody else has seen it
    invited: str = ""  # ISO 8601, UTC
    revoked: str | None = None  # when, ISO 8601, UTC
    reason: str = ""  # why it was revoked

    @property
    def fingerprint(self) -> str:
        from koncord.network.certificates import fingerprint

        return fingerprint(self.public.encode()) if self.public else ""

    def save(self, path: Path) -> None:
        content = {"format": SITE_FORMAT, "version": PLACES_VERSION, **asdict(self)}
        content["site"] = content.pop("name")
        write_atomic(path, json.dumps(content, indent=1).encode(), private=True, durable=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path, SITE_FORMAT, "the entry of an invited site")
        kept = ("node", "public", "has_own_key", "invited", "revoked", "reason")
        return cls(name=content["site"], **{name: content[name] for name in kept})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A site's wish to be invited, with the public half of a key that it made itself and signed this with."""

    site: str
    public: str  # OpenSSH
    version: str  # of koncord at the site
    signature: str = ""  # base64, of all that is before

    @property
    def fingerprint(self) -> str:
        from koncord.network.certificates import fingerprint

        return fingerprint(self.public.encode())

    @property
    def signed_content(self) -> bytes:
        return json.dumps([REQUEST_FORMAT, PLACES_VERSION, self.site, self.public, self.version]).encode()

    @classmethod
    def made(cls, site: str, private: bytes, version: str) -> Self:
        """The request of the holder of a private key."""
        from koncord.network.certificates import public_half, signed

        unsigned = cls(site=site, public=public_half(private).decode(), version=version)
        signature = b64encode(signed(private, unsigned.signed_content)).decode()
        return cls(site=site, public=unsigned.public, version=version, signature=signature)

    def save(self, path: Path) -> None:
        content = {
            "format": REQUEST_FORMAT,
            "version": PLACES_VERSION,
            "site": self.site,
            "public": self.public,
            "fingerprint": self.fingerprint,
            "koncord": self.version,
            "signature": self.signature,
        }
        write_atomic(path, json.dumps(content, indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """The request in a file; `KoncordError` unless the holder of its key signed it as it is."""
        from koncord.network.certificates import is_signed

        content = read_json(path, REQUEST_FORMAT, "a request of koncord request")
        fields = {"site": "site", "public": "public", "version": "koncord", "signature": "signature"}
        if not all(isinstance(content.get(key), str) for key in fields.values()):
            raise KoncordError(f"'{path}' is not a request of koncord request.")
        made = cls(**{name: content[key] for name, key in fields.items()})
        check_site_name(made.site)
        try:
            is_its_own = is_signed(made.public.encode(), made.signed_content, b64decode(made.signature))
        except ValueError as error:
            raise KoncordError(f"'{path}' is not a request of koncord request: {error}") from error
        if not is_its_own:
            raise KoncordError(f"'{path}' was not signed with the key in it: it was changed on its way.")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """All a site needs to join: who it is, where the coordinator is, and how each knows the other."""

    site: str
    address: str
    authority: str  # certificates, PEM; empty without TLS
    key: str = ""  # private, OpenSSH; empty where the site made its own, and without TLS
    fingerprint: str = ""  # of the key
    is_insecure: bool = False

    def save(self, path: Path) -> None:
        content = {"format": INVITE_FORMAT, "version": PLACES_VERSION, **asdict(self)}
        write_atomic(path, json.dumps(content, indent=1).encode(), private=True)

    @property
    def needs_key(self) -> bool:
        """Whether the site's own key must be added before it can join."""
        return not self.key and not self.is_insecure

    def with_key(self, private: bytes, where: Path) -> Self:
        """The same with the site's own key; `ValueError` if it is not the one that was registered."""
        from koncord.network.certificates import fingerprint, public_half

        try:
            own = fingerprint(public_half(private))
        except ValueError as error:
            raise ValueError(f"'{where}' is {error}") from error
        if self.fingerprint and own != self.fingerprint:
            raise ValueError(
                f"'{where}' is the key {own}; the coordinator has registered {self.fingerprint} for site {self.site}."
            )
        return replace(self, key=private.decode(), fingerprint=own)

    @classmethod
    def load(cls, path: Path) -> Self:
        content = read_json(path, INVITE_FORMAT, "a koncord invitation")
        texts = ("site", "address", "authority", "key", "fingerprint")
        if not all(isinstance(content.get(name), str) for name in texts):
            raise KoncordError(f"'{path}' is not a koncord invitation.")
        check_site_name(content["site"])
        made = cls(**{name: content[name] for name in texts}, is_insecure=content.get("is_insecure") is True)
        host = made.address.rpartition(":")[0].strip("[]")
        if made.is_insecure and not is_loopback([host]):
            raise ValueError(
                f"'{path}' is an invitation without encryption to {made.address}, which is not this machine: refused."
            )
        return made


def now() -> str:
    """The time, as the coordinator's files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_json(path: Path, format_: str, what: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise KoncordError(f"'{path}' is not there: it would be {what}.") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise KoncordError(f"'{path}' is not {what}.") from error
    if not isinstance(content, dict) or content.get("format") != format_:
        raise KoncordError(f"'{path}' is not {what}.")
    if content.get("version") != PLACES_VERSION:
        raise KoncordError(
            f"'{path}' has version {content.get('version')}; this koncord reads version {PLACES_VERSION}."
        )
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
