"""What answers at a site, made quick: ``python -m koncord.network.clientapp STATE``.

A process that has everything loaded takes messages from the SuperNode, and makes a copy of itself for each: Flower's
own way, a new Python for every message, costs seconds of loading. It ends when an answer fails in a way that may leave
the SuperNode waiting for it; ``koncord join`` then starts both anew.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import KoncordError
from koncord.network.flower.answering import load, run_instead
from koncord.network.flower.tasks import next_task
from koncord.network.places import RUNTIME
from koncord.network.sitefolder import SiteFolder, answer
from koncord.privacy.budget import rho_of

ERROR_LEAVES_WITHIN = 5.0  # seconds; the SuperNode looks for a reply every half second


def main(arguments: Sequence[str]) -> None:
    os.umask(0o077)
    (state,) = arguments
    try:
        answer_all(Path(state))
    except KoncordError as error:
        sys.exit(f"{error}")


def answer_all(state: Path) -> NoReturn:
    """Answer every message, one after the other as the SuperNode hands them out, each in a copy of this process."""
    load()
    place = SiteFolder.load(state)
    for name in set(place.methods) & set(AGGREGATORS.outside):
        aggregator_named(name)
    budget = place.policy.budget
    if budget is not None:
        rho_of(budget.epsilon, budget.delta)  # loads OpenDP; no noise is drawn here, where all copies would share it
    while True:
        task = next_task(state / RUNTIME)
        copy = os.fork()
        if copy == 0:
            answer_one(state, task)
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        if code:
            time.sleep(ERROR_LEAVES_WITHIN)
            raise KoncordError(f"the process that answered a message ended with {code}.")


def answer_one(state: Path, arguments: Sequence[str]) -> NoReturn:
    """Answer one message and end."""
    code = 1
    try:
        sys.argv = ["flwr-clientapp", *arguments]  # of this copy alone: nobody else can read it
        run_instead(partial(answer, state))
    except SystemExit as end:
        code = 0 if end.code in (None, 0) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
