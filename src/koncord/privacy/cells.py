"""Cells of rows, found through noise: k-means from points drawn around the noisy mean.

Every pass is one release, of one site or of all of them together. There are no more cells than stand out from the
noise, and often more than clusters: the server merges what belongs together.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from koncord.kernels.assign import sums_by_label
from koncord.privacy.mechanism import Ball, Mechanism, NoisySums
from koncord.types import BoolArray, FloatArray, IntArray

# Noisy counts below so many standard deviations of their noise make no cell.
NO_CELL = 2.0
# Noise may move the mean of a cell by this share of the root mean squared distance of all rows to their mean.
MOST_MOVED = 0.5
# Radius of the ball that rows are clipped to, over their root mean squared distance to the mean, as noisy sums give it.
REACH = 2.0
# Variance of the length of d standard normal numbers, times the square of two deviations.
ALIKE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Parts of the rows that stand out from the noise."""

    counts: IntArray  # (k,)
    means: FloatArray  # (k, n_features)
    scatters: FloatArray  # (k,) summed squared distances to the means, which noise has moved

    def __len__(self) -> int:
        return len(self.counts)


def find_cells(
    mechanism: Mechanism, ball: Ball, k: int, n_passes: int, min_report: int, rng: np.random.Generator
) -> Cells:
    """At most k cells of the rows of one site, each of at least `min_report` by its noisy count."""
    deviations = np.full(len(ball.center), ball.radius / REACH / sqrt(len(ball.center)))
    looking = look_for_cells(first_centers(ball, k, deviations, rng), ball, n_passes, min_report, rng)
    centers = next(looking)
    while True:
        try:
            centers = looking.send(mechanism.cells(centers, ball))
        except StopIteration as finished:
            found: Cells = finished.value
            return found


