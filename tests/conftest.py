"""Fixtures of a federation in one process; what the tests of every distribution share is in the conftest above."""

import os

import pytest

from in_process import (  # noqa: F401
    carried,
    declares_what_it_sends,
    disclosed,
    federate,
    local,
    same_result,
    six,
    uneven,
    worst_error,
)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(request, monkeypatch):
    """Attacks ask thousands of questions: their sites need not survive a power cut."""
    if request.path.parent.name == "attacks":
        monkeypatch.setattr(os, "fsync", lambda file: None)
