"""Label-free choice of hyperparameters: fit on most of the rows, take the silhouette of the rest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isnan
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from koncord._progress import part, report
from koncord._random import RandomState, as_generator, draw_seed, seeded
from koncord._threads import one_thread
from koncord._validation import check_number
from koncord.estimate.base import labels_of, n_components_of
from koncord.kernels.silhouette import HeldOut
from koncord.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class GridResult:
    """One configuration of the grid and how it did; `score` is NaN where the held-out rows have no silhouette."""

    params: Mapping[str, Any] = field(hash=False)
    n_components: int
    score: float


class LabelFreeSearch(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Choose an estimator's parameters without labels, then fit it on all rows.

    Every combination of the grid is fitted on a random part of the rows and scored by the mean silhouette of the
    held-out rest under its `predict`. Ties go to the smaller number of components, then to the order of the grid. A
    combination that gives the held-out rows one label has no silhouette and loses to any that has one.

    Parameters
    ----------
    estimator : object
        Clusterer with `fit` and `predict`.
    param_grid : mapping of str to sequence of object
        Mapping of parameter name to the values to try, in order; the last name varies fastest.
    holdout : float, default 0.2
        Share of the rows held out.
    random_state : int, numpy.random.Generator or None, default None
        Seed of the hold-out; also given to an estimator whose own `random_state` is None.

    Attributes
    ----------
    best_params_ : dict
        The chosen values.
    best_score_ : float
        Their silhouette.
    best_estimator_ : estimator
        Fitted with them on all rows.
    results_ : tuple of Candidate
        In grid order.
    n_components_ : int
        Of the best estimator.
    labels_ : ndarray of int
        Of the best estimator.

    Examples
    --------
    >>> import numpy as np, koncord
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1, (80, 2)) for m in (0, 8, 16)])
    >>> search = koncord.LabelFreeSearch(koncord.GMeans(), {"significance": [1e-4, 0.05]}, random_state=0).fit(X)
    >>> search.n_components_
    3
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]],
        *,
        holdout: float = 0.2,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.holdout = holdout
        self.random_state = random_state

    def fit(self, X: FloatArray, y: object = None) -> Self:
        """Score every combination on held-out rows of X (n_samples, n_features) and refit the best; `y` is ignored."""
        X = validate_data(self, X, dtype=float)
        if not hasattr(self.estimator, "predict"):
            raise TypeError(
                f"'estimator' of LabelFreeSearch must have predict; {type(self.estimator).__name__} has none, so "
                "held-out rows get no labels."
            )
        grid = combinations(self.param_grid)
        rng = as_generator(self.random_state)
        fit_rows, held_rows = split_rows(len(X), self.holdout, rng, owner=self)
        seed = draw_seed(rng)
        held_out = HeldOut(X, held_rows)
        results = []
        with one_thread():
            fits = fit_each(seeded(clone(self.estimator), seed), X[fit_rows], grid)
            for at, params in enumerate(grid):
                with part(at / (len(grid) + 1), (at + 1) / (len(grid) + 1), f"candidate {at + 1} of {len(grid)}"):
                    fitted = next(fits)
                score = held_out.score(fitted.predict(held_out.X)) if len(held_rows) else float("nan")
                n_found = n_components_of(fitted, X[fit_rows])
                results.append(GridResult(params=params, n_components=n_found, score=score))
            best = best_configuration(results)
            self.best_estimator_ = seeded(clone(self.estimator), seed).set_params(**best.params).fit(X)
        report(1.0)
        self.results_ = tuple(results)
        self.best_params_ = dict(best.params)
        self.best_score_ = best.score
        self.n_components_ = n_components_of(self.best_estimator_, X)
        self.labels_ = labels_of(self.best_estimator_, X)
        return self

    def predict(self, X: FloatArray) -> IntArray:
        """Labels of the rows of X (n_samples, n_features) by the best estimator."""
        check_is_fitted(self)
        labels: IntArray = self.best_estimator_.predict(validate_data(self, X, dtype=float, reset=False))
        return labels


def fit_each(estimator: Any, X: FloatArray, grid: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """A fit of each combination, in order; by the estimator's own `fit_each` if it can share work between them."""
    if hasattr(estimator, "fit_each"):
        yield from estimator.fit_each(X, grid)
    else:
        for params in grid:
            yield clone(estimator).set_params(**params).fit(X)


def combinations(param_grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid, in the order of its names, the last one fastest."""
    for name, values in param_grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or len(values) == 0:
            raise ValueError(
                f"'param_grid' of LabelFreeSearch must map {name!r} to a non-empty list of values; got {values!r}."
            )
    return [dict(zip(param_grid, values, strict=True)) for values in product(*param_grid.values())]


def split_rows(n: int, holdout: float, rng: np.random.Generator, *, owner: object) -> tuple[IntArray, IntArray]:
    """Rows to fit and rows to hold out, both in random order; at least one row is always fitted."""
    share = check_number("holdout", holdout, owner=owner, least=0, above=True)
    if share >= 1:
        raise ValueError(f"'holdout' of {type(owner).__name__} must be below 1; got {holdout!r}.")
    order = rng.permutation(n)
    n_held = n_held_out(n, share)
    return order[n_held:], order[:n_held]


def n_held_out(n: int, share: float) -> int:
    """How many of `n` rows are held out."""
    return min(round(share * n), n - 1)


def best_configuration(results: Sequence[GridResult]) -> GridResult:
    """Largest silhouette; ties to the smaller count, then to grid order. No silhouette loses to any."""

    def rank(candidate: GridResult) -> tuple[bool, float, int]:
        missing = isnan(candidate.score)
        return missing, 0.0 if missing else -candidate.score, candidate.n_components

    return min(results, key=rank)
