"""A run that was begun and is not finished: what its folder keeps so that it can be resumed.

Beside ``resume.json`` lies the journal of all that the sites have sent, by exchange (`koncord.session.checkpoint`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from getpass import getuser
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from socket import gethostname
from typing import Any

from koncord._files import locked, write_atomic
from koncord._words import counted
from koncord.errors import KoncordError
from koncord.network.places import Coordinator
from koncord.runs.folder import LOCK, MODEL, check_folder
from koncord.session.checkpoint import FileJournal

SETTINGS, JOURNAL = "resume.json", "journal"
# What the record of a run says, whose tables and labels are at the sites.
AT_THE_SITES: Mapping[str, Any] = {"files": "at the site", "labels_at_sites": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRun:
    """What a resumed run must know."""

    folder: Path
    run: str
    started: str  # ISO 8601, UTC
    sites: tuple[str, ...]
    method: Mapping[str, Any]  # the options that a resumed run has as it was started with
    policy: Mapping[str, float] = field(default_factory=dict)  # quorum and timeouts, unless others are given

    @classmethod
    def load(cls, folder: Path) -> "BegunRun":
        """The run of a folder; `KoncordError` if there is none to resume."""
        check_begun(folder)
        path = folder / SETTINGS
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            check_version(folder, kept["koncord"])
            return cls(
                folder=folder,
                run=kept["run"],
                started=kept["started"],
                sites=tuple(kept["sites"]),
                method=dict(kept["method"]),
                policy=dict(kept["policy"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KoncordError(f"'{path}' does not say how to resume a run.") from error

    def save(self) -> None:
        kept: dict[str, Any] = {
            "koncord": version("koncord"),
            "run": self.run,
            "started": self.started,
            "sites": list(self.sites),
            "method": dict(self.method),
            "policy": dict(self.policy),
        }
        write_atomic(self.folder / SETTINGS, json.dumps(kept, indent=1).encode(), private=True)

    @property
    def journal(self) -> FileJournal:
        return FileJournal(self.folder / JOURNAL)

    def finish(self) -> None:
        """The run is over: it cannot be resumed, and nothing that the sites sent is kept."""
        (self.folder / SETTINGS).unlink()
        rmtree(self.folder / JOURNAL, ignore_errors=True)


def begin_run(
    place: Coordinator,
    out: Path,
    method: Mapping[str, Any],
    *,
    sites: Sequence[str] | None,
    min_sites: int,
    policy: Mapping[str, float] | None = None,
) -> BegunRun:
    """A new folder with a run of these sites, or of all invited ones."""
    folder = check_folder("--out", out, replaces=False)
    invited = place.sites()
    asked = sorted(set(sites or invited))
    unknown = [site for site in asked if site not in invited]
    known = ", ".join(invited) or "nobody"
    revoked = [site for site in unknown if site in place.revoked()]
    if revoked:
        raise ValueError(
            f"The run asks {', '.join(revoked)}, whose key was revoked: invite it anew, with another key, or name the "
            f"others by --sites (invited: {known})."
        )
    if unknown:
        raise ValueError(f"--sites names {', '.join(unknown)}, who was not invited; invited: {known}.")
    if len(asked) < min_sites:
        raise KoncordError(
            f"{counted(len(asked), 'site')} invited; --min-sites asks for {min_sites}. Invite more, or ask for fewer."
        )
    started = datetime.now(UTC)
    begun = BegunRun(
        folder=folder,
        run=new_name(started),
        started=started.isoformat(timespec="seconds"),
        sites=tuple(asked),
        method=method,
        policy=policy or {},
    )
    folder.mkdir(exist_ok=True)
    begun.save()
    return begun


def new_name(started: datetime) -> str:
    """A name of a run that no other has."""
    return f"{started:%Y%m%d-%H%M%S}-{token_hex(4)}"


def this_user() -> str:
    """Who asks, where nothing else is said."""
    return f"{getuser()}@{gethostname()}"


def check_begun(folder: Path) -> None:
    """`KoncordError` if there is nothing to resume."""
    if not (folder / SETTINGS).is_file():
        what = "is finished" if (folder / MODEL).exists() else "holds no run that was begun"
        raise KoncordError(f"'{folder}' {what}; there is nothing to resume.")


def check_version(folder: Path, begun_with: str) -> None:
    """`KoncordError` if another version began the run: what it asked the sites is not what this one would ask."""
    this = version("koncord")
    if begun_with == this:
        return
    raise KoncordError(
        f"The run in '{folder}' was begun with koncord {begun_with}, and this is {this}; resume it with that version "
        f"(pip install koncord=={begun_with}), or begin the run anew with another --out: the sites answer it as they "
        "answer any run."
    )


@contextmanager
def sole_run(folder: Path) -> Iterator[None]:
    """Within the block no other koncord run works in the folder; `KoncordError` if one does."""
    busy = f"Another koncord run works in '{folder}'; wait until it ends, or stop it."
    with locked(folder / LOCK, busy=busy, removes=True):
        yield
