"""Sites with a privacy budget: what a row can change, what it costs, and that nothing else micro-clusters."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta
from sklearn.metrics import adjusted_rand_score

from koncord import AFCL, ASM, FFCM, SPAHM, Consensus, FederatedClustering, FedGEM, FedKMeans, KFed, KnownCounts
from koncord.aggregate import fedkmeans
from koncord.aggregate.base import Described
from koncord.aggregate.consensus.commoncells import CellSums, CommonCells, NoisyGaussian, Search, as_micro_clusters
from koncord.aggregate.fedkmeans import N_PASSES
from koncord.aggregate.private import Known, apportioned
from koncord.cli import main
from koncord.errors import BudgetSpent, DisclosureRefused, KoncordError, MessageError, MissingExtra
from koncord.privacy.budget import (
    CELLS,
    HISTOGRAM,
    HOLDINGS,
    KINDS,
    LAST_CELLS,
    MOMENTS,
    PRODUCTS,
    ROUND,
    STEPS,
    Accountant,
    Budget,
    Plan,
    delta_of,
    epsilon_of,
    gaussian,
    opendp,
    rho_of,
)
from koncord.privacy.cells import Cells, at_most, scaled_down
from koncord.privacy.mechanism import (
    PRODUCT_STEPS,
    Ball,
    Mechanism,
    clipped,
    nearest_whole,
    product_sensitivity,
    sensitivity_of,
    whole,
)
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger, ledger_file, read_ledger
from koncord.protocol.wire import pack, unpack
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site

BUDGET = Budget(epsilon=2.0, delta=1e-5, bound=12.0)
GENEROUS = Budget(epsilon=60.0, delta=1e-5, bound=12.0)
PROMISE = {"epsilon": 60.0, "delta": 1e-5, "bound": 12.0, "center": 0.0}
CENTERS = 6.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, 0]])
HELD = {"a": (0, 1), "b": (1, 2), "c": (2, 3), "d": (0, 3)}


def plan(n_rounds):
    return FedKMeans(3).private_plan(n_rounds)


class Exact:
    """An accountant that adds nothing, to see what a release is about."""

    def scale(self, kind, sensitivity):
        return 1.0

    def release(self, kind, values, sensitivity):
        self.values, self.sensitivity = values, sensitivity
        return values


class Playback:
    """An accountant that answers what another one did, whatever the rows are."""

    def __init__(self, accountant, releases):
        self.scale, self.n_used, self.rhos = accountant.scale, accountant.n_used, accountant.rhos
        self.releases = iter(releases)

    def release(self, kind, values, sensitivity):
        return next(self.releases)


def blobs(n=300):
    rng = np.random.default_rng(0)
    labels = {name: np.repeat(held, n) for name, held in HELD.items()}
    return {name: rng.normal(CENTERS[y], 1) for name, y in labels.items()}, labels


def private_site(X, aggregator=None, budget=BUDGET, ledger=None, **options):
    columns = tuple(f"x{at}" for at in range(X.shape[1]))
    policy = SitePolicy(budget=budget, **options)
    aggregator = aggregator or Consensus()
    return Site("a", X, columns, estimator=ASM(), aggregator=aggregator, policy=policy, ledger=ledger)


def refine(centers):
    return fedkmeans.Refine(centers=centers, local_iters=1, min_count=1, drop_empty=False)


def prepare(n_features):
    columns = tuple(f"x{at}" for at in range(n_features))
    return setup.Prepare(seed=7, columns=columns, means=np.zeros(n_features), scales=np.ones(n_features))


# --- what one row can change ---

numbers = st.floats(-1e6, 1e6) | st.floats(-2, 2) | st.sampled_from([0.0, 1e150, -1e150])


@st.composite
def tables(draw):
    n, d, k = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    X = draw(arrays(float, (n, d), elements=numbers))
    centers = draw(arrays(float, (k, d), elements=numbers))
    ball = Ball(center=draw(arrays(float, d, elements=st.floats(-3, 3))), radius=draw(st.floats(1e-3, 1e3)))
    return X, centers, ball


@settings(max_examples=100, deadline=None)
@given(tables(), st.sampled_from(["moments", "products", "cells", "histogram", "holdings"]))
def test_a_row_changes_a_release_by_no_more_than_its_noise_is_made_for(drawn, what):
    X, centers, ball = drawn
    asked = (ball,) if what in ("moments", "products") else (centers, ball)

    def released(rows):
        exact = Exact()
        getattr(Mechanism(rows, exact), what)(*asked)
        return exact.values, exact.sensitivity

    values, sensitivity = released(X)
    for at in range(len(X)):
        without, _ = released(np.delete(X, at, axis=0))
        # In whole numbers, so that the comparison itself does not round.
        assert sum(int(each) ** 2 for each in values - without) <= sensitivity**2


@pytest.mark.parametrize("d", [1, 3, 50])
def test_the_bound_on_a_row_is_reached(d):
    ball = Ball(center=np.zeros(d), radius=2.0)
    exact = Exact()
    Mechanism(np.eye(d)[:1] * 100.0, exact).cells(np.zeros((1, d)), ball)
    assert np.linalg.norm(exact.values) == pytest.approx(exact.sensitivity, rel=1e-4)
    assert exact.sensitivity == sensitivity_of(d)


@pytest.mark.parametrize("d", [1, 2, 40])
def test_products_are_those_of_the_clipped_rows_and_their_bound_is_reached(d):
    rng = np.random.default_rng(d)
    X, ball = rng.normal(size=(60, d)), Ball(center=np.full(d, 0.2), radius=1.0)
    gaps = X - ball.center
    gaps *= np.minimum(1.0, ball.radius / np.linalg.norm(gaps, axis=1))[:, None]
    exact = Exact()
    found = Mechanism(X, exact).products(ball)
    np.testing.assert_allclose(found.products, gaps.T @ gaps, atol=60 * 3 / PRODUCT_STEPS)
    Mechanism(100.0 * np.eye(d)[:1], exact).products(Ball(center=np.zeros(d), radius=1.0))
    assert np.linalg.norm(exact.values) == exact.sensitivity == product_sensitivity()
    alike = Exact()
    Mechanism(np.ones((1, d)), alike).products(Ball(center=np.zeros(d), radius=1.0))
    assert 0.98 < np.linalg.norm(alike.values) / alike.sensitivity <= 1.0  # however a row lies, no noise is wasted


@settings(max_examples=60, deadline=None)
@given(tables())
def test_what_is_computed_of_a_row_does_not_depend_on_the_others(drawn):
    X, centers, ball = drawn
    rows = whole(X, ball)
    short, labels = clipped(rows), nearest_whole(rows, whole(centers, ball))
    for at in range(len(X)):
        own = whole(X[at : at + 1], ball)
        assert np.array_equal(clipped(own)[0], short[at])
        assert nearest_whole(own, whole(centers, ball))[0] == labels[at]
    assert ((short**2).sum(axis=1) <= STEPS**2).all()


def test_without_noise_the_sums_are_those_of_the_clipped_rows():
    rng = np.random.default_rng(1)
    X, centers = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    ball = Ball(center=np.full(3, 0.1), radius=1.5)
    gaps = X - ball.center
    gaps *= np.minimum(1.0, ball.radius / np.linalg.norm(gaps, axis=1))[:, None]
    labels = np.linalg.norm(X[:, None] - centers, axis=2).argmin(axis=1)
    found = Mechanism(X, Exact()).cells(centers, ball)
    for cell in range(4):
        own = gaps[labels == cell]
        assert found.counts[cell] == pytest.approx(len(own))
        np.testing.assert_allclose(found.sums[cell], own.sum(axis=0), atol=1e-2)
        assert found.squares[cell, 0] == pytest.approx((own**2).sum(), abs=1e-2)


# --- what it costs ---


def test_the_accountant_adds_up_to_the_budget_and_opendp_finds_no_less_noise_needed():
    accountant = Accountant(BUDGET, plan(3))
    assert accountant.epsilon == 0.0
    dp = opendp()
    made, before = [], 0.0
    for kind, n in ((MOMENTS, 1), (CELLS, N_PASSES), (ROUND, 3), (HOLDINGS, 1)):
        for _ in range(n):
            accountant.release(kind, np.zeros(2, dtype=np.int64), 3.0)
            made.append(gaussian(accountant.scale(kind, 3.0)))
            assert accountant.epsilon >= before
            before = accountant.epsilon
    composed = dp.c.make_composition(made)
    rho = composed.map(3.0)
    assert rho == pytest.approx(rho_of(BUDGET.epsilon, BUDGET.delta), rel=1e-6)
    # By way of zero-concentrated privacy alone the same noise promises less: 6 to 9 % more noise would be needed.
    by_zcdp = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(composed), delta=BUDGET.delta).map(3.0)[0]
    assert BUDGET.epsilon * 1.05 < by_zcdp < BUDGET.epsilon * 1.1
    assert accountant.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert accountant.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize(("epsilon", "mu"), [(0.5, 0.5), (1.0, 0.3), (2.0, 1.0), (4.0, 0.9)])
def test_delta_of_gaussian_noise_is_the_integral_of_what_one_row_may_change(epsilon, mu):
    """Slow twin: delta is the largest difference of probabilities, one times e^epsilon, over all sets of outcomes."""
    at = np.linspace(-12, 12 + mu, 2_000_001)
    step = at[1] - at[0]
    ours, theirs = (np.exp(-((at - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (mu, 0.0))
    expected = np.maximum(ours - np.exp(epsilon) * theirs, 0).sum() * step
    assert delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-5, abs=1e-14)


def test_discrete_noise_keeps_the_promise_of_the_formula():
    """The discrete Gaussian itself, summed up: its delta is that of the formula, but for what is set aside for it."""
    epsilon, mu = 1.0, 0.4
    sensitivity = STEPS // 10
    scale = sensitivity / mu
    at = np.arange(-int(12 * scale), int(12 * scale) + sensitivity)
    ours, theirs = (np.exp(-((at - shift) ** 2) / (2 * scale**2)) for shift in (sensitivity, 0))
    delta = np.maximum(ours - np.exp(epsilon) * theirs, 0).sum() / np.exp(-(at**2) / (2 * scale**2)).sum()
    assert delta == pytest.approx(delta_of(epsilon, mu), rel=1e-6)


@pytest.mark.parametrize("aggregator", [Consensus(), FedKMeans(3)])
def test_no_noise_is_so_small_that_whole_numbers_matter(aggregator):
    accountant = Accountant(Budget(epsilon=50.0, delta=1e-3, bound=1.0), aggregator.private_plan(None))
    for kind in accountant.rhos:
        assert accountant.scale(kind, STEPS) > STEPS / 10


def test_more_epsilon_or_more_delta_allows_more():
    rho = rho_of(2.0, 1e-5)
    assert rho_of(60.0, 1e-5) > rho > rho_of(2.0, 1e-7)
    assert epsilon_of([rho], 1e-5) <= 2.0 + 1e-12
    assert epsilon_of([rho] * 2, 1e-5) > 2.0


def test_the_noise_is_as_large_as_the_accountant_says_and_differs_from_draw_to_draw():
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-6, bound=1.0), plan(0))
    noise = accountant.release(MOMENTS, np.zeros(3000, dtype=np.int64), 1000.0)
    scale = 1000.0 / np.sqrt(2 * accountant.rhos[MOMENTS])
    assert noise.std() == pytest.approx(scale, rel=0.1)  # seven standard errors
    assert abs(noise.mean()) < 0.1 * scale
    other = Accountant(accountant.budget, plan(0)).release(MOMENTS, np.zeros(3000, dtype=np.int64), 1000.0)
    assert (noise != other).mean() > 0.9


COPIES = """
import os
from koncord.privacy.budget import gaussian
noise = gaussian(1e6)
noise([0] * 4)  # what was drawn before the copies were made must not matter
for _ in range(3):
    if os.fork() == 0:
        print(noise([0] * 4), flush=True)
        os._exit(0)
    os.wait()
