"""A private site's answers: every one is computed from noisy sums, and from nothing else.

First the site learns, through noise, how many rows it has and where they lie. Then it looks for cells that describe
them: k-means from points drawn around the noisy mean, every pass one release, with no more cells than stand out from
the noise. What an aggregator asks for first is computed from these cells; each later round of sums is one release more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from koncord.aggregate import consensus, fedkmeans
from koncord.aggregate.base import Aggregator, as_instance
from koncord.aggregate.consensus.microclusters import MicroClusters
from koncord.errors import DisclosureRefused, MessageError
from koncord.kernels.lloyd import kmeans
from koncord.prepare.columns import without_small
from koncord.privacy.budget import CELLS, ROUND, SHARES, Accountant, Budget
from koncord.privacy.cells import REACH, Cells, at_most, find_cells, inside_ball, scaled_down
from koncord.privacy.mechanism import STEPS, Ball, Mechanism, NoisySums, sensitivity_of
from koncord.protocol import setup
from koncord.protocol.schema import LARGEST
from koncord.protocol.wire import pack
from koncord.types import FloatArray, IntArray

SUPPORTED = ("consensus", "fedkmeans")
# What each later round of sums is asked by.
SUMMING = (consensus.Refine, fedkmeans.Refine)
MOST_CELLS = 20
# The root mean squared distance of rows to their mean is taken as no less than this share of the agreed bound.
LEAST_SPREAD = 0.05
# A cell is large enough if noise moves its mean by no more than this share of that distance.
BLUR = 0.25
# A noisy count below so many standard deviations of its noise: no sum is sent.
NO_SUM = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that a private site knows of its rows, with noise. It is what the site needs to go on after a restart."""

    n_used: IntArray  # releases of each kind so far
    count: int = 0  # rows
    means: FloatArray | None = None  # (n_features,) of the columns, in the units of the table; None before Describe
    variances: FloatArray | None = None  # (n_features,) about the means; noise may have made them negative
    cell_counts: IntArray | None = None  # (n_cells,) None before Prepare; on the agreed scale, as the rest
    cell_means: FloatArray | None = None  # (n_cells, n_features)
    cell_scatters: FloatArray | None = None  # (n_cells,) summed squared distances to the means


