"""Values moved into a fence and put on a common scale."""

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.kernels.built import compiled_module
from koncord.types import FloatArray

_labeling = compiled_module("_labeling")


def on_scale(
    values: FloatArray,
    means: FloatArray,
    scales: FloatArray,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> FloatArray:
    """Values (n, d) moved into a fence, less the means, divided by the scales: in C where it was built, to the bit.

    What is missing stays NaN; nothing is farther from 0 than `LARGEST_VALUE`.

    Parameters
    ----------
    values : array (n, d)
    means, scales : array (d,)
    low, high : array or None, default None
        The fence; None is none.
    """
    if _labeling is not None:
        scaled = np.empty(values.shape)
        fence = (
            np.full(len(means), end) if given is None else given for given, end in ((low, -np.inf), (high, np.inf))
        )
        arrays = (np.ascontiguousarray(each, dtype=float) for each in (values, *fence, means, scales))
        _labeling.scale(*arrays, LARGEST_VALUE, scaled)
        return scaled
    fenced = values if low is None or high is None else np.clip(values, low, high)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (fenced - means) / scales
    return np.clip(scaled, -LARGEST_VALUE, LARGEST_VALUE)