"""


def test_copies_of_a_process_draw_other_noise():
    """Over a network every message is answered by a copy of one process."""
    done = subprocess.run([sys.executable, "-c", COPIES], capture_output=True, text=True, check=True, timeout=60)
    assert len(set(done.stdout.splitlines())) == 3


def lower_bound(ours, theirs, delta):
    """Epsilon that two samples of a statistic show at least, with confidence 0.9999, by the best of some thresholds."""
    n, best = len(ours), 0.0
    for threshold in np.quantile(np.concatenate([ours, theirs]), np.linspace(0.05, 0.95, 19)):
        above, below = (ours > threshold).sum(), (theirs > threshold).sum()
        least = beta.ppf(1e-5, above, n - above + 1) if above else 0.0
        most = beta.ppf(1 - 1e-5, below + 1, n - below) if below < n else 1.0
        if least > delta:
            best = max(best, np.log((least - delta) / most))
    return best


def test_two_tables_that_differ_by_a_row_look_no_more_different_than_promised():
    ball = Ball(center=np.zeros(1), radius=1.0)
    budget = Budget(epsilon=6.0, delta=1e-5, bound=1.0)
    near, far = np.zeros((3, 1)), np.array([[0.0], [0.0], [0.0], [1.0]])

    def statistics(X, n=1500):
        values = []
        for _ in range(n):
            found = Mechanism(X, Accountant(budget, plan(0))).moments(ball)
            values.append(found.counts[0] + found.sums[0, 0] + 0.5 * found.squares[0, 0])  # along the difference
        return np.array(values)

    accountant = Accountant(budget, plan(0))
    promised = epsilon_of([accountant.rhos[MOMENTS]], budget.delta)
    ours, theirs = statistics(far), statistics(near)
    shown = lower_bound(ours, theirs, budget.delta)
    assert 0 < shown < promised
    # An eighth of the noise would be found out.
    assert lower_bound(*((each - each.mean()) / 8 + each.mean() for each in (ours, theirs)), budget.delta) > promised


# --- nothing else micro-clusters ---


@pytest.mark.parametrize("aggregator", [Consensus(), FedKMeans(4, n_rounds=3)])
def test_every_message_is_made_of_releases_alone(aggregator, monkeypatch):
    """Other rows, the same releases: the same bytes."""
    X, _ = blobs(100)
    columns = ("x", "y", "z")

    def sites(tables):
        return [
            Site(name, rows, columns, estimator=ASM(), aggregator=aggregator, policy=SitePolicy(budget=GENEROUS))
            for name, rows in tables.items()
        ]

    released = {name: [] for name in X}
    first = sites(X)
    for site in first:
        accountant = site.private.mechanism.accountant
        monkeypatch.setattr(accountant, "release", kept(accountant.release, released[site.name]))
    model, traffic = recorded(first, aggregator)
    others = sites({name: np.random.default_rng(5).normal(50, 9, (7, 3)) for name in X})
    for site in others:
        mechanism = site.private.mechanism
        mechanism.accountant = Playback(mechanism.accountant, released[site.name])
    again, repeated = recorded(others, aggregator)
    assert traffic == repeated
    assert np.array_equal(model.centers, again.centers)


def kept(release, into):
    def releasing(*args):
        into.append(release(*args))
        return into[-1]

    return releasing


def recorded(sites, aggregator):
    traffic = []

    class Recorded(InProcess):
        def carry(self, exchange, down):
            carried = super().carry(exchange, down)
            traffic.append(dict(carried.replies))
            return carried

    return run_federation(Recorded(sites), aggregator, seed=3, standardize=False, settings={}), traffic


def test_asked_again_for_what_may_be_lost_a_site_says_the_same_and_spends_nothing():
    site = private_site(blobs(100)[0]["a"])
    said = site.answer(pack(setup.Describe()))
    spent = site.private.epsilon
    assert site.answer(pack(setup.Describe())) == said
    prepared = site.answer(pack(prepare(3)))
    assert site.answer(pack(prepare(3))) == prepared
    assert site.private.epsilon == spent > 0
    with pytest.raises(MessageError, match="second Prepare"):
        site.answer(pack(setup.Prepare(seed=8, columns=("x0", "x1", "x2"), means=np.zeros(3), scales=np.ones(3))))


def test_a_site_refuses_more_rounds_than_its_budget_was_divided_over(tmp_path):
    ledger = Ledger(ledger_file(tmp_path, "a"), run="r", site="a")
    site = private_site(blobs(100)[0]["a"], FedKMeans(3, n_rounds=4), replace(BUDGET, rounds=2), ledger=ledger)
    site.answer(pack(prepare(3)))
    for round_ in (1, 2):
        site.answer(pack(refine(CENTERS), round_=round_))
    spent = site.private.epsilon
    with pytest.raises(BudgetSpent, match="nothing left for another release of round: 2 were agreed"):
        site.answer(pack(refine(CENTERS), round_=3))
    assert site.private.epsilon == spent < BUDGET.epsilon
    site.answer(pack(setup.Attribute(centers=CENTERS), round_=4))
    assert spent < site.private.epsilon <= BUDGET.epsilon
    lines = read_ledger(ledger.path)
    sent = ["setup.Prepared", *["fedkmeans.LocalMeans"] * 2, "refusal", "setup.Holdings"]
    assert [line.message for line in lines] == sent
    assert [line.epsilon for line in lines] == sorted(line.epsilon for line in lines)
    assert lines[-1].epsilon == site.private.epsilon


def test_a_restarted_site_goes_on_with_what_it_knew_and_what_it_had_spent():
    X = blobs(100)[0]["a"]
    site = private_site(X)
    site.answer(pack(prepare(3)))
    site.answer(pack(common(is_last=False), round_=1))
    known, _ = unpack(pack(site.private.known), (Known,))
    other = private_site(X)
    other.private.restore(known, prepare(3))
    assert other.private.epsilon == site.private.epsilon
    other.prepared = other.private.prepared
    assert other.private.known.n_used.tolist() == [1, 0, 1, 0, 0, 0, 0]
    for round_ in (2, 3, 4):
        other.answer(pack(common(is_last=False), round_=round_))
    with pytest.raises(BudgetSpent, match="release of cells: 4 were agreed"):
        other.answer(pack(common(is_last=False), round_=5))


def test_a_histogram_costs_what_the_passes_do_and_is_made_instead_of_them():
    rules = Consensus().private_plan(None)
    counts, passes = Accountant(BUDGET, rules), Accountant(BUDGET, rules)
    counts.release(HISTOGRAM, np.zeros(3, dtype=np.int64), 1.0)
    for kind in (*[CELLS] * 4, LAST_CELLS):
        passes.release(kind, np.zeros(3, dtype=np.int64), 1.0)
    assert counts.epsilon == pytest.approx(passes.epsilon, rel=1e-9)
    # Four releases and one have the information of a single one with the noise of all: variances add by their inverse.
    precision = sum(passes.scale(kind, 1.0) ** -2 for kind in (*[CELLS] * 4, LAST_CELLS))
    assert counts.scale(HISTOGRAM, 1.0) == pytest.approx(precision**-0.5)
    assert counts.scale(HISTOGRAM, 1.0) < passes.scale(LAST_CELLS, 1.0)
    for spent, kind in ((counts, CELLS), (counts, LAST_CELLS), (counts, HISTOGRAM), (passes, HISTOGRAM)):
        with pytest.raises(BudgetSpent, match=f"nothing left for another release of {kind}"):
            spent.release(kind, np.zeros(3, dtype=np.int64), 1.0)
    for rest in (MOMENTS, PRODUCTS, HOLDINGS):
        counts.release(rest, np.zeros(3, dtype=np.int64), 1.0)
    assert counts.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-3)
    with pytest.raises(BudgetSpent, match="histogram: 0 were agreed"):
        Accountant(BUDGET, plan(3)).release(HISTOGRAM, np.zeros(3, dtype=np.int64), 1.0)


def common(*, is_last, centers=CENTERS, radius=20.0):
    return CommonCells(centers=centers, ball_center=np.zeros(3), ball_radius=radius, is_last=is_last)


def test_common_cells_are_the_sums_of_the_clipped_rows_with_the_noise_that_is_reported():
    X = blobs(3000)[0]["a"]
    site = private_site(X, budget=GENEROUS)
    site.answer(pack(prepare(3)))
    first, last = (
        unpack(site.answer(pack(common(is_last=is_last), round_=1 + is_last)), (CellSums,))[0]
        for is_last in (False, True)
    )
    assert last.noise < 0.5 * first.noise  # most of the budget is on the last pass
    labels = ((X[:, None] - CENTERS) ** 2).sum(axis=2).argmin(axis=1)
    for told in (first, last):
        sums = np.array([X[labels == at].sum(axis=0) for at in range(4)])
        assert np.abs(told.sums - sums).max() < 5 * told.noise + len(X) * 20 / STEPS
        squares = [(X[labels == at] ** 2).sum() for at in range(4)]
        assert np.abs(told.squares - squares).max() < 5 * 2 * 20 * told.noise + len(X) * 2 * 20**2 * 4 / STEPS
        assert np.abs(told.counts - np.bincount(labels, minlength=4)).max() < 5 * told.noise / 20 * 3**0.25
    small = private_site(np.zeros((3, 3)), budget=GENEROUS, min_report=100)
    small.answer(pack(prepare(3)))
    nothing, _ = unpack(small.answer(pack(common(is_last=True), round_=1)), (CellSums,))
    assert not nothing.counts.any()
    assert nothing.noise == 0.0


def test_a_site_without_a_budget_is_not_asked_for_common_cells():
    X = blobs(100)[0]["a"]
    site = Site("a", X, ("x0", "x1", "x2"), estimator=ASM(), aggregator=Consensus())
    site.answer(pack(prepare(3)))
    with pytest.raises(MessageError, match="which its method does not ask for"):
        site.answer(pack(common(is_last=False), round_=1))


def test_a_site_of_few_rows_reports_nothing_and_a_row_does_not_decide_that():
    site = private_site(np.zeros((3, 3)), budget=GENEROUS, min_report=100)
    moments, _ = unpack(site.answer(pack(setup.Describe())), (setup.Moments,))
    assert moments.count == 0
    assert not moments.means.any()
    prepared, _ = unpack(site.answer(pack(prepare(3))), (setup.Prepared,))
    assert prepared.local_k == 0
    holdings, _ = unpack(site.answer(pack(setup.Attribute(centers=CENTERS), round_=1)), (setup.Holdings,))
    assert not holdings.counts.any()


@settings(max_examples=60, deadline=None)
@given(arrays(np.int64, st.integers(1, 6), elements=st.integers(-50, 200)), st.integers(0, 500))
def test_noisy_counts_are_made_whole_and_fit_the_number_of_rows(counts, total):
    whole_counts = apportioned(counts, total)
    assert whole_counts.sum() == total
    assert (whole_counts >= 0).all()
    positive = np.maximum(counts, 0)
    assert at_most(positive, total).sum() <= total
    assert (at_most(positive, total) <= positive).all()


def test_cells_become_micro_clusters_that_keep_counts_means_and_scatter():
    cells = Cells(counts=np.array([95, 10, 41]), means=CENTERS[:3], scatters=np.array([9.5, 1.0, 8.2]))
    micro = as_micro_clusters(cells)
    assert micro.counts.tolist() == [95, 10, 41]
    assert micro.means.tolist() == CENTERS[:3].tolist()
    assert micro.spread.sum() == pytest.approx(9.5 + 1.0 + 8.2)
    assert scaled_down(cells, 73).counts.tolist() == [47, 5, 20]


# --- what it is good for ---


@pytest.mark.parametrize("aggregator", [Consensus(), FedKMeans(4, n_rounds=3)])
def test_separated_clusters_are_found_with_much_epsilon(aggregator):
    X, y = blobs()
    found = FederatedClustering(aggregator=aggregator, random_state=0, privacy=GENEROUS).fit(X)
    assert found.n_clusters_ == 4
    assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(found.labels_)) > 0.99
    assert found.model_.info["privacy"] == dict.fromkeys(X, PROMISE)
    assert found.model_.holdings.sum() == pytest.approx(2400, abs=100)


def test_clusters_are_found_where_no_site_could_tell_them_from_its_noise():
    """Each of 40 sites has 60 rows: in its own noise they drown, in that of the sums they do not."""
    rng = np.random.default_rng(4)
    y = rng.integers(4, size=(40, 60))
    X = {f"s{at:02}": rng.normal(CENTERS[own], 1) for at, own in enumerate(y)}
    privacy = Budget(epsilon=3.0, delta=1e-5, bound=12.0)
    clustering = FederatedClustering(aggregator=Consensus(), random_state=0, privacy=privacy)
    runs = []
    for _ in range(3):  # noise is not seeded: 79 of 82 runs found four, so the middle one of three is asked for
        found = clustering.fit(X)
        runs.append((found.n_clusters_, adjusted_rand_score(y.ravel(), np.concatenate(found.labels_))))
    assert sorted(k for k, _ in runs)[1] == 4
    assert sorted(score for _, score in runs)[1] > 0.95
    with suppress(KoncordError):  # no cell stands out from the noise
        assert clustering.fit({"s00": X["s00"]}).n_clusters_ < 4


def test_sites_without_a_budget_report_as_ever_beside_those_with_one():
    """North holds clusters that only sites with a budget have besides it, and the other way round."""
    X, y = blobs(400)
    aggregator = Consensus()
    policies = {name: SitePolicy(budget=GENEROUS if name in "ab" else None) for name in X}
    sites = [
        Site(name, rows, ("x", "y", "z"), estimator=KnownCounts(2), aggregator=aggregator, policy=policies[name])
        for name, rows in X.items()
    ]
    link = InProcess(sites)
    model = run_federation(link, aggregator, seed=1, standardize=False, settings={})
    assert model.n_clusters == 4
    sent = {site: [each.message for each in link.departures if each.site == site] for site in X}
    assert sent["a"] == ["Moments", "Prepared", "ProductSums", *["CellSums"] * 5, "Holdings"]
    assert sent["c"] == ["Moments", "Prepared", "MicroClusters", "Holdings"]
    assert set(model.groups) == {"c", "d"}
    labels = np.concatenate([model.predict(rows) for rows in X.values()])
    assert adjusted_rand_score(np.concatenate(list(y.values())), labels) > 0.99


def test_one_cluster_is_a_possible_answer():
    rng = np.random.default_rng(2)
    X = {name: rng.normal(0, 1, (400, 8)) for name in "abc"}
    privacy = Budget(epsilon=8.0, delta=1e-5, bound=6.0)
    clustering = FederatedClustering(aggregator=Consensus(), random_state=0, privacy=privacy)
    assert np.median([clustering.fit(X).n_clusters_ for _ in range(3)]) == 1  # one run in a hundred finds more


@pytest.mark.parametrize("d", [6, 12])
def test_one_long_cloud_is_one_cluster(d):
    """The covariance of the cells alone is too round: a long cloud was 16 to 30 clusters in most runs."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(d, d)) * np.array([8.0, 6.0, 5.0, 4.0, 3.0, 2.0, *[1.0] * (d - 6)])
    X = {name: rng.normal(size=(1000, d)) @ root.T / np.sqrt(d) for name in "abcdefgh"}
    privacy = Budget(epsilon=4.0, delta=1e-5, bound=40.0)
    clustering = FederatedClustering(aggregator=Consensus(), random_state=0, privacy=privacy)
    assert np.median([clustering.fit(X).n_clusters_ for _ in range(3)]) == 1


