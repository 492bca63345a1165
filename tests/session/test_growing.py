"""A site that leaves or comes late: the model is, to the bit, that of a run of the sites that are left."""

import stat

import numpy as np
import pytest

from koncord import AFCL, SPAHM, Consensus, FederatedClustering, FedGEM, KFed, KnownCounts
from koncord.errors import KoncordError
from koncord.privacy.budget import Budget
from koncord.runs.reports import Reports
from koncord.session import growing
from koncord.session.federation import run, run_federation
from koncord.session.inprocess import in_process
from koncord.session.policy import SitePolicy

COLUMNS = ("x", "y", "z")
SEED = 5
# What is known from the rows and not from what sites sent before the end.
COUNTED = {"weights", "holdings", "session"}


def tables(n=150, seed=0):
    """Four clusters over five sites, each site with another mean and another number of rows."""
    rng = np.random.default_rng(seed)
    places = 7.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
    held = {"ada": (0, 1), "bea": (1, 2), "cid": (0, 3), "dan": (2, 3), "eva": (0, 1, 2)}
    return {
        name: (np.concatenate([rng.normal(places[c], 1, (n + 10 * c, 3)) for c in own]) * [1, 100, 0.1], COLUMNS)
        for name, own in held.items()
    }


def result_of(own, aggregator=None, *, standardize=True, agreement=None, budget=None):
    aggregator = Consensus() if aggregator is None else aggregator
    policy = SitePolicy(budget=budget)
    link = in_process(own, estimator=KnownCounts(1), aggregator=aggregator, policy=policy)
    return run(
        link,
        aggregator,
        estimator=KnownCounts(1),
        seed=SEED,
        standardize=standardize,
        site_policy=policy,
        agreement=agreement,
    )


def without(own, *names):
    return {name: table for name, table in own.items() if name not in names}


def plain(own, agreement, asks=(), aggregator=None):
    """The model of a run of these sites on a scale that was given; only some say at the end who holds what."""
    aggregator = Consensus() if aggregator is None else aggregator
    return run_federation(
        in_process(own, estimator=KnownCounts(1), aggregator=aggregator, policy=SitePolicy()),
        aggregator,
        seed=SEED,
        standardize=False,
        settings={"estimator": repr(KnownCounts(1)), "aggregator": repr(aggregator)},
        min_report=SitePolicy.min_report,
        agreement=agreement,
        asks_holdings=asks,
    )


def same_clusters(one, other):
    """Everything but what sites are asked at the end, to the last bit."""
    for name in one.__slots__:
        if name in COUNTED:
            continue
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, dict) and any(isinstance(each, np.ndarray) for each in mine.values()):
            assert mine.keys() == theirs.keys()
            assert all(np.array_equal(mine[key], theirs[key]) for key in mine), name
        else:
            assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs, name


@pytest.mark.parametrize("site", ["ada", "cid", "eva"])
def test_without_a_site_the_model_is_that_of_a_run_without_it_on_the_same_scale(site):
    own = tables()
    first = result_of(own)
    left = growing.without(first, site)
    assert left.model == plain(without(own, site), first.reports.agreement)
    same_clusters(left.model, result_of(without(own, site), agreement=first.reports.agreement).model)
    assert site not in left.model.sites
    assert site not in left.model.components
    assert left.record.forgotten == (site,)
    assert site not in {each.site for each in left.record.departures}


def test_without_standardizing_it_is_the_model_of_any_run_without_the_site():
    own = tables()
    left = growing.without(result_of(own, standardize=False), "bea")
    same_clusters(left.model, result_of(without(own, "bea"), standardize=False).model)


def test_a_late_site_gives_the_model_of_a_run_with_it_on_the_scale_of_those_before():
    own = tables()
    first = result_of(without(own, "dan"))
    late = in_process({"dan": own["dan"]}, estimator=KnownCounts(1), aggregator=Consensus(), policy=SitePolicy())
    more = growing.with_late(first, late)
    assert more.model == plain(own, first.reports.agreement, asks=("dan",))
    same_clusters(more.model, result_of(own, agreement=first.reports.agreement).model)
    assert more.record.added == ("dan",)
    asked = [each.message for each in more.record.departures if each.site == "dan"]
    assert asked == ["Moments", "Prepared", "MicroClusters", "Holdings"]


def test_who_leaves_and_comes_back_changes_nothing():
    own = tables()
    first = result_of(own)
    left = growing.without(growing.without(first, "ada"), "eva")
    for name in ("eva", "ada"):
        late = in_process({name: own[name]}, estimator=KnownCounts(1), aggregator=Consensus(), policy=SitePolicy())
        left = growing.with_late(left, late)
    same_clusters(left.model, first.model)
    assert {site: dict(kept) for site, kept in left.reports.replies.items()} == {
        site: dict(kept) for site, kept in first.reports.replies.items()
    }
    assert left.record.forgotten == ()


def test_the_order_in_which_sites_leave_does_not_matter():
    first = result_of(tables())
    one = growing.without(growing.without(first, "ada"), "dan")
    other = growing.without(growing.without(first, "dan"), "ada")
    assert one.model == other.model


