"""How slow this machine is now: limits are given for a quiet machine and stretch with what was measured."""

import re

QUIET = {"serve": 6.0, "join": 10.0, "exchange": 5.0}  # seconds on a quiet machine of two cores
MOST = 12.0  # times: on a machine slower than that a limit says so rather than wait for hours


class Pace:
    """The slowest coordinator, joining of sites and exchange seen so far, against those of a quiet machine."""

    def __init__(self):
        self.slowness = 1.0

    def saw(self, what, seconds):
        self.slowness = min(MOST, max(self.slowness, seconds / QUIET[what]))

    def saw_exchanges(self, text):
        """Measure by the exchanges a run has printed, but not by one that waited for a site in vain."""
        for seconds in re.findall(r"^exchange .*\((\d+\.\d) s\)$", text, re.MULTILINE):
            self.saw("exchange", float(seconds))

    def limit(self, seconds):
        """What `seconds` of a quiet machine are on this one."""
        return seconds * self.slowness


PACE = Pace()


def waits(option, seconds):
    """An option of `koncord run` with a number of seconds, stretched like the limits."""
    return option, f"{PACE.limit(seconds):.0f}"
