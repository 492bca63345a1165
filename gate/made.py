"""Tables that are made: plants, clouds and mixtures, each drawn from a seed. Tables of the sites, and classes."""

from collections.abc import Callable
from typing import Any

import numpy as np

Dealt = tuple[list[Any], list[Any]]  # tables and classes of the sites


def plant(
    seed: int,
    percent: int,
    n_rows: int = 2000,
    *,
    n_irrelevant: int = 0,
    is_skewed: bool = False,
    outliers: float = 0.0,
    offset: float = 0.0,
) -> Dealt:
    """A usual state and five faults, each at two or three of five sites, in one to three of eight sensors.

    Faults are five to eight standard deviations off; sensors are mixed. Half of them may be skewed, a share of the rows
    be outliers, columns be irrelevant, and the instruments of a site have offsets.
    """
    rng = np.random.default_rng([seed, 81])
    n_sensors, n_faults, n_sites = 8, 5, 5
    faults = np.zeros((n_faults + 1, n_sensors))
    for fault in range(1, n_faults + 1):
        sensors = rng.choice(n_sensors, rng.integers(1, 4), replace=False)
        faults[fault, sensors] = rng.choice([-1, 1], len(sensors)) * rng.uniform(5, 8, len(sensors))
    mixing = np.eye(n_sensors) + 0.2 * rng.standard_normal((n_sensors, n_sensors))
    held = [rng.choice(n_sites, rng.integers(2, 4), replace=False) for _ in range(n_faults)]
    tables, classes = [], []
    for site in range(n_sites):
        shares = np.array([percent / 100 if site in owners else 0.0 for owners in held])
        state = rng.choice(n_faults + 1, n_rows, p=[1 - shares.sum(), *shares])
        X = (rng.standard_normal((n_rows, n_sensors)) + faults[state]) @ mixing
        X += offset * rng.standard_normal(n_sensors)
        if is_skewed:
            X[:, : n_sensors // 2] = np.exp(0.35 * X[:, : n_sensors // 2])
        is_outlier = rng.random(n_rows) < outliers
        X[is_outlier] *= rng.uniform(20, 200, (int(is_outlier.sum()), 1))
        tables.append(np.c_[X, rng.standard_normal((n_rows, n_irrelevant))])
        classes.append(state)
    return tables, classes


PLANTS: dict[str, Callable[[int], Dealt]] = {
    "plants 10 %": lambda seed: plant(seed, 10),
    "plants 3 %": lambda seed: plant(seed, 3),
    "plants 1 %": lambda seed: plant(seed, 1, 8000),
    "plants skewed": lambda seed: plant(seed, 3, is_skewed=True),
    "plants with outliers": lambda seed: plant(seed, 3, outliers=0.002),
    "plants with irrelevant columns": lambda seed: plant(seed, 3, n_irrelevant=5),
    "plants with offsets": lambda seed: plant(seed, 10, offset=1.0),
}

CLOUDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "Gaussian of 2": lambda rng, n: rng.standard_normal((n, 2)),
    "stretched Gaussian of 8": lambda rng, n: rng.standard_normal((n, 8)) * np.linspace(1, 6, 8),
    "correlated Gaussian of 6": lambda rng, n: rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6)),
    "t3 of 2": lambda rng, n: rng.standard_normal((n, 2)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3),
    "t3 by column, 4": lambda rng, n: rng.standard_t(3, (n, 4)),
    "log-normal of 3": lambda rng, n: np.exp(0.7 * rng.standard_normal((n, 3))),
    "exponential of 5": lambda rng, n: rng.exponential(size=(n, 5)),
    "uniform square": lambda rng, n: rng.random((n, 2)),
    "uniform cube": lambda rng, n: rng.random((n, 3)),
    "uniform cube of 8": lambda rng, n: rng.random((n, 8)),
    "ring": lambda rng, n: ring(rng, n),
    "banana": lambda rng, n: banana(rng, n),
}


def ring(rng: np.random.Generator, n: int) -> Any:
    turns = rng.uniform(0, 2 * np.pi, n)
    return np.c_[np.cos(turns), np.sin(turns)] * (1 + 0.08 * rng.standard_normal((n, 1)))


def banana(rng: np.random.Generator, n: int) -> Any:
    along = rng.uniform(-1, 1, n)
    return np.c_[3 * along, 2 * along**2] + 0.3 * rng.standard_normal((n, 2))


def cloud(name: str, seed: int) -> Dealt:
    """One cloud at five sites of 600 rows: there is one cluster."""
    X = CLOUDS[name](np.random.default_rng([seed, 82]), 3000)
    return np.split(X, 5), [np.zeros(600, dtype=int)] * 5


def mixture(seed: int) -> Dealt:
    """Two to twelve Gaussians in two to ten columns, at 3 to 20 sites of 300 to 3,000 rows that hold 70 % of them."""
    rng = np.random.default_rng([seed, 83])
    k, d = int(rng.integers(2, 13)), int(rng.integers(2, 11))
    n_sites, n_rows = int(rng.choice([3, 5, 10, 20])), int(rng.choice([300, 1000, 3000]))
    means = rng.standard_normal((k, d)) * rng.uniform(3, 8) / np.sqrt(d)
    roots = np.array([np.linalg.qr(rng.standard_normal((d, d)))[0] * rng.uniform(0.5, 1.5, d) for _ in range(k)])
    weights = rng.dirichlet(np.full(k, 3.0))
    tables, classes = [], []
    for _ in range(n_sites):
        held = rng.random(k) < 0.7
        held[rng.integers(k)] = True
        shares = weights * held * rng.dirichlet(np.full(k, 5.0))
        own = rng.choice(k, n_rows, p=shares / shares.sum())
        tables.append(means[own] + np.einsum("nij,nj->ni", roots[own], rng.standard_normal((n_rows, d))))
        classes.append(own)
    return tables, classes
