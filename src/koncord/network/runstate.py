"""What the coordinator's folder knows of every run: ``runs/RUN.json``, written by koncord run at every exchange.

It holds nothing that a site sent: who was asked, who answered, how many bytes, how long it took.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from koncord._files import write_atomic
from koncord.errors import KoncordError
from koncord.network.places import PLACES_VERSION, now, read_json
from koncord.network.processes import start_time

RUN_STATE_FORMAT = "koncord-run"
RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One run, as it goes or as it went."""

    run: str
    identifier: str
    asked_by: str
    purpose: str
    aggregator: str
    out: str  # folder of the result
    sites: tuple[str, ...]
    started: str  # ISO 8601, UTC
    state: str = RUNNING
    updated: str = ""
    asked: tuple[str, ...] = ()  # messages of the exchange that goes on
    answered: tuple[str, ...] = ()  # sites that have answered it
    awaited: tuple[str, ...] = ()  # sites that have not
    exchanges: tuple[Mapping[str, Any], ...] = ()
    missing: tuple[Mapping[str, Any], ...] = ()
    clusters: int | None = None
    problem: str = ""  # why it stopped
    pid: int = 0
    pid_started: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the process that drives it runs."""
        return bool(self.pid) and start_time(self.pid) == self.pid_started != ""

    def as_now(self) -> "RunState":
        """The same, or stopped if nobody drives it any more."""
        if self.state == RUNNING and not self.is_alive:
            gone = self.problem or "koncord run has ended without a word; go on with --resume"
            return self.over(STOPPED, problem=gone)
        return self

    def over(self, state: str, **changes: Any) -> "RunState":
        """The same when nothing of it goes on any more."""
        return replace(self, state=state, asked=(), answered=(), awaited=(), **changes)

    @property
    def n_bytes(self) -> int:
        return sum(int(each["bytes"]) for each in self.exchanges)

    @property
    def seconds(self) -> float:
        return float(sum(each["seconds"] for each in self.exchanges))


def run_file(folder: Path, run: str) -> Path:
    return folder / "runs" / f"{run}.json"


def write_state(folder: Path, state: RunState) -> None:
    """Write the state of a run into the folder of its coordinator."""
    (folder / "runs").mkdir(exist_ok=True)
    content = {"format": RUN_STATE_FORMAT, "version": PLACES_VERSION, **asdict(replace(state, updated=now()))}
    write_atomic(run_file(folder, state.run), json.dumps(content).encode(), private=True)


def read_state(path: Path) -> RunState:
    content = read_json(path, RUN_STATE_FORMAT, "the state of a run")
    try:
        made = {name: value for name, value in content.items() if name not in ("format", "version")}
        lists = ("sites", "asked", "answered", "awaited", "exchanges", "missing")
        return RunState(**{**made, **{name: tuple(made[name]) for name in lists if name in made}})
    except (KeyError, TypeError) as error:
        raise KoncordError(f"'{path}' is not the state of a run.") from error


def read_states(folder: Path) -> list[RunState]:
    """Every run of a coordinator, the newest first, as it is now."""
    found = [read_state(path).as_now() for path in (folder / "runs").glob("*.json")]
    return sorted(found, key=lambda state: (state.started, state.run), reverse=True)


def driven_by_this(state: RunState) -> RunState:
    """The state with this process as the one that drives the run."""
    return replace(state, pid=os.getpid(), pid_started=start_time(os.getpid()))
