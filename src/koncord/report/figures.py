"""Figures of an estimate, as matplotlib figures that nobody has written yet (extra ``koncord[report]``)."""

from collections.abc import Sequence
from io import BytesIO
from math import isnan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from sklearn.decomposition import PCA

from koncord._words import counted
from koncord.estimate.search import GridResult, best_configuration
from koncord.report.tables import count_rows
from koncord.types import BoolArray, FloatArray, IntArray

# More points than this are a blot, not a picture.
MOST_POINTS = 20_000
# Okabe and Ito's colors, which color-blind readers can distinguish. Seven shapes against eight colours: no two of 56
# components share both, and in grey the shapes and the numbers remain.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7A6A00", "#555555")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
INK = "#222222"
# From here on the numbers at the means are small.
MANY_COMPONENTS = 30


def estimate_figure(
    X: FloatArray, labels: IntArray, means: FloatArray, candidates: Sequence[GridResult], *, title: str
) -> Figure:
    """Rows on their first two principal axes, by component; beside it, if there was a choice, K against silhouette.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        That was fitted.
    labels : ndarray of int
        Component of every row.
    means : array (n_components, n_features)
    candidates : sequence of Candidate
        The configurations that were scored, in grid order; none leaves out the second panel.
    """
    figure = Figure(figsize=(11.5 if candidates else 6.2, 5.4), layout=ConstrainedLayoutEngine(w_pad=0.12))
    axes = figure.subplots(1, 2 if candidates else 1, squeeze=False, width_ratios=(1.25, 1) if candidates else (1,))[0]
    figure.suptitle(title, color=INK)
    draw_components(axes[0], X, labels, means)
    if candidates:
        draw_choice(axes[1], candidates, n_components=len(means))
    return figure


def as_png(figure: Figure) -> bytes:
    """The same figure always gives the same bytes."""
    image = BytesIO()
    figure.savefig(image, format="png", dpi=150, metadata={"Software": None})
    return image.getvalue()


def draw_components(axes: Axes, X: FloatArray, labels: IntArray, means: FloatArray) -> None:
    drawn = thinned(len(X))
    rows = X[drawn]
    points, centers, shares = on_principal_axes(rows, means)
    is_line = X.shape[1] == 1
    if is_line:  # points that differ in one number only are spread at random, to be seen
        points[:, 1] = np.random.default_rng(0).uniform(-1, 1, len(points))
    is_shown = near_the_bulk(points, centers)
    size = float(np.clip(12_000 / len(rows), 5, 40))
    for number in range(len(means)):
        members = points[is_shown & (labels[drawn] == number)]
        axes.scatter(
            members[:, 0],
            members[:, 1],
            s=size,
            marker=MARKERS[number % len(MARKERS)],
            color=COLORS[number % len(COLORS)],
            alpha=0.55,
            linewidths=0,
        )
    few = len(means) <= MANY_COMPONENTS
    for number, (x, y) in enumerate(centers):
        axes.annotate(
            str(number),
            (x, y),
            ha="center",
            va="center",
            fontsize=9 if few else 5.5,
            fontweight="bold",
            color="white",
            bbox={
                "boxstyle": f"circle,pad={0.25 if few else 0.1}",
                "facecolor": INK,
                "edgecolor": "white",
                "linewidth": 1.0 if few else 0.4,
            },
            zorder=3,
        )
    axes.set_title("Components, numbered at their means", fontsize=10, color=INK)
    axes.set_aspect("auto" if is_line else "equal", adjustable="datalim")  # a round component looks round
    n_outside = int((~is_shown).sum())
    notes = [f"{len(rows):,} of {len(X):,} rows, drawn at random"] if len(rows) < len(X) else []
    notes += [f"{counted(n_outside, 'row')} outside the frame"] if n_outside else []
    remark(axes, "; ".join(notes))
    axes.set_xlabel("the only column" if is_line else f"principal axis 1 ({shares[0]:.0%} of the variance)")
    axes.set_ylabel("spread at random, to be seen" if is_line else f"principal axis 2 ({shares[1]:.0%})")
    tidy(axes)


def draw_choice(axes: Axes, candidates: Sequence[GridResult], *, n_components: int) -> None:
    scored = [candidate for candidate in candidates if not isnan(candidate.score)]
    axes.scatter(
        [candidate.n_components for candidate in scored],
        [candidate.score for candidate in scored],
        s=22,
        facecolors="none",
        edgecolors=COLORS[0],
        alpha=0.6,
        label="a configuration",
    )
    best = [row for row in count_rows(candidates) if not isnan(row.score)]
    axes.plot(
        [row.n_components for row in best], [row.score for row in best], color=COLORS[0], lw=1.2, label="best of each K"
    )
    chosen = best_configuration(candidates)
    if scored:
        axes.scatter(
            [chosen.n_components],
            [chosen.score],
            s=190,
            marker="*",
            color=COLORS[3],
            edgecolors=INK,
            zorder=3,
            label=f"chosen: K = {chosen.n_components}"
            + (f", on all rows {n_components}" if chosen.n_components != n_components else ""),
        )
        axes.legend(frameon=False, fontsize=9)
    axes.set_title("Choice, fitted without the held-out rows", fontsize=10, color=INK)
    axes.set_xlabel("K, components found")
    axes.set_ylabel("silhouette of held-out rows")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    n_unscored = len(candidates) - len(scored)
    remark(axes, f"{n_unscored} of {len(candidates)} configurations have no silhouette" if n_unscored else "")
    tidy(axes)


def near_the_bulk(points: FloatArray, centers: FloatArray) -> BoolArray:
    """Which points to show: all but a few that are so far off that they would flatten the rest. Every mean fits."""
    low, high = np.quantile(points, (0.001, 0.999), axis=0)
    margin = 0.3 * (high - low).max()
    low, high = np.minimum(low - margin, centers.min(axis=0)), np.maximum(high + margin, centers.max(axis=0))
    shown: BoolArray = ((points >= low) & (points <= high)).all(axis=1)
    return shown


def remark(axes: Axes, text: str) -> None:
    axes.text(0.02, 0.02, text, transform=axes.transAxes, fontsize=8, color=INK)


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def thinned(n_rows: int) -> IntArray:
    """The rows to draw: all, or as many at random as a picture can show, the same ones every time."""
    if n_rows <= MOST_POINTS:
        return np.arange(n_rows)
    return np.random.default_rng(0).choice(n_rows, MOST_POINTS, replace=False)


def on_principal_axes(rows: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows and means on the first two principal axes of the rows, and the share of the variance on each.

    An axis that is not there, as in a table of one column or one row, is zero.
    """
    n_axes = min(2, *rows.shape)
    points, centers, shares = np.zeros((len(rows), 2)), np.zeros((len(means), 2)), np.zeros(2)
    if (rows == rows[0]).all():
        return points, centers, shares
    model = PCA(n_components=n_axes, random_state=0).fit(rows)
    points[:, :n_axes], centers[:, :n_axes] = model.transform(rows), model.transform(means)
    shares[:n_axes] = model.explained_variance_ratio_
    return points, centers, shares
