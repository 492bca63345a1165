"""ASM-S under other readings of what the paper's text leaves open.

A method named ``asm-s@NAME`` is ASM-S with one thing read otherwise than `koncord.ASM` reads it:

- ``sklearn``: the EM of a split test is `sklearn.mixture.GaussianMixture` with the two means given and the seed of the
  run: weights and variances start from a k-means of its own, and it may stop at a tolerance of 0.001;
- ``sklearn-0``, ``sklearn-42``: as ``sklearn``, with the seed 0 or 42 in every fit of every run, and with the sign that
  LAPACK gives the leading eigenvector;
- ``lapack``, ``reversed``: the leading eigenvector has the sign that LAPACK gives it, or the opposite of koncord's, so
  that other children come first;
- ``closest``: of the pairs that may merge the one with the closest means is merged, not the first;
- ``predict``: held-out rows go to the most probable component of the mixture, not to the nearest mean;
- ``train-scale``: columns are standardised by the training rows, after the split, not by the whole table;
- ``drawn``: rows to choose on are held out by scikit-learn's `train_test_split`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import validate_data

from koncord._random import RandomState, as_generator
from koncord._threads import one_thread
from koncord.estimate.asm import ASM, ASM_GRID, HOLDOUT
from koncord.estimate.merging import merge, pool
from koncord.estimate.mixture import joint_log_density
from koncord.estimate.search import GridResult, best_configuration, split_rows
from koncord.kernels.assign import nearest
from koncord.kernels.centered import CenteredRows, Node
from koncord.kernels.silhouette import HeldOut
from koncord.kernels.splitting import SplitForest, batches, divide_where_bic_improves, mixture_of
from koncord.types import Components, FloatArray, IntArray, SphericalMixture

BASE = "asm-s"
# The minimum mass whose split stage has as many components as the paper has without merging.
PAPER_MASSES: Mapping[str, int] = {"waveform": 80, "abalone": 120, "frog_species": 200, "frog_genus": 200}
N_EM_ITER, MAX_COMPONENTS = ASM().max_em_iter, ASM().max_components


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How ASM-S reads what is left open; the defaults are those of `koncord.ASM`."""

    says: str = ""  # for a reader of the page
    start: str = "parent"  # of EM: "parent" or "sklearn"
    start_seed: int | None = None  # of scikit-learn's start; None: the seed of the run
    sign: str = "largest"  # of the leading eigenvector: "largest", "lapack" or "reversed"
    pairs: str = "first"  # that merge: "first" or "closest"
    scored_by: str = "nearest"  # held-out rows: "nearest" or "predict"
    scaled_by: str = "all"  # rows whose moments standardise: "all" or "train"
    held_out: str = "permutation"  # or "train_test_split"


READINGS: Mapping[str, Reading] = {
    "sklearn": Reading(start="sklearn", says="the EM of a split is scikit-learn's `GaussianMixture(means_init=...)`"),
    **{
        f"sklearn-{seed}": Reading(
            start="sklearn",
            start_seed=seed,
            sign="lapack",
            says=f"as sklearn, with `random_state={seed}` in every run and LAPACK's sign of the leading eigenvector",
        )
        for seed in (0, 42)
    },
    "lapack": Reading(sign="lapack", says="the leading eigenvector has LAPACK's sign"),
    "reversed": Reading(sign="reversed", says="the leading eigenvector has the sign opposite to koncord's"),
    "closest": Reading(pairs="closest", says="the closest pair merges, not the first"),
    "predict": Reading(scored_by="predict", says="silhouette by `predict` of the mixture"),
    "train-scale": Reading(scaled_by="train", says="standardised after the split"),
    "drawn": Reading(held_out="train_test_split", says="hold-out drawn by `train_test_split`"),
}
# That of the reproduction: the EM that the paper names, with the seed and sign that bring most numbers to its own.
CHOSEN = "sklearn-42"
READING_METHODS = tuple(f"{BASE}@{name}" for name in READINGS)


