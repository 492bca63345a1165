"""Accuracy by group: the adjusted Rand index of all rows and |log(K / classes)|, of koncord and of what it is beside.

The paper's method runs as the paper has it: ASM at each site, FedGEM on rows, no floor, columns standardized over all
rows (an embedding as it is). Pooled methods see all rows in one place: k-means is given K; the mixture, fitted to at
most 4,000 rows, chooses it by BIC; HDBSCAN finds clusters of 20 rows or more, and rows of none go to that of the
nearest row which has one.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from gate.cases import Case, cases
from gate.lines import HIGHER, LOWER, NEITHER, Line
from koncord import ASM, FederatedClustering, FedGEM

MOST_ROWS = 4000  # that pooled methods, other than k-means, are fitted to
KS = (*range(1, 11), 12, 15, 20, 26, 35, 50)
DEFAULT, PAPERS = "koncord", "paper"

Found = tuple[list[Any], int]  # labels of all rows, by site, and K


def default(tables: Sequence[Any], classes: Sequence[Any], is_embedding: bool) -> Found:
    fitted = FederatedClustering(random_state=0, standardize=not is_embedding, n_jobs=1).fit(list(tables))
    return fitted.labels_, fitted.n_clusters_


def papers(tables: Sequence[Any], classes: Sequence[Any], is_embedding: bool) -> Found:
    X = tables if is_embedding else standardized(tables)
    method = FederatedClustering(ASM(), FedGEM(), random_state=0, standardize=False, min_report=1, n_jobs=1)
    fitted = method.fit(list(X))
    return fitted.labels_, fitted.n_clusters_


def pooled_mixture(tables: Sequence[Any], classes: Sequence[Any], is_embedding: bool) -> Found:
    X = np.concatenate(tables if is_embedding else standardized(tables))
    some = sample_of(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [GaussianMixture(k, reg_covar=1e-4, random_state=0).fit(some) for k in KS if k * X.shape[1] <= len(some)]
    best = min(fits, key=lambda fit: fit.bic(some))
    return [best.predict(X)], best.n_components


def pooled_kmeans(tables: Sequence[Any], classes: Sequence[Any], is_embedding: bool) -> Found:
    X = np.concatenate(tables if is_embedding else standardized(tables))
    k = len(np.unique(np.concatenate(classes)))
    return [KMeans(k, n_init=5, random_state=0).fit_predict(X)], k


def pooled_hdbscan(tables: Sequence[Any], classes: Sequence[Any], is_embedding: bool) -> Found:
    X = np.concatenate(tables if is_embedding else standardized(tables))
    some = sample_of(X)
    labels = HDBSCAN(min_cluster_size=20, copy=True).fit(some).labels_
    if labels.max() < 0:
        return [np.zeros(len(X), dtype=int)], 1
    inside = labels >= 0
    return [labels[inside][cKDTree(some[inside]).query(X)[1]]], int(labels.max()) + 1


def standardized(tables: Sequence[Any]) -> list[Any]:
    X = np.concatenate(tables)
    scale = X.std(axis=0)
    return [(table - X.mean(axis=0)) / np.where(scale > 0, scale, 1) for table in tables]


def sample_of(X: Any) -> Any:
    return X[np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]]


METHODS: dict[str, Callable[..., Found]] = {DEFAULT: default, PAPERS: papers}
POOLED: dict[str, Callable[..., Found]] = {
    "pooled GMM + BIC": pooled_mixture,
    "pooled k-means, K given": pooled_kmeans,
    "pooled HDBSCAN": pooled_hdbscan,
}


def scored(job: tuple[Case, str]) -> tuple[Case, str, float, int, int]:
    """ARI, K and number of classes of one method on one case."""
    case, method = job
    tables, classes = case.dealt()
    y = np.concatenate(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels, k = (METHODS | POOLED)[method](tables, classes, case.is_embedding)
    return case, method, float(adjusted_rand_score(y, np.concatenate(labels))), int(k), len(np.unique(y))


def jobs(is_full: bool, say: Callable[[str], None]) -> list[tuple[Case, str]]:
    """Every case by koncord and the paper's method; in the full part, pooled methods once for all dealings of a set."""
    found, seen = [], set()
    for case in cases(is_full, say):
        found.append((case, DEFAULT))
        if case.group != "clouds":
            found.append((case, PAPERS))
        key = (case.group, case.name, case.n_sites if case.deal[0] != "own sites" else case.deal)
        if is_full and key not in seen and case.group != "MNIST at 100 sites":
            seen.add(key)
            found.extend((case, method) for method in POOLED)
    return found


def accuracy(is_full: bool, pool: ProcessPoolExecutor, rows: list[Any], say: Callable[[str], None]) -> list[Line]:
    scores: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for case, method, ari, k, n_classes in pool.map(scored, jobs(is_full, say)):
        say(f"{case.group}, {case.name}, {case.deal[0]} {case.deal[1]}, {method}: ARI {ari:.3f}, K {k} of {n_classes}")
        rows.append([case.group, case.name, *case.deal, method, round(ari, 4), k, n_classes])
        scores[case.group, method].append((ari, abs(float(np.log(k / n_classes)))))
    tolerance = 0.02 if is_full else 0.03
    lines = []
    for (group, method), own in scores.items():
        ari, off = np.mean(own, axis=0)
        better, lower = (HIGHER, LOWER) if method == DEFAULT else (NEITHER, NEITHER)
        name = f"{group}: {method}"
        if group == "clouds":
            share = float(np.mean([each[1] == 0 for each in own]))
            lines.append(Line(name=f"{name}, K = 1", value=share, tolerance=0.05, better=better))
            continue
        lines.append(Line(name=f"{name}, ARI", value=float(ari), tolerance=tolerance, better=better))
        lines.append(Line(name=f"{name}, |log K|", value=float(off), tolerance=0.1, better=lower))
    return lines
