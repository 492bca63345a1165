"""Fixtures of a federation in one process; what the tests of every distribution share is in the conftest above."""

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
