"""A table and a plan to what a site says of its rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from koncord.kernels.cutting import MOST_GROUPS, groups_and_tree
from koncord.protocol.schema import LARGEST, Array, Number
from koncord.summary.cells import INDISTINCT, Cells, cells_of, n_winsorized, no_cells, rounded, widened
from koncord.types import FloatArray, IntArray

# Numbers of a summary, of all releases together, as a share of the values of the table.
MOST_NUMBERS = 1 / 3
MOST_AXES = 16
# Rows of a large table in which the cuts and the covariance are found.
SAMPLE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """What a site says of its rows under one plan; see `koncord.summary`."""

    rows: Annotated[int, Number(least=0, most=LARGEST["rows"])]
    cells: Cells
    axes: Annotated[FloatArray, Array("at most n_axes", "n_features")]

    @property
    def n_numbers(self) -> int:
        return 1 + len(self.cells) * numbers_of_a_cell(self.axes.shape[1]) + self.axes.size


def summarized(
    batches: Callable[[], Iterable[FloatArray]], n_features: int, floor: int, *, n_released: int = 0
) -> Summary:
    """The summary of rows on the scale of the plan.

    Parameters
    ----------
    batches : callable
        Gives all rows again each time, in batches (n, n_features) in one order.
    n_features : int
    floor : int
        Rows of a cell at least.
    n_released : int, default 0
        Numbers that were released of this table before.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> summary = summarized(lambda: [X], 4, floor=20)
    >>> summary.rows, int(summary.cells.counts.sum()), summary.n_numbers <= X.size / 3
    (300, 300, True)
    """
    n, sample = sample_of(batches())
    room = int(MOST_NUMBERS * n * n_features) - n_released - 1
    most = min(MOST_GROUPS, room // numbers_of_a_cell(n_features))
    if n < floor or most < 1:
        return Summary(rows=n, cells=no_cells(n_features), axes=np.empty((0, n_features)))
    groups, tree = groups_and_tree(sample, floor, most)
    cells = cells_of(batches(), tree, floor)
    room -= len(cells) * numbers_of_a_cell(n_features)
    axes = axes_inside(sample, groups, floor)[: min(MOST_AXES, room // n_features)]
    return Summary(rows=n, cells=rounded(cells, floor), axes=rounded_axes(axes, n, floor))


def numbers_of_a_cell(n_features: int) -> int:
    """Count, means and variances."""
    return 1 + 2 * n_features


def sample_of(batches: Iterable[FloatArray]) -> tuple[int, FloatArray]:
    """How many rows there are, and at most `SAMPLE` of them: every second one, as often as it takes."""
    n, stride, kept = 0, 1, []
    for X in batches:
        kept.append(X[(-n) % stride :: stride])
        n += len(X)
        while sum(map(len, kept)) > SAMPLE:
            stride *= 2
            kept = [np.concatenate(kept)[::2]]
    return n, np.concatenate(kept) if kept else np.empty((0, 0))


def axes_inside(X: FloatArray, groups: list[IntArray], floor: int) -> FloatArray:
    """Principal axes (n_features, n_features) of rows about the mean of their group, the longest first.

    Each is as long as the standard deviation along it. Rows are winsorized as in the cells.
    """
    products = np.zeros((X.shape[1], X.shape[1]))
    n_ends = n_winsorized(floor)
    for rows in groups:
        own = np.sort(X[rows], axis=0)
        inside = np.clip(X[rows], own[n_ends], own[-1 - n_ends])
        inside -= inside.mean(axis=0)
        products += widened(len(rows), n_ends) * (inside.T @ inside)
    values, vectors = np.linalg.eigh(products / len(X))
    axes: FloatArray = (np.sqrt(np.maximum(values, 0.0)) * vectors).T[::-1]
    return axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]


def rounded_axes(axes: FloatArray, n: int, floor: int) -> FloatArray:
    """The axes as they are sent: half a floor of the rows at one standard deviation would move an entry by a step."""
    steps = np.linalg.norm(axes, axis=1, keepdims=True) * INDISTINCT * floor / n
    return np.where(steps > 0, np.rint(axes / np.where(steps > 0, steps, 1.0)) * steps, axes)