def reading_of(method: str) -> Reading:
    """The reading of a method; that of koncord for ``asm-s``."""
    _, _, name = method.partition("@")
    return READINGS[name] if name else Reading()


def base_of(method: str) -> str:
    """The method that is read otherwise.

    >>> base_of("asm-s@lapack"), base_of("dpgmm")
    ('asm-s', 'dpgmm')
    """
    return method.partition("@")[0]


# --- split ---


class ReadForest(SplitForest):
    """Split trees under a reading.

    Parameters
    ----------
    X : array (n_samples, n_features)
    rows : ndarray of int
        Of the table, to model.
    split_factors : sequence of float
        Delta of each tree.
    reading : Reading
        Its `start` and `sign` count.
    seed : int
        Of scikit-learn's k-means, the same in every test.
    """

    def __init__(
        self, X: FloatArray, rows: IntArray, *, split_factors: Sequence[float], reading: Reading, seed: int
    ) -> None:
        super().__init__(X, rows, split_factors=split_factors, is_spherical=True, n_em_iter=N_EM_ITER)
        self.reading, self.seed = reading, seed

    def _test(self, nodes: Sequence[Node], min_mass: float) -> None:
        if self.reading.start == "parent" and self.reading.sign == "largest":
            super()._test(nodes, min_mass)
            return
        untested = self._untested(nodes, min_mass)
        kind = {"largest": CenteredRows, "lapack": LapackRows, "reversed": ReversedRows}[self.reading.sign]
        if self.reading.start == "sklearn":
            seed = self.seed if self.reading.start_seed is None else self.reading.start_seed
            for node in untested:
                divide_by_sklearn(self.X, node, kind(self.X, [node], len(node.rows)).leading_axes()[0], seed)
            return
        for batch in batches(untested, self.block_size):
            table = kind(self.X, batch, self.block_size)
            divide_where_bic_improves(table, is_spherical=True, n_em_iter=self.n_em_iter)


class LapackRows(CenteredRows):
    """Rows of split tests whose leading eigenvectors have the sign that LAPACK gives them."""

    def leading_axes(self) -> FloatArray:
        return np.array([lapack_axis(self.X[node.rows]) for node in self.nodes])


class ReversedRows(CenteredRows):
    """Rows of split tests whose leading eigenvectors have the opposite sign."""

    def leading_axes(self) -> FloatArray:
        return -super().leading_axes()


def lapack_axis(rows: FloatArray) -> FloatArray:
    """``sqrt(lambda_1) v_1`` as NumPy returns it."""
    values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, bias=True))
    axis: FloatArray = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    return axis


