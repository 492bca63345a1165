"""Consensus: clients report micro-clusters, the server finds how many clusters they make.

A server can merge what a client took apart, but not take apart what a client merged. So every client describes its
rows by the micro-clusters of its split tree, as fine as its disclosure floor allows, and all decisions are the
server's: which micro-clusters belong together, of one client or of many, and how many clusters there are
(`koncord.aggregate.consensus.choosing`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from koncord._jobs import begun
from koncord._validation import check_count, check_number
from koncord.aggregate.base import (
    Aggregator,
    ClientStep,
    Described,
    Local,
    Outcome,
    PrivateStep,
    Replies,
    Server,
    StreamedLocal,
    StreamedStep,
)
from koncord.aggregate.confidence import Confidence
from koncord.aggregate.consensus import cellcounts, commoncells
from koncord.aggregate.consensus.calibration import Offsets, aligned, find_offsets, site_effects
from koncord.aggregate.consensus.choosing import Choice, choose
from koncord.aggregate.consensus.commoncells import (
    CellCounts,
    CommonCells,
    CommonProducts,
    CountCells,
    private_cells,
    private_counts,
    private_products,
)
from koncord.aggregate.consensus.confidence import confidence_of, resampled, stabilities
from koncord.aggregate.consensus.microclusters import (
    MicroClusters,
    labeled_micro_clusters,
    nothing,
    stacked,
)
from koncord.aggregate.consensus.mixture import fit_gaussians, parts_of
from koncord.aggregate.consensus.separation import CLEAR, SINGLE_PEAK, members
from koncord.aggregate.consensus.streaming import streamed_report
from koncord.aggregate.consensus.support import weak_clusters, with_micro_clusters, without_excess
from koncord.aggregate.consensus.tree import Clusters, Fitted, tree_of
from koncord.aggregate.diagnostics import Calibration, Diagnostics, KCandidate, KChoice
from koncord.aggregate.private import PrivateClient
from koncord.errors import KoncordError
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.tree import ClusterTree
from koncord.privacy.budget import CELLS, HOLDINGS, LAST_CELLS, MOMENTS, PRODUCTS, Plan
from koncord.protocol.floor import DEFAULT_MIN_REPORT, LOWER_FLOOR
from koncord.protocol.schema import LARGEST, Number
from koncord.types import BoolArray, FloatArray, IntArray

# With fewer micro-clusters a site, on average, the floor hides clusters.
FEW_MICRO_CLUSTERS = 3
# Times that the number of clusters is chosen anew without micro-clusters that too few clients support.
MOST_CHOICES = 8
NOTHING_TO_HARMONIZE = "Nothing was harmonized: no offsets between the sites are credible."
NO_CELL_STANDS_OUT = (
    "No cell of the sites stands out from their noise: they have too few rows for this budget. A larger epsilon, more "
    "sites or fewer columns help."
)
NOBODY_ANSWERED = "No site with a privacy budget answered; run again when they are there."
# Name that the cells common to all sites with a privacy budget are reported under; no site has it.
COMMON = ""

# --- messages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Server to client: send the micro-clusters of your rows."""

    min_report: Annotated[int, Number(least=1, most=LARGEST["rows"])]  # rows a micro-cluster must stand for to be sent


# --- client steps ---


def report_micro_clusters(local: Local, state: None, down: Report) -> tuple[None, MicroClusters]:
    """Micro-clusters of the rows, each of whole cells of the joint partition."""
    least = max(down.min_report, local.min_report)
    if len(local.X) < least:
        return None, nothing(local.X.shape[1])
    groups = local.micro_clusters(least)
    return None, labeled_micro_clusters(groups.X, groups.labels)


# --- steps of a client whose table is read batch by batch ---


def report_all_rows(local: StreamedLocal, state: None, down: Report) -> tuple[None, MicroClusters]:
    """Micro-clusters of all rows, cut from a sample of them."""
    return None, streamed_report(local, max(down.min_report, local.min_report))


# --- steps of a client with a privacy budget ---


