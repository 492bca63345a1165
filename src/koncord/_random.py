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
    """`estimator` with `seed` as its random state if it takes one and was given none."""
    if estimator.get_params(deep=False).get("random_state", seed) is None:
        estimator.set_params(random_state=seed)
    return estimator
