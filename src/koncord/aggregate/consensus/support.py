"""What several clients must agree on before the server believes it: for runs in which some client may lie.

A client that keeps to the protocol can still tell what it likes: leaves far from everybody's, which two groups so far
apart would explain best of all; more rows than all others together; sums of rows that are none. With a support of two
or more, leaves that only a few clients have are set aside before the number of clusters is chosen, no client counts for
more rows than as many clients have, and a sum of rows must be one that rows nearest to that center can have.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from koncord.aggregate.consensus.leaves import Leaves, taken
from koncord.kernels.assign import nearest
from koncord.types import BoolArray, FloatArray, IntArray

# How far from a center the mean of a client's rows may lie, in root mean squared distances of rows to centers.
REACH = 2.0


def without_excess(reports: Mapping[str, Leaves], min_support: int) -> dict[str, Leaves]:
    """The reports, where no client counts for more rows than `min_support` clients have."""
    totals = {client: int(leaves.counts.sum()) for client, leaves in reports.items()}
    most = sorted(totals.values(), reverse=True)[:min_support][-1]
    return {
        client: scaled(leaves, most / totals[client]) if 0 < most < totals[client] else leaves
        for client, leaves in reports.items()
    }


def scaled(leaves: Leaves, share: float) -> Leaves:
    """The same leaves with that share of their rows, at least one each."""
    counts = np.maximum(np.floor(leaves.counts * share).astype(np.int64), 1)
    return replace(
        leaves,
        counts=counts,
        scatters=leaves.scatters * (counts / leaves.counts),
        spread=leaves.spread * share,
        axes=leaves.axes * np.sqrt(share),
    )


def weak_clusters(labels: IntArray, clients: IntArray, min_support: int) -> BoolArray:
    """Clusters of leaves of fewer than `min_support` clients."""
    pairs = np.unique(np.stack([labels, clients]), axis=1)
    weak: BoolArray = np.bincount(pairs[0], minlength=int(labels.max()) + 1) < min_support
    return weak


def with_leaves(reports: Mapping[str, Leaves], believed: Mapping[str, BoolArray]) -> dict[str, Leaves]:
    """The believed leaves; the spread of a client counts by the share of its rows in them."""
    kept = {}
    for client, leaves in reports.items():
        chosen = taken(leaves, np.flatnonzero(believed[client]))
        share = float(chosen.counts.sum() / max(leaves.counts.sum(), 1))
        kept[client] = replace(chosen, spread=leaves.spread * share, axes=leaves.axes * np.sqrt(share))
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
    believed = np.where(is_credible, counts, 0)
    most = np.sort(believed, axis=0)[::-1][:min_support][-1]
    return np.where(most > 0, np.minimum(believed, most), believed)
