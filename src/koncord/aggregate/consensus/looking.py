"""A look at the micro-clusters of all clients: every clustering of them, compared with the null model.

Three hierarchies of the micro-clusters give a clustering for every number of clusters K. Each is judged by how far its
clusters stand apart (`koncord.aggregate.consensus.separation`), and by separation and compactness against draws of one
Gaussian (`koncord.aggregate.consensus.nullmodel`). `koncord.aggregate.consensus.choosing` chooses among these.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from koncord._jobs import spread
from koncord.aggregate.consensus.hierarchies import (
    AVERAGE,
    CONDENSED,
    WARD,
    Hierarchy,
    Judged,
    Key,
    Labelings,
    grid,
    judged,
    labelings,
    put_together,
)
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled
from koncord.aggregate.consensus.nullmodel import Candidate, Null, NullOf
from koncord.aggregate.consensus.separation import APART, Shapes
from koncord.types import FloatArray, IntArray

T = TypeVar("T")

# Up to here every K is looked at; beyond, steps of a twentieth.
EVERY_K, STEP = 30, 1.05
# Values of K at which the Gaussian is looked at: between them its curves are smooth.
EVERY_NULL_K, NULL_STEP = 4, 1.4
# In how many draws, and their rows; and how many more where it is in doubt whether there is more than one cluster.
DRAWS, DRAWN_ROWS = (3, 8), 16_000
MORE_DRAWS, MORE_ROWS = (3, 5), 15_000
# How many times the chance of a draw of the Gaussian the micro-clusters must show to be several clusters; what is in
# doubt, and what is still in doubt after more draws.
TIMES_CHANCE = 3.0
IN_DOUBT = ((2.0, 4.0), (2.3, 3.6))
# The most clusters a micro-cluster that a clustering may have, where these are more than so many: beyond, it says how
# large micro-clusters are.
MOST_A_MICRO_CLUSTER, FEW_MICRO_CLUSTERS = 0.75, 16
# What d' beyond `APART` adds and takes away at most, so that no single cluster outweighs the others.
MOST_GAINED, MOST_LOST = 0.3, 0.5
# Share of the most that clusters can gain from which on they are certain.
CERTAIN = 0.8
# Depth of a valley in the density that is more than the unevenness of a density of micro-clusters.
LEAST_VALLEY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """Every clustering of the micro-clusters that was looked at, with the columns weighed in one way."""

    scales: FloatArray  # (n_features,) that the columns were multiplied by
    micro: MicroClusters  # as weighed, at most `MOST_MICRO_CLUSTERS`
    belongs: IntArray  # of every micro-cluster of the clients: the one it went into
    shapes: Shapes
    labels: Labelings
    null: Null
    candidates: tuple[Candidate, ...]

    @property
    def times_chance(self) -> float:
        """Structure in multiples of chance."""
        return times_chance(self.candidates, self.null, len(self.micro))

    def labels_of(self, candidate: Candidate) -> IntArray:
        one = np.zeros(len(self.micro), dtype=np.int64)
        return self.labels.get((candidate.hierarchy, candidate.n_clusters), one)

    def stands_alone(self, candidate: Candidate) -> bool:
        """Whether some cluster has a valley between it and each of its nearest.

        Pieces of a tail have none, however far apart they are: the density only falls.
        """
        valleys = self.shapes.valleys(self.labels_of(candidate))
        return bool(valleys.size and (valleys.min(axis=1) >= LEAST_VALLEY).any())


def look_at(
    micro: MicroClusters,
    rows: IntArray,
    rng: np.random.Generator,
    scales: FloatArray,
    null_of: NullOf,
    *,
    max_clusters: int,
) -> Look:
    """Cluster the micro-clusters, columns multiplied by `scales`, for every K, and compare with the null model."""
    weighed = rescaled(micro, scales)
    coarse, belongs = put_together(weighed, rng)
    most = min(max_clusters, len(coarse))
    gaussian = null_of(weighed, rows, rng, scales)
    null_ks = grid(most, every=EVERY_NULL_K, step=NULL_STEP)

    shapes = Shapes(coarse, weighed.covariance_inside())
    ks = grid(most, every=EVERY_K, step=STEP)

    def observed(*hierarchies: Hierarchy) -> Observed:
        labels = labelings(coarse, ks, hierarchies)
        apart = {key: apart_of(shapes, own, belongs) for key, own in labels.items()} if len(micro.axes) else {}
        return Observed(labels, judged(coarse, labels), apart)

    # The draws are the only work here that takes random numbers, and it takes them first.
    draws = gaussian.draws(rng, null_ks, DRAWS, DRAWN_ROWS)
    work: list[Callable[[], Any]] = [partial(observed, AVERAGE, CONDENSED), partial(observed, WARD), *draws]
    average, ward, *by_chance = spread(done, work)  # the longest work first
    found: Observed = ward | average
    null = Null.of(null_ks, by_chance)
    for low, high in IN_DOUBT:
        if low < times_chance(null.compared(found.values), null, len(coarse)) < high:
            more = gaussian.draws(rng, null_ks, MORE_DRAWS, MORE_ROWS)
            null = null.and_more(Null.of(null_ks, spread(done, more)))
    return Look(
        scales=scales,
        micro=coarse,
        belongs=belongs,
        shapes=shapes,
        labels=found.labels,
        null=null,
        candidates=tuple(found.with_apart(each) for each in null.compared(found.values)),
    )


class Observed(NamedTuple):
    """Clusterings of the micro-clusters by some hierarchies, and what is known of them without the null model."""

    labels: dict[Key, IntArray]
    values: dict[Key, Judged]
    apart: "dict[Key, Apart]"  # empty where axes are not known

    def __or__(self, other: "Observed") -> "Observed":
        return Observed(self.labels | other.labels, self.values | other.values, self.apart | other.apart)

    def with_apart(self, candidate: Candidate) -> Candidate:
        """The candidate with what d' says of its clusters, where it is known."""
        key = candidate.hierarchy, candidate.n_clusters
        return replace(candidate, **self.apart[key]._asdict()) if self.apart else candidate


