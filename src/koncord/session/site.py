"""A client's side of a federation: it answers messages, and what it answers is all that leaves.

The same object answers in one process and over a network: bytes in, bytes out.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from koncord._random import draw_seed
from koncord._validation import LARGEST_VALUE
from koncord.aggregate.base import Aggregator, Local, sends_rows
from koncord.aggregate.private import Known, PrivateClient, private_client
from koncord.errors import DisclosureRefused, MessageError
from koncord.estimate.named import made
from koncord.kernels.assign import means_by_label
from koncord.prepare.columns import level_counts
from koncord.prepare.plan import OTHER
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger
from koncord.protocol.partition import (
    JointCells,
    JointPartition,
    Rows,
    Shaping,
    one_cell,
    rows_of,
    two_valued_as_sent,
    unshaped,
)
from koncord.protocol.surrogates import surrogate_rows
from koncord.protocol.wire import pack
from koncord.session.guard import QuestionGuard
from koncord.session.policy import SitePolicy
from koncord.types import FloatArray, LocalEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SentScale:
    """Means and roots of scatters of columns, as a site has sent them."""

    columns: tuple[str, ...]
    means: FloatArray
    deviations: FloatArray


class Site:
    """One client: its table, its estimator, and the steps it is ready to take.

    Parameters
    ----------
    name : str
        The site's own stable name; its random streams belong to it.
    X : array (n_samples, n_features)
    columns : tuple of str
        Names of the columns.
    estimator : object
        Phase-1 estimator, cloned before it is fitted.
    aggregator : Aggregator or type
        Class or instance whose client steps this site will take.
    policy : SitePolicy or None, default None
        What the site's owner lets leave it: the floor and the privacy budget are kept here.
    ledger : Ledger or None, default None
        Where every message is noted before it leaves, or None.
    partition : JointPartition or None, default None
        What was answered of the rows before, and the rows that are answered about; None: nothing, and X.
    levels : mapping of str to tuple of str, default None
        The levels of each column that is a category; X has positions in them, and NaN where a value is missing.
    uses : sequence of str or None, default None
        Columns that this site answers about; None is all of them.
    """

    def __init__(
        self,
        name: str,
        X: FloatArray,
        columns: tuple[str, ...],
        *,
        estimator: Any,
        aggregator: Aggregator | type[Aggregator],
        policy: SitePolicy | None = None,
        ledger: Ledger | None = None,
        partition: JointPartition | None = None,
        levels: Mapping[str, tuple[str, ...]] | None = None,
        uses: Sequence[str] | None = None,
    ) -> None:
        self.policy = SitePolicy() if policy is None else policy
        self.min_report = self.policy.min_report
        if self.min_report > 1 and sends_rows(aggregator):
            raise DisclosureRefused(
                f"{aggregator.name} sends rows, which a site that reports no fewer than {self.min_report} does not: "
                "rows leave only with min_report=1 and allow_disclosure=True."
            )
        self.name = name
        self.columns = columns
        self.levels = dict(levels or {})
        self.uses = columns if uses is None else tuple(uses)
        if not set(self.uses) - set(self.levels):
            raise ValueError(f"The table of site {name!r} has no column of numbers; a run needs one beside categories.")
        self.table = X
        if partition is not None:
            self.partition = partition
        self.estimator = estimator
        self.steps = aggregator.client_steps
        self.reads_rows = aggregator.reads_rows
        self.measured: setup.Measure | None = None
        self.sent_scale: SentScale | None = None  # of a site that would need another pass over its rows to know it
        self.prepared: setup.Prepare | None = None
        self.estimate: LocalEstimate | None = None
        self.surrogates: FloatArray | None = None  # of the rows on the agreed scale, once they are needed
        self.state: Any = None
        self.guard = QuestionGuard(name, aggregator, has_budget=self.policy.budget is not None)
        self.ledger = ledger
        self.private: PrivateClient | None = None
        if self.policy.budget is not None:
            own = self._used(X)
            check_complete(name, own, self.levels)
            self.private = private_client(
                name, own, self.uses, self.policy.budget, aggregator, min_report=self.min_report
            )

    # Made when they are first needed: a site whose answers come from another process never needs them.

    @cached_property
    def partition(self) -> JointPartition | None:
        """What all answers over the rows make together; None where any rows may be answered about."""
        if self.min_report > 1 and self.policy.budget is None and len(self.table):
            return JointPartition(rows_of(self.table, self.min_report), self.min_report)
        return None

    @cached_property
    def answered(self) -> FloatArray:
        """The rows that answers are computed from, in the units of the table."""
        return self.table if self.partition is None else as_answered(self.partition.rows)

    @cached_property
    def X(self) -> FloatArray:  # noqa: N802  the rows, as everywhere
        """The rows that answers are computed from, on the agreed scale once it is known."""
        if self.prepared is None:
            return self.answered
        if self.measured is not None:
            self._shape(self.measured)
        return self._scaled(self.prepared)

    def answer(self, data: bytes) -> bytes:
        """The reply to one message of the server; `MessageError` if it is not one this site takes.

        Whatever is refused, or fails, counts against the questions that are left, and is noted in the ledger.
        """
        try:
            message, round_ = self.guard.read(data, self.prepared)
            reply = self._reply(message, round_)
            packed = pack(reply, round_=round_)
        except Exception as error:
            self.note_refusal(error)
            raise
        self.guard.note(message, round_)
        if self.ledger is not None:
            self.ledger.write(reply, round_, packed, self._spent())
        return packed

    def note_refusal(self, error: Exception) -> None:
        """Count a question that was refused or failed, and note why."""
        self.guard.n_refused += 1
        if self.ledger is not None:
            self.ledger.refuse(error, epsilon=self._spent())

    def _spent(self) -> float | None:
        return None if self.private is None else self.private.epsilon

    def answer_all(self, messages: Sequence[bytes]) -> tuple[list[bytes], list[float]]:
        """The replies to several messages in order, and the seconds each took."""
        replies, seconds = [], []
        for message in messages:
            began = perf_counter()
            replies.append(self.answer(message))
            seconds.append(perf_counter() - began)
        return replies, seconds

    def _reply(self, message: Any, round_: int) -> Any:
        if self.private is not None:
            reply = self.private.answer(message, lambda seed: client_stream(seed, self.name, round_))
            self.prepared = self.private.prepared
            return reply
        if isinstance(message, setup.Survey):
            return self._surveyed()
        if isinstance(message, setup.Measure):
            return self._measure(message)
        if isinstance(message, setup.Describe):
            return self._described()
        if isinstance(message, setup.Prepare):
            return self._prepare(message)
        assert self.prepared is not None
        if isinstance(message, setup.Attribute):
            return self._attributed(message)
        local = Local(
            X=self._read_rows(self.prepared, self.X),
            phase1=self.phase1,
            stream=client_stream(self.prepared.seed, self.name, round_),
            min_report=self.min_report,
            cells=None if self.partition is None else self.partition.cut(self.X).of_row,
        )
        self.state, reply = self.steps[type(message)](local, self.state, message)
        return reply

    def _attributed(self, message: setup.Attribute) -> setup.Holdings:
        """Rows and silhouettes by global cluster; with a joint partition, of its cells."""
        if self.partition is None:
            return setup.attribute(self.X, message.assign(self.X), message, self.min_report)
        assert self.prepared is not None
        cells = self.partition.cut(self.X)
        X, k = self._sent_rows(self.prepared, self.X, cells), len(cells)
        counts = np.bincount(cells.of_row, minlength=k)
        means = means_by_label(X, cells.of_row, otherwise=np.zeros((k, X.shape[1])))
        inside = X - means[cells.of_row]
        scatters = np.bincount(cells.of_row, np.vecdot(inside, inside), minlength=k).astype(np.float64)
        labels = message.assign(means)
        return setup.attribute_cells(counts, means, scatters, labels, len(message.centers), self.min_report)

    def _used(self, X: FloatArray) -> FloatArray:
        """The columns that are answered about, row after row in memory: the last bits of sums depend on it."""
        if self.uses == self.columns:
            return X
        return np.ascontiguousarray(X[:, setup.order_of(self.columns, self.uses)])

    def _described(self) -> setup.Moments:
        if self.levels:
            raise MessageError(f"site {self.name!r} has categories, of which there are no means.")
        self._shape(setup.Describe())
        exact = setup.describe(self._used(self._sent_table()), self.uses, self.min_report)
        return exact if self.partition is None else setup.rounded(exact)

    def _surveyed(self) -> setup.Sketch:
        levels = {name: own for name, own in self.levels.items() if name in self.uses}
        exact = setup.survey(self._used(self._surveyed_table()), self.uses, levels, self.min_report)
        return exact if self.partition is None else setup.rounded_sketch(exact)

    def _surveyed_table(self) -> FloatArray:
        """The table that is sketched: the same before and after columns were shaped.

        Behind a fence that somebody chose, blocks would be finer where the fence is narrow.
        """
        if self.partition is None or not self.partition.is_shaped:
            return self._sent_table()
        self.partition.open()
        rows = unshaped(self.partition.rows, self.min_report)
        table = as_answered(rows)
        sent = two_valued_as_sent(one_cell(rows), rows)
        table[:, rows.two_valued] = np.where(rows.gaps[:, rows.two_valued], np.nan, sent)
        return table

    def _measure(self, message: setup.Measure) -> setup.Measured:
        """Sums over shaped values, for one shape only: two that differ by a fence would tell what lies beyond it."""
        if self.measured is not None and pack(self.measured) != pack(message):
            raise MessageError(f"site {self.name!r} was sent a second Measure that is not the first.")
        self._check_numbers(message.columns)
        self._shape(message)
        reply = self._measures(message)
        self.measured = message
        return reply

    def _measures(self, message: setup.Measure) -> setup.Measured:
        if self.partition is None:
            return setup.measured(self.answered, self.columns, message, self.min_report)
        table, raw = self._sent_table(), self.partition.rows.raw
        least = setup.smallest_positive(table[:, setup.order_of(self.columns, message.columns)])
        own = replace(message, low=None, high=None, least=least)
        exact = setup.measured(table, self.columns, own, self.min_report)
        # Beyond the fence that holds: how many lie beyond another one in every run would tell values by bisection.
        kept = setup.kept_fence(self.partition.store.first_asked(pack(message)), message)
        fenced = setup.measured(table, self.columns, kept, self.min_report, raw).fenced
        return setup.rounded_measures(replace(exact, fenced=fenced), message)

    def _shape(self, message: setup.Measure | setup.Describe) -> None:
        """Shape the rows as the first question for sums over them says, which this may be."""
        if self.partition is not None and not self.partition.is_shaped:
            if isinstance(message, setup.Measure):
                message = setup.without_windows(message, self.partition.rows, self.columns)
            self.partition.shape(pack(message), self._shaping)
            self.answered = as_answered(self.partition.rows)

    def _shaping(self, asked: bytes) -> Shaping | None:
        return setup.shaping_of(asked, self.columns)

    def _sent_table(self, cells: JointCells | None = None) -> FloatArray:
        """The table that sums are sent of: two-valued columns have as many rarer values in a cell as are sent of it."""
        if self.partition is None:
            return self.answered
        rows = self.partition.rows
        cells = self.partition.open() if cells is None else cells
        if not len(rows.two_valued):
            return self.answered
        table = self.answered.copy()
        sent = two_valued_as_sent(cells, rows)
        table[:, rows.two_valued] = np.where(rows.gaps[:, rows.two_valued], np.nan, sent)
        return table

    def _read_rows(self, prepared: setup.Prepare, X: FloatArray) -> FloatArray:
        """The rows that steps and phase 1 read, X being those on the agreed scale: with a floor, surrogates of them.

        Of a table below the floor there is nothing to read.
        """
        if self.partition is None or self.reads_rows:
            return X
        if len(X) < self.min_report:
            return np.zeros_like(X)
        if self.surrogates is None:
            cells = self.partition.cut(X)
            self.surrogates = surrogate_rows(self._sent_rows(prepared, X, cells), cells.of_row)
        return self.surrogates

    def _sent_rows(self, prepared: setup.Prepare, X: FloatArray, cells: JointCells) -> FloatArray:
        """The rows on the agreed scale that sums are sent of, two-valued columns as they are sent."""
        assert self.partition is not None
        used = {self.columns[at] for at in self.partition.rows.two_valued.tolist()} & set(prepared.inputs)
        return self._planned(prepared, self._sent_table(cells)) if used else X

    def _planned(self, message: setup.Prepare, table: FloatArray) -> FloatArray:
        """Rows of a table as the plan makes them; where they are shaped for good, not behind another fence."""
        plan = message.plan()
        if self.partition is None:
            return plan.apply(table, self.columns, self.levels, floor=self.min_report)
        least = setup.smallest_positive(table[:, setup.order_of(self.columns, plan.columns)])
        plan = replace(plan, low=None, high=None, least=least)
        return plan.apply(self._completed(message, table), self.columns, self._sent_levels(), floor=self.min_report)

    def _completed(self, message: setup.Prepare, table: FloatArray) -> FloatArray:
        """The table without gaps in its numbers, as the first plan fills them in: another fill would tell single rows.

        Two sums that differ by what stands in for gaps tell what is in the rows of a cell that have one.
        """
        assert self.partition is not None
        order = setup.order_of(self.columns, message.columns)
        if message.missing is None or not np.isnan(table[:, order]).any():
            return table
        answered, floor = self.answered, self.min_report
        whole = self.partition.complete(
            pack(message), lambda first: setup.completed(answered, self.columns, first, floor)
        )
        filled = table.copy()
        filled[:, order] = np.where(np.isnan(table[:, order]), whole[:, order], table[:, order])
        return filled

    def _sent_levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each category; those of too few rows to be sent are one, whatever a plan calls them."""
        assert self.partition is not None
        raw = self.partition.rows.raw
        sent = {}
        for name, levels in self.levels.items():
            reported = level_counts(raw[:, self.columns.index(name)], levels, self.min_report)
            sent[name] = tuple(level if level in reported else OTHER for level in levels)
        return sent

    def _prepare(self, message: setup.Prepare) -> setup.Prepared:
        if self.prepared is None:
            X = self._scaled(message)
            found = self._estimated(self._read_rows(message, X), message.seed) if message.asks_local_k else None
            self.X, self.prepared, self.estimate = X, message, found
        elif pack(self.prepared) != pack(message):  # the same again: the first reply was lost
            raise MessageError(f"site {self.name!r} was sent a second Prepare that is not the first.")
        return self._told(message)

    def phase1(self) -> LocalEstimate:
        """What phase 1 finds in the rows on the agreed scale; it runs once, when it is first asked for."""
        assert self.prepared is not None
        if self.estimate is None:
            self.estimate = self._estimated(self._read_rows(self.prepared, self.X), self.prepared.seed)
        return self.estimate

    def local_k(self) -> int:
        """How many components phase 1 finds in what it may read; 0 of a table below the floor."""
        given = vars(self).get("partition")  # one that is made here is of all rows of the table
        n_rows = len(self.table if given is None else given.rows.raw)
        return self.phase1().n_components if n_rows >= self.min_report else 0

    def resume_measured(self, measured: setup.Measure) -> None:
        """Go on as if this site had just sent what its shaped values sum to."""
        self._shape(measured)
        self.measured = measured

    def _estimated(self, X: FloatArray, seed: int) -> LocalEstimate:
        from koncord.estimate.base import adapted  # with scikit-learn, which most runs do without

        rng = np.random.default_rng(client_stream(seed, self.name, 0))
        return adapted(made(self.estimator)).estimate(X, draw_seed(rng))

    def _told(self, message: setup.Prepare) -> setup.Prepared:
        """What the server hears of phase 1, if it asks: nothing, of a table below the floor."""
        if not message.asks_local_k:
            return setup.Prepared(local_k=None)
        return setup.Prepared(local_k=self.local_k())

    def resume(self, prepared: setup.Prepare, estimate: LocalEstimate | None, state: Any) -> None:
        """Go on as if this site had just answered what it kept this from."""
        self.X, self.prepared, self.estimate, self.state = self._scaled(prepared), prepared, estimate, state

    def learn(
        self, measured: setup.Measure | None, prepared: setup.Prepare, estimate: LocalEstimate | None, state: Any
    ) -> None:
        """Know what the same site found in another process."""
        self.measured, self.prepared, self.estimate, self.state = measured, prepared, estimate, state
        vars(self).pop("X", None)

    def resume_private(self, known: Known, prepared: setup.Prepare | None) -> None:
        """The same for a site with a privacy budget: what it spent and sent still counts."""
        assert self.private is not None
        self.private.restore(known, prepared)
        self.prepared = prepared

    def _scaled(self, message: setup.Prepare) -> FloatArray:
        """The rows as the plan makes them; from now on no row may dominate a sum of these."""
        self._check_numbers(message.columns)
        self._shape(setup.Describe())  # if nothing was: later sums are of the same values
        if not set(message.categories or ()) <= set(self.levels) & set(self.uses):
            raise MessageError(f"site {self.name!r} was asked for categories that its table does not have.")
        if self.measured is None and not message.is_plain:
            raise MessageError(f"site {self.name!r} was sent a plan that nothing was measured for.")
        if self.measured is not None and not message.is_shaped_as(self.measured):
            raise MessageError(f"site {self.name!r} was sent a plan that is not the one it measured by.")
        self._check_scale(message)
        X = self._planned(message, self.answered)
        if self.partition is not None and self.measured is not None:
            shaped = self.partition.rows.X.copy()
            shaped[:, setup.order_of(self.columns, message.columns)] = X[:, : len(message.columns)]
            deviations = shaped.std(axis=0)
            scales = np.where(deviations > 0, deviations, 1.0)
            self.partition.rows = replace(self.partition.rows, X=shaped, scales=scales)
        return X

    def _check_numbers(self, columns: tuple[str, ...]) -> None:
        if not set(columns) <= set(self.uses) - set(self.levels):
            raise MessageError(f"site {self.name!r} was asked for columns that it does not answer about.")
        if self.partition is not None and len(self.partition.rows.raw) >= self.min_report:
            there = ~np.isnan(self.partition.rows.raw[:, setup.order_of(self.columns, columns)])
            if (there.sum(axis=0) < self.min_report).any():  # as what it says of the column tells: no row has a value
                raise MessageError(f"site {self.name!r} was asked for a column that hardly a row has a value of.")

    def _check_scale(self, message: setup.Prepare) -> None:
        """Refuse a scale by what this site tells of its columns anyway: what it refuses must not tell of a row.

        No row lies farther from its mean than the root of the scatter. Where nothing was sent, nothing is refused.
        """
        if self.measured is None:
            order = setup.order_of(self.columns, message.columns)
            sent = setup.describe(self.answered[:, order], message.columns, self.min_report)
            means, deviations, is_reported = sent.means, np.sqrt(sent.scatters), bool(sent.count)
        else:
            sums = self._measures(self.measured)
            means = self.measured.means + self.measured.scales * sums.means
            deviations, is_reported = self.measured.scales * np.sqrt(sums.scatters), bool(sums.counts.any())
        if is_reported:
            with np.errstate(over="ignore"):
                farthest = (np.abs(means - message.means) + deviations) / message.scales
            if not farthest.max() <= LARGEST_VALUE:
                raise MessageError(f"site {self.name!r} was asked for a scale on which its rows are no numbers.")


def as_answered(rows: Rows) -> FloatArray:
    """The table of a partition with its gaps."""
    return np.where(rows.gaps, np.nan, rows.X) if rows.gaps.any() else rows.X


def check_complete(name: str, X: FloatArray, levels: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse gaps and categories beside a privacy budget, which counts sums of complete rows of numbers."""
    if levels:
        raise ValueError(
            f"The table of site {name!r} has categories ({', '.join(levels)}), which a privacy budget does not cover; "
            "leave them out with --drop."
        )
    if np.isnan(X).any():
        raise ValueError(
            f"The table of site {name!r} has missing values, which a privacy budget does not cover; fill them in or "
            "remove the rows first."
        )


def client_stream(seed: int, name: str, round_: int) -> tuple[int, ...]:
    """Name of the random stream of one client in one round: who and when decide, not the order of calls."""
    return seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"), round_
