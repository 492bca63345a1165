"""A federation from end to end: `run` is the one place where a run is put together, over any link."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np

from koncord._jobs import jobs
from koncord._progress import part, report
from koncord._records import from_json
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, Described, Outcome, members_of
from koncord.errors import KoncordError
from koncord.model.facts import Promise, SessionFacts
from koncord.model.globalmodel import GlobalModel
from koncord.prepare.settings import Preparation
from koncord.protocol import setup
from koncord.protocol.departures import Departure
from koncord.runs.record import RunRecord
from koncord.session.policy import ServerPolicy, SitePolicy
from koncord.session.preparing import Opened, opened
from koncord.session.roster import Roster
from koncord.session.rounds import RoundRequest, run_rounds
from koncord.session.site import client_stream
from koncord.session.transport import PackedLink
from koncord.types import FloatArray, IntArray

SERVER = ""  # no site has an empty name, so this stream belongs to the server alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run leaves: the model, and the record of how it came about."""

    model: GlobalModel
    record: RunRecord

    @property
    def ledger(self) -> tuple[Departure, ...]:
        """Every message that left a site, in order."""
        return self.record.departures


def run(
    link: PackedLink,
    aggregator: Aggregator,
    *,
    estimator: Any,
    seed: int,
    standardize: bool,
    site_policy: SitePolicy | None = None,
    server_policy: ServerPolicy | None = None,
    common_columns: bool = False,
    preparation: Preparation | None = None,
    local_counts: bool = False,
    estimator_name: str | None = None,
    started: datetime | None = None,
    options: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | str = "",
    labels_at_sites: bool = False,
    labels_in_memory: bool = False,
) -> RunResult:
    """Both phases over any link, in one thread, and the record of the run.

    Parameters
    ----------
    link : PackedLink
        The sites, in this process or over a network; each has its own estimator and takes the aggregator's steps.
    aggregator : Aggregator
        Phase 2.
    estimator : estimator
        Phase 1, as the model and the report name it.
    seed : int
        Of all random streams.
    standardize : bool
        Bring every column to mean 0 and variance 1 over all sites.
    site_policy : SitePolicy, default None
        What may leave every site; None where each site has a policy of its own, which the server does not know.
    server_policy : ServerPolicy, default None
        How many sites a cluster needs; the quorum and the timeouts are the link's. None is `ServerPolicy()`.
    common_columns : bool, default False
        Use the columns that all sites have and leave out the others.
    preparation : Preparation or None, default None
        What is done with columns before phase 1; it takes the place of `standardize`. None is nothing but one scale.
    local_counts : bool, default False
        Have every site run phase 1 and tell its local k also where the aggregator does without them.
    estimator_name : str, default None
        The estimator's name in a sentence; None takes the name of its class.
    started : datetime or None, default None
        When the run began; None is now.
    options : mapping of str to value, default None
        What else was asked for, by the name it was asked by: kept in the record.
    files : mapping of str to str, or str, default ""
        Where each site's table is, or one word for all sites.
    labels_at_sites, labels_in_memory : bool, default False
        Where the labels are, if not in the folder of the run.

    Returns
    -------
    RunResult
        The model, the record, and the ledger of all that left the sites.
    """
    began = perf_counter()
    started = started or datetime.now(UTC)
    with one_thread(), jobs(link.n_workers), closing(link):
        model = run_federation(
            link,
            aggregator,
            seed=seed,
            standardize=standardize,
            settings={"estimator": repr(estimator), "aggregator": repr(aggregator)},
            min_report=None if site_policy is None else site_policy.min_report,
            min_support=(server_policy or ServerPolicy()).min_support,
            common_columns=common_columns,
            preparation=preparation,
            # A site with a budget does not run phase 1; the others of the run do.
            local_counts=local_counts or (site_policy is not None and site_policy.budget is not None),
        )
    record = RunRecord.of_run(
        sends=aggregator.sends,
        departures=link.departures,
        seconds=perf_counter() - began,
        started=started.isoformat(timespec="seconds"),
        estimator=estimator_name or type(estimator).__name__,
        aggregator=aggregator.name,
        is_standardized=standardize,
        options=options or {},
        files=dict.fromkeys(model.sites, files) if isinstance(files, str) else files,
        clusters_given=None if aggregator.count_is_bound else aggregator.count_given,
        clusters_bound=aggregator.count_given if aggregator.count_is_bound else None,
        labels_at_sites=labels_at_sites,
        labels_in_memory=labels_in_memory,
    )
    return RunResult(model=model, record=record)


