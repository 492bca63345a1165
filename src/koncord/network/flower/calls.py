"""Calls of Flower's interfaces over HTTP: a published protobuf message there, one back.

Of Flower only `flwr.proto`, `flwr.app`, `flwr.serverapp` and its programs are used, which it publishes. The paths, the
headers and the form of objects are those of the versions that koncord was tested with: with any other one koncord does
not start.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from types import TracebackType
from typing import Self, TypeVar

import httpx
from google.protobuf.message import DecodeError, Message

from koncord._installation import install_command
from koncord.errors import KoncordError, MissingExtra
from koncord.network.certificates import public_half, public_pem, signing_calls

Answer = TypeVar("Answer", bound=Message)

TESTED = ("1.41",)  # versions of Flower, as far as they are named
KIND = "application/protobuf"
ANSWERS_WITHIN = 30.0  # seconds


def flower_version() -> str:
    """The version of Flower here; `KoncordError` if koncord was not tested with it."""
    try:
        found = version("flwr")
    except PackageNotFoundError as error:
        raise MissingExtra("A federation over a network", "flower") from error
    if ".".join(found.split(".")[:2]) not in TESTED:
        raise KoncordError(
            f"Flower {found} is installed; this koncord speaks the protocol of Flower {', '.join(TESTED)} and does not "
            f"start with another one. Install it with: {install_command('koncord', 'flower')}"
        )
    return found


class Calls:
    """A connection to one of Flower's interfaces.

    Parameters
    ----------
    address : str
        Host and port.
    authority : bytes or None
        Certificates that are trusted, as PEM; None is a connection without TLS.
    component : str
        What this side says it is.
    signed : callable or None, default None
        Makes the headers that prove who calls, anew for every call.
    """

    def __init__(
        self,
        address: str,
        *,
        authority: bytes | None,
        component: str,
        signed: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.base = f"{'http' if authority is None else 'https'}://{address}"
        self.signed = signed or dict
        self.headers = {
            "content-type": KIND,
            "accept": KIND,
            "flwr-package-name": "flwr",
            "flwr-package-version": flower_version(),
            "flwr-component-name": component,
        }
        self.client = httpx.Client(verify=False if authority is None else trusting(authority), timeout=ANSWERS_WITHIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def call(self, path: str, request: Message, kind: type[Answer]) -> Answer:
        """What is answered to one request; httpx's errors if nothing is, `ValueError` if it cannot be read."""
        response = self.client.post(
            f"{self.base}{path}",
            content=request.SerializeToString(deterministic=True),
            headers={**self.headers, **self.signed()},
        )
        response.raise_for_status()
        answer: Answer = kind()
        try:
            answer.ParseFromString(response.content)
        except DecodeError as error:
            raise ValueError(f"the answer to {path} is no {kind.DESCRIPTOR.name}.") from error
        return answer


def trusting(authority: bytes) -> SSLContext:
    """TLS that takes certificates of these authorities alone."""
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode("ascii"))
    return context


def signed_by(private: bytes) -> Callable[[], dict[str, str]]:
    """Makes the headers by which Flower knows a site: its public key, the time, and that time signed."""
    public, sign = b64encode(public_pem(public_half(private))).decode("ascii"), signing_calls(private)

    def headers() -> dict[str, str]:
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat()
        return {
            "flwr-public-key": public,
            "flwr-timestamp": moment,
            "flwr-signature": b64encode(sign(moment.encode("ascii"))).decode("ascii"),
        }

    return headers
