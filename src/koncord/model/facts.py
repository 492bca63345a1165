"""What the session that made a model knows of it: who took part, under which rules, what was counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koncord.prepare.units import OtherUnit
from koncord.protocol.departures import Absence


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The privacy budget of a site, as the site stated it."""

    epsilon: float
    delta: float
    bound: float  # radius of the ball that rows are clipped to
    center: float = 0.0  # of that ball, in every column


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What was done about missing values."""

    how: str | None = None  # what stands in for them; None where none are missing
    missing: Mapping[str, int] = field(default_factory=dict)  # about how many, by column
    unused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # columns with too many, and where


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedColumns:
    """What was done with columns before phase 1, for readers."""

    notes: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    fenced: Mapping[str, int] = field(default_factory=dict)  # values that were moved, at least so many, by column
    gaps: Gaps = field(default_factory=Gaps)
    categories: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # shares of the levels
    units: tuple[OtherUnit, ...] = ()  # columns that lie elsewhere at one site


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The conditions of a run, as far as its server knows them."""

    exchanges: int = 0
    missing: tuple[Absence, ...] = ()  # in the order of the exchanges
    silhouettes: tuple[float | None, ...] = ()  # of each cluster; None where no site has one
    one_row_sites: tuple[str, ...] = ()  # the mean of one row is that row, whatever the method
    min_report: int | None = None  # rows behind every number; None where each site has its own, unknown to the server
    is_covered: bool = True  # whether the joint partition of a site with a floor covers all that the method sends
    silent: tuple[str, ...] = ()  # sites with fewer rows than they report
    withheld: Mapping[str, int] = field(default_factory=dict)  # rows that a site reported in no cluster
    support: tuple[int, ...] = ()  # sites of each cluster
    min_support: int = 1  # sites that a cluster needs
    privacy: Mapping[str, Promise] = field(default_factory=dict)  # of the sites with a budget
    left_out_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # and the sites that have them
    preparation: PreparedColumns = field(default_factory=lambda: PreparedColumns())

    @property
    def weak_clusters(self) -> tuple[int, ...]:
        """Clusters that too few sites support."""
        return tuple(cluster for cluster, n_sites in enumerate(self.support) if n_sites < self.min_support)
