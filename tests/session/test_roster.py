"""Sites that come and go: the run goes on without them, says who was missing, and takes them in again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from koncord import AFCL, FFCM, SPAHM, Consensus, FedGEM, FedKMeans, KFed
from koncord.errors import TooFewSites
from koncord.estimate.known import KnownCounts
from koncord.protocol import setup
from koncord.protocol.wire import pack
from koncord.report.federation import notes_of
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried

CENTERS = 20.0 * np.array([[0, 0], [1, 0], [0, 1]])
SITES = ("east", "north", "south", "west")
AGGREGATORS = {
    "fedgem": FedGEM(upsilon=2, n_rounds=3),
    "fedgem, upsilon open": FedGEM(n_rounds=3),
    "fedgem, released": FedGEM(upsilon=2, n_rounds=3, variant="released"),
    "kfed": KFed(3),
    "fedkmeans": FedKMeans(3, n_rounds=3),
    "ffcm avg1": FFCM(3, max_rounds=3),
    "ffcm avg2": FFCM(3, averaging="avg2", max_rounds=3),
    "spahm": SPAHM(),
    "consensus": Consensus(),
    "afcl": AFCL(5, allow_disclosure=True, n_rounds=3),
}


def table(site, n_each=30):
    """Rows of all three clusters, each site its own."""
    rng = np.random.default_rng(SITES.index(site))
    return np.concatenate([rng.normal(center, 1, (n_each, 2)) for center in CENTERS])


def make_site(name, aggregator):
    policy = SitePolicy(min_report=1)
    return Site(name, table(name), ("x", "y"), estimator=KnownCounts(3), aggregator=aggregator, policy=policy)


class Flaky(InProcess):
    """A link that loses chosen (site, exchange) pairs: the message, or with `late` the reply."""

    def __init__(self, aggregator, lost, *, late=False, min_sites=1):
        super().__init__([make_site(name, aggregator) for name in SITES], min_sites=min_sites)
        self.lost, self.late = lost, late

    def carry(self, exchange, down):
        away = {client for client in down if (client, exchange) in self.lost}
        asked = down if self.late else {client: down[client] for client in down if client not in away}
        carried = super().carry(exchange, asked)
        return Carried(
            replies={client: replies for client, replies in carried.replies.items() if client not in away},
            missing=dict.fromkeys(away, "no answer in 1 s"),
        )


def federate(aggregator, lost=(), *, late=False, min_sites=1, standardize=False):
    link = Flaky(aggregator, set(lost), late=late, min_sites=min_sites)
    model = run_federation(link, clone(aggregator), seed=0, standardize=standardize, settings={})
    return model, link


def last_exchange(name):
    return federate(AGGREGATORS[name])[1].n_exchanges


@pytest.mark.parametrize("late", [False, True], ids=["message lost", "reply lost"])
@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_site_missing_from_any_one_exchange_is_left_out_of_it_and_takes_part_again(name, late):
    for exchange in range(1, last_exchange(name) + 1):
        model, link = federate(AGGREGATORS[name], [("north", exchange)], late=late)
        assert [(each["site"], each["exchange"]) for each in model.info["missing"]] == [("north", exchange)]
        assert model.sites == SITES
        assert np.isfinite(model.centers).all()
        if name != "afcl":
            assert model.n_clusters == 3
        replied = {departed.exchange for departed in link.departures if departed.site == "north"}
        assert replied == set(range(1, link.n_exchanges + 1)) - {exchange}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_site_away_until_the_end_is_prepared_then_and_told_its_clusters(name):
    last = last_exchange(name)
    model, link = federate(AGGREGATORS[name], [("north", exchange) for exchange in range(1, last)])
    came = [departed.message for departed in link.departures if departed.site == "north"]
    assert came == ["Moments", "Prepared", "Holdings"]
    assert model.holdings[model.sites.index("north")].sum() == 90
    assert "north" not in model.groups


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_site_that_never_comes_changes_nothing_for_the_others(name):
    aggregator = AGGREGATORS[name]
    model, _ = federate(aggregator, [("west", exchange) for exchange in range(1, 99)])
    alone = InProcess([make_site(site, aggregator) for site in SITES[:3]])
    expected = run_federation(alone, clone(aggregator), seed=0, standardize=False, settings={})
    assert model.sites == SITES[:3]
    np.testing.assert_array_equal(model.centers, expected.centers)
    np.testing.assert_array_equal(model.holdings, expected.holdings)


def test_a_site_missing_at_the_end_has_no_rows_in_the_model_and_a_note_says_why():
    model, link = federate(AGGREGATORS["kfed"], [("south", 3)])
    assert model.holdings.sum(axis=1).tolist() == [90, 90, 0, 90]
    assert model.weights.sum() == pytest.approx(1)
    assert "Site south was missing from exchange 3 (Attribute): no answer in 1 s." in notes_of(model)
    assert [(each.site, each.asked) for each in link.absences] == [("south", "Attribute")]


def test_a_site_that_was_away_at_the_start_is_scaled_as_the_others_are():
    model, link = federate(AGGREGATORS["fedgem"], [("north", 1)], standardize=True)
    others = [table(site) for site in SITES if site != "north"]
    np.testing.assert_allclose(model.means, np.concatenate(others).mean(axis=0))
    np.testing.assert_array_equal(link.sites["north"].X, (table("north") - model.means) / model.scales)


def test_fewer_sites_than_the_run_needs_stop_it_with_a_sentence():
    lost = [("north", 4), ("south", 4)]
    with pytest.raises(TooFewSites, match="2 sites answered exchange 4; the run needs at least 3") as caught:
        federate(AGGREGATORS["fedgem"], lost, min_sites=3)
    assert "north: no answer in 1 s; south: no answer in 1 s" in str(caught.value)
    assert federate(AGGREGATORS["fedgem"], lost, min_sites=2)[0].n_clusters == 3


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(AGGREGATORS)),
    lost=st.sets(st.tuples(st.sampled_from(SITES), st.integers(1, 9)), max_size=12),
    late=st.booleans(),
)
def test_whoever_is_missing_when_the_run_ends_or_says_that_too_few_are_left(name, lost, late):
    gone = [exchange for exchange in range(1, 10) if all((site, exchange) in lost for site in SITES)]
    try:
        model, link = federate(AGGREGATORS[name], lost, late=late)
    except TooFewSites:
        assert gone
        return
    assert np.isfinite(model.centers).all()
    assert model.holdings.sum() == 90 * (4 - len({site for site, exchange in lost if exchange == link.n_exchanges}))
    assert len(model.info["missing"]) == len({pair for pair in lost if pair[1] <= link.n_exchanges} & asked(link))


def asked(link):
    """Who was asked in which exchange: those that replied and those that were noted as missing."""
    return {(each.site, each.exchange) for each in (*link.departures, *link.absences)}


def test_a_site_that_answers_something_else_is_set_aside_and_the_run_goes_on():
    class Strange(Flaky):
        def carry(self, exchange, down):
            carried = super().carry(exchange, down)
            if exchange == 2:
                answer = pack(setup.Prepared(local_k=3), round_=0)
                return Carried(replies={**carried.replies, "west": [answer, answer]})
            return carried

    aggregator = AGGREGATORS["fedgem"]
    link = Strange(aggregator, set())
    model = run_federation(link, clone(aggregator), seed=0, standardize=False, settings={})
    assert model.sites == SITES[:3]
    assert [(each.site, each.exchange) for each in link.absences] == [("west", 2)]
    assert "set aside: a message 'setup.Prepared' came where" in link.absences[0].reason


def test_a_second_preparation_is_answered_alike_and_another_one_is_refused():
    site = make_site("north", FedGEM)
    prepare = setup.Prepare(seed=0, columns=("x", "y"), means=np.zeros(2), scales=np.ones(2))
    assert site.answer(pack(prepare)) == site.answer(pack(prepare))
    other = setup.Prepare(seed=1, columns=("x", "y"), means=np.zeros(2), scales=np.ones(2))
    with pytest.raises(Exception, match="a second Prepare that is not the first"):
        site.answer(pack(other))


def test_the_default_run_takes_fourteen_exchanges():
    _, link = federate(FedGEM())
    assert link.n_exchanges == 14