def first_centers(ball: Ball, k: int, deviations: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Points drawn around the center of the ball, with these deviations (n_features,) of the columns."""
    centers: FloatArray = ball.center + rng.standard_normal((k, len(deviations))) * deviations
    return centers


def look_for_cells(
    centers: FloatArray,
    ball: Ball,
    n_passes: int,
    min_report: int,
    rng: np.random.Generator,
    *,
    most_blurred: float = MOST_MOVED,
) -> Generator[FloatArray, NoisySums, Cells]:
    """Yields the centers of each pass, receives the noisy sums of the rows by nearest center; returns the cells.

    They are those of the last pass whose noisy count stands out and is at least `min_report`. One whose mean noise
    moves by more than the share `most_blurred`, as in `MOST_MOVED`, goes with another that noise does not tell it from.
    """
    for _ in range(n_passes - 1):
        found = yield centers
        centers = moved_cells(centers, found, ball, rng)
    found = yield centers
    kept = is_cell(found, ball, min_report)
    joined = without_blurred(found, np.flatnonzero(kept), most_blurred * ball.radius / REACH)
    return some_noisy_cells(cells_of(found, ball, joined), np.bincount(joined[kept], minlength=len(kept)) > 0)


def moved_cells(centers: FloatArray, found: NoisySums, ball: Ball, rng: np.random.Generator) -> FloatArray:
    """Means of the cells that stand out from noise; the other centers go beside these, to where most scatter is."""
    large = is_cell(found, ball, 1)
    if not large.any():
        return centers
    cells = some_noisy_cells(cells_of(found, ball), large)
    n_others = int((~large).sum())
    shares = cells.scatters / cells.scatters.sum() if cells.scatters.any() else cells.counts / cells.counts.sum()
    beside = rng.choice(len(cells), n_others, p=shares)
    deviations = np.sqrt(cells.scatters / cells.counts / centers.shape[1])[beside]
    drawn = cells.means[beside] + rng.standard_normal((n_others, centers.shape[1])) * deviations[:, None]
    return np.concatenate([cells.means, drawn])


def is_cell(found: NoisySums, ball: Ball, min_report: int) -> BoolArray:
    """Whether a count stands out, and noise moves the mean by less than it would take to make up a cluster."""
    moving = found.sum_noise * sqrt(found.sums.shape[1])
    least = max(NO_CELL * found.count_noise, moving / (MOST_MOVED * ball.radius / REACH), min_report, 1)
    large: BoolArray = found.counts >= least
    return large


def cells_of(found: NoisySums, ball: Ball, joined: IntArray | None = None) -> Cells:
    """Counts, means and scatters from noisy sums; those of cells that are hardly there mean little.

    `joined` is the cell that each went with, or its own number.
    """
    k, d = found.sums.shape
    joined = np.arange(k) if joined is None else joined
    counts = np.maximum(np.bincount(joined, found.counts, minlength=k), 1.0)
    gaps = inside_ball(sums_by_label(found.sums, joined, k) / counts[:, None], ball.radius)
    squares = np.bincount(joined, found.squares[:, 0], minlength=k)
    # About the noisy mean, which noise has moved away from the rows: once for that, once because it lengthens the sum.
    moved_by = d * found.sum_noise**2 * np.bincount(joined, minlength=k) / counts
    scatters = np.maximum(squares - counts * np.vecdot(gaps, gaps) + 2 * moved_by, 0.0)
    return Cells(counts=np.rint(counts).astype(np.int64), means=ball.center + gaps, scatters=scatters)


def without_blurred(found: NoisySums, cells: IntArray, most: float) -> IntArray:
    """The cell (k,) that each goes with, of those given: itself, unless noise moves its mean by more than `most`.

    Such a one joins the cell that it is most like, if they are alike: no farther apart than noise alone would have
    them, by two standard deviations. A small cell beside a large one would be a cluster of its own, or bridge two.
    """
    joined, d = np.arange(len(found.counts)), found.sums.shape[1]
    counts, sums = found.counts.copy(), found.sums.copy()
    variances = np.full(len(counts), found.sum_noise**2)
    while len(cells) > 1:
        errors = variances[cells] / counts[cells] ** 2
        means = sums[cells] / counts[cells, None]
        squared = ((means[:, None] - means) ** 2).sum(axis=2) / (errors[:, None] + errors)
        is_blurred = d * errors > most**2
        squared[~(is_blurred[:, None] | is_blurred)] = np.inf
        np.fill_diagonal(squared, np.inf)
        one, other = np.unravel_index(int(squared.argmin()), squared.shape)
        if not squared[one, other] <= (sqrt(d) + sqrt(ALIKE)) ** 2:
            break
        into, gone = cells[one], cells[other]
        for each in (counts, sums, variances):
            each[into] += each[gone]
        joined[joined == gone] = into
        cells = np.delete(cells, other)
    return joined


def inside_ball(gaps: FloatArray, radius: float) -> FloatArray:
    """Vectors shortened to `radius`: no mean of rows of a ball lies outside it."""
    lengths = np.sqrt(np.vecdot(gaps, gaps))
    shortened: FloatArray = gaps * (radius / np.maximum(lengths, radius))[..., None]
    return shortened


def some_noisy_cells(cells: Cells, at: BoolArray) -> Cells:
    return Cells(counts=cells.counts[at], means=cells.means[at], scatters=cells.scatters[at])


def scaled_down(cells: Cells, most: int) -> Cells:
    """Cells that stand for no more rows than there are."""
    counts = at_most(cells.counts, most)
    scatters = cells.scatters * counts / np.maximum(cells.counts, 1)
    return some_noisy_cells(Cells(counts=counts, means=cells.means, scatters=scatters), counts > 0)


def at_most(counts: Any, most: int) -> IntArray:
    """Whole counts in the same proportions, none larger than it was, that sum to `most` or less."""
    total = counts.sum()
    whole: IntArray = np.floor(counts * min(1.0, most / max(total, 1))).astype(np.int64)
    return whole
