"""What several clients must agree on before the server believes it: for runs in which some client may lie.

A client that keeps to the protocol can still tell what it likes: micro-clusters far from everybody's, which two groups
so far apart would explain best of all; more rows than all others together. With a support of two or more,
micro-clusters that only a few clients have are set aside before the number of clusters is chosen, and no client counts
for more rows than as many clients have.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from koncord.aggregate.consensus.microclusters import MicroClusters, taken, with_share_of_spread
from koncord.types import BoolArray, IntArray


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
