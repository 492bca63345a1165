"""A client's side of a federation: it answers messages, and what it answers is all that leaves.

The same object answers in one process and over a network: bytes in, bytes out.
"""

import hashlib
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from koncord._random import draw_seed
from koncord._validation import LARGEST_VALUE
from koncord.aggregate.base import Aggregator, Grouped, Local, sends_rows
from koncord.aggregate.private import Known, PrivateClient, private_client
from koncord.errors import DisclosureRefused, MessageError
from koncord.estimate.base import adapted
from koncord.privacy.mechanism import Mechanism
from koncord.protocol import setup
from koncord.protocol.ledger import Ledger
from koncord.protocol.partition import JointPartition, rows_of, two_valued_as_sent
from koncord.protocol.wire import pack
from koncord.session.guard import QuestionGuard
from koncord.session.policy import SitePolicy
from koncord.types import FloatArray, IntArray, LocalEstimate


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
    uses : sequence of str or None, default None
        Columns that this site answers about; None is all of them.
    mechanism : Mechanism or None, default None
        What answers within the budget; None is one that holds the rows of X.
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
        uses: Sequence[str] | None = None,
        mechanism: Mechanism | None = None,
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
        self.uses = columns if uses is None else tuple(uses)
        self.table = X
        self.partition = partition
        if partition is None and self.min_report > 1 and self.policy.budget is None and len(X):
            self.partition = JointPartition(rows_of(X, self.min_report), self.min_report)
        self.answered = X if self.partition is None else self.partition.rows.X  # what answers are computed from
        self.X = self.answered  # on the agreed scale once it is known
        self.estimator = estimator
        self.steps = aggregator.client_steps
        self.prepared: setup.Prepare | None = None
        self.estimate: LocalEstimate | None = None
        self.state: Any = None
        self.guard = QuestionGuard(name, aggregator, has_budget=self.policy.budget is not None)
        self.ledger = ledger
        self.private: PrivateClient | None = None
        if self.policy.budget is not None:
            own = self._used(X)
            self.private = private_client(
                name, own, self.uses, self.policy.budget, aggregator, min_report=self.min_report, mechanism=mechanism
            )

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
        if isinstance(message, setup.Describe):
            return self._described()
        if isinstance(message, setup.Prepare):
            return self._prepare(message)
        assert self.prepared is not None
        assert self.estimate is not None
        local = Local(
            X=self.X,
            estimate=self.estimate,
            stream=client_stream(self.prepared.seed, self.name, round_),
            min_report=self.min_report,
            apart=None if self.partition is None else self._apart,
            rows=None if self.partition is None else self.partition.rows,
        )
        if isinstance(message, setup.Attribute):
            return setup.attribute(self.X, local.grouped(message.assign(self.X)).labels, message, self.min_report)
        self.state, reply = self.steps[type(message)](local, self.state, message)
        return reply

    def _used(self, X: FloatArray) -> FloatArray:
        """The columns that are answered about, row after row in memory: the last bits of sums depend on it."""
        if self.uses == self.columns:
            return X
        return np.ascontiguousarray(X[:, setup.order_of(self.columns, self.uses)])

    def _described(self) -> setup.Moments:
        if self.partition is None:
            return setup.describe(self._used(self.answered), self.uses, self.min_report)
        rows, cells = self.partition.rows, self.partition.open()
        X = self.answered.copy() if len(rows.two_valued) else self.answered
        X[:, rows.two_valued] = two_valued_as_sent(cells, rows)
        return setup.rounded(setup.describe(self._used(X), self.uses, self.min_report))

    def _apart(self, labels: IntArray, least: int) -> Grouped:
        """The rows in groups that the joint partition allows, two-valued columns as they are told."""
        assert self.partition is not None
        assert self.prepared is not None
        allowed, cells = self.partition.apart(labels, least)
        rows, X = self.partition.rows, self.X
        order = setup.order_of(self.columns, self.prepared.columns)
        places = {column: at for at, column in enumerate(order.tolist())}
        used = [at for at, column in enumerate(rows.two_valued.tolist()) if column in places]
        if used:
            at = [places[int(rows.two_valued[each])] for each in used]
            X = X.copy()
            X[:, at] = (two_valued_as_sent(cells, rows)[:, used] - self.prepared.means[at]) / self.prepared.scales[at]
        return Grouped(labels=allowed, X=X)

    def _prepare(self, message: setup.Prepare) -> setup.Prepared:
        if self.prepared is not None and self.estimate is not None:
            if pack(self.prepared) != pack(message):
                raise MessageError(f"site {self.name!r} was sent a second Prepare that is not the first.")
            return self._told(self.estimate)  # the first reply was lost
        X = self._scaled(message)
        rng = np.random.default_rng(client_stream(message.seed, self.name, 0))
        estimate = adapted(self.estimator).estimate(X, draw_seed(rng))
        self.X, self.prepared, self.estimate = X, message, estimate
        return self._told(estimate)

    def _told(self, estimate: LocalEstimate) -> setup.Prepared:
        """What the server hears of phase 1: nothing, of a table below the floor."""
        return setup.Prepared(local_k=estimate.n_components if len(self.answered) >= self.min_report else 0)

    def resume(self, prepared: setup.Prepare, estimate: LocalEstimate, state: Any) -> None:
        """Go on as if this site had just answered what it kept this from."""
        self.X, self.prepared, self.estimate, self.state = self._scaled(prepared), prepared, estimate, state

    def resume_private(self, known: Known, prepared: setup.Prepare | None) -> None:
        """The same for a site with a privacy budget: what it spent and told holds."""
        assert self.private is not None
        self.private.restore(known, prepared)
        self.prepared = prepared

    def _scaled(self, message: setup.Prepare) -> FloatArray:
        if not set(message.columns) <= set(self.uses):
            raise MessageError(f"site {self.name!r} was asked for columns that it does not answer about.")
        order = setup.order_of(self.columns, message.columns)
        self._check_scale(message, setup.describe(self.answered[:, order], message.columns, self.min_report))
        with np.errstate(over="ignore"):
            scaled = (self.answered[:, order] - message.means) / message.scales
        clipped: FloatArray = np.clip(scaled, -LARGEST_VALUE, LARGEST_VALUE)
        return clipped

    def _check_scale(self, message: setup.Prepare, told: setup.Moments) -> None:
        """Refuse a scale by what this site tells of its columns anyway: what it refuses must not tell of a row.

        No row lies farther from its mean than the root of the scatter. Where nothing is told, nothing is refused.
        """
        if told.count:
            with np.errstate(over="ignore"):
                farthest = (np.abs(told.means - message.means) + np.sqrt(told.scatters)) / message.scales
            if not farthest.max() <= LARGEST_VALUE:
                raise MessageError(f"site {self.name!r} was asked for a scale on which its rows are no numbers.")


def client_stream(seed: int, name: str, round_: int) -> tuple[int, ...]:
    """Name of the random stream of one client in one round: who and when decide, not the order of calls."""
    return seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"), round_
