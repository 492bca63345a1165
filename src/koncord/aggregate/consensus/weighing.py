"""How columns are weighed: more where clusters differ by more than the rows inside them do.

The variance of a column that tells nothing is all inside clusters. Which clusters these are is not known at first: each
micro-cluster is one. Clusters that are certain enough tell better.
"""

import numpy as np

from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.kernels.assign import means_by_label
from koncord.types import FloatArray, IntArray

# Added to the share of a column's variance that is inside clusters, so that no column outweighs all others.
LEAST_INSIDE = 0.1


def column_scales(micro: MicroClusters, labels: IntArray) -> FloatArray:
    """What to multiply each column by: more where the groups differ by more than the rows inside them do.

    It is the root of 1 over the share of a column's variance that is inside the groups; units stay as they are.
    """
    weights = micro.counts.astype(float)
    k = int(labels.max()) + 1
    means = means_by_label(micro.means, labels, weights, otherwise=np.zeros((k, micro.means.shape[1])))
    about_groups, about_all = micro.means - means[labels], micro.means - weights @ micro.means / weights.sum()
    inside = np.diagonal(micro.covariance_inside())
    within = weights @ about_groups**2 / weights.sum() + inside
    total = weights @ about_all**2 / weights.sum() + inside
    share = np.divide(within, total, out=np.ones(len(total)), where=total > np.finfo(float).tiny)
    scales: FloatArray = 1 / np.sqrt(share + LEAST_INSIDE)
    return scales