def test_where_some_sites_have_a_budget_the_null_model_has_the_covariance_of_all_rows(monkeypatch):
    """With that of cells and micro-clusters, one long cloud was 9 to 50 clusters in 17 of 48 such runs."""
    rng = np.random.default_rng(5)
    root = np.array([8.0, 3.0, 1.0, 1.0, 1.0, 0.5])[:, None] * np.linalg.qr(rng.normal(size=(6, 6)))[0]
    X = [rng.normal(size=(1000, 6)) @ root for _ in range(4)]
    policies = [SitePolicy(budget=replace(GENEROUS, bound=40.0) if at < 2 else None) for at in range(4)]
    seen, found = [], []
    through = NoisyGaussian.through
    monkeypatch.setattr(NoisyGaussian, "through", lambda *given: seen.append(given[3]) or through(*given))
    for seed in range(7):  # noise has no seed: 4 of 80 such runs found more than one cluster
        given = {"estimator": KnownCounts(1), "aggregator": Consensus()}
        sites = [Site(f"s{at}", X[at], tuple("abcdef"), policy=policies[at], **given) for at in range(4)]
        found.append(
            run_federation(InProcess(sites), Consensus(), seed=seed, standardize=False, settings={}).n_clusters
        )
    covariance = np.cov(np.concatenate(X), rowvar=False)
    for search in seen:
        np.testing.assert_allclose(
            search.spectrum.root.T @ search.spectrum.root, covariance, atol=0.05 * covariance.max()
        )
    assert len(seen) >= 7
    assert np.median(found) == 1


