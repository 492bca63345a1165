"""The merge stage of ASM: components that overlap along the line between their means become one."""

import numpy as np
from scipy.spatial.distance import cdist

from koncord.types import Components, FloatArray, IntArray, SphericalMixture


def merge(mixture: SphericalMixture, merge_factor: float) -> tuple[SphericalMixture, IntArray]:
    """Merge greedily while ``|mu_i - mu_j| <= alpha (sigma_i + sigma_j)`` holds for some pair (Eq. merge).

    The first such pair, lowest i then lowest j, is merged and takes the place of i; the scan then starts again. A
    component keeps the mean and the variance of its fit until it is merged. A merged one has the size-weighted mean,
    and its sigma is computed anew from the pooled rows. Returns the merged mixture and, for each given component, the
    one it went into.
    """
    n_given, d = mixture.means.shape
    group = np.arange(n_given)
    if merge_factor == 0:
        return mixture, group
    counts = mixture.rows.counts.astype(float)
    row_means = mixture.rows.means.copy()
    scatters = mixture.rows.scatters.copy()
    means = mixture.means.copy()
    variances = mixture.variances.copy()
    sigmas = np.sqrt(variances)
    meets = np.triu(cdist(means, means) <= merge_factor * (sigmas[:, None] + sigmas), k=1)
    is_alive = np.ones(n_given, dtype=bool)
    while True:
        i, j = divmod(int(meets.argmax()), n_given)
        if not meets[i, j]:
            break
        means[i] += counts[j] / (counts[i] + counts[j]) * (means[j] - means[i])
        pool(counts, row_means, scatters, i, j)
        variances[i] = scatters[i] / (counts[i] * d)
        sigmas[i] = np.sqrt(variances[i])
        group[group == j] = i
        is_alive[j] = False
        meets[j] = meets[:, j] = False
        offset = means - means[i]
        meets_i = (np.sqrt(np.vecdot(offset, offset)) <= merge_factor * (sigmas + sigmas[i])) & is_alive
        meets[i, i + 1 :] = meets_i[i + 1 :]
        meets[:i, i] = meets_i[:i]
    rows = Components(counts=counts[is_alive].astype(np.int64), means=row_means[is_alive], scatters=scatters[is_alive])
    merged = SphericalMixture(means=means[is_alive], variances=variances[is_alive], rows=rows)
    return merged, (np.cumsum(is_alive) - 1)[group]


def pool(counts: FloatArray, means: FloatArray, scatters: FloatArray, i: int, j: int) -> None:
    """Put component j into component i, in place, from their sums alone."""
    total = counts[i] + counts[j]
    gap = means[j] - means[i]
    scatters[i] += scatters[j] + counts[i] * counts[j] / total * (gap @ gap)
    means[i] += counts[j] / total * gap
    counts[i] = total
