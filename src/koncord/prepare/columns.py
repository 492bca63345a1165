"""A site's side of the preparation: what it tells of its columns, as sums over at least as many rows as its floor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from koncord.prepare.plan import Plan
from koncord.prepare.sketch import ColumnSketch, rounded_down, sketch_of
from koncord.types import FloatArray, IntArray

MOST_PAIRED = 300  # columns up to which sums of products are sent: they grow with the square


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """What one site tells of its columns before anything is agreed."""

    count: int  # rows; 0 of a site with fewer than its floor, which tells the names alone
    sketches: Mapping[str, ColumnSketch]  # of the columns of numbers
    available: Mapping[str, int]  # rows that have a value, of every column
    levels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # rows of each level, of the categories


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measures:
    """Sums over the shaped values of one site, on the scale of a draft; zeros where there are too few."""

    counts: IntArray  # (n_columns,) values
    means: FloatArray  # (n_columns,)
    scatters: FloatArray  # (n_columns,) squares about the means
    fenced: IntArray  # (n_columns,) values that the fence moved
    products: FloatArray | None = None  # (n_columns, n_columns) of two columns, over the rows that have both
    pairs: IntArray | None = None  # (n_columns, n_columns) these rows


def describe_columns(X: FloatArray, columns: Sequence[str], levels: Mapping[str, Sequence[str]], floor: int) -> Columns:
    """What a site tells of its columns; of a table below the floor, their names alone."""
    numbers = [name for name in columns if name not in levels]
    if len(X) < floor:
        nothing = ColumnSketch(means=np.empty(0), n_values=0, n_end=0)
        return Columns(
            count=0,
            sketches=dict.fromkeys(numbers, nothing),
            available=dict.fromkeys(columns, 0),
            levels={name: {} for name in columns if name in levels},
        )
    is_there = ~np.isnan(X)
    available = rounded_down(is_there.sum(axis=0), len(X), floor)
    at = {name: position for position, name in enumerate(columns)}
    return Columns(
        count=len(X),
        sketches={name: sketch_of(X[is_there[:, at[name]], at[name]], floor) for name in numbers},
        available={name: int(available[at[name]]) for name in columns},
        levels={name: level_counts(X[:, at[name]], own, floor) for name, own in levels.items()},
    )


def level_counts(codes: FloatArray, levels: Sequence[str], floor: int) -> dict[str, int]:
    """Rows of each level that has enough of them; so many that no few are left over."""
    there = codes[~np.isnan(codes)].astype(np.int64)
    counts = without_small(np.bincount(there, minlength=len(levels)), floor)
    return {level: n for level, n in zip(levels, counts.tolist(), strict=True) if n}


def measure(X: FloatArray, draft: Plan, floor: int, *, paired: bool = False, raw: FloatArray | None = None) -> Measures:
    """Sums over the shaped columns of numbers of X (n, n_columns), which are those of the draft, in its order.

    With `paired`, also sums of products over the rows that have both of two columns: of what deviates from the means of
    the columns, to which the products of these means are added. So no other sum over these rows follows, whatever
    the draft subtracts. `raw` are the values before any were moved, if some were.
    """
    shaped = draft.shaped(X)
    Z = (shaped - draft.means) / draft.scales
    is_there = ~np.isnan(Z)
    exact = is_there.sum(axis=0)
    is_reported = exact >= floor
    filled = np.where(is_there, Z, 0.0)
    means = filled.sum(axis=0) / np.maximum(exact, 1)
    scatters = np.where(is_there, (filled - means) ** 2, 0.0).sum(axis=0)
    moved = draft.is_fenced(X if raw is None else raw)
    products = pairs = None
    if paired:
        both = (is_there.T.astype(float) @ is_there).astype(np.int64)
        gaps = np.where(is_there, Z - means, 0.0)
        pairs = np.where(both >= floor, rounded_down(both, len(X), floor), 0)
        products = np.where(both >= floor, gaps.T @ gaps + pairs * np.outer(means, means), 0.0)
    return Measures(
        counts=np.where(is_reported, rounded_down(exact, len(X), floor), 0),
        means=np.where(is_reported, means, 0.0),
        scatters=np.where(is_reported, scatters, 0.0),
        fenced=moved.sum(axis=0) // floor * floor,
        products=products,
        pairs=pairs,
    )


def without_small(counts: IntArray, least: int) -> IntArray:
    """Counts with those below `least` as 0, and with them the next smallest if what is left out sums to such a count.

    Anyone who knows the number of all rows knows the sum of what is left out.
    """
    is_small = counts < least
    if 0 < counts[is_small].sum() < least and not is_small.all():
        is_small[np.where(is_small, counts.max() + 1, counts).argmin()] = True
    return np.where(is_small, 0, counts)
