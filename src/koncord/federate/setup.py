"""Before and after any aggregator: agree on columns and scale, run phase 1, tell who holds what."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import pdist, squareform

from koncord.errors import KoncordError
from koncord.estimate.silhouette import MAX_SCORED, nearest, silhouettes
from koncord.estimate.splitting import ROUNDING
from koncord.federate.link import Sent
from koncord.types import FloatArray, IntArray

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Server to client: say what your columns are and, as sums, where they lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Client to server: count, mean and summed squared deviation of every column (count, sum and sum of squares)."""

    columns: tuple[str, ...]
    count: int
    means: FloatArray  # (n_features,)
    scatters: FloatArray  # (n_features,)

    def __post_init__(self) -> None:
        if not self.means.shape == self.scatters.shape == (len(self.columns),):
            raise ValueError("'means' and 'scatters' must have one entry a column.")
        if self.count < 1 or not np.isfinite([self.means, self.scatters]).all() or (self.scatters < 0).any():
            raise ValueError("'count', 'means' and 'scatters' must be those of at least one row of numbers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Server to client: the scale to use and the seed of the run; estimate your local k on it."""

    seed: int
    columns: tuple[str, ...]  # in the order of the means
    means: FloatArray  # (n_features,) to subtract
    scales: FloatArray  # (n_features,) to divide by


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Client to server: phase 1 is done, with this local k."""

    local_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """Server to client: the global centers; say how many of your rows each attracts."""

    centers: FloatArray  # (global_k, n_features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Client to server: rows and their mean silhouette in each global cluster."""

    counts: IntArray  # (global_k,)
    silhouettes: FloatArray  # (global_k,) NaN where the client has no silhouette there
    scored: IntArray  # (global_k,) rows the silhouettes were taken over


SENDS = (
    Sent(message="Moments", field="columns", shape="n_features names"),
    Sent(message="Moments", field="count", shape="1"),
    Sent(message="Moments", field="means", shape="n_features"),
    Sent(message="Moments", field="scatters", shape="n_features"),
    Sent(message="Prepared", field="local_k", shape="1"),
    Sent(message="Holdings", field="counts", shape="global_k"),
    Sent(message="Holdings", field="silhouettes", shape="global_k"),
    Sent(message="Holdings", field="scored", shape="global_k"),
)

# --- client steps ---


def describe(X: FloatArray, columns: tuple[str, ...]) -> Moments:
    means = X.mean(axis=0)
    return Moments(columns=columns, count=len(X), means=means, scatters=((X - means) ** 2).sum(axis=0))


def attribute(X: FloatArray, down: Attribute, rng: np.random.Generator) -> Holdings:
    labels = nearest(X, down.centers)
    k = len(down.centers)
    rows = np.arange(len(X)) if len(X) <= MAX_SCORED else rng.choice(len(X), MAX_SCORED, replace=False)
    values = silhouettes(squareform(pdist(X[rows])), labels[rows])
    scored = np.bincount(labels[rows], minlength=k) if values is not None else np.zeros(k, dtype=np.int64)
    summed = np.bincount(labels[rows], values, minlength=k) if values is not None else np.zeros(k)
    with np.errstate(invalid="ignore"):
        return Holdings(counts=np.bincount(labels, minlength=k), silhouettes=summed / scored, scored=scored)


# --- server steps ---


def agreed_columns(moments: Mapping[str, Moments]) -> tuple[str, ...]:
    """The columns of the first client, if every client has just these; else an error that names the difference."""
    first, *others = moments
    columns = moments[first].columns
    for client in others:
        theirs = moments[client].columns
        missing = [column for column in columns if column not in theirs]
        extra = [column for column in theirs if column not in columns]
        if missing or extra:
            differences = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"adds {', '.join(extra)}"] * bool(extra)
            raise KoncordError(
                f"The columns of site {client!r} are not those of site {first!r}: it {' and '.join(differences)}."
            )
    return columns


def common_scale(moments: Mapping[str, Moments], columns: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the pooled rows, from the clients' sums; a constant column has scale 1."""
    total = sum(m.count for m in moments.values())
    means = {client: m.means[order_of(m.columns, columns)] for client, m in moments.items()}
    mean = np.sum([m.count * means[client] for client, m in moments.items()], axis=0) / total
    scatter = np.sum(
        [
            m.scatters[order_of(m.columns, columns)] + m.count * (means[client] - mean) ** 2
            for client, m in moments.items()
        ],
        axis=0,
    )
    deviation = np.sqrt(scatter / total)
    rounding = ROUNDING * np.max([np.abs(own) for own in means.values()], axis=0)  # of a mean, in a constant column
    return mean, np.where(deviation > rounding, deviation, 1.0)


def no_scale(columns: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    return np.zeros(len(columns)), np.ones(len(columns))


def order_of(columns: tuple[str, ...], wanted: tuple[str, ...]) -> IntArray:
    """Positions in `columns` of the `wanted` ones."""
    return np.array([columns.index(column) for column in wanted], dtype=np.int64)
