"""What an aggregator is, and the loop that runs one over any link.

An aggregator is messages, pure client steps, and the server's side of the conversation. The server's side is a
generator: it yields what goes down (one message for all, one for each client, or several of these in a `Batch`),
receives the replies by client, and returns an `Outcome`. It reads as the algorithm, and a run can be repeated from its
recorded replies alone. A client may be missing from the replies: the server goes on with those that answered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, get_args, get_type_hints

import numpy as np

from koncord._parameters import Parameterized
from koncord._validation import owner_name
from koncord.aggregate.confidence import Confidence
from koncord.aggregate.diagnostics import Diagnostics
from koncord.kernels.assign import means_by_label, nearest
from koncord.kernels.cutting import cut_tree, group_labels, groups_of
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.tree import ClusterTree
from koncord.privacy.budget import Plan
from koncord.protocol.schema import Sent, sent_by
from koncord.types import BoolArray, FloatArray, IntArray, LocalEstimate

Message = Any
Replies = Mapping[str, Any]
Server = Generator[Message | Mapping[str, Message], Any, "Outcome"]


# Labels of rows (n, n_features) that are scaled as agreed.
LabelOf = Callable[[FloatArray], IntArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Rows sorted as the joint partition of a client allows: what a client step sends sums of."""

    labels: IntArray  # (n_samples,)
    X: FloatArray  # (n_samples, n_features) the rows to take sums of


@dataclass(frozen=True, kw_only=True)
class Local:
    """What a client step may read: it never leaves the client.

    Of a client with a floor, rows are surrogates (`koncord.protocol.surrogates`) unless the aggregator `reads_rows`:
    they have counts, means and covariances of the client's cells, so that a step discloses nothing else whatever it
    does with them. Then phase 1 runs on surrogate rows, too.
    """

    X: FloatArray  # (n_samples, n_features), scaled as agreed
    phase1: Callable[[], LocalEstimate]  # runs at the first call only
    stream: tuple[int, ...]  # names the random stream of this client in this round
    min_report: int  # rows that whatever is sent must stand for at least: the site owner's own bound
    cells: IntArray | None = None  # (n_samples,) the cell of each row; None without a floor: each row is its own

    def grouped(self, by: LabelOf) -> Grouped:
        """The rows by label, in groups that sums may be sent of after all that was sent before.

        `by` labels any rows on the agreed scale: a cell goes where its mean goes, as a whole. Where rows go would tell
        of single ones, so labels of rows are not taken.
        """
        if not callable(by):
            raise TypeError("Local.grouped takes a function that labels rows (n, n_features), not labels of rows.")
        labels = by(self.X) if self.cells is None else by(self.cell_means)[self.cells]
        return Grouped(labels=labels, X=self.X)

    def grouped_by(self, centers: FloatArray) -> Grouped:
        """The same by the nearest of some centers (k, n_features)."""
        return self.grouped(lambda rows: nearest(rows, centers))

    def micro_clusters(self, least: int) -> Grouped:
        """The rows cut into micro-clusters of at least `least` rows, each of whole cells."""
        if self.cells is None:
            return Grouped(labels=group_labels(groups_of(self.X, least), len(self.X)), X=self.X)
        return Grouped(labels=merged_cells(self.cell_means, self.cells, least)[self.cells], X=self.X)

    @cached_property
    def cell_means(self) -> FloatArray:
        """Means of the cells (n_cells, n_features)."""
        assert self.cells is not None
        n_cells = int(self.cells.max(initial=-1)) + 1
        return means_by_label(self.X, self.cells, otherwise=np.zeros((n_cells, self.X.shape[1])))

    @property
    def estimate(self) -> LocalEstimate:
        """What phase 1 found: it runs when this is first read, for most steps do without it."""
        return self.phase1()

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random stream, made when it is first drawn from: most steps draw nothing."""
        return np.random.default_rng(self.stream)


def merged_cells(means: FloatArray, cells: IntArray, least: int) -> IntArray:
    """Micro-clusters of at least `least` rows, each of whole cells: the number of that of each cell (n_cells,).

    They are those that rows at the mean of their cell are cut into.
    """
    ordered = np.sort(cells)

    def between_cells(rows: IntArray, sizes: IntArray) -> BoolArray:
        apart: BoolArray = ordered[rows[sizes - 1]] != ordered[rows[sizes]]
        return apart

    groups = groups_of(means[ordered], least, is_safe=between_cells)
    merged = np.zeros(len(means), dtype=np.int64)
    for at, group in enumerate(groups):
        merged[ordered[group]] = at
    return merged


class ScaledGroups(Protocol):
    """All rows of a table that is read batch by batch, sorted as the joint partition of the client allows."""

    @property
    def n_labels(self) -> int:
        """How many there are."""

    @property
    def sample_labels(self) -> IntArray:
        """The label of each row of the sample."""

    def batches(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Rows to take sums of, scaled as agreed, and their labels: one pass over the table."""


