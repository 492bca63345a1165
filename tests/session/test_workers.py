"""Sites in worker processes: the same bytes whatever their number, and errors that come home."""

import os
import sys

import numpy as np
import pytest

import koncord
from koncord._jobs import portable
from koncord.aggregate.consensus import mixture
from koncord.aggregate.consensus.mixture import drawn_starts
from koncord.errors import BadReply, KoncordError
from koncord.estimate.known import KnownCounts
from koncord.protocol.partition import rows_of
from koncord.session import workers
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


@pytest.fixture(autouse=True)
def small_tables_pay(monkeypatch):
    monkeypatch.setattr(workers, "LEAST_VALUES", 1)


def tables(n_sites=5):
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 12, (4, 3))
    return {
        f"s{at}": np.concatenate(
            [rng.normal(centers[k], 1, (30 + 10 * at, 3)) for k in rng.choice(4, 2, replace=False)]
        )
        for at in range(n_sites)
    }


@pytest.mark.parametrize("aggregator", [koncord.Consensus(), koncord.FedGEM(), koncord.KFed(4)])
def test_the_number_of_workers_changes_no_bit(aggregator, tmp_path):
    kept = []
    for n_jobs in (None, 1, 2, 3, 17, -1):
        own = koncord.FederatedClustering(aggregator=aggregator, random_state=0, n_jobs=n_jobs).fit(tables())
        own.model_.save(tmp_path / "model")
        sent = [(each.exchange, each.site, each.message, each.n_bytes) for each in own.ledger_]
        kept.append(((tmp_path / "model").read_bytes(), sent, own.local_counts_, [own.tolist() for own in own.labels_]))
    assert all(each == kept[0] for each in kept)


def test_workers_are_started_answer_in_processes_of_their_own_and_end(monkeypatch):
    pids = set()

    class Watched(workers.Workers):
        def __init__(self, sites, n):
            super().__init__(sites, n)
            pids.update(process.pid for process in self.processes)

    monkeypatch.setattr("koncord.session.inprocess.Workers", Watched)
    koncord.FederatedClustering(random_state=0, n_jobs=2).fit(tables())
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture
def looked_at(monkeypatch):
    """Rows of each table that this process has looked at."""
    looked_at = []
    monkeypatch.setattr("koncord.session.site.rows_of", lambda X, least: looked_at.append(len(X)) or rows_of(X, least))
    return looked_at


def test_workers_look_at_the_rows_and_this_process_only_where_it_is_asked_later(looked_at):
    found = koncord.FederatedClustering(random_state=0, n_jobs=2).fit(tables())
    assert not looked_at
    counts = found.local_counts_
    assert len(looked_at) == len(tables())
    assert counts == koncord.FederatedClustering(random_state=0, n_jobs=1).fit(tables()).local_counts_


def test_counts_that_workers_found_are_known_without_a_look_at_the_rows(looked_at):
    found = koncord.FederatedClustering(koncord.ASM(), random_state=0, n_jobs=2).fit(tables())
    counts = found.local_counts_
    assert not looked_at
    assert counts == koncord.FederatedClustering(koncord.ASM(), random_state=0).fit(tables()).local_counts_


def test_clusters_that_run_into_each_other_are_fitted_alike_by_any_number_of_workers(monkeypatch, tmp_path):
    fits = []
    monkeypatch.setattr(mixture, "drawn_starts", lambda *given: fits.append(given) or drawn_starts(*given))
    rng = np.random.default_rng(0)
    overlapping = {f"s{at}": rng.normal(2.5 * rng.integers(0, 2, (400, 1)), 1, (400, 2)) for at in range(4)}
    models = []
    for n_jobs in (1, 2, 3):
        koncord.FederatedClustering(random_state=0, n_jobs=n_jobs).fit(overlapping).model_.save(tmp_path / "model")
        models.append((tmp_path / "model").read_bytes())
    assert len(fits) == 3
    assert models[0] == models[1] == models[2]


def test_small_tables_and_privacy_budgets_start_no_worker(monkeypatch):
    def link(**given):
        rows = {name: (X, ("x", "y", "z")) for name, X in tables().items()}
        return in_process(rows, estimator=KnownCounts(2), aggregator=koncord.Consensus(), n_jobs=4, **given)

    budget = koncord.privacy.Budget(epsilon=2.0, delta=1e-6, bound=30.0)
    assert link(policy=SitePolicy(budget=budget)).n_workers == 1
    assert link().n_workers == 4
    monkeypatch.setattr(workers, "LEAST_VALUES", 10**6)
    assert link().n_workers == 1


class Failing(koncord.ASM):
    def fit(self, X, y=None):
        raise ValueError(f"no luck with {len(X)} rows")


class Dying(koncord.ASM):
    def fit(self, X, y=None):
        os._exit(3)


def test_the_error_of_the_first_site_by_name_comes_home_and_no_worker_stays():
    own = koncord.FederatedClustering(Failing(), random_state=0, local_counts=True, n_jobs=2)
    with pytest.raises(ValueError, match="no luck with 60 rows"):
        own.fit(tables())
    own = koncord.FederatedClustering(Dying(), random_state=0, local_counts=True, n_jobs=2)
    with pytest.raises(KoncordError, match="--jobs 1"):
        own.fit(tables())


def test_an_error_that_does_not_travel_says_the_same():
    error = portable(BadReply("north", "it is no reply"))
    assert isinstance(error, KoncordError)
    assert "it is no reply" in str(error)
    assert isinstance(portable(ValueError("x")), ValueError)


def test_a_wrong_number_of_jobs_is_named():
    with pytest.raises(ValueError, match="'n_jobs'"):
        koncord.FederatedClustering(n_jobs=0).fit(tables())


def test_sites_are_shared_out_by_their_size():
    sites = in_process(
        {name: (X, ("x", "y", "z")) for name, X in tables(6).items()},
        estimator=KnownCounts(2),
        aggregator=koncord.Consensus(),
    ).sites
    shares = workers.shares_of(sites, 2)
    assert sorted(name for share in shares for name in share) == sorted(sites)
    sizes = [sum(sites[name].table.size for name in share) for share in shares]
    assert max(sizes) - min(sizes) <= max(site.table.size for site in sites.values())
