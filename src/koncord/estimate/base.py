"""What a local estimator is: any clusterer in the manner of scikit-learn, read by one set of rules.

A local estimator has `fit(X)`, `get_params` and `set_params`, and after `fit` one of

1. `n_components_` and `means_`, one row a component, as the estimators of koncord have;
2. `labels_`, or else `predict`: the component of every row. A negative label is noise and no component, and a component
   without rows does not count. The means are the `means_` or `cluster_centers_` of those components, or else the means
   of their rows.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags

from koncord._random import seeded
from koncord._validation import owner_name
from koncord.errors import KoncordError
from koncord.types import FloatArray, IntArray, LocalEstimate

REQUIRED = ("fit", "get_params", "set_params")
SUPERVISED = ("classifier", "regressor")


@runtime_checkable
class LocalEstimator(Protocol):
    """What phase 1 asks of an estimator before it is fitted; what it must have afterwards is said above."""

    def fit(self, X: FloatArray) -> Any: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Adapted:
    """A local estimator of any kind as phase 1 uses it."""

    estimator: LocalEstimator

    def estimate(self, X: FloatArray, seed: int) -> LocalEstimate:
        """The components of X (n, d), by a clone that gets `seed` if it takes a random state and has none."""
        fitted = seeded(clone(self.estimator), seed).fit(X)
        return local_estimate(fitted, X)


def adapted(estimator: Any, *, owner: object = "phase 1") -> Adapted:
    """`estimator` as phase 1 uses it; `TypeError` for what is no local estimator.

    >>> from sklearn.mixture import GaussianMixture
    >>> X = np.repeat([[0.0], [9.0]], 20, axis=0)
    >>> adapted(GaussianMixture(2)).estimate(X, seed=0).n_components
    2
    """
    wanted = f"'estimator' of {owner_name(owner)} must be an estimator such as koncord.ASM(); got"
    if isinstance(estimator, str):
        raise TypeError(f"{wanted} the name {estimator!r}.")
    if isinstance(estimator, type):
        raise TypeError(f"{wanted} the class {estimator.__name__}.")
    if not isinstance(estimator, LocalEstimator):
        missing = [name for name in REQUIRED if not hasattr(estimator, name)]
        raise TypeError(f"{wanted} {type(estimator).__name__}, which has no {' and no '.join(missing)}.")
    kind = get_tags(estimator).estimator_type if hasattr(estimator, "__sklearn_tags__") else None
    if kind in SUPERVISED:
        raise TypeError(f"{wanted} {type(estimator).__name__}, but {type(estimator).__name__} is a {kind}.")
    return Adapted(estimator)


def local_estimate(fitted: Any, X: FloatArray) -> LocalEstimate:
    """How many components a fitted clusterer found in X (n, d), and their means."""
    if hasattr(fitted, "n_components_") and hasattr(fitted, "means_"):
        return checked(fitted, LocalEstimate(n_components=int(fitted.n_components_), means=floats_of(fitted.means_)), X)
    labels = labels_of(fitted, X)
    present = np.unique(labels[labels >= 0])
    if not len(present):
        raise KoncordError(
            f"{type(fitted).__name__} finds no component in {len(X)} rows: it takes every row for noise. "
            "Give it other parameters, or leave this table out."
        )
    for name in ("means_", "cluster_centers_"):
        if hasattr(fitted, name) and len(getattr(fitted, name)) > present[-1]:
            means = floats_of(getattr(fitted, name))[present]
            break
    else:
        means = np.array([X[labels == label].mean(axis=0) for label in present])
    return checked(fitted, LocalEstimate(n_components=len(present), means=means), X)


def labels_of(fitted: Any, X: FloatArray) -> IntArray:
    """The component of every row of X, on which `fitted` was fitted; negative for noise."""
    name = type(fitted).__name__
    if hasattr(fitted, "labels_"):
        what, given = f"'labels_' of {name}", fitted.labels_
    elif hasattr(fitted, "predict"):
        what, given = f"'predict' of {name}", fitted.predict(X)
    else:
        raise TypeError(
            f"{name} has no components after fit: neither 'n_components_' with 'means_', nor 'labels_', nor 'predict'. "
            "Use a clusterer, such as koncord.ASM()."
        )
    labels = np.asarray(given)
    if labels.shape != (len(X),) or not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"{what} must hold one integer a row; got {labels.dtype} of shape {labels.shape}.")
    return labels.astype(np.int64, copy=False)


def checked(fitted: Any, estimate: LocalEstimate, X: FloatArray) -> LocalEstimate:
    """`estimate`, if its means are finite and one for each component; `TypeError` names the estimator."""
    wanted = (estimate.n_components, X.shape[1])
    if estimate.means.shape != wanted:
        raise TypeError(f"'means_' of {type(fitted).__name__} must have shape {wanted}; got {estimate.means.shape}.")
    if not np.isfinite(estimate.means).all():
        raise TypeError(f"'means_' of {type(fitted).__name__} must be finite numbers.")
    return estimate


def floats_of(values: Any) -> FloatArray:
    return np.asarray(values, dtype=float)


def n_components_of(fitted: Any, X: FloatArray) -> int:
    """Number of components a clusterer fitted on X found."""
    return int(fitted.n_components_) if hasattr(fitted, "n_components_") else local_estimate(fitted, X).n_components
