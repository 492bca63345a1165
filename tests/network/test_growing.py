"""Over the real network: a site is forgotten, and comes back, without a message to the others."""

import json

import numpy as np
import pytest

from network.federation import koncord

pytestmark = pytest.mark.network

METHOD = ("--aggregator", "consensus", "--estimator", "xmeans", "--seed", "5")


def lines_of(federation, site):
    """Messages that left a site, so far."""
    (ledger,) = (federation.folder / f"state-{site}").glob("*.ledger.jsonl")
    return len(ledger.read_text().splitlines())


def same_clusters(one, other):
    np.testing.assert_array_equal(one.centers, other.centers)
    assert one.gaussians == other.gaussians
    assert one.tree == other.tree
    assert one.confidence == other.confidence
    assert one.diagnostics == other.diagnostics
    for site, group in one.groups.items():
        np.testing.assert_array_equal(group, other.groups[site])
        np.testing.assert_array_equal(one.components[site], other.components[site])


def test_a_site_is_forgotten_and_comes_back_and_the_others_hear_nothing(federation):
    run = federation.run("--out", "grown", "--min-sites", "3", *METHOD)
    assert run.end(180) == 0, run.text
    first = federation.model("grown")
    sent = {site: lines_of(federation, site) for site in federation.sites}
    koncord(federation.folder, "forget", "west", "--run", "grown")
    left = federation.model("grown")
    assert left.sites == ("north", "south")
    assert b"west" not in (federation.folder / "grown" / "reports.koncord").read_bytes()
    assert {site: lines_of(federation, site) for site in federation.sites} == sent
    add = federation.run("--out", "grown", "--add-site", "west", "--json")
    assert add.end(180) == 0, add.text
    told = json.loads(add.text.splitlines()[-1])
    assert told["added"] == ["west"]
    back = federation.model("grown")
    assert back.sites == first.sites
    same_clusters(back, first)
    assert lines_of(federation, "north") == sent["north"]
    assert lines_of(federation, "south") == sent["south"]
    assert lines_of(federation, "west") > sent["west"]
    own = federation.folder / "state-west" / "runs" / told["run"] / "labels.csv"
    assert own.is_file()
    again = federation.run("--out", "grown", "--add-site", "west")
    assert again.end(60) == 2
    assert "who takes part already" in again.text
