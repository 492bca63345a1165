"""Findings -> the paper's figures; none is drawn from no runs.

Grey is the truth and blue the estimate; in grey print the filled shape is the truth and the outline the estimate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isnan
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koncord.types import FloatArray
from koncord_reproduction import statistics, theory
from koncord_reproduction.findings import (
    GAUSSIANS,
    MIN_MASS,
    REGIMES,
    Findings,
    Partition,
    Runs,
    component_counts,
    onsets,
    partition_of,
    sweep_counts,
)
from koncord_reproduction.paper import DIFFERENCES, METHODS, N_CLUSTERS, SETS, TITLES
from koncord_reproduction.paper import numbers as paper_numbers

# Okabe and Ito's colors, which color-blind readers can distinguish. Seven shapes against eight colors: no two of 56
# components share both, and in gray the shapes and the numbers remain.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7A6A00", "#555555")
INK = "#222222"

BLUE, GREY = COLORS[0], "#b8b8b8"
COLUMNS = ("asm-i", "asm-s", "dpgmm", "xmeans", "gmeans")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure and what is said about it."""

    title: str
    caption: str
    draw: Callable[[Findings], Figure | None]


def svg(figure: Figure) -> bytes:
    """The same figure always gives the same bytes."""
    image = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "koncord", "svg.fonttype": "path"}):
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()


# --- one Gaussian cluster ---


def split_onset(found: Findings) -> Figure | None:
    seen = {dataset: onsets(found, dataset) for dataset in GAUSSIANS}
    if not any(seen.values()):
        return None
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    panels = figure.subplots(1, len(GAUSSIANS), sharey=True)
    for panel, (dataset, d) in zip(panels, GAUSSIANS.items(), strict=True):
        curve = np.geomspace(1, d / 2, 200)
        panel.plot(curve, theory.critical_size(d, curve), color=INK, lw=1.6, label="predicted, population r")
        points = [(onset.r, onset.size) for onset in seen[dataset] if not isnan(onset.size)]
        panel.plot(*columns(points, 2), color=BLUE, lw=1.0, marker="o", ms=5, label="observed, ASM-S")
        panel.axhline(2 * MIN_MASS, color="#777777", lw=1.0, ls="--", label="twice the minimum mass")
        panel.set(xscale="log", yscale="log", ylim=(2.5, 1200), title=f"d = {d}", xlabel="anisotropy r (1 is round)")
        label_plainly(panel.xaxis, [tick for tick in (1, 2, 4, 8, 16, 32) if tick <= d / 2])
        label_plainly(panel.yaxis, [5, 10, 20, 50, 100, 200, 500, 1000])
        tidy(panel)
    panels[0].set_ylabel("rows n from which the cluster is split")
    panels[0].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def components_before_merging(found: Findings) -> Figure | None:
    seen = {dataset: component_counts(found, dataset) for dataset in GAUSSIANS}
    if not any(seen.values()):
        return None
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.subplots()
    bound = np.array([2 * MIN_MASS, 5000])
    axes.plot(bound, bound / (2 * MIN_MASS), color="#777777", lw=1.0, ls="--", label="n / (2 · minimum mass)")
    for (dataset, d), marker, color in zip(GAUSSIANS.items(), "os^", (INK, BLUE, COLORS[3]), strict=True):
        points = [(n, float(np.median(counts))) for n, counts in seen[dataset].items()]
        axes.plot(*columns(points, 2), color=color, lw=1.1, marker=marker, ms=5, mfc="white", label=f"d = {d}")
    axes.set(xscale="log", yscale="log", xlabel="rows n of one round cluster", ylabel="components before merging")
    label_plainly(axes.xaxis, [10, 30, 100, 300, 1000, 5000])
    label_plainly(axes.yaxis, [1, 3, 10, 30, 100, 300])
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    return figure


def columns(points: Sequence[Sequence[float]], n: int) -> FloatArray:
    """The coordinates of points, also of none."""
    return np.array(points, dtype=float).reshape(-1, n).T


def label_plainly(axis: Any, ticks: Sequence[int]) -> None:
    axis.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axis.set_ticks([], minor=True)


# --- local counts ---