def run_federation(
    link: PackedLink,
    aggregator: Any,
    *,
    seed: int,
    standardize: bool,
    settings: Mapping[str, str],
    min_report: int | None = None,
    min_support: int = 1,
    common_columns: bool = False,
    preparation: Preparation | None = None,
    local_counts: bool = False,
) -> GlobalModel:
    """Both phases over any link: agree on columns and scale, count locally, aggregate, count who holds what.

    A site that is missing from an exchange is left out of it and asked again in the next. The model holds the sites
    that took part in either phase; the scale is that of the sites that were there at the beginning. `min_report` is
    the floor that all sites have; None where each has one of its own, which the server does not know. Phase 1 runs with
    `local_counts`, or where the aggregator needs it.
    """
    aggregator = aggregator.for_run(min_report=min_report, min_support=min_support)
    min_support = max(min_support, aggregator.support)
    link.guard.expect(aggregator.replies)
    roster = Roster(link)
    with part(0.0, 0.05, "columns"):
        agreed = opened(roster, preparation, standardize=standardize, common=common_columns)
    plan = agreed.plan
    if plan.categories and getattr(aggregator, "harmonize", False):
        raise KoncordError(
            f"Offsets are of numbers: with 'harmonize', {', '.join(plan.categories)} must not be categories. Leave "
            "them out with --drop, or do without --harmonize."
        )
    # The server comes first: it checks its parameters before any site begins to work.
    rng = np.random.default_rng(client_stream(seed, SERVER, 0))
    described = described_by(agreed)
    if described:
        server = aggregator.private_server(link.clients, len(plan.features), rng, described)
    else:
        server = aggregator.server(link.clients, len(plan.features), rng)
    asks_local_k = local_counts or aggregator.needs_local_counts
    # It goes down with the server's first message.
    prepared = roster.require(setup.prepare_message(seed, plan, asks_local_k=asks_local_k))
    with part(0.05, 0.95, "phases 1 and 2"):
        outcome, round_ = run_rounds(roster, server, first_round=1, first_share=0.6 if asks_local_k else 0.4)
    with part(0.95, 1.0, "who holds what"):
        attribute = {client: attribution_of(outcome, client) for client in link.clients}
        holdings = roster.exchange_all([RoundRequest(round_=round_, down=attribute)])[0]
    report(1.0)
    sites = tuple(sorted(prepared))
    nothing = np.zeros(len(outcome.centers), dtype=np.int64)
    counts = np.array([holdings[site].counts if site in holdings else nothing for site in sites])
    sent = agreed.replies
    return GlobalModel(
        centers=outcome.centers,
        weights=shares_of_counts(counts.sum(axis=0)),
        columns=plan.features,
        means=plan.feature_means,
        scales=plan.feature_scales,
        plan=plan,
        sites=sites,
        local_counts=tuple(prepared[site].local_k for site in sites) if asks_local_k else (),
        holdings=counts,
        groups=outcome.groups,
        components=outcome.components,
        gaussians=outcome.gaussians,
        offsets={site: outcome.offsets[site] for site in sites if site in outcome.offsets},
        tree=outcome.tree,
        confidence=outcome.confidence,
        seed=seed,
        settings=settings,
        excluded=outcome.excluded,
        # Of levels there is no offset, so what speaks for one is no evidence.
        diagnostics=replace(outcome.diagnostics, calibration=None) if plan.categories else outcome.diagnostics,
        session=SessionFacts(
            exchanges=link.n_exchanges,
            missing=tuple(link.absences),
            silhouettes=cluster_silhouettes(holdings),
            one_row_sites=tuple(sorted(site for site, m in sent.items() if m.count == 1 and m.epsilon is None)),
            min_report=min_report,
            is_covered=not aggregator.reads_rows,
            silent=tuple(sorted(site for site, m in sent.items() if not m.count)),
            withheld=withheld_rows(sent, holdings),
            support=support_of(outcome, holdings),
            min_support=min_support,
            privacy=promises(sent),
            left_out_columns=agreed.left_out,
            preparation=agreed.prepared,
        ),
        versions={name: version(name) for name in ("koncord", "numpy", "scipy", "scikit-learn")},
    )


