"""Draw the two synthetic figures of reproduction/docs/theory.md and write the numbers behind them.

One Gaussian cluster at a time, so every accepted split is spurious; the setup is that of the paper's appendix on the
synthetic validation of the split analysis, and `koncord reproduce synthetic` makes the same draws. Every random
stream is seeded by the name of what it draws, so neither the order nor the number of jobs changes a number.

    python reproduction/scripts/theory_figures.py --draws 50 --jobs 2
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from koncord_reproduction import theory
from koncord_reproduction.synthetic import (
    COUNT_DRAWS,
    DIMENSIONS,
    DRAWS,
    MIN_MASS,
    SIZES,
    SPLIT_FACTORS,
    anisotropies,
    anisotropy_by_level,
    component_counts,
    split_shares,
)

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
COUNT_SIZES = np.union1d(SIZES, [500])
FINE_SIZES = np.arange(200, 601, 20)

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS, help="clusters for each dimension, anisotropy and size")
    parser.add_argument("--fine-draws", type=int, default=400, help="clusters a size around the onset at d = 64")
    parser.add_argument(
        "--count-draws", type=int, default=COUNT_DRAWS, help="clusters a size for the components before merging"
    )
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the figures and numbers")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    grid = [(args.seed, "split", args.draws, d, r, SIZES) for d in DIMENSIONS for r in anisotropies(d)]
    fine = [(args.seed, "fine", args.fine_draws, 64, 1.0, sizes) for sizes in np.split(FINE_SIZES, 3)]
    counts = [(args.seed, args.count_draws, d, int(n)) for d, n in product(DIMENSIONS, COUNT_SIZES)]
    acceptance = flat(run(split_shares, grid, args.jobs, "split test"))
    fine_acceptance = flat(run(split_shares, fine, args.jobs, "round cluster at d = 64"))
    components = [
        summed_up(d, n, found)
        for (*_, d, n), found in zip(counts, run(component_counts, counts, args.jobs, "split stage"), strict=True)
    ]
    levels = anisotropy_by_level(args.seed, d=8, n=5000)

    onsets = onset_rows(acceptance)
    summary = summarize(acceptance, onsets, fine_acceptance, components, levels)
    tables = {
        "split_acceptance": acceptance + fine_acceptance,
        "split_onset": onsets,
        "components_before_merging": components,
        "anisotropy_by_level": levels,
        "summary": summary,
    }
    for name, rows in tables.items():
        write_csv(args.out / f"{name}.csv", rows)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        save(draw_onsets(onsets), args.out / "split_onset.png")
        save(draw_components(components), args.out / "components_before_merging.png")
    for row in summary:
        print(f"{row['what']:<60}  paper {row['paper']:>9}  ours {row['ours']}")


def run(work: Callable[..., Any], calls: Sequence[tuple[Any, ...]], n_jobs: int, what: str) -> list[Any]:
    """The result of every call, in order; progress goes to stderr."""
    start = time.monotonic()
    results = []
    with ProcessPoolExecutor(n_jobs) as pool:
        for done, result in enumerate(pool.map(work, *zip(*calls, strict=True)), start=1):
            results.append(result)
            print(f"{what}: {done} of {len(calls)}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return results


def flat(results: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for rows in results for row in rows]


# --- what the numbers say ---


def summed_up(d: int, n: int, counts: Sequence[int]) -> Row:
    return {
        "draws": len(counts),
        "d": d,
        "n": n,
        "median": float(np.median(counts)),
        "mean": round(float(np.mean(counts)), 2),
        "least": min(counts),
        "most": max(counts),
    }


def onset_rows(acceptance: Sequence[Row]) -> list[Row]:
    rows = []
    for d in DIMENSIONS:
        for r in anisotropies(d):
            here = [row for row in acceptance if row["d"] == d and row["r"] == round(r, 4)]
            sizes = [row["n"] for row in here]
            names = [*(f"asm_{factor:g}" for factor in SPLIT_FACTORS), "hard"]
            observed = {name: round(theory.observed_onset(sizes, [row[name] for row in here]), 1) for name in names}
            predicted = {
                "population": round(float(theory.critical_size(d, r)), 1),
                "sample": round(float(theory.sample_critical_size(d, r)), 1),
            }
            rows.append({"d": d, "r": round(r, 4), **predicted, **observed})
    return rows


def summarize(
    acceptance: Sequence[Row],
    onsets: Sequence[Row],
    fine: Sequence[Row],
    components: Sequence[Row],
    levels: Sequence[Row],
) -> list[Row]:
    """Every number of the page beside the paper's."""
    may_split = [row for row in acceptance if row["n"] >= 2 * MIN_MASS]
    said: list[tuple[str, str, str]] = []
    for rows, sizes in ((acceptance, "all sizes"), (may_split, f"n >= {2 * MIN_MASS}")):
        for kind, percents in (("sample", (97, 94, 97)), ("population", (90, 85, 92))):
            for d, percent in zip(DIMENSIONS, percents, strict=True):
                right = [row[f"{kind}_r_foresees_hard"] for row in rows if row["d"] == d]
                said.append((f"hard cut foreseen with {kind} r, d = {d}, {sizes}", f"{percent} %", per_cent(right)))
    for name, what, paper in (("hard", "hard cut", "248"), ("asm_1", "ASM", "450")):
        onset = theory.observed_onset([row["n"] for row in fine], [row[name] for row in fine])
        said.append((f"onset of a round cluster, {what}, d = 64, fine sizes", paper, f"{onset:.0f}"))
    for d, paper in ((8, "15 to 35"), (16, "15 to 35"), (64, "450")):
        onset = row_at(onsets, d=d, r=1.0)["asm_1"]
        said.append((f"onset of a round cluster, ASM, d = {d}, eighteen sizes", paper, f"{onset:.0f}"))
    ratios = [max(three) / min(three) for row in onsets if (three := [row[f"asm_{f:g}"] for f in SPLIT_FACTORS])]
    said.append(("largest ratio of two onsets, split factors 0.5, 1, 2", "unchanged", f"{max(ratios):.2f}"))
    agree = [row["factors_agree"] for row in acceptance]
    said.append(("draws decided alike by split factors 0.5, 1, 2", "unchanged", per_cent(agree)))
    for d, n, count in ((8, 5000, 470), (16, 5000, 320), (64, 5000, 16), (8, 500, 50), (16, 500, 20)):
        mean = row_at(components, d=d, n=n)["mean"]
        said.append((f"mean components before merging, d = {d}, n = {n}", f"{count}", f"{mean:.1f}"))
    for level, paper in ((0, "1.06"), (11, "2.7")):
        median = levels[level]["median_sample_r"]
        said.append((f"median sample r, {level} levels down, d = 8, n = 5000", paper, f"{median:.2f}"))
    return [{"what": what, "paper": paper, "ours": ours} for what, paper, ours in said]


