"""Whether one table shows more structure than one Gaussian: the null model that Consensus chooses K against.

The rows are described by micro-clusters as those of a site are, and `koncord.aggregate.consensus.choosing` compares
every clustering of the micro-clusters with what draws of one Gaussian of the same covariance give.
"""

from dataclasses import dataclass

import numpy as np

from koncord._threads import one_thread
from koncord.aggregate.consensus import Consensus
from koncord.aggregate.consensus.choosing import choose
from koncord.aggregate.consensus.looking import TIMES_CHANCE
from koncord.aggregate.consensus.microclusters import micro_clusters_of
from koncord.types import FloatArray

# Micro-clusters of the size that Consensus asks of sites; of a small table smaller ones, because here nothing is sent.
MICRO_ROWS = 20
MICRO_CLUSTERS_A_TABLE = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTest:
    """Outcome of the test against one Gaussian."""

    is_several: bool
    times_chance: float  # structure of the table, in multiples of what chance gives a Gaussian; can be infinite
    times_needed: float = TIMES_CHANCE  # more than this is several clusters
    micro_cluster_rows: int  # least rows of a micro-cluster


def against_one_gaussian(X: FloatArray, random_state: int) -> NullTest:
    """Test the table X (n, d) against one Gaussian of its covariance.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> against_one_gaussian(X, 0).is_several
    False
    >>> X[:100] += 9
    >>> against_one_gaussian(X, 0).is_several
    True
    """
    micro_cluster_rows = int(np.clip(round(len(X) / MICRO_CLUSTERS_A_TABLE), 1, MICRO_ROWS))
    rule = Consensus()
    with one_thread():
        choice = choose(
            micro_clusters_of(X, micro_cluster_rows),
            np.array([len(X)]),
            np.random.default_rng(random_state),
            max_clusters=rule.max_clusters,
            slack=rule.slack,
        )
    return NullTest(
        is_several=choice.is_structured,
        times_chance=choice.times_chance,
        micro_cluster_rows=micro_cluster_rows,
    )
