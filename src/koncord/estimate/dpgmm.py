"""DP-GMM: a Dirichlet process mixture of spherical Gaussians, without its light components.

D. Blei and M. Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1 (2006), in the form
of scikit-learn's `BayesianGaussianMixture`: a truncated process is fitted, and a component that ends with less weight
than a threshold does not count.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.validation import validate_data

from koncord._progress import report
from koncord._random import RandomState, as_generator, draw_seed
from koncord._threads import one_thread
from koncord._validation import check_count, check_magnitude, check_number
from koncord.estimate.kmeans import unit_rows
from koncord.estimate.mixture import SphericalMixtureMixin
from koncord.estimate.search import LabelFreeSearch
from koncord.kernels.assign import nearest
from koncord.types import FloatArray, IntArray

# The paper's grid, in its order: a tie goes to the first. The last value of the product varies fastest.
DPGMM_GRID: Mapping[str, tuple[float, ...]] = {
    "concentration": (0.001, 0.01, 0.1, 1, 10, 100),
    "weight_threshold": (0.001, 0.01, 0.03, 0.1),
}


class DPGMM(SphericalMixtureMixin):
    """Dirichlet process mixture as an estimator of the number of clusters in one table.

    Parameters
    ----------
    concentration : float, default 0.01
        Of the process; larger spreads the rows over more components.
    weight_threshold : float, default 0.01
        Components with a smaller weight are removed; if all are, the heaviest one stays.
    truncation : int, default 200
        Components the mixture is fitted with, or the number of rows where that is smaller.
    max_iter : int, default 200
        Variational iterations at most.
    random_state : int, numpy.random.Generator or None, default None
        Seed of the k-means start.

    Attributes
    ----------
    n_components_ : int
        Components that are left.
    means_ : ndarray of shape (k, d)
        Their means.
    variances_ : ndarray of shape (k,)
        Their variances.
    weights_ : ndarray of shape (k,)
        Their weights, rescaled to sum to one.
    labels_ : ndarray of int
        Most probable component of every training row; rows of a removed one go to the nearest mean that is left.
    counts_ : ndarray of shape (k,)
        Rows with each label, 0 for a component that is the most probable one of no row.
    converged_ : bool
        Whether the iterations converged.
    n_iter_ : int
        Variational iterations made, 0 where all rows are one point.

    Notes
    -----
    The table is centred and divided by one number for the fit, so its units do not matter. A mixture that has not
    converged after `max_iter` iterations is used as it is; ``converged_`` says so, without a warning.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> koncord.DPGMM(random_state=0).fit(X).n_components_
    3
    """

    def __init__(
        self,
        concentration: float = 0.01,
        weight_threshold: float = 0.01,
        truncation: int = 200,
        max_iter: int = 200,
        random_state: RandomState = None,
    ) -> None:
        self.concentration = concentration
        self.weight_threshold = weight_threshold
        self.truncation = truncation
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Find the clusters of a table X (n_samples, n_features); `y` is ignored."""
        X = check_magnitude(validate_data(self, X, dtype=float), owner=self)
        self._prune(X, self._mixture(X))
        report(1.0)
        return self

    def fit_each(self, X: FloatArray, settings: Iterable[Mapping[str, Any]]) -> Iterator[Self]:
        """Fitted clones of this estimator, one for each of `settings`, in order.

        The threshold only prunes, so settings that differ in nothing else share one mixture: the 24 of ``GRID`` are 6
        fits.
        """
        mixtures: dict[tuple[Any, ...], Mixture] = {}
        for changes in settings:
            fitted = clone(self).set_params(**changes)
            table = check_magnitude(validate_data(fitted, X, dtype=float), owner=fitted)
            shared = tuple(value for name, value in fitted.get_params().items() if name != "weight_threshold")
            if shared not in mixtures:
                mixtures[shared] = fitted._mixture(table)
            fitted._prune(table, mixtures[shared])
            yield fitted

    def _mixture(self, X: FloatArray) -> "Mixture":
        return fit_mixture(
            X,
            concentration=check_number("concentration", self.concentration, owner=self, least=0, above=True),
            truncation=check_count("truncation", self.truncation, owner=self),
            max_iter=check_count("max_iter", self.max_iter, owner=self),
            rng=as_generator(self.random_state),
        )

    def _prune(self, X: FloatArray, mixture: "Mixture") -> None:
        threshold = check_number("weight_threshold", self.weight_threshold, owner=self, least=0, above=True)
        kept = heavy_components(mixture.weights, threshold)
        self.n_components_ = len(kept)
        self.means_ = mixture.means[kept]
        self.variances_ = mixture.variances[kept]
        self.weights_ = mixture.weights[kept] / mixture.weights[kept].sum()
        self.labels_ = relabel(X, mixture.labels, kept, self.means_)
        self.counts_ = np.bincount(self.labels_, minlength=len(kept))
        self.converged_ = mixture.is_converged
        self.n_iter_ = mixture.n_iter


def searched_dpgmm(*, max_components: int | None = None, random_state: RandomState = None) -> LabelFreeSearch:
    """DP-GMM whose parameters are chosen from the paper's grid, for those who choose an estimator by its name."""
    truncated = DPGMM() if max_components is None else DPGMM(truncation=max_components)
    return LabelFreeSearch(truncated, DPGMM_GRID, random_state=random_state)


class Mixture(NamedTuple):
    """All components of a fitted process, in the units of the table."""

    means: FloatArray  # (truncation, n_features)
    variances: FloatArray  # (truncation,)
    weights: FloatArray  # (truncation,)
    labels: IntArray  # (n_samples,) most probable component
    is_converged: bool
    n_iter: int


def fit_mixture(
    X: FloatArray, *, concentration: float, truncation: int, max_iter: int, rng: np.random.Generator
) -> Mixture:
    """The truncated process on `X`; a table that is one point is one component, without a fit."""
    table = unit_rows(X)
    if table.scale == 0:
        return Mixture(
            means=table.origin[None],
            variances=np.ones(1),
            weights=np.ones(1),
            labels=np.zeros(len(X), dtype=np.int64),
            is_converged=True,
            n_iter=0,
        )
    process = BayesianGaussianMixture(
        n_components=min(truncation, len(X)),
        covariance_type="spherical",
        weight_concentration_prior=concentration,
        max_iter=max_iter,
        random_state=draw_seed(rng),
    )
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = process.fit_predict(table.rows)
    return Mixture(
        means=table.origin + table.scale * process.means_,
        variances=table.scale**2 * process.covariances_,
        weights=process.weights_,
        labels=labels,
        is_converged=bool(process.converged_),
        n_iter=int(process.n_iter_),
    )


def heavy_components(weights: FloatArray, threshold: float) -> IntArray:
    """Indices of the components that weigh at least `threshold`, or of the heaviest one where none does."""
    heavy = np.flatnonzero(weights >= threshold)
    return heavy if len(heavy) else np.array([weights.argmax()])


def relabel(X: FloatArray, labels: IntArray, kept: IntArray, means: FloatArray) -> IntArray:
    """Positions in `kept` of the labels; a row whose component is not kept gets the nearest of `means`."""
    relabelled = np.searchsorted(kept, labels)
    is_lost = ~np.isin(labels, kept)
    relabelled[is_lost] = nearest(X[is_lost], means)
    return relabelled
