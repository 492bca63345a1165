"""The model a federation leaves behind: parameters and their history, no rows.

File format (version 3): a safetensors file. Its arrays are ``centers`` (k, d), ``weights`` (k,), ``means`` (d,) and
``scales`` (d,) to standardize a row with, ``holdings`` (sites, k) rows of each site in each cluster, and for each site,
in the order of ``sites``, ``groups.N`` and ``components.N``: the cluster each of its local components went into, and
their means; and ``excluded.N`` where some of these were set aside, and ``offsets.N`` where sites were aligned; and,
where the shape of the clusters is known, ``axes`` (q, d), ``covariances`` (k, q, q) along these axes and ``mixing``
(k,), the weights of the mixture; and, where more than a scale was agreed for the columns, ``plan.NAME`` of
`koncord.prepare.plan.Plan`; and, where there are nested clusterings, ``tree.joins``, ``tree.apart``, ``tree.centers``,
``tree.weights``, ``tree.covariances`` and, for each site, ``tree.groups.N`` (`koncord.kernels.tree`).
Its metadata is one entry ``koncord``: a JSON object with ``format``, ``version``, ``columns``, ``sites``,
``local_counts``, ``seed``, ``settings``, ``diagnostics``, ``confidence``, ``session``, ``versions`` and ``plan``.
Any safetensors reader opens it; nothing in it is executed.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.spatial.distance import cdist
from scipy.special import gammaincinv

from koncord._files import write_atomic
from koncord._records import from_json, json_values
from koncord.aggregate.base import members_of
from koncord.aggregate.confidence import Confidence
from koncord.aggregate.diagnostics import Diagnostics
from koncord.data.batches import BatchedTable, checked_batches
from koncord.data.files import Table
from koncord.data.frames import table_in_memory
from koncord.errors import ModelFileError
from koncord.kernels.assign import nearest
from koncord.kernels.built import compiled_module
from koncord.kernels.gaussians import Gaussians
from koncord.kernels.labeling import ColumnLabeler, FarValues, far_values
from koncord.kernels.tree import ClusterTree
from koncord.model.facts import SessionFacts
from koncord.model.outliers import FAR_OFF, LEAST_SPREAD, OUTLIER, OUTLIER_QUANTILE
from koncord.prepare.plan import Plan, plain_plan
from koncord.types import BoolArray, FloatArray, IntArray

_labeling = compiled_module("_labeling")
MODEL_FORMAT = "koncord-global-model"
MODEL_VERSION = 3
# Arrays of the file that hold the shape of the clusters, where it is known.
SHAPES = ("axes", "covariances", "mixing")
# Arrays of the plan, where it has them.
PLANNED = ("logged", "least", "low", "high", "fill", "covariances")
TREE = "tree."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GlobalModel:
    """Global clusters of a federation. Two models are equal if their files are; a model has no hash.

    `predict` takes rows in the units of the sites' own tables. A table with named columns is matched by name; without
    names, its columns must be in the order of `columns`.
    """

    centers: FloatArray  # (n_clusters, n_features) in scaled units
    weights: FloatArray  # (n_clusters,) share of all rows
    columns: tuple[str, ...]
    means: FloatArray  # (n_features,) subtracted from a row
    scales: FloatArray  # (n_features,) a row is divided by
    sites: tuple[str, ...] = ()  # in name order
    local_counts: tuple[int, ...] = ()
    holdings: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))  # (n_sites, n_clusters)
    groups: Mapping[str, IntArray] = field(default_factory=dict)  # cluster of each local component, by site
    components: Mapping[str, FloatArray] = field(default_factory=dict)  # means of the local components, by site
    plan: Plan = None  # type: ignore[assignment]  # what is done with columns; None: they are scaled
    excluded: Mapping[str, BoolArray] = field(default_factory=dict)  # mask of the components set aside, by site
    gaussians: Gaussians | None = None  # shape of the clusters around the same centers; None: a row goes to the nearest
    tree: ClusterTree | None = None  # clusterings with fewer and more clusters, where the aggregator has them
    offsets: Mapping[str, FloatArray] = field(default_factory=dict)  # taken from the scaled rows of a site, by site
    confidence: Confidence | None = None  # how sure the clusters are, where the aggregator tells
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # estimator and aggregator as text
    diagnostics: Diagnostics = field(default_factory=Diagnostics)  # what the aggregator says of its result
    session: SessionFacts = field(default_factory=SessionFacts)  # who took part, under which rules, what was counted
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        k, d = self.centers.shape if self.centers.ndim == 2 else (0, 0)
        if k < 1 or d < 1:
            raise ValueError("'centers' of a GlobalModel must be a table of at least one center.")
        shapes = {"weights": (k,), "means": (d,), "scales": (d,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"'{name}' of a GlobalModel must have shape {shape}; got {getattr(self, name).shape}.")
        if len(self.columns) != d:
            raise ValueError(f"'columns' of a GlobalModel must name {d} columns; got {len(self.columns)}.")
        if self.plan is None:
            object.__setattr__(self, "plan", plain_plan(self.columns, self.means, self.scales))
        if self.plan.features != self.columns:
            raise ValueError("'plan' of a GlobalModel must give its columns.")
        for site, clusters in self.groups.items():
            if not ((clusters >= 0) & (clusters < k)).all():
                raise ValueError(
                    f"'groups' of a GlobalModel must name clusters from 0 to {k - 1}; {site!r} has others. What is in "
                    "no cluster is marked in 'excluded'."
                )
        for site, offset in self.offsets.items():
            if offset.shape != (d,):
                raise ValueError(f"'offsets' of a GlobalModel must have shape {(d,)}; that of {site!r} has not.")
        for site, mask in self.excluded.items():
            if mask.dtype != np.bool_ or mask.shape != self.groups[site].shape:
                raise ValueError(f"'excluded' of a GlobalModel must be a mask of the 'groups' of {site!r}.")

    @property
    def n_clusters(self) -> int:
        return len(self.centers)

    @property
    def centers_original(self) -> FloatArray:
        """Centers in the units of the sites' tables; of a level its share, of a logged column its geometric mean."""
        return self.plan.original(self.centers)

    @property
    def members(self) -> dict[str, IntArray]:
        """Clusters of the local components that were not set aside, by site."""
        return members_of(self.groups, self.excluded)

    @property
    def info(self) -> dict[str, Any]:
        """`diagnostics` and `session` as one dictionary of JSON values, for readers of `koncord fit --json`."""
        own = json_values(self.diagnostics)
        return {
            **own.pop("extra"),
            **own,
            **json_values(self.session),
            "weak_clusters": list(self.session.weak_clusters),
            "set_aside": {site: int(mask.sum()) for site, mask in self.excluded.items()},
        }

    def scaled(self, table: Any, site: str | None = None) -> FloatArray:
        """Rows of a table on the scale of the centers; of a site that was aligned, without its offset.

        What is missing is NaN where the shape of the clusters is known, and filled where only centers are.
        """
        what = "'X' for this GlobalModel"
        found = table_in_memory(table, what=what, columns=self.plan.inputs, categories=self.plan.categories)
        if np.isnan(found.X).any() and self.plan.missing is None:
            raise ValueError(f"{what} must hold finite numbers only.")
        return self.rows(found, site)

    def rows(self, table: Table, site: str | None = None) -> FloatArray:
        """Rows of a table on the scale of the centers, each by itself.

        A gap is NaN where the shape of the clusters is known, as a row is then judged by what it has; else it is filled
        from the nearest center or as the plan says. With a `site` that was aligned with the others, its offset is taken
        out; any other name changes nothing.
        """
        return self._scaled_rows(table.X, table.columns, table.levels, site)

    def batches(self, table: BatchedTable, site: str | None = None) -> Iterator[FloatArray]:
        """Rows of a table that is read batch by batch, on the scale of the centers: one pass."""
        for X in checked_batches(table, may_miss=self.plan.missing is not None):
            yield self.scaled_batch(X, table.columns, site)

    def scaled_batch(self, X: FloatArray, columns: Sequence[str], site: str | None = None) -> FloatArray:
        """Rows of some columns of numbers, as they came, on the scale of the centers."""
        return self._scaled_rows(X, columns, {}, site)

    def _scaled_rows(
        self, X: FloatArray, columns: Sequence[str], levels: Mapping[str, Sequence[str]], site: str | None
    ) -> FloatArray:
        if self.gaussians is not None:
            return self._without_offset(self.plan.with_gaps(X, columns, levels), site)
        offset = self.offsets.get(site or "", np.zeros(len(self.columns)))
        return self.plan.apply(X, columns, levels, centers=self.centers + offset) - offset

    def predict(
        self, X: Any, *, site: str | None = None, outliers: bool = False, quantile: float = OUTLIER_QUANTILE
    ) -> IntArray:
        """Global cluster of every row: the most likely one, or that of the nearest center where no shapes are known.

        Of a row that lacks values it is the most likely one given what the row has.

        Parameters
        ----------
        X : table (n, n_features)
            In the units of the sites' tables.
        site : str or None, default None
            The site that the rows are of: one that was aligned with the others (`harmonize`) has an offset, which is
            taken out. None, and a site that did not take part, has none.
        outliers : bool, default False
            Give -1 to rows that lie outside of their cluster (see `outliers`); needs the shape of the clusters.
        quantile : float, default 0.999
            With `outliers`: the share of a cluster's rows that lie inside.
        """
        Z = self.scaled(X, site)
        labels = self.assign(Z)
        return self.without_outliers(Z, labels, quantile) if outliers else labels

    def without_outliers(self, Z: FloatArray, labels: IntArray, quantile: float) -> IntArray:
        """The labels of scaled rows with -1 for those that lie outside of their cluster."""
        return np.where(self._is_outlier(Z, labels, quantile), OUTLIER, labels)

    def assign(self, Z: FloatArray) -> IntArray:
        """Global cluster of every row that is scaled already."""
        return nearest(Z, self.centers) if self.gaussians is None else self.gaussians.assign(Z)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability (n, n_clusters) of every cluster for every row; needs the shape of the clusters."""
        joint = self._shapes().log_joint(self.scaled(X))
        joint = np.exp(joint - joint.max(axis=1, keepdims=True))
        found: FloatArray = joint / joint.sum(axis=1, keepdims=True)
        return found

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of every row, scaled and along the axes of the clusters; needs the shape of the clusters."""
        joint = self._shapes().log_joint(self.scaled(X))
        most = joint.max(axis=1)
        found: FloatArray = most + np.log(np.exp(joint - most[:, None]).sum(axis=1))
        return found

    def distances(self, X: Any) -> FloatArray:
        """Distance (n, n_clusters) of every row to every cluster, in the cluster's own metric.

        That is the Mahalanobis distance along the axes of the clusters; where no shapes are known, the Euclidean
        distance to the centers on the scaled columns.
        """
        return self.distances_of(self.scaled(X))

    def distances_of(self, Z: FloatArray) -> FloatArray:
        """The distances of rows that are scaled already."""
        if self.gaussians is None:
            to_centers: FloatArray = cdist(Z, self.centers)
            return to_centers
        return np.sqrt(self.gaussians.squared_distances(Z))

    def outliers(self, X: Any, *, quantile: float = OUTLIER_QUANTILE) -> BoolArray:
        """Whether every row (n,) lies outside of its cluster; needs the shape of the clusters.

        The squared Mahalanobis distance of a row of a Gaussian follows a chi-square distribution with as many degrees
        of freedom as there are axes. A row beyond its `quantile` is an outlier. Directions in which the rows of the
        federation hardly vary are no axes of the clusters, and tell of no outlier.

        Parameters
        ----------
        X : table (n, n_features)
            In the units of the sites' tables.
        quantile : float, default 0.999
            The share of a cluster's rows that lie inside: more than 0 and less than 1.
        """
        Z = self.scaled(X)
        return self._is_outlier(Z, self.assign(Z), quantile)

    def _is_outlier(self, Z: FloatArray, labels: IntArray, quantile: float) -> BoolArray:
        shapes = self._shapes()
        if not 0 < quantile < 1:
            raise ValueError(f"'quantile' of GlobalModel must be more than 0 and less than 1; got {quantile:g}.")
        reach = 2 * gammaincinv(len(shapes.axes) / 2, quantile)  # the quantile of chi-square
        found: BoolArray = shapes.own_squared_distances(Z, labels) > reach
        return found

    def _without_offset(self, Z: FloatArray, site: str | None) -> FloatArray:
        """Scaled rows, or their first columns, less the offset of a site that was aligned."""
        offset = self.offsets.get(site or "")
        return Z if offset is None else Z - offset[: Z.shape[1]]

    def far_off(self, table: Table, labels: IntArray, site: str | None = None) -> FloatArray | None:
        """How far every value (n, n_numbers) of a table lies from the center of its row's cluster.

        In standard deviations of the cluster in that column, before any value was moved; 0 of a missing one. None where
        the shape of the clusters is not known.

        Parameters
        ----------
        table : Table
            The rows.
        labels : array (n,)
            Their clusters.
        site : str or None, default None
            The site that the rows are of.
        """
        if self.gaussians is None:
            return None
        centers, spreads = self._spreads(self.gaussians)
        Z = self._without_offset(self.plan.scaled_unfenced(table.X, table.columns), site)
        found: FloatArray = np.nan_to_num(np.abs(Z - centers[labels]) / spreads[labels])
        return found

    def far_values(
        self, X: FloatArray, columns: Sequence[str], labels: IntArray, site: str | None = None
    ) -> FarValues | None:
        """The values of `far_off` that lie beyond `koncord.model.outliers.FAR_OFF`; in C where it was built.

        Parameters
        ----------
        X : array (n, n_columns)
            The rows.
        columns : sequence of str
            Names of their columns.
        labels : array (n,)
            Their clusters.
        site : str or None, default None
            The site that the rows are of.
        """
        if self.gaussians is None:
            return None
        if _labeling is None:
            dense = self.far_off(Table(name="", X=X, columns=tuple(columns)), labels, site)
            assert dense is not None
            at = np.nonzero(dense > FAR_OFF)
            return FarValues(rows=at[0], columns=at[1], beyond=dense[at], labels=labels[at[0]])
        centers, spreads = map(np.ascontiguousarray, self._spreads(self.gaussians))
        Z = self._without_offset(self.plan.scaled_unfenced(X, columns), site)
        found = _labeling.far(np.ascontiguousarray(Z), centers, spreads, np.ascontiguousarray(labels), FAR_OFF)
        return far_values(found, labels)

    def column_labeler(self, columns: Sequence[str], site: str | None = None) -> ColumnLabeler | None:
        """What labels rows of these columns, column by column, as `scaled_batch`, `two_nearest` and `far_values` do.

        None where it takes more than that: centers without a shape, logarithms, categories, or koncord without its C.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns.
        site : str or None, default None
            The site that the rows are of.
        """
        plan, d = self.plan, len(self.plan.columns)
        is_plain = tuple(columns) == plan.columns and not plan.categories and not plan.is_logged.any()
        if self.gaussians is None or not self.gaussians.is_compiled or not is_plain:
            return None
        fence = (
            (np.full(d, -np.inf), np.full(d, np.inf))
            if plan.low is None or plan.high is None
            else (plan.low, plan.high)
        )
        centers, spreads = map(np.ascontiguousarray, self._spreads(self.gaussians))
        return ColumnLabeler(
            scaling=np.stack([*fence, plan.means, plan.scales, self.offsets.get(site or "", np.zeros(d))]),
            factors=self.gaussians.factors(),
            centers=centers,
            spreads=spreads,
            reach=FAR_OFF,
        )

    def _spreads(self, gaussians: Gaussians) -> tuple[FloatArray, FloatArray]:
        """Centers and standard deviations (n_clusters, n_numbers) of the clusters in the columns of numbers."""
        p = len(self.plan.columns)
        spreads = gaussians.column_deviations()[:, :p]
        share, centers = gaussians.weights[:, None], self.centers[:, :p]
        pooled = np.sqrt((share * (spreads**2 + (centers - (share * centers).sum(axis=0)) ** 2)).sum(axis=0))
        return centers, np.maximum(spreads, LEAST_SPREAD * np.where(pooled > 0, pooled, 1.0))

    # --- other numbers of clusters ---

    @property
    def available(self) -> range:
        """The numbers of clusters that `at` has."""
        k = self.n_clusters
        return range(k, k + 1) if self.tree is None else range(1, self.tree.n_leaves + 1)

    def at(self, k: int) -> "GlobalModel":
        """The model with k clusters, nested in or made of those of this one.

        With fewer clusters, those that are least apart are joined: their Gaussians by their moments, their rows by
        their sums. With more, clusters are cut where that leaves the parts farthest apart. Of the finer clusters the
        sites were not asked: such a model has no rows by site (`holdings`). What is known of this model's clusters
        (`confidence`, `diagnostics`, `session`) is not of the other one's, and left out.

        Parameters
        ----------
        k : int
            Number of clusters, one of `available`.
        """
        if k == self.n_clusters:
            return self
        if self.tree is None or k not in self.available:
            raise ValueError(
                "'k' of GlobalModel.at must be a number of clusters that this model has, "
                f"{range_in_words(self.available)}; got {k}."
            )
        nodes, labels = self.tree.nodes_at(k), self.tree.labels_at(k)
        own = self.tree.labels_at(self.n_clusters)
        centers = self.tree.centers[nodes]
        into = dict(zip(own.tolist(), labels.tolist(), strict=True))  # each cluster, joined into which
        is_coarser = k < self.n_clusters
        return replace(
            self,
            centers=centers,
            weights=summed_into(self.weights, into, k) if is_coarser else self._finer_weights(nodes, labels, own),
            holdings=summed_into(self.holdings, into, k) if is_coarser else np.empty((0, k), dtype=np.int64),
            groups={site: labels[leaves] for site, leaves in self.tree.groups.items()},
            gaussians=None
            if self.gaussians is None or self.tree.covariances is None
            else Gaussians(
                centers=centers,
                axes=self.gaussians.axes,
                covariances=self.tree.covariances[nodes],
                weights=self.tree.weights[nodes],
            ),
            confidence=None,
            diagnostics=Diagnostics(label_rule=self.diagnostics.label_rule),
            session=SessionFacts(min_report=self.session.min_report, min_support=self.session.min_support),
        )

    def _finer_weights(self, nodes: IntArray, labels: IntArray, own: IntArray) -> FloatArray:
        """Of each part of a cluster its share in the weight of the cluster."""
        assert self.tree is not None
        shares = self.tree.weights[nodes]
        inside = np.array([own[labels == cluster][0] for cluster in range(len(nodes))])
        totals = np.bincount(inside, shares, minlength=self.n_clusters)
        weights: FloatArray = self.weights[inside] * shares / np.where(totals > 0, totals, 1.0)[inside]
        return weights

    def _shapes(self) -> Gaussians:
        if self.gaussians is None:
            raise ValueError("This GlobalModel has centers only: its aggregator found no shape of the clusters.")
        return self.gaussians

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GlobalModel):
            return NotImplemented
        if self is other:
            return True
        ours, theirs = self._arrays(), other._arrays()
        return (
            self._header() == other._header()
            and ours.keys() == theirs.keys()
            and all(np.array_equal(ours[name], theirs[name]) for name in ours)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; the file appears whole or not at all."""
        arrays = {name: np.ascontiguousarray(array) for name, array in self._arrays().items()}
        data = save(arrays, metadata={"koncord": self._header()})
        write_atomic(Path(path), data)

    def _arrays(self) -> dict[str, FloatArray | IntArray | BoolArray]:
        """The arrays of the file, by name."""
        return {
            "centers": self.centers,
            "weights": self.weights,
            "means": self.means,
            "scales": self.scales,
            "holdings": self.holdings,
            **({} if self.gaussians is None else shape_arrays(self.gaussians)),
            **{f"plan.{name}": each for name in PLANNED if (each := getattr(self.plan, name)) is not None},
            **({} if self.tree is None else tree_arrays(self.tree, self.sites)),
            **{f"groups.{at}": self.groups[site] for at, site in enumerate(self.sites) if site in self.groups},
            **{f"components.{at}": self.components[s] for at, s in enumerate(self.sites) if s in self.components},
            **{f"excluded.{at}": self.excluded[site] for at, site in enumerate(self.sites) if site in self.excluded},
            **{f"offsets.{at}": self.offsets[site] for at, site in enumerate(self.sites) if site in self.offsets},
        }

    def _header(self) -> str:
        """Everything else in the file, as JSON."""
        header = {
            "format": MODEL_FORMAT,
            "version": MODEL_VERSION,
            "columns": list(self.columns),
            "sites": list(self.sites),
            "local_counts": list(self.local_counts),
            "seed": self.seed,
            "settings": dict(self.settings),
            "diagnostics": json_values(self.diagnostics),
            "confidence": json_values(self.confidence),
            "session": json_values(self.session),
            "versions": dict(self.versions),
            "plan": {
                "missing": self.plan.missing,
                # Pairs, as their order is that of the features and the keys of an object are sorted.
                "categories": [list(each) for each in zip(self.plan.categories, self.plan.levels, strict=True)],
            },
        }
        return json.dumps(header, sort_keys=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a saved model; `ModelFileError` for anything else."""
        name = Path(path).name
        if not Path(path).is_file():
            raise ModelFileError(f"There is no model file {os.fspath(path)!r}.")
        try:
            with safe_open(path, framework="numpy") as stored:
                header = json.loads((stored.metadata() or {})["koncord"])
                arrays = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
            if header["format"] != MODEL_FORMAT:
                raise ModelFileError(f"{name!r} is not a koncord model but {header['format']!r}.")
            if header["version"] != MODEL_VERSION:
                raise ModelFileError(
                    f"{name!r} is a koncord model of version {header['version']}; "
                    f"this koncord reads version {MODEL_VERSION}."
                )
            sites = tuple(header["sites"])
            return cls(
                centers=arrays["centers"],
                weights=arrays["weights"],
                columns=tuple(header["columns"]),
                means=arrays["means"],
                scales=arrays["scales"],
                sites=sites,
                local_counts=tuple(header["local_counts"]),
                holdings=arrays["holdings"],
                groups=by_site("groups", sites, arrays),
                components=by_site("components", sites, arrays),
                excluded=by_site("excluded", sites, arrays),
                offsets=by_site("offsets", sites, arrays),
                plan=plan_in(header, arrays),
                gaussians=gaussians_in(arrays),
                tree=tree_in(arrays, sites),
                confidence=confidence_in(header),
                seed=header["seed"],
                settings=header["settings"],
                diagnostics=from_json(Diagnostics, header["diagnostics"]),
                session=from_json(SessionFacts, header["session"]),
                versions=header["versions"],
            )
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFileError(f"{name!r} is not a koncord model.") from error


def by_site(name: str, sites: tuple[str, ...], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of that name, by site; a site without one is left out."""
    return {site: arrays[f"{name}.{at}"] for at, site in enumerate(sites) if f"{name}.{at}" in arrays}


def plan_in(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Plan:
    """What is done with columns."""
    levels = {name: tuple(own) for name, own in header["plan"]["categories"]}
    ends = np.cumsum([len(own) for own in levels.values()])
    d = len(header["columns"]) - int(ends[-1] if len(ends) else 0)
    return Plan(
        columns=tuple(header["columns"][:d]),
        means=arrays["means"][:d],
        scales=arrays["scales"][:d],
        missing=header["plan"]["missing"],
        categories=tuple(levels),
        levels=tuple(levels.values()),
        shares=tuple(np.split(arrays["means"][d:], ends[:-1])) if levels else (),
        **{name: arrays.get(f"plan.{name}") for name in PLANNED},
    )


def shape_arrays(gaussians: Gaussians) -> dict[str, FloatArray]:
    return dict(zip(SHAPES, (gaussians.axes, gaussians.covariances, gaussians.weights), strict=True))


def gaussians_in(arrays: Mapping[str, Any]) -> Gaussians | None:
    if SHAPES[0] not in arrays:
        return None
    axes, covariances, weights = (arrays[name] for name in SHAPES)
    return Gaussians(centers=arrays["centers"], axes=axes, covariances=covariances, weights=weights)


def tree_arrays(tree: ClusterTree, sites: Sequence[str]) -> dict[str, FloatArray | IntArray]:
    """The arrays of a tree by their names in the file."""
    named = {name: array for name, array in tree.arrays().items() if not name.startswith("groups.")}
    named |= {f"groups.{at}": tree.groups[site] for at, site in enumerate(sites) if site in tree.groups}
    return {f"{TREE}{name}": array for name, array in named.items()}


def tree_in(arrays: Mapping[str, Any], sites: Sequence[str]) -> ClusterTree | None:
    own = {name.removeprefix(TREE): array for name, array in arrays.items() if name.startswith(TREE)}
    if not own:
        return None
    groups = {site: own.pop(f"groups.{at}") for at, site in enumerate(sites) if f"groups.{at}" in own}
    return ClusterTree(**own, groups=groups)


def confidence_in(header: Mapping[str, Any]) -> Confidence | None:
    stored = header["confidence"]
    return None if stored is None else from_json(Confidence, stored)


def range_in_words(available: range) -> str:
    return f"{available[0]} to {available[-1]}" if len(available) > 1 else f"{available[0]} only"


def summed_into(values: Any, into: Mapping[int, int], k: int) -> Any:
    """Sums over the last axis of the clusters that go into each of k."""
    found = np.zeros((*values.shape[:-1], k), dtype=values.dtype)
    for cluster, target in into.items():
        found[..., target] += values[..., cluster]
    return found
