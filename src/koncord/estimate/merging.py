"""The merge stage of ASM: components that overlap along the line between their means become one."""

import numpy as np
from scipy.spatial.distance import cdist

from koncord.types import Components, FloatArray, IntArray


def merge(components: Components, merge_factor: float) -> tuple[Components, IntArray]:
    """Merge greedily while ``|mu_i - mu_j| <= alpha (sigma_i + sigma_j)`` holds for some pair (Eq. merge).

    The first such pair, lowest i then lowest j, is merged on pooled sums and takes the place of i; the scan then
    starts again. Returns the merged components and, for each given component, the one it went into.
    """
    n_given = len(components)
    group = np.arange(n_given)
    if merge_factor == 0:
        return components, group
    counts = components.counts.astype(float)
    means = components.means.copy()
    scatters = components.scatters.copy()
    sigmas = np.sqrt(components.variances)
    meets = np.triu(cdist(means, means) <= merge_factor * (sigmas[:, None] + sigmas), k=1)
    is_alive = np.ones(n_given, dtype=bool)
    while True:
        i, j = divmod(int(meets.argmax()), n_given)
        if not meets[i, j]:
            break
        pool(counts, means, scatters, i, j)
        sigmas[i] = np.sqrt(scatters[i] / (counts[i] * means.shape[1]))
        group[group == j] = i
        is_alive[j] = False
        meets[j] = meets[:, j] = False
        offset = means - means[i]
        meets_i = (np.sqrt(np.vecdot(offset, offset)) <= merge_factor * (sigmas + sigmas[i])) & is_alive
        meets[i, i + 1 :] = meets_i[i + 1 :]
        meets[:i, i] = meets_i[:i]
    merged = Components(counts=counts[is_alive].astype(np.int64), means=means[is_alive], scatters=scatters[is_alive])
    return merged, (np.cumsum(is_alive) - 1)[group]


def pool(counts: FloatArray, means: FloatArray, scatters: FloatArray, i: int, j: int) -> None:
    """Put component j into component i, in place, from their sums alone."""
    total = counts[i] + counts[j]
    gap = means[j] - means[i]
    scatters[i] += scatters[j] + counts[i] * counts[j] / total * (gap @ gap)
    means[i] += counts[j] / total * gap
    counts[i] = total
