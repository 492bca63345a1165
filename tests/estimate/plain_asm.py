"""ASM written as the paper's Algorithm 1 reads, row by row and pair by pair: the slow twin of koncord.estimate."""

import itertools

import numpy as np


def plain_asm(X, *, split_factor, min_mass, merge_factor, is_spherical=True, n_em_iter=15, max_components=200):
    """Index lists of the rows of each component, and the number of components before merging."""
    components = [np.arange(len(X))]
    while True:
        room = max_components - len(components)
        after = []
        for rows in components:
            halves = plain_split(X[rows], split_factor, min_mass, is_spherical, n_em_iter) if room else None
            if halves is None:
                after.append(rows)
            else:
                after += [rows[halves], rows[~halves]]
                room -= 1
        if len(after) == len(components):
            break
        components = after
    return plain_merge(X, components, merge_factor), len(components)


def plain_split(X, split_factor, min_mass, is_spherical, n_em_iter):
    """Mask of the rows of the first child, or None where the split is refused."""
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
    return is_first


def log_normal(X, mean, variance):
    return -0.5 * (X.shape[1] * np.log(2 * np.pi * variance) + ((X - mean) ** 2).sum(axis=1) / variance)


def plain_merge(X, components, merge_factor):
    def overlap(a, b):
        sigma_a, sigma_b = (np.sqrt(((X[c] - X[c].mean(axis=0)) ** 2).mean()) for c in (a, b))
        return np.linalg.norm(X[a].mean(axis=0) - X[b].mean(axis=0)) <= merge_factor * (sigma_a + sigma_b)

    components = list(components)
    while merge_factor > 0:
        for i, j in itertools.combinations(range(len(components)), 2):
            if overlap(components[i], components[j]):
                components[i] = np.concatenate([components[i], components[j]])
                del components[j]
                break
        else:
            break
    return components
