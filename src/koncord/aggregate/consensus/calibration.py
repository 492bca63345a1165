"""Sites that measure the same clusters from another zero: found from the micro-clusters, and taken out.

A site whose instruments read a little higher has all of its clusters shifted by the same offset. So the sites are
first laid on each other, each by where its rows are densest; the clusters that then stand apart are looked for; and the
mean of every site in every cluster is predicted from all the other means, once as that of the cluster alone and once as
that of the cluster and an offset of the site. Offsets are credible where the second prediction is far better, for most
sites, most cells and most rows. Sites that hold other clusters fail that: an offset that brings one of their clusters
onto one of another site takes the others away. Where clusters lie so close that any offset brings each onto some other,
two things tell: means that differ by as much as the rows of a cluster do, and clusters that sites share as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from koncord.aggregate.consensus.choosing import WEIGHING, most_apart
from koncord.aggregate.consensus.hierarchies import AVERAGE, CONDENSED, WARD, grid, labelings, put_together
from koncord.aggregate.consensus.looking import EVERY_K, STEP, with_apart
from koncord.aggregate.consensus.microclusters import MicroClusters, rescaled, stacked
from koncord.aggregate.consensus.nullmodel import Candidate
from koncord.aggregate.consensus.separation import Shapes
from koncord.aggregate.consensus.weighing import column_scales
from koncord.types import BoolArray, FloatArray, IntArray

# Offsets are credible if means of cells are predicted no better than this without them, in standard deviations inside a
# site, and by at most such a share of that with them;
LEAST_BEFORE, MOST_LEFT = 0.5, 0.4
# if so many of the sites can be tested, and so many of the rows are in clusters of several sites;
LEAST_SITES, LEAST_SHARED = 0.6, 0.8
# and if so many of the cells are predicted at least twice as well, or to so small a part of a deviation.
LEAST_CELLS, HALVED, CLOSE = 0.7, 0.5, 0.35
# Means of cells that differ by more than this, in deviations inside their cluster, are of different clusters;
MOST_RELATIVE = 0.5
# and sites whose shared clusters hold so many rows as they are, and whose means differ by less, need no offsets.
LEAST_AS_IS = 0.25
# Below this no site can be so far from the others that the rest is worth the work.
LEAST_SHIFT = 0.25
MOST_STEPS = 20
FEWEST_CLIENTS = 3  # of two, an offset and two clusters of each that are not the other's look the same
MOST_CLIENTS = 1000  # among which offsets are looked for: the cells of all of them are held at once
MOST_CLUSTERS = 60  # that are looked for
HALF = 0.5  # of the rows of a cluster, from where on it is another one
ALONE = 1e-9  # what is left of a cell that nothing else predicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How well the mean of a client in a cluster, a cell, follows from all other cells."""

    before: float  # error without offsets, in standard deviations inside a client
    after: float  # with them
    relative: float  # the same in standard deviations inside a cluster
    testable: float  # share of the clients with two or more clusters that others hold too
    better: float  # share of the cells that are predicted far better with offsets
    shared: float  # share of the rows in clusters of several clients

    @property
    def speaks_for_offsets(self) -> bool:
        return (
            self.before >= LEAST_BEFORE
            and self.after <= MOST_LEFT * self.before
            and self.relative <= MOST_RELATIVE
            and self.testable >= LEAST_SITES
            and self.better >= LEAST_CELLS
            and self.shared >= LEAST_SHARED
        )

    @property
    def needs_none(self) -> bool:
        """Whether clients share their clusters, and these lie where the others have them."""
        return self.shared >= LEAST_SHARED and self.before < LEAST_AS_IS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offsets:
    """How far every client lies from the common zero, and whether to believe it."""

    by_client: Mapping[str, FloatArray]  # (n_features,) on the scale of the reports
    prediction: Prediction  # of the cells of the clients laid on each other
    is_credible: bool


def aligned(reports: Mapping[str, MicroClusters], offsets: Mapping[str, FloatArray]) -> dict[str, MicroClusters]:
    """The reports with the offset of each client taken out."""
    return {
        client: replace(each, means=each.means - offsets[client]) if client in offsets else each
        for client, each in reports.items()
    }


def find_offsets(reports: Mapping[str, MicroClusters], rng: np.random.Generator) -> Offsets | None:
    """The offsets that lay the clusters of the clients on each other best; None where nothing speaks for any.

    Parameters
    ----------
    reports : mapping of str to MicroClusters
        What each client sent.
    rng : Generator
        For the clustering of very many micro-clusters.
    """
    sent = {client: each for client, each in reports.items() if len(each)}
    if not FEWEST_CLIENTS <= len(sent) <= MOST_CLIENTS or not all(len(each.axes) for each in sent.values()):
        return None
    scales = inner_deviations(sent)
    scaled = {client: rescaled(each, 1 / scales) for client, each in sent.items()}
    modes = np.array([mode_of(each) for each in scaled.values()])
    shifts = modes - np.median(modes, axis=0)
    if np.sqrt((shifts**2).mean(axis=1)).max() < LEAST_SHIFT:
        return None
    labels = standing_clusters(aligned(scaled, dict(zip(scaled, shifts, strict=True))), rng)
    if labels is None:
        return None
    offsets, prediction = fitted_offsets(Cells.of(list(scaled.values()), labels))
    return Offsets(
        by_client=dict(zip(sent, offsets * scales, strict=True)),
        prediction=prediction,
        is_credible=prediction.speaks_for_offsets and not agree_as_they_are(scaled, rng),
    )


