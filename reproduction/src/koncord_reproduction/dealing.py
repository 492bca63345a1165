"""The clients of the paper: the regimes of `koncord_reproduction.partition`, by the random numbers that the paper drew.

The paper gives rules and seeds, not what draws. NumPy's `RandomState` with the seed of the run, asked in the order of
the paper's sentences, and for the sizes of regime B one with 10,000 more, gives the printed table of points per cluster
to the last digit on every set whose classes are the paper's. It was found by trying, with that table in view; no number
of a clustering was looked at.
"""

import numpy as np

from koncord.types import BoolArray, IntArray
from koncord_reproduction.partitions import coupled, covered, decoupled

# Between the seed of a run and that of the sizes of its regime B.
DECOUPLED_SEED = 10_000


def dealt_rows(y: IntArray, n_clients: int, regime: str, seed: int) -> list[IntArray]:
    """Rows of each client, sorted; `y` holds the class of every row."""
    rng = np.random.RandomState(seed)
    rows_of = [np.flatnonzero(y == label) for label in np.unique(y)]
    holds, parts = coupled(rows_of, rng, lambda: class_sets(n_clients, len(rows_of), rng))
    if regime == "B":
        parts = decoupled(rows_of, holds, parts, np.random.RandomState(seed + DECOUPLED_SEED))
    return parts


def class_sets(n_clients: int, n_classes: int, rng: np.random.RandomState) -> BoolArray:
    """Which client holds which class, (n_clients, n_classes): a client's number of classes, then its classes."""
    middle, width = round(0.55 * n_classes), max(1, round(0.25 * n_classes))
    least, most = max(2, middle - width), min(n_classes - 1, middle + width)
    holds = np.zeros((n_clients, n_classes), dtype=bool)
    for client in range(n_clients):
        holds[client, rng.choice(n_classes, rng.randint(least, most + 1), replace=False)] = True
    return covered(holds, rng)
