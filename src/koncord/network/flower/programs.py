"""Flower's own programs: how they are called, with everything switched off that would call home or install."""

import os
import sys
from pathlib import Path

from koncord.errors import MissingExtra

IN_MEMORY = ":flwr-in-memory:"  # Flower's name of a database that is none
SITE = "site"  # what a site without a key calls its name in Flower's configuration
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
}
# One thread in every process, so that sums round alike everywhere.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


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
        # koncord run takes the tasks itself: Flower is to start no program of its own, nor one that came with a run.
        *("--isolation", "process", "--database", IN_MEMORY, "--disable-runtime-dependency-installation"),
    ]
