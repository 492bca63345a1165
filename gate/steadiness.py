"""How much koncord's answer moves when it should not: other sites, a tenth of the rows left out, other random draws."""

import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from gate.cases import FIRST_SEED, Case, fresh_sets, rows_of
from gate.lines import HIGHER, Line
from koncord import FederatedClustering

DEALT, LEFT_OUT, DRAWS = "dealt to other sites", "a tenth of the rows left out", "other draws"
ALIKE = 0.9  # ARI between the labels from which on another K is the same answer


def labels_of(name: str, seed: int, random_state: int, kept: Any) -> tuple[Any, int]:
    """Label of every row of a set, -1 of those that were left out, and K."""
    X, y, site = rows_of("fresh", name)
    parts = [own[kept[own]] for own in Case(group="fresh", name=name, deal=("A", seed)).parts(y, site)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = FederatedClustering(random_state=random_state, standardize=True, n_jobs=1)
        fitted = method.fit([X[own] for own in parts])
    labels = np.full(len(X), -1)
    labels[np.concatenate(parts)] = np.concatenate(fitted.labels_)
    return labels, fitted.n_clusters_


def moved(job: tuple[str, int]) -> list[tuple[str, str, int, int, float]]:
    """Of one set and one repeat: what was changed, K before and after, ARI between the labels of rows in both."""
    name, repeat = job
    n_rows = len(rows_of("fresh", name)[1])
    every, some = np.ones(n_rows, dtype=bool), np.random.default_rng([FIRST_SEED, repeat]).random(n_rows) >= 0.1
    first, k = labels_of(name, FIRST_SEED, 0, every)
    others = {
        DEALT: labels_of(name, FIRST_SEED + 1 + repeat, 0, every),
        LEFT_OUT: labels_of(name, FIRST_SEED, 0, some),
        DRAWS: labels_of(name, FIRST_SEED, 1 + repeat, every),
    }
    found = []
    for what, (labels, other_k) in others.items():
        both = (first >= 0) & (labels >= 0)
        found.append((name, what, k, other_k, float(adjusted_rand_score(first[both], labels[both]))))
    return found


def steadiness(is_full: bool, pool: ProcessPoolExecutor, rows: list[Any], say: Callable[[str], None]) -> list[Line]:
    sets = fresh_sets()
    asked = [(name, repeat) for repeat in range(2) for name in sets] if is_full else [(name, 0) for name in sets[:15]]
    by_change: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for found in pool.map(moved, asked):
        for name, what, k, other_k, ari in found:
            say(f"{name}, {what}: K {k} and {other_k}, ARI between them {ari:.3f}")
            rows.append(["steadiness", name, what, k, other_k, round(ari, 4)])
            by_change[what].append((k == other_k, ari))
    lines = []
    for what, own in by_change.items():
        same, ari = np.mean(own, axis=0)
        alike = np.mean([is_same or each >= ALIKE for is_same, each in own])
        for name, value in (("K the same", same), ("ARI between", ari), ("K the same or ARI .9", alike)):
            lines.append(Line(name=f"{what}: {name}", value=float(value), tolerance=0.05, better=HIGHER))
    return lines
