"""Runs in which the server sees sums over sites only, with the noise of one site."""

import json

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import FFCM, SPAHM, Consensus, FederatedClustering, FedGEM, FedKMeans, KFed
from koncord.cli import main
from koncord.errors import BudgetSpent, ColumnsDiffer, DisclosureRefused
from koncord.privacy.budget import CELLS, HOLDINGS, LAST_CELLS, MOMENTS, Accountant, Budget
from koncord.privacy.mechanism import Ball, Mechanism, SummedMechanism, sensitivity_of
from koncord.privacy.securesums import least_threshold
from koncord.session.policy import SitePolicy
from koncord.session.summing import IN_PROCESS, LOST_IN_SUMS, SumsOverLink, run_in_sums, summed_in_process

CENTERS = 6.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, 0]])
BUDGET = Budget(epsilon=1.0, delta=1e-5, bound=12.0)
GENEROUS = Budget(epsilon=60.0, delta=1e-5, bound=12.0)
COLUMNS = ("x", "y", "z")
BALL = Ball(center=np.zeros(3), radius=12.0)


def small_sites(n_sites=16, n_rows=150, seed=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=(n_sites, n_rows))
    return {f"s{at:02}": rng.normal(CENTERS[own], 1) for at, own in enumerate(y)}, y


def summed(tables, budget=BUDGET, aggregator=None):
    """The sites of one process, and the mechanism that asks them for sums."""
    aggregator = aggregator or Consensus()
    rows = {name: (X, COLUMNS) for name, X in tables.items()}
    link = summed_in_process(rows, aggregator=aggregator, policy=SitePolicy(budget=budget))
    sums = SumsOverLink(link, session=IN_PROCESS, seed=0)
    assert sums.open() == COLUMNS
    accountant = Accountant(budget, aggregator.private_plan(None), n_sharing=least_threshold(len(tables)))
    return link, SummedMechanism(3, accountant, len(tables), sums)


def test_the_summed_release_is_that_of_the_pooled_table_to_the_bit(monkeypatch):
    monkeypatch.setattr(Accountant, "release", lambda self, kind, values, sensitivity: values)
    tables, _ = small_sites(5)
    pooled = Mechanism(np.concatenate(list(tables.values())), Accountant(BUDGET, Consensus().private_plan(None)))
    _, together = summed(tables)
    assert np.array_equal(pooled.released_moments(BALL), together.released_moments(BALL))
    assert np.array_equal(pooled.released_cells(CENTERS, BALL, CELLS), together.released_cells(CENTERS, BALL, CELLS))
    assert np.array_equal(pooled.released_products(BALL), together.released_products(BALL))
    assert np.array_equal(pooled.holdings(CENTERS, BALL), together.holdings(CENTERS, BALL))
    _, others = summed(tables)
    assert np.array_equal(pooled.histogram(CENTERS, BALL).counts, others.histogram(CENTERS, BALL).counts)


def test_the_noise_of_the_sum_is_that_of_one_site_and_never_less():
    """Divided over the fewest sites that a sum can have: with all of them there is a little more."""
    n, plan = 6, Consensus().private_plan(None)
    least = least_threshold(n)
    one = Accountant(BUDGET, plan)
    _, together = summed({f"s{at}": np.zeros((1, 3)) for at in range(n)})
    centers = np.random.default_rng(0).normal(0, 100, (400, 3))
    noise = together.released_cells(centers, BALL, LAST_CELLS)[1:].ravel()
    expected = together.noise(LAST_CELLS, 1.0)
    assert expected == pytest.approx(one.scale(LAST_CELLS, 1.0) * np.sqrt(n / least))
    assert noise.std() == pytest.approx(expected * sensitivity_of(3), rel=0.1)  # six standard errors


def test_what_a_sum_spends_is_what_one_site_would_and_no_more_is_released():
    tables, _ = small_sites(3)
    link, together = summed(tables)
    together.moments(BALL)
    spent = {site.private.epsilon for site in link.sites.values()}
    assert spent == {together.accountant.epsilon}
    assert 0 < spent.pop() < BUDGET.epsilon
    assert all(site.private.accountant.n_used[MOMENTS] == 1 for site in link.sites.values())
    with pytest.raises(BudgetSpent, match="nothing left for another release of moments"):
        together.moments(BALL)


