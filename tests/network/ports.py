"""Ports of this machine, for coordinators of tests."""

import socket


def free_port():
    """A port of this machine that nobody uses now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]