def in_a_plane(seed, n_sites=5, n_rows=1000, d=21):
    """Three clusters in a plane of the columns; along all other axes there is noise alone."""
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(rng.normal(size=(d, 2)))[0]
    corners = 3.5 * np.array([[0.0, 2.0], [1.8, -1.0], [-1.8, -1.0]])
    y = rng.integers(3, size=(n_sites, n_rows))
    return {f"s{at}": rng.normal(size=(n_rows, d)) + corners[own] @ plane.T for at, own in enumerate(y)}, y


@pytest.mark.parametrize("seed", [0, 1])
def test_clusters_in_a_plane_of_many_columns_are_found_with_a_small_epsilon(seed):
    X, y = in_a_plane(seed)
    privacy = Budget(epsilon=1.0, delta=1e-5, bound=12.0)
    clustering = FederatedClustering(aggregator=Consensus(), random_state=seed, privacy=privacy).fit(X)
    assert clustering.n_clusters_ == 3
    assert adjusted_rand_score(y.ravel(), np.concatenate(clustering.labels_)) > 0.9
    assert clustering.model_.diagnostics.choice.chosen.hierarchy == "mixture"


def test_columns_are_matched_by_name_and_the_agreed_scale_is_taken():
    X = np.random.default_rng(0).normal([3.0, -1.0, 2.0], 1, (2000, 3))
    site = private_site(X, FedKMeans(2), GENEROUS)
    message = setup.Prepare(
        seed=0, columns=("x2", "x0", "x1"), means=np.array([2.0, 3.0, -1.0]), scales=np.array([2.0, 1.0, 1.0])
    )
    site.answer(pack(message))
    centers = np.array([[0.0, 0.0, 0.0], [90.0, 0.0, 0.0]])
    told, _ = unpack(site.answer(pack(refine(centers), round_=1)), (fedkmeans.LocalMeans,))
    assert told.counts[0] == pytest.approx(2000, abs=40)
    np.testing.assert_allclose(told.centers[0], 0.0, atol=0.2)


