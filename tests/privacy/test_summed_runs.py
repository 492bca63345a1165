"""Runs in which the server sees sums over sites only, with the noise of one site."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import FFCM, SPAHM, Consensus, FederatedClustering, FedGEM, FedKMeans, KFed
from koncord.clustering import LOST_IN_SUMS
from koncord.errors import ColumnsDiffer, DisclosureRefused
from koncord.privacy.budget import CELLS, LAST_CELLS, MOMENTS, Accountant, Budget
from koncord.privacy.mechanism import Ball, Mechanism, SummedMechanism
from koncord.privacy.securesums import AddsUpInProcess, least_threshold
from koncord.session.inprocess import summed_in_process
from koncord.session.policy import SitePolicy

CENTERS = 6.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, 0]])
BUDGET = Budget(epsilon=1.0, delta=1e-5, bound=12.0)
GENEROUS = Budget(epsilon=60.0, delta=1e-5, bound=12.0)
BALL = Ball(center=np.zeros(3), radius=12.0)


class NoNoise(Accountant):
    def release(self, kind, values, sensitivity):
        return values


def small_sites(n_sites=16, n_rows=150, seed=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=(n_sites, n_rows))
    return {f"s{at:02}": rng.normal(CENTERS[own], 1) for at, own in enumerate(y)}, y


def summed(tables, accountant):
    members = {name: Mechanism(X, accountant()) for name, X in tables.items()}
    return SummedMechanism(members, AddsUpInProcess(members))


def test_the_summed_release_is_that_of_the_pooled_table_to_the_bit():
    tables, _ = small_sites(5)
    plan = Consensus().private_plan(None)
    pooled = Mechanism(np.concatenate(list(tables.values())), NoNoise(BUDGET, plan))
    together = summed(tables, lambda: NoNoise(BUDGET, plan))
    for mechanism in (pooled, together):
        mechanism.rescale(np.array([2, 0, 1]), np.array([1.0, 0.0, 2.0]), np.array([1.0, 2.0, 1.0]))
    assert np.array_equal(pooled.released_moments(BALL), together.released_moments(BALL))
    assert np.array_equal(pooled.released_cells(CENTERS, BALL, CELLS), together.released_cells(CENTERS, BALL, CELLS))
    assert np.array_equal(pooled.holdings(CENTERS, BALL), together.holdings(CENTERS, BALL))


def test_the_noise_of_the_sum_is_that_of_one_site_and_never_less():
    """Divided over the fewest sites that a sum can have: with all of them there is a little more."""
    n, plan = 6, Consensus().private_plan(None)
    least = least_threshold(n)
    one = Accountant(BUDGET, plan)
    tables = {f"s{at}": np.zeros((1, 3)) for at in range(n)}
    together = summed(tables, lambda: Accountant(BUDGET, plan, n_sharing=least))
    centers = np.random.default_rng(0).normal(0, 100, (400, 3))
    noise = together.released_cells(centers, BALL, LAST_CELLS)[1:].ravel()
    scale = one.scale(LAST_CELLS, 1.0)
    told = together.noise(LAST_CELLS, 1.0)
    assert told == pytest.approx(scale * np.sqrt(n / least))
    sensitivity = told / together.accountant.scale(LAST_CELLS, 1.0) / np.sqrt(n)
    assert sensitivity == pytest.approx(1.0)
    from koncord.privacy.mechanism import sensitivity_of

    assert noise.std() == pytest.approx(told * sensitivity_of(3), rel=0.1)  # six standard errors


def test_what_a_sum_spends_is_what_one_site_would_and_no_more_is_released():
    tables, _ = small_sites(3)
    link = summed_in_process(
        {name: (X, ("x", "y", "z")) for name, X in tables.items()},
        estimator=None,
        aggregator=Consensus(),
        policy=SitePolicy(budget=BUDGET),
    )
    client = link.sites["3 sites together"].private
    client.mechanism.moments(BALL)
    assert 0 < client.epsilon < BUDGET.epsilon
    assert all(member.accountant.n_used[MOMENTS] == 1 for member in client.mechanism.members.values())


@pytest.mark.parametrize(("aggregator", "epsilon"), [(Consensus(), 6.0), (FedKMeans(4, n_rounds=3), 2.0)])
def test_small_sites_find_clusters_together(aggregator, epsilon):
    """Each of 16 sites has 150 rows, which would drown in noise of its own."""
    tables, y = small_sites()
    privacy = Budget(epsilon=epsilon, delta=1e-5, bound=12.0)
    together = FederatedClustering(aggregator=aggregator, random_state=0, privacy=privacy, secure_sums=True).fit(tables)
    assert together.n_clusters_ == 4
    assert adjusted_rand_score(y.ravel(), np.concatenate(together.labels_)) > 0.95
    assert together.model_.sites == ("16 sites together",)
    assert LOST_IN_SUMS in together.model_.diagnostics.notes
    assert together.local_counts_ == [0] * 16
    assert {departure.site for departure in together.ledger_} == {"16 sites together"}


def test_the_report_says_what_is_not_known(tmp_path):
    tables, _ = small_sites(4, 300)
    clustering = FederatedClustering(random_state=0, privacy=GENEROUS, secure_sums=True).fit(tables)
    page = clustering.report(tmp_path / "page.html").read_text()
    assert "4 sites together" in page
    assert "The server saw sums over all sites only" in page


@pytest.mark.parametrize("aggregator", [FedGEM(), KFed(2), FFCM(2), SPAHM()])
def test_a_method_that_needs_answers_of_single_sites_is_refused_by_name(aggregator):
    with pytest.raises(DisclosureRefused, match=f"{aggregator.name} has no private form"):
        FederatedClustering(aggregator=aggregator, privacy=GENEROUS, secure_sums=True).fit(small_sites(3)[0])


def test_other_wrong_calls_are_refused():
    tables, _ = small_sites(3)
    with pytest.raises(ValueError, match="'secure_sums' needs a privacy budget"):
        FederatedClustering(secure_sums=True).fit(tables)
    with pytest.raises(ValueError, match="at least 2 sites"):
        FederatedClustering(secure_sums=True, privacy=GENEROUS).fit({"a": tables["s00"]})
    with pytest.raises(ColumnsDiffer, match="those of site 'b' differ"):
        FederatedClustering(secure_sums=True, privacy=GENEROUS).fit({"a": tables["s00"], "b": tables["s01"][:, :2]})
