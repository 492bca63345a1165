"""Estimators by the names that commands and the sites of a federation use."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

from koncord.estimate.registry import ESTIMATORS


@dataclass(frozen=True, slots=True)
class LateEstimator:
    """An estimator by its name, which is made, with all that it imports, if phase 1 comes to run."""

    name: str

    def __repr__(self) -> str:
        return self.name


def made(estimator: Any) -> Any:
    """The estimator; one that was left for later is made now."""
    return estimator_named(estimator.name) if isinstance(estimator, LateEstimator) else estimator


def estimator_named(name: str, *, random_state: int | None = None, **options: Any) -> Any:
    """An estimator ready to fit.

    Parameters
    ----------
    name : str
        A name of `koncord.estimate.registry.ESTIMATORS`.
    random_state : int, optional
        Seed, for an estimator that takes one.
    **options
        Arguments of the estimator. One that it does not have is a `ValueError`.

    Examples
    --------
    >>> estimator_named("xmeans", max_components=9).max_components
    9
    """
    make = ESTIMATORS[name].load()
    takes = signature(make).parameters
    unknown = [option for option in options if option not in takes]
    if unknown:
        raise ValueError(f"The estimator {name!r} has no parameter {unknown[0]!r}.")
    return make(**options, **({"random_state": random_state} if "random_state" in takes else {}))
