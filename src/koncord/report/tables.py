"""What an estimate says, as rows: one a component, one a number of components that was tried; and rows as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from koncord import theory
from koncord._words import text_table
from koncord.estimate.search import GridResult, best_configuration
from koncord.types import FloatArray, IntArray

# Longer lists of K are cut to the best.
MOST_COUNTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRow:
    """One component of a fitted table. Its number is the label its rows have."""

    number: int
    count: int
    share: float  # of all rows
    spread: float  # square root of the mean variance of a column
    anisotropy: float  # leading eigenvalue over the mean one: 1 is round, the number of columns is a line
    critical_size: float  # rows above which the split rule of ASM cuts even a single cluster of this anisotropy

    @property
    def is_past_critical_size(self) -> bool:
        return self.count > self.critical_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """The configurations of a grid that found the same number of components."""

    n_components: int
    score: float  # largest silhouette among them, NaN where none has one
    n_configurations: int
    is_chosen: bool


def component_rows(X: FloatArray, labels: IntArray, variances: FloatArray) -> list[ComponentRow]:
    """One row for each component, in the order of the labels; X (n, d) is the table that was fitted."""
    members = [X[labels == number] for number in range(len(variances))]
    shapes = np.array([theory.anisotropy(own) if len(own) else 1.0 for own in members])
    return rows_of_components(np.array([len(own) for own in members]), len(X), X.shape[1], variances, shapes)


def rows_of_components(
    counts: IntArray, n_rows: int, n_features: int, variances: FloatArray, anisotropies: FloatArray
) -> list[ComponentRow]:
    """One row for each component from what is known of its rows; `n_rows` are those of all."""
    return [
        ComponentRow(
            number=number,
            count=int(count),
            share=int(count) / n_rows,
            spread=float(np.sqrt(variance)),
            anisotropy=float(anisotropy),
            critical_size=float(theory.critical_size(n_features, float(anisotropy))),
        )
        for number, (count, variance, anisotropy) in enumerate(zip(counts, variances, anisotropies, strict=True))
    ]


def count_rows(candidates: Sequence[GridResult]) -> list[CountRow]:
    """The best of each number of components, fewest first; the chosen one is the best of all."""
    chosen = best_configuration(candidates) if candidates else None
    rows = []
    for n_components in sorted({candidate.n_components for candidate in candidates}):
        same = [candidate for candidate in candidates if candidate.n_components == n_components]
        best = best_configuration(same)
        rows.append(
            CountRow(n_components=n_components, score=best.score, n_configurations=len(same), is_chosen=best is chosen)
        )
    return rows


def components_text(rows: Sequence[ComponentRow]) -> str:
    return text_table(
        ("component", "rows", "share", "spread", "anisotropy", "critical size", ""),
        [
            (
                str(row.number),
                f"{row.count:,}",
                f"{row.share:.1%}",
                f"{row.spread:.4g}",
                f"{row.anisotropy:.2f}",
                f"{row.critical_size:,.0f}",
                "past it" if row.is_past_critical_size else "",
            )
            for row in rows
        ],
    )


def counts_text(rows: Sequence[CountRow]) -> str:
    """The rows with the largest silhouettes, in their order; how many are left out is said below."""
    ranked = sorted(rows, key=lambda row: (isnan(row.score), 0.0 if isnan(row.score) else -row.score))
    shown = [row for row in rows if row in ranked[:MOST_COUNTS]]
    table = text_table(
        ("K", "silhouette", "configurations", ""),
        [
            (
                str(row.n_components),
                "none" if isnan(row.score) else f"{row.score:.4f}",
                str(row.n_configurations),
                "chosen" if row.is_chosen else "",
            )
            for row in shown
        ],
    )
    return table if len(shown) == len(rows) else f"{table}\n  and {len(rows) - len(shown)} with lower silhouettes"
