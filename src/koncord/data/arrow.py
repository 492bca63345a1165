"""Arrow columns as NumPy arrays, without pandas: Arrow's own conversion loads it wherever it is installed."""

from typing import Any

import numpy as np

from koncord.types import FloatArray


def values_of(column: Any) -> FloatArray:
    """The values of an Arrow column of floats, or a chunk of one, as float64; NaN where one is missing.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Of any floating type.
    """
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    found = np.empty(len(column))
    start = 0
    for chunk in chunks:
        if chunk.null_count:
            chunk = chunk.fill_null(np.nan)
        if len(chunk):
            found[start : start + len(chunk)] = np.from_dlpack(chunk)
        start += len(chunk)
    return found
