"""A site's program: Flower's SuperNode, started again whenever it ends, until somebody says stop."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from koncord.errors import KoncordError
from koncord.federate.flower.programs import environment, supernode_command, write_client_programs
from koncord.network.certificates import check_not_expired
from koncord.network.places import Invitation
from koncord.network.processes import Program, say
from koncord.network.serving import EXPIRED, free_port, problem_of

CONNECTED = b"SuperNode ID:"
POLL = 0.5
PAUSES = (2.0, 5.0, 10.0, 15.0)  # seconds between tries; the last one from then on


def stay_joined(folder: Path, invitation: Invitation, *, patience: float | None) -> None:
    """Keep the site connected; `KoncordError` if it was not for `patience` seconds. Ends only by an exception."""
    check_not_expired(
        invitation.authority.encode(), "The certificate in the invitation", "ask the coordinator for a new invitation"
    )
    folder = folder.resolve()
    home = folder / "flower"
    home.mkdir(exist_ok=True)
    variables = environment(home, first_in_path=folder / "bin")
    with TemporaryDirectory(prefix="koncord-") as own:
        socket = Path(own) / "answers"  # the name of a socket must be short, that of the folder may be long
        answering = [sys.executable, "-m", "koncord.network.clientapp", str(folder)]
        write_client_programs(folder / "bin", socket, [*answering, "--"])
        warm = Program("koncord", [*answering, str(socket)], log=folder / "answers.log", environment=variables)
        try:
            keep_connected(folder, invitation, variables, patience=patience)
        finally:
            warm.stop()


def keep_connected(
    folder: Path, invitation: Invitation, variables: Mapping[str, str], *, patience: float | None
) -> None:
    log = folder / "flower.log"
    address, credentials = invitation.address, None if invitation.is_insecure else folder
    n_failures, last_connected = 0, time.monotonic()
    while True:
        problem = None if credentials is None else problem_of(address, credentials / "ca.crt")
        if problem is not None:
            say(f"{address} cannot take this site: {problem}")
        begins_at = log.stat().st_size if log.exists() else 0
        command = supernode_command(address=address, site=invitation.site, credentials=credentials, port=free_port())
        program = Program("Flower", command, log=log, environment=variables)
        try:
            is_connected = False
            while not program.has_ended:
                if not is_connected and CONNECTED in content_from(log, begins_at):
                    is_connected, n_failures = True, 0
                    say(f"joined {address}")
                if is_connected:
                    last_connected = time.monotonic()
                check_patience(patience, last_connected, address, program)
                time.sleep(POLL)
        finally:
            program.stop()
        check_patience(patience, last_connected, address, program)
        pause = PAUSES[min(n_failures, len(PAUSES) - 1)]
        n_failures += 1
        say(f"{address} does not take this site now ({reason(content_from(log, begins_at))}); next try in {pause:g} s")
        time.sleep(pause)


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
    return next((told for word, told in known.items() if word in text), "it ended the connection")