def local_counts(regime: str) -> Callable[[Findings], Figure | None]:
    def draw(found: Findings) -> Figure | None:
        by_set = {each: [found.runs(f"federated-{regime}", each, method) for method in COLUMNS] for each in SETS}
        rows = [each for each in SETS if any(runs.done for runs in by_set[each])]
        if not rows:
            return None
        figure = Figure(figsize=(11.0, 0.6 + 1.55 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(COLUMNS), squeeze=False)
        for line, each in zip(panels, rows, strict=True):
            for panel, method, runs in zip(line, COLUMNS, by_set[each], strict=True):
                other = found.runs("federated-a", each, method) if regime == "b" else None
                draw_local_counts(panel, runs, 2 * N_CLUSTERS[each], other)
            line[0].set_ylabel(f"{TITLES[each]}{'*' if each in DIFFERENCES else ''}", fontsize=11, fontweight="bold")
        for panel, method in zip(panels[0], COLUMNS, strict=True):
            panel.set_title(f"{METHODS[method]}\n{panel.get_title()}", fontsize=9)
        figure.supxlabel("local count of a client (grey: true, blue outline: estimated)", fontsize=10)
        return figure

    return draw


def draw_local_counts(axes: Axes, runs: Runs, most: int, other: Runs | None) -> None:
    """True counts filled in grey, estimates as a blue outline, as shares of the clients; all above `most` in "
    "one bin."""
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_yticks([])
    if not runs.done:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", fontsize=9, color=INK)
        axes.set_xticks([])
        return
    truth, estimate = counts_of(runs)
    edges = np.arange(0.5, most + 2.5)
    for values, style in (
        (truth, {"color": GREY, "histtype": "stepfilled"}),
        (estimate, {"color": BLUE, "histtype": "step", "lw": 1.4}),
    ):
        axes.hist(
            np.minimum(values, most + 1), bins=list(edges), weights=np.full(len(values), 1 / len(values)), **style
        )
    ticks = [1, *(tick for tick in nice_ticks(most) if tick > 1)]
    axes.set_xticks([*ticks, most + 1], labels=[*map(str, ticks), f">{most}"])
    axes.set_xlim(0.3, most + 1.7)
    axes.set_title(panel_title(runs, other), fontsize=8, color=INK)
    if len(runs.done) != 10:
        axes.text(0.98, 0.95, f"n = {len(runs.done)}", transform=axes.transAxes, ha="right", va="top", fontsize=7)


def nice_ticks(most: int) -> list[int]:
    step = 1 if most <= 6 else 4 if most <= 20 else 20
    return [tick for tick in range(step, most + 1, step) if tick <= most - step / 2]


def counts_of(runs: Runs) -> tuple[FloatArray, FloatArray]:
    """True and estimated counts of all clients of all seeds."""
    truth, estimate = (
        np.concatenate([np.asarray(values[name], dtype=float) for values in runs.done.values()])
        for name in ("true_counts", "local_counts")
    )
    return truth, estimate


def panel_title(runs: Runs, other: Runs | None) -> str:
    """Mean absolute error with the share of clients at one; against the other regime, with the rank correlations."""
    truth, estimate = counts_of(runs)
    error = f"MAE {np.abs(estimate - truth).mean():.1f}"
    if other is None:
        return f"{error} · K=1 {(estimate == 1).mean():.0%}"
    return f"{error} · ρ {correlation(runs)} ({correlation(other)})"


def correlation(runs: Runs) -> str:
    rho = statistics.spearman(*counts_of(runs)) if runs.done else float("nan")
    return "–" if isnan(rho) else f"{rho:+z.2f}".replace("-", "−")


# --- points per cluster ---


def points_per_cluster(found: Findings) -> Figure | None:
    by_set = {each: [partition_of(found, regime, each) for regime in REGIMES] for each in SETS}
    rows = [each for each in SETS if any(part.seeds for part in by_set[each])]
    if not rows:
        return None
    figure = Figure(figsize=(8.0, 0.6 + 1.3 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 2, squeeze=False)
    for line, each in zip(panels, rows, strict=True):
        pooled = [points_of(part) for part in by_set[each]]
        top = max(values.max() for values in pooled if len(values))
        edges = np.linspace(0, 1.02 * top, 46)
        for panel, values in zip(line, pooled, strict=True):
            draw_points(panel, values, edges)
        line[0].set_ylabel(TITLES[each], fontsize=10, fontweight="bold")
    for panel, regime in zip(panels[0], REGIMES, strict=True):
        panel.set_title(f"Regime {regime.upper()}", fontsize=11)
    figure.supxlabel("points per cluster $N_g / K_g$ of a client", fontsize=10)
    return figure


def points_of(part: Partition) -> FloatArray:
    return np.concatenate([*part.points.values(), np.empty(0)])


def draw_points(axes: Axes, values: FloatArray, edges: FloatArray) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    if len(values) == 0:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", fontsize=9, color=INK)
        return
    axes.hist(values, bins=list(edges), color=BLUE, histtype="stepfilled")
    axes.axvline(float(values.mean()), color=INK, lw=1.2, ls="--")
    spread = statistics.coefficient_of_variation(values)
    said = f"mean {values.mean():.0f}\nSD {spread * values.mean():.0f}\nCV {spread:.2f}"
    is_right = values.mean() > 0.6 * edges[-1]
    axes.text(0.02 if is_right else 0.98, 0.95, said, transform=axes.transAxes, va="top", fontsize=8,
              ha="left" if is_right else "right", color=INK)  # fmt: skip


OTHER_DATA = " * not the paper's data."

# --- the merge sweep ---


def merge_sweep_figure(found: Findings) -> Figure | None:
    """Components and ARI against the merge factor, ours and the paper's, one column a set."""
    ours = {dataset: len(sweep_counts(found, dataset)[0]) for dataset in SETS}
    if not any(ours.values()):
        return None
    figure = Figure(figsize=(9.6, 9.0), layout="constrained")
    panels = figure.subplots(4, 4)
    for at, dataset in enumerate(SETS):
        for quantity, row in (("k", 2 * (at // 4)), ("ari", 2 * (at // 4) + 1)):
            panel = panels[row, at % 4]
            panel.plot(*columns(paper_sweep(dataset, quantity), 2), **PAPERS)
            panel.plot(*columns(our_sweep(found, dataset, quantity), 2), **OURS)
            panel.set_title(TITLES[dataset] + ("*" if dataset in DIFFERENCES else "") if quantity == "k" else "")
            panel.set_ylabel("components" if quantity == "k" else "ARI")
            panel.set_ylim(0, 1.08 * panel.dataLim.y1)
            tidy(panel)
    figure.supxlabel("merge factor α (0: no merge)", fontsize="medium")
    panels[0, 0].legend(fontsize=7, frameon=False)
    return figure


PAPERS: Mapping[str, Any] = {"color": "#777777", "marker": "s", "ms": 5, "mfc": "none", "lw": 0, "label": "paper"}
OURS: Mapping[str, Any] = {"color": BLUE, "marker": "o", "ms": 3, "lw": 1.2, "label": "ours"}


def paper_sweep(dataset: str, quantity: str) -> list[tuple[float, float]]:
    """Merge factors and what the paper has at each."""
    rows = [(key, number.value) for key, number in paper_numbers().items() if key.table == "merge-sweep"]
    return sorted(
        (float(key.method), value)
        for key, value in rows
        if key.dataset == dataset and key.quantity == quantity and key.method != "selected" and value is not None
    )


def our_sweep(found: Findings, dataset: str, quantity: str) -> list[tuple[float, float]]:
    """Merge factors and the mean over our seeds at each."""
    alphas, _ = sweep_counts(found, dataset)
    values = ((alpha, found.value("merge-sweep", dataset, f"{alpha:g}", quantity)) for alpha in alphas)
    return [(float(alpha), value) for alpha, value in values if not isnan(value)]


FIGURES: Mapping[str, Picture] = {
    "merge-sweep": Picture(
        title="The merge sweep beside the paper's",
        caption="Components that are left and ARI on the test rows against the merge factor, on the splits of the "
        "configuration that the silhouette picks: squares are the paper's, dots ours, means over the seeds."
        + OTHER_DATA,
        draw=merge_sweep_figure,
    ),
    "split-onset": Picture(
        title="Size at which ASM-S begins to split a single Gaussian cluster",
        caption="Against its anisotropy r. Black: predicted with the population anisotropy. Blue: size above which "
        "at least half of the splits are accepted (50 draws a point, δ = 1, minimum mass 5). Dashed: twice the "
        "minimum mass.",
        draw=split_onset,
    ),
    "components-before-merging": Picture(
        title="Components of one round cluster before merging",
        caption="Median over 20 draws, δ = 1, minimum mass 5; the correct count is one. Dashed: the bound that the "
        "minimum mass sets.",
        draw=components_before_merging,
    ),
    "local-counts-a": Picture(
        title="Local counts under regime A",
        caption="Every client of every seed: true count (grey, filled) and estimate (blue outline). Panel titles: "
        "mean absolute error, and share of clients whose estimate is 1. The last bin holds all that is "
        "larger." + OTHER_DATA,
        draw=local_counts("a"),
    ),
    "local-counts-b": Picture(
        title="Local counts under regime B",
        caption="As under regime A. Panel titles: mean absolute error, and Spearman correlation of estimate and true "
        "count over all clients, that under regime A in brackets." + OTHER_DATA,
        draw=local_counts("b"),
    ),
    "points-per-cluster": Picture(
        title="Points per cluster",
        caption="N_g / K_g of every client and seed: mean (dashed), standard deviation and coefficient of variation.",
        draw=points_per_cluster,
    ),
}


def png(figure: Figure) -> bytes:
    """The same figure always gives the same bytes."""
    image = BytesIO()
    figure.savefig(image, format="png", dpi=150, metadata={"Software": None})
    return image.getvalue()


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