# --- refusals ---


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"bound": -1.0}, "bound"),
        ({"bound": None}, "bound"),
        ({"center": float("inf")}, "center"),
        ({"rounds": -1}, "rounds"),
    ],
)
def test_a_budget_that_promises_nothing_is_refused(given, named):
    with pytest.raises((ValueError, TypeError), match=f"'{named}' of Budget"):
        Budget(**{"epsilon": 1.0, "delta": 1e-5, "bound": 1.0, **given})


def test_a_budget_without_a_bound_or_delta_is_no_call():
    with pytest.raises(TypeError, match=r"delta.*bound"):
        Budget(epsilon=1.0)


@pytest.mark.parametrize("aggregator", [FedGEM(), KFed(2), FFCM(2), SPAHM(), AFCL(2, allow_disclosure=True)])
def test_an_aggregator_without_a_private_form_is_refused(aggregator):
    with pytest.raises(DisclosureRefused, match=f"{aggregator.name} has no private form: .* consensus and fedkmeans"):
        private_site(np.zeros((5, 2)), aggregator, min_report=1)


def test_a_scale_from_the_rows_is_refused():
    with pytest.raises(ValueError, match="'standardize' of FederatedClustering must be False"):
        FederatedClustering(aggregator=Consensus(), standardize=True, privacy=BUDGET).fit(blobs(30)[0])


