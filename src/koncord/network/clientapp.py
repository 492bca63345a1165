"""What Flower starts at a site for every message, made quick.

A process that has everything loaded waits for messages, and makes a copy of itself for each: Flower's own way, a new
Python for every message, costs seconds of loading. ``python -m koncord.network.clientapp STATE SOCKET`` is that
process; ``python -m koncord.network.clientapp STATE -- ...`` answers one message by itself.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import NoReturn

from koncord.federate.flower.answering import load, run_instead
from koncord.federate.private.budget import rho_of
from koncord.network.site import SiteFolder, answer


def main(arguments: Sequence[str]) -> None:
    os.umask(0o077)
    state, where, *rest = arguments
    if where == "--":
        answer_one(Path(state), rest)
    else:
        answer_all(Path(state), where)


def answer_all(state: Path, socket: str) -> NoReturn:
    """Answer every message that is handed over, each in a copy of this process."""
    load()
    budget = SiteFolder.load(state).privacy
    if budget is not None:
        rho_of(budget.epsilon, budget.delta)  # loads OpenDP; no noise is drawn here, where all copies would share it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    with Listener(socket, family="AF_UNIX") as listener:
        while True:
            connection = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                answer_handed_over(state, connection)
            connection.close()


def answer_handed_over(state: Path, connection: Connection) -> NoReturn:
    """Answer one message and end; the connection is open as long as this takes."""
    try:
        answer_one(state, json.loads(connection.recv_bytes()))
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def answer_one(state: Path, arguments: Sequence[str]) -> None:
    sys.argv = ["flwr-clientapp", *arguments]
    run_instead(partial(answer, state))


if __name__ == "__main__":
    main(sys.argv[1:])