@dataclass(frozen=True, kw_only=True)
class StreamedLocal:
    """What a client step may read of a table that is read batch by batch: it never leaves the client."""

    sample: FloatArray  # (n_sample, n_features) some rows, scaled as agreed; surrogates as in `Local`
    n_rows: int  # of the table
    min_report: int
    sort: Callable[[LabelOf, int], ScaledGroups]
    cell_means: FloatArray | None = None  # (n_cells, n_features) of all rows; None without a floor
    cells: IntArray | None = None  # the number of each cell, as often as it has rows in the sample

    def grouped(self, by: LabelOf, n_labels: int) -> ScaledGroups:
        """All rows by label, in groups that sums may be sent of after all that was sent before, as `Local.grouped`."""
        return self.sort(by, n_labels)

    def micro_clusters(self, least: int) -> ScaledGroups:
        """All rows in micro-clusters that have at least `least` rows of the sample."""
        if self.cells is None or self.cell_means is None:
            tree = cut_tree(self.sample, least)
            return self.grouped(tree.assign, tree.n_groups)
        merged = merged_cells(self.cell_means, self.cells, least)
        return self.grouped(lambda _: merged, int(merged.max()) + 1)


# A client step takes what the client holds, its state (None before its first step) and the server's message; it
# returns the new state, itself a record that the codec can pack, and the reply.
ClientStep = Callable[[Local, Any, Any], tuple[Any, Any]]
# The same of a client whose table is read batch by batch.
StreamedStep = Callable[[StreamedLocal, Any, Any], tuple[Any, Any]]
# The step of a client with a privacy budget takes a `koncord.aggregate.private.PrivateClient`, the server's message and
# a random stream, which no noise comes from; it returns the reply.
PrivateStep = Callable[[Any, Any, np.random.Generator], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a client with a privacy budget has sent before the server begins, with noise, on the agreed scale."""

    count: int
    means: FloatArray  # (n_features,)
    variances: FloatArray  # (n_features,) not below 0, but noise may have made all of them 0
    bound: float  # radius of the ball that rows are clipped to
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the server knows at the end."""

    centers: FloatArray  # (global_k, n_features)
    # Global cluster of each local component, by client; empty where there is no such map.
    groups: Mapping[str, IntArray]
    components: Mapping[str, FloatArray] = field(default_factory=dict)  # final means of what each client sent
    # Mask of the components that were set aside, by client: they are in no cluster, and their group is the nearest one.
    excluded: Mapping[str, BoolArray] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)  # for readers only: nothing depends on them
    gaussians: Gaussians | None = None  # the shape of the clusters around the centers, where the aggregator finds it
    tree: ClusterTree | None = None  # clusterings with fewer and more clusters, where it has them
    confidence: Confidence | None = None  # how sure it is, where it tells
    rows: Mapping[str, IntArray] = field(default_factory=dict)  # rows of each local component, by client, where known
    # What was taken from the rows of a client, (n_features,), to lay its clusters on those of the others.
    offsets: Mapping[str, FloatArray] = field(default_factory=dict)


def members_of(groups: Mapping[str, IntArray], excluded: Mapping[str, BoolArray]) -> dict[str, IntArray]:
    """Clusters of the components that were not set aside, by client."""
    return {client: own[~excluded[client]] if client in excluded else own for client, own in groups.items()}