def test_rounds_are_those_of_the_aggregator_unless_the_budget_says():
    assert FedKMeans(3, n_rounds=5).private_plan(None).times[ROUND] == 4
    assert ROUND not in Consensus().private_plan(None).times
    assert Plan(shares={MOMENTS: 1.0, LAST_CELLS: 3.0}, times={MOMENTS: 1}).cost_shares() == {MOMENTS: 1.0}
    assert set(Accountant(BUDGET, Consensus().private_plan(None)).n_used) == set(KINDS)
    own = private_site(np.zeros((5, 2)), FedKMeans(3), Budget(epsilon=1.0, delta=1e-5, bound=1.0, rounds=7))
    assert own.private.mechanism.accountant.n_allowed[ROUND] == 7


def test_without_opendp_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(MissingExtra, match=r"\[privacy\]"):
        Budget(epsilon=1.0, delta=1e-5, bound=1.0)


# --- on the command line ---


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _ = blobs()
    for name, rows in X.items():
        np.savetxt(f"{name}.csv", rows, delimiter=",", header="x,y,z", comments="")
    return [f"{name}.csv" for name in X]


def test_fit_tells_the_promise_in_its_text_its_record_and_its_ledger(files, tmp_path, capsys):
    budget = ["--epsilon", "60", "--delta", "1e-5", "--bound", "12"]
    call = ["fit", *files, "--out", "run", "--aggregator", "consensus", "--ledger", "led", *budget]
    assert main(call) == 0
    shown = capsys.readouterr().out
    assert "K = 4" in shown
    assert "differentially private (epsilon 60, delta 1e-05, rows clipped to 12)" in shown
    assert "not standardized" in shown
    assert "differentially private" in (tmp_path / "run" / "report.html").read_text()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["options"] == {"--epsilon": 60.0, "--delta": 1e-5, "--bound": 12.0}
    entries = read_ledger(ledger_file(tmp_path / "led", "a"))
    assert 0 < entries[0].epsilon < entries[-1].epsilon <= 60
    assert main(["ledger", "led"]) == 0
    assert "epsilon 60 spent in run" in capsys.readouterr().out


