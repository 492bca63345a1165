"""What every aggregator keeps to, with every estimator: it says what it sends, and sends nothing else."""

from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import koncord
from koncord import (
    AFCL,
    ASM,
    DPGMM,
    FFCM,
    SPAHM,
    Consensus,
    FederatedClustering,
    FedGEM,
    FedKMeans,
    GMeans,
    KFed,
    KnownCounts,
    XMeans,
)
from koncord.errors import DisclosureRefused
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session import inprocess

CENTERS = 10.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
K = len(CENTERS)

AGGREGATORS = {
    "fedgem": FedGEM(upsilon=2, start="means"),
    "fedgem, upsilon open": FedGEM(start="means"),
    "fedgem, released": FedGEM(upsilon=2, start="means", variant="released"),
    "kfed": KFed(K),
    "fedkmeans": FedKMeans(K),
    "ffcm avg1": FFCM(K, averaging="avg1"),
    "ffcm avg2": FFCM(K, averaging="avg2"),
    "spahm": SPAHM(),
    "consensus": Consensus(),
    "afcl": AFCL(2 * K, allow_disclosure=True, n_rounds=15),
}
ESTIMATORS = {
    "asm": ASM(min_mass=20),
    "asm-identity": ASM("identity", min_mass=20),
    "xmeans": XMeans(),
    "gmeans": GMeans(),
    "dpgmm": DPGMM(truncation=10),
    "known counts": KnownCounts(2),
}
DISCLOSES_ROWS = {"afcl"}
# Messages that grow with the rows up to a fixed size, which a test of the aggregator holds them to.
GROWS_TO_A_BOUND = {"consensus": "Leaves"}
KEEPS_TO_ROWS = [name for name in AGGREGATORS if name not in DISCLOSES_ROWS]


def sites(n_each=50, seed=0):
    """Five sites with two of four separated clusters each."""
    rng = np.random.default_rng(seed)
    held = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]
    X = {
        f"s{at}": np.concatenate([rng.normal(CENTERS[k], 1, (n_each, 3)) for k in pair]) for at, pair in enumerate(held)
    }
    y = {f"s{at}": np.repeat(pair, n_each) for at, pair in enumerate(held)}
    return X, y


class Recorder(inprocess.InProcess):
    """A link that keeps every reply."""

    seen: list

    def exchange_all(self, asked):
        received = super().exchange_all(asked)
        type(self).seen.extend(item for replies in received for item in replies.items())
        return received


@pytest.fixture
def recorded(monkeypatch):
    """Fit a federation and return the model with every message that left a site."""

    def run(aggregator, X, estimator=None):
        Recorder.seen = []
        monkeypatch.setattr("koncord.clustering.InProcess", Recorder)
        federation = FederatedClustering(estimator or KnownCounts(2), clone(aggregator), random_state=0, min_report=1)
        return federation.fit(X), list(Recorder.seen)

    return run


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_any_estimator_works_with_any_aggregator(estimator, aggregator):
    X, y = sites()
    federation = FederatedClustering(
        clone(ESTIMATORS[estimator]), clone(AGGREGATORS[aggregator]), random_state=0, min_report=1
    )
    fitted = federation.fit(X)
    assert fitted.n_clusters_ >= 1
    assert fitted.cluster_centers_.shape == (fitted.n_clusters_, 3)
    assert np.isfinite(fitted.cluster_centers_).all()
    assert [len(labels) for labels in fitted.labels_] == [100] * 5
    assert all(count >= 1 for count in fitted.local_counts_)
    if aggregator != "afcl":
        assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(fitted.labels_)) > 0.5


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "afcl"])
def test_separated_clusters_are_found_when_the_local_counts_are_known(name):
    X, y = sites(seed=1)
    fitted = FederatedClustering(KnownCounts(2), clone(AGGREGATORS[name]), random_state=1, min_report=1).fit(X)
    assert fitted.n_clusters_ == K
    assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(fitted.labels_)) > 0.99


@pytest.mark.parametrize("name", AGGREGATORS)
def test_an_aggregator_sends_what_it_states_and_nothing_else(name, recorded):
    _, messages = recorded(AGGREGATORS[name], sites()[0])
    stated = {(sent.message, sent.field) for sent in (*AGGREGATORS[name].sends, *setup.SENDS)}
    left = {(type(message).__name__, field.name) for _, message in messages for field in fields(message)}
    assert left <= stated
    unstated_kinds = {sent.message for sent in AGGREGATORS[name].sends} - {
        k.__name__ for k in AGGREGATORS[name].replies
    }
    assert not unstated_kinds


