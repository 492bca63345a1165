"""Cells common to all clients that have a privacy budget, and the null model that goes through the same noise.

The noise of one client drowns cells of a few hundred rows; that of the sums over all clients does not. So the server
proposes the cells, the same for all: k-means of the pooled rows, pass by pass, each pass one release of every client.
There are as many cells as the pooled noise allows, and most of the budget is kept for the last pass, from which the
number of clusters is read. One Gaussian of the covariance of the pooled rows, which noisy products of the columns tell,
is sent through the same passes with the same noise, so what noise or the shape of one cloud alone gives is not taken
for clusters. Where the rows vary along few axes, cells are counted once instead of the passes
(`koncord.aggregate.consensus.cellcounts`).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, Any

import numpy as np

from koncord._random import draw_seed
from koncord._validation import LARGEST_VALUE
from koncord.aggregate.base import Described
from koncord.aggregate.consensus.cellcounts import Spectrum
from koncord.aggregate.consensus.microclusters import (
    MicroClusters,
    micro_clusters_by,
    nothing,
    rescaled,
    stacked,
)
from koncord.aggregate.consensus.nullmodel import Gaussian, root_of_covariance
from koncord.aggregate.private import LEAST_OF_BOUND, PrivateClient
from koncord.errors import KoncordError
from koncord.kernels.assign import nearest, sums_by_label
from koncord.kernels.cutting import groups_of
from koncord.privacy.budget import (
    CELLS,
    HISTOGRAM,
    HOLDINGS,
    INSTEAD,
    LAST_CELLS,
    MOMENTS,
    PRODUCTS,
    STEPS,
    Plan,
    rho_of,
)
from koncord.privacy.cells import REACH, Cells, first_centers, look_for_cells
from koncord.privacy.mechanism import SQUARES, Ball, NoisySums, clipped, count_weight, sum_noise, whole
from koncord.protocol.floor import LOWER_FLOOR
from koncord.protocol.schema import LARGEST_FLOAT, Array, Number
from koncord.protocol.setup import WITH_BUDGET
from koncord.types import FloatArray, IntArray

# Passes in which the cells are found, and what each release costs: K is read from the last pass.
N_PASSES = 5
SHARES = {MOMENTS: 1.0, PRODUCTS: 1.5, CELLS: 2.0, LAST_CELLS: 10.0, HOLDINGS: 0.5}
# Columns up to which products are asked for. Rows are clipped to this share of the ball for them: a product is as long
# as a row squared.
MOST_COLUMNS, SHARE_OF_BALL = 100, 0.6
MOST_CELLS = 60
# A cell is large enough if noise moves its mean by no more than this share of the rows' root mean squared distance to
# their mean.
BLUR = 0.3
# Clusterings of noisy cells that lack no more separation than this are ties: noise moves it by as much.
NOISY_SLACK = 0.03
# Rows drawn from the Gaussian, the noise made smaller with them.
NULL_ROWS = 20_000
# A column has at least this share of the mean variance of all columns.
LEAST_SPREAD = 1e-3

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonCells:
    """Server to client: send noisy sums of your rows, clipped to a ball, by the nearest of these centers."""

    centers: Annotated[FloatArray, Array("n_micro_clusters", "n_features")]
    ball_center: Annotated[FloatArray, Array("n_features")]
    ball_radius: Annotated[float, Number(least=1e-150, most=LARGEST_VALUE)]
    is_last: bool  # the pass that most of the budget is kept for

    @property
    def ball(self) -> Ball:
        return Ball(center=self.ball_center, radius=self.ball_radius)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSums:
    """Client to server: count, sum and summed squares of the rows of each cell, about the center of the ball."""

    counts: Annotated[FloatArray, Array("n_micro_clusters", only_from=WITH_BUDGET)]
    sums: Annotated[FloatArray, Array("n_micro_clusters", "n_features", only_from=WITH_BUDGET)]
    squares: Annotated[
        FloatArray, Array("n_micro_clusters", least=-LARGEST_FLOAT, most=LARGEST_FLOAT, only_from=WITH_BUDGET)
    ]
    noise: Annotated[float, Number(least=0, only_from=WITH_BUDGET)]  # standard deviation of each number of the sums


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonProducts:
    """Server to client: send noisy sums of the products of every two columns of your rows, clipped to a ball."""

    ball_center: Annotated[FloatArray, Array("n_features")]
    ball_radius: Annotated[float, Number(least=1e-150, most=LARGEST_VALUE)]

    @property
    def ball(self) -> Ball:
        return Ball(center=self.ball_center, radius=self.ball_radius)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSums:
    """Client to server: the sums of products, about the center of the ball."""

    products: Annotated[
        FloatArray, Array("n_features", "n_features", least=-LARGEST_FLOAT, most=LARGEST_FLOAT, only_from=WITH_BUDGET)
    ]
    noise: Annotated[float, Number(least=0, most=LARGEST_FLOAT / 4, only_from=WITH_BUDGET)]  # deviation of the diagonal


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCells:
    """Server to client: send noisy counts of your rows by the nearest of these centers."""

    centers: Annotated[FloatArray, Array("n_micro_clusters", "n_features")]
    ball_center: Annotated[FloatArray, Array("n_features")]  # where, and in which steps, distances are compared
    ball_radius: Annotated[float, Number(least=1e-150, most=LARGEST_VALUE)]

    @property
    def ball(self) -> Ball:
        return Ball(center=self.ball_center, radius=self.ball_radius)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    """Client to server: rows of each cell."""

    counts: Annotated[FloatArray, Array("n_micro_clusters", only_from=WITH_BUDGET)]
    noise: Annotated[float, Number(least=0, only_from=WITH_BUDGET)]  # standard deviation of each


# --- steps of a client ---


def private_products(client: PrivateClient, down: CommonProducts, rng: np.random.Generator) -> ProductSums:
    """Noisy sums of products; nothing of a table below the floor, as far as noise lets the client know."""
    d = len(down.ball_center)
    if not client.is_reported:
        return ProductSums(products=np.zeros((d, d)), noise=0.0)
    found = client.mechanism.products(down.ball)
    return ProductSums(products=found.products, noise=found.noise)


def private_counts(client: PrivateClient, down: CountCells, rng: np.random.Generator) -> CellCounts:
    """Noisy counts by cell; nothing of a table below the floor, as far as noise lets the client know."""
    if not client.is_reported:
        return CellCounts(counts=np.zeros(len(down.centers)), noise=0.0)
    found = client.mechanism.histogram(down.centers, down.ball)
    return CellCounts(counts=found.counts, noise=found.noise)


def private_cells(client: PrivateClient, down: CommonCells, rng: np.random.Generator) -> CellSums:
    """Noisy sums by cell; nothing of a table below the floor, as far as noise lets the client know."""
    k, d = down.centers.shape
    if not client.is_reported:
        return CellSums(counts=np.zeros(k), sums=np.zeros((k, d)), squares=np.zeros(k), noise=0.0)
    found = client.mechanism.cells(down.centers, down.ball, LAST_CELLS if down.is_last else CELLS)
    return CellSums(counts=found.counts, sums=found.sums, squares=found.squares[:, 0], noise=found.sum_noise)


# --- server steps ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where cells are looked for, and how many."""

    ball: Ball
    deviations: FloatArray  # (n_features,) of the pooled rows
    n_rows: int  # of all clients with a budget, by their noisy counts
    n_cells: int
    count_noise: float  # of the pooled counts of cells that are counted instead
    spectrum: Spectrum | None = None  # once products were sent

    @classmethod
    def of(cls, described: Mapping[str, Described], plan: Plan) -> "Search":
        """From what the clients sent of their rows; `KoncordError` if that is nothing."""
        sent = [each for each in described.values() if each.count]
        if not sent:
            raise KoncordError(f"No site with a privacy budget has rows enough to tell of them. {LOWER_FLOOR}")
        counts = np.array([each.count for each in sent], dtype=float)
        n_rows, d = counts.sum(), len(sent[0].means)
        center = counts @ np.array([each.means for each in sent]) / n_rows
        squares = [each.variances + (each.means - center) ** 2 for each in sent]
        variances = np.maximum(counts @ np.array(squares) / n_rows, 0.0)
        variances = np.maximum(variances, LEAST_SPREAD * variances.mean())
        least = (LEAST_OF_BOUND * min(each.bound for each in sent)) ** 2
        variances += max(least - variances.sum(), 0.0) / d  # noise may have left nothing of them
        shares = plan.cost_shares()
        rhos = [rho_of(each.epsilon, each.delta) for each in sent]
        noise = sqrt(sum(sum_noise(shares[LAST_CELLS] * rho, d) ** 2 for rho in rhos))
        counted = sum(shares[kind] * plan.times[kind] for kind in INSTEAD[HISTOGRAM])
        return cls(
            ball=Ball(center=center, radius=REACH * float(np.sqrt(variances.sum()))),
            deviations=np.sqrt(variances),
            n_rows=int(n_rows),
            n_cells=int(np.clip(BLUR * n_rows / (REACH * noise * sqrt(d)), 2, MOST_CELLS)),
            count_noise=sqrt(sum(1 / (2 * counted * rho) for rho in rhos)),
        )

    def ask_products(self) -> CommonProducts:
        return CommonProducts(ball_center=self.ball.center, ball_radius=SHARE_OF_BALL * self.ball.radius)

    def with_products(
        self, sent: Mapping[str, ProductSums], described: Mapping[str, Described], rng: np.random.Generator
    ) -> "Search":
        """The search with the covariance of the rows of the clients that sent products."""
        n_rows = sum(described[client].count for client, each in sent.items() if each.noise)
        if not n_rows:
            return self
        noise = sqrt(sum(each.noise**2 for each in sent.values()))
        covariance = np.sum([each.products for each in sent.values()], axis=0) / n_rows
        return replace(self, spectrum=Spectrum.of(covariance, noise / n_rows, self.ask_products().ball_radius, rng))

    def beside(self, reports: Sequence[MicroClusters]) -> "Search":
        """The search with the covariance of the rows of clients without a budget as well, which is known exactly."""
        micro = stacked(reports, len(self.deviations))
        n_open = int(micro.counts.sum())
        if self.spectrum is None or not n_open:
            return self
        gaps = micro.means - self.ball.center
        products = (gaps * micro.counts[:, None]).T @ gaps + n_open * micro.covariance_inside()
        products += self.n_rows * self.spectrum.root.T @ self.spectrum.root
        return replace(self, spectrum=self.spectrum.with_covariance(products / (self.n_rows + n_open)))

    def passes(self, min_report: int, rng: np.random.Generator) -> Generator[FloatArray, NoisySums, Cells]:
        """The passes in which cells are found; yields centers, receives noisy sums."""
        centers = first_centers(self.ball, self.n_cells, self.deviations, rng)
        return look_for_cells(centers, self.ball, N_PASSES, min_report, rng, most_blurred=BLUR)


