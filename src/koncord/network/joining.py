"""A site's programs, Flower's SuperNode and koncord's client: begun again when one ends, until somebody says stop."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes

from koncord._files import write_atomic
from koncord.errors import KoncordError
from koncord.network.certificates import check_not_expired, write_authority
from koncord.network.flower.programs import SECRET, environment, supernode_command, write_supernode
from koncord.network.places import RUNTIME, Invitation
from koncord.network.processes import Program, say
from koncord.network.serving import EXPIRED, free_port, problem_of

CONNECTED = b"SuperNode ID:"
POLL = 0.5
PAUSES = (2.0, 5.0, 10.0, 15.0)  # seconds between tries; the last one from then on
SECRET_BYTES = 32


def stay_joined(folder: Path, invitation: Invitation, *, patience: float | None) -> None:
    """Keep the site connected; `KoncordError` if it was not for `patience` seconds. Ends only by an exception."""
    check_not_expired(
        invitation.authority.encode(), "The certificate in the invitation", "ask the coordinator for a new invitation"
    )
    folder = folder.resolve()
    home = folder / "flower"
    home.mkdir(exist_ok=True)
    write_runtime(folder / RUNTIME)
    keep_connected(folder, invitation, environment(home), patience=patience)


def write_runtime(folder: Path) -> None:
    """Write what the SuperNode and koncord's client know each other by: new at every join, and for nobody else."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    write_authority(folder, [])
    write_atomic(folder / SECRET, token_bytes(SECRET_BYTES), private=True)


def keep_connected(
    folder: Path, invitation: Invitation, variables: Mapping[str, str], *, patience: float | None
) -> None:
    """Start koncord's client, and the SuperNode again whenever it ends; when the client ends, start both again.

    A SuperNode whose client is gone may wait without end for an answer that does not come.
    """
    log = folder / "flower.log"
    address, credentials = invitation.address, None if invitation.is_insecure else folder
    n_failures, last_connected = 0, time.monotonic()
    client = start_client(folder, variables)
    try:
        while True:
            problem = None if credentials is None else problem_of(address, credentials / "ca.crt")
            if problem is not None:
                say(f"{address} cannot take this site: {problem}")
            begins_at = log.stat().st_size if log.exists() else 0
            port = free_port()
            command = supernode_command(
                address=address, site=invitation.site, credentials=credentials, port=port, runtime=folder / RUNTIME
            )
            supernode = Program("Flower", command, log=log, environment=variables)
            try:
                write_supernode(folder / RUNTIME, address=f"127.0.0.1:{port}", pid=supernode.process.pid)
                is_connected = False
                while not supernode.has_ended and not client.has_ended:
                    if not is_connected and CONNECTED in content_from(log, begins_at):
                        is_connected, n_failures = True, 0
                        say(f"joined {address}")
                    if is_connected:
                        last_connected = time.monotonic()
                    check_patience(patience, last_connected, address, supernode)
                    time.sleep(POLL)
            finally:
                supernode.stop()
            check_patience(patience, last_connected, address, supernode)
            pause = PAUSES[min(n_failures, len(PAUSES) - 1)]
            n_failures += 1
            if client.has_ended:
                why = f"what answers for this site has ended (see {client.log})"
                client.stop()
                client = start_client(folder, variables)
            else:
                why = f"{address} does not take this site now ({reason(content_from(log, begins_at))})"
            say(f"{why}; next try in {pause:g} s")
            time.sleep(pause)
    finally:
        client.stop()


def start_client(folder: Path, variables: Mapping[str, str]) -> Program:
    command = [sys.executable, "-m", "koncord.network.clientapp", str(folder)]
    return Program("koncord", command, log=folder / "answers.log", environment=variables)


def check_patience(patience: float | None, last_connected: float, address: str, program: Program) -> None:
    if patience is not None and time.monotonic() - last_connected > patience:
        raise KoncordError(
            f"{address} did not take this site within {patience:g} s: "
            f"{reason(program.log.read_bytes()) or 'no answer'} (see {program.log})."
        )


def content_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def reason(log: bytes) -> str:
    """What Flower says went wrong, in a few words."""
    text = log.decode(errors="replace")
    known = {
        "certificate has expired": EXPIRED,
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not of the authority of the invitation",
        "Failed to activate SuperNode": "it does not know the key of the invitation, or holds this site for connected",
        "Connection refused": "nobody answers there",
    }
    return next((meaning for word, meaning in known.items() if word in text), "it ended the connection")
