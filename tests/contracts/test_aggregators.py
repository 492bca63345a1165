"""What every aggregator keeps to, with every estimator: it says what it sends, and sends nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from koncord import AFCL, ASM, DPGMM, FFCM, FederatedClustering, FedKMeans, GMeans, KFed, KnownCounts, XMeans
from koncord.aggregate.base import Aggregator, sends_rows
from koncord.aggregate.registry import AGGREGATORS as REGISTERED
from koncord.aggregate.registry import aggregator_named
from koncord.checks.aggregators import AGGREGATOR_CHECKS, check_aggregator, for_clusters
from koncord.checks.failing import sentence_of
from koncord.errors import DisclosureRefused

CENTERS = 10.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
K = len(CENTERS)

# Those with more than one form, and what makes a run of the others short.
FORMS = {
    "fedgem": {
        "fedgem": {"upsilon": 2, "start": "means"},
        "fedgem, upsilon open": {"start": "means"},
        "fedgem, released": {"upsilon": 2, "start": "means", "variant": "released"},
    },
    "ffcm": {"ffcm avg1": {}, "ffcm avg2": {"averaging": "avg2"}},
    "afcl": {"afcl": {"n_rounds": 15}},
}
AGGREGATORS = {
    form: for_clusters(aggregator_named(name)(), K).set_params(**options)
    for name in REGISTERED.own
    for form, options in FORMS.get(name, {name: {}}).items()
}
ESTIMATORS = {
    "asm": ASM(min_mass=20),
    "asm-identity": ASM("identity", min_mass=20),
    "xmeans": XMeans(),
    "gmeans": GMeans(),
    "dpgmm": DPGMM(truncation=10),
    "known counts": KnownCounts(2),
}


def sites(n_each=50, seed=0):
    """Five sites with two of four separated clusters each."""
    rng = np.random.default_rng(seed)
    held = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]
    X = {
        f"s{at}": np.concatenate([rng.normal(CENTERS[k], 1, (n_each, 3)) for k in pair]) for at, pair in enumerate(held)
    }
    y = {f"s{at}": np.repeat(pair, n_each) for at, pair in enumerate(held)}
    return X, y


@pytest.mark.parametrize("check", AGGREGATOR_CHECKS, ids=sentence_of)
@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_aggregator_passes_the_check(name, check):
    check(AGGREGATORS[name])


def test_only_afcl_sends_rows():
    assert [name for name in REGISTERED.own if sends_rows(aggregator_named(name))] == ["afcl"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_any_estimator_works_with_any_aggregator(estimator, aggregator):
    X, y = sites()
    federation = FederatedClustering(
        clone(ESTIMATORS[estimator]), clone(AGGREGATORS[aggregator]), random_state=0, min_report=1, standardize=False
    )
    fitted = federation.fit(X)
    assert fitted.n_clusters_ >= 1
    assert fitted.cluster_centers_.shape == (fitted.n_clusters_, 3)
    assert np.isfinite(fitted.cluster_centers_).all()
    assert [len(labels) for labels in fitted.labels_] == [100] * 5
    assert all(count >= 1 for count in fitted.local_counts_)
    if aggregator != "afcl":
        assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(fitted.labels_)) > 0.5


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "afcl"])  # which has more seeds
def test_separated_clusters_are_found_when_the_local_counts_are_known(name):
    X, y = sites(seed=1)
    fitted = FederatedClustering(
        KnownCounts(2), clone(AGGREGATORS[name]), random_state=1, min_report=1, standardize=False
    ).fit(X)
    assert fitted.n_clusters_ == K
    assert adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate(fitted.labels_)) > 0.99


@pytest.mark.parametrize("name", AGGREGATORS)
def test_one_cluster_over_many_sites_and_one_site_alone_are_possible(name):
    rng = np.random.default_rng(0)
    aggregator = clone(AGGREGATORS[name])
    for parameter, value in {"n_clusters": 1, "n_seeds": 1, "estimate_hyper": False}.items():
        if parameter in aggregator.get_params():
            aggregator.set_params(**{parameter: value})
    tables = [rng.normal(size=(40, 2)) for _ in range(4)]
    assert (
        FederatedClustering(KnownCounts(1), clone(aggregator), random_state=0, min_report=1, standardize=False)
        .fit(tables)
        .n_clusters_
        == 1
    )
    assert (
        FederatedClustering(KnownCounts(1), clone(aggregator), random_state=0, min_report=1, standardize=False)
        .fit(tables[:1])
        .n_clusters_
        == 1
    )


@pytest.mark.parametrize("aggregator", [KFed(), FedKMeans(), FFCM()])
def test_an_aggregator_that_needs_k_says_so_in_one_sentence(aggregator):
    with pytest.raises(ValueError, match=f"'n_clusters' of {type(aggregator).__name__} is missing") as caught:
        FederatedClustering(KnownCounts(2), aggregator, random_state=0, min_report=1, standardize=False).fit(sites()[0])
    assert str(caught.value).count("\n") == 0


def test_the_one_that_discloses_rows_refuses_until_it_is_allowed():
    with pytest.raises(DisclosureRefused, match="allow_disclosure=True"):
        FederatedClustering(KnownCounts(2), AFCL(8), random_state=0, standardize=False).fit(sites()[0])


# --- the checks themselves ---


class Careless(KFed):
    """An aggregator with a parameter that it does not store as given."""

    name = "careless"

    def __init__(self, n_clusters=None):
        super().__init__(n_clusters)
        self.n_clusters = n_clusters or 2


def test_a_check_that_fails_is_named_in_a_sentence():
    with pytest.raises(AssertionError, match="Careless fails the check 'it is made without arguments and cloned"):
        check_aggregator(Careless())


def test_an_aggregator_that_tells_of_few_rows_fails_the_check():
    class Talkative(FFCM):
        """It takes no notice of the floor of the site."""

        client_steps = {  # noqa: RUF012
            asked: ignoring_the_floor(step) for asked, step in FFCM.client_steps.items()
        }

    with pytest.raises(AssertionError, match="Talkative fails the check 'a site with less than its floor"):
        check_aggregator(Talkative())


def ignoring_the_floor(step):
    def careless(local, state, down):
        return step(replace(local, min_report=1), state, down)

    careless.__annotations__ = step.__annotations__
    return careless


@pytest.mark.parametrize("given", ["kfed", KFed, 5])
def test_what_is_no_aggregator_is_refused_before_any_check(given):
    with pytest.raises(TypeError, match="'aggregator' of check_aggregator must be an aggregator"):
        check_aggregator(given)


def test_a_client_step_that_does_not_say_what_it_returns_is_refused_with_its_class():
    def silent(local, state, down):
        return state, None

    with pytest.raises(TypeError, match="The client step 'silent' must say what it returns"):
        type("Silent", (Aggregator,), {"client_steps": {int: silent}})