def agree_as_they_are(reports: Mapping[str, MicroClusters], rng: np.random.Generator) -> bool:
    """Whether clients share their clusters before anything is shifted."""
    labels = standing_clusters(reports, rng)
    return labels is not None and fitted_offsets(Cells.of(list(reports.values()), labels))[1].needs_none


def inner_deviations(reports: Mapping[str, MicroClusters]) -> FloatArray:
    """Standard deviation (n_features,) of each column inside a client, as the median client has it."""
    moments = [each.moments() for each in reports.values()]
    deviations: FloatArray = np.median([np.sqrt(scatters / count) for count, _, scatters in moments], axis=0)
    found: FloatArray = np.where(deviations > 0, deviations, 1.0)
    return found


def mode_of(micro: MicroClusters) -> FloatArray:
    """Where the rows of one client are densest: mean shift from the micro-cluster that all are nearest to."""
    weights = micro.counts.astype(float)
    distances = cdist(micro.means, micro.means)
    start = int((distances @ weights).argmin())
    mode: FloatArray = micro.means[start]
    radius = np.average(distances[start], weights=weights)
    for _ in range(MOST_STEPS):
        gaps = np.sqrt(((micro.means - mode) ** 2).sum(axis=1))
        near = gaps <= max(radius, gaps.min())
        moved = np.average(micro.means[near], axis=0, weights=weights[near])
        if np.allclose(moved, mode):
            break
        mode = moved
    return mode


def standing_clusters(reports: Mapping[str, MicroClusters], rng: np.random.Generator) -> IntArray | None:
    """The cluster of each micro-cluster, of those that stand apart most; None where too few do.

    It is the first answer of the choice of K, without the null model: it is not to be said how many there are.
    """
    parts = list(reports.values())
    micro = stacked(parts, parts[0].means.shape[1])
    found, labels = standing_with(micro, column_scales(micro, np.arange(len(micro))), rng)
    if found is not None and found.certainty >= WEIGHING:
        found, labels = standing_with(micro, column_scales(micro, labels), rng)
    return labels if found is not None else None


