"""A server on this machine to fetch from, and a guard that lets no test of this folder reach another one."""

import ipaddress
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from in_process import declares_what_it_sends, disclosed, federate, same_result, six, uneven  # noqa: F401

os.environ["KONCORD_OFFLINE"] = "1"  # no test fetches a data set from the internet


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch):
    connect = socket.create_connection

    def create_connection(address, *args, **kwargs):
        assert ipaddress.ip_address(address[0]).is_loopback, f"a test reaches for {address[0]}"
        return connect(address, *args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", create_connection)


@pytest.fixture
def server():
    """A server on loopback: ``serve(path, answer)`` returns the address; an answer is bytes or does it all itself."""
    answers, asked, over = {}, [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer = answers.get(self.path)
            if answer is None:
                self.send_error(404)
            elif callable(answer):
                answer(self, over)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_):
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            """A client that left is what some tests are about."""

    class Server:
        def __init__(self, running):
            self.asked, self.root = asked, f"http://127.0.0.1:{running.server_address[1]}"

        def serve(self, path, answer):
            answers[path] = answer
            return self.root + path

    with Quiet(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(running)
        over.set()
        running.shutdown()
        thread.join()