def test_a_site_is_left_out_of_the_sums_it_misses_and_comes_back():
    """One of five is away when numbers are asked for, and when the sum is opened; the next sum has it again."""
    tables, _ = small_sites(5, seed=3)
    link, together = summed(tables)
    carry, away = link.carry, {}

    def lossy(exchange, down):
        return carry(exchange, {name: each for name, each in down.items() if name not in away.get(exchange, ())})

    link.carry = lossy
    together.moments(BALL)
    assert together.n_summed == 5
    n = link.n_exchanges
    away |= {n + 1: ("s03",)}  # the numbers of the second sum
    together.cells(CENTERS, BALL)
    assert together.n_summed == 4
    together.cells(CENTERS, BALL)
    assert together.n_summed == 5
    away |= {link.n_exchanges + 3: ("s01",)}  # when it is opened it is in it
    together.cells(CENTERS, BALL)
    assert together.n_summed == 5
    assert {absence.site for absence in link.absences} == {"s01", "s03"}


def test_a_sum_takes_three_exchanges_and_the_first_two_more():
    tables, _ = small_sites(3)
    link, together = summed(tables)
    assert link.n_exchanges == 1
    together.moments(BALL)
    assert link.n_exchanges == 6
    together.cells(CENTERS, BALL)
    assert link.n_exchanges == 9
    together.holdings(CENTERS, BALL)
    assert link.n_exchanges == 12
    assert together.accountant.n_used[HOLDINGS] == 1


def test_what_leaves_a_site_is_the_same_whatever_its_rows_are_but_for_the_masked_numbers():
    """Messages and their sizes: nothing but `Masked` depends on rows, and that is under masks."""
    sizes = []
    for seed in (1, 2):
        link = summed_in_process(
            {name: (X, COLUMNS) for name, X in small_sites(3, 200, seed)[0].items()},
            aggregator=FedKMeans(4, n_rounds=2),
            policy=SitePolicy(budget=GENEROUS),
        )
        run_in_sums(
            link,
            FedKMeans(4, n_rounds=2),
            session=IN_PROCESS,
            policy=SitePolicy(budget=GENEROUS),
            seed=0,
            estimator=None,
        )
        sizes.append([(each.site, each.message) for each in link.departures])
    assert sizes[0] == sizes[1]
    assert {message for _, message in sizes[0]} == {
        *("Sketch", "Prepared", "Holdings", "Ready", "Keys", "Shares", "Masked", "Agreement", "Opening")
    }


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
    assert {departure.site for departure in together.ledger_} == set(tables)


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
    with pytest.raises(ColumnsDiffer, match="The columns of site 'b' are not those of site 'a'"):
        FederatedClustering(secure_sums=True, privacy=GENEROUS).fit({"a": tables["s00"], "b": tables["s01"][:, :2]})


def test_the_command_line_fits_in_sums_and_refuses_what_does_not_go_with_them(tmp_path, capsys):
    tables, _ = small_sites(3, 200)
    for name, X in tables.items():
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header="x,y,z", comments="")
    files = [str(tmp_path / f"{name}.csv") for name in tables]
    budget = ["--epsilon", "60", "--delta", "1e-5", "--bound", "12"]
    method = ["--aggregator", "fedkmeans", "--clusters", "4", "--set", "n_rounds=1"]
    words = ["fit", *files, "--out", str(tmp_path / "run"), "--secure-sums", "--json"]
    assert main([*words, *budget, *method]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["sites"]) == ["3 sites together"]
    assert "which site holds which clusters" in (tmp_path / "run" / "report.html").read_text()
    assert main(words) == 2
    assert "--secure-sums goes with a privacy budget" in capsys.readouterr().err
    assert main([*words, "--force", *budget, "--aggregator", "kfed", "--clusters", "4"]) == 1
    assert "kfed has no private form" in capsys.readouterr().err