def private_report(client: PrivateClient, down: Report, rng: np.random.Generator) -> MicroClusters:
    """Nothing: the rows of this client are in the common cells, if it was there when they were first asked for."""
    assert client.prepared is not None
    return nothing(len(client.prepared.columns))


# --- server steps ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreed:
    """What the server made of the reports."""

    choice: Choice
    reports: Mapping[str, MicroClusters]  # the micro-clusters kept by the support filter, by client
    micro: MicroClusters  # all of these
    clients: IntArray  # (n_micro_clusters,) of each of these: the place of its client in the order of the reports
    supported: Mapping[str, BoolArray]  # of all micro-clusters of each client

    def by_client(
        self, labels: IntArray, otherwise: Callable[[FloatArray], IntArray], reports: Mapping[str, MicroClusters]
    ) -> dict[str, IntArray]:
        """Labels of all micro-clusters by client; of those that were set aside, what `otherwise` makes of a mean."""
        groups = {client: otherwise(each.means) for client, each in reports.items()}
        for at, (client, supported) in enumerate(self.supported.items()):
            groups[client][supported] = labels[self.clients == at]
        return groups

    def centers(self) -> FloatArray:
        weights = self.micro.counts.astype(float)
        nowhere = np.zeros((self.choice.chosen.n_clusters, self.micro.means.shape[1]))
        return means_by_label(self.micro.means, self.choice.labels, weights, otherwise=nowhere)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """The global clusters, and how they were come by."""

    centers: FloatArray  # (k, n_features)
    labels: IntArray  # (n_micro_clusters,) of those that were kept
    clusters: Clusters  # as they were chosen, or as the fit left them
    grown: Callable[[], tuple[ClusterTree, IntArray]]  # the tree, and its leaf (n_micro_clusters,) of each
    gaussians: Gaussians | None = None
    stabilities: tuple[float | None, ...]  # of each cluster
    n_dropped: int = 0  # clusters that were chosen and held no rows

    def assign(self, means: FloatArray) -> IntArray:
        """The cluster of each row."""
        return nearest(means, self.centers) if self.gaussians is None else self.gaussians.assign(means)

    @property
    def tree(self) -> ClusterTree:
        return self.grown()[0]

    @property
    def leaves(self) -> IntArray:
        return self.grown()[1]

    def nearest_leaf(self, means: FloatArray) -> IntArray:
        """The leaf of the tree whose center each row is nearest to."""
        return nearest(means, self.tree.centers[: self.tree.n_leaves])


