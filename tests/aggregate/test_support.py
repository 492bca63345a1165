from dataclasses import replace

import numpy as np
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FederatedClustering, KnownCounts
from koncord.aggregate.consensus.microclusters import MicroClusters, micro_clusters_of
from koncord.aggregate.consensus.support import weak_clusters, with_micro_clusters, without_excess
from koncord.protocol.setup import Moments
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.site import Site

CENTERS = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])


def table(held, seed=0, n_each=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(CENTERS[k], 1, (n_each, 3)) for k in held]), np.repeat(held, n_each)


class Liar(Site):
    """Keeps to the protocol and tells what `lie` makes of a reply."""

    lie = staticmethod(lambda reply: reply)

    def _reply(self, message, round_):
        return self.lie(super()._reply(message, round_))


def far_micro_clusters(reply):
    """As of rows that are far away: the moments are of the same rows, so they add up."""
    return replace(reply, means=reply.means + 100.0) if isinstance(reply, MicroClusters | Moments) else reply


def federation(lie, min_support):
    """Ten sites of which one lies; the model, and the ARI of the rows of the others."""
    aggregator = Consensus(min_support=min_support)
    tables = {f"s{at}": table([at % 4, (at + 1) % 4, (at + 2) % 4], seed=at) for at in range(10)}
    sites = [
        (Liar if name == "s9" else Site)(name, X, ("a", "b", "c"), estimator=KnownCounts(1), aggregator=aggregator)
        for name, (X, _) in tables.items()
    ]
    sites[-1].lie = lie
    model = run_federation(
        InProcess(sites), aggregator, seed=0, standardize=False, settings={}, min_support=min_support
    )
    rows = [model.plan.apply(site.table, site.columns, centers=model.centers) for site in sites[:-1]]
    labels = model.assign(np.concatenate(rows))
    return model, adjusted_rand_score(np.concatenate([y for name, (_, y) in tables.items() if name != "s9"]), labels)


# --- laws ---


def test_no_client_counts_for_more_rows_than_as_many_clients_have():
    reports = {name: micro_clusters_of(table([at])[0], 20) for at, name in enumerate("abc")}
    reports["c"] = replace(reports["c"], counts=reports["c"].counts * 1000, scatters=reports["c"].scatters * 1000)
    fair = without_excess(reports, 2)
    assert fair["a"] is reports["a"]
    next_largest = max(reports["a"].counts.sum(), reports["b"].counts.sum())
    assert 0.9 * next_largest <= fair["c"].counts.sum() <= next_largest
    np.testing.assert_allclose(fair["c"].variances, reports["c"].variances)


def test_sites_of_like_size_and_a_single_site_count_for_all_they_have():
    reports = {name: micro_clusters_of(table([at])[0], 20) for at, name in enumerate("abc")}
    assert without_excess(reports, 3) == reports
    assert without_excess({"a": reports["a"]}, 2) == {"a": reports["a"]}


def test_a_cluster_is_weak_if_fewer_clients_have_micro_clusters_in_it():
    labels, clients = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 2, 2, 0])
    assert weak_clusters(labels, clients, 2).tolist() == [False, True, True]
    assert weak_clusters(labels, clients, 1).tolist() == [False, False, False]


def test_what_is_believed_of_a_client_takes_its_share_of_the_spread():
    micro = micro_clusters_of(table([0, 1, 2])[0], 20)
    first = np.arange(len(micro)) == 0
    kept = with_micro_clusters({"a": micro}, {"a": first})["a"]
    assert len(kept) == 1
    np.testing.assert_allclose(kept.spread, micro.spread * micro.counts[0] / micro.counts.sum())
    nothing = with_micro_clusters({"a": micro}, {"a": first & False})["a"]
    assert len(nothing) == 0
    assert not nothing.spread.any()


# --- one site of ten lies ---


def test_with_a_support_of_two_one_lying_site_changes_nothing_for_the_others():
    model, ari = federation(far_micro_clusters, min_support=2)
    assert model.n_clusters == 4
    assert ari == 1.0


def test_without_it_the_three_clusters_that_one_lying_site_makes_up_are_found():
    model, _ = federation(far_micro_clusters, min_support=1)
    assert model.n_clusters == 4 + 3
    assert (model.centers.min(axis=1) > 90).sum() == 3


def test_micro_clusters_that_were_set_aside_are_said_and_support_no_cluster():
    model, _ = federation(far_micro_clusters, min_support=2)
    assert set(model.excluded) == {"s9"}
    assert model.excluded["s9"].all()
    assert not len(model.members["s9"])
    assert "of s9" in " ".join(model.diagnostics.notes)
    assert min(model.session.support) >= 2


def test_a_cluster_that_one_site_alone_holds_is_found_unless_support_is_asked_for():
    tables = {f"s{at}": table([0, 1], seed=at)[0] for at in range(4)} | {"alone": table([0, 3], seed=9)[0]}
    given = {"estimator": KnownCounts(1), "random_state": 0}
    assert FederatedClustering(aggregator=Consensus(), **given, standardize=False).fit(tables).n_clusters_ == 3
    assert (
        FederatedClustering(aggregator=Consensus(min_support=2), **given, standardize=False).fit(tables).n_clusters_
        == 2
    )


def test_where_no_two_sites_agree_the_first_choice_stands():
    tables = {f"s{at}": table([at], seed=at)[0] for at in range(4)}
    fitted = FederatedClustering(
        KnownCounts(1), Consensus(min_support=2), random_state=0, min_support=2, standardize=False
    ).fit(tables)
    assert fitted.n_clusters_ == 4
    assert fitted.model_.info["weak_clusters"] == [0, 1, 2, 3]
