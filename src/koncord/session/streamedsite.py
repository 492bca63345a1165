"""A site whose table is read batch by batch: it answers what a site answers, in passes over all rows.

It holds a sample of the rows, from which columns are sketched, phase 1 runs and micro-clusters are cut. Counts, sums
and second moments are those of all rows, and the joint partition is held on all rows (`koncord.protocol.streamed`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from koncord._validation import LARGEST_VALUE
from koncord.aggregate.base import Aggregator, LabelOf, StreamedLocal
from koncord.data.batches import SampledTable
from koncord.errors import MessageError
from koncord.kernels.assign import sums_by_label
from koncord.kernels.cutting import cut_tree
from koncord.prepare.plan import Plan
from koncord.prepare.sketch import rounded_down
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger
from koncord.protocol.partition import MOST_CELLS
from koncord.protocol.streamed import (
    ScaledLabel,
    Scaling,
    StreamedCells,
    StreamedGroups,
    StreamedInMemory,
    StreamedPartition,
    StreamedStore,
    sample_as_sent,
    streamed_rows,
    uncoded_rows,
)
from koncord.protocol.surrogates import surrogate_rows
from koncord.protocol.wire import pack
from koncord.session.policy import SitePolicy
from koncord.session.site import SentScale, Site
from koncord.types import FloatArray, IntArray

Scale = Callable[[FloatArray], FloatArray]  # coded rows (n, n_columns) -> rows on some scale


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledStreamedGroups:
    """Rows sorted as the joint partition allows, on the agreed scale."""

    groups: StreamedGroups
    scale: Scale
    n_labels: int
    sample_labels: IntArray

    def batches(self) -> Iterator[tuple[FloatArray, IntArray]]:
        for coded, labels in self.groups.batches():
            yield self.scale(coded), labels


class StreamedSite(Site):
    """One client whose table is read batch by batch.

    Parameters
    ----------
    name : str
        The site's own stable name.
    table : SampledTable
        Its table, which was read once.
    estimator : object
        Phase-1 estimator, fitted on the sample.
    aggregator : Aggregator or type
        One with steps for such tables.
    policy : SitePolicy or None, default None
        What the site's owner lets leave it; a privacy budget is refused.
    ledger : Ledger or None, default None
        Where every message is noted before it leaves, or None.
    store : StreamedStore or None, default None
        What was answered of the rows before; None: nothing, and it is kept as long as this object.
    uses : sequence of str or None, default None
        Columns that this site answers about; None is all of them.
    """

    def __init__(
        self,
        name: str,
        table: SampledTable,
        *,
        estimator: Any,
        aggregator: Aggregator | type[Aggregator],
        policy: SitePolicy | None = None,
        ledger: Ledger | None = None,
        store: StreamedStore | None = None,
        uses: Sequence[str] | None = None,
    ) -> None:
        check_streamed(aggregator, policy)
        super().__init__(
            name,
            table.sample[:0],
            table.columns,
            estimator=estimator,
            aggregator=aggregator,
            policy=policy,
            ledger=ledger,
            uses=uses,
        )
        self.store: StreamedStore = StreamedInMemory() if store is None else store
        self.table = self.answered = self.X = table.sample  # what phase 1 sees
        self.partition = None  # of the sample; that of all rows is below
        self.all = table
        self.all_rows: StreamedPartition | None = None  # once it is known how columns are shaped
        self.streamed_steps = aggregator.streamed_steps

    @property
    def n_passes(self) -> int:
        """Passes over all rows up to now."""
        return self.all.passes.total()

    @property
    def cells(self) -> StreamedPartition:
        """The joint partition of all rows; sums are asked for before it is."""
        if self.all_rows is None:
            raise MessageError(f"site {self.name!r} was asked about its rows before it was asked for sums.")
        return self.all_rows

    def _reply(self, message: Any, round_: int) -> Any:
        if isinstance(message, setup.Survey | setup.Measure | setup.Describe | setup.Prepare):
            return super()._reply(message, round_)
        assert self.prepared is not None
        if isinstance(message, setup.Attribute):
            return self._attributed(message)
        cells = None if self.min_report <= 1 else self._cut(self.prepared, self.X)
        local = StreamedLocal(
            sample=self._read_rows(self.prepared, self.X),
            n_rows=self.all.n_rows,
            min_report=self.min_report,
            sort=self._sorted,
            cell_means=None if cells is None else self._scale_of(self.prepared.plan())(means_in(cells)),
            cells=None if cells is None else self._cells_of_sample(cells),
        )
        self.state, reply = self.streamed_steps[type(message)](local, self.state, message)
        return reply

    # --- openings ---

    def _surveyed(self) -> setup.Sketch:
        """Blocks of the sample, and how many values there are in all rows."""
        n, n_sample = self.all.n_rows, len(self.all.sample)
        sent = setup.survey(self._used(sample_as_sent(self.all, self.min_report)), self.uses, {}, self.min_report)
        if n < self.min_report:
            return replace(sent, count=0)
        ends = np.minimum(np.ceil(sent.ends * (n / n_sample)).astype(np.int64), n // 2)
        exact = replace(sent, count=n, available=np.full(len(self.uses), n), ends=ends)
        return exact if self.min_report <= 1 else setup.rounded_sketch(exact)

    def _described(self) -> setup.Moments:
        self._shape(setup.Describe())
        if self.all.n_rows < self.min_report:
            return setup.describe(self._used(self.all.sample[:0]), self.uses, self.min_report)
        at = setup.order_of(self.columns, self.uses)
        origin, scales = (each[at] for each in self.cells.rows.scale())
        sums = self._summed(lambda coded: (coded[:, at] - origin) / scales, at)
        exact = setup.Moments(
            columns=self.uses,
            count=self.all.n_rows,
            means=origin + scales * sums.means,
            scatters=scales**2 * sums.scatters,
        )
        sent = exact if self.min_report <= 1 else setup.rounded(exact)
        self.sent_scale = SentScale(columns=self.uses, means=sent.means, deviations=np.sqrt(sent.scatters))
        return sent

    def _measures(self, message: setup.Measure) -> setup.Measured:
        order, n = setup.order_of(self.columns, message.columns), self.all.n_rows
        if n < self.min_report:
            return setup.measured(self.all.sample[:0], self.columns, message, self.min_report)
        sums = self._summed(lambda coded: (coded[:, order] - message.means) / message.scales, order, message)
        pairs = np.full((len(order), len(order)), n)
        exact = setup.Measured(
            counts=rounded_down(np.full(len(order), n), n, self.min_report),
            means=sums.means,
            scatters=sums.scatters,
            fenced=sums.fenced // self.min_report * self.min_report,
            products=sums.products if message.paired else None,
            pairs=pairs if message.paired else None,
        )
        sent = exact if self.min_report <= 1 else setup.rounded_measures(exact, message)
        self.sent_scale = SentScale(
            columns=message.columns,
            means=message.means + message.scales * sent.means,
            deviations=message.scales * np.sqrt(sent.scatters),
        )
        return sent

    def _shape(self, message: setup.Measure | setup.Describe) -> None:
        """The first question for sums says how columns are shaped for good: one pass, if nothing is kept of it."""
        asked = message
        if self.all_rows is None:
            if isinstance(asked, setup.Measure) and self.min_report > 1:
                asked = setup.without_windows(asked, uncoded_rows(self.all).sample(), self.columns)
            shaping = setup.shaping_of(self.store.first_asked(pack(asked)), self.columns)
            rows = streamed_rows(self.all, shaping, self.store)
            self.all_rows = StreamedPartition(rows, self.min_report, self.store)
        if isinstance(message, setup.Measure) and self.min_report > 1:
            self._check_logged(message)

    def _check_logged(self, message: setup.Measure) -> None:
        """Refuse other logarithms than those of the first question: all rows are kept behind these."""
        kept = self.cells.rows.shaping
        logged = np.zeros(len(self.columns), dtype=np.bool_)
        if kept is not None:
            logged[kept.at] = kept.plan.is_logged
        if not np.array_equal(logged[setup.order_of(self.columns, message.columns)], message.plan().is_logged):
            raise MessageError(
                f"site {self.name!r} reads its table batch by batch and has answered with other logarithms before."
            )

    def _summed(self, scale: Scale, used: IntArray | None = None, asked: setup.Measure | None = None) -> "ScaledSums":
        """Sums over all rows, two-valued columns as they are sent of one cell: one pass."""
        rows, n = self.cells.rows, self.all.n_rows
        at = np.arange(len(self.columns)) if used is None else used
        sums, products, fenced = np.zeros(len(at)), np.zeros((len(at), len(at))), np.zeros(len(at), dtype=np.int64)
        plan = None
        if asked is not None:
            # Beyond the fence that holds: how many lie beyond another one in every run would tell values by bisection.
            plan = (
                setup.kept_fence(self.store.first_asked(pack(asked)), asked) if self.min_report > 1 else asked
            ).plan()
        sent_rarer = self.cells.cells.rarer.sum(axis=0)
        for X in rows.batches("sums"):
            Z = scale(rows.coded(X))
            sums += Z.sum(axis=0)
            products += Z.T @ Z
            if plan is not None:
                fenced += plan.is_fenced(X[:, at]).sum(axis=0)
        values = scale(rows.coded(np.nan_to_num(self.all.pairs, nan=1.0)))
        for place, column in enumerate(at.tolist()):
            if column in rows.two_valued:
                n_rarer = int(sent_rarer[rows.two_valued.tolist().index(column)])
                more, rarer = values[:, place]
                sums[place] = (n - n_rarer) * more + n_rarer * rarer
                products[place, place] = (n - n_rarer) * more**2 + n_rarer * rarer**2
        means = sums / n
        scatters = np.maximum(np.diagonal(products) - n * means**2, 0.0)
        return ScaledSums(means=means, scatters=scatters, products=products, fenced=fenced)

    def _planned(self, message: setup.Prepare, table: FloatArray) -> FloatArray:
        """The sample as the plan makes it."""
        return self._scale_of(message.plan())(self.cells.rows.coded(self.all.sample))

    def _scale_of(self, plan: Plan) -> Scaling:
        return Scaling(order=setup.order_of(self.columns, plan.columns), means=plan.means, scales=plan.scales)

    def _check_scale(self, message: setup.Prepare) -> None:
        if self.sent_scale is None:
            raise MessageError(f"site {self.name!r} was sent a scale before it was asked for sums.")
        order = setup.order_of(self.sent_scale.columns, message.columns)
        means, deviations = self.sent_scale.means, self.sent_scale.deviations
        if self.all.n_rows >= self.min_report:
            with np.errstate(over="ignore"):
                farthest = (np.abs(means[order] - message.means) + deviations[order]) / message.scales
            if not farthest.max() <= LARGEST_VALUE:
                raise MessageError(f"site {self.name!r} was asked for a scale on which its rows are no numbers.")

    # --- rounds ---

    def _cut(self, prepared: setup.Prepare, X: FloatArray) -> StreamedCells:
        """The cells of all rows, which the sample X is cut into on the scale of the first run: one pass, once."""
        rows = self.cells.rows

        def own_cuts() -> tuple[ScaledLabel, int]:
            tree = cut_tree(X, self.min_report, MOST_CELLS, is_safe=rows.sample().safe_cuts)
            return ScaledLabel(rows=rows, scaling=self._scale_of(prepared.plan()), by=tree), tree.n_groups

        return self.cells.cut(own_cuts)

    def _cells_of_sample(self, cells: StreamedCells) -> IntArray:
        """The number of each cell, as often as it has rows in the sample, at least once."""
        counts = np.bincount(cells.of_rows(self.all.sample), minlength=len(cells.counts))
        return np.repeat(np.arange(len(counts)), np.maximum(counts, 1))

    def _read_rows(self, prepared: setup.Prepare, X: FloatArray) -> FloatArray:
        """The sample as steps and phase 1 read it; the mean of a cell where too few rows of it are in the sample."""
        if self.min_report <= 1 or self.reads_rows:
            return X
        cells = self._cut(prepared, X)
        of_row = cells.of_rows(self.all.sample)
        is_few = np.bincount(of_row, minlength=len(cells.counts))[of_row] < self.min_report
        means = self._scale_of(prepared.plan())(means_in(cells))
        return np.where(is_few[:, None], means[of_row], surrogate_rows(X, of_row))

    def _sorted(self, by: LabelOf, n_labels: int) -> ScaledStreamedGroups:
        assert self.prepared is not None
        scale = self._scale_of(self.prepared.plan())
        cells = None if self.min_report <= 1 else self._cut(self.prepared, self.X)
        groups = StreamedGroups(rows=self.cells.rows, label=lambda coded: by(scale(coded)), cells=cells)
        sample_labels = groups.labels(self.all.sample)
        return ScaledStreamedGroups(groups=groups, scale=scale, n_labels=n_labels, sample_labels=sample_labels)

    def _attributed(self, message: setup.Attribute) -> setup.Holdings:
        """Rows of each cluster, of all rows; silhouettes of cells or, without a floor, of rows of the sample."""
        k = len(message.centers)
        groups = self._sorted(message.assign, k)
        if self.min_report > 1:
            return self._attributed_cells(groups, k)
        counts = np.sum([np.bincount(labels, minlength=k) for _, labels in groups.batches()], axis=0)
        seen = setup.attribute(self.X, groups.sample_labels, message, self.min_report)
        is_scored = ~np.isnan(seen.silhouettes) & (counts > 0)
        return setup.Holdings(
            counts=counts,
            silhouettes=np.where(is_scored, seen.silhouettes, np.nan),
            scored=np.where(is_scored, counts, 0),
        )

    def _attributed_cells(self, found: ScaledStreamedGroups, k: int) -> setup.Holdings:
        """Rows and silhouettes by global cluster, from sums over the cells: one pass."""
        groups, d = found.groups, self.X.shape[1]
        assert groups.cells is not None
        n_cells = len(groups.cells.counts)
        counts, sums, squares = np.zeros(n_cells, dtype=np.int64), np.zeros((n_cells, d)), np.zeros(n_cells)
        for coded, cells in groups.by_cell():
            Z = found.scale(coded)
            counts += np.bincount(cells, minlength=n_cells)
            sums += sums_by_label(Z, cells, n_cells)
            squares += np.bincount(cells, np.vecdot(Z, Z), minlength=n_cells)
        means = sums / np.maximum(counts, 1)[:, None]
        scatters = np.maximum(squares - counts * np.vecdot(means, means), 0.0)
        there = counts > 0
        labels = groups.cell_labels[there]
        return setup.attribute_cells(counts[there], means[there], scatters[there], labels, k, self.min_report)


def means_in(cells: StreamedCells) -> FloatArray:
    """Means of coded rows by cell, once these are cut."""
    assert cells.means is not None
    return cells.means


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledSums:
    """Means, squares about them and products of all rows on some scale, and how many values a fence moves."""

    means: FloatArray  # (n_columns,)
    scatters: FloatArray  # (n_columns,)
    products: FloatArray  # (n_columns, n_columns)
    fenced: IntArray  # (n_columns,)


def check_streamed(aggregator: Aggregator | type[Aggregator], policy: SitePolicy | None) -> None:
    """Refuse what a table that is read batch by batch takes no part in."""
    if not aggregator.streamed_steps:
        raise ValueError(
            f"A table that is read batch by batch takes no part in {aggregator.name}, which reads rows again and "
            "again; consensus takes it (--aggregator consensus)."
        )
    if policy is not None and policy.budget is not None:
        raise ValueError(
            "A table that is read batch by batch takes no part in a run with a privacy budget, which holds all rows; "
            "give one file that fits into memory."
        )
