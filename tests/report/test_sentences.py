"""Every sentence of the page and of the terminal is true of its run: real runs, and a condition for each sentence."""

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from html.parser import HTMLParser

import numpy as np
import pytest

from koncord import AFCL, FFCM, SPAHM, Consensus, FedGEM, FedKMeans, KFed, KnownCounts
from koncord.cli import run_ as cli_run
from koncord.data.files import Table
from koncord.network.begun import AT_THE_SITES
from koncord.privacy.budget import Budget
from koncord.report.federation import federation_text
from koncord.report.page import page
from koncord.session.federation import run
from koncord.session.inprocess import InProcess, in_process
from koncord.session.policy import ServerPolicy, SitePolicy
from koncord.session.site import Site
from koncord.session.transport import Carried

CENTERS = 10.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
COLUMNS = ("x", "y", "z")
BUDGET = Budget(epsilon=50.0, delta=1e-5, bound=40.0)
FINDS_K = {"consensus": Consensus(), "fedgem": FedGEM(n_rounds=3), "spahm": SPAHM()}
NEEDS_K = {"kfed": KFed, "fedkmeans": FedKMeans, "ffcm": FFCM}
HAS_PRIVATE_FORM = ("consensus", "fedkmeans")


def table(name, held, seed):
    """A site's table; `held` gives how many rows it has of each cluster."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(CENTERS[k], 1, (n, 3)) for k, n in held.items()])
    return Table(X=X, columns=COLUMNS, name=name)


def tables(n=60):
    """Four sites with two clusters each, and a cluster that the last one holds alone."""
    usual = [table(f"s{at}", {0: n, 1: n}, at) for at in range(3)]
    return [*usual, table("s3", {0: n, 1: n, 3: n}, 9)]


def method(name, k=3):
    if name == "afcl":
        return AFCL(2 * k, allow_disclosure=True, n_rounds=4)
    return FINDS_K[name] if name in FINDS_K else NEEDS_K[name](k)


@dataclass(frozen=True)
class Case:
    """What was run, said apart from what koncord writes about it."""

    aggregator: str
    tables: tuple
    model: object
    record: object
    floor: int | None = 20  # None: each site has its own
    private: frozenset = frozenset()
    at_sites: bool = False
    min_support: int = 1

    @property
    def counts(self):
        """Whether sites were asked for their local k: by the method, or where a budget has them find cells."""
        return self.aggregator in ("fedgem", "kfed", "spahm") or (bool(self.private) and not self.at_sites)

    @property
    def k(self):
        return self.model.n_clusters

    @property
    def names(self):
        return {each.name for each in self.tables}

    @property
    def true_counts(self):
        """Rows of each site by cluster, counted here from the tables."""
        return {each.name: np.bincount(self.model.predict(each.X), minlength=self.k) for each in self.tables}

    @property
    def missing(self):
        return {absence.site for absence in self.model.session.missing}

    @property
    def small(self):
        """Sites with fewer rows than they report."""
        return {each.name for each in self.tables if self.floor and len(each.X) < self.floor}

    @property
    def hidden(self):
        """Whether some count below the floor is not told."""
        floor = self.floor or 20
        return any(((counts > 0) & (counts < floor)).any() for counts in self.true_counts.values())

    @property
    def is_complete(self):
        """Whether what sites told by cluster is all rows of all tables."""
        return not self.private and self.model.holdings.sum() == sum(len(each.X) for each in self.tables)

    @property
    def aside(self):
        return sum(mask.sum() for mask in self.model.excluded.values())

    @property
    def micro_sites(self):
        return sum(len(clusters) > 0 for clusters in self.model.members.values())

    @property
    def has_silhouette(self):
        return any(value is not None for value in self.model.session.silhouettes)


def fitted(aggregator, given=None, k=3, *, budget=None, **options):
    given = tables() if given is None else given
    told = {"--clusters": k} if aggregator in NEEDS_K or aggregator == "afcl" else {}
    server, estimator = method(aggregator, k), KnownCounts(2)
    policy = SitePolicy(min_report=options.get("min_report", 20), budget=budget)
    rows = {each.name: (each.X, each.columns) for each in given}
    result = run(
        in_process(rows, estimator=estimator, aggregator=server, policy=policy),
        server,
        estimator=estimator,
        seed=0,
        standardize=False,
        estimator_name="asm",
        files={each.name: f"{each.name}.csv" for each in given},
        options=told,
        started=datetime(2026, 1, 2, tzinfo=UTC),
        site_policy=policy,
        server_policy=ServerPolicy(min_support=options.get("min_support", 1)),
    )
    return Case(
        aggregator=aggregator,
        tables=tuple(given),
        model=result.model,
        record=result.record,
        floor=options.get("min_report", 20),
        private=frozenset(each.name for each in given) if budget else frozenset(),
        min_support=options.get("min_support", 1),
    )


class Flaky(InProcess):
    """Sites of which one does not answer in some exchanges."""

    away: dict

    def carry(self, exchange, down):
        gone = [site for site, exchanges in self.away.items() if exchange in exchanges and site in down]
        carried = super().carry(exchange, {site: asked for site, asked in down.items() if site not in gone})
        return Carried(replies=carried.replies, seconds=carried.seconds, missing=dict.fromkeys(gone, "no answer"))


def over_a_network(aggregator="consensus", *, away=None, budgets=None, floors=None, words=()):
    """The model of sites with floors and budgets of their own, and the record as `koncord run` writes it."""
    budgets, floors = budgets or {}, floors or {}
    parser = argparse.ArgumentParser()
    cli_run.add_parser(parser.add_subparsers())
    clusters = ("--clusters", "3") if aggregator in NEEDS_K else ()
    args = parser.parse_args(["run", "--out", "x", "--aggregator", aggregator, *clusters, *words])
    cli_run.fill_usual(args)
    server = method(aggregator)
    given = tables(300) if budgets else tables()
    sites = [
        Site(
            each.name,
            each.X,
            COLUMNS,
            estimator=KnownCounts(2),
            aggregator=server,
            policy=SitePolicy(min_report=floors.get(each.name, 20), budget=budgets.get(each.name)),
        )
        for each in given
    ]
    link = Flaky(sites)
    link.away = away or {}
    result = run(
        link,
        server,
        estimator=KnownCounts(2),
        seed=0,
        standardize=args.standardize,
        server_policy=cli_run.server_policy_of(args),
        started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        **AT_THE_SITES,
        **cli_run.recorded(args),
    )
    return Case(
        aggregator=aggregator,
        tables=tuple(given),
        model=result.model,
        record=result.record,
        floor=None,
        private=frozenset(budgets),
        at_sites=True,
        min_support=args.min_support,
    )


EVERY = [*FINDS_K, *NEEDS_K]
CASES = {
    **{f"{name}, floor": lambda name=name: fitted(name) for name in EVERY},
    **{f"{name}, plain": lambda name=name: fitted(name, min_report=1) for name in [*EVERY, "afcl"]},
    **{f"{name}, support": lambda name=name: fitted(name, min_support=2) for name in EVERY},
    **{f"{name}, budget": lambda name=name: fitted(name, tables(300), budget=BUDGET, k=3) for name in HAS_PRIVATE_FORM},
    "consensus, budget and support": lambda: fitted("consensus", tables(300), budget=BUDGET, min_support=2),
    "one cluster": lambda: fitted("consensus", [table(f"s{at}", {0: 80}, at) for at in range(3)]),
    "one cluster, told": lambda: fitted("fedkmeans", [table(f"s{at}", {0: 80}, at) for at in range(3)], k=1),
    "one site": lambda: fitted("consensus", [table("only", {0: 80, 1: 80}, 0)]),
    "one site, support": lambda: fitted("consensus", [table("only", {0: 80, 1: 80}, 0)], min_support=2),
    "one cluster a site": lambda: fitted(
        "fedkmeans", [table(f"s{at}", {at % 2: 90}, at) for at in range(4)], k=2, min_report=1
    ),
    "a small site": lambda: fitted("consensus", [*tables(), table("tiny", {0: 4, 1: 3}, 5)]),
    "a small site, fedgem": lambda: fitted("fedgem", [*tables(), table("tiny", {0: 4, 1: 3}, 5)]),
    "few rows of a cluster": lambda: fitted("consensus", [*tables(), table("few", {0: 60, 1: 7}, 5)]),
    "one row": lambda: fitted("fedgem", [*tables(), table("row", {0: 1}, 5)], min_report=1),
    "network": lambda: over_a_network(),
    "network, fedkmeans": lambda: over_a_network("fedkmeans"),
    "network, support": lambda: over_a_network(words=["--min-support", "2"]),
    "network, a site away at first": lambda: over_a_network(away={"s1": {1, 2}}),
    "network, a site away at the end": lambda: over_a_network(away={"s1": range(3, 99)}),
    "network, one budget": lambda: over_a_network(budgets={"s1": BUDGET}, words=["--no-standardize"]),
    "network, own floors": lambda: over_a_network(floors={"s1": 1, "s2": 150}),
}


@lru_cache
def case_of(name):
    return CASES[name]()


@pytest.fixture(params=CASES)
def case(request):
    return case_of(request.param)


class Prose(HTMLParser):
    """The text of a page, block by block, without its style."""

    BLOCKS = frozenset(("p", "dd", "dt", "td", "th", "caption", "h1", "h2", "h3", "summary", "small", "title"))

    def __init__(self, source):
        super().__init__()
        self.parts, self.is_style = [[]], False
        self.feed(source)
        self.close()

    def handle_starttag(self, name, attributes):
        self.is_style = name == "style"
        if name in self.BLOCKS:
            self.parts.append([])

    def handle_endtag(self, name):
        self.is_style = False
        if name in self.BLOCKS:
            self.parts.append([])

    def handle_data(self, data):
        if not self.is_style:
            self.parts[-1].append(data)

    @property
    def blocks(self):
        return [block for block in (" ".join("".join(part).split()) for part in self.parts) if block]


def told(case):
    return " | ".join(Prose(page(case.model, case.record)).blocks).replace("\N{MINUS SIGN}", "-")


# What the page says if, and only if, it is so.
CONDITIONS = {
    "No noise is added.": lambda c: not c.private and c.aggregator != "afcl",
    "is differentially private": lambda c: c.private,
    "counted its own components with": lambda c: c.counts and c.names - c.private,
    "Sites did not count their own components": lambda c: not c.counts,
    "Phase 1 was left out": lambda c: c.counts and c.private,
    "left out: the method does without": lambda c: not c.counts,
    "found at each site on its own": lambda c: c.counts and not c.private,
    "Prepared is phase 1": lambda c: c.counts and c.names - c.private,
    "no site holds rows of two clusters": lambda c: (
        c.k > 1 and not c.has_silhouette and all((n > 0).sum() < 2 for n in c.true_counts.values())
    ),
    "there is one cluster": lambda c: c.k == 1,
    "a site with a privacy budget sends no silhouette": lambda c: c.k > 1 and c.private and not c.has_silhouette,
    "holds one file of labels a site": lambda c: not c.at_sites,
    "The labels of the rows are at the sites": lambda c: c.at_sites,
    "cluster -1": lambda c: False,
    "set aside": lambda c: c.aside,
    "a count of one stands for one row": lambda c: (
        c.floor in (1, None) and c.aggregator != "afcl" and c.names - c.private
    ),
    "stands for at least 20 rows": lambda c: c.floor == 20 and c.aggregator != "afcl",
    "Each site decides how many rows": lambda c: c.floor is None,
    "with at least one of its rows": lambda c: c.floor == 1,
    "this number was not given": lambda c: c.aggregator in FINDS_K,
    "| as asked |": lambda c: c.aggregator in NEEDS_K and c.k == c.record.options["--clusters"],
    "found, given an upper bound": lambda c: c.aggregator == "afcl",
    "and every site answered": lambda c: not c.missing,
    "and not every site answered": lambda c: c.missing,
    "was missing from exchange": lambda c: c.missing,
    "never the rows": lambda c: c.aggregator != "afcl",
    "in a form the server can read": lambda c: c.aggregator == "afcl",
    "The mean of a single row is that row": lambda c: any(len(t.X) == 1 for t in c.tables) and c.floor == 1,
    "The counts by cluster leave out": lambda c: c.model.session.withheld,
    "has fewer rows of a cluster, they are counted with another": lambda c: c.floor != 1 and c.names - c.private,
    "knows only the names of": lambda c: c.small or "s2" in c.model.session.silent,
    "not reported": lambda c: (
        c.small
        or c.model.session.silent
        or (c.counts and c.private)
        or any(a.asked == "Attribute" for a in c.model.session.missing)
    ),
    "What speaks for each cluster": lambda c: c.aggregator == "consensus" and not c.private,
    "does not tell how sure its clusters are": lambda c: c.aggregator != "consensus",
    "how sure the clusters are is not known": lambda c: c.aggregator == "consensus" and c.private,
    "draws of the sites with replacement": lambda c: (
        c.aggregator == "consensus" and not c.private and c.micro_sites > 1
    ),
    "supported by a single site": lambda c: (
        c.aggregator == "consensus" and not c.private and c.k > 1 and c.micro_sites > 1 and 1 in c.model.session.support
    ),
    "not testable": lambda c: c.aggregator == "consensus" and not c.private and 1 in c.model.session.support,
    "strong structure": lambda c: False,
    "hardly any": lambda c: False,
    "Only one site reported micro-clusters": lambda c: c.aggregator == "consensus" and c.micro_sites == 1,
    "sites support cluster": lambda c: any(n < c.min_support for n in c.model.session.support),
    "Components of different sites that belong together": lambda c: (
        c.model.components and c.aggregator != "consensus" and len(c.names) > 1
    ),
    "The runner-up is ": lambda c: c.aggregator == "consensus" and c.model.diagnostics.choice.runner_up,
    "nearly as likely as any": lambda c: (
        c.aggregator == "consensus" and c.model.diagnostics.choice.chosen.hierarchy == "mixture"
    ),
    "Rows in each cluster over all sites": lambda c: c.is_complete,
    "Rows reported in each cluster": lambda c: not c.is_complete,
    "that answered to the end": lambda c: any(a.asked == "Attribute" for a in c.model.session.missing),
    ", by noisy counts": lambda c: c.private and c.floor == 20,
    "how many cells of rows stand out": lambda c: c.private,
    "every site that took part held out a fifth": lambda c: c.aggregator == "fedgem",
}


@pytest.mark.parametrize("sentence", CONDITIONS)
def test_a_sentence_is_on_the_page_if_and_only_if_it_is_true(sentence):
    wrong = []
    for name in CASES:
        case = case_of(name)
        if (sentence in told(case)) != bool(CONDITIONS[sentence](case)):
            wrong.append(name)
    assert wrong == []


def test_each_condition_is_met_by_some_run_and_not_by_another():
    for sentence, holds in CONDITIONS.items():
        seen = {bool(holds(case_of(name))) for name in CASES}
        # Rows are withheld by noise alone, which no run here makes sure of; the other words are never on a page.
        never = ("cluster -1", "strong structure", "hardly any", "The counts by cluster leave out")
        assert seen == {True, False} or sentence in never, sentence


def test_the_counts_of_the_page_are_those_of_the_tables(case):
    """Where there is no noise every row is counted, no count is below the floor, and only few rows are elsewhere."""
    for site, counts in zip(case.model.sites, case.model.holdings, strict=True):
        true, floor = case.true_counts[site], case.floor or 1
        if site not in case.private:
            assert counts.sum() in (0, true.sum())
            assert all(n == 0 or n >= floor for n in counts)
            if counts.any():  # a group below the floor goes with another cluster: at most one cell's worth a cluster
                assert all(abs(n - m) < case.k * floor for n, m in zip(counts, true, strict=True))


def test_the_terminal_says_what_the_page_says(case):
    text = federation_text(case.model, case.record)
    assert ("(asm," in text) == bool(case.counts and case.names - case.private)
    assert ("Sites did not count their own components" in text) == (not case.counts)
    assert ("no site holds rows of two clusters" in text) == CONDITIONS["no site holds rows of two clusters"](case)
    n_told = case.model.holdings.sum() + sum(case.model.session.withheld.values())
    assert f"{n_told:,}" in text.splitlines()[0]
    assert ("not reported" in text) == bool(CONDITIONS["not reported"](case))
