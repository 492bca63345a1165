"""The tasks that a SuperNode has for its site, one for each message that came.

The SuperNode gives them out on 127.0.0.1, where every user of the machine can ask. It gives them only to a process that
signs with the site's secret, and to nobody else; its certificate tells it from another program on the same port. A task
comes with a token, by which its message is read and answered: it stays within this process and never stands in a
command line.
"""

import json
import time
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from koncord.errors import KoncordError
from koncord.network.flower.programs import AUTHORITY, SECRET, SUPERNODE

POLL = 0.5  # seconds
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def next_task(runtime: Path) -> list[str]:
    """Wait for a message to answer; the arguments with which Flower's launcher finds it, the token among them.

    `KoncordError` if the task is not one for a ClientApp. Every kind is taken: a SuperNode waits without end for the
    answer to a task that nobody takes.
    """
    while True:
        try:
            supernode = json.loads((runtime / SUPERNODE).read_text(encoding="utf-8"))
            token = acquired_token(supernode["address"], runtime)
        except (FileNotFoundError, httpx.ConnectError):  # it is not there yet, or no more
            time.sleep(POLL)
            continue
        return [
            *("--runtime-api-address", supernode["address"], "--root-certificates", str(runtime / AUTHORITY)),
            *("--token", token, "--parent-pid", str(supernode["pid"])),  # without the SuperNode the answer ends
        ]


def acquired_token(address: str, runtime: Path) -> str:
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=False,
        root_certificates=(runtime / AUTHORITY).read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="koncord"),
            SuperExecAuthHttpInterceptor(
                master_secret=(runtime / SECRET).read_bytes(), protected_methods=frozenset({ACQUIRE})
            ),
        ],
    )
    with client:
        while True:
            acquired = client.AcquireTask(AcquireTaskRequest(supported_task_types=list(TaskType)))
            if acquired.HasField("task") and acquired.token:
                if acquired.task.type != TaskType.CLIENT_APP:
                    raise KoncordError(f"a site of koncord runs no {acquired.task.type}.")
                return str(acquired.token)
            time.sleep(POLL)