def largest_sizes(messages):
    """Most numbers of every field of every message that left."""
    sizes = {}
    for _, message in messages:
        for field in fields(message):
            key = type(message).__name__, field.name
            sizes[key] = max(sizes.get(key, 0), np.size(getattr(message, field.name)))
    return sizes


@pytest.mark.parametrize("name", AGGREGATORS)
def test_only_fields_that_say_so_grow_with_the_rows(name, recorded):
    X, _ = sites()
    twice = {site: np.concatenate([rows, rows + 1e-3]) for site, rows in X.items()}
    few, many = (largest_sizes(recorded(AGGREGATORS[name], tables)[1]) for tables in (X, twice))
    grown = {key for key in few.keys() & many.keys() if many[key] > few[key]}
    allowed = {(sent.message, sent.field) for sent in AGGREGATORS[name].sends if sent.grows_with_rows}
    assert {(kind, field) for kind, field in grown if kind != GROWS_TO_A_BOUND.get(name)} <= allowed
    assert bool(allowed) == (name in DISCLOSES_ROWS)


@pytest.mark.parametrize("estimator", ["asm", "known counts"])
@pytest.mark.parametrize("name", KEEPS_TO_ROWS)
def test_no_message_holds_a_row_of_the_input(name, estimator, recorded):
    X, _ = sites()
    X["lone"] = np.array([[3.0, 4.0, 5.0]])
    fitted, messages = recorded(AGGREGATORS[name], X, clone(ESTIMATORS[estimator]) if estimator == "asm" else None)
    assert fitted.model_.info["one_row_sites"] == ["lone"]
    for client, message in messages:
        for field in fields(message):
            value = getattr(message, field.name)
            if not isinstance(value, np.ndarray) or value.dtype != float or value.shape[-1:] != (3,):
                continue
            rows = value.reshape(-1, 3)
            is_row = (rows[:, None] == X[client]).all(axis=2).any(axis=1)
            if client == "lone":  # a table of one row is its own mean: the model names such sites
                continue
            assert not is_row.any(), f"{type(message).__name__}.{field.name} of {client} holds a row"


@pytest.mark.parametrize("name", AGGREGATORS)
def test_clients_in_any_order_and_the_same_seed_give_the_same_bits(name):
    X, _ = sites(seed=2)
    turned = {site: X[site] for site in reversed(list(X))}
    one, two = (
        FederatedClustering(KnownCounts(2), clone(AGGREGATORS[name]), random_state=4, min_report=1).fit(t)
        for t in (X, turned)
    )
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_one_cluster_over_many_sites_and_one_site_alone_are_possible(name):
    rng = np.random.default_rng(0)
    aggregator = clone(AGGREGATORS[name])
    for parameter, value in {"n_clusters": 1, "n_seeds": 1, "estimate_hyper": False}.items():
        if parameter in aggregator.get_params():
            aggregator.set_params(**{parameter: value})
    tables = [rng.normal(size=(40, 2)) for _ in range(4)]
    assert (
        FederatedClustering(KnownCounts(1), clone(aggregator), random_state=0, min_report=1).fit(tables).n_clusters_
        == 1
    )
    assert (
        FederatedClustering(KnownCounts(1), clone(aggregator), random_state=0, min_report=1).fit(tables[:1]).n_clusters_
        == 1
    )


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_outcome_can_be_kept(name, tmp_path):
    X, _ = sites()
    fitted = FederatedClustering(KnownCounts(2), clone(AGGREGATORS[name]), random_state=0, min_report=1).fit(X)
    fitted.model_.save(tmp_path / "model")
    loaded = koncord.GlobalModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X["s1"]), fitted.labels_[1])
    assert loaded.info == fitted.model_.info


@pytest.mark.parametrize("aggregator", [KFed(), FedKMeans(), FFCM()])
def test_an_aggregator_that_needs_k_says_so_in_one_sentence(aggregator):
    with pytest.raises(ValueError, match=f"'n_clusters' of {type(aggregator).__name__} is missing") as caught:
        FederatedClustering(KnownCounts(2), aggregator, random_state=0, min_report=1).fit(sites()[0])
    assert str(caught.value).count("\n") == 0


def test_the_one_that_discloses_rows_refuses_until_it_is_allowed():
    with pytest.raises(DisclosureRefused, match="allow_disclosure=True"):
        FederatedClustering(KnownCounts(2), AFCL(8), random_state=0).fit(sites()[0])


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_reply_survives_the_wire(name, recorded):
    _, messages = recorded(AGGREGATORS[name], sites()[0])
    for _, message in messages:
        again, _ = unpack(pack(message), [type(message)])
        for field in fields(message):
            np.testing.assert_array_equal(getattr(again, field.name), getattr(message, field.name))
