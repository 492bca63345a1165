"""A site whose only way out is an HTTP proxy: all it says to its coordinator goes through it, still encrypted."""

import re
import socket
import ssl
import threading
from contextlib import contextmanager

import pytest

from koncord.network.certificates import site_key, write_authority
from koncord.network.flower.fleet import ConnectionLost, connected
from koncord.network.serving import learned_authority, problem_of

NAME = "coordinator.test"  # which nobody but the proxy can find
SECRET = "Proxy-Authorization: Basic bm9ydGg6c2VjcmV0"  # north:secret
ANSWER = b"HTTP/1.1 401 Unauthorized\r\nDate: Mon, 16 Nov 2020 10:00:00 GMT\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def serving(handle):
    """A server on this machine, a thread a connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept():
            while True:
                try:
                    taken = listening.accept()[0]
                except OSError:
                    return
                threading.Thread(target=handle, args=(taken,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def read_request(taken):
    """Read all of it: a connection that is closed with bytes unread is reset, and the answer with it."""
    head, body = b"", b""
    while b"\r\n\r\n" not in head:
        if not (part := taken.recv(1 << 16)):
            return
        head += part
    head, _, body = head.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    while length and len(body) < int(length[1]) and (part := taken.recv(1 << 16)):
        body += part


@pytest.fixture
def proxied(tmp_path, monkeypatch):
    """The coordinator's address, the site's folder, and what the proxy was asked and has seen."""
    write_authority(tmp_path, [NAME])
    (tmp_path / "key").write_bytes(site_key()[0])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    asked, seen = [], []

    def coordinator(plain):
        try:
            with context.wrap_socket(plain, server_side=True) as taken:
                read_request(taken)
                taken.sendall(ANSWER)
        except OSError:  # the other side has gone
            return

    with serving(coordinator) as port:

        def proxy(taken):
            with taken, socket.create_connection(("127.0.0.1", port)) as onward:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += taken.recv(1 << 16)
                asked.append(head.decode())
                taken.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=carry, args=(onward, taken), daemon=True)
                back.start()
                carry(taken, onward)
                back.join(10)

        def carry(one, other):
            try:
                while part := one.recv(1 << 16):
                    seen.append(part)
                    other.sendall(part)
                other.shutdown(socket.SHUT_WR)
            except OSError:
                return

        with serving(proxy) as at:
            for name in ("https_proxy", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("HTTPS_PROXY", f"http://north:secret@127.0.0.1:{at}")
            yield f"{NAME}:{port}", tmp_path, asked, seen


def test_a_site_reaches_its_coordinator_through_the_proxy_of_its_environment(proxied):
    address, folder, asked, seen = proxied
    assert "clock" in problem_of(address, folder / "ca.crt")
    assert learned_authority(address, folder / "ca.crt") is None
    with (
        pytest.raises(ConnectionLost, match="does not know this site's key"),
        connected(address, credentials=folder, node_file=folder / "node"),
    ):
        pass
    assert len(asked) >= 3
    assert all(head.startswith(f"CONNECT {address} ") and SECRET.lower() in head.lower() for head in asked)
    assert not any(b"koncord" in part or b"/v1/fleet" in part for part in seen), "the proxy sees no request"


def test_a_coordinator_that_needs_no_proxy_is_reached_without_one(proxied, monkeypatch):
    address, folder, asked, _ = proxied
    monkeypatch.setenv("NO_PROXY", NAME)
    assert problem_of(address, folder / "ca.crt") is None, "nobody knows that name here"
    assert asked == []
