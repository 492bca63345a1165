"""Sites of drawn tables whose states are known: plants with rare faults, and clusters far from each other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Dealt = tuple[Sequence[Any], Any]  # tables of the sites, and the classes of all rows


def plant(seed: int, percent: int, n_rows: int, n_irrelevant: int) -> Dealt:
    """Faults four to seven standard deviations off in one to three of eight sensors, which are then mixed."""
    rng = np.random.default_rng([seed, 17])
    faults = drawn_faults(rng, 5, 8, 4, 7)
    mixing = np.eye(8) + 0.2 * rng.standard_normal((8, 8))
    tables, states = [], []
    for shares in drawn_shares(rng, 5, percent):
        state = rng.choice(6, n_rows, p=shares)
        X = (rng.standard_normal((n_rows, 8)) + faults[state]) @ mixing
        tables.append(np.c_[X, rng.standard_normal((n_rows, n_irrelevant))])
        states.append(state)
    return tables, np.concatenate(states)


def drawn_faults(rng: np.random.Generator, n_faults: int, n_sensors: int, low: float, high: float) -> Any:
    """What the usual state, which is first, and each fault are off by, in one to three sensors."""
    faults = np.zeros((n_faults + 1, n_sensors))
    for fault in range(1, n_faults + 1):
        sensors = rng.choice(n_sensors, rng.integers(1, 4), replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], len(sensors)) * rng.uniform(low, high, len(sensors))
    return faults


def drawn_shares(rng: np.random.Generator, n_faults: int, percent: int) -> list[list[float]]:
    """How frequent each state is at each of five sites: two or three of them have a fault."""
    held = [rng.choice(5, rng.integers(2, 4), replace=False) for _ in range(n_faults)]
    faults = [np.array([percent / 100 if site in owners else 0.0 for owners in held]) for site in range(5)]
    return [[1 - shares.sum(), *shares] for shares in faults]


IRRELEVANT: dict[str, Callable[[np.random.Generator, tuple[int, int]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}


def other_plant(
    seed: int,
    percent: int,
    n_rows: int,
    *,
    n_faults: int = 5,
    n_sensors: int = 8,
    tail: int | None = None,
    n_common: int = 0,
    is_skewed: bool = False,
    irrelevant: tuple[str, int] = ("normal", 0),
) -> Dealt:
    """Faults five to eight standard deviations off in one to three sensors, whose noise is of another kind.

    It is that of a t distribution with `tail` degrees of freedom, if given; `n_common` causes move all sensors; half of
    the sensors are skewed (exponentials). Columns that tell nothing are of a kind and a number.
    """
    rng = np.random.default_rng([seed, 72])
    faults = drawn_faults(rng, n_faults, n_sensors, 5, 8)
    causes = 0.7 * rng.standard_normal((n_common, n_sensors)) if n_common else None
    kind, n_irrelevant = irrelevant
    tables, states = [], []
    for shares in drawn_shares(rng, n_faults, percent):
        state = rng.choice(n_faults + 1, n_rows, p=shares)
        shape = (n_rows, n_sensors)
        X = (rng.standard_normal(shape) if tail is None else rng.standard_t(tail, shape)) + faults[state]
        if causes is not None:
            X = X + rng.standard_normal((n_rows, n_common)) @ causes
        if is_skewed:
            X[:, : n_sensors // 2] = np.exp(0.35 * X[:, : n_sensors // 2])
        tables.append(np.c_[X, IRRELEVANT[kind](rng, (n_rows, n_irrelevant))])
        states.append(state)
    return tables, np.concatenate(states)


def far_cluster(seed: int, gap: float) -> Dealt:
    rng = np.random.default_rng([seed, 18])
    turns = 2 * np.pi * np.arange(5) / 5
    centers = np.zeros((6, 4))
    centers[:5, :2] = gap / (2 * np.sin(np.pi / 5)) * np.c_[np.cos(turns), np.sin(turns)]
    centers[5, 2] = 25
    classes = [rng.choice(6, 1000, p=[0.19] * 5 + [0.05]) for _ in range(5)]
    return [centers[y] + rng.standard_normal((1000, 4)) for y in classes], np.concatenate(classes)


USUAL_STATES: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "uniform": lambda rng, n, d: rng.uniform(-2, 2, (n, d)),
    "uniform along two": lambda rng, n, d: np.c_[rng.uniform(-2.5, 2.5, (n, 2)), 0.5 * rng.standard_normal((n, d - 2))],
    "moved by a load": lambda rng, n, d: (
        rng.uniform(-3, 3, (n, 1)) * np.linspace(1, -0.5, d) + 0.5 * rng.standard_normal((n, d))
    ),
    "bent": lambda rng, n, d: bent(rng.standard_normal((n, d))),
    "ring": lambda rng, n, d: on_a_ring(rng, n, d),
}


def bent(X: Any) -> Any:
    X[:, 1] += 0.8 * (X[:, 0] ** 2 - 1)
    return X


def on_a_ring(rng: np.random.Generator, n: int, d: int) -> Any:
    turns = rng.uniform(0, 2 * np.pi, n)
    return np.c_[2.5 * np.cos(turns), 2.5 * np.sin(turns), np.zeros((n, d - 2))] + 0.4 * rng.standard_normal((n, d))


def flat_plant(seed: int, state: str, n_sensors: int, n_faults: int, share: float) -> Dealt:
    """Five sites of 2,000 rows; faults, at every site, are off by 5 to 8 in two sensors, with half of the noise."""
    rng = np.random.default_rng([seed, 74])
    faults = np.zeros((n_faults + 1, n_sensors))
    for fault in range(1, n_faults + 1):
        sensors = rng.choice(n_sensors, 2, replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], 2) * rng.uniform(5, 8, 2)
    tables, states = [], []
    for _ in range(5):
        own = rng.choice(n_faults + 1, 2000, p=[1 - n_faults * share, *[share] * n_faults])
        X = 0.5 * rng.standard_normal((2000, n_sensors))
        X[own == 0] = USUAL_STATES[state](rng, int((own == 0).sum()), n_sensors)
        tables.append(X + faults[own])
        states.append(own)
    return tables, np.concatenate(states)
