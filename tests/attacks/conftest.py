import pytest


@pytest.fixture
def recovered(record_property):
    """Note how many rows and single values an attack recovered, which `make gate` adds up: there may be none."""

    def note(*, rows=0, values=0):
        record_property("recovered rows", int(rows))
        record_property("recovered values", int(values))
        assert rows == values == 0

    return note
