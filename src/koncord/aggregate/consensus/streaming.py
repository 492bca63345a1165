"""The report of Consensus over a table that is read batch by batch.

A sample of the rows is cut into micro-clusters; all rows are sorted into them by the same cuts. So counts, means and
scatters are those of all rows, the floor is held on all rows, and the sample decides only where micro-clusters meet.
"""

from collections.abc import Iterable

import numpy as np

from koncord.aggregate.base import StreamedLocal
from koncord.aggregate.consensus.microclusters import MicroClusters, axes_of_products, nothing
from koncord.kernels.assign import means_by_label, sums_by_label
from koncord.types import FloatArray, IntArray


def streamed_report(local: StreamedLocal, least: int) -> MicroClusters:
    """Micro-clusters of all rows, each of at least `least`: two passes."""
    d = local.sample.shape[1]
    if local.n_rows < least:
        return nothing(d)
    # As many rows of the sample as of a table: with fewer the cuts could lie anywhere.
    groups = local.micro_clusters(least)
    near = means_by_label(local.sample, groups.sample_labels, otherwise=np.zeros((groups.n_labels, d)))
    return summed_micro_clusters(groups.batches(), near)


def summed_micro_clusters(batches: Iterable[tuple[FloatArray, IntArray]], near: FloatArray) -> MicroClusters:
    """Micro-clusters of rows (n, d) and their labels, batch by batch; `near` (k, d) are points near the means."""
    k, d = near.shape
    counts, sums, squares = np.zeros(k, dtype=np.int64), np.zeros((k, d)), np.zeros((k, d))
    products = np.zeros((d, d))
    for X, labels in batches:
        gaps = X - near[labels]
        counts += np.bincount(labels, minlength=k)
        sums += sums_by_label(gaps, labels, k)
        squares += sums_by_label(gaps**2, labels, k)
        products += gaps.T @ gaps
    kept = counts > 0
    shifts = sums[kept] / counts[kept, None]
    about = np.maximum(squares[kept] - counts[kept, None] * shifts**2, 0.0)
    return MicroClusters(
        counts=counts[kept],
        means=near[kept] + shifts,
        scatters=about.sum(axis=1),
        spread=about.sum(axis=0),
        axes=axes_of_products(products - (counts[kept, None] * shifts).T @ shifts),
    )