def test_rows_by_cluster_are_those_of_the_micro_clusters():
    left = growing.without(result_of(tables()), "ada").model
    assert left.session.counted_by == "components"
    assert left.holdings.sum() == sum(len(X) for name, (X, _) in tables().items() if name != "ada")
    assert left.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("aggregator", [KFed(4), SPAHM()])
def test_other_methods_that_ask_once_forget_too(aggregator):
    own = tables()
    first = result_of(own, aggregator)
    left = growing.without(first, "bea")
    agreement = first.reports.agreement
    np.testing.assert_array_equal(
        left.model.centers, result_of(without(own, "bea"), aggregator, agreement=agreement).model.centers
    )


@pytest.mark.parametrize("aggregator", [Consensus(n_rounds=2), FedGEM(n_rounds=2), AFCL(6, allow_disclosure=True)])
def test_what_asks_more_than_once_or_sends_rows_keeps_nothing(aggregator):
    own = tables(60)
    policy = SitePolicy(min_report=1)
    link = in_process(own, estimator=KnownCounts(1), aggregator=aggregator, policy=policy)
    result = run(link, aggregator, estimator=KnownCounts(1), seed=0, standardize=True, site_policy=policy)
    assert result.reports is None
    with pytest.raises(KoncordError, match="kept no reports of its sites"):
        growing.without(result, "ada")


def test_sites_with_a_budget_are_asked_more_than_once_so_a_run_is_made_anew():
    own = {name: (X / [10, 1000, 1], columns) for name, (X, columns) in tables(800).items()}
    budget = Budget(epsilon=20.0, delta=1e-5, bound=3.0)
    first = result_of(own, standardize=False, budget=budget)
    with pytest.raises(KoncordError, match="This run had a privacy budget"):
        growing.without(first, "ada")


def test_what_was_asked_otherwise_is_refused():
    first = result_of(tables())
    other = Reports(
        **{
            **{name: getattr(first.reports, name) for name in first.reports.__slots__},
            "parameters": {**first.reports.parameters, "min_report": 40},
        }
    )
    with pytest.raises(KoncordError, match="would have to be asked again"):
        growing.model_of(other)


def test_the_file_is_read_back_and_is_its_owners_alone(tmp_path):
    first = result_of(tables())
    path = tmp_path / "reports.koncord"
    first.reports.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = Reports.load(path)
    assert loaded.sites == first.reports.sites
    assert growing.model_of(loaded.without("cid")) == growing.without(first, "cid").model
    loaded.without("cid").save(path)
    data = path.read_bytes()
    assert b"cid" not in data
    of_others = {reply for site in loaded.without("cid").sites for reply in loaded.replies[site].values()}
    alone = [reply for reply in first.reports.replies["cid"].values() if reply not in of_others]
    assert len(alone) == 2  # all but Prepared, in which it says no more than others do
    assert all(reply not in data for reply in alone)
    assert all(reply in data for reply in first.reports.replies["ada"].values())


def test_a_file_that_is_none_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "reports.koncord"
    with pytest.raises(KoncordError, match="kept no reports of its sites"):
        Reports.load(path)
    path.write_bytes(b"\x00" * 50)
    with pytest.raises(KoncordError, match="does not hold the reports"):
        Reports.load(path)


def test_reports_hold_no_row_and_nothing_of_the_end():
    own = tables()
    reports = result_of(own).reports
    assert {len(kept) for kept in reports.replies.values()} == {3}  # Moments, Prepared, MicroClusters
    for name, (X, _) in own.items():
        kept = b"".join(reports.replies[name].values())
        Z = (X - reports.agreement.means) / reports.agreement.scales
        assert not any(row.tobytes() in kept for row in (*X, *Z))


# --- in one object ---


def test_forget_and_add_in_python():
    own = {name: X for name, (X, _) in tables().items()}
    options = {"standardize": True, "random_state": SEED}
    clustering = FederatedClustering(KnownCounts(1), **options).fit(own)
    before = clustering.model_
    clustering.forget("bea")
    assert clustering.sites_ == ["ada", "cid", "dan", "eva"]
    assert len(clustering.local_counts_) == 4
    assert not hasattr(clustering, "labels_")
    assert clustering.predict(own["bea"]).shape == (len(own["bea"]),)
    np.testing.assert_array_equal(clustering.cluster_centers_, clustering.model_.centers_original)
    clustering.add("bea", own["bea"])
    same_clusters(clustering.model_, before)
    assert clustering.sites_[-1] == "bea"
    with pytest.raises(ValueError, match="'bea' took part"):
        clustering.add("bea", own["bea"])
    with pytest.raises(ValueError, match="'site' must be one of this run, ada, bea, cid, dan, eva; got 'zoe'"):
        clustering.forget("zoe")


def test_the_only_site_cannot_be_forgotten():
    own = {"ada": tables()["ada"]}
    with pytest.raises(ValueError, match="the only site"):
        growing.without(result_of(own), "ada")
