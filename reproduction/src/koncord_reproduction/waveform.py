"""The waveform generator of Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, 2.6.2."""

import numpy as np

from koncord._validation import check_count
from koncord.types import FloatArray, IntArray

N_COLUMNS = 21
PEAK = 11
HEIGHT = 6.0
SHIFT = 4
# The waves each class mixes: class 1 of the book is 0 here.
PAIRS = np.array([(0, 1), (0, 2), (1, 2)])


def waveform(n: int = 5000, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Rows of three classes, each a random convex combination of two of three triangular waves plus unit noise.

    Parameters
    ----------
    n : int, default 5000
        Number of rows.
    seed : int, default 0
        Of the draw.

    Returns
    -------
    X : array (n, 21)
    y : array (n,), the class of every row: 0 mixes waves 1 and 2, 1 mixes 1 and 3, 2 mixes 2 and 3; equally likely

    Examples
    --------
    >>> X, y = waveform(6, seed=1)
    >>> X.shape, sorted(set(y.tolist()))
    ((6, 21), [0, 1, 2])
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=check_count("n", n, owner="waveform"))
    share = rng.random((len(y), 1))
    first, second = triangles()[PAIRS[y].T]
    return share * first + (1 - share) * second + rng.normal(size=(len(y), N_COLUMNS)), y


def triangles() -> FloatArray:
    """The three waves, (3, 21): the first peaks at attribute 11, the second 4 later, the third 4 earlier."""
    at = np.arange(1, N_COLUMNS + 1)
    peaks = np.array([[PEAK], [PEAK + SHIFT], [PEAK - SHIFT]])
    waves: FloatArray = np.maximum(HEIGHT - np.abs(at - peaks), 0)
    return waves