class Aggregator(Parameterized, ABC):
    """Base of the aggregators: parameters stored as given, checked when the server starts.

    A class declares its `name` and its `client_steps`. What a client replies, and what that discloses, is read from
    the annotations of the steps and of the messages.

    Attributes
    ----------
    name : str
        What commands and sites call it.
    client_steps : mapping of type to function
        The client step for each message of the server. Its return annotation is ``tuple[State, Reply]``.
    replies : mapping of type to type
        The reply to each message of the server.
    sends : tuple of Sent
        All that a client may send, field by field.
    needs_local_counts : bool
        Whether a client sends as many of something as it has components, so that phase 1 has to run.
    private_steps : mapping of type to function, default {}
        The step of a client with a privacy budget for each message of the server; without any, such a client takes no
        part. A step of a message that is in no client step is annotated with its reply.
    streamed_steps : mapping of type to function, default {}
        The step of a client whose table is read batch by batch for each message of the server; without any, such a
        client takes no part.
    most_parts : int, default 1
        Messages that a client gets in one exchange at most.
    reads_rows : bool, default False
        Whether its client steps are given the rows of a client with a floor, not surrogates of them. Then the joint
        partition does not cover what it sends, and a site takes part only if its owner names it.
    count_parameter : str, default "n_clusters"
        The parameter, if the constructor has it, that gives the number of clusters.
    count_is_bound : bool, default False
        Whether that is an upper bound, below which the aggregator finds their number.
    """

    name: ClassVar[str]
    client_steps: ClassVar[Mapping[type[Any], ClientStep]]
    replies: ClassVar[Mapping[type[Any], type[Any]]]
    sends: ClassVar[tuple[Sent, ...]]
    needs_local_counts: ClassVar[bool]
    private_steps: ClassVar[Mapping[type[Any], PrivateStep]] = {}
    streamed_steps: ClassVar[Mapping[type[Any], StreamedStep]] = {}
    most_parts: ClassVar[int] = 1
    reads_rows: ClassVar[bool] = False
    count_parameter: ClassVar[str] = "n_clusters"
    count_is_bound: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "client_steps" in vars(cls):
            cls.replies = {asked: step_types(step)[1] for asked, step in cls.client_steps.items()}
            only_private = {asked: step for asked, step in cls.private_steps.items() if asked not in cls.replies}
            cls.replies |= {asked: get_type_hints(step)["return"] for asked, step in only_private.items()}
            cls.sends = sent_by(cls.replies.values())
            cls.needs_local_counts = any("local_k" in sent.shape for sent in cls.sends)

    def for_run(self, *, min_report: int | None, min_support: int) -> "Aggregator":
        """This aggregator under what the run has decided; one that has no use for it stays as it is.

        `min_report` is the floor of all sites, None where each has one of its own that the server does not know;
        `min_support` is how many sites a cluster needs.
        """
        return self

    @property
    def count_given(self) -> int | None:
        """The number of clusters, or an upper bound of it, that it was given; None where it finds it alone."""
        given = self.get_params(deep=False).get(self.count_parameter)
        return None if given is None else int(given)

    @property
    def support(self) -> int:
        """Sites that a cluster needs to count for the aggregator itself; 1 asks for nothing."""
        return 1

    @abstractmethod
    def server(self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator) -> Server:
        """The server's side of one federation of `clients`, in name order."""

    def private_server(
        self, clients: tuple[str, ...], n_features: int, rng: np.random.Generator, described: Mapping[str, Described]
    ) -> Server:
        """The same where some clients have a privacy budget: `described` is what these sent."""
        return self.server(clients, n_features, rng)

    def private_plan(self, n_rounds: int | None) -> Plan:
        """How a client's budget is divided over its releases, with so many later rounds, or as many as there are."""
        raise NotImplementedError(f"{self.name} has no private form.")

    def private_messages(self) -> Mapping[type[Any], int]:
        """Messages of each kind that only a client with a privacy budget is sent, at most, in one run."""
        return {}

    def most_messages(self) -> Mapping[type[Any], int]:
        """Messages of each kind that one run sends to one client at most, with these parameters.

        A site answers no more of them. An aggregator with several rounds says here how many.
        """
        return dict.fromkeys(self.client_steps, 1)

    def most_rounds(self) -> int:
        """Rounds of one run at most: a client gets one message in each."""
        return sum(self.most_messages().values())


def step_types(step: ClientStep) -> tuple[Any, type[Any]]:
    """The state that a client step keeps and the reply it sends, as its return annotation has them."""
    returned = get_args(get_type_hints(step).get("return"))
    if len(returned) != 2 or not is_dataclass(returned[1]):
        name = getattr(step, "__name__", repr(step))
        raise TypeError(
            f"The client step {name!r} must say what it returns: '-> tuple[State, Reply]', with a dataclass as reply."
        )
    state, reply = returned
    return state, reply


def sends_rows(aggregator: "Aggregator | type[Aggregator]") -> bool:
    """Whether a client sends its rows, or what grows with them."""
    return any(sent.grows_with_rows for sent in aggregator.sends)


def as_instance(aggregator: Aggregator | type[Aggregator]) -> Aggregator:
    """The aggregator itself, or one of its class with default parameters."""
    return aggregator() if isinstance(aggregator, type) else aggregator


def check_is_aggregator(given: Any, *, owner: object) -> None:
    """`TypeError` in a sentence for what is no aggregator."""
    wanted = (
        f"'aggregator' of {owner_name(owner)} must be an aggregator such as koncord.Consensus(), derived from "
        "koncord.aggregate.base.Aggregator; got"
    )
    if isinstance(given, str):
        raise TypeError(f"{wanted} the name {given!r}.")
    if isinstance(given, type):
        raise TypeError(f"{wanted} the class {given.__name__}.")
    missing = [repr(name) for name in ("name", "sends", "client_steps", "server") if not hasattr(given, name)]
    if missing:
        listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        raise TypeError(f"{wanted} {type(given).__name__}, which lacks {listed}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a server yields to ask for several things in one exchange; it receives one `Replies` for each part.

    Each part is a round and what goes down. A client answers all its parts or is missing from all.
    """

    parts: tuple[tuple[int, Message | Mapping[str, Message]], ...]