class Consensus(Aggregator):
    """Finds the global clusters, and how many there are, from micro-clusters that every client reports.

    A client sends its micro-clusters once: count, mean and scatter of pieces of at least `min_report` rows, and along
    which axes they are long. Whatever phase 1 found is reported but not needed. The server clusters all micro-clusters
    for every K, compares each clustering with what one Gaussian would give, and chooses (see
    `koncord.aggregate.consensus.choosing`); one cluster is a possible answer. Gaussian clusters are fitted to the
    micro-clusters; a site with a privacy budget sends no covariance, and then the centers of the micro-clusters are
    kept. A client with fewer than `min_report` rows reports nothing; its rows get labels all the same.

    Parameters
    ----------
    min_report : int or None, default None
        Smallest number of rows of a micro-cluster. None is 20, or the floor of the run if that is more.
        Smaller micro-clusters find clusters less well (docs/consensus.md) and disclose more; the floor of the run must
        allow them.
    max_clusters : int, default 100
        Largest number of clusters considered.
    slack : float, default 0.02
        Clusterings whose null-corrected silhouette is within `slack` of the best, and a quarter of it, are ties; the
        gap statistic breaks them.
    min_support : int or None, default None
        Sites that must hold micro-clusters of a cluster. None takes the value of the run, which is 1 by default. With 2
        or more, a single malicious site can do less harm: micro-clusters of clusters with fewer sites are set aside and
        K is chosen again, and no site counts for more rows than so many sites have. Clusters that a single honest site
        holds are lost too.
    harmonize : bool, default False
        Take out offsets between the sites, as of instruments with another zero, where they are credible (see
        `koncord.aggregate.consensus.calibration`); without it, they are only reported.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: np.concatenate([rng.normal(m, 1, (80, 3)) for m in held])
    ...          for name, held in {"north": (0, 9), "south": (9, 18), "west": (0, 18)}.items()}
    >>> clustering = koncord.FederatedClustering(aggregator=koncord.Consensus(), random_state=0).fit(sites)
    >>> clustering.n_clusters_
    3
    """

    name: ClassVar[str] = "consensus"
    client_steps: ClassVar[Mapping[type[Any], ClientStep]] = {Report: report_micro_clusters}
    private_steps: ClassVar[Mapping[type[Any], PrivateStep]] = {
        Report: private_report,
        CommonProducts: private_products,
        CommonCells: private_cells,
        CountCells: private_counts,
    }
    streamed_steps: ClassVar[Mapping[type[Any], StreamedStep]] = {Report: report_all_rows}

    def __init__(
        self,
        min_report: int | None = None,
        *,
        max_clusters: int = 100,
        slack: float = 0.02,
        min_support: int | None = None,
        harmonize: bool = False,
    ) -> None:
        self.min_report = min_report
        self.max_clusters = max_clusters
        self.slack = slack
        self.min_support = min_support
        self.harmonize = harmonize

    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        self._check()
        return self._serve(n_features, rng)

    def private_server(
        self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator, described: Mapping[str, Described]
    ) -> Server:
        self._check()
        if self.harmonize:
            raise ValueError(
                "'harmonize' of Consensus must be False with a privacy budget: such a site sends no micro-clusters of "
                "its own to find an offset from."
            )
        return self._serve_private(clients, n_features, rng, described)

    def _check(self) -> None:
        check_count("min_report", self.micro_rows, owner=self)
        check_count("max_clusters", self.max_clusters, owner=self)
        check_number("slack", self.slack, owner=self, least=0)
        check_count("min_support", self.support, owner=self)

    @property
    def micro_rows(self) -> int:
        """Rows that a micro-cluster stands for at least; a site with a higher floor keeps to its own."""
        return DEFAULT_MIN_REPORT if self.min_report is None else self.min_report

    @property
    def support(self) -> int:
        return 1 if self.min_support is None else self.min_support

    def for_run(self, *, min_report: int | None, min_support: int) -> Self:
        """This aggregator with the floor and the support of the run; `ValueError` where its own are lower."""
        run = {"min_report": min_report or 1, "min_support": min_support}
        for name, of_run in run.items():
            own = getattr(self, name)
            if own is not None and check_count(name, own, owner=self) < of_run:
                raise ValueError(
                    f"'{name}' of Consensus is {own} and that of the run {of_run}, which it cannot go below; give both "
                    f"the same, or leave it to the run: Consensus({name}=None)."
                )
        mine = {"min_report": self.micro_rows, "min_support": self.support}
        return self.cloned().set_params(**{name: max(mine[name], run[name]) for name in run})

    def private_plan(self, n_rounds: int | None) -> Plan:
        passes = {CELLS: commoncells.N_PASSES - 1, LAST_CELLS: 1}
        times = {MOMENTS: 1, PRODUCTS: 1, **passes, HOLDINGS: 1}
        return Plan(shares=commoncells.SHARES, times=times)

    def private_messages(self) -> Mapping[type[Any], int]:
        return {CommonProducts: 1, CommonCells: commoncells.N_PASSES, CountCells: 1}

    def _serve(self, n_features: int, rng: np.random.Generator) -> Server:
        reports: dict[str, MicroClusters] = dict((yield Report(min_report=self.micro_rows)))
        if not any(len(each) for each in reports.values()):
            raise KoncordError(
                f"No client sent a micro-cluster: each has fewer than {self.micro_rows} rows, or than its floor. "
                f"{LOWER_FLOOR} 'min_report' of Consensus (--set min_report) must be as small."
            )
        aside = rng.spawn(1)[0]  # what is asked besides must not change the answer
        with begun(partial(offsets_and_stream, reports, aside)) as search:
            if self.harmonize:
                offsets = search()[0]
                if offsets is not None and offsets.is_credible:
                    reports = aligned(reports, offsets.by_client)
            outcome = self._answered(reports, n_features, rng)
            offsets, aside = search()
        if offsets is None or not offsets.is_credible:
            return with_note(outcome, NOTHING_TO_HARMONIZE) if self.harmonize else outcome
        if self.harmonize:
            return with_calibration(outcome, offsets, len(outcome.centers), is_applied=True)
        as_aligned = aligned(reports, offsets.by_client)
        other = self._agreed(as_aligned, n_features, aside)
        groups = other.by_client(other.choice.labels, partial(nearest, means=other.centers()), as_aligned)
        effects = site_effects(outcome.groups, groups, outcome.rows)
        n_clusters = other.choice.chosen.n_clusters
        return with_calibration(outcome, offsets, n_clusters, is_applied=False, effects=effects)

    def _answered(self, reports: Mapping[str, MicroClusters], n_features: int, rng: np.random.Generator) -> Outcome:
        """The clusters of the reports, and how sure they are."""
        agreed = self._agreed(reports, n_features, rng)
        stable_shares = stabilities(agreed.micro, agreed.clients, agreed.choice, rng)
        has_shapes = all(len(each.axes) for each in agreed.reports.values() if len(each))
        found = (shaped if has_shapes else by_nearest_center)(agreed, stable_shares, rng)
        with begun(found.grown) as grown:
            drawn = resampled(found.clusters.micro, agreed.clients, agreed.choice, rng, slack=self.slack)
            confidence = confidence_of(
                found.clusters,
                found.labels,
                agreed.clients,
                stable_shares=found.stabilities,
                drawn=drawn,
                tree=grown()[0],
            )
            return self._outcome(replace(found, grown=grown), agreed, reports, confidence)

    def _serve_private(
        self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator, described: Mapping[str, Described]
    ) -> Server:
        """With cells common to the clients that have a budget, beside the micro-clusters of those that have none."""
        search = commoncells.Search.of(described, self.private_plan(None))
        reports: dict[str, MicroClusters] = {}
        asked_beside: dict[str, Any] = {
            client: Report(min_report=self.micro_rows) for client in clients if client not in described
        }
        if n_features <= commoncells.MOST_COLUMNS:
            replies = yield {**dict.fromkeys(described, search.ask_products()), **asked_beside}
            asked_beside = {}
            products, reports = divided_replies(replies)
            search = search.with_products(products, described, rng).beside(list(reports.values()))
            n_kept = None if search.spectrum is None or described.keys() != set(clients) else search.spectrum.n_kept
            if n_kept is not None:
                agreed = yield from self._counted(search, n_kept, described, rng)
                found = by_nearest_center(agreed, [None] * agreed.choice.chosen.n_clusters, rng)
                return self._outcome(found, agreed, {}, None)
        passes = search.passes(self.micro_rows, rng)
        centers, noises = next(passes), []
        for at in range(commoncells.N_PASSES):
            down: dict[str, Any] = dict.fromkeys(
                described,
                CommonCells(
                    centers=centers,
                    ball_center=search.ball.center,
                    ball_radius=search.ball.radius,
                    is_last=at == commoncells.N_PASSES - 1,
                ),
            )
            if not at:
                down |= asked_beside
            sent, more = divided_replies((yield down))
            reports |= more
            if not sent:
                raise KoncordError(NOBODY_ANSWERED)
            found_sums = commoncells.summed(list(sent.values()), search.ball)
            noises.append(found_sums.sum_noise)
            try:
                centers = passes.send(found_sums)
            except StopIteration as finished:
                cells = finished.value
        agreed = self._agreed_private({**reports, COMMON: commoncells.as_micro_clusters(cells)}, search, noises, rng)
        found = by_nearest_center(agreed, [None] * agreed.choice.chosen.n_clusters, rng)
        return self._outcome(found, agreed, reports, None)

    def _counted(
        self, search: commoncells.Search, n_kept: int, described: Mapping[str, Described], rng: np.random.Generator
    ) -> Generator[Any, Replies, Agreed]:
        """A choice by counts of cells along the few axes that stand out of the noise."""
        assert search.spectrum is not None
        n_cells = cellcounts.n_cells_of(search.n_rows, search.count_noise)
        layout = cellcounts.Layout.of(search.ball.center, search.spectrum, n_kept, n_cells, rng)
        replies = yield dict.fromkeys(
            described,
            CountCells(
                centers=layout.in_columns(layout.points),
                ball_center=search.ball.center,
                ball_radius=search.ball.radius,
            ),
        )
        sent: list[CellCounts] = list(replies.values())
        if not sent:
            raise KoncordError(NOBODY_ANSWERED)
        counted = cellcounts.Counted.of(
            np.sum([each.counts for each in sent], axis=0),
            float(np.sqrt(sum(each.noise**2 for each in sent))),
            layout,
            rng,
        )
        if not counted.is_cell(counted.counts).any():
            raise KoncordError(NO_CELL_STANDS_OUT)
        choice = cellcounts.choose_by_counts(counted, rng, max_clusters=self.max_clusters, slack=self.slack)
        micro = layout.with_beside(counted.micro_clusters(counted.counts))
        return Agreed(
            choice=replace(choice, scales=np.ones(len(layout.middle))),
            reports={COMMON: micro},
            micro=micro,
            clients=np.zeros(len(micro), dtype=np.int64),
            supported={COMMON: np.ones(len(micro), dtype=np.bool_)},
        )

    def _agreed_private(
        self,
        reports: Mapping[str, MicroClusters],
        search: commoncells.Search,
        noises: Sequence[float],
        rng: np.random.Generator,
    ) -> Agreed:
        """A choice against a null model that goes through the noise of the common cells."""
        if not any(len(each) for each in reports.values()):
            raise KoncordError(NO_CELL_STANDS_OUT)
        d = len(search.deviations)
        kept = {client: replace(each, axes=np.empty((0, d))) for client, each in reports.items()}
        micro = stacked(list(kept.values()), d)
        clients = np.repeat(np.arange(len(kept)), [len(each) for each in kept.values()])
        open_rows = np.array([each.counts.sum() for client, each in kept.items() if client != COMMON], dtype=np.int64)
        choice = choose(
            micro,
            np.bincount(clients, micro.counts, minlength=len(kept)).astype(np.int64),
            rng,
            max_clusters=self.max_clusters,
            slack=max(self.slack, commoncells.NOISY_SLACK),
            null_of=lambda weighed, rows, rng, scales: commoncells.NoisyGaussian.through(
                weighed, open_rows, scales, search, noises
            ),
        )
        supported = {client: np.ones(len(each), dtype=np.bool_) for client, each in kept.items()}
        return Agreed(choice=choice, reports=kept, micro=micro, clients=clients, supported=supported)

    def _outcome(
        self, found: "Found", agreed: Agreed, reports: Mapping[str, MicroClusters], confidence: Confidence | None
    ) -> Outcome:
        every = {**agreed.reports, **reports}
        groups = agreed.by_client(found.labels, found.assign, every)
        leaves = agreed.by_client(found.leaves, found.nearest_leaf, every)
        return Outcome(
            centers=found.centers,
            gaussians=found.gaussians,
            groups={client: groups[client] for client in reports},
            components={client: each.means for client, each in reports.items()},
            rows={client: each.counts for client, each in reports.items()},
            tree=replace(found.tree, groups={client: leaves[client] for client in reports}),
            confidence=confidence,
            excluded={client: ~supported for client, supported in agreed.supported.items() if not supported.all()},
            diagnostics=Diagnostics(
                rounds=1,
                stopped="one round",
                label_rule="nearest" if found.gaussians is None else "gaussian",
                choice=k_choice(agreed.choice),
                stabilities=found.stabilities,
                micro_clusters={client: len(each) for client, each in reports.items()},
                notes=tuple(notes(agreed, found.n_dropped, self)),
            ),
        )

    def _agreed(self, reports: Mapping[str, MicroClusters], n_features: int, rng: np.random.Generator) -> Agreed:
        """A choice, made again without the micro-clusters of clusters that too few clients support."""
        heard = reports if self.support == 1 else without_excess(reports, self.support)
        supported = {client: np.ones(len(each), dtype=np.bool_) for client, each in heard.items()}
        for last in reversed(range(MOST_CHOICES)):
            kept = with_micro_clusters(heard, supported)
            micro = stacked(list(kept.values()), n_features)
            clients = np.repeat(np.arange(len(kept)), [len(each) for each in kept.values()])
            choice = self._choose(micro, np.bincount(clients, micro.counts).astype(np.int64), rng)
            weak = weak_clusters(choice.labels, clients, self.support)
            if not weak.any() or weak.all() or not last:
                break
            for at, is_supported in enumerate(supported.values()):
                is_supported[is_supported] = ~weak[choice.labels[clients == at]]
        return Agreed(choice=choice, reports=kept, micro=micro, clients=clients, supported=supported)

    def _choose(self, micro: MicroClusters, rows: IntArray, rng: np.random.Generator) -> Choice:
        return choose(micro, rows, rng, max_clusters=self.max_clusters, slack=self.slack)


def by_nearest_center(agreed: Agreed, stable_shares: Sequence[float | None], rng: np.random.Generator) -> Found:
    """The clusters as they were chosen, by nearest center: of some micro-clusters the shape is not known."""
    centers = agreed.centers()
    labels = nearest(agreed.micro.means, centers)
    clusters = Clusters.of(agreed.micro, labels, agreed.choice.scales, closest_only(centers, agreed.micro.means))
    return Found(
        centers=centers,
        labels=labels,
        clusters=clusters,
        grown=cache(partial(tree_of, clusters, rng, centers=centers, full=agreed.micro.means)),
        stabilities=tuple(stable_shares),
    )


def shaped(agreed: Agreed, stable_shares: Sequence[float | None], rng: np.random.Generator) -> Found:
    """Gaussian clusters, fitted to the micro-clusters."""
    parts = parts_of(list(agreed.reports.values()), agreed.choice.scales)
    look, chosen = agreed.choice.look, agreed.choice.chosen
    is_apart = look.shapes.distances(members(look.labels_of(chosen))) >= CLEAR
    gaussians, shares = fit_gaussians(parts, agreed.choice.labels, rng, is_apart)
    labels = shares.argmax(axis=1)
    came_from = best_match(agreed.choice.labels, shares * agreed.micro.counts[:, None])
    # d' is read off clusters that do not overlap, as it was when they were chosen.
    clusters = Clusters.of(agreed.micro, as_chosen(agreed, labels, came_from), agreed.choice.scales, shares.T)
    fitted = Fitted(gaussians, parts, shares)
    grow = partial(tree_of, clusters, rng, centers=gaussians.centers, full=agreed.micro.means, fitted=fitted)
    return Found(
        centers=gaussians.centers,
        gaussians=gaussians,
        labels=labels,
        clusters=clusters,
        grown=cache(grow),
        stabilities=tuple(stable_shares[cluster] for cluster in came_from),
        n_dropped=chosen.n_clusters - len(gaussians.centers),
    )


