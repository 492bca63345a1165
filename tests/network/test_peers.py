"""Secure sums of sites on disk: signed with their registered keys, kept between processes, refused by name."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from koncord import Consensus, FedGEM, FedKMeans
from koncord.errors import KoncordError, NotAllowed
from koncord.network.certificates import fingerprint, site_key
from koncord.network.method import RunRequest, statement_text
from koncord.network.peers import StatedSums, named_peers, read_peers, session_name, sums_in
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer
from koncord.privacy.budget import Budget
from koncord.protocol.ledger import read_ledger
from koncord.session.policy import SitePolicy
from koncord.session.summing import run_in_sums
from koncord.session.transport import Carried, PackedLink

SITES = ("a", "b", "c", "d", "e")
COLUMNS = ("x", "y", "z")
CENTERS = 6.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, 0]])
BUDGET = Budget(epsilon=20.0, delta=1e-5, bound=12.0)
KEYS = {site: tuple(half.decode() for half in site_key()) for site in SITES}
PUBLIC = {site: public for site, (_, public) in KEYS.items()}


def table(site):
    rng = np.random.default_rng(SITES.index(site))
    y = rng.integers(4, size=150)
    return rng.normal(CENTERS[y], 1), y


def make(folder, site, *, budget=BUDGET, peers=None, **options):
    invitation = Invitation(site=site, address="localhost:1", authority="ca", key=KEYS[site][0])
    policy = SitePolicy(budget=budget, **{"allows_sums": True, **options})
    return SiteFolder.create(folder / site, invitation, table(site)[0], COLUMNS, policy, peers=peers)


def statement(aggregator, keys=PUBLIC, budget=BUDGET):
    sums = StatedSums(keys=keys, budget=budget.as_dict())
    return statement_text(aggregator, {"name": "xmeans"}, RunRequest(by="me"), sums)


class OnDisk(PackedLink):
    """Sites that answer from their folders, each time as a new process; `away` are those that do not, by exchange."""

    def __init__(self, folder, asked, run="run-1", away=None):
        super().__init__(SITES, min_sites=2)
        self.folder, self.asked, self.run, self.away = folder, asked, run, away or {}

    def carry(self, exchange, down):
        replies, missing = {}, {}
        for site, messages in down.items():
            if site in self.away.get(exchange, ()):
                missing[site] = "away"
                continue
            try:
                replies[site] = answer(self.folder / site, self.run, exchange, self.asked, messages).replies
            except KoncordError as error:
                missing[site] = str(error)
        return Carried(replies=replies, missing=missing)


def run(link, aggregator):
    return run_in_sums(
        link,
        aggregator,
        session=session_name(link.asked, link.run),
        policy=SitePolicy(budget=BUDGET),
        seed=1,
        estimator=None,
    )


def test_sites_on_disk_find_the_clusters_and_label_their_rows(tmp_path):
    for site in SITES:
        make(tmp_path, site)
    aggregator = FedKMeans(4, n_rounds=1)
    away = {4: ("b",), 9: ("c",)}  # the numbers of the first sum, and the opening of the second
    found = run(OnDisk(tmp_path, statement(aggregator), away=away), aggregator).model
    labels = [np.genfromtxt(tmp_path / site / "runs/run-1/labels.csv", delimiter=",", skip_header=1) for site in SITES]
    clusters = np.concatenate([own[:, 1] for own in labels])
    assert adjusted_rand_score(np.concatenate([table(site)[1] for site in SITES]), clusters) > 0.9
    assert found.sites == ("5 sites together",)
    assert {(absence.site, absence.exchange) for absence in found.session.missing} == {("b", 4), ("c", 9)}
    spent = {site: read_ledger(tmp_path / site / f"{site}.ledger.jsonl")[-1].epsilon for site in SITES}
    assert max(spent.values()) <= BUDGET.epsilon
    assert spent["b"] < spent["a"] == spent["d"]  # it was asked for one release less


def test_a_site_that_is_asked_again_sends_the_same_masked_numbers(tmp_path):
    """A reply that was lost: nothing is drawn or spent twice."""
    for site in SITES:
        make(tmp_path, site)
    aggregator = FedKMeans(4, n_rounds=1)
    link = OnDisk(tmp_path, statement(aggregator))
    carry, seen = link.carry, []

    def twice(exchange, down):
        first, again = carry(exchange, down), carry(exchange, down)
        seen.append(first.replies == again.replies)
        return again

    link.carry = twice
    run(link, aggregator)
    assert len(seen) == link.n_exchanges
    assert all(seen)
    lines = read_ledger(tmp_path / "a" / "a.ledger.jsonl")
    assert (
        sum(line.message == "securesums.Masked" for line in lines)
        == FedKMeans(4, n_rounds=1).private_plan(None).n_releases
    )


def one_question(tmp_path, asked, run_="run-1"):
    """What site a says to the first question of a run."""
    from koncord.protocol import setup
    from koncord.protocol.wire import pack

    return answer(tmp_path / "a", run_, 1, asked, [pack(setup.Survey())])


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({"allows_sums": False}, statement(Consensus()), "its owner does not allow"),
        ({"budget": replace(BUDGET, epsilon=1.0)}, statement(Consensus()), "that of all sites must be the same"),
        ({}, statement(Consensus(), {**PUBLIC, "a": KEYS["b"][1], "b": KEYS["a"][1]}), "in which its key is not"),
        ({}, statement(Consensus(), {site: PUBLIC[site] for site in "bcd"}), "in which its key is not"),
        ({"peers": {site: fingerprint(PUBLIC[site].encode()) for site in "bcd"}}, statement(Consensus()), "with e"),
    ],
)
def test_sums_that_the_owner_did_not_agree_to_are_refused(tmp_path, changes, asked, reason):
    make(tmp_path, "a", **changes)
    with pytest.raises(NotAllowed, match=reason):
        one_question(tmp_path, asked)


def test_a_method_without_a_private_form_is_refused_by_name(tmp_path):
    make(tmp_path, "a", methods=("fedgem",))
    with pytest.raises(KoncordError, match="fedgem has no private form"):
        one_question(tmp_path, statement(FedGEM()))


def test_keys_of_the_first_run_are_kept_and_others_refused_later(tmp_path):
    """A coordinator that puts a key of its own in the place of a site's."""
    make(tmp_path, "a")
    one_question(tmp_path, statement(Consensus()))
    assert read_peers(tmp_path / "a") == {
        "named": False,
        "keys": {site: fingerprint(PUBLIC[site].encode()) for site in SITES},
    }
    other = statement(Consensus(), {**PUBLIC, "b": site_key()[1].decode()})
    with pytest.raises(NotAllowed, match="it knows b by SHA256:"):
        one_question(tmp_path, other, "run-2")
    make(tmp_path, "a", peers={"b": sums_in(json.loads(other)["sums"]).fingerprints()["b"]})
    with pytest.raises(NotAllowed, match="add up with c"):
        one_question(tmp_path, other, "run-3")


def test_a_file_of_peers_has_a_name_and_a_fingerprint_in_each_line(tmp_path):
    path = tmp_path / "peers.txt"
    path.write_text("b SHA256:abc\n\nc  SHA256:def\n")
    assert named_peers(path) == {"b": "SHA256:abc", "c": "SHA256:def"}
    path.write_text("b abc\n")
    with pytest.raises(ValueError, match="a name and a fingerprint"):
        named_peers(path)


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"sites": [], "budget": {}},
        {"sites": {"a": 1}, "budget": {}},
        {"sites": {"a": "no key"}, "budget": BUDGET.as_dict()},
        {"sites": {"a": PUBLIC["a"], "b": PUBLIC["a"]}, "budget": BUDGET.as_dict()},
        {"sites": {"../a": PUBLIC["a"]}, "budget": BUDGET.as_dict()},
        {"sites": PUBLIC, "budget": {"epsilon": -1.0, "delta": 0.1, "bound": 1.0}},
    ],
)
def test_what_is_no_statement_of_sums_is_a_value_error(content):
    with pytest.raises((ValueError, TypeError)):
        sums_in(content)
