"""How sure an answer is, as an aggregator tells it: of every cluster, of their number, and what one more would be."""

from dataclasses import dataclass

# d' of two halves of one Gaussian, and the most that halves of any cloud with a single peak can have.
HALVES_OF_A_GAUSSIAN, SINGLE_PEAK = 1.32, 1.73
# Share of its rows that a stable cluster has in common with its counterpart (Hennig, 2007); below the second it
# dissolves.
STABLE, DISSOLVES = 0.75, 0.5
# Depth of a valley of the density up to which there is none.
NO_VALLEY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfidence:
    """What speaks for one cluster."""

    apart: float | None  # d' from its nearest cluster; None of the only one
    nearest: int | None  # which that is
    valley: float | None = None  # how far the density falls on the way to it, 0 to 1; None of the only one
    sites: int  # that reported a micro-cluster in it
    rows: int  # of these micro-clusters
    stability: float | None  # share that comes back with half of the sites; None: not testable, one site holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCut:
    """What one more cluster would be: a cut through one of those that were found."""

    cluster: int
    apart: float  # d' of the two halves


@dataclass(frozen=True, slots=True, kw_only=True)
class KShare:
    """How often a number of clusters was chosen."""

    n_clusters: int
    share: float  # of the draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the clusters and their number are."""

    clusters: tuple[ClusterConfidence, ...]
    next_cut: NextCut | None = None  # None where no cluster has micro-clusters enough
    resampled: tuple[KShare, ...] = ()  # by K, over draws of the sites with replacement; empty of a single site
    n_draws: int = 0

    @property
    def least_apart(self) -> float | None:
        """Smallest d' of a cluster from its nearest; None of a single cluster."""
        return min((each.apart for each in self.clusters if each.apart is not None), default=None)
