"""A private site's answers: every one is computed from noisy sums, and from nothing else.

First the site learns, through noise, how many rows it has and where they lie. What an aggregator asks for is answered
by the private steps beside that aggregator, which get noisy sums from the client here; each is one release.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from koncord.aggregate.base import Aggregator, PrivateStep, as_instance
from koncord.errors import DisclosureRefused, MessageError
from koncord.prepare.columns import without_small
from koncord.privacy.budget import CELLS, KINDS, ROUND, Accountant, Budget
from koncord.privacy.cells import REACH, Cells, at_most, find_cells, inside_ball, scaled_down
from koncord.privacy.mechanism import Ball, Mechanism, NoisySums, sum_noise
from koncord.protocol import setup
from koncord.protocol.schema import LARGEST
from koncord.protocol.wire import pack
from koncord.types import FloatArray, IntArray

# Cells that a site looks for at most.
MOST_CELLS = 20
# The root mean squared distance of rows to their mean is taken as no less than this share of the agreed bound.
LEAST_OF_BOUND = 0.05
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
    cell_counts: IntArray | None = None  # (n_cells,) None before it looked for cells; on the agreed scale, as the rest
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
    steps : mapping of type to function
        The private steps of the aggregator.
    min_report : int, default 1
        Rows that whatever is sent stands for at least, by the noisy counts.
    """

    def __init__(
        self,
        name: str,
        mechanism: Mechanism,
        columns: tuple[str, ...],
        budget: Budget,
        steps: Mapping[type[Any], PrivateStep],
        *,
        min_report: int = 1,
    ) -> None:
        self.name = name
        self.steps = steps
        self.mechanism = mechanism
        self.columns = columns
        self.budget = budget
        self.min_report = min_report
        self.known = Known(n_used=np.zeros(len(KINDS), dtype=np.int64))
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
                return names_alone(self.columns, self.budget)
            if isinstance(message, setup.Describe):
                return self._describe()
            if isinstance(message, setup.Measure) or (isinstance(message, setup.Prepare) and not message.is_plain):
                raise MessageError(f"site {self.name!r} has a privacy budget, which covers no shape of columns.")
            seed = message.seed if self.prepared is None else self.prepared.seed
            rng = np.random.default_rng(stream_of(seed))
            if isinstance(message, setup.Prepare):
                return self._prepare(message)
            return self._holdings(message) if isinstance(message, setup.Attribute) else self._step(message, rng)
        finally:
            self._learn()  # what was released is used, whatever came of it

    def _describe(self) -> setup.Moments:
        """Noisy count, means and scatters; asked again, the same."""
        d = len(self.columns)
        if self.known.means is None:
            agreed = Ball(center=np.full(d, self.budget.center), radius=self.budget.bound)
            self._learn(**moments_of(self.mechanism.moments(agreed), agreed))
        known = self.known
        if not self.is_reported or known.means is None or known.variances is None:
            return self._moments(count=0, means=np.zeros(d), scatters=np.zeros(d))
        scatters = known.count * np.maximum(known.variances, 0.0)
        return self._moments(count=known.count, means=known.means, scatters=scatters)

    def _moments(self, **reported: Any) -> setup.Moments:
        promise: dict[str, Any] = {name: float(getattr(self.budget, name)) for name in setup.BUDGET}
        return setup.Moments(columns=self.columns, **reported, **promise)

    @property
    def is_reported(self) -> bool:
        """Whether there are rows enough to say anything of them, as far as the noise lets the site know."""
        return self.known.count >= self.min_report

    def _step(self, message: Any, rng: np.random.Generator) -> Any:
        return self.steps[type(message)](self, message, rng)

    def _prepare(self, message: setup.Prepare) -> setup.Prepared:
        """Take the agreed scale; phase 1 is left out, so local k is 0. Asked again, the same."""
        if self.prepared is None:
            self._describe()
            self._rescale(message)
            self.prepared = message
        elif pack(self.prepared) != pack(message):
            raise MessageError(f"site {self.name!r} was sent a second Prepare that is not the first.")
        return setup.Prepared(local_k=0 if message.asks_local_k else None)

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
            least = (LEAST_OF_BOUND * self.budget.bound) ** 2 * (1 / message.scales**2).mean()
            radius = REACH * float(np.sqrt(max(variance, least)))
        if not (np.isfinite(center).all() and 0 < radius < np.inf):
            raise MessageError(f"site {self.name!r} was asked for a scale on which its rows are no numbers.")
        self.mechanism.rescale(order, message.means, message.scales)
        self.ball = Ball(center=center, radius=radius)

    def restore(self, known: Known, prepared: setup.Prepare | None) -> None:
        """Go on as if this client had just learned what it kept."""
        self.known = known
        self.mechanism.accountant.n_used = dict(zip(KINDS, known.n_used.tolist(), strict=True))
        if prepared is not None:
            self._rescale(prepared)
            self.prepared = prepared

    def _learn(self, **more: Any) -> None:
        before = {name: getattr(self.known, name) for name in Known.__slots__}
        used = np.array(list(self.mechanism.accountant.n_used.values()), dtype=np.int64)
        self.known = Known(**{**before, **more, "n_used": used})

    def own_cells(self, n_passes: int, rng: np.random.Generator) -> Cells:
        """Cells of the rows, as many as the noise lets stand out; asked again, the same."""
        known = self.known
        if known.cell_counts is None or known.cell_means is None or known.cell_scatters is None:
            cells = self._find_cells(n_passes, rng)
            self._learn(cell_counts=cells.counts, cell_means=cells.means, cell_scatters=cells.scatters)
            return cells
        return Cells(counts=known.cell_counts, means=known.cell_means, scatters=known.cell_scatters)

    def _find_cells(self, n_passes: int, rng: np.random.Generator) -> Cells:
        assert self.ball is not None
        d = len(self.ball.center)
        if not self.is_reported:
            return Cells(counts=np.empty(0, dtype=np.int64), means=np.empty((0, d)), scatters=np.empty(0))
        noise = sum_noise(self.mechanism.accountant.rhos[CELLS], d)
        k = int(np.clip(BLUR * self.known.count / (REACH * noise * sqrt(d)), 1, MOST_CELLS))
        found = find_cells(self.mechanism, self.ball, k, n_passes, self.min_report, rng)
        return scaled_down(found, self.known.count)

    def sums(self, centers: FloatArray, least: int) -> tuple[IntArray, FloatArray]:
        """Counts and sums of the rows by nearest center; zero where the count is lost in noise or too small."""
        assert self.ball is not None
        k, d = centers.shape
        if not self.is_reported:
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
        if self.is_reported:
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
    mechanism = Mechanism(X, Accountant(budget, as_instance(aggregator).private_plan(budget.rounds)))
    return PrivateClient(name, mechanism, columns, budget, aggregator.private_steps, min_report=min_report)


def check_private_form(aggregator: Aggregator | type[Aggregator]) -> None:
    """`DisclosureRefused` for an aggregator that no site takes part in within a privacy budget."""
    if not aggregator.private_steps:
        raise DisclosureRefused(
            f"{aggregator.name} has no private form: within a privacy budget a site takes part in methods that have "
            "one only, as consensus and fedkmeans have."
        )


def names_alone(columns: tuple[str, ...], budget: Budget) -> setup.Sketch:
    """The names of the columns, and that there is a budget: nothing of the rows."""
    nothing = np.zeros(len(columns), dtype=np.int64)
    return setup.Sketch(
        columns=columns,
        count=0,
        available=nothing,
        ends=nothing,
        blocks=np.empty((0, len(columns))),
        epsilon=float(budget.epsilon),
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
