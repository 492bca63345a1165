"""The floor and the support of a run have one owner, the run, and one default, whatever starts it."""

import argparse

import numpy as np
import pytest

from koncord import AFCL, Consensus, FederatedClustering, FedGEM, FedKMeans, GlobalModel, KnownCounts
from koncord.cli import demo, fit, join, run_
from koncord.cli.options import site_policy_of
from koncord.errors import DisclosureRefused, KoncordError
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord.session.inprocess import in_process
from koncord.session.policy import ServerPolicy, SitePolicy
from koncord.session.site import Site

CENTERS = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])


def table(held, seed=0):
    """Rows of some clusters; `held` gives how many of each."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(CENTERS[k], 1, (n, 3)) for k, n in held.items()])


def tables():
    """Three sites; the last has seven rows of the cluster that the others hold most of."""
    return {"a": table({0: 60, 1: 60}, 1), "b": table({0: 60, 1: 60}, 2), "c": table({0: 60, 1: 7}, 3)}


def with_a_lone_cluster():
    """Four sites, the last of which alone holds a cluster."""
    return {f"s{at}": table({0: 60, 1: 60}, at) for at in range(3)} | {"s3": table({0: 60, 1: 60, 3: 60}, 9)}


def small(counts):
    return {int(n) for n in np.ravel(counts) if 0 < n < 20}


# --- the floor ---


def parsed(command, *words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args([command.NAME, *words])


def default_of(command):
    words = {"fit": ["a.csv", "--out", "x"], "join": ["--invite", "i", "--data", "a.csv"]}[command.NAME]
    return parsed(command, *words).min_report


def test_every_way_in_has_the_same_floor():
    X = np.zeros((30, 2))
    alone = Site("a", X, ("x", "y"), estimator=KnownCounts(1), aggregator=Consensus())
    (made,) = in_process({"a": (X, ("x", "y"))}, estimator=KnownCounts(1), aggregator=Consensus()).sites.values()
    assert [
        SitePolicy().min_report,
        SitePolicy.min_report,
        FederatedClustering(standardize=False).min_report,
        alone.min_report,
        made.min_report,
        default_of(fit),
        default_of(join),
        Consensus().micro_rows,
    ] == [DEFAULT_MIN_REPORT] * 8
    assert DEFAULT_MIN_REPORT == 20


def test_every_way_in_has_the_same_defaults():
    site, server = SitePolicy(), ServerPolicy()
    for command, words in ((fit, ["a.csv", "--out", "x"]), (join, ["--invite", "i", "--data", "a.csv"])):
        assert site_policy_of(parsed(command, *words)) == site
    given = parsed(run_, "--out", "x")
    run_.fill_usual(given)
    assert run_.server_policy_of(given) == server
    assert (
        parsed(fit, "a.csv", "--out", "x").min_support
        == FederatedClustering(standardize=False).min_support
        == server.min_support
    )


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (SitePolicy, {"min_report": 0}, "'min_report' of SitePolicy must be at least 1"),
        (SitePolicy, {"max_runs": 0}, "'max_runs' of SitePolicy must be at least 1"),
        (SitePolicy, {"max_rounds": 0}, "'max_rounds' of SitePolicy must be at least 1"),
        (ServerPolicy, {"min_sites": 0}, "'min_sites' of ServerPolicy must be at least 1"),
        (ServerPolicy, {"round_timeout": 0}, "'round_timeout' of ServerPolicy must be a finite number greater than 0"),
        (ServerPolicy, {"wait": float("inf")}, "'wait' of ServerPolicy must be a finite number greater than 0"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_where_it_is_made(kind, given, said):
    with pytest.raises(ValueError, match=said):
        kind(**given)


@pytest.mark.parametrize("aggregator", [Consensus(), FedGEM(upsilon=2), FedKMeans(2)])
def test_a_model_tells_no_count_of_few_rows_unless_asked_to(aggregator):
    X = tables()
    model = FederatedClustering(KnownCounts(2), aggregator, random_state=0, standardize=False).fit(X).model_
    assert not small(model.holdings)
    assert model.info["min_report"] == 20
    assert model.holdings.sum(axis=1).tolist() == [120, 120, 67]  # the seven go with the most
    assert model.info["withheld"] == {}
    exact = FederatedClustering(KnownCounts(2), aggregator, random_state=0, min_report=1, standardize=False).fit(X)
    assert sorted(exact.model_.holdings.sum(axis=1)) == [67, 120, 120]
    assert small(exact.model_.holdings) == {7}
    assert exact.model_.info["withheld"] == {}


def test_the_files_of_a_run_tell_no_count_of_few_rows_unless_asked_to(tmp_path, run):
    for name, X in tables().items():
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header="x,y,z", comments="")
    files = sorted(tmp_path.glob("*.csv"))
    assert run("fit", *files, "--no-standardize", "--out", tmp_path / "floor")[0] == 0
    assert run("fit", *files, "--no-standardize", "--out", tmp_path / "exact", "--min-report", 1)[0] == 0
    floor, exact = (GlobalModel.load(tmp_path / name / "model.koncord") for name in ("floor", "exact"))
    assert not small(floor.holdings)
    assert small(exact.holdings) == {7}
    np.testing.assert_allclose(floor.centers, exact.centers, atol=0.2)  # rows far from all others are moved
    lines = [(tmp_path / name / "labels" / "c.csv").read_text() for name in ("floor", "exact")]
    assert [line.split(",")[1] for line in lines[0].split()] == [line.split(",")[1] for line in lines[1].split()]
    assert lines[0].count("\n") == 68


def test_the_demonstration_has_the_floor(tmp_path, run):
    assert run(demo.NAME, "--out", tmp_path / "demo")[0] == 0
    assert GlobalModel.load(tmp_path / "demo" / "model.koncord").info["min_report"] == 20


def test_labels_of_ones_own_rows_are_exact_below_the_floor_and_there_is_no_local_count():
    X = tables() | {"tiny": table({0: 4, 1: 3}, 5)}
    fitted = FederatedClustering(KnownCounts(2), random_state=0, standardize=False).fit(X)
    assert [len(labels) for labels in fitted.labels_] == [120, 120, 67, 7]
    assert sorted(np.bincount(fitted.labels_[3])) == [3, 4]
    assert fitted.local_counts_ == [2, 2, 2, 0]
    assert fitted.model_.local_counts == (2, 2, 2, 0)
    assert not fitted.model_.holdings[3].any()


@pytest.mark.parametrize("aggregator", [None, FedGEM(upsilon=2), FedGEM(), FedKMeans(2)])
@pytest.mark.parametrize("standardize", [False, True])
def test_where_every_site_is_below_the_floor_the_error_says_how_to_go_on(aggregator, standardize):
    X = {name: rows[:10] for name, rows in tables().items()}
    federation = FederatedClustering(KnownCounts(1), aggregator, standardize=standardize, random_state=0)
    with pytest.raises(KoncordError, match="min_report"):
        federation.fit(X)


def test_rows_leave_only_where_both_say_so(tmp_path, run):
    with pytest.raises(DisclosureRefused, match="rows leave only with min_report=1 and allow_disclosure=True"):
        FederatedClustering(KnownCounts(2), AFCL(4, allow_disclosure=True), standardize=False).fit(tables())
    np.savetxt(tmp_path / "a.csv", tables()["a"], delimiter=",", header="x,y,z", comments="")
    asked = ("fit", tmp_path / "a.csv", "--aggregator", "afcl", "--clusters", 4, "--allow-disclosure")
    code, _, err = run(*asked, "--out", tmp_path / "x")
    assert (code, "add --min-report 1" in err) == (2, True)
    assert run(*asked, "--out", tmp_path / "x", "--min-report", 1)[0] == 0


# --- Consensus under the floor of the run ---


def micro_counts(aggregator, **given):
    fitted = FederatedClustering(KnownCounts(1), aggregator, random_state=0, **given, standardize=False).fit(tables())
    return fitted.model_.info["micro_clusters"]


def test_consensus_has_the_floor_of_the_run_or_its_own_larger_one():
    assert (
        micro_counts(Consensus(), min_report=50)
        == micro_counts(Consensus(50))
        == micro_counts(Consensus(50), min_report=5)
    )
    assert micro_counts(Consensus()) == micro_counts(None, min_report=1) != micro_counts(None, min_report=50)
    assert sum(micro_counts(Consensus(5), min_report=5).values()) > sum(micro_counts(None).values())


def test_a_floor_below_that_of_the_run_is_refused_and_both_are_named():
    with pytest.raises(ValueError, match="'min_report' of Consensus is 5 and that of the run 20"):
        micro_counts(Consensus(5))


def test_micro_clusters_below_the_floor_are_refused_on_the_command_line(tmp_path, run):
    for name, X in tables().items():
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header="x,y,z", comments="")
    files = sorted(tmp_path.glob("*.csv"))
    code, _, err = run("fit", *files, "--out", tmp_path / "x", "--set", "min_report=5")
    assert (code, "'min_report' of Consensus is 5 and that of the run 20" in err) == (2, True)
    assert run("fit", *files, "--out", tmp_path / "x", "--set", "min_report=5", "--min-report", 5)[0] == 0


# --- the support ---


def supported(aggregator, **given):
    return (
        FederatedClustering(KnownCounts(1), aggregator, random_state=0, **given, standardize=False)
        .fit(with_a_lone_cluster())
        .model_
    )


def test_a_support_that_is_asked_of_the_run_is_that_of_consensus():
    asked = [
        supported(None, min_support=2),
        supported(Consensus(), min_support=2),
        supported(Consensus(min_support=2)),
        supported(Consensus(min_support=2), min_support=2),
    ]
    for model in asked:
        assert model.info["set_aside"].keys() == {"s3"}
        assert model.info["min_support"] == 2
        assert model.info["weak_clusters"] == []
        np.testing.assert_array_equal(model.centers, asked[0].centers)
    assert supported(Consensus()).info["set_aside"] == {}


def test_the_larger_support_counts_and_a_smaller_one_is_refused():
    assert supported(Consensus(min_support=3), min_support=2).info["min_support"] == 3
    with pytest.raises(ValueError, match="'min_support' of Consensus is 2 and that of the run 3"):
        supported(Consensus(min_support=2), min_support=3)
