"""Adaptive split-merge (ASM): how many components one client's table holds, with no labels and no count.

Algorithm 1 of the paper: start from one spherical Gaussian; split every component whose two halves, fitted by EM from
the leading axis, improve the component-term BIC and keep a minimum mass; repeat until nothing splits; then merge
components that overlap. Hyperparameters left open are chosen on held-out rows of the same table.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, product
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from koncord._progress import part, report
from koncord._random import RandomState, as_generator
from koncord._threads import one_thread
from koncord._validation import check_count, check_magnitude, check_number, check_option
from koncord.estimate.merging import merge
from koncord.estimate.mixture import SphericalMixtureMixin
from koncord.estimate.search import GridResult, best_configuration, n_held_out, split_rows
from koncord.kernels.centered import Node
from koncord.kernels.silhouette import HeldOut
from koncord.kernels.splitting import SMALLEST_VARIANCE, VARIANCE_FLOOR, SplitForest, mixture_of
from koncord.types import FloatArray, IntArray, SphericalMixture

# The paper's grid, in its order: a tie goes to the first. The last value of the product varies fastest.
ASM_GRID: Mapping[str, tuple[float, ...]] = {
    "min_mass": (20, 50, 80, 120, 200),
    "split_factor": (0.3, 0.5, 0.7, 1.0),
    "merge_factor": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
}
HOLDOUT = 0.2
# A table whose fitted rows have no room for this many components of the grid's smallest mass is too small for the grid.
# Then its rows divided by these are minimum masses too, down to two rows; the largest comes first, so ties split less.
# Few rows split by chance, so with these only a clear structure counts ("reasonable", Kaufman and Rousseeuw, 1990).
ROOM_FOR = 3
SMALL_TABLE_DIVISORS = (3, 6, 12, 24)
LEAST_MASS = 2.0
CLEAR_SILHOUETTE = 0.5


class ASM(SphericalMixtureMixin):
    """Adaptive split-merge estimator of the number of clusters in one table.

    Parameters
    ----------
    covariance : str, default "spherical"
        "spherical" (ASM-S: one variance a component) or "identity" (ASM-I: unit variance).
    split_factor : float, sequence of float or None, default None
        Delta, how far from the mean the two halves start, in standard deviations of the leading axis.
    min_mass : float, sequence of float or None, default None
        Tau, rows' worth of responsibility both halves must keep.
    merge_factor : float, sequence of float or None, default None
        Alpha, components merge while ``|mu_i - mu_j| <= alpha (sigma_i + sigma_j)``; 0 never merges.
    max_em_iter : int, default 15
        EM iterations of a split test; all of them are run.
    max_components : int, default 200
        Most components the split stage makes, reached in the order of its passes.
    random_state : int, numpy.random.Generator or None, default None
        Seed of the rows held out to choose what is left open.

    Attributes
    ----------
    n_components_ : int
        Number of components, k.
    means_ : ndarray of shape (k, d)
        Means of the components: those that EM fitted, and the size-weighted mean where components were merged. Phase 2
        is handed these.
    variances_ : ndarray of shape (k,)
        Their variances: those that EM fitted, and that of the pooled rows where components were merged.
    counts_ : ndarray of shape (k,)
        Rows with each label.
    weights_ : ndarray of shape (k,)
        Their shares of the rows.
    labels_ : ndarray of int
        Component of every training row: at each split a row went with the half that was more responsible for it. The
        mean of the rows with a label is near ``means_``, not equal to it.
    n_split_components_ : int
        Components before merging.
    config_ : dict
        The three values used.
    extra_masses_ : tuple of float
        Minimum masses tried beyond the paper's grid because the table is small; empty otherwise.
    results_ : tuple of GridResult
        In grid order, those that count; empty when nothing was left open.
    best_score_ : float
        Silhouette of the chosen configuration, NaN when there was none.

    Notes
    -----
    `split_factor`, `min_mass` and `merge_factor` take a number, which fixes them, a sequence of numbers to choose
    from, or None: chosen from the paper's grid (120 combinations). The choice fits every combination on 80 % of the
    rows, keeps the one with the largest silhouette of the other 20 % (ties: fewer components, then grid order), and
    fits it again on all rows. At most 3,000 held-out rows, drawn by the same seed, enter the silhouette. With
    ``min_mass=None``, a tied combination that finds another number of components on all rows is passed over for the
    first that does not; with masses given, the choice is the paper's to the letter.

    The smallest minimum mass of the paper's grid is 20, so a table of fewer than 75 rows could not be split into three
    components. With ``min_mass=None``, such a table is also tried with a third, a sixth, a twelfth and a twenty-fourth
    of its rows, and what they give counts if its silhouette is at least 0.5; ``extra_masses_`` says so.

    The EM of a split test starts from equal weights and the variance of the component, and makes all its iterations.
    The paper names scikit-learn's ``GaussianMixture(means_init=...)``, which starts weights and variances from a
    k-means and may stop earlier; ``reproduction/docs/reproduction.md`` has the figures of both. Of two halves, the one
    toward which the largest entry of the leading eigenvector is positive comes first, which matters where the first
    pair merges.

    In a split test the variance of a half is floored at 1e-6 of the variance of the component under test, so
    duplicate rows, constant columns and fewer rows than columns are all right.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> koncord.ASM(random_state=0).fit(X).n_components_
    3
    """

    def __init__(
        self,
        covariance: str = "spherical",
        split_factor: float | Sequence[float] | None = None,
        min_mass: float | Sequence[float] | None = None,
        merge_factor: float | Sequence[float] | None = None,
        max_em_iter: int = 15,
        max_components: int = 200,
        random_state: RandomState = None,
    ) -> None:
        self.covariance = covariance
        self.split_factor = split_factor
        self.min_mass = min_mass
        self.merge_factor = merge_factor
        self.max_em_iter = max_em_iter
        self.max_components = max_components
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = check_magnitude(validate_data(self, X, dtype=float), owner=self)
        grid = self._grid()
        extra = small_table_masses(len(X)) if self.min_mass is None else ()
        grid["min_mass"] += extra
        max_components = check_count("max_components", self.max_components, owner=self)
        covariance = check_option("covariance", self.covariance, ("spherical", "identity"), owner=self)
        n_em_iter = check_count("max_em_iter", self.max_em_iter, owner=self)
        grow = partial(SplitForest, X, is_spherical=covariance == "spherical", n_em_iter=n_em_iter)
        is_open = any(len(values) > 1 for values in grid.values())
        with one_thread():
            results: list[GridResult] = []
            if is_open:
                rng = as_generator(self.random_state)
                fit_rows, held_rows = split_rows(len(X), HOLDOUT, rng, owner=self)
                # In the order of the table: rows of a large one are read faster.
                results = score_grid(grow, np.sort(fit_rows), HeldOut(X, held_rows), grid, max_components)
                results = [each for each in results if each.params["min_mass"] not in extra or is_clear(each)]
                tied = tied_with_best(results) if self.min_mass is None else [best_configuration(results)]
            else:
                config = {name: values[0] for name, values in grid.items()}
                tied = [GridResult(params=config, n_components=0, score=float("nan"))]
            with part(0.8 if is_open else 0.0, 1.0, "fitting all rows"):
                best, leaves, mixture, group = first_that_holds(grow, tied, max_components)
        report(1.0)
        self.config_ = dict(best.params)
        self.best_score_ = best.score
        self.extra_masses_ = extra
        self.results_ = tuple(results)
        self.n_split_components_ = len(leaves)
        self.n_components_ = len(mixture)
        self.means_ = mixture.means
        self.counts_ = mixture.rows.counts
        self.weights_ = mixture.rows.counts / len(X)
        self.variances_ = floored(mixture)
        self.labels_ = np.empty(len(X), dtype=np.int64)
        for leaf, component in zip(leaves, group, strict=True):
            self.labels_[leaf.rows] = component
        return self

    def _grid(self) -> dict[str, tuple[float, ...]]:
        """The values to choose from, each checked; a fixed parameter has one."""
        grid = {}
        for name, paper in ASM_GRID.items():
            given = getattr(self, name)
            values: tuple[Any, ...]
            if given is None:
                values = paper
            elif isinstance(given, Real):
                values = (given,)
            elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) and len(given):
                values = tuple(given)
            else:
                raise TypeError(f"'{name}' of ASM must be a number, a sequence of numbers or None; got {given!r}.")
            grid[name] = tuple(
                check_number(name, value, owner=self, least=0, above=name == "split_factor") for value in values
            )
        return grid


def identity_asm(
    *,
    split_factor: float | None = None,
    min_mass: float | None = None,
    merge_factor: float | Sequence[float] | None = None,
    max_components: int = 200,
    random_state: RandomState = None,
) -> ASM:
    """ASM-I, for those who choose an estimator by its name."""
    return ASM(
        "identity",
        split_factor=split_factor,
        min_mass=min_mass,
        merge_factor=merge_factor,
        max_components=max_components,
        random_state=random_state,
    )


def small_table_masses(n: int) -> tuple[float, ...]:
    """Minimum masses for a table of `n` rows that is too small for the paper's grid; none for a larger one.

    >>> small_table_masses(60)
    (10.0, 5.0, 2.5)
    >>> small_table_masses(75)
    ()
    """
    smallest = min(ASM_GRID["min_mass"])
    if n - n_held_out(n, HOLDOUT) >= ROOM_FOR * smallest:
        return ()
    masses = (n / divisor for divisor in SMALL_TABLE_DIVISORS)
    return tuple(mass for mass in masses if LEAST_MASS <= mass < smallest)


def is_clear(candidate: GridResult) -> bool:
    return candidate.score >= CLEAR_SILHOUETTE


def score_grid(
    grow: Callable[..., SplitForest],
    fit_rows: IntArray,
    held_out: HeldOut,
    grid: Mapping[str, Sequence[float]],
    max_components: int,
) -> list[GridResult]:
    """Score every configuration, in grid order, with one tree a split factor and one cut of it a minimum mass.

    The lightest minimum mass comes first: it grows all of the tree that the others are cuts of, unless the cap on
    components stops it.
    """
    forest = grow(fit_rows, split_factors=grid["split_factor"])
    seen: dict[tuple[int, ...], dict[float, tuple[int, float]]] = {}
    scored: dict[tuple[float, ...], tuple[int, float]] = {}
    n_cuts = len(grid["min_mass"])
    for at, min_mass in enumerate(sorted(grid["min_mass"])):
        # The first cut is most of the work on a large table.
        start, stop = (0.0 if at == 0 else 0.6 + 0.2 * at / n_cuts), 0.6 + 0.2 * (at + 1) / n_cuts
        with part(start, stop, f"trying {len(grid['split_factor'])} split factors, minimum mass {min_mass:g}"):
            trees = forest.cut(min_mass, max_components)
        for split_factor, leaves in zip(grid["split_factor"], trees, strict=True):
            by_factor = seen.setdefault(tuple(map(id, leaves)), {})
            for merge_factor in grid["merge_factor"]:
                if merge_factor not in by_factor:
                    mixture, _ = merge(mixture_of(leaves), merge_factor)
                    by_factor[merge_factor] = len(mixture), held_out.score_nearest(mixture.means)
                scored[min_mass, split_factor, merge_factor] = by_factor[merge_factor]
    return [
        GridResult(params=dict(zip(grid, values, strict=True)), n_components=scored[values][0], score=scored[values][1])
        for values in product(*grid.values())
    ]


def tied_with_best(results: Sequence[GridResult]) -> list[GridResult]:
    """The best candidate and those after it in grid order that are as good and find as many components."""
    best = best_configuration(results)
    same = [each for each in results if (each.score, each.n_components) == (best.score, best.n_components)]
    return same or [best]


def first_that_holds(
    grow: Callable[..., SplitForest], tied: Sequence[GridResult], max_components: int
) -> tuple[GridResult, list[Node], SphericalMixture, IntArray]:
    """Fit all rows with the first candidate that finds as many components there as it did before; else with the first.

    Held-out rows cannot tell tied candidates apart. All rows can: one that merged its spurious halves by a hair on
    the fitted rows finds more of them here.
    """
    fits = (fit_all(grow, candidate, max_components) for candidate in tied)
    first = next(fits)
    return next((fit for fit in chain([first], fits) if len(fit[2]) == fit[0].n_components), first)


def fit_all(
    grow: Callable[..., SplitForest], candidate: GridResult, max_components: int
) -> tuple[GridResult, list[Node], SphericalMixture, IntArray]:
    config = candidate.params
    (leaves,) = grow(split_factors=[config["split_factor"]]).cut(config["min_mass"], max_components)
    return candidate, leaves, *merge(mixture_of(leaves), config["merge_factor"])


def floored(mixture: SphericalMixture) -> FloatArray:
    """Variances for densities: a component of identical rows gets a share of the table's own, never 0."""
    rows = mixture.rows
    total = rows.counts.sum()
    mean = rows.counts @ rows.means / total
    spread = rows.scatters.sum() + rows.counts @ ((rows.means - mean) ** 2).sum(axis=1)
    overall = spread / (total * rows.means.shape[1])
    return np.maximum(mixture.variances, VARIANCE_FLOOR * overall if overall > SMALLEST_VARIANCE else 1.0)
