"""A client's side of a federation: it answers messages, and what it answers is all that leaves.

The same object answers in one process and over a network: bytes in, bytes out.
"""

import hashlib
from typing import Any

import numpy as np
from sklearn.base import clone

from koncord._random import draw_seed, seeded
from koncord.errors import MessageError
from koncord.estimate.search import n_components_of
from koncord.federate import setup
from koncord.federate.link import Aggregator, Local
from koncord.federate.wire import pack, unpack
from koncord.types import FloatArray, LocalEstimate


class Site:
    """One client: its table, its estimator, and the steps it is ready to take.

    Parameters
    ----------
    name : the site's own stable name; its random streams belong to it
    X : array (n_samples, n_features)
    columns : names of the columns
    estimator : phase-1 estimator, cloned before it is fitted
    aggregator : class or instance whose client steps this site will take
    """

    def __init__(
        self,
        name: str,
        X: FloatArray,
        columns: tuple[str, ...],
        *,
        estimator: Any,
        aggregator: Aggregator | type[Aggregator],
    ) -> None:
        self.name = name
        self.columns = columns
        self.X = X
        self.estimator = estimator
        self.steps = aggregator.client_steps
        self.seed: int | None = None
        self.estimate: LocalEstimate | None = None
        self.state: Any = None

    def answer(self, data: bytes) -> bytes:
        """The reply to one message of the server; `MessageError` if it is not one this site takes."""
        message, round_ = unpack(data, (setup.Describe, setup.Prepare, setup.Attribute, *self.steps))
        return pack(self._reply(message, round_), round_=round_)

    def _reply(self, message: Any, round_: int) -> Any:
        if isinstance(message, setup.Describe):
            return setup.describe(self.X, self.columns)
        if isinstance(message, setup.Prepare):
            return self._prepare(message)
        if self.seed is None or self.estimate is None:
            raise MessageError(f"site {self.name!r} was sent {type(message).__name__} before Prepare.")
        local = Local(X=self.X, estimate=self.estimate, stream=client_stream(self.seed, self.name, round_))
        if isinstance(message, setup.Attribute):
            return setup.attribute(self.X, message, local.rng)
        self.state, reply = self.steps[type(message)](local, self.state, message)
        return reply

    def _prepare(self, message: setup.Prepare) -> setup.Prepared:
        if self.estimate is not None:
            raise MessageError(f"site {self.name!r} was sent Prepare twice.")
        self.X = (self.X[:, setup.order_of(self.columns, message.columns)] - message.means) / message.scales
        self.seed = message.seed
        rng = np.random.default_rng(client_stream(self.seed, self.name, 0))
        self.fitted = seeded(clone(self.estimator), draw_seed(rng)).fit(self.X)
        self.estimate = LocalEstimate(n_components=n_components_of(self.fitted), means=means_of(self.fitted, self.X))
        return setup.Prepared(local_k=self.estimate.n_components)


def client_stream(seed: int, name: str, round_: int) -> tuple[int, ...]:
    """Name of the random stream of one client in one round: who and when decide, not the order of calls."""
    return seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"), round_


def means_of(fitted: Any, X: FloatArray) -> FloatArray:
    """Component means of any fitted clusterer."""
    for attribute in ("means_", "cluster_centers_"):
        if hasattr(fitted, attribute):
            return np.asarray(getattr(fitted, attribute), dtype=float)
    return np.array([X[fitted.labels_ == label].mean(axis=0) for label in np.unique(fitted.labels_)])
