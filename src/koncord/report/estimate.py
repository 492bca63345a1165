"""Phase 1 on one table, as text or as a record."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isinf, isnan
from typing import Any

import koncord
from koncord._words import counted, joined
from koncord.aggregate.consensus.nulltest import NullTest
from koncord.data.files import Table
from koncord.estimate.asm import CLEAR_SILHOUETTE, HOLDOUT
from koncord.estimate.known import KnownCounts
from koncord.estimate.search import GridResult, best_configuration, n_held_out
from koncord.kernels.moments import LabelMoments
from koncord.kernels.silhouette import MAX_SCORED
from koncord.report.tables import (
    ComponentRow,
    component_rows,
    components_text,
    count_rows,
    counts_text,
    rows_of_components,
)
from koncord.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """What was asked beside what was found."""

    file: str
    estimator: str
    seed: int
    is_standardized: bool
    table: Table  # as it was fitted; a sample of the rows where the file is read batch by batch
    n_rows: int  # of the file
    mean: FloatArray  # (n_columns,) what was subtracted from the columns of the file
    scale: FloatArray  # (n_columns,) what they were divided by
    config: dict[str, Any]
    null_test: NullTest | None  # None if it was not made
    n_untested: int  # components that the estimator finds by itself
    extra_masses: tuple[float, ...]  # minimum masses that ASM tried beyond the paper's, on a small table
    labels: IntArray  # (n_rows,) component of every row
    components: list[ComponentRow]
    means: FloatArray  # (n_components, n_columns)
    variances: FloatArray  # (n_components,)
    weights: FloatArray  # (n_components,) of the model; those of a partition are the shares of its rows
    candidates: tuple[GridResult, ...]  # in grid order; empty where nothing was chosen
    best_score: float  # silhouette of the chosen one, NaN without
    notes: tuple[str, ...]  # on the columns of the file
    cap: int | None  # most components the estimator was allowed, if it used them all
    is_converged: bool | None  # None of an estimator that always is
    seconds: float

    @property
    def is_overruled(self) -> bool:
        """Whether the test against one Gaussian left one component of several."""
        return len(self.components) < self.n_untested

    @property
    def n_held_out(self) -> int:
        """Rows on which the choice was made."""
        n = len(self.table.X)
        return n_held_out(n, HOLDOUT) if self.candidates else 0

    @property
    def n_scored(self) -> int:
        """Those of them whose silhouette was taken."""
        return min(self.n_held_out, MAX_SCORED)


def describe_estimate(
    fitted: Any,
    table: Table,
    *,
    file: str,
    estimator: str,
    seed: int,
    is_standardized: bool,
    mean: FloatArray,
    scale: FloatArray,
    seconds: float,
    notes: Sequence[str] = (),
    null_test: NullTest | None = None,
    all_rows: Callable[[FloatArray], LabelMoments] | None = None,
) -> Estimate:
    """The estimate of a fitted estimator, or of a fitted search over one; `table` holds the rows it was fitted on.

    Where `null_test` finds no more structure than in one Gaussian, the estimate is one component. Where `table` is a
    sample, `all_rows` takes the means of components (k, d) and gives the moments of all rows by the nearest of them:
    counts, means, variances and weights are then those of all rows.
    """
    own = getattr(fitted, "best_estimator_", fitted)
    is_one = null_test is not None and not null_test.is_several and own.n_components_ > 1
    model = KnownCounts(1).fit(table.X) if is_one else own
    n_rows, means, variances, weights = len(table.X), model.means_, model.variances_, model.weights_
    if all_rows is None:
        components = component_rows(table.X, model.labels_, variances)
    else:
        found = all_rows(means)
        n_rows, means = int(found.counts.sum()), found.means
        variances, weights = found.variances, found.counts / found.counts.sum()
        components = rows_of_components(found.counts, n_rows, means.shape[1], variances, found.anisotropies)
    return Estimate(
        file=file,
        estimator=estimator,
        seed=seed,
        is_standardized=is_standardized,
        table=table,
        n_rows=n_rows,
        mean=mean,
        scale=scale,
        config=config_of(fitted),
        null_test=null_test,
        n_untested=own.n_components_,
        extra_masses=getattr(own, "extra_masses_", ()),
        labels=model.labels_,
        components=components,
        means=means,
        variances=variances,
        weights=weights,
        candidates=getattr(fitted, "results_", ()),
        best_score=getattr(fitted, "best_score_", float("nan")),
        notes=tuple(notes),
        cap=cap_reached(own),
        is_converged=getattr(own, "converged_", None),
        seconds=seconds,
    )


def cap_reached(model: Any) -> int | None:
    n_found = getattr(model, "n_split_components_", model.n_components_)
    return n_found if n_found == model.get_params().get("max_components") else None


def config_of(fitted: Any) -> dict[str, Any]:
    """What was chosen where there was a choice, else the parameters as given."""
    for name in ("config_", "best_params_"):
        if hasattr(fitted, name):
            return dict(getattr(fitted, name))
    return {name: value for name, value in fitted.get_params().items() if name != "random_state"}


def estimate_record(estimate: Estimate) -> dict[str, Any]:
    """For a machine: what every reader relies on first, then what was asked, then the rest of what was found."""
    rows, table = estimate.components, estimate.table
    return {
        "n_components": len(rows),
        "config": estimate.config,
        "weights": estimate.weights,
        "means": estimate.means,
        "seconds": round(estimate.seconds, 3),
        "null_test": null_test_record(estimate),
        "extra_min_masses": estimate.extra_masses,
        "file": estimate.file,
        "estimator": estimate.estimator,
        "seed": estimate.seed,
        "version": koncord.__version__,
        "rows": estimate.n_rows,
        "sample_rows": len(table.X),
        "columns": table.columns,
        "dropped_columns": table.dropped,
        "constant_columns": table.constant_columns,
        "notes": estimate.notes,
        "standardized": estimate.is_standardized,
        "mean": estimate.mean,
        "scale": estimate.scale,
        "means_original": estimate.mean + estimate.scale * estimate.means,
        "counts": [row.count for row in rows],
        "variances": estimate.variances,
        "anisotropies": [row.anisotropy for row in rows],
        "critical_sizes": [row.critical_size for row in rows],
        "past_critical_size": [row.is_past_critical_size for row in rows],
        "best_score": estimate.best_score,
        "held_out_rows": estimate.n_held_out,
        "scored_rows": estimate.n_scored,
        "reached_max_components": estimate.cap is not None,
        "converged": estimate.is_converged,
        "candidates": [asdict(candidate) for candidate in estimate.candidates],
    }


def null_test_record(estimate: Estimate) -> dict[str, Any] | None:
    """The test against one Gaussian and the number of components without it."""
    if estimate.null_test is None:
        return None
    return {**asdict(estimate.null_test), "untested_components": estimate.n_untested}


def estimate_text(estimate: Estimate) -> str:
    """For a person."""
    parts = [about_table(estimate), about_choice(estimate), components_text(estimate.components)]
    is_split = estimate.estimator.startswith("asm") and not estimate.is_overruled
    if is_split and any(row.is_past_critical_size for row in estimate.components):
        parts.append(
            "Past its critical size the split rule of ASM cuts even a single cluster;\n"
            "such a component is whole only as far as the minimum mass and the merge stage keep it so."
        )
    if estimate.candidates:
        whose = f" for {estimate.estimator} by itself" if estimate.is_overruled else ""
        parts.append(f"The best configuration of each K{whose}, fitted without the held-out rows:")
        parts.append(counts_text(count_rows(estimate.candidates)))
    return "\n\n".join(parts)


def about_table(estimate: Estimate) -> str:
    table = estimate.table
    treated = "standardized (--no-standardize to keep units)" if estimate.is_standardized else "not standardized"
    lines = [f"{estimate.file}: {counted(estimate.n_rows, 'row')}, {counted(len(table.columns), 'column')}, {treated}"]
    if table.dropped:
        lines.append(f"left out: {', '.join(table.dropped)}")
    return "\n".join([*lines, *(f"note: {note}" for note in estimate.notes)])


def about_choice(estimate: Estimate) -> str:
    config = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in estimate.config.items()
    )
    lines = [
        f"K = {len(estimate.components)}  ({estimate.estimator}, seed {estimate.seed}, {estimate.seconds:.2f} s)",
        *about_test(estimate),
        f"configuration: {config}",
    ]
    if estimate.extra_masses:
        tried = [f"{mass:.4g}" for mass in estimate.extra_masses]
        lines.append(
            f"note: few rows for the paper's minimum masses; {joined(tried)} were tried too, "
            f"and count from a silhouette of {CLEAR_SILHOUETTE:g}"
        )
    if estimate.cap is not None:
        lines.append(f"note: splitting stopped at the cap of {estimate.cap} components (--set max_components)")
    if estimate.is_converged is False:
        lines.append("note: the fit had not converged when its iterations ran out")
    if not estimate.candidates:
        return "\n".join(lines)
    among = f"chosen among {counted(len(estimate.candidates), 'configuration')}"
    if isnan(estimate.best_score):
        lines.append(f"{among}: none gave the held-out rows a silhouette, so the first of the fewest components")
        return "\n".join(lines)
    lines.append(f"{among}: silhouette {estimate.best_score:.4f} on {scored_rows(estimate)}")
    n_before = best_configuration(estimate.candidates).n_components
    if n_before != estimate.n_untested:
        lines.append(f"without the held-out rows it found K = {n_before}, on all rows K = {estimate.n_untested}")
    return "\n".join(lines)


def about_test(estimate: Estimate) -> list[str]:
    """Lines on the test against one Gaussian, if it was made."""
    test = estimate.null_test
    if test is None:
        return []
    found = "several clusters" if test.is_several else "one cluster"
    shown = "no draw of it shows any" if isinf(test.times_chance) else f"{test.times_chance:.1f} times chance"
    lines = [f"test against one Gaussian, as in koncord fit: {found} ({shown}, more than {test.times_needed:g} needed)"]
    if estimate.is_overruled:
        lines.append(f"{estimate.estimator} by itself finds K = {estimate.n_untested} (--no-null-test)")
    elif test.is_several and estimate.n_untested == 1:
        lines.append(
            f"note: the table shows more structure than one Gaussian, but {estimate.estimator} finds one component"
        )
    return lines


def scored_rows(estimate: Estimate) -> str:
    held_out = counted(estimate.n_held_out, "held-out row")
    if estimate.n_scored == estimate.n_held_out:
        return held_out
    return f"{estimate.n_scored:,} of {held_out}, drawn at random"
