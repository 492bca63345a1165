"""Sites whose column lies elsewhere than that of all others, as in another unit: found from the sketches.

A site is named if the middle half of its column lies more than the interquartile range of the others beyond where
these have nine tenths of their values. A usual conversion is named with it if it brings median and spread to theirs.
Nothing is converted: a site may simply be another place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koncord.data.units import CONVERSIONS
from koncord.prepare.columns import Columns
from koncord.prepare.sketch import ColumnSketch, Distribution
from koncord.types import FloatArray, IntArray

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FEWEST_OTHERS = 2
NEAR_MEDIANS = 0.75  # interquartile ranges between medians after a conversion
SPREADS = (0.6, 1.6)  # ratio of the interquartile ranges after it
AGREED = 1.5  # interquartile ranges between the medians of the other sites, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherUnit:
    """A column that lies elsewhere at one site."""

    site: str
    column: str
    median: float
    others: float  # median of the medians of the other sites
    conversion: str | None  # that would bring it to them


def other_units(sent: Mapping[str, Columns], columns: Sequence[str]) -> list[OtherUnit]:
    """The sites and columns that lie elsewhere than all others."""
    found = []
    for column in columns:
        sites = [site for site, each in sent.items() if has_blocks(each, column)]
        known = np.array([quantiles(sent[site].sketches[column]) for site in sites]).reshape(-1, len(QUANTILES))
        for at in beyond_others(known) if len(sites) > FEWEST_OTHERS else ():
            own, others = known[at], np.delete(known, at, axis=0)
            if lies_elsewhere(own, others):
                middle = np.median(others, axis=0)
                found.append(
                    OtherUnit(
                        site=sites[at],
                        column=column,
                        median=float(own[2]),
                        others=float(middle[2]),
                        conversion=fitting_conversion(own, others),
                    )
                )
    return found


def has_blocks(sent: Columns, column: str) -> bool:
    return len(sent.sketches[column].means) > 1


def quantiles(sketch: ColumnSketch) -> FloatArray:
    return Distribution([sketch]).quantiles(*QUANTILES)


def beyond_others(known: FloatArray) -> IntArray:
    """The sites (of `known`, n_sites by quantiles) whose middle half lies beyond nine tenths of every other site."""
    highest, lowest = np.argsort(-known[:, 4])[:2], np.argsort(known[:, 0])[:2]
    above, below = np.full(len(known), known[highest[0], 4]), np.full(len(known), known[lowest[0], 0])
    above[highest[0]], below[lowest[0]] = known[highest[1], 4], known[lowest[1], 0]
    return np.flatnonzero((known[:, 1] > above) | (known[:, 3] < below))


def lies_elsewhere(own: FloatArray, others: FloatArray) -> bool:
    """Whether the middle half of a site lies an interquartile range beyond nine tenths of every other site."""
    middle = np.median(others, axis=0)
    iqr = middle[3] - middle[1]
    if not iqr > 0 or not own[3] > own[1]:
        return False
    return bool(own[1] > others[:, 4].max() + iqr or own[3] < others[:, 0].min() - iqr)


def fitting_conversion(own: FloatArray, others: FloatArray) -> str | None:
    """The usual conversion that brings a column nearest to those of the other sites, if these agree and one does."""
    middle = np.median(others, axis=0)
    iqr = middle[3] - middle[1]
    if np.ptp(others[:, 2]) > AGREED * iqr:
        return None
    fits = {}
    for name, (factor, shift) in CONVERSIONS.items():
        gap = abs(factor * own[2] + shift - middle[2]) / iqr
        if gap <= NEAR_MEDIANS and SPREADS[0] < factor * (own[3] - own[1]) / iqr < SPREADS[1]:
            fits[name] = gap
    return min(fits, key=lambda name: fits[name]) if fits else None
