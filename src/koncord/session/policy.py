"""Who decides what: the owner of a site what may leave it, the owner of the coordinator how a run goes.

The defaults are the same in Python, in ``koncord fit`` and in ``koncord join``. Nothing heavy is imported here: the
command line reads the defaults for its help.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koncord.protocol.floor import DEFAULT_MIN_REPORT

if TYPE_CHECKING:
    from koncord.aggregate.base import Aggregator
    from koncord.privacy.budget import Budget


CHANGED = ("old", "refuse")


@dataclass(frozen=True, kw_only=True)  # without slots, the class has its defaults as attributes
class SitePolicy:
    """What the owner of a site lets leave it.

    Parameters
    ----------
    min_report : int, default 20
        Smallest number of rows behind any statistic that the site sends; smaller cells are suppressed, and a site with
        fewer rows sends the names of its columns only. 1 suppresses nothing.
    budget : Budget, default None
        What everything that the site sends in one run keeps to. With one, phase 1 is left out and the run is not
        repeated by its seed (see docs/privacy.md).
    methods : tuple of str, default None
        Aggregators that the site takes part in, by name; None are those whose answers the joint partition of the
        site covers, in few rounds: consensus, fedkmeans, kfed and spahm.
    max_rounds : int, default None
        Most rounds of a run; None is as many as each aggregator has by default.
    max_runs : int, default None
        Most runs that the site takes part in; None is no limit. `koncord join` with a budget and neither this nor
        `total_epsilon` has 10: what every run promises adds up.
    total_epsilon : float, default None
        Most that all runs within a budget may cost together, at the budget's delta; None is no limit.
    changed : str, default "old"
        What a joined site does while its table differs from what it answered about by too few rows: answer from the
        "old" rows, or "refuse" to take part.
    allows_disclosure : bool, default False
        Whether rows themselves may leave, by an aggregator that sends them.
    """

    min_report: int = DEFAULT_MIN_REPORT
    budget: "Budget | None" = None
    methods: tuple[str, ...] | None = None
    max_rounds: int | None = None
    max_runs: int | None = None
    total_epsilon: float | None = None
    changed: str = "old"
    allows_disclosure: bool = False

    def __post_init__(self) -> None:
        from koncord._validation import check_count, check_number, check_option

        check_option("changed", self.changed, CHANGED, owner=self)
        if self.total_epsilon is not None:
            check_number("total_epsilon", self.total_epsilon, owner=self, least=0, above=True)
            if self.budget is None or self.budget.epsilon > self.total_epsilon:
                raise ValueError(
                    "'total_epsilon' of SitePolicy goes with a budget of at most as much a run; got "
                    f"{self.total_epsilon:g} and {'none' if self.budget is None else f'{self.budget.epsilon:g}'}."
                )
        for name in ("min_report", "max_rounds", "max_runs"):
            if name == "min_report" or getattr(self, name) is not None:
                object.__setattr__(self, name, check_count(name, getattr(self, name), owner=self))

    def most_rounds(self, kind: "type[Aggregator]") -> int:
        """Rounds that a run with this aggregator may have."""
        return kind().most_rounds() if self.max_rounds is None else self.max_rounds


@dataclass(frozen=True, kw_only=True)  # without slots, the class has its defaults as attributes
class ServerPolicy:
    """How the owner of the coordinator runs a federation.

    Parameters
    ----------
    min_sites : int, default 2
        Quorum: fewest sites that must answer an exchange. Sites in one process all answer.
    min_support : int, default 1
        Flag clusters supported by fewer than this many sites; `Consensus` sets such micro-clusters aside.
    round_timeout : float, default 120
        Seconds an exchange waits for a site.
    first_timeout : float, default 3600
        Seconds it waits when phase 1, which takes longest, is among what the sites are asked.
    wait : float, default 120
        Seconds to wait for sites to connect before the run begins.
    """

    min_sites: int = 2
    min_support: int = 1
    round_timeout: float = 120.0
    first_timeout: float = 3600.0
    wait: float = 120.0

    def __post_init__(self) -> None:
        from koncord._validation import check_count, check_number

        check_count("min_sites", self.min_sites, owner=self)
        check_count("min_support", self.min_support, owner=self)
        for name in ("round_timeout", "first_timeout", "wait"):
            check_number(name, getattr(self, name), owner=self, least=0, above=True)
