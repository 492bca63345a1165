"""The privacy budget of a site and what was spent of it: the only place that knows OpenDP.

A release adds Gaussian noise to whole numbers. OpenDP draws it, from the generator of the operating system, and its
privacy maps say what it costs in zero-concentrated differential privacy (rho, Bun and Steinke, 2016). The costs of
releases that were chosen one after the other add up, and OpenDP turns their sum into (epsilon, delta).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from koncord._extras import require
from koncord._validation import check_count, check_number
from koncord.errors import BudgetSpent
from koncord.types import IntArray

# Kinds of releases, and how the budget is shared: a release of each kind costs in these proportions.
MOMENTS, CELLS, ROUND, HOLDINGS = "moments", "cells", "round", "holdings"
SHARES = {MOMENTS: 3.0, CELLS: 5.0, ROUND: 4.0, HOLDINGS: 1.0}
# Releases in which a site looks for the cells that describe its rows.
N_PASSES = 3
# Taken off what may be spent, so that no sum of rounded numbers exceeds it.
COST_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A promise for everything one site sends in one run, for adding or removing any one row of its table.

    Parameters
    ----------
    epsilon, delta : float
        Of differential privacy.
    bound : float
        Radius of the ball that rows are clipped to, in the units of the table; agreed before anyone looks at rows.
    center : float, default 0.0
        Of that ball, the same number in every column.
    rounds : int or None, default None
        Rounds of sums that the budget is divided over; None takes as many as the aggregator asks for.
    """

    epsilon: float
    delta: float
    bound: float
    center: float = 0.0
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, owner=self, least=0, above=True)
        check_number("delta", self.delta, owner=self, least=0, above=True)
        if self.delta >= 1:
            raise ValueError(f"'delta' of Budget must be below 1; got {self.delta!r}.")
        check_number("bound", self.bound, owner=self, least=0, above=True)
        check_number("center", self.center, owner=self, least=-np.inf)
        if self.rounds is not None:
            check_count("rounds", self.rounds, owner=self, least=0)
        require("privacy", "A privacy budget")

    def as_dict(self) -> dict[str, Any]:
        """The budget for a reader, as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Accountant:
    """Divides a budget over the releases of one run, draws their noise, and refuses when they are used up."""

    def __init__(self, budget: Budget, *, n_rounds: int) -> None:
        self.budget = budget
        self.n_allowed = {MOMENTS: 1, CELLS: N_PASSES, ROUND: n_rounds, HOLDINGS: 1}
        whole = sum(SHARES[kind] * n for kind, n in self.n_allowed.items())
        total = rho_of(budget.epsilon, budget.delta) * (1 - COST_ROUNDING)
        self.rhos = {kind: total * share / whole for kind, share in SHARES.items()}
        self.n_used = dict.fromkeys(SHARES, 0)

    def scale(self, kind: str, sensitivity: float) -> float:
        """Standard deviation of the noise of a release of this kind."""
        return sensitivity / sqrt(2 * self.rhos[kind]) * (1 + COST_ROUNDING)

    def release(self, kind: str, values: IntArray, sensitivity: float) -> IntArray:
        """`values` with noise, where a row adds a vector no longer than `sensitivity` to them."""
        if self.n_used[kind] >= self.n_allowed[kind]:
            raise BudgetSpent(
                f"of its budget (epsilon {self.budget.epsilon:g}, delta {self.budget.delta:g}) this site has nothing "
                f"left for another release of {kind}: {self.n_allowed[kind]} were agreed."
            )
        measurement = gaussian(self.scale(kind, sensitivity))
        assert measurement.map(sensitivity) <= self.rhos[kind]
        self.n_used[kind] += 1
        noisy: IntArray = np.array(measurement(values.tolist()), dtype=np.int64)
        return noisy

    @property
    def epsilon(self) -> float:
        """What all releases so far cost together, at the delta of the budget."""
        spent = [self.rhos[kind] for kind, n in self.n_used.items() for _ in range(n)]
        return epsilon_of(spent, self.budget.delta)


@lru_cache
def rho_of(epsilon: float, delta: float) -> float:
    """The largest cost that still keeps the promise."""
    dp = opendp()

    def converted(scale: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian(scale)), delta=delta)

    scale = dp.binary_search_param(converted, d_in=1.0, d_out=(float(epsilon), float(delta)))
    return float(gaussian(scale).map(1.0))


def epsilon_of_runs(epsilons: Sequence[float], delta: float) -> float:
    """Epsilon of several runs together, each of which keeps its own at the same delta.

    It grows about with the root of their number, and the delta is that of all runs together.
    """
    return epsilon_of([rho_of(epsilon, delta) for epsilon in epsilons], delta)


def epsilon_of(rhos: Sequence[float], delta: float) -> float:
    """Epsilon of releases with these costs, each chosen after those before it were seen."""
    if not rhos:
        return 0.0
    dp = opendp()
    composed = dp.c.make_adaptive_composition(
        *vectors(), output_measure=dp.zero_concentrated_divergence(), d_in=1.0, d_mids=list(rhos)
    )
    return float(dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(composed), delta=delta).map(1.0)[0])


@lru_cache
def gaussian(scale: float) -> Any:
    """OpenDP's measurement that adds discrete Gaussian noise to a vector of whole numbers."""
    return opendp().m.make_gaussian(*vectors(), scale=scale)


def vectors() -> tuple[Any, Any]:
    """Vectors of whole numbers, and the Euclidean distance between them."""
    dp = opendp()
    return dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)


def opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp
