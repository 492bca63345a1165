"""How columns are weighed: more where clusters differ by more than the rows inside them do.

The variance of a column that tells nothing is all inside clusters. Which clusters these are is not known at first: each
micro-cluster stands for one. Clusters that are certain enough tell better, and so do clear ones of a single column.
"""

import numpy as np

from koncord.aggregate.consensus.hierarchies import WARD, labelings, put_together
from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.aggregate.consensus.separation import CLEAR, Shapes
from koncord.kernels.assign import means_by_label
from koncord.types import FloatArray, IntArray

# Of a column that weighs by clear clusters of its own: the share of its variance that is left inside them, and the most
# clusters that it may have.
MOST_INSIDE, MOST_IN_A_COLUMN = 0.1, 6
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


def clear_scales(micro: MicroClusters, rng: np.random.Generator) -> FloatArray | None:
    """What to multiply each column by if some have clear clusters of their own: more for these; None if none has.

    Many micro-clusters are cut along a wide column, so what is between them does not show that it holds no clusters.
    """
    scales = np.ones(micro.means.shape[1])
    variances = micro.spread / max(int(micro.counts.sum()), 1)
    for at, variance in enumerate(variances.tolist()):
        column = MicroClusters(
            counts=micro.counts,
            means=micro.means[:, [at]],
            scatters=micro.counts * variance,
            spread=micro.spread[[at]],
            axes=np.sqrt(micro.spread[[at]])[None],
        )
        coarse, _ = put_together(column, rng)
        shapes = Shapes(coarse, coarse.covariance_inside())
        found = labelings(coarse, range(2, MOST_IN_A_COLUMN + 1), [WARD])
        clear = [labels for labels in found.values() if shapes.apart(labels).min() >= CLEAR]
        if clear:
            finest = max(clear, key=lambda labels: int(labels.max()))
            scale = float(column_scales(coarse, finest)[0])
            scales[at] = scale if scale**2 * (MOST_INSIDE + LEAST_INSIDE) > 1 else 1.0
    return scales if (scales != 1).any() else None