class Apart(NamedTuple):
    """What d' says of the clusters of a clustering, as in a candidate."""

    apart: float
    least_apart: float


def done(work: Callable[[], T]) -> T:
    return work()


def with_apart(candidate: Candidate, shapes: Shapes, labels: IntArray, belongs: IntArray) -> Candidate:
    """The candidate with what d' says of its clusters."""
    return replace(candidate, **apart_of(shapes, labels, belongs)._asdict())


def apart_of(shapes: Shapes, labels: IntArray, belongs: IntArray) -> Apart:
    """What d' says of clusters.

    One of a single micro-cluster adds nothing, nor does one that may be of mixed ones: these may be rows of two
    clusters that a site could not tell apart.
    """
    distances = shapes.apart(labels)
    most = np.where((np.bincount(labels[belongs]) == 1) | shapes.are_mixed(labels), 0.0, MOST_GAINED)
    gained = np.clip(distances - APART, -MOST_LOST, most).sum() / MOST_GAINED
    return Apart(float(gained), float(distances.min()))


def regular(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that the null model has the like of."""
    return [each for each in candidates if each.hierarchy in (WARD, AVERAGE)]


def times_chance(candidates: Sequence[Candidate], null: Null, n_micro: int) -> float:
    """Structure in multiples of chance: of the gap, or the mean of gap and separation if that is less.

    It is that of `n_micro` micro-clusters. Clusterings of hardly more than one micro-cluster a cluster do not count.
    """
    most = MOST_A_MICRO_CLUSTER * max(n_micro, FEW_MICRO_CLUSTERS)
    alike = [each for each in regular(candidates) if each.n_clusters <= most]
    gap = ratio(max((each.gap for each in alike), default=0.0), null.gap_by_chance)
    separation = ratio(max((each.separation for each in alike), default=0.0), null.separation_by_chance)
    return min(gap, (gap + separation) / 2)


def ratio(value: float, chance: float) -> float:
    if chance == 0.0:
        return inf if value > 0.0 else 0.0
    return value / chance
