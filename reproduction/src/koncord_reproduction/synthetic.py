"""The synthetic experiments of the paper's appendix on the split analysis: one Gaussian cluster at a time.

Every accepted split is spurious. Every random stream is seeded by the name of what it draws, so neither the order nor
the number of processes changes a number.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from koncord._threads import one_thread
from koncord.aggregate.fedgem.balls import meeting_share
from koncord.kernels.centered import Node
from koncord.kernels.splitting import SplitForest
from koncord.types import FloatArray, IntArray
from koncord_reproduction import theory

DIMENSIONS = (8, 16, 64)
N_ANISOTROPIES = 12
SIZES = np.geomspace(6, 5000, 18).round().astype(int)
SPLIT_FACTORS = (0.5, 1.0, 2.0)
MIN_MASS = 5
N_EM_ITER = 15
# Clusters for each dimension, anisotropy and size; and for each dimension and size of the components before merging.
DRAWS, COUNT_DRAWS = 50, 20
SEED = 0
# Pairs of balls whose meeting point is looked at, and the rounding that is allowed, as a share of their distance.
N_PAIRS, ROUNDING = 20_000, 1e-9


def anisotropies(d: int) -> FloatArray:
    return np.geomspace(1, d / 2, N_ANISOTROPIES)


def stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def split_shares(seed: int, name: str, n_draws: int, d: int, r: float, sizes: IntArray) -> list[dict[str, Any]]:
    """For each size: shares of draws that are split, by the test of ASM and by the hard cut, and that are foreseen."""
    rows = []
    with one_thread():
        for n in map(int, sizes):
            rng = stream(seed, f"{name} d={d} r={r:.4f} n={n}")
            outcomes = [outcome(theory.draw_cluster(n, d, r, rng), r) for _ in range(n_draws)]
            shares = {what: round(float(np.mean([o[what] for o in outcomes])), 4) for what in outcomes[0]}
            rows.append({"draws": n_draws, "d": d, "r": round(r, 4), "n": n, **shares})
    return rows


def outcome(X: FloatArray, r: float) -> dict[str, float]:
    n, d = X.shape
    sample_r = theory.anisotropy(X)
    hard = theory.hard_split_improves(X)
    soft = {factor: len(split_forest(X, factor).cut(MIN_MASS, 2)[0]) == 2 for factor in SPLIT_FACTORS}
    return {
        "sample_r": sample_r,
        **{f"asm_{factor:g}": is_split for factor, is_split in soft.items()},
        "factors_agree": len(set(soft.values())) == 1,
        "hard": hard,
        "sample_r_foresees_hard": theory.predicts_split(n, d, sample_r) == hard,
        "population_r_foresees_hard": theory.predicts_split(n, d, r) == hard,
    }


def component_counts(seed: int, n_draws: int, d: int, n: int) -> list[int]:
    """Components before merging of each of `n_draws` round clusters."""
    rng = stream(seed, f"components d={d} n={n}")
    with one_thread():
        forests = (split_forest(theory.draw_cluster(n, d, 1.0, rng), 1.0) for _ in range(n_draws))
        return [len(forest.cut(MIN_MASS, n)[0]) for forest in forests]


def anisotropy_by_level(seed: int, d: int, n: int) -> list[dict[str, Any]]:
    """Median sample anisotropy of the components of one round cluster, by the number of splits that led to them."""
    X = theory.draw_cluster(n, d, 1.0, stream(seed, f"levels d={d} n={n}"))
    forest = split_forest(X, 1.0)
    forest.cut(MIN_MASS, n)
    rows = []
    for level, nodes in enumerate(levels_below(forest.roots[0])):
        sample_r = [theory.anisotropy(X[node.rows]) for node in nodes]
        rows.append({"level": level, "components": len(nodes), "median_sample_r": round(float(np.median(sample_r)), 3)})
    return rows


def meeting_points(seed: int, n_pairs: int) -> dict[str, float]:
    """Share of overlapping pairs of balls whose meeting point lies in both, as corrected and as published.

    How the paper draws its pairs is not stated. Here the dimension is one of 2 to 64, centers are standard normal, and
    radii are uniform up to one and a half times their distance; pairs that do not overlap are drawn again.
    """
    rng = stream(seed, "meeting points")
    in_both = {"corrected": 0, "published": 0}
    for _ in range(n_pairs):
        one, other = rng.normal(size=(2, int(rng.integers(2, 65))))
        distance = float(np.linalg.norm(other - one))
        radii = np.zeros(2)
        while radii.sum() < distance:
            radii = rng.uniform(0, 1.5 * distance, 2)
        share = float(meeting_share(np.array(distance), radii[:1], radii[1:])[0])
        for name, toward in (("corrected", other - one), ("published", one - other)):
            point = one + share * toward
            reach = np.linalg.norm([point - one, point - other], axis=1)
            in_both[name] += bool((reach <= radii + ROUNDING * distance).all())
    return {name: count / n_pairs for name, count in in_both.items()}


def levels_below(root: Node) -> Iterator[list[Node]]:
    nodes = [root]
    while nodes:
        yield nodes
        nodes = [child for node in nodes if node.children and node.child_mass >= MIN_MASS for child in node.children]


def split_forest(X: FloatArray, split_factor: float) -> SplitForest:
    return SplitForest(X, split_factors=[split_factor], is_spherical=True, n_em_iter=N_EM_ITER)
