"""The ClientApp at a site, and the program that runs it instead of the one that came with the run.

Flower starts a new process for every message and loads into it the program the coordinator sent. A site must not run
what others send it: here the program that came is neither unpacked nor imported, and koncord's own answers.
"""

from collections.abc import Callable, Sequence
from traceback import print_exception
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from koncord.errors import KoncordError, told_outside
from koncord.network.flower.programs import SITE

RECORD = "koncord"
# What Flower's own launcher uses to unpack and import a program that came with a run.
UNPACKS, IMPORTS = "install_from_fab", "get_load_client_app_fn"

# Takes run, exchange, method and messages; returns the replies and the seconds each took.
Answer = Callable[[str, int, str, Sequence[bytes]], tuple[Sequence[bytes], Sequence[float]]]


def client_app(answer: Answer) -> ClientApp:
    """A ClientApp that answers exchanges, or says in one of a few sentences why not.

    Without a key it also says which site it is.
    """
    app = ClientApp()

    @app.query("exchange")
    def exchange(message: Message, context: Context) -> Message:
        return Message(replied(message.content, answer), reply_to=message)

    @app.query("name")
    def name(message: Message, context: Context) -> Message:
        record = ConfigRecord({SITE: str(context.node_config.get(SITE, ""))})
        return Message(RecordDict({RECORD: record}), reply_to=message)

    return app


def replied(content: RecordDict, answer: Answer) -> RecordDict:
    """The replies, or a sentence that tells nothing of the rows; the reason itself stays in the site's log."""
    try:
        record: dict[str, Any] = dict(content.config_records[RECORD])
        replies, seconds = answer(
            str(record["run"]), int(record["exchange"]), str(record["method"]), [bytes(m) for m in record["messages"]]
        )
        reply = ConfigRecord({"replies": list(replies), "seconds": list(seconds)})
    except Exception as error:
        print_exception(error)
        reply = ConfigRecord({"error": told_outside(error)})
    return RecordDict({RECORD: reply})


def load() -> None:
    """Load what an answer needs, ahead of the first one."""
    import flwr.supernode.cli
    import flwr.supernode.runtime.run_clientapp  # noqa: F401


def run_instead(answer: Answer) -> None:
    """Be Flower's program for one message, with koncord's own client in the place of the one that came."""
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp

    if not (hasattr(run_clientapp, UNPACKS) and hasattr(run_clientapp, IMPORTS)):
        raise KoncordError(
            "This version of Flower loads programs in a way koncord does not know; it refuses to answer."
        )
    setattr(run_clientapp, UNPACKS, lambda *_, **__: None)
    setattr(run_clientapp, IMPORTS, lambda *_, **__: lambda *_, **__: client_app(answer))
    flwr_clientapp()