def divide_by_sklearn(X: FloatArray, node: Node, axis: FloatArray, seed: int) -> None:
    """The split test of one node with scikit-learn's EM; the BIC and the minimum mass are the paper's.

    `axis` is ``sqrt(lambda_1) v_1`` of its rows.
    """
    rows = X[node.rows]
    n, d = rows.shape
    axis = node.split_factor * axis
    mixture = GaussianMixture(
        2,
        covariance_type="spherical",
        means_init=np.array([node.mean + axis, node.mean - axis]),
        max_iter=N_EM_ITER,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(rows)
    shares = mixture.predict_proba(rows)
    densities = joint_log_density(rows, mixture.means_, mixture.covariances_, np.ones(2))
    variance = node.scatter / (n * d)
    one = -0.5 * (n * d * np.log(2 * np.pi * variance) + n * d)
    if float((shares * densities).sum()) - one <= (d + 2) / 2 * np.log(n):
        return
    is_first = shares[:, 0] >= shares[:, 1]
    if is_first.all() or not is_first.any():
        return
    node.rows[:] = np.concatenate([node.rows[is_first], node.rows[~is_first]])
    n_first = int(is_first.sum())
    children = []
    for at, part in enumerate((node.rows[:n_first], node.rows[n_first:])):
        mean = X[part].mean(axis=0)
        children.append(
            Node(
                rows=part,
                mean=mean,
                scatter=float(((X[part] - mean) ** 2).sum()),
                fitted_mean=mixture.means_[at],
                fitted_variance=float(mixture.covariances_[at]),
                split_factor=node.split_factor,
            )
        )
    node.children = (children[0], children[1])
    node.child_mass = float(shares.sum(axis=0).min())


# --- merge ---


def merged(reading: Reading, mixture: SphericalMixture, merge_factor: float) -> SphericalMixture:
    if reading.pairs == "first":
        return merge(mixture, merge_factor)[0]
    return merge_closest(mixture, merge_factor)


def merge_closest(mixture: SphericalMixture, merge_factor: float) -> SphericalMixture:
    """As `koncord.estimate.merging.merge`, but of the pairs that may merge the one with the closest means does."""
    counts = mixture.rows.counts.astype(float)
    row_means, scatters = mixture.rows.means.copy(), mixture.rows.scatters.copy()
    means, variances = mixture.means.copy(), mixture.variances.copy()
    d = means.shape[1]
    alive = list(range(len(means)))
    gaps = cdist(means, means)
    while len(alive) > 1:
        sigmas = np.sqrt(variances[alive])
        apart = np.where(gaps[np.ix_(alive, alive)] <= merge_factor * (sigmas[:, None] + sigmas), 0.0, np.inf)
        apart += gaps[np.ix_(alive, alive)]
        apart[np.tril_indices(len(alive))] = np.inf
        at, other = divmod(int(apart.argmin()), len(alive))
        if not merge_factor or not np.isfinite(apart[at, other]):
            break
        i, j = alive[at], alive[other]
        means[i] += counts[j] / (counts[i] + counts[j]) * (means[j] - means[i])
        pool(counts, row_means, scatters, i, j)
        variances[i] = scatters[i] / (counts[i] * d)
        alive.remove(j)
        gaps[i] = gaps[:, i] = cdist(means[[i]], means)[0]
    rows = Components(counts=counts[alive].astype(np.int64), means=row_means[alive], scatters=scatters[alive])
    return SphericalMixture(means=means[alive], variances=variances[alive], rows=rows)


# --- choice ---


def score_readings(
    reading: Reading,
    X: FloatArray,
    fit_rows: IntArray,
    held_rows: IntArray,
    grid: Mapping[str, Sequence[float]],
    seed: int,
) -> list[GridResult]:
    """Every configuration in grid order, fitted on some rows and scored on the others."""
    forest = ReadForest(X, fit_rows, split_factors=grid["split_factor"], reading=reading, seed=seed)
    held_out = HeldOut(X, held_rows)
    label = labels_by_predict if reading.scored_by == "predict" else labels_by_means
    scored: dict[tuple[float, ...], tuple[int, float]] = {}
    for min_mass in sorted(grid["min_mass"]):
        for split_factor, leaves in zip(grid["split_factor"], forest.cut(min_mass, MAX_COMPONENTS), strict=True):
            for merge_factor in grid["merge_factor"]:
                mixture = merged(reading, mixture_of(leaves), merge_factor)
                score = held_out.score(label(held_out.X, mixture))
                scored[min_mass, split_factor, merge_factor] = len(mixture), score
    return [
        GridResult(params=dict(zip(grid, values, strict=True)), n_components=scored[values][0], score=scored[values][1])
        for values in product(*grid.values())
    ]


def labels_by_means(X: FloatArray, mixture: SphericalMixture) -> IntArray:
    return nearest(X, mixture.means)


def labels_by_predict(X: FloatArray, mixture: SphericalMixture) -> IntArray:
    weights = mixture.rows.counts / mixture.rows.counts.sum()
    labels: IntArray = joint_log_density(X, mixture.means, mixture.variances, weights).argmax(axis=1)
    return labels


def hold_out(reading: Reading, n: int, seed: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Rows of a client to fit and rows to score on."""
    if reading.held_out == "train_test_split":
        return parts_by_sklearn(np.arange(n), seed)
    return split_rows(n, HOLDOUT, rng, owner="reproduce")


def pooled_hold_out(reading: Reading, n: int, seed: int, *, most: int) -> tuple[IntArray, IntArray]:
    """Rows to fit and rows to score on, of at most `most` of `n` rows.

    A permutation by NumPy's `RandomState`, whose first fifth is held out: of 32 ways that were tried it alone lets
    DP-GMM pick the configurations whose figures are the paper's to the digit, on the tabular sets.
    """
    rng = np.random.RandomState(seed)
    rows = rng.choice(n, most, replace=False) if n > most else np.arange(n)
    if reading.held_out == "train_test_split":
        return parts_by_sklearn(rows, seed)
    rows = rows[rng.permutation(len(rows))]
    n_held = int(HOLDOUT * len(rows))
    return rows[n_held:], rows[:n_held]


def parts_by_sklearn(rows: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    fit_rows, held_rows = train_test_split(rows, test_size=HOLDOUT, random_state=seed)
    return fit_rows, held_rows


class ReadASM(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """ASM-S under a reading, with its configuration chosen from the paper's grid or given.

    Parameters
    ----------
    reading : Reading or None, default None
        None: that of `koncord.ASM`.
    min_mass, split_factor, merge_factor : float, sequence of float or None, default None
        As in `koncord.ASM`.
    seed : int, default 0
        Of what scikit-learn draws.
    random_state : int, numpy.random.Generator or None, default None
        Of the hold-out of koncord.

    Attributes
    ----------
    n_components_ : int
        Number of components, k.
    means_ : ndarray of shape (k, d)
        Their means.
    labels_ : ndarray of int
        The nearest mean of every row.
    config_ : dict
        The three values used.
    """

    def __init__(
        self,
        reading: Reading | None = None,
        min_mass: float | Sequence[float] | None = None,
        split_factor: float | Sequence[float] | None = None,
        merge_factor: float | Sequence[float] | None = None,
        seed: int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.reading = reading
        self.min_mass = min_mass
        self.split_factor = split_factor
        self.merge_factor = merge_factor
        self.seed = seed
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = validate_data(self, X, dtype=float)
        reading = Reading() if self.reading is None else self.reading
        grid = {name: values_of(getattr(self, name), paper) for name, paper in ASM_GRID.items()}
        config: Mapping[str, Any] = {name: values[0] for name, values in grid.items()}
        with one_thread():
            if any(len(values) > 1 for values in grid.values()):
                rng = as_generator(self.random_state)
                fit_rows, held_rows = hold_out(reading, len(X), self.seed, rng)
                results = score_readings(reading, X, fit_rows, held_rows, grid, self.seed)
                config = best_configuration(results).params
            leaves = leaves_of(reading, X, np.arange(len(X)), config, self.seed)
        mixture = merged(reading, mixture_of(leaves), config["merge_factor"])
        self.config_ = dict(config)
        self.n_components_ = len(mixture)
        self.means_ = mixture.means
        self.labels_ = nearest(X, mixture.means)
        return self

    def predict(self, X: FloatArray) -> IntArray:
        """Index of the nearest component mean of every row."""
        return nearest(validate_data(self, X, dtype=float, reset=False), self.means_)


def values_of(given: float | Sequence[float] | None, paper: tuple[float, ...]) -> tuple[float, ...]:
    if given is None:
        return paper
    return tuple(given) if isinstance(given, Sequence) else (given,)


def leaves_of(reading: Reading, X: FloatArray, rows: IntArray, config: Mapping[str, Any], seed: int) -> list[Node]:
    """Components before merging."""
    forest = ReadForest(X, rows, split_factors=[config["split_factor"]], reading=reading, seed=seed)
    (leaves,) = forest.cut(config["min_mass"], MAX_COMPONENTS)
    return leaves