def summed(sent: Sequence[CellSums], ball: Ball) -> NoisySums:
    """The sums over all clients, and the noise of these."""
    noise = sqrt(sum(each.noise**2 for each in sent))
    return noisy_sums(
        np.sum([each.counts for each in sent], axis=0),
        np.sum([each.sums for each in sent], axis=0),
        np.sum([each.squares for each in sent], axis=0),
        noise,
        ball,
    )


def noisy_sums(counts: FloatArray, sums: FloatArray, squares: FloatArray, noise: float, ball: Ball) -> NoisySums:
    return NoisySums(
        counts=counts,
        sums=sums,
        squares=squares[:, None],
        count_noise=noise / ball.radius * STEPS / count_weight(sums.shape[1]),
        sum_noise=noise,
    )


def as_micro_clusters(cells: Cells) -> MicroClusters:
    """Each cell as a micro-cluster; along which axes it is long is not known."""
    d = cells.means.shape[1]
    return MicroClusters(
        counts=cells.counts,
        means=cells.means,
        scatters=cells.scatters,
        spread=np.full(d, cells.scatters.sum() / d),
        axes=np.empty((0, d)),
    )


def as_floats(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


# --- what one Gaussian would give through the same noise ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyGaussian(Gaussian):
    """One Gaussian: its rows go to clients without a budget and, through the noise of all passes, to those with one."""

    scales: FloatArray  # (n_features,) that the columns are multiplied by
    search: Search
    noises: tuple[float, ...]  # of the pooled sums in each pass

    @classmethod
    def through(
        cls, micro: MicroClusters, open_rows: IntArray, scales: FloatArray, search: Search, noises: Sequence[float]
    ) -> "NoisyGaussian":
        """The null model of `micro`, in weighed columns; clients without a budget have `open_rows`."""
        spectrum = search.spectrum
        return cls(
            root=root_of_covariance(micro) if spectrum is None else spectrum.root * scales,
            sizes=open_rows,
            least=int(micro.counts.min()),
            scales=scales,
            search=search,
            noises=tuple(noises),
        )

    def n_draws(self, fewest: int, most: int, n_rows: int) -> int:
        return most  # cells are few, so a draw is cheap

    def drawn(self, rng: np.random.Generator) -> np.random.Generator:
        """A generator of its own: how much is drawn depends on what was drawn before."""
        return np.random.default_rng(draw_seed(rng))

    def described(self, drawn: np.random.Generator) -> MicroClusters:
        """One draw, described as the rows of the clients were."""
        rng = drawn
        n_rows = min(self.search.n_rows, NULL_ROWS)
        rows = self.search.ball.center + (rng.standard_normal((n_rows, len(self.root))) @ self.root) / self.scales
        parts = [rescaled(as_micro_clusters(self._cells(rows, n_rows / self.search.n_rows, rng)), self.scales)]
        for size in self.sizes:
            X = self.search.ball.center * self.scales + rng.standard_normal((size, len(self.root))) @ self.root
            parts.append(micro_clusters_by(X, groups_of(X, self.least)) if size >= self.least else nothing(X.shape[1]))
        found = stacked(parts, len(self.root))
        return found if len(found) else micro_clusters_by(rows * self.scales, [np.arange(n_rows)])

    def _cells(self, rows: FloatArray, share: float, rng: np.random.Generator) -> Cells:
        """Cells of the rows, which are a share of all rows, with that share of the noise."""
        ball = self.search.ball
        gaps: FloatArray = (clipped(whole(rows, ball)) * (ball.radius / STEPS)).astype(np.float64)
        lengths = np.vecdot(gaps, gaps)
        passes = self.search.passes(1, rng)
        centers = next(passes)
        for noise in self.noises:
            k, d = centers.shape
            labels = nearest(rows, centers)
            square_noise = SQUARES * share * noise * ball.radius
            drawn = noisy_sums(np.zeros(k), np.zeros((k, d)), np.zeros(k), share * noise, ball)
            found = noisy_sums(
                as_floats(np.bincount(labels, minlength=k) + rng.normal(0, drawn.count_noise, k)),
                sums_by_label(gaps, labels, k) + rng.normal(0, share * noise, (k, d)),
                as_floats(np.bincount(labels, lengths, minlength=k) + rng.normal(0, square_noise, k)),
                share * noise,
                ball,
            )
            try:
                centers = passes.send(found)
            except StopIteration as finished:
                cells: Cells = finished.value
                return cells
        raise AssertionError("there is one noise for each pass")