class PrivateClient:
    """Answers the messages of one run within a budget. Rows are behind its mechanism, and only noisy sums come out.

    Parameters
    ----------
    name : str
        Of the site.
    mechanism : Mechanism
        What holds the rows.
    columns : tuple of str
        Names of the columns.
    budget : Budget
        What was agreed.
    min_report : int, default 1
        Rows that whatever is sent stands for at least, by the noisy counts.
    """

    def __init__(
        self, name: str, mechanism: Mechanism, columns: tuple[str, ...], budget: Budget, *, min_report: int = 1
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.columns = columns
        self.budget = budget
        self.min_report = min_report
        self.known = Known(n_used=np.zeros(len(SHARES), dtype=np.int64))
        self.prepared: setup.Prepare | None = None
        self.ball: Ball | None = None

    @property
    def epsilon(self) -> float:
        """What was spent so far, by the accountant."""
        return self.mechanism.accountant.epsilon

    def answer(self, message: Any, stream_of: Callable[[int], tuple[int, ...]]) -> Any:
        """The reply to a message; `stream_of` names the random stream of a seed, which noise does not come from."""
        try:
            if isinstance(message, setup.Survey):
                return self._names()
            if isinstance(message, setup.Describe):
                return self._describe()
            if isinstance(message, setup.Measure) or (isinstance(message, setup.Prepare) and not message.is_plain):
                raise MessageError(f"site {self.name!r} has a privacy budget, which covers no shape of columns.")
            seed = message.seed if self.prepared is None else self.prepared.seed
            rng = np.random.default_rng(stream_of(seed))
            return self._prepare(message, rng) if isinstance(message, setup.Prepare) else self._reply(message, rng)
        finally:
            self._learn()  # what was released is used, whatever came of it

    def _names(self) -> setup.Sketch:
        """The names of the columns, and that there is a budget: nothing of the rows."""
        d = len(self.columns)
        nothing = np.zeros(d, dtype=np.int64)
        return setup.Sketch(
            columns=self.columns,
            count=0,
            available=nothing,
            ends=nothing,
            blocks=np.empty((0, d)),
            epsilon=float(self.budget.epsilon),
        )

    def _describe(self) -> setup.Moments:
        """Noisy count, means and scatters; asked again, the same."""
        d = len(self.columns)
        if self.known.means is None:
            agreed = Ball(center=np.full(d, self.budget.center), radius=self.budget.bound)
            self._learn(**moments_of(self.mechanism.moments(agreed), agreed))
        known = self.known
        if not self._is_reported() or known.means is None or known.variances is None:
            return self._moments(count=0, means=np.zeros(d), scatters=np.zeros(d))
        scatters = known.count * np.maximum(known.variances, 0.0)
        return self._moments(count=known.count, means=known.means, scatters=scatters)

    def _moments(self, **reported: Any) -> setup.Moments:
        promise: dict[str, Any] = {name: float(getattr(self.budget, name)) for name in setup.BUDGET}
        return setup.Moments(columns=self.columns, **reported, **promise)

    def _is_reported(self) -> bool:
        """Whether there are rows enough to say anything of them, as far as the noise lets the site know."""
        return self.known.count >= self.min_report

    def _prepare(self, message: setup.Prepare, rng: np.random.Generator) -> setup.Prepared:
        """Take the agreed scale and look for cells; local k is their number. Asked again, the same."""
        if self.prepared is None:
            self._describe()
            self._rescale(message)
            cells = self._find_cells(rng)
            self._learn(cell_counts=cells.counts, cell_means=cells.means, cell_scatters=cells.scatters)
            self.prepared = message
        elif pack(self.prepared) != pack(message):
            raise MessageError(f"site {self.name!r} was sent a second Prepare that is not the first.")
        return setup.Prepared(local_k=len(self._cells()) if message.asks_local_k else None)

    def _rescale(self, message: setup.Prepare) -> None:
        """Take the columns in the agreed order and scale, and the ball where noise says that the rows lie."""
        if not set(message.columns) <= set(self.columns):
            raise MessageError(f"site {self.name!r} was asked for columns that are not those of its table.")
        assert self.known.means is not None
        assert self.known.variances is not None
        order = setup.order_of(self.columns, message.columns)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            center = (self.known.means[order] - message.means) / message.scales
            variance = (self.known.variances[order] / message.scales**2).sum()
            least = (LEAST_SPREAD * self.budget.bound) ** 2 * (1 / message.scales**2).mean()
            radius = REACH * float(np.sqrt(max(variance, least)))
        if not (np.isfinite(center).all() and 0 < radius < np.inf):
            raise MessageError(f"site {self.name!r} was asked for a scale on which its rows are no numbers.")
        self.mechanism.rescale(order, message.means, message.scales)
        self.ball = Ball(center=center, radius=radius)

    def _reply(self, message: Any, rng: np.random.Generator) -> Any:
        if isinstance(message, consensus.Report):
            return cells_as_micro_clusters(self._cells(), max(message.min_report, self.min_report))
        if isinstance(message, fedkmeans.Begin):
            return means_of(self._cells(), message.n_clusters, max(message.min_count, self.min_report), rng)
        if isinstance(message, setup.Attribute):
            return self._holdings(message)
        if isinstance(message, consensus.Refine):
            counts, sums = self._sums(message.centers, max(message.min_report, self.min_report))
            return consensus.Sums(counts=counts, sums=sums)
        counts, sums = self._sums(message.centers, max(message.min_count, self.min_report))
        is_reported = counts > 0
        return fedkmeans.LocalMeans(centers=sums[is_reported] / counts[is_reported, None], counts=counts[is_reported])

    def restore(self, known: Known, prepared: setup.Prepare | None) -> None:
        """Go on as if this client had just learnt what it kept."""
        self.known = known
        self.mechanism.accountant.n_used = dict(zip(SHARES, known.n_used.tolist(), strict=True))
        if prepared is not None:
            self._rescale(prepared)
            self.prepared = prepared

    def _learn(self, **more: Any) -> None:
        before = {name: getattr(self.known, name) for name in Known.__slots__}
        used = np.array(list(self.mechanism.accountant.n_used.values()), dtype=np.int64)
        self.known = Known(**{**before, **more, "n_used": used})

    def _cells(self) -> Cells:
        known = self.known
        assert known.cell_counts is not None
        assert known.cell_means is not None
        assert known.cell_scatters is not None
        return Cells(counts=known.cell_counts, means=known.cell_means, scatters=known.cell_scatters)

    def _find_cells(self, rng: np.random.Generator) -> Cells:
        """Cells of the rows, as many as the noise lets stand out."""
        assert self.ball is not None
        d = len(self.ball.center)
        if not self._is_reported():
            return Cells(counts=np.empty(0, dtype=np.int64), means=np.empty((0, d)), scatters=np.empty(0))
        noise = self.mechanism.accountant.scale(CELLS, sensitivity_of(d)) / STEPS
        k = int(np.clip(BLUR * self.known.count / (REACH * noise * sqrt(d)), 1, MOST_CELLS))
        return scaled_down(find_cells(self.mechanism, self.ball, k, self.min_report, rng), self.known.count)

    def _sums(self, centers: FloatArray, least: int) -> tuple[IntArray, FloatArray]:
        """Counts and sums of the rows by nearest center; zero where the count is lost in noise or too small."""
        assert self.ball is not None
        k, d = centers.shape
        if not self._is_reported():
            return np.zeros(k, dtype=np.int64), np.zeros((k, d))
        found = self.mechanism.cells(centers, self.ball, ROUND)
        counts = np.where(found.counts >= max(least, NO_SUM * found.count_noise), found.counts, 0.0)
        reported = at_most(counts, self.known.count)
        means = self.ball.center + found.sums / np.maximum(counts, 1)[:, None]
        return reported, np.where(reported[:, None] > 0, reported[:, None] * means, 0.0)

    def _holdings(self, message: setup.Attribute) -> setup.Holdings:
        """Noisy rows by cluster, made to sum to the noisy rows; silhouettes are not sent."""
        assert self.ball is not None
        k = len(message.centers)
        counts = np.zeros(k, dtype=np.int64)
        if self._is_reported():
            noisy = self.mechanism.holdings(message.centers, self.ball)
            large = np.where(noisy >= self.min_report, noisy, 0)  # else a count of noise alone takes another with it
            counts = apportioned(large if large.any() else noisy, self.known.count)
        counts = without_small(counts, self.min_report)
        return setup.Holdings(counts=counts, silhouettes=np.full(k, np.nan), scored=np.zeros(k, dtype=np.int64))


def private_client(
    name: str,
    X: FloatArray,
    columns: tuple[str, ...],
    budget: Budget,
    aggregator: Aggregator | type[Aggregator],
    *,
    min_report: int = 1,
) -> PrivateClient:
    """A client that answers for the rows of X within the budget, if the aggregator has a private form."""
    check_private_form(aggregator)
    n_rounds = n_rounds_of(aggregator) if budget.rounds is None else budget.rounds
    mechanism = Mechanism(X, Accountant(budget, n_rounds=n_rounds))
    return PrivateClient(name, mechanism, columns, budget, min_report=min_report)


def n_rounds_of(aggregator: Aggregator | type[Aggregator]) -> int:
    """Rounds of sums that an aggregator asks a site for beyond its first answer."""
    return sum(n for kind, n in as_instance(aggregator).most_messages().items() if kind in SUMMING)


def check_private_form(aggregator: Aggregator | type[Aggregator]) -> None:
    """`DisclosureRefused` for an aggregator that no site takes part in within a privacy budget."""
    if aggregator.name not in SUPPORTED:
        raise DisclosureRefused(
            f"{aggregator.name} has no private form: within a privacy budget a site takes part in "
            f"{' and '.join(SUPPORTED)} only."
        )


def moments_of(found: NoisySums, ball: Ball) -> dict[str, Any]:
    """Count, means and variances from the noisy sums of all rows."""
    count = int(np.clip(np.rint(found.counts[0]), 0, LARGEST["rows"]))
    gaps = inside_ball(found.sums / max(count, 1), ball.radius)[0]
    variances = found.squares[0] / max(count, 1) - gaps**2
    return {"count": count, "means": ball.center + gaps, "variances": variances}


def apportioned(counts: IntArray, total: int) -> IntArray:
    """Noisy counts made whole, not negative, and with the sum `total`; the largest remainders are rounded up."""
    shares = np.maximum(counts, 0)
    exact = total * shares / shares.sum() if shares.any() else np.full(len(counts), total / len(counts))
    whole: IntArray = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]] += 1
    return whole


def means_of(cells: Cells, n_clusters: int, least: int, rng: np.random.Generator) -> fedkmeans.LocalMeans:
    """Means and counts of the cells, put together into at most `n_clusters`."""
    if not len(cells):
        return fedkmeans.LocalMeans(centers=cells.means, counts=cells.counts)
    weights = cells.counts.astype(float)
    found = kmeans(cells.means, min(n_clusters, len(cells)), rng, weights=weights, n_init=10)
    counts = np.bincount(found.labels, weights, minlength=len(found.centers)).astype(np.int64)
    kept = counts >= max(least, 1)
    return fedkmeans.LocalMeans(centers=found.centers[kept], counts=counts[kept])


def cells_as_micro_clusters(cells: Cells, least: int) -> MicroClusters:
    """Each cell of at least `least` rows as a micro-cluster."""
    kept = cells.counts >= max(least, 1)
    d = cells.means.shape[1]
    scatters = cells.scatters[kept]
    return MicroClusters(
        counts=cells.counts[kept],
        means=cells.means[kept],
        scatters=scatters,
        spread=np.full(d, scatters.sum() / d),
        axes=np.empty((0, d)),
    )
