"""What a site with a privacy budget says without a release: names, and that it tells nothing."""

import numpy as np

from koncord.privacy.budget import Budget
from koncord.protocol import setup


def names_alone(columns: tuple[str, ...], budget: Budget) -> setup.Sketch:
    """The names of the columns, and that there is a budget: nothing of the rows."""
    nothing = np.zeros(len(columns), dtype=np.int64)
    return setup.Sketch(
        columns=columns,
        count=0,
        available=nothing,
        ends=nothing,
        blocks=np.empty((0, len(columns))),
        epsilon=float(budget.epsilon),
    )


def nothing_held(k: int) -> setup.Holdings:
    """That the site does not say how many rows it has in each of k clusters."""
    nothing = np.zeros(k, dtype=np.int64)
    return setup.Holdings(counts=nothing, silhouettes=np.full(k, np.nan), scored=nothing)