def standing_with(
    micro: MicroClusters, scales: FloatArray, rng: np.random.Generator
) -> tuple[Candidate | None, IntArray]:
    """The clustering whose clusters stand apart most, columns multiplied by `scales`, and its labels."""
    weighed = rescaled(micro, scales)
    coarse, belongs = put_together(weighed, rng)
    shapes = Shapes(coarse, weighed.covariance_inside())
    ks = grid(min(MOST_CLUSTERS, len(coarse)), every=EVERY_K, step=STEP)
    labels = labelings(coarse, ks, (WARD, AVERAGE, CONDENSED))
    plain = {
        key: Candidate(hierarchy=key[0], n_clusters=key[1], silhouette=0.0, separation=0.0, gap=0.0) for key in labels
    }
    best = most_apart(with_apart(plain[key], shapes, own, belongs) for key, own in labels.items())
    if best is None:
        return None, np.zeros(len(micro), dtype=np.int64)
    return best, labels[best.hierarchy, best.n_clusters][belongs]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Rows and mean of every client in every cluster."""

    rows: FloatArray  # (n_clients, k)
    means: FloatArray  # (n_clients, k, n_features); 0 where there are no rows
    deviations: FloatArray  # (k, n_features) of the rows of a cluster about the mean of their cell

    @classmethod
    def of(cls, parts: Sequence[MicroClusters], labels: IntArray) -> Self:
        k, d = int(labels.max()) + 1, parts[0].means.shape[1]
        rows, sums = np.zeros((len(parts), k)), np.zeros((len(parts), k, d))
        client = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
        counts = np.concatenate([each.counts for each in parts]).astype(float)
        places = np.concatenate([each.means for each in parts])
        np.add.at(rows, (client, labels), counts)
        np.add.at(sums, (client, labels), counts[:, None] * places)
        means = sums / np.maximum(rows, 1)[..., None]
        inside = np.array([each.spread / each.counts.sum() for each in parts])
        squares = rows.T @ inside
        np.add.at(squares, labels, counts[:, None] * (places - means[client, labels]) ** 2)
        deviations = np.sqrt(squares / np.maximum(rows.sum(axis=0), 1)[:, None])
        return cls(rows=rows, means=means, deviations=np.where(deviations > 0, deviations, 1.0))

    @property
    def is_shared(self) -> BoolArray:
        """Clusters (k,) that several clients hold."""
        held: BoolArray = (self.rows > 0).sum(axis=0) > 1
        return held

    @property
    def weights(self) -> FloatArray:
        """Rows of the cells of shared clusters, none more than the median one: no cell is to dominate."""
        rows = self.rows * self.is_shared
        return np.minimum(rows, np.median(rows[rows > 0])) if rows.any() else rows


def fitted_offsets(cells: Cells) -> tuple[FloatArray, Prediction]:
    """Offsets (n_clients, n_features) of the clients, and how well cells are predicted without and with them."""
    weights, means = cells.weights, cells.means
    offsets, errors, left = additive_fit(weights, means)
    is_tested = (left > ALONE) & (weights > 0) & ((weights > 0).sum(axis=1) > 1)[:, None]
    without, with_them, relative = (
        np.sqrt((each[is_tested] ** 2).mean(axis=1))
        for each in (errors_by_cluster(weights, means), errors, errors / cells.deviations)
    )
    is_better = (with_them <= HALVED * without) | (with_them <= CLOSE)
    return offsets, Prediction(
        before=middle(without),
        after=middle(with_them),
        relative=middle(relative),
        testable=float(is_tested.any(axis=1).mean()),
        better=float(is_better.mean()) if len(is_better) else 0.0,
        shared=float((cells.rows * cells.is_shared).sum() / cells.rows.sum()),
    )


def middle(values: FloatArray) -> float:
    """The median; 0 of no values."""
    return float(np.median(values)) if len(values) else 0.0


def errors_by_cluster(weights: FloatArray, means: FloatArray) -> FloatArray:
    """How far the mean of each cell lies from that of the other cells of its cluster."""
    total = weights.sum(axis=0)
    sums = (weights[..., None] * means).sum(axis=0)
    others = (sums - weights[..., None] * means) / np.maximum(total - weights, ALONE)[..., None]
    errors: FloatArray = means - others
    return errors


def additive_fit(weights: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Least squares of mean = cluster + offset over the cells.

    Parameters
    ----------
    weights : array (n_clients, k)
        Of the cells.
    means : array (n_clients, k, n_features)
        Of the cells.

    Returns
    -------
    tuple of array (n_clients, n_features), array (n_clients, k, n_features) and array (n_clients, k)
        The offsets, which average to 0 over clients that share clusters; the error of each cell as the others predict
        it; and the part of each cell that they do predict, 0 of one that they say nothing about.
    """
    by_client = np.maximum(weights.sum(axis=1), ALONE)
    share = weights / by_client[:, None]
    # The clients are eliminated first; what is left are the equations of the clusters.
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=0)) - weights.T @ share, hermitian=True)
    sums = weights[..., None] * means
    clusters = np.tensordot(inverse, sums.sum(axis=0) - np.tensordot(share, sums.sum(axis=1), (0, 0)), 1)
    offsets = (sums.sum(axis=1) - weights @ clusters) / by_client[:, None]
    through = share @ inverse
    spread = np.diagonal(inverse) - 2 * through + (1 / by_client + (through * share).sum(axis=1))[:, None]
    left = np.where(weights > 0, 1 - weights * spread, 0.0)  # 1 less the leverage
    errors = (means - clusters - offsets[:, None]) / np.maximum(left, ALONE)[..., None]
    return without_common_part(offsets, weights), errors, left


def without_common_part(offsets: FloatArray, weights: FloatArray) -> FloatArray:
    """Offsets less their mean over the clients that clusters connect: only differences between these are known."""
    n, k = weights.shape
    at = np.nonzero(weights)
    graph = csr_array((np.ones(len(at[0])), (at[0], n + at[1])), shape=(n + k, n + k))
    from scipy.sparse.csgraph import connected_components  # with the solvers of linear systems, which it does not need

    together = connected_components(graph, directed=False)[1][:n]
    rows = weights.sum(axis=1)
    found = np.zeros_like(offsets)
    for group in np.unique(together[rows > 0]):
        own = (together == group) & (rows > 0)
        found[own] = offsets[own] - np.average(offsets[own], axis=0, weights=rows[own])
    return found


def site_effects(
    found: Mapping[str, IntArray], as_aligned: Mapping[str, IntArray], rows: Mapping[str, IntArray]
) -> tuple[int, ...]:
    """Clusters of one client alone that are clusters of others, too, once the clients are aligned.

    Parameters
    ----------
    found : mapping of str to array (n_micro_clusters,)
        The cluster of each micro-cluster, by client.
    as_aligned : mapping of str to array (n_micro_clusters,)
        The same once the clients are aligned.
    rows : mapping of str to array (n_micro_clusters,)
        The rows of each micro-cluster.
    """
    effects = []
    for cluster in np.unique(np.concatenate(list(found.values()))).tolist():
        holders = [client for client, own in found.items() if (own == cluster).any()]
        if len(holders) > 1:
            continue
        alone = holders[0]
        own = found[alone] == cluster
        elsewhere = np.unique(np.concatenate([groups for client, groups in as_aligned.items() if client != alone]))
        is_elsewhere = np.isin(as_aligned[alone][own], elsewhere)
        if np.average(is_elsewhere, weights=rows[alone][own]) >= HALF:
            effects.append(cluster)
    return tuple(effects)
