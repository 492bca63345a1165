"""Estimators by the names that commands and the sites of a federation use."""

from typing import Any

from koncord.estimate.asm import ASM, MNIST_MERGE_FACTORS
from koncord.estimate.dpgmm import DPGMM, GRID
from koncord.estimate.gmeans import GMeans
from koncord.estimate.search import LabelFreeSearch
from koncord.estimate.xmeans import XMeans


def estimator_named(
    name: str,
    *,
    max_components: int | None = None,
    min_mass: float | None = None,
    split_factor: float | None = None,
    merge_factor: float | None = None,
    merge_grid: str | None = None,
    random_state: int | None = None,
) -> Any:
    """An estimator ready to fit; what is None is the estimator's own choice.

    >>> estimator_named("xmeans", max_components=9).max_components
    9
    """
    given: dict[str, Any] = {} if max_components is None else {"max_components": max_components}
    if name in ("asm", "asm-identity"):
        return ASM(
            covariance="identity" if name == "asm-identity" else "spherical",
            min_mass=min_mass,
            split_factor=split_factor,
            merge_factor=MNIST_MERGE_FACTORS if merge_grid == "mnist" else merge_factor,
            random_state=random_state,
            **given,
        )
    if name == "xmeans":
        return XMeans(random_state=random_state, **given)
    if name == "gmeans":
        return GMeans(random_state=random_state, **given)
    if name == "dpgmm":
        truncated = {} if max_components is None else {"truncation": max_components}
        return LabelFreeSearch(DPGMM(**truncated), GRID, random_state=random_state)
    raise ValueError(f"There is no estimator {name!r}.")