def offsets_and_stream(
    reports: Mapping[str, MicroClusters], rng: np.random.Generator
) -> tuple[Offsets | None, np.random.Generator]:
    """The offsets, and the stream after what was drawn for them: another process may have looked for them."""
    return find_offsets(reports, rng), rng


def divided_replies(replies: Replies) -> tuple[dict[str, Any], dict[str, MicroClusters]]:
    """What clients with a privacy budget sent, and the micro-clusters of the others."""
    reports = {client: up for client, up in replies.items() if isinstance(up, MicroClusters)}
    return {client: up for client, up in replies.items() if client not in reports}, reports


def with_note(outcome: Outcome, note: str) -> Outcome:
    return replace(outcome, diagnostics=replace(outcome.diagnostics, notes=(*outcome.diagnostics.notes, note)))


def with_calibration(
    outcome: Outcome, offsets: Offsets, n_clusters: int, *, is_applied: bool, effects: tuple[int, ...] = ()
) -> Outcome:
    """The outcome with what is known of the offsets between its clients."""
    calibration = Calibration(
        offsets={client: tuple(each.tolist()) for client, each in offsets.by_client.items()},
        before=offsets.prediction.before,
        after=offsets.prediction.after,
        is_applied=is_applied,
        n_clusters=n_clusters,
        site_effects=effects,
    )
    return replace(
        outcome,
        offsets=offsets.by_client if is_applied else {},
        diagnostics=replace(outcome.diagnostics, calibration=calibration),
    )


