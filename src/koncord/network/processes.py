"""Programs that koncord starts: each is said aloud, and none is left behind."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

STOP_WITHIN = 10.0  # seconds a program gets to end by itself
POLL = 0.05
PR_SET_PDEATHSIG = 1
MARK = "KONCORD_PROGRAM"
COLORS = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal


class Program:
    """A program in a process group of its own, with its output in a file.

    It ends when its owner does, even if the owner is killed (Linux). What it starts carries its mark, an environment
    variable, and so is known even after the program itself was killed and in a session of its own.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.mark = f"{MARK}={token_hex(16)}"
        say(f"starting {name}: {' '.join(command)}")
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, MARK: self.mark.removeprefix(f"{MARK}=")},
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """End it and everything it started: asked first, then made to."""
        if not self.has_ended:
            signal_group(self.process.pid, signal.SIGTERM)
        self._wait(STOP_WITHIN)
        signal_group(self.process.pid, signal.SIGKILL)
        wait_until(lambda: not kill_marked(self.mark), STOP_WITHIN)
        self.process.wait()

    def _wait(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"{self.name} does not end by itself: killed")

    def last_lines(self, n: int = 5) -> str:
        """The end of its output, for a person who must know why it ended."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return " | ".join(line.strip() for line in COLORS.sub("", text).splitlines()[-n:] if line.strip())

    def end_in_words(self) -> str:
        """How it ended, and the end of its output."""
        code = self.process.poll()
        how = f"was killed (signal {-code})" if code is not None and code < 0 else "has ended"
        return f"{self.name} {how}: {self.last_lines()} (see {self.log})"


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def kill_marked(mark: str) -> bool:
    """Kill all processes that were given this environment variable; whether there were any."""
    found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if has_mark(entry, mark)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def has_mark(entry: Path, mark: str) -> bool:
    try:
        return mark.encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or is another user's
        return False


def children(pid: int) -> list[int]:
    """Processes that this one started and that live now."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, thread.read_text(encoding="ascii").split())
    return found


def command_line(pid: int) -> str:
    """The words of a process, one space between them; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    fields = stat_fields(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def stat_fields(pid: int) -> list[str]:
    """What Linux tells about a process, from its state on; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return []


def say(text: str) -> None:
    """A line of progress for a person, or for the machine that collects logs."""
    if LOG:
        entry = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **LOG, "text": text}
        text = json.dumps(entry, ensure_ascii=False)
    print(text, file=sys.stderr, flush=True)


# What every line of a JSON log has beside its time and its text; empty while lines are for a person.
LOG: dict[str, str] = {}


def log_as_json(command: str) -> None:
    """From now on `say` writes JSON lines."""
    LOG["command"] = command


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


class Stopped(BaseException):
    """A person or the system asked this program to end."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Within the block SIGTERM, like Ctrl-C, raises `Stopped`, so that what was started is ended."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
