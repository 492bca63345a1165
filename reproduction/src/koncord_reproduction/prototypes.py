"""Prototypes: clients send count and mean of their micro-clusters, and nothing else that a server groups them by.

What the aggregators share that group the prototypes of all clients by themselves: the one exchange they have, and the
shape of the clusters that come out of it. A row is labeled by the most likely of these clusters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from koncord.aggregate.base import Local, Outcome
from koncord.aggregate.diagnostics import Diagnostics, Json
from koncord.errors import KoncordError
from koncord.kernels.assign import means_by_label
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.lloyd import unstacked
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST, LARGEST_FLOAT, Array, Number
from koncord.types import FloatArray, IntArray

# Directions along which the clusters have a shape; a site is sent no more.
MOST_AXES = LARGEST["n_axes"]
# Least variance of a cluster along an axis, as a share of that of all rows: rows that are one point have none.
LEAST_SHARE = 1e-6

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPrototypes:
    """Server to client: send count and mean of your micro-clusters."""

    min_rows: Annotated[int, Number(least=1, most=LARGEST["rows"])]  # of a micro-cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototypes:
    """Client to server: its micro-clusters; none if it has too few rows."""

    counts: Annotated[IntArray, Array("at most n_micro_clusters", least=1, total="rows")]
    means: Annotated[FloatArray, Array("at most n_micro_clusters", "n_features")]
    spread: Annotated[FloatArray, Array("n_features", least=0, most=LARGEST_FLOAT)]  # squares about the means, summed

    def __len__(self) -> int:
        return len(self.counts)


# --- client steps ---


def send_prototypes(local: Local, state: None, down: SendPrototypes) -> tuple[None, Prototypes]:
    """Cut the rows into micro-clusters of enough rows each, in whole cells of the joint partition."""
    least = max(down.min_rows, local.min_report)
    if len(local.X) < least:
        return None, no_prototypes(local.X.shape[1])
    groups = local.micro_clusters(least)
    return None, prototypes_of(groups.X, groups.labels)


def prototypes_of(X: FloatArray, labels: IntArray) -> Prototypes:
    """The prototypes that the rows of X make by their labels; a label that no row has makes none."""
    labels = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(labels)
    means = means_by_label(X, labels, otherwise=np.zeros((len(counts), X.shape[1])))
    return Prototypes(counts=counts, means=means, spread=((X - means[labels]) ** 2).sum(axis=0))


def no_prototypes(n_features: int) -> Prototypes:
    return Prototypes(counts=np.empty(0, dtype=np.int64), means=np.empty((0, n_features)), spread=np.zeros(n_features))


# --- server steps ---


def gathered(sent: Mapping[str, Prototypes], n_features: int, *, min_rows: int) -> Prototypes:
    """The prototypes of all clients as one, in the order given; an error if there is none."""
    each: Sequence[Prototypes] = [no_prototypes(n_features), *sent.values()]
    together = Prototypes(
        counts=np.concatenate([one.counts for one in each]),
        means=np.concatenate([one.means for one in each]),
        spread=np.sum([one.spread for one in each], axis=0),
    )
    if not len(together):
        raise KoncordError(
            f"No client sent a micro-cluster: each has fewer than {min_rows} rows, or than its floor. {LOWER_FLOOR}"
        )
    return together


def shapes_by(prototypes: Prototypes, labels: IntArray) -> Gaussians:
    """A Gaussian for each cluster of prototypes; a prototype labeled -1 is in none.

    Its covariance is that of the cluster's prototypes, weighted by their rows, and of the rows about their prototype.
    The first is drawn to that of all clusters together, by as many prototypes as there are axes: a cluster of few
    prototypes has no shape of its own.
    """
    is_in = labels >= 0
    labels, counts, means = labels[is_in], prototypes.counts[is_in].astype(float), prototypes.means[is_in]
    sizes = np.bincount(labels, counts)
    centers = means_by_label(means, labels, counts, otherwise=np.zeros((len(sizes), means.shape[1])))
    origin = counts @ means / counts.sum()
    inside = prototypes.spread / prototypes.counts.sum()
    axes = leading_axes(scatter_of(means - origin, counts) / counts.sum() + np.diag(inside))
    gaps = (means - centers[labels]) @ axes.T
    own = np.array([scatter_of(gaps[labels == k], counts[labels == k]) for k in range(len(sizes))])
    shared = own.sum(axis=0) / counts.sum()
    drawn = len(axes) * counts.mean()
    around = (axes * inside) @ axes.T
    covariances = (own + drawn * shared) / (sizes + drawn)[:, None, None] + around
    total = ((means - origin) @ axes.T).var(axis=0).sum() + np.trace(around)
    floor = LEAST_SHARE * (total if total > 0 else 1.0)
    return Gaussians(
        centers=centers, axes=axes, covariances=covariances + floor * np.eye(len(axes)), weights=sizes / sizes.sum()
    )


def scatter_of(gaps: FloatArray, counts: FloatArray) -> FloatArray:
    scatter: FloatArray = (gaps * counts[:, None]).T @ gaps
    return scatter


def leading_axes(covariance: FloatArray) -> FloatArray:
    """The longest principal axes (q, d) of unit length, each with its largest entry positive."""
    axes = np.linalg.eigh(covariance)[1].T[::-1][:MOST_AXES]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    turned: FloatArray = axes * np.sign(largest)
    return turned


def outcome_of(
    sent: Mapping[str, Prototypes],
    prototypes: Prototypes,
    labels: IntArray,
    *,
    extra: Mapping[str, Json],
    notes: Sequence[str] = (),
) -> Outcome:
    """What the server knows: the clusters of the prototypes, and who holds which; those labeled -1 are set aside."""
    shapes = shapes_by(prototypes, labels)
    is_out = labels < 0
    groups = labels.copy()
    groups[is_out] = shapes.assign(prototypes.means[is_out])
    means = {client: one.means for client, one in sent.items()}
    excluded = {client: out.astype(np.bool_) for client, out in unstacked(is_out.astype(np.int64), means).items()}
    return Outcome(
        centers=shapes.centers,
        gaussians=shapes,
        groups=unstacked(groups, means),
        components=means,
        rows={client: one.counts for client, one in sent.items()},
        excluded={client: out for client, out in excluded.items() if out.any()},
        diagnostics=Diagnostics(
            rounds=1,
            stopped="one round",
            label_rule="gaussian",
            micro_clusters={client: len(one) for client, one in sent.items()},
            extra=dict(extra),
            notes=tuple(notes),
        ),
    )
