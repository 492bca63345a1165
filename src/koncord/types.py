"""The nouns the stages share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StoredArray = NDArray[np.float32 | np.float64]  # as a table holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Hard components of one table, as sums: what a merge needs and nothing that grows with the rows."""

    counts: IntArray  # (k,) rows
    means: FloatArray  # (k, n_features)
    scatters: FloatArray  # (k,) summed squared distance of the rows to their mean

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def variances(self) -> FloatArray:
        """Mean variance of a feature in each component: tr(Sigma) / d, the paper's sigma squared."""
        per_feature: FloatArray = self.scatters / (self.counts * self.means.shape[1])
        return per_feature


@dataclass(frozen=True, slots=True, kw_only=True)
class SphericalMixture:
    """Spherical components of one table, each with the rows that are most probably its own."""

    means: FloatArray  # (k, n_features) of the fitted components
    variances: FloatArray  # (k,) of the fitted components, mean over the features
    rows: Components  # sums of the rows of each

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_rows(cls, rows: Components) -> "SphericalMixture":
        """Components with the means and variances of their rows."""
        return cls(means=rows.means, variances=rows.variances, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEstimate:
    """What phase 1 found at one client. It stays there; an aggregator's client step decides what of it is sent."""

    n_components: int
    means: FloatArray  # (n_components, n_features)
