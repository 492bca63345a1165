"""All stages behind `fit` and `predict`: a federation in one process."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from koncord._progress import part, report
from koncord._random import RandomState, as_generator, draw_seed
from koncord._threads import one_thread
from koncord._validation import LARGEST_VALUE
from koncord.estimate.asm import ASM
from koncord.estimate.known import KnownCounts
from koncord.estimate.silhouette import nearest
from koncord.federate import setup
from koncord.federate.fedgem import FedGEM
from koncord.federate.inprocess import InProcess
from koncord.federate.link import Link, run_rounds
from koncord.federate.site import Site, client_stream
from koncord.model.globalmodel import GlobalModel
from koncord.types import FloatArray, IntArray

SERVER = ""  # no site has an empty name, so this stream belongs to the server alone


class FederatedClustering(BaseEstimator):  # type: ignore[misc]
    """Clusters of several sites whose rows stay where they are, with neither the local nor the global k known.

    Parameters
    ----------
    estimator : phase-1 estimator, fitted at every site on its own rows; default `ASM()`
    aggregator : phase 2, exchanges parameters and finds the global clusters; default `FedGEM()`
    standardize : bring all columns to mean 0 and variance 1 over all sites, from counts and sums alone
    random_state : seed; the same seed gives the same result in whatever order named sites are given

    Attributes
    ----------
    n_clusters_, cluster_centers_ : the global k and the centers, in the units of the tables
    local_counts_, labels_ : one count and one array of global labels a client, in the order given
    model_ : `GlobalModel`, to predict, save and share
    sites_ : names of the clients, in the order given
    departures_ : every message that left a site, with its size

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: np.concatenate([rng.normal(m, 1, (80, 3)) for m in held])
    ...          for name, held in {"north": (0, 9), "south": (9, 18), "west": (0, 18)}.items()}
    >>> clustering = koncord.FederatedClustering(random_state=0).fit(sites)
    >>> clustering.n_clusters_, clustering.local_counts_
    (3, [2, 2, 2])
    """

    def __init__(
        self,
        estimator: Any = None,
        aggregator: Any = None,
        *,
        standardize: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.aggregator = aggregator
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, clients: Mapping[str, Any] | Sequence[Any], y: object = None) -> Self:
        estimator = ASM() if self.estimator is None else self.estimator
        aggregator = FedGEM() if self.aggregator is None else self.aggregator
        tables = named_tables(clients)
        for_site = per_site(estimator, tuple(tables))
        link = InProcess(
            [
                Site(name, X, columns, estimator=for_site[name], aggregator=aggregator)
                for name, (X, columns) in tables.items()
            ]
        )
        seed = seed_of(self.random_state)
        with one_thread():
            self.model_ = run_federation(
                link, aggregator, seed=seed, standardize=self.standardize, settings=settings_of(estimator, aggregator)
            )
        self.sites_ = list(tables)
        self.n_clusters_ = self.model_.n_clusters
        self.cluster_centers_ = self.model_.centers_original
        self.labels_ = [nearest(link.sites[name].X, self.model_.centers) for name in self.sites_]
        count_of = dict(zip(self.model_.sites, self.model_.local_counts, strict=True))
        self.local_counts_ = [count_of[name] for name in self.sites_]
        self.departures_ = link.departures
        return self

    def predict(self, X: Any) -> IntArray:
        """Global cluster of every row of a table, of a site that took part or of a new one."""
        check_is_fitted(self)
        labels: IntArray = self.model_.predict(X)
        return labels


def run_federation(
    link: Link, aggregator: Any, *, seed: int, standardize: bool, settings: Mapping[str, str]
) -> GlobalModel:
    """Both phases over any link: agree on columns and scale, estimate local k, aggregate, count who holds what."""

    def ask(round_: int, message: Any, reply: type[Any]) -> Mapping[str, Any]:
        return link.exchange(round_, dict.fromkeys(link.clients, message), (reply,))

    with part(0.0, 0.05, "columns"):
        moments = ask(0, setup.Describe(), setup.Moments)
    columns = setup.agreed_columns(moments)
    means, scales = setup.common_scale(moments, columns) if standardize else setup.no_scale(columns)
    # The server comes first: it checks its parameters before any site begins to work.
    server = aggregator.server(link.clients, len(columns), np.random.default_rng(client_stream(seed, SERVER, 0)))
    with part(0.05, 0.6, "phase 1"):
        prepared = ask(0, setup.Prepare(seed=seed, columns=columns, means=means, scales=scales), setup.Prepared)
    with part(0.6, 0.95, "phase 2"):
        outcome, round_ = run_rounds(link, server, aggregator.replies, first_round=1)
    with part(0.95, 1.0, "who holds what"):
        holdings = ask(round_, setup.Attribute(centers=outcome.centers), setup.Holdings)
    report(1.0)
    counts = np.array([holding.counts for holding in holdings.values()])
    return GlobalModel(
        centers=outcome.centers,
        weights=counts.sum(axis=0) / counts.sum(),
        columns=columns,
        means=means,
        scales=scales,
        sites=link.clients,
        local_counts=tuple(reply.local_k for reply in prepared.values()),
        holdings=counts,
        groups=outcome.groups,
        components=outcome.components,
        seed=seed,
        settings=settings,
        info={
            **outcome.info,
            "exchanges": round_ + 2,
            "silhouettes": cluster_silhouettes(holdings),
            # The mean of one row is that row, whatever the method: a reader should know.
            "one_row_sites": [site for site, m in moments.items() if m.count == 1],
        },
        versions={name: version(name) for name in ("koncord", "numpy", "scipy", "scikit-learn")},
    )


def cluster_silhouettes(holdings: Mapping[str, setup.Holdings]) -> list[float | None]:
    """Mean silhouette of each global cluster over the rows that have one; None where no site has."""
    scored = np.sum([holding.scored for holding in holdings.values()], axis=0)
    sums = np.sum([np.nan_to_num(h.silhouettes) * h.scored for h in holdings.values()], axis=0)
    return [float(total / n) if n else None for total, n in zip(sums, scored, strict=True)]


def named_tables(clients: Mapping[str, Any] | Sequence[Any]) -> dict[str, tuple[FloatArray, tuple[str, ...]]]:
    """Rows and column names of every site; clients without a name are called site-1, site-2, ... in their order."""
    if isinstance(clients, Mapping):
        named = {str(name): table for name, table in clients.items()}
    elif isinstance(clients, Sequence) or (isinstance(clients, np.ndarray) and clients.ndim == 3):
        width = len(str(len(clients)))
        named = {f"site-{at:0{width}}": table for at, table in enumerate(clients, start=1)}
    else:
        raise TypeError(
            "'clients' of FederatedClustering must be a mapping of site name to table or a sequence of tables; "
            f"got {type(clients).__name__}."
        )
    if not named:
        raise ValueError("'clients' of FederatedClustering must hold at least one site; got none.")
    if SERVER in named:
        raise ValueError("'clients' of FederatedClustering must have names that are not empty.")
    return {name: as_table(name, table) for name, table in named.items()}


def as_table(site: str, table: Any) -> tuple[FloatArray, tuple[str, ...]]:
    """Rows as floats and column names, the table's own if it has them; an error names the site."""
    try:
        X = np.asarray(table, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The table of site {site!r} must hold numbers only: {error}.") from error
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"The table of site {site!r} must have at least one row and one column; got shape {X.shape}.")
    own = getattr(table, "columns", None)
    columns = tuple(f"x{at}" for at in range(X.shape[1])) if own is None else tuple(str(name) for name in own)
    if len(set(columns)) < len(columns):
        raise ValueError(f"The table of site {site!r} has two columns of one name.")
    is_bad = ~(np.abs(X) <= LARGEST_VALUE)
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        raise ValueError(
            f"The table of site {site!r} holds {int(is_bad.sum())} values that are missing, infinite or beyond "
            f"{LARGEST_VALUE:g}, the first in row {row}, column {columns[column]!r}."
        )
    return X, columns


def per_site(estimator: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The estimator of each site: the same for all, but known counts are each site's own."""
    if isinstance(estimator, KnownCounts):
        return {name: estimator.for_client(name, at) for at, name in enumerate(names)}
    return dict.fromkeys(names, estimator)


def settings_of(estimator: Any, aggregator: Any) -> dict[str, str]:
    return {"estimator": repr(estimator), "aggregator": repr(aggregator)}


def seed_of(random_state: RandomState) -> int:
    """The seed of a run: an int is taken as it is, so that a saved model tells it."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"'random_state' of FederatedClustering must not be negative; got {random_state}.")
        return int(random_state)
    return draw_seed(as_generator(random_state))