def closest_only(centers: FloatArray, means: FloatArray) -> FloatArray:
    """All of the nearest micro-cluster (k, n) for each center."""
    found = np.zeros((len(centers), len(means)))
    found[np.arange(len(centers)), nearest(centers, means)] = 1.0
    return found


def best_match(labels: IntArray, rows: FloatArray) -> list[int]:
    """For each cluster of the mixture, the cluster of `labels` that most of its `rows` (n, k) come from."""
    common = np.zeros((int(labels.max()) + 1, rows.shape[1]))
    np.add.at(common, labels, rows)
    found: list[int] = common.argmax(axis=0).tolist()
    return found


def as_chosen(agreed: Agreed, labels: IntArray, came_from: Sequence[int]) -> IntArray:
    """The cluster of each micro-cluster as it was chosen; of clusters that the mixture has lost, its own now.

    Where two clusters of the mixture come from one that was chosen, all are as the mixture has them.
    """
    if len(set(came_from)) < len(came_from):
        return labels
    numbers = np.full(agreed.choice.chosen.n_clusters, -1)
    numbers[list(came_from)] = np.arange(len(came_from))
    chosen = numbers[agreed.choice.labels]
    return np.where(chosen >= 0, chosen, labels)


def k_choice(choice: Choice) -> KChoice:
    """The choice for a reader."""
    return KChoice(
        chosen=KCandidate(**asdict(choice.chosen)),
        runner_up=None if choice.runner_up is None else KCandidate(**asdict(choice.runner_up)),
        candidates=tuple(KCandidate(**asdict(each)) for each in choice.candidates),
        separation_by_chance=choice.separation_by_chance,
        gap_by_chance=choice.gap_by_chance,
        stands_apart=choice.stands_apart,
    )


