"""Profiles of the clusters: what each looks like in every column, from the sums that the sites sent. No rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from koncord.model.globalmodel import GlobalModel
from koncord.report.cells import Cell, Chip, Heat, TableView, numeric, words
from koncord.report.federation import ClusterRow, average_center
from koncord.report.numbers import aligned
from koncord.runs.record import RunRecord
from koncord.types import FloatArray

# A center so many standard deviations from the average, or farther, has the strongest shade.
FARTHEST = 3.0
# Columns of the page that are always open; the others are in a fold.
MOST_OPEN = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiles:
    """Centers and spreads in every column."""

    centers: FloatArray  # (k, d) in the units of the tables
    average: FloatArray  # (d,) likewise
    reaches: FloatArray | None  # (2, k, d) one standard deviation below and above; None where no spread is known
    steps: FloatArray  # (k, d) from the average, in standard deviations of the column over all rows
    between: FloatArray  # (d,) share of a column's variance that is between the clusters; NaN where not known

    @property
    def order(self) -> list[int]:
        """Columns, those first in which the clusters differ most."""
        most = np.abs(self.steps).max(axis=0) if np.isnan(self.between).any() else self.between
        return [int(at) for at in np.argsort(-most, kind="stable")]


def profiles_of(model: GlobalModel, *, is_standardized: bool = False) -> Profiles:
    """Centers, and spreads where the shape of the clusters is known.

    Parameters
    ----------
    model : GlobalModel
        Of a run.
    is_standardized : bool, default False
        Whether all rows together have variance 1 in every scaled column.
    """
    average = average_center(model)
    apart = model.centers - average
    between = model.weights @ apart**2
    spreads = spreads_of(model, is_standardized=is_standardized)
    inside = np.zeros(len(average)) if spreads is None else model.weights @ spreads**2
    whole = between + inside
    root = np.sqrt(np.where(whole > 0, whole, 1.0))
    reaches = None
    if spreads is not None:
        reaches = np.array([model.plan.original(model.centers + side * spreads) for side in (-1, 1)])
    return Profiles(
        centers=model.centers_original,
        average=model.plan.original(average[None])[0],
        reaches=reaches,
        steps=apart / root,
        between=np.full(len(average), np.nan) if spreads is None else np.where(whole > 0, between / root**2, 0.0),
    )


def spreads_of(model: GlobalModel, *, is_standardized: bool) -> FloatArray | None:
    """Standard deviation (k, d) of each cluster in each scaled column; None where no shapes are known.

    The shapes leave out directions in which rows hardly vary. Where the variance of all rows is known, what is neither
    between the clusters nor in their shapes is the same for all.
    """
    if model.gaussians is None:
        return None
    back = np.linalg.pinv(model.gaussians.axes)  # (d, q): the axes are neither of length 1 nor at right angles
    variances = np.maximum(np.einsum("dq,kqr,dr->kd", back, model.gaussians.covariances, back), 0.0)
    if is_standardized:
        between = model.weights @ (model.centers - average_center(model)) ** 2
        variances = variances + np.maximum(1.0 - between - model.weights @ variances, 0.0)
    spreads: FloatArray = np.sqrt(variances)
    return spreads


def profiles(model: GlobalModel, record: RunRecord, rows: Sequence[ClusterRow]) -> Mapping[str, Any]:
    """The section: a heat map as a table, and the rest of a long one in a fold."""
    found = profiles_of(model, is_standardized=record.is_standardized)
    order = found.order
    lines = [line_of(model, found, rows, at) for at in order]
    heads: list[str | Chip] = [*(Chip(row.number) for row in rows), "all rows"]
    is_known = found.reaches is not None and len(rows) > 1
    columns = [*words("column"), *numeric(*heads, *(["between clusters"] if is_known else []))]
    tables = [
        TableView(caption=caption, columns=columns, rows=part)
        for caption, part in (
            ("Profiles of the clusters, one line a column of the tables", lines[:MOST_OPEN]),
            ("Profiles in the other columns", lines[MOST_OPEN:]),
        )
        if part
    ]
    return {
        "has_spread": found.reaches is not None,
        "has_levels": bool(model.plan.categories),
        "has_logs": bool(model.plan.is_logged.any()),
        "has_marks": any(row.differences for row in rows),
        "n_clusters": len(rows),
        "table": tables[0],
        "others": tables[1] if len(tables) > 1 else None,
    }


def line_of(model: GlobalModel, found: Profiles, rows: Sequence[ClusterRow], at: int) -> list[Cell]:
    """One column of the tables: its name, a cell a cluster, the average, and how much the clusters tell of it."""
    name = model.columns[at]
    centers = found.centers[:, at].tolist()
    is_level = at >= len(model.plan.columns)
    has_reach = found.reaches is not None and not is_level
    ends = [] if found.reaches is None or not has_reach else found.reaches[:, :, at].ravel().tolist()
    average = float(found.average[at])
    texts = shares(centers, average) if is_level else aligned([*centers, average, *ends])
    texts, end_texts = texts[: len(rows) + 1], texts[len(rows) + 1 :]
    low, high = min([*centers, *ends]), max([*centers, *ends])
    cells: list[Cell] = []
    for row, text in zip(rows, texts[:-1], strict=True):
        k = row.number
        reach = (ends[k], ends[len(rows) + k]) if ends else None
        cells.append(
            Heat(
                text=text,
                step=float(np.clip(found.steps[k, at] / FARTHEST, -1, 1)) if len(rows) > 1 else 0.0,
                is_top=any(each.column == at for each in row.differences),
                reach_text=f"{end_texts[k]} to {end_texts[len(rows) + k]}" if ends else "",
                strip=None if reach is None else strip_of(reach, centers[k], low, high),
            )
        )
    is_known = found.reaches is not None and len(rows) > 1
    return [name, *cells, texts[-1], *([f"{found.between[at]:.0%}"] if is_known else [])]


def shares(centers: Sequence[float], average: float) -> list[str]:
    """Parts of rows that have a level."""
    return [f"{min(max(value, 0.0), 1.0):.0%}" for value in (*centers, average)]


def strip_of(reach: tuple[float, float], center: float, low: float, high: float) -> tuple[float, float, float] | None:
    """Where a spread begins and ends, and its center, on the scale of the line."""
    if not high > low:
        return None
    start, stop, middle = ((value - low) / (high - low) for value in (*reach, center))
    return start, stop, middle
