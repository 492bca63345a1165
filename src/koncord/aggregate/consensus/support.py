"""What several clients must agree on before the server believes it: for runs in which some client may lie.

A client that keeps to the protocol can still tell what it likes: micro-clusters far from everybody's, which two groups
so far apart would explain best of all; more rows than all others together; sums of rows that are none. With a support
of two or more, micro-clusters that only a few clients have are set aside before the number of clusters is chosen, no
client counts for more rows than as many clients have, and a sum of rows must be one that rows nearest to that center
can have.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from koncord.aggregate.consensus.microclusters import MicroClusters, taken, with_share_of_spread
from koncord.kernels.assign import nearest
from koncord.types import BoolArray, FloatArray, IntArray

# How far from a center the mean of a client's rows may lie, in root mean squared distances of rows to centers.
SUPPORT_REACH = 2.0


def without_excess(reports: Mapping[str, MicroClusters], min_support: int) -> dict[str, MicroClusters]:
    """The reports, where no client counts for more rows than `min_support` clients have."""
    totals = {client: int(micro.counts.sum()) for client, micro in reports.items()}
    most = sorted(totals.values(), reverse=True)[:min_support][-1]
    return {
        client: scaled(micro, most / totals[client]) if 0 < most < totals[client] else micro
        for client, micro in reports.items()
    }


def scaled(micro: MicroClusters, share: float) -> MicroClusters:
    """The same micro-clusters with that share of their rows, at least one each."""
    counts = np.maximum(np.floor(micro.counts * share).astype(np.int64), 1)
    return replace(
        micro,
        counts=counts,
        scatters=micro.scatters * (counts / micro.counts),
        spread=micro.spread * share,
        axes=micro.axes * np.sqrt(share),
    )


def weak_clusters(labels: IntArray, clients: IntArray, min_support: int) -> BoolArray:
    """Clusters of micro-clusters of fewer than `min_support` clients."""
    pairs = np.unique(np.stack([labels, clients]), axis=1)
    weak: BoolArray = np.bincount(pairs[0], minlength=int(labels.max()) + 1) < min_support
    return weak


def with_micro_clusters(
    reports: Mapping[str, MicroClusters], supported: Mapping[str, BoolArray]
) -> dict[str, MicroClusters]:
    """The micro-clusters that were kept; the spread of a client counts by the share of its rows in them."""
    kept = {}
    for client, micro in reports.items():
        chosen = taken(micro, np.flatnonzero(supported[client]))
        share = float(chosen.counts.sum() / max(micro.counts.sum(), 1))
        kept[client] = with_share_of_spread(chosen, share)
    return kept


def credible(counts: IntArray, sums: FloatArray, centers: FloatArray, *, reach: float, min_support: int) -> IntArray:
    """Counts (n_clients, k) without those whose sums (n_clients, k, d) rows nearest to that center cannot have.

    The rows nearest to a center fill a convex cell, so their mean is nearest to it too; nor do they lie far away. And
    no client counts for more rows of a center than `min_support` clients have, if so many have any.
    """
    n_clients, k = counts.shape
    means = sums / np.maximum(counts, 1)[:, :, None]
    cells = nearest(means.reshape(n_clients * k, -1), centers).reshape(n_clients, k)
    gaps = means - centers
    is_credible = (cells == np.arange(k)) & (np.vecdot(gaps, gaps) <= reach**2)
    supported = np.where(is_credible, counts, 0)
    most = np.sort(supported, axis=0)[::-1][:min_support][-1]
    return np.where(most > 0, np.minimum(supported, most), supported)
