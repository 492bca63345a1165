"""All stages behind `fit` and `predict`: a federation in one process."""

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from koncord._random import RandomState, as_generator, draw_seed
from koncord._text import is_showable
from koncord._threads import one_thread
from koncord._validation import check_count
from koncord._words import counted
from koncord.aggregate.base import check_is_aggregator
from koncord.aggregate.consensus import Consensus
from koncord.data.batches import (
    BatchedTable,
    SampledTable,
    batched_table,
    is_batched_source,
    sampled_table,
    whole_table,
)
from koncord.data.files import Table, complete_rows
from koncord.data.frames import names_in, table_in_memory
from koncord.estimate.asm import ASM
from koncord.estimate.base import adapted
from koncord.prepare.settings import Missing, Preparation
from koncord.privacy.budget import Budget
from koncord.runs.assignments import counting, far_off_rows, labeled_batches
from koncord.session.federation import SERVER, run
from koncord.session.inprocess import in_process
from koncord.session.policy import ServerPolicy, SitePolicy
from koncord.session.site import Site
from koncord.types import FloatArray, IntArray

# Columns are said to be in other units where their spreads differ by more than this.
UNEQUAL = 100.0


class FederatedClustering(BaseEstimator):  # type: ignore[misc]
    """Clusters of several sites whose rows stay where they are, with neither the local nor the global k known.

    Parameters
    ----------
    estimator : estimator, default None
        Phase 1, fitted at every site on its own rows: one of koncord, or a clusterer or mixture of scikit-learn (see
        `koncord.estimate.base`). None is `ASM()`.
    aggregator : Aggregator, default None
        Phase 2: exchanges parameters and finds the global clusters. None is `Consensus()`.
    standardize : bool or None, default None
        Bring all columns to mean 0 and variance 1 over all sites, from counts and sums alone. None is yes, or no with a
        privacy budget.
    log : bool or sequence of str, default True
        Take the logarithm of columns of positive numbers that are skewed, and less so after it; or of these columns
        and of no others.
    fence : bool, default True
        Move values beyond 8 robust standard deviations from the quartiles of their column to there. Without
        `standardize` columns keep their units: there is no fence, and no logarithm of columns that are not named.
    missing : {"neighbors", "gaussian", "mean", "drop"}, default "neighbors"
        What stands in for a missing value (NaN): the mean of the five rows of its site that are nearest in the other
        columns, what a Gaussian of all sites lets expect from these, or the mean of its column; or rows with gaps take
        no part, and are labeled all the same.
    categories : sequence of str, default ()
        Columns whose values, numbers or text, are levels. Each counts as much as one column of numbers.
    harmonize : bool, default False
        Take out offsets between the sites, as of instruments with another zero, where they are credible; without it,
        they are only reported. For `Consensus`, without a privacy budget and without categories.
    random_state : int, Generator or None, default None
        The same seed gives the same result in whatever order named sites are given.
    min_report : int, default 20
        Smallest number of rows behind any statistic a site sends; smaller cells are suppressed, in the model too (see
        docs/security.md). 1 suppresses nothing beyond what the aggregator itself does. `labels_` are of the
        caller's own rows, and exact.
    min_support : int, default 1
        Flag clusters supported by fewer than this many sites: one faulty or malicious site may have produced them.
        `Consensus` sets such micro-clusters aside. Where `Consensus` has a `min_report` or `min_support` of its own,
        the larger one counts; one below the run's is refused.
    privacy : koncord.privacy.Budget, default None
        What everything each site sends keeps to. With a budget phase 1 is left
        out, `standardize` must be False, and the same seed does not give the same result (see docs/privacy.md).
    common_columns : bool, default False
        Use the columns that all sites have and leave out the others, which the model's info and the report name;
        else sites with other columns are refused.
    local_counts : bool or None, default None
        Have every site run phase 1 and report its local k also where the aggregator does without them, as `Consensus`
        does, so that the model and the report have them. None is yes where an `estimator` is given.
    n_jobs : int or None, default None
        Sites that work at a time, at most, each in a worker process; None is 1, -1 all cores. It changes no result.

    Attributes
    ----------
    n_clusters_ : int
        The global k.
    cluster_centers_ : array (n_clusters, n_features)
        The centers, in the units of the tables.
    local_counts_ : list of int
        The local k of each site, in the order given, as it reports it: with a floor, of surrogates of its rows (see
        docs/security.md), and 0 below it. Where the fit did without, phase 1 runs when this is first read; a copy or a
        pickle of the fitted object, which holds no rows, cannot do that.
    labels_ : list of array (n_samples,)
        The global cluster of each row, for each site in the order given; a pandas Series with the index of the frame
        where the table was one.
    outliers_ : list of array (n_samples,)
        Whether each row has a value more than 8 standard deviations from the center of its cluster, as a wrong reading
        has, for each site in the order given; False throughout where the shape of the clusters is not known.
    sites_ : list of str
        Names of the sites, in the order given.
    n_features_in_ : int
        Number of columns that were used.
    feature_names_in_ : array of str
        Their names; only where a table has names.
    model_ : GlobalModel
        To predict, save and share.
    record_ : RunRecord
        How the model was found: what was asked, when, how long it took, what left the sites.
    ledger_ : list of Departure
        Every message that left a site, with its size. Also `departures_`.

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
        standardize: bool | None = None,
        log: bool | Sequence[str] = True,
        fence: bool = True,
        missing: Missing = "neighbors",
        categories: Sequence[str] = (),
        harmonize: bool = False,
        random_state: RandomState = None,
        min_report: int = SitePolicy.min_report,
        min_support: int = ServerPolicy.min_support,
        privacy: Budget | None = None,
        common_columns: bool = False,
        local_counts: bool | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.aggregator = aggregator
        self.standardize = standardize
        self.log = log
        self.fence = fence
        self.missing = missing
        self.categories = categories
        self.harmonize = harmonize
        self.random_state = random_state
        self.min_report = min_report
        self.min_support = min_support
        self.privacy = privacy
        self.common_columns = common_columns
        self.local_counts = local_counts
        self.n_jobs = n_jobs

    def fit(self, clients: Mapping[str, Any] | Sequence[Any], y: object = None) -> Self:
        """Find the clusters of all sites together.

        Parameters
        ----------
        clients : mapping of str to table, or sequence of tables
            The rows of each site: an array (n_samples, n_features), or a frame of pandas, polars or Arrow. A pyarrow
            dataset, a DuckDB relation or a Dask frame is read batch by batch (docs/howto-large.md).
        y : None
            Not used; here by convention.

        Returns
        -------
        FederatedClustering
            The object itself.
        """
        estimator = ASM() if self.estimator is None else self.estimator
        min_report = check_count("min_report", self.min_report, owner=self)
        min_support = check_count("min_support", self.min_support, owner=self)
        aggregator = Consensus() if self.aggregator is None else self.aggregator
        adapted(estimator, owner=self)
        check_is_aggregator(aggregator, owner=self)
        if self.harmonize:
            aggregator = harmonizing(aggregator)
        if self.privacy is not None and self.standardize:
            raise ValueError(
                "'standardize' of FederatedClustering must be False or None with a privacy budget: columns are brought "
                "to one scale beforehand, by numbers that do not depend on the rows."
            )
        named = named_clients(clients)
        opened = {name: as_streamed(name, table) for name, table in named.items() if is_batched_source(table)}
        streamed = {name: table for name, table in opened.items() if not table.is_whole}
        tables = {
            name: whole_table(opened[name]) if name in opened else as_table(name, table, self.categories)
            for name, table in named.items()
            if name not in streamed
        }
        preparation = preparation_by_parameters(self) if self.privacy is None else None
        policy = SitePolicy(min_report=min_report, budget=self.privacy)
        taking_part = complete_rows(list(tables.values())) if self.missing == "drop" else list(tables.values())
        rows = {table.name: (table.X, table.columns) for table in taking_part}
        link = in_process(
            rows,
            estimator=estimator,
            aggregator=aggregator,
            policy=policy,
            levels={name: table.levels for name, table in tables.items()},
            n_jobs=self.n_jobs,
            streamed=streamed,
        )
        result = run(
            link,
            aggregator,
            estimator=estimator,
            seed=seed_of(self.random_state),
            standardize=preparation is not None and preparation.standardize,
            site_policy=policy,
            server_policy=ServerPolicy(min_support=min_support),
            common_columns=self.common_columns,
            preparation=preparation,
            local_counts=self.estimator is not None if self.local_counts is None else self.local_counts,
            files="in memory",
            labels_in_memory=True,
        )
        if self.standardize is False and self.privacy is None and tables:
            warn_of_units([result.model.rows(table) for table in tables.values()], result.model.columns)
        self.model_ = result.model
        self.ledger_ = self.departures_ = list(result.ledger)
        self.n_features_in_ = len(self.model_.plan.inputs)
        self.n_clusters_ = self.model_.n_clusters
        self.cluster_centers_ = self.model_.centers_original
        self.sites_ = list(named)
        if streamed or any(names_in(table) for name, table in named.items() if name not in opened):
            self.feature_names_in_ = np.array(self.model_.plan.inputs, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of a fit before this one
            del self.feature_names_in_
        labels = {name: self.model_.assign(self.model_.rows(own, name)) for name, own in tables.items()}
        far_off = {name: far_off_rows(self.model_, own, labels[name], name) for name, own in tables.items()}
        for name, own in streamed.items():
            labels[name], far_off[name] = labeled_batches(self.model_, own.table, name)
        self.record_ = counting(result.record, list(far_off.values()))
        self.labels_ = [labels[name] if name in opened else indexed_as(named[name], labels[name]) for name in named]
        masks = {name: found.mask(len(labels[name])) for name, found in far_off.items() if found is not None}
        self.outliers_ = [masks.get(name, np.zeros(len(labels[name]), dtype=bool)) for name in named]
        counts = dict(zip(self.model_.sites, self.model_.local_counts or (None,) * len(link.sites), strict=False))
        self._counts = {name: own_count(link.sites[name], counts) for name in named}
        self._uncounted = {name: link.sites[name] for name, count in self._counts.items() if count is None}
        return self

    @property
    def local_counts_(self) -> list[int]:
        """The local k of each site, in the order given; phase 1 runs now at sites where it has not."""
        check_is_fitted(self)
        with one_thread():
            for name, site in list(self._uncounted.items()):
                self._counts[name] = site.local_k()
                del self._uncounted[name]
        known = [self._counts[name] for name in self.sites_]
        if None in known:
            raise AttributeError(
                "'local_counts_' is not in a copy of a FederatedClustering that was fitted without them; fit with "
                "FederatedClustering(local_counts=True), or read them before it is copied or saved."
            )
        return [count for count in known if count is not None]

    def __getstate__(self) -> dict[str, Any]:
        """All but the sites: a saved object must not carry their rows."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_uncounted": {}} if "_uncounted" in state else state

    def fit_predict(self, clients: Mapping[str, Any] | Sequence[Any], y: object = None) -> list[Any]:
        """Fit, and return `labels_`: the global cluster of each row, for each site in the order given.

        Parameters
        ----------
        clients : mapping of str to table, or sequence of tables
            The rows of each site.
        y : None
            Not used; here by convention.

        Returns
        -------
        list of array (n_samples,)
            One a site.
        """
        return self.fit(clients).labels_

    def predict(self, X: Any, site: str | None = None) -> IntArray:
        """Global cluster of every row of a table, of a site that took part or of a new one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            In the units of the sites' tables; columns are matched by name where it has
            names.
        site : str or None, default None
            The site that the rows are of, whose offset is taken out where sites were aligned (`harmonize`).

        Returns
        -------
        array (n_samples,)
            Numbers of clusters.
        """
        check_is_fitted(self)
        labels: IntArray = self.model_.predict(X, site=site)
        return labels

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report of the run: one HTML file that explains itself and holds no row.

        Parameters
        ----------
        path : str or path
            The file; replaced if it is there.

        Returns
        -------
        Path
            The file.
        """
        from koncord.report.page import write_page

        check_is_fitted(self)
        target = Path(path)
        if target.is_dir():
            raise ValueError(f"'path' of FederatedClustering.report must name a file; '{target}' is a folder.")
        write_page(target, self.model_, self.record_)
        return target

    def _repr_html_(self) -> str:
        """For a notebook: the parameters and, once fitted, k, the sites and the sizes of the clusters."""
        parameters: str = estimator_html_repr(clone(self))  # of a fitted one it reads all attributes: phase 1 would run
        return f"{fitted_html(self)}{parameters}" if hasattr(self, "model_") else parameters

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = {"text/plain": repr(self)}
        return {**shown, "text/html": self._repr_html_()} if get_config()["display"] == "diagram" else shown


def own_count(site: Site, sent: Mapping[str, int | None]) -> int | None:
    """The local k that a site found, sent or not; None of one that did not look, 0 of one set aside before it could."""
    if site.estimate is not None:
        return site.local_k()
    return sent.get(site.name, 0) if site.private is not None or site.prepared is None else None


def warn_of_units(tables: Sequence[FloatArray], columns: Sequence[str]) -> None:
    """Warn where one column is so much wider than another that it decides alone what is near."""
    widths = np.mean([table.std(axis=0) for table in tables], axis=0)
    narrow = np.where(widths > 0, widths, np.inf)
    least, most = int(narrow.argmin()), int(widths.argmax())
    ratio = widths[most] / narrow[least]
    if ratio > UNEQUAL:
        warnings.warn(
            f"Column {columns[most]!r} varies {ratio:,.0f} times as much as column {columns[least]!r}, so it decides "
            "nearly alone which rows are near each other. FederatedClustering(standardize=True) gives all columns "
            "one scale, as koncord.fit does.",
            UserWarning,
            stacklevel=3,
        )


def named_clients(clients: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """The table of every site; clients without a name are called site-1, site-2, ... in their order."""
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
    for name, table in named.items():
        if isinstance(table, str | os.PathLike):
            raise TypeError(
                f"'clients' of FederatedClustering must hold tables; that of site {name!r} is the name of a file, "
                f"'{table}'. koncord.fit reads files: koncord.fit(['{table}', ...])."
            )
    if SERVER in named:
        raise ValueError("'clients' of FederatedClustering must have names that are not empty.")
    hidden = [name for name in named if not is_showable(name)]
    if hidden:
        raise ValueError(f"'clients' of FederatedClustering must have names that can be shown; got {hidden[0]!r}.")
    return named


def as_table(site: str, table: Any, categories: Sequence[str] = ()) -> Table:
    """Rows as floats and column names, the table's own if it has them; an error names the site."""
    names = names_in(table)
    own = [name for name in categories if names is None or name in names]
    return table_in_memory(table, what=f"The table of site {site!r}", name=site, categories=own)