def set_aside(agreed: Agreed) -> dict[str, int]:
    """Number of micro-clusters that were set aside, by client; clients without any are left out."""
    unsupported = {client: int((~supported).sum()) for client, supported in agreed.supported.items()}
    return {client: n for client, n in unsupported.items() if n}


def notes(agreed: Agreed, n_dropped: int, by: Consensus) -> list[str]:
    said, chosen = [], agreed.choice.chosen.n_clusters
    if chosen > 1 and not agreed.choice.look.stands_alone(agreed.choice.chosen):
        said.append(
            "There may be no structure beyond the shape of the cloud: each of these clusters runs into another one "
            "without a valley between them, as pieces of a skewed or heavy-tailed cloud without any clusters do."
        )
    elif chosen > 1 and agreed.choice.chosen.least_apart < SINGLE_PEAK:
        said.append(
            "Not all of these clusters stand apart from their neighbors: there is more structure than in one "
            "Gaussian, but a skewed or uniform cloud without any clusters could look the same."
        )
    if 1 < chosen == by.max_clusters:
        said.append(f"The number of clusters is the largest that was looked at, {by.max_clusters}: there may be more.")
    if len(agreed.micro) < FEW_MICRO_CLUSTERS * len(np.unique(agreed.clients)):
        said.append(
            f"Sites reported {len(agreed.micro) / len(np.unique(agreed.clients)):.1f} micro-clusters on average, which "
            f"may hide clusters of few rows: micro-clusters of fewer than {by.micro_rows} rows show them, "
            "where sites allow it."
        )
    if n_dropped:
        said.append(
            f"{chosen} clusters were chosen; {n_dropped} of them lost all that clients reported to others when "
            "the clusters were fitted, and are left out."
        )
    unsupported = set_aside(agreed)
    if unsupported:
        whose = ", ".join(f"{n} of {client}" for client, n in unsupported.items())
        said.append(
            f"Micro-clusters of clusters that fewer than {by.support} sites support were set aside before K "
            f"was chosen: {whose}."
        )
    return said
