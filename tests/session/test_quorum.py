"""The quorum of a run in which some exchanges ask some sites only: the others count as they last answered."""

import numpy as np
import pytest

from koncord import Consensus, KnownCounts
from koncord.errors import TooFewSites
from koncord.privacy.budget import Budget
from koncord.session.federation import run_federation
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried

CENTERS = 6.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
BUDGET = Budget(epsilon=60.0, delta=1e-5, bound=12.0)
PRIVATE, PLAIN = "north", ("south", "west")


class Watched(InProcess):
    """A link that keeps who was asked, and from an exchange on hears nothing of the sites that are `lost`."""

    def __init__(self, *, min_sites, lost=(), lost_from=1, journal=None):
        super().__init__([make_site(name) for name in (PRIVATE, *PLAIN)], min_sites=min_sites, journal=journal)
        self.lost, self.lost_from, self.asked = set(lost), lost_from, []

    def carry(self, exchange, down):
        self.asked.append(set(down))
        away = self.lost & set(down) if exchange >= self.lost_from else set()
        carried = super().carry(exchange, {site: messages for site, messages in down.items() if site not in away})
        return Carried(replies=carried.replies, missing=dict.fromkeys(away, "no answer in 1 s"))

    def federate(self):
        return run_federation(self, Consensus(), seed=1, standardize=False, settings={})


def make_site(name):
    rng = np.random.default_rng(sum(name.encode()))
    rows = np.concatenate([rng.normal(center, 1, (100, 3)) for center in CENTERS])
    policy = SitePolicy(budget=BUDGET if name == PRIVATE else None)
    return Site(name, rows, ("x", "y", "z"), estimator=KnownCounts(3), aggregator=Consensus(), policy=policy)


@pytest.fixture(scope="module")
def whole():
    """A run of all sites, and its model."""
    link = Watched(min_sites=3)
    return link, link.federate()


@pytest.fixture(scope="module")
def alone(whole):
    """The first exchange that asks the site with a budget only."""
    return whole[0].asked.index({PRIVATE}) + 1


def test_a_run_that_asks_one_of_three_sites_in_some_exchanges_has_its_quorum_of_three(whole):
    link, model = whole
    assert {PRIVATE} in link.asked
    assert model.sites == (PRIVATE, *PLAIN)
    assert not model.info["missing"]
    assert model.n_clusters == 3


def test_a_site_that_did_not_answer_does_not_count_where_it_is_not_asked(alone):
    link = Watched(min_sites=3, lost=["west"], lost_from=alone - 1)
    with pytest.raises(TooFewSites, match=rf"^2 sites answered exchange {alone - 1}; the run needs at least 3 .*west"):
        link.federate()
    link = Watched(min_sites=2, lost=["west"], lost_from=alone - 1)
    assert {each["site"] for each in link.federate().info["missing"]} == {"west"}


def test_the_one_site_that_is_asked_counts_by_what_it_answers_now(alone):
    with pytest.raises(TooFewSites, match=rf"^2 sites answered exchange {alone}; .*north: no answer"):
        Watched(min_sites=3, lost=[PRIVATE], lost_from=alone).federate()
