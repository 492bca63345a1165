"""A small federation: every message is packed, unpacked and kept."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from koncord._threads import one_thread
from koncord.aggregate.base import Local, Outcome
from koncord.kernels.lloyd import kmeans
from koncord.protocol import setup
from koncord.protocol.wire import pack, unpack
from koncord.session.inprocess import InProcess
from koncord.session.policy import SitePolicy
from koncord.session.rounds import run_rounds
from koncord.session.site import Site, client_stream
from koncord.types import LocalEstimate


class Counted(BaseEstimator):
    """Phase 1 of the tests: k-means with a given count, or as many clusters as there are distinct rows."""

    def __init__(self, k=3, random_state=None):
        self.k = k
        self.random_state = random_state

    def fit(self, X):
        self.n_components_ = min(self.k, len(np.unique(X, axis=0)))
        rng = np.random.default_rng(self.random_state)
        self.means_ = kmeans(X, self.n_components_, rng, n_init=5).centers
        return self


@dataclass(frozen=True)
class Exchange:
    round_: int
    client: str
    down: Any
    up: Any

    def arrays(self):
        """Every array of the client's message, by name."""
        values = {field.name: getattr(self.up, field.name) for field in fields(self.up)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Run:
    outcome: Outcome
    exchanges: list[Exchange]
    tables: dict[str, np.ndarray]

    @property
    def centers(self):
        return self.outcome.centers

    @property
    def diagnostics(self):
        return self.outcome.diagnostics


class Recording(InProcess):
    def __init__(self, sites):
        super().__init__(sites)
        self.exchanges = []

    def exchange_all(self, asked):
        received = super().exchange_all(asked)
        self.exchanges += [
            Exchange(each.round_, client, each.down[client], up)
            for each, replies in zip(asked, received, strict=True)
            for client, up in replies.items()
        ]
        return received


@pytest.fixture
def federate():
    """Run an aggregator over tables, given by name or in a list; `k` is the local count, one or by name."""

    def run(aggregator, tables, k=3, seed=0):
        if not isinstance(tables, dict):
            tables = {f"c{at:03}": X for at, X in enumerate(tables)}
        d = next(iter(tables.values())).shape[1]
        columns = tuple(f"x{at}" for at in range(d))
        sites = [
            Site(
                name,
                np.array(X, dtype=float),
                columns,
                estimator=Counted(k[name] if isinstance(k, dict) else k),
                aggregator=aggregator,
                policy=SitePolicy(min_report=1),
            )
            for name, X in tables.items()
        ]
        link = Recording(sites)
        link.guard.expect(aggregator.replies)
        prepare = setup.Prepare(seed=seed, columns=columns, means=np.zeros(d), scales=np.ones(d))
        with one_thread():
            link.exchange(0, dict.fromkeys(link.clients, prepare))
            link.exchanges.clear()
            server = aggregator.server(link.clients, d, np.random.default_rng(client_stream(seed, "", 0)))
            outcome, _ = run_rounds(link, server, first_round=1)
        return Run(outcome, link.exchanges, tables)

    return run


@pytest.fixture
def local():
    """What one client's step may read."""

    def make(X, means=None, seed=0):
        X = np.asarray(X, dtype=float)
        means = X.mean(axis=0, keepdims=True) if means is None else np.asarray(means, dtype=float)
        estimate = LocalEstimate(n_components=len(means), means=means)
        return Local(X=X, phase1=lambda: estimate, stream=(seed,), min_report=1)

    return make


@pytest.fixture
def six():
    """The centers of six clusters, and tables of eight clients that hold rows of three of them each."""

    def make(seed=0, n_each=100):
        rng = np.random.default_rng(seed)
        centers = 8.0 * np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]])
        held = [rng.choice(6, 3, replace=False) for _ in range(6)] + [np.arange(3), np.arange(3, 6)]
        tables = [np.repeat(centers[clusters], n_each, axis=0) for clusters in held]
        return centers, {f"c{at}": X + rng.normal(size=X.shape) for at, X in enumerate(tables)}

    return make


@pytest.fixture
def uneven():
    """Tables of clients with many rows, with a lone row far off, and with one, two and three rows."""
    rng = np.random.default_rng(7)
    many = rng.normal(size=(60, 3)) + 9 * rng.integers(2, size=(60, 1))
    lone = np.concatenate([rng.normal(size=(30, 3)), [[40.0, -40.0, 40.0]]])
    return {"many": many, "lone": lone, **{f"rows{n}": 20 + rng.normal(size=(n, 3)) for n in (1, 2, 3)}}


@pytest.fixture
def worst_error():
    """Largest distance of a true center to the nearest found one."""

    def measure(true, found):
        return float(np.linalg.norm(true[:, None] - found, axis=2).min(axis=1).max())

    return measure


@pytest.fixture
def disclosed():
    """Input rows that stand in some array of some message of their client, as (client, row)."""

    def search(run):
        found = set()
        for exchange in run.exchanges:
            rows = run.tables[exchange.client]
            for array in exchange.arrays().values():
                if array.ndim == 2 and len(array):
                    gaps = np.abs(rows[:, None] - array).max(axis=2)
                    found |= {(exchange.client, int(row)) for row in np.flatnonzero((gaps < 1e-6).any(axis=1))}
        return found

    return search


@pytest.fixture
def same_result():
    """Whether clients in another order, and BLAS with other numbers of threads, give the same to the last bit."""

    def check(federate, aggregator, tables, **options):
        with threadpool_limits(1, user_api="blas"):
            first = federate(aggregator, tables, **options)
        with threadpool_limits(2, user_api="blas"):
            second = federate(aggregator, dict(reversed(tables.items())), **options)
        np.testing.assert_array_equal(first.centers, second.centers)
        assert first.diagnostics == second.diagnostics
        assert {name: group.tolist() for name, group in first.outcome.groups.items()} == {
            name: group.tolist() for name, group in second.outcome.groups.items()
        }

    return check


@pytest.fixture
def carried():
    """A message after its way over the wire, where its rules are checked."""

    def carry(message):
        return unpack(pack(message), [type(message)])[0]

    return carry


@pytest.fixture
def declares_what_it_sends():
    """Whether `sends` lists the fields of the client's messages, all of them and no others."""

    def check(aggregator):
        assert {(sent.message, sent.field) for sent in aggregator.sends} == {
            (reply.__name__, field.name) for reply in aggregator.replies.values() for field in fields(reply)
        }

    return check