def as_streamed(site: str, table: Any) -> SampledTable:
    """A table that is read batch by batch, read once."""
    return sampled_table(table if isinstance(table, BatchedTable) else batched_table(table, name=site))


def preparation_by_parameters(clustering: FederatedClustering) -> Preparation:
    """What is done with columns, as the parameters say; ValueError for one that is wrong."""
    log = clustering.log
    if isinstance(log, str):
        raise ValueError(f"'log' of FederatedClustering must be True, False or a sequence of columns; got {log!r}.")
    return Preparation(
        standardize=clustering.standardize is not False,
        log=log is True,
        logged=() if isinstance(log, bool) else tuple(log),
        fence=clustering.fence,
        missing=clustering.missing,
    )


def harmonizing(aggregator: Any) -> Any:
    """The aggregator with offsets between sites taken out; ValueError for one that cannot do that."""
    if "harmonize" not in aggregator.get_params(deep=False):
        raise ValueError(
            f"'harmonize' of FederatedClustering must be False with {type(aggregator).__name__}, which finds no "
            "offsets between sites; Consensus does."
        )
    return clone(aggregator).set_params(harmonize=True)


def seed_of(random_state: RandomState) -> int:
    """The seed of a run: an int is taken as it is, so that a saved model tells it."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"'random_state' of FederatedClustering must not be negative; got {random_state}.")
        return int(random_state)
    return draw_seed(as_generator(random_state))


def indexed_as(table: Any, labels: IntArray) -> Any:
    """Labels of the rows of a table: with its index where it is a pandas frame, as they are where it is not."""
    pandas = sys.modules.get("pandas")  # a frame of pandas is there only if pandas is
    if pandas is None or not isinstance(table, pandas.DataFrame):
        return labels
    return pandas.Series(labels, index=table.index, name="cluster")


# A wider table says less than the report does.
MOST_IN_HTML = 12


def fitted_html(fitted: FederatedClustering) -> str:
    """K, the sites and the sizes of the clusters as a small table."""
    k = fitted.n_clusters_
    sizes = np.array([np.bincount(labels, minlength=k) for labels in fitted.labels_])
    counts = [fitted._counts[name] for name in fitted.sites_]
    is_counted, is_narrow = None not in counts, k <= MOST_IN_HTML

    def line(first: str, rows: Any, count: Any, by_cluster: Sequence[Any]) -> list[Any]:
        return [first, rows, *([count] if is_counted else []), *(by_cluster if is_narrow else ())]

    heads = line("site", "rows", "local k", [f"cluster {at}" for at in range(k)])
    lines = [
        line(escape(site), rows.sum(), count, rows)
        for site, rows, count in zip(fitted.sites_, sizes, counts, strict=True)
    ]
    lines.append(line("all", sizes.sum(), "", sizes.sum(axis=0)))
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in line)}</tr>" for line in lines)
    caption = f"K = {k}: {counted(k, 'cluster')} over {counted(len(fitted.sites_), 'site')}"
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
