"""All stages behind `fit` and `predict`: a federation in one process."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from koncord._random import RandomState, as_generator, draw_seed
from koncord._text import is_showable
from koncord._validation import LARGEST_VALUE, check_count
from koncord.aggregate.base import check_is_aggregator
from koncord.aggregate.consensus import Consensus
from koncord.estimate.asm import ASM
from koncord.estimate.base import adapted
from koncord.kernels.assign import nearest
from koncord.model.globalmodel import names_in
from koncord.privacy.budget import Budget
from koncord.protocol.floor import DEFAULT_MIN_REPORT
from koncord.session.federation import SERVER, run, scaled_rows
from koncord.session.inprocess import in_process
from koncord.session.site import Site
from koncord.types import FloatArray, IntArray


class FederatedClustering(BaseEstimator):  # type: ignore[misc]
    """Clusters of several sites whose rows stay where they are, with neither the local nor the global k known.

    Parameters
    ----------
    estimator : phase-1 estimator, fitted at every site on its own rows: one of koncord, or a clusterer or mixture of
        scikit-learn (see `koncord.estimate.base`); default `ASM()`
    aggregator : phase 2, exchanges parameters and finds the global clusters; default `Consensus()`
    standardize : bring all columns to mean 0 and variance 1 over all sites, from counts and sums alone
    random_state : seed; the same seed gives the same result in whatever order named sites are given
    min_report : rows that every mean, sum and count a site sends stands for at least; what stands for fewer is withheld
        (see docs/security.md), in the model too. 1 withholds nothing, beyond what the aggregator itself does; `labels_`
        and `local_counts_` are of the caller's own rows, and exact
    privacy : `koncord.privacy.Budget` that everything each site sends keeps to, or None. With one, phase 1 is
        left out, `standardize` must be False, and the same seed does not give the same result (see docs/privacy.md)
    common_columns : use the columns that all sites have and leave out the others, which the model's info and the report
        name; else sites with other columns are refused
    min_support : sites whose components must have gone into a cluster; one with fewer is marked in the model's info and
        in the report, for it may be the work of a single site. `Consensus` sets such leaves aside. Where `Consensus`
        has a `min_report` or `min_support` of its own, the larger one counts; one below the run's is refused

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
        min_report: int = DEFAULT_MIN_REPORT,
        min_support: int = 1,
        privacy: Budget | None = None,
        common_columns: bool = False,
    ) -> None:
        self.estimator = estimator
        self.aggregator = aggregator
        self.standardize = standardize
        self.random_state = random_state
        self.min_report = min_report
        self.min_support = min_support
        self.privacy = privacy
        self.common_columns = common_columns

    def fit(self, clients: Mapping[str, Any] | Sequence[Any], y: object = None) -> Self:
        estimator = ASM() if self.estimator is None else self.estimator
        min_report = check_count("min_report", self.min_report, owner=self)
        min_support = check_count("min_support", self.min_support, owner=self)
        aggregator = Consensus() if self.aggregator is None else self.aggregator
        adapted(estimator, owner=self)
        check_is_aggregator(aggregator, owner=self)
        if self.privacy is not None and self.standardize:
            raise ValueError(
                "'standardize' of FederatedClustering must be False with a privacy budget: columns are brought to one "
                "scale beforehand, by numbers that do not depend on the rows."
            )
        tables = named_tables(clients)
        link = in_process(
            tables, estimator=estimator, aggregator=aggregator, min_report=min_report, privacy=self.privacy
        )
        result = run(
            link,
            aggregator,
            estimator=estimator,
            seed=seed_of(self.random_state),
            standardize=self.standardize,
            min_report=min_report,
            min_support=min_support,
            common_columns=self.common_columns,
            files="in memory",
            labels_in_memory=True,
        )
        self.model_ = result.model
        self.sites_ = list(tables)
        self.n_clusters_ = self.model_.n_clusters
        self.cluster_centers_ = self.model_.centers_original
        self.labels_ = [nearest(scaled_rows(link.sites[name], self.model_), self.model_.centers) for name in tables]
        told = dict(zip(self.model_.sites, self.model_.local_counts, strict=True))
        self.local_counts_ = [own_count(link.sites[name], told) for name in self.sites_]
        self.departures_ = link.departures
        return self

    def predict(self, X: Any) -> IntArray:
        """Global cluster of every row of a table, of a site that took part or of a new one."""
        check_is_fitted(self)
        labels: IntArray = self.model_.predict(X)
        return labels


def own_count(site: Site, told: Mapping[str, int]) -> int:
    """The local k that a site found, whether or not it told it; 0 of one that was set aside before it looked."""
    return told.get(site.name, 0) if site.estimate is None else site.estimate.n_components


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
    hidden = [name for name in named if not is_showable(name)]
    if hidden:
        raise ValueError(f"'clients' of FederatedClustering must have names that can be shown; got {hidden[0]!r}.")
    return {name: as_table(name, table) for name, table in named.items()}


def as_table(site: str, table: Any) -> tuple[FloatArray, tuple[str, ...]]:
    """Rows as floats and column names, the table's own if it has them; an error names the site."""
    try:
        X = np.asarray(table, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The table of site {site!r} must hold numbers only: {error}.") from error
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"The table of site {site!r} must have at least one row and one column; got shape {X.shape}.")
    columns = names_in(table) or tuple(f"x{at}" for at in range(X.shape[1]))
    if len(set(columns)) < len(columns):
        raise ValueError(f"The table of site {site!r} has two columns of one name.")
    hidden = [name for name in columns if not is_showable(name)]
    if hidden:
        raise ValueError(f"The table of site {site!r} has a column whose name cannot be shown: {hidden[0]!r}.")
    is_bad = ~(np.abs(X) <= LARGEST_VALUE)
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        raise ValueError(
            f"The table of site {site!r} holds {int(is_bad.sum())} values that are missing, infinite or beyond "
            f"{LARGEST_VALUE:g}, the first in row {row}, column {columns[column]!r}."
        )
    return X, columns


def seed_of(random_state: RandomState) -> int:
    """The seed of a run: an int is taken as it is, so that a saved model tells it."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"'random_state' of FederatedClustering must not be negative; got {random_state}.")
        return int(random_state)
    return draw_seed(as_generator(random_state))
