"""Labels of rows column by column, as Arrow holds a table: scale, distances and values far off in one step in C."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.kernels.built import compiled_module
from koncord.kernels.gaussians import Factors, TwoNearest
from koncord.types import FloatArray, IntArray, StoredArray

_labeling = compiled_module("_labeling")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FarValues:
    """Values far off in the clusters of their rows, by row and column."""

    rows: IntArray  # (n_far,) rising
    columns: IntArray  # (n_far,) among the columns of numbers
    beyond: FloatArray  # (n_far,) in standard deviations of the cluster
    labels: IntArray  # (n_far,) clusters of the rows


class LabeledColumns(NamedTuple):
    """The two most likely clusters of some rows, and their values far off."""

    nearest: TwoNearest
    far: FarValues


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnLabeler:
    """What labels rows that are given column by column."""

    scaling: FloatArray  # (5, d) low and high end of the fence, mean, scale and offset of every column
    factors: Factors
    centers: FloatArray  # (k, d)
    spreads: FloatArray  # (k, d) what a value's distance to the center is divided by
    reach: float  # how many of these a value may lie off

    def __call__(self, columns: Sequence[StoredArray]) -> LabeledColumns | None:
        """Label rows; None where a value is missing or too large, as such rows are not judged here.

        Parameters
        ----------
        columns : sequence of array (n,)
            Columns of numbers in the units of the table.
        """
        n = len(columns[0])
        nearest = TwoNearest(np.empty(n, dtype=np.int64), np.empty(n), np.empty(n, dtype=np.int64), np.empty(n))
        given = self.scaling, LARGEST_VALUE, *self.factors, self.centers, self.spreads, self.reach
        found = _labeling.label(columns, *given, *nearest)
        if found is None or not np.isfinite(nearest.squared).all():
            return None
        return LabeledColumns(nearest, far_values(found, nearest.labels))


def far_values(found: Sequence[bytes], labels: IntArray) -> FarValues:
    """Values far off as C has listed them, in rows with these labels."""
    rows, columns = (np.frombuffer(each, dtype=np.int64) for each in found[:2])
    return FarValues(rows=rows, columns=columns, beyond=np.nan_to_num(np.frombuffer(found[2])), labels=labels[rows])
