"""One federation for all tests of a file, and nothing of a test left behind."""

import pytest

from koncord.errors import KoncordError
from koncord.federate.flower.programs import program
from koncord.network.proxy import nginx
from network.federation import Federation, stop_started


@pytest.fixture(scope="session")
def programs():
    """Skips, with the reason, where what a coordinator starts is not installed."""
    try:
        nginx()
        program("flower-superlink")
    except KoncordError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def federation(programs, tmp_path_factory):
    """A coordinator with three sites that joined."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        yield made.serve().invite().join().wait_joined()
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """What a test started for itself and did not end, because it failed, must not disturb the next one."""
    yield
    stop_started()
