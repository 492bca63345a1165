"""A coordinator that asks for rows instead of clusters, through the function that the network calls at a site.

The site is a real state folder with 1,000 rows and the floor of `koncord join`; every question is a message of the
protocol, packed as over the network.
"""

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.spatial import cKDTree

from koncord.aggregate import fedkmeans
from koncord.data.batches import batched_table
from koncord.errors import KoncordError
from koncord.kernels.assign import nearest
from koncord.network.certificates import site_key
from koncord.network.places import Invitation
from koncord.network.sitefolder import SiteFolder, answer
from koncord.protocol import setup
from koncord.protocol.floor import DEFAULT_MIN_REPORT as FLOOR
from koncord.protocol.ledger import read_ledger
from koncord.protocol.wire import pack, unpack
from koncord.session.policy import SitePolicy
from koncord.session.streamedfile import StreamedSource
from koncord.session.transport import Carried, PackedLink
from koncord.types import FloatArray, IntArray
from koncord_reproduction.waveform import waveform

N_ROWS = 1000
EXACT = 1e-6  # a row that is told with a smaller error is told


def table():
    return waveform()[0][:N_ROWS]


def columns_of(X):
    return tuple(f"x{at}" for at in range(X.shape[1]))


KEY = site_key()[0].decode()


def state_folder(folder, X, **options):
    return joined(folder / "north", X, **options)


def joined(folder, X, levels=None, **options):
    """The state folder of a site that joins with this table, for the first time or again."""
    invitation = Invitation(site="north", address="localhost:1", authority="ca", key=KEY)
    policy = SitePolicy(**{"min_report": FLOOR, **options})
    columns = X.table.columns if isinstance(X, StreamedSource) else columns_of(X)
    return SiteFolder.create(folder, invitation, X, columns, policy, levels=levels)


class Sums(NamedTuple):
    """Of the rows nearest to each of k centers; zeros where none were reported."""

    counts: IntArray  # (k,)
    sums: FloatArray  # (k, n_features)


class Malicious:
    """Asks one site what it likes, run after run; what is refused is None, and counted."""

    def __init__(self, place, X, *, estimator=None, aggregator="consensus", parameters=None):
        self.place, self.n_features, self.columns = place, X.shape[1], columns_of(X)
        told = {"aggregator": aggregator, "estimator": estimator or {"name": "xmeans"}}
        self.method = json.dumps(told if parameters is None else {**told, "parameters": parameters})
        self.run, self.exchange, self.round_ = "run-1", 0, 0
        self.n_asked = self.n_refused = self.n_in_vain = 0
        self.seen = ""  # of the last exchange: the replies, or the reason for none

    @property
    def has_given_up(self):
        """After forty exchanges without an answer."""
        return self.n_in_vain >= 40

    def new_run(self):
        self.run, self.exchange, self.round_ = f"run-{int(self.run[4:]) + 1}", 0, 0

    def ask(self, *messages):
        """The replies to several messages in one exchange, the rounds of all but the setup numbered on."""
        self.exchange += 1
        packed = []
        for message in messages:
            is_setup = isinstance(message, setup.OPENINGS)
            self.round_ += not is_setup
            packed.append(pack(message, round_=0 if is_setup else self.round_))
        self.n_asked += len(messages)
        try:
            replies, *_ = answer(self.place.folder, self.run, self.exchange, self.method, packed)
        except (KoncordError, ValueError, TypeError, KeyError) as error:
            self.n_refused += len(messages)
            self.n_in_vain += 1
            self.seen = f"{type(error).__name__}: {error}"
            return None
        self.n_in_vain = 0
        self.seen = b"".join(replies).hex()
        return replies

    def prepare(self, means=None, scales=None):
        """Whether the site took the scale."""
        message = setup.Prepare(
            seed=1,
            columns=self.columns,
            means=np.zeros(self.n_features) if means is None else means,
            scales=np.ones(self.n_features) if scales is None else scales,
        )
        return self.ask(message) is not None

    def moments(self):
        return unpack(self.ask(setup.Describe())[0], (setup.Moments,))[0]

    def refine(self, *all_centers):
        """Counts and sums by nearest center, for each set of centers, all in one exchange of FedKMeans."""
        replies = self.ask(
            *(
                fedkmeans.Refine(centers=centers, local_iters=1, min_count=1, drop_empty=False)
                for centers in all_centers
            )
        )
        if replies is None:
            return None
        return [sums_by_center(reply, centers) for reply, centers in zip(replies, all_centers, strict=True)]

    def ledger(self):
        return read_ledger(self.place.ledger) if self.place.ledger.exists() else []


def sums_by_center(reply, centers):
    told = unpack(reply, (fedkmeans.LocalMeans,))[0]
    counts, sums = np.zeros(len(centers), dtype=np.int64), np.zeros(centers.shape)
    cells = nearest(told.centers, centers)  # the mean of the rows of a cell lies in it
    counts[cells], sums[cells] = told.counts, told.counts[:, None] * told.centers
    return Sums(counts, sums)


def n_rows_reported(found, X):
    """Rows of X that are among the guesses, to the last digit that matters; and guesses that are no row."""
    if not len(found):
        return 0, 0
    gaps, nearest = cKDTree(X).query(np.array(found))
    is_row = gaps < EXACT
    return len(set(nearest[is_row].tolist())), int((~is_row).sum())


class Folders(PackedLink):
    """Sites that answer an honest run from their state folders."""

    def __init__(self, places, run="run-1", aggregator="consensus", **parameters):
        super().__init__(tuple(places))
        self.places, self.run = places, run
        told = {"aggregator": aggregator, "parameters": parameters, "estimator": {"name": "xmeans"}}
        self.method = json.dumps(told)

    def carry(self, exchange, down):
        answers = {
            site: answer(self.places[site].folder, self.run, exchange, self.method, messages)
            for site, messages in down.items()
        }
        return Carried(replies={site: reply.replies for site, reply in answers.items()}, missing={})


def streamed_folder(folder, X, n_sample=150):
    """The state folder of a site that reads its table batch by batch."""
    folder.mkdir(exist_ok=True)
    path = folder / "table.parquet"
    pq.write_table(pa.table({name: X[:, at] for at, name in enumerate(columns_of(X))}), path, row_group_size=100)
    source = StreamedSource.read(path, (), batched_table(path), n_sample)
    assert not source.table.is_whole
    return joined(folder / "north", source)


def n_told_between(seen, X):
    """Rows of X that two groups of two answers, or two totals, differ by; `seen` are counts and sums."""
    counts = np.concatenate([each[0] for each in seen])
    sums = np.concatenate([each[1] for each in seen])
    one, other = np.nonzero(counts[:, None] - counts == 1)
    return n_rows_reported(list(sums[one] - sums[other]), X)