def per_cent(shares: Sequence[float]) -> str:
    return f"{100 * np.mean(shares):.1f} %"


def row_at(rows: Sequence[Row], **at: float) -> Row:
    return next(row for row in rows if all(row[name] == value for name, value in at.items()))


# --- figures and files ---

BLACK, BLUE, GRAY = "black", "#1f5fa8", "#777777"


def draw_onsets(onsets: Sequence[Row]) -> Figure:
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    panels = figure.subplots(1, len(DIMENSIONS), sharey=True)
    for panel, d in zip(panels, DIMENSIONS, strict=True):
        rows = [row for row in onsets if row["d"] == d]
        r = np.array([row["r"] for row in rows])
        curve = np.geomspace(1, d / 2, 200)
        panel.plot(curve, theory.critical_size(d, curve), color=BLACK, lw=1.6)
        panel.plot(curve, theory.sample_critical_size(d, curve), color=BLACK, lw=1.2, ls=(0, (1, 1.5)))
        panel.axhline(2 * MIN_MASS, color=GRAY, lw=0.9, ls="--")
        hard = np.array([row["hard"] for row in rows])
        is_seen = hard > SIZES[0]
        panel.plot(r[is_seen], hard[is_seen], ls="", marker="s", ms=5, mfc="white", mec=BLACK)
        panel.plot(r[~is_seen], hard[~is_seen], ls="", marker="v", ms=5, mfc="white", mec=BLACK)
        panel.plot(r, [row["asm_1"] for row in rows], color=BLUE, lw=0.8, marker="o", ms=5)
        panel.set(xscale="log", yscale="log", ylim=(5, 1000), title=f"d = {d}", xlabel="anisotropy r of the cluster")
        label_plainly(panel.xaxis, [tick for tick in (1, 2, 4, 8, 16, 32) if tick <= d / 2])
        label_plainly(panel.yaxis, [5, 10, 20, 50, 100, 200, 500, 1000])
    panels[0].set_ylabel("rows n from which the cluster is split")
    label_onsets(panels)
    return figure


def label_onsets(panels: Sequence[Any]) -> None:
    """Name each curve where it stands apart from the others."""
    low, _, high = panels
    leader = {"arrowstyle": "-", "lw": 0.6, "shrinkB": 3}
    low.text(1.45, 46, "predicted\nwith population r", va="bottom")
    low.text(1.0, 19, "observed: ASM", color=BLUE, va="bottom")
    low.text(1.0, 7.9, "observed: hard cut, at every size tried", va="center", fontsize=8)
    up, right = {**leader, "relpos": (0.2, 1.0)}, {**leader, "relpos": (1.0, 0.5)}
    high.annotate("predicted\nwith sample r", (1.2, 250), (1.0, 95), va="center", arrowprops=up)
    high.annotate("observed:\nhard cut", (6.3, 40.8), (1.0, 36), va="center", arrowprops=right)
    high.text(1.0, 9.4, "twice the minimum mass", color=GRAY, va="top", fontsize=8)


def draw_components(components: Sequence[Row]) -> Figure:
    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.subplots()
    sizes = np.array([2 * MIN_MASS, SIZES[-1]])
    axes.plot(sizes, sizes / (2 * MIN_MASS), color=GRAY, lw=1.0, ls="--")
    axes.annotate(
        "n / (2 min_mass)", (150, 15), (60, 40), color=GRAY, arrowprops={"arrowstyle": "-", "color": GRAY, "lw": 0.6}
    )
    for d, marker, shade in zip(DIMENSIONS, "os^", (BLACK, BLUE, BLACK), strict=True):
        rows = [row for row in components if row["d"] == d and row["n"] in SIZES]
        n, median = [row["n"] for row in rows], [row["median"] for row in rows]
        axes.plot(n, median, color=shade, lw=1.0, marker=marker, ms=4.5, mfc="white" if d == 64 else shade)
        axes.annotate(f"d = {d}", (n[-1], median[-1]), (7, 0), textcoords="offset points", va="center", color=shade)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(5, 9000),
        xlabel="rows n of one round cluster",
        ylabel="components before merging (correct: 1)",
    )
    label_plainly(axes.xaxis, [10, 30, 100, 300, 1000, 5000])
    label_plainly(axes.yaxis, [1, 3, 10, 30, 100, 300])
    return figure


def label_plainly(axis: Any, ticks: Sequence[int]) -> None:
    axis.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axis.set_ticks([], minor=True)


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=160, metadata={"Software": None})


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
