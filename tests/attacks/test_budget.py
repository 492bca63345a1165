"""A coordinator that wants to know whether one row is in the table of a site with a privacy budget."""

import numpy as np
import pytest

from koncord import Consensus, FedKMeans
from koncord.aggregate.consensus.commoncells import CommonCells, CommonProducts, CountCells
from koncord.aggregate.fedkmeans import Begin, Refine
from koncord.errors import BudgetSpent, KoncordError, MessageError
from koncord.privacy.budget import KINDS, Accountant, Budget, rho_of
from koncord.protocol import setup
from koncord.protocol.wire import pack
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

DELTA = 1e-5
N_CONVERSATIONS = 60


class Wire:
    """An accountant that keeps what noise is added to; with `releases`, it answers these whatever the rows are."""

    def __init__(self, accountant, releases=None):
        self.accountant, self.rhos, self.n_used = accountant, accountant.rhos, accountant.n_used
        self.values, self.scales, self.released = [], [], []
        self.releases = None if releases is None else iter(releases)

    @property
    def epsilon(self):
        return self.accountant.epsilon

    def scale(self, kind, sensitivity):
        return self.accountant.scale(kind, sensitivity)

    def release(self, kind, values, sensitivity):
        noisy = self.accountant.release(kind, values, sensitivity)
        self.values.append(values.astype(float))
        self.scales.append(self.scale(kind, sensitivity))
        self.released.append(noisy if self.releases is None else next(self.releases))
        return self.released[-1]


def site_of(X, budget, releases=None, aggregator=None):
    columns = tuple(f"x{at}" for at in range(X.shape[1]))
    policy = SitePolicy(budget=budget, min_report=1)
    site = Site("a", X, columns, estimator=None, aggregator=aggregator or Consensus(), policy=policy)
    wire = Wire(site.private.mechanism.accountant, releases)
    site.private.mechanism.accountant = wire
    return site, wire


def hostile_questions(target, aggregator, rng):
    """More than the method asks, about the target: balls and cells around it, on any scale, in any order."""
    d, k = len(target), int(rng.integers(1, 5))
    columns = tuple(f"x{at}" for at in range(d))
    scales = 10.0 ** rng.uniform(-3, 3, d)
    means = np.where(rng.random(d) < 0.5, target, 0.0)
    there = (target - means) / scales
    centers = there + rng.normal(0, 10.0 ** rng.uniform(-3, 2), (k, d))
    ball = {"ball_center": there * rng.choice([0.0, 1.0, -3.0]), "ball_radius": float(10.0 ** rng.uniform(-6, 4))}
    if aggregator.name == "fedkmeans":
        asked = [Begin(n_clusters=k, local_iters=1, min_count=1)] * 2
        asked += [Refine(centers=centers, local_iters=1, min_count=1, drop_empty=False)] * 3
    else:
        asked = [CommonProducts(**ball)] * 2
        asked += [CountCells(centers=centers, **ball)] * 2
        asked += [CommonCells(centers=centers, is_last=bool(last), **ball) for last in (0, 0, 0, 1, 0, 1, 0)]
    rng.shuffle(asked)
    openings = [setup.Describe(), setup.Prepare(seed=1, columns=columns, means=means, scales=scales)]
    return [*openings, *asked, setup.Attribute(centers=centers)]


def conversation(site, questions):
    """Every question, whatever is refused."""
    n_refused = 0
    for round_, message in enumerate(questions):
        number = 0 if isinstance(message, setup.OPENINGS) else round_
        try:
            site.answer(pack(message, round_=number))
        except (BudgetSpent, MessageError):
            n_refused += 1
    return n_refused


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_whatever_is_asked_about_a_row_costs_no_more_than_the_budget(epsilon, capsys):
    """The exact cost of conversations with two tables, of which one has the row: squared differences over the noise."""
    budget = Budget(epsilon=epsilon, delta=DELTA, bound=5.0)
    ratios, kinds = [], set()
    for seed in range(N_CONVERSATIONS):
        rng = np.random.default_rng([seed, 14])
        d = int(rng.integers(1, 6))
        X = rng.normal(size=(int(rng.integers(1, 60)), d))
        target = rng.normal(size=d) * 10.0 ** rng.uniform(-1, 6)
        aggregator = (Consensus(), FedKMeans(4, n_rounds=3))[seed % 2]
        questions = hostile_questions(target, aggregator, rng)
        site, without = site_of(X, budget, aggregator=aggregator)
        n_refused = conversation(site, questions)
        other, present = site_of(np.vstack([X, target]), budget, without.released, aggregator)
        assert conversation(other, questions) == n_refused  # and what is refused tells nothing
        kinds |= {kind for kind, n in present.n_used.items() if n}
        cost = sum(
            float(((one - two) ** 2).sum()) / (2 * scale**2)
            for one, two, scale in zip(without.values, present.values, without.scales, strict=True)
        )
        ratios.append(cost / rho_of(epsilon, DELTA))
        assert site.private.epsilon <= epsilon
    with capsys.disabled():
        print(
            f"\n{N_CONVERSATIONS} conversations at epsilon {epsilon:g}: "
            f"the largest cost is {max(ratios):.6f} of the budget"
        )
    assert max(ratios) <= 1.0
    assert kinds == set(KINDS)


def test_no_order_of_questions_gets_passes_and_counts_of_one_budget():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    ball = {"ball_center": np.zeros(3), "ball_radius": 5.0}
    cells = CommonCells(centers=np.eye(3), is_last=False, **ball)
    counts = CountCells(centers=np.eye(3), **ball)
    columns = ("x0", "x1", "x2")
    for first, second in ((cells, counts), (counts, cells)):
        site, _ = site_of(X, Budget(epsilon=1.0, delta=DELTA, bound=5.0))
        site.answer(pack(setup.Prepare(seed=1, columns=columns, means=np.zeros(3), scales=np.ones(3))))
        site.answer(pack(first, round_=1))
        spent = site.private.epsilon
        with pytest.raises(BudgetSpent):
            site.answer(pack(second, round_=2))
        assert site.private.epsilon == spent


def test_a_restarted_site_does_not_forget_that_counts_took_the_place_of_passes():
    X = np.random.default_rng(0).normal(size=(300, 3))
    budget = Budget(epsilon=1.0, delta=DELTA, bound=5.0)
    prepare = setup.Prepare(seed=1, columns=("x0", "x1", "x2"), means=np.zeros(3), scales=np.ones(3))
    site, _ = site_of(X, budget)
    site.answer(pack(prepare))
    site.answer(pack(CountCells(centers=np.eye(3), ball_center=np.zeros(3), ball_radius=5.0), round_=1))
    other, _ = site_of(X, budget)
    other.private.mechanism.accountant = Accountant(budget, Consensus().private_plan(None))
    other.private.restore(site.private.known, prepare)
    other.prepared = other.private.prepared
    assert other.private.epsilon == site.private.epsilon
    with pytest.raises(KoncordError, match="nothing left for another release of cells"):
        other.answer(
            pack(CommonCells(centers=np.eye(3), ball_center=np.zeros(3), ball_radius=5.0, is_last=False), round_=2)
        )
