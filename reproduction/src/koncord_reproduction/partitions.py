"""Who holds which rows: the two client partitions of the paper (appendix "Regime A and B").

Labels say which class a row is of; they are used to deal the rows out and for nothing else.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from koncord._validation import check_count, check_option
from koncord.types import BoolArray, IntArray

SMALLEST_CLIENT = 100
MOST_DRAWS = 200
SMALLEST_DECOUPLED_CLIENT = 60

Draws = np.random.Generator | np.random.RandomState


def partition(y: ArrayLike, n_clients: int, regime: str = "A", seed: int = 0) -> list[IntArray]:
    """Rows of each client, disjoint, each client with 2 to K - 1 of the K classes and every class with two owners.

    Parameters
    ----------
    y : array-like
        Class of every row.
    n_clients : int
        Number of clients, at least 2.
    regime : str, default "A"
        "A": each class in equal parts to its owners, so a client's size grows with its number of classes; "B": the same
        classes, but sizes drawn independently of their number, so not every row is used.
    seed : int, default 0
        Of the draw; regime B with a seed starts from regime A with that seed.

    Examples
    --------
    >>> import numpy as np
    >>> parts = partition(np.repeat(range(4), 200), 5, seed=1)
    >>> sorted(np.concatenate(parts)) == list(range(800))
    True
    """
    check_count("n_clients", n_clients, owner="partition", least=2)
    check_option("regime", regime, ("A", "B"), owner="partition")
    known, classes = np.unique(np.asarray(y), return_inverse=True)
    n_classes = len(known)
    if n_classes < 3:
        raise ValueError(f"'y' of partition must hold at least 3 classes, as no client may hold all; got {n_classes}.")
    rng = np.random.default_rng(seed)
    rows_of = [np.flatnonzero(classes == label) for label in range(n_classes)]
    holds, parts = coupled(rows_of, rng, lambda: draw_class_sets(n_clients, n_classes, rng))
    check_every_client(classes, parts, n_classes)
    if regime == "B":
        parts = decoupled(rows_of, holds, parts, rng)
        check_every_client(classes, parts, n_classes)
    return parts


def coupled(
    rows_of: list[IntArray], rng: Draws, class_sets: Callable[[], BoolArray]
) -> tuple[BoolArray, list[IntArray]]:
    """Regime A: class sets and rows; drawn again until every client is large enough, else the best draw."""
    best: tuple[int, BoolArray, list[IntArray]] | None = None
    for _ in range(MOST_DRAWS):
        holds = class_sets()
        parts = deal_equally(rows_of, holds, rng)
        smallest = min(len(part) for part in parts)
        is_valid = (holds.sum(axis=0) >= 2).all()
        if is_valid and (best is None or smallest > best[0]):
            best = smallest, holds, parts
        if is_valid and smallest >= SMALLEST_CLIENT:
            break
    if best is None:
        raise ValueError(
            f"'n_clients' of partition is too small: {len(holds)} clients cannot give each of {len(rows_of)} classes "
            f"two owners."
        )
    return best[1], best[2]


def draw_class_sets(n_clients: int, n_classes: int, rng: np.random.Generator) -> BoolArray:
    """Which client holds which class, (n_clients, n_classes): about 0.55 K each, every class twice where possible."""
    middle, width = round(0.55 * n_classes), max(1, round(0.25 * n_classes))
    sizes = np.clip(rng.integers(middle - width, middle + width, size=n_clients, endpoint=True), 2, n_classes - 1)
    holds = np.zeros((n_clients, n_classes), dtype=bool)
    for client, size in enumerate(sizes):
        holds[client, rng.choice(n_classes, size, replace=False)] = True
    return covered(holds, rng)


def covered(holds: BoolArray, rng: Draws) -> BoolArray:
    """The class sets with every class at two clients, where that is possible."""
    n_classes = holds.shape[1]
    for label in range(n_classes):
        while holds[:, label].sum() < 2:
            can_take = np.flatnonzero(~holds[:, label] & (holds.sum(axis=1) < n_classes - 1))
            if not len(can_take):
                break
            holds[rng.choice(can_take), label] = True
    return holds


def deal_equally(rows_of: list[IntArray], holds: BoolArray, rng: Draws) -> list[IntArray]:
    parts: list[list[IntArray]] = [[] for _ in holds]
    for label, rows in enumerate(rows_of):
        owners = np.flatnonzero(holds[:, label])
        for owner, share in zip(owners, np.array_split(rng.permutation(rows), max(len(owners), 1)), strict=False):
            parts[owner].append(share)
    return [np.sort(np.concatenate(part)) for part in parts]


def decoupled(rows_of: list[IntArray], holds: BoolArray, parts: list[IntArray], rng: Draws) -> list[IntArray]:
    """Regime B: sizes drawn log-uniformly over a fourfold range, equal requests from each class, scaled to its rows."""
    median = float(np.median([len(part) for part in parts]))
    targets = median * np.exp(rng.uniform(np.log(0.5), np.log(2), size=len(holds)))
    requests = holds * (targets / holds.sum(axis=1))[:, None]
    supply = np.array([len(rows) for rows in rows_of])
    requests *= np.minimum(1, supply / requests.sum(axis=0))
    counts = np.where(holds, np.maximum(2, np.round(requests)), 0).astype(np.int64)
    keeps = counts.sum(axis=1) < SMALLEST_DECOUPLED_CLIENT
    kept = np.concatenate([np.empty(0, dtype=np.int64), *(parts[client] for client in np.flatnonzero(keeps))])
    drawn: list[list[IntArray]] = [[] for _ in holds]
    for label, rows in enumerate(rows_of):
        pool = rng.permutation(np.setdiff1d(rows, kept))
        owners = np.flatnonzero(holds[:, label] & ~keeps)
        ends = np.cumsum(within(counts[owners, label], len(pool)))
        for client, share in zip(owners, np.split(pool, ends)[:-1], strict=True):
            drawn[client].append(share)
    return [parts[at] if keeps[at] else np.sort(np.concatenate(drawn[at])) for at in range(len(holds))]


def within(counts: IntArray, supply: int) -> IntArray:
    """Counts cut from the largest down until they fit: rounding, or clients that keep theirs, may ask too much."""
    counts = counts.copy()
    while counts.sum() > supply:
        counts[counts.argmax()] -= 1
    return counts


def check_every_client(classes: IntArray, parts: list[IntArray], n_classes: int) -> None:
    """Refuse a table in which a class has fewer rows than owners, so that clients lack what they were to hold."""
    held = np.array([np.bincount(classes[rows], minlength=n_classes) > 0 for rows in parts])
    if held.sum(axis=1).min() < 2 or held.sum(axis=0).min() < 2:
        raise ValueError(
            f"'y' of partition has too few rows, {len(classes):,} of {n_classes} classes, to give each of {len(parts)} "
            "clients rows of two classes and each class two clients; take fewer clients."
        )
