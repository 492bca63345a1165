"""What an aggregator says of its result: its rounds, why it stopped, how it chose, what a reader should know.

One record for all aggregators. Reports and commands read it; nothing is computed from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
else:
    Json = Any

StopReason = Literal["one round", "converged", "round limit"]
LabelRule = Literal["nearest", "gaussian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KCandidate:
    """One clustering that was looked at, compared with one Gaussian; for one cluster all is 0."""

    hierarchy: str
    n_clusters: int
    silhouette: float
    separation: float  # silhouette, less that of the Gaussian
    gap: float  # logarithm of the squared distances to the centers: that of the Gaussian, less this one's
    apart: float = 0.0  # clusters that stand apart by d', less those that do not
    least_apart: float = 0.0  # smallest d' of a cluster from one of its nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class KChoice:
    """How the number of clusters was chosen."""

    chosen: KCandidate
    runner_up: KCandidate | None  # the best of another K
    candidates: tuple[KCandidate, ...]  # by K
    separation_by_chance: float = 0.0  # the largest that a draw of the Gaussian shows against the others, on average
    gap_by_chance: float = 0.0
    stands_apart: bool = False  # whether it was chosen because its clusters stand apart


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsilonCandidate:
    upsilon: float
    n_clusters: int  # without the held-out rows
    score: float  # silhouette of the held-out rows, summed over the sites


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsilonChoice:
    """The upsilon of FedGEM, and what it was chosen from."""

    upsilon: float
    candidates: tuple[UpsilonCandidate, ...] = ()  # empty where upsilon was given

    @property
    def chosen(self) -> UpsilonCandidate:
        return next(each for each in self.candidates if each.upsilon == self.upsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Offsets between sites that tell where their clusters lie (`koncord.aggregate.consensus.calibration`)."""

    offsets: Mapping[str, tuple[float, ...]]  # of each site, by column, on the scaled columns
    before: float  # how far a site's part of a cluster lies from the others', in standard deviations inside a site
    after: float  # how far with the offsets taken out
    is_applied: bool  # whether they were taken out
    n_clusters: int  # that there are once they are
    site_effects: tuple[int, ...] = ()  # clusters that one site alone supports, and that are others' once they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What an aggregator tells the readers of its result.

    Parameters
    ----------
    rounds : int, default None
        Rounds that it took, as its method counts them; None where it does not say.
    stopped : str, default None
        Why there were no more: the method has "one round", it "converged", or it reached its "round limit".
    label_rule : str, default "nearest"
        How a row gets its cluster: by the "nearest" center, or as the most likely of Gaussian clusters ("gaussian").
    choice : KChoice or UpsilonChoice, default None
        How the number of clusters was chosen, where it was.
    stabilities : tuple of float or None, default ()
        How much of each cluster comes back with half of the sites; None for a cluster that no half held.
    micro_clusters : mapping of str to int, default None
        Micro-clusters that each site sent; None where components are clusters of a site.
    objective : tuple of float, default ()
        What the method makes small or large, in each round.
    shifts : tuple of float, default ()
        How far the centers moved in each round.
    calibration : Calibration, default None
        Offsets between the sites, where there are credible ones.
    notes : tuple of str, default ()
        Sentences for the report.
    extra : mapping of str to JSON value, default {}
        Facts of one aggregator alone. The report lists those that are a number, a word or a boolean.
    """

    rounds: int | None = None
    stopped: StopReason | None = None
    label_rule: LabelRule = "nearest"
    choice: KChoice | UpsilonChoice | None = None
    stabilities: tuple[float | None, ...] = ()
    micro_clusters: Mapping[str, int] | None = None
    objective: tuple[float, ...] = ()
    shifts: tuple[float, ...] = ()
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {each.name for each in fields(self)}
        for name, value in self.extra.items():
            if name in names:
                raise ValueError(f"'extra' of Diagnostics must not hold {name!r}: give it as the argument {name!r}.")
            if not is_json(value):
                raise TypeError(f"'extra' of Diagnostics must hold finite JSON values; {name!r} is {value!r}.")


def is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and is_json(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_json, value))
    return type(value) in (type(None), bool, int, str) or (type(value) is float and isfinite(value))
