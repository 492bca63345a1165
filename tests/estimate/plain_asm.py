"""ASM written as the paper's Algorithm 1 reads, row by row and pair by pair: the slow twin of koncord.estimate."""

import itertools
from typing import NamedTuple

import numpy as np


class Component(NamedTuple):
    rows: np.ndarray
    mean: np.ndarray
    variance: float


def plain_asm(X, *, split_factor, min_mass, merge_factor, is_spherical=True, n_em_iter=15, max_components=200):
    """Rows, mean and variance of each component, and the number of components before merging."""
    components = [Component(np.arange(len(X)), X.mean(axis=0), X.var(axis=0).mean())]
    while True:
        room = max_components - len(components)
        after = []
        for each in components:
            split = plain_split(X[each.rows], split_factor, min_mass, is_spherical, n_em_iter) if room else None
            if split is None:
                after.append(each)
            else:
                is_first, means, variances = split
                after.append(Component(each.rows[is_first], means[0], variances[0]))
                after.append(Component(each.rows[~is_first], means[1], variances[1]))
                room -= 1
        if len(after) == len(components):
            break
        components = after
    return plain_merge(X, components, merge_factor), len(components)


def plain_split(X, split_factor, min_mass, is_spherical, n_em_iter):
    """Mask of the rows of the first child, and both means and variances, or None where the split is refused."""
    n, d = X.shape
    mean = X.mean(axis=0)
    covariance = (X - mean).T @ (X - mean) / n
    if n < 2 or np.trace(covariance) / d <= (16 * np.finfo(float).eps * np.abs(X).max()) ** 2:
        return None
    values, vectors = np.linalg.eigh(covariance)
    axis = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    parent = np.trace(covariance) / d if is_spherical else 1.0
    means = [mean + split_factor * np.sqrt(values[-1]) * axis, mean - split_factor * np.sqrt(values[-1]) * axis]
    variances, weights = [parent, parent], [0.5, 0.5]
    for _ in range(n_em_iter):
        joint = np.stack([np.log(weights[m]) + log_normal(X, means[m], variances[m]) for m in (0, 1)], axis=1)
        share = np.exp(joint - joint.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        masses = np.maximum(share.sum(axis=0), 1e-9)
        weights = masses / n
        means = [share[:, m] @ X / masses[m] for m in (0, 1)]
        if is_spherical:
            variances = [
                max(share[:, m] @ ((X - means[m]) ** 2).sum(axis=1) / (masses[m] * d), 1e-6 * parent) for m in (0, 1)
            ]
    two = sum(share[:, m] @ log_normal(X, means[m], variances[m]) for m in (0, 1))
    one = log_normal(X, mean, parent).sum()
    penalty = (d + 2 if is_spherical else d + 1) / 2 * np.log(n)
    is_first = share[:, 0] >= share[:, 1]
    if two - one - penalty <= 0 or masses.min() < min_mass or is_first.all() or not is_first.any():
        return None
    return is_first, means, variances


def log_normal(X, mean, variance):
    return -0.5 * (X.shape[1] * np.log(2 * np.pi * variance) + ((X - mean) ** 2).sum(axis=1) / variance)


def plain_merge(X, components, merge_factor):
    """The first pair that overlaps becomes one: size-weighted mean, variance of the pooled rows; then again."""

    def overlap(a, b):
        return np.linalg.norm(a.mean - b.mean) <= merge_factor * (np.sqrt(a.variance) + np.sqrt(b.variance))

    components = list(components)
    while merge_factor > 0:
        for i, j in itertools.combinations(range(len(components)), 2):
            a, b = components[i], components[j]
            if overlap(a, b):
                rows = np.concatenate([a.rows, b.rows])
                mean = (len(a.rows) * a.mean + len(b.rows) * b.mean) / len(rows)
                components[i] = Component(rows, mean, X[rows].var(axis=0).mean())
                del components[j]
                break
        else:
            break
    return components
