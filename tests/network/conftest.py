"""One federation for the tests of a file, made anew after one that broke it, and nothing of a test left behind."""

import pytest

from koncord.errors import KoncordError
from koncord.network.flower.programs import program
from koncord.network.proxy import nginx
from network.federation import Federation, stop_started

HAS_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def programs():
    """Skips, with the reason, where what a coordinator starts is not installed."""
    try:
        nginx()
        program("flower-superlink")
    except KoncordError as error:
        pytest.skip(str(error))


class Place:
    """Where the federation of a file is: `whole` gives it, or a new one if it was stopped, broken or never there."""

    def __init__(self, make):
        self.make, self.federation = make, None

    def whole(self):
        if self.federation is not None and not self.federation.is_whole():
            self.clear()
        if self.federation is None:
            self.federation = self.make()
            try:
                self.federation.start()
            except BaseException:
                self.clear()
                raise
        return self.federation

    def clear(self):
        if self.federation is not None:
            gone, self.federation = self.federation, None
            gone.stop()


@pytest.fixture(scope="module")
def make_federation(programs, tmp_path_factory):
    """Makes the federation of this file; files that want another one have a fixture of this name."""
    return lambda: Federation(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="module")
def place(make_federation):
    made = Place(make_federation)
    yield made
    made.clear()


@pytest.fixture
def federation(place, request):
    """A coordinator with its sites, all of them joined; a test that fails takes it away from the next one."""
    yield place.whole()
    if request.node.stash.get(HAS_FAILED, False):
        place.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def nothing_is_left():
    """What a test started for itself and did not end, because it failed, must not disturb the next one."""
    yield
    stop_started()