def described_by(opened: Opened) -> dict[str, Described]:
    """What the sites with a privacy budget sent of their rows, on the agreed scale."""
    plan, found = opened.plan, {}
    for site, sent in sorted(opened.replies.items()):
        if not isinstance(sent, setup.Moments):
            continue
        if sent.bound is not None and sent.epsilon is not None and sent.delta is not None:
            order = setup.order_of(sent.columns, plan.columns)
            found[site] = Described(
                count=sent.count,
                means=(sent.means[order] - plan.means) / plan.scales,
                variances=sent.scatters[order] / max(sent.count, 1) / plan.scales**2,
                bound=sent.bound * float(np.sqrt((1 / plan.scales**2).mean())),
                epsilon=sent.epsilon,
                delta=sent.delta,
            )
    return found


def attribution_of(outcome: Outcome, client: str) -> setup.Attribute:
    """What a site labels its rows by: the clusters, where it has them."""
    shapes, centers = outcome.gaussians, outcome.centers
    if client in outcome.offsets:
        centers = centers + outcome.offsets[client]
    if shapes is None:
        return setup.Attribute(centers=centers)
    return setup.Attribute(centers=centers, axes=shapes.axes, covariances=shapes.covariances, weights=shapes.weights)


def shares_of_counts(counts: IntArray) -> FloatArray:
    """Share of each count in their sum; equal shares where every count was withheld."""
    total = counts.sum()
    shares: FloatArray = counts / total if total else np.full(len(counts), 1 / len(counts))
    return shares


def support_of(outcome: Outcome, holdings: Mapping[str, setup.Holdings]) -> tuple[int, ...]:
    """Sites with a component in each cluster or, where the aggregator keeps no components, with rows in it."""
    members = members_of(outcome.groups, outcome.excluded)
    held = list(members.values()) or [np.flatnonzero(holding.counts) for holding in holdings.values()]
    support = np.bincount(np.concatenate([np.unique(clusters) for clusters in held]), minlength=len(outcome.centers))
    return tuple(support.tolist())


def withheld_rows(sent: Mapping[str, Any], holdings: Mapping[str, setup.Holdings]) -> dict[str, int]:
    """Rows that a site counted at the beginning and reported in no cluster, by site; sites without any are left out."""
    rows = {site: sent[site].count - int(holdings[site].counts.sum()) for site in holdings}
    return {site: n for site, n in rows.items() if n}


def promises(replies: Mapping[str, Any]) -> dict[str, Promise]:
    """The privacy budget of each site that has one."""
    budgets = {site: sent.budget for site, sent in sorted(replies.items()) if sent.epsilon is not None}
    return {site: from_json(Promise, budget) for site, budget in budgets.items()}


def cluster_silhouettes(holdings: Mapping[str, setup.Holdings]) -> tuple[float | None, ...]:
    """Mean silhouette of each global cluster over the rows that have one; None where no site has."""
    scored = np.sum([holding.scored for holding in holdings.values()], axis=0)
    sums = np.sum([np.nan_to_num(h.silhouettes) * h.scored for h in holdings.values()], axis=0)
    return tuple(float(total / n) if n else None for total, n in zip(sums, scored, strict=True))
