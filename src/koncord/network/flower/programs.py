"""Flower's own programs: how they are called, with everything switched off that would call home or install."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from koncord.errors import KoncordError, MissingExtra

SUPERLINK = "koncord"  # the name of the connection in Flower's configuration
IN_MEMORY = ":flwr-in-memory:"  # Flower's name of a database that is none
SITE = "site"  # what a site without a key calls its name in Flower's configuration
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # how soon a run's relay begins
    "PYTHONUNBUFFERED": "1",
}
# One thread in every process, so that sums round alike everywhere.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
APP = {
    "pyproject.toml": """\
[project]
name = "koncord-relay"
version = "1.0.0"
description = "Carries koncord's messages."
dependencies = []

[tool.flwr.app]
publisher = "koncord"

[tool.flwr.app.components]
serverapp = "koncord_relay.server_app:app"
clientapp = "koncord_relay.client_app:app"

[tool.flwr.app.config]
socket = ""

[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
""",
    "koncord_relay/__init__.py": '"""Carries koncord\'s messages."""\n',
    "koncord_relay/server_app.py": '"""The relay, as installed here."""\n\n'
    'from koncord.network.flower.relay import app\n\n__all__ = ["app"]\n',
    "koncord_relay/client_app.py": '"""Answers nothing: a site answers with the koncord it has installed."""\n\n'
    "from flwr.clientapp import ClientApp\n\napp = ClientApp()\n",
}
CALL_TIMEOUT = 120.0


def program(name: str) -> str:
    """Path of one of Flower's programs, which stand beside the interpreter."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise MissingExtra("A federation over a network", "flower")
    return str(path)


def environment(home: Path) -> dict[str, str]:
    """Environment of Flower's programs: its files under `home`, and its programs found first."""
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {**os.environ, **QUIET, **ONE_THREAD, "FLWR_HOME": str(home), "PATH": os.pathsep.join(path)}


def superlink_command(*, host: str, port: int, certificates: Path | None) -> list[str]:
    """Without certificates, Flower can check no keys either.

    It keeps all it knows in memory, where a call costs half as much as in a file: what must last is in koncord's own
    files.
    """
    guarded = (
        ["--insecure"]
        if certificates is None
        else [
            *("--ssl-ca-certfile", str(certificates / "ca.crt")),
            *("--ssl-certfile", str(certificates / "server.crt")),
            *("--ssl-keyfile", str(certificates / "server.key"), "--enable-supernode-auth"),
        ]
    )
    return [
        *(program("flower-superlink"), "--host", host, "--port", str(port), *guarded),
        *("--database", IN_MEMORY, "--disable-runtime-dependency-installation"),
    ]


def write_app(folder: Path) -> Path:
    """The thin program that Flower runs at the coordinator."""
    for name, text in APP.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def write_connection(home: Path, *, port: int, authority: Path | None, host: str = "127.0.0.1") -> None:
    """Tell Flower's command line where the coordinator is: on this machine."""
    trust = "insecure = true" if authority is None else f"root-certificates = {json.dumps(str(authority))}"
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [
        "[superlink]",
        f'default = "{SUPERLINK}"',
        "",
        f"[superlink.{SUPERLINK}]",
        f'address = "{address}"',
        trust,
        "",
    ]
    (home / "config.toml").write_text("\n".join(lines), encoding="utf-8")


def call(home: Path, *arguments: str) -> dict[str, Any]:
    """What one call of Flower's command line returns as JSON; `KoncordError` if it fails."""
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=CALL_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KoncordError(f"flwr {arguments[0]} did not answer in {CALL_TIMEOUT:g} s.") from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success", False):
        reason = answer.get("error-message") or " ".join((done.stderr or done.stdout).split())[-300:]
        raise KoncordError(f"flwr {' '.join(arguments[:2])} failed: {reason}")
    return answer