def test_the_ledger_adds_up_what_the_runs_of_a_site_spent(tmp_path, capsys):
    for run in ("one", "two"):
        ledger = Ledger(ledger_file(tmp_path, "a"), run=run, site="a")
        site = private_site(blobs(30)[0]["a"], ledger=ledger)
        site.answer(pack(setup.Describe()))
        site.answer(pack(prepare(3)))
    own = site.private.epsilon
    assert main(["ledger", str(tmp_path)]) == 0
    assert f", epsilon {own:.4g} spent in run two, {2 * own:.4g} in its 2 runs together" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["a"]["epsilon"] == {"one": own, "two": own}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", "1", "--delta", "1e-5"], "--bound not given"),
        (["--epsilon", "1", "--bound", "2"], "--delta not given"),
        (["--bound", "2"], "--epsilon and --delta not given"),
        (["--epsilon", "0", "--delta", "1e-5", "--bound", "2"], "'epsilon' of Budget"),
    ],
)
def test_half_a_budget_is_a_wrong_call(files, options, said, capsys):
    assert main(["fit", *files, "--out", "run", "--aggregator", "consensus", *options]) == 2
    assert said in capsys.readouterr().err


def test_fit_refuses_a_budget_for_an_aggregator_without_a_private_form(files, capsys):
    call = [
        "fit",
        *files,
        "--out",
        "run",
        "--aggregator",
        "fedgem",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--bound",
        "2",
    ]
    assert main(call) == 1
    assert "fedgem has no private form" in capsys.readouterr().err


def test_known_counts_are_not_used(files):
    """Phase 1 is left out: a private site says nothing of local k."""
    X, _ = blobs(100)
    found = FederatedClustering(KnownCounts(2), Consensus(), random_state=0, privacy=GENEROUS, min_report=1).fit(X)
    assert set(found.local_counts_) == {0}


def test_a_ball_of_cells_has_a_radius_even_where_noise_left_no_variance():
    described = Described(count=100, means=np.zeros(3), variances=np.zeros(3), bound=20.0, epsilon=1.0, delta=1e-6)
    search = Search.of({"a": described, "b": replace(described, bound=40.0)}, Consensus().private_plan(None))
    assert search.ball.radius == pytest.approx(2 * 0.05 * 20)  # two root mean squared distances of the least spread
    assert search.deviations == pytest.approx(np.full(3, np.sqrt(1 / 3)))
    wide = replace(described, variances=np.full(3, 4.0))
    assert Search.of({"a": wide}, Consensus().private_plan(None)).deviations == pytest.approx(np.full(3, 2.0))
