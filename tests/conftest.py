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
from koncord.aggregate import consensus


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(request, monkeypatch):
    """Attacks ask thousands of questions: their sites need not survive a power cut."""
    if request.path.parent.name == "attacks":
        monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(params=[True, False], ids=["gaussians", "nearest center"])
def has_shapes(request, monkeypatch):
    """Whether Consensus fits Gaussians, or keeps the centers of the micro-clusters as it does without covariances."""
    if not request.param:
        monkeypatch.setattr(consensus, "shaped", consensus.by_nearest_center)
    return request.param


@pytest.fixture
def recovered(record_property):
    """Note how many rows and single values an attack recovered, which `make gate` adds up: there may be none."""

    def note(*, rows=0, values=0):
        record_property("recovered rows", int(rows))
        record_property("recovered values", int(values))
        assert rows == values == 0

    return note
