"""Randomness enters once, at the public edge, and is a `Generator` from there on."""

from typing import Any

import numpy as np

RandomState = int | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Generator for `random_state`: None, an int, a Generator, or a legacy RandomState, which gives its next draw."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31)))
    return np.random.default_rng(random_state)


def draw_seed(rng: np.random.Generator) -> int:
    """Seed for scikit-learn, which takes no `Generator`."""
    return int(rng.integers(2**31))


def seeded(estimator: Any, seed: int) -> Any:
    """`estimator` with `seed` for every random state that it, or a step of it, takes and was not given."""
    given = estimator.get_params().items()
    missing = {name: seed for name, value in given if value is None and name.rpartition("__")[2] == "random_state"}
    if missing:
        estimator.set_params(**missing)
    return estimator
