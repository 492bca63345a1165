"""Draws the figures of docs/consensus.md from the rows that benchmarks/accuracy.py stored.

    .venv/bin/python scripts/consensus_figures.py DIR

DIR is the folder given to the benchmark as --out; a figure whose rows are not there is left as it is.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from koncord_reproduction.rows import Row, read_rows
from koncord_reproduction.store import ROWS

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
FLOOR = "consensus/floor-"
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7A6A00", "#555555")


def floor_figure(rows: list[Row]) -> Figure:
    """ARI and K / K* against the disclosure floor, one line a data set, both regimes and all seeds averaged."""
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for at, name in enumerate(sorted({row.dataset for row in rows})):
        own = [row for row in rows if row.dataset == name]
        floors = sorted({floor_of(row) for row in own})
        at_floor = [[row for row in own if floor_of(row) == floor] for floor in floors]
        color = COLORS[at % len(COLORS)]
        left.plot(floors, [np.mean([row.values["ari"] for row in each]) for each in at_floor], "o-", color=color)
        shares = [np.mean([row.values["k"] / row.values["true_k"] for row in each]) for each in at_floor]
        right.plot(floors, shares, "o-", color=color, label=name)
    left.set_ylabel("ARI of held-out rows")
    right.set_ylabel("K found / number of classes")
    right.axhline(1.0, color="#999999", lw=0.8, ls="--")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(sorted({floor_of(row) for row in rows}))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_xlabel("min_report: rows that a micro-cluster or a sum stands for at least")
        axes.grid(visible=True, color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def floor_of(row: Row) -> int:
    return int(row.method.removeprefix(FLOOR))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    rows = [row for row in read_rows(parser.parse_args().folder / ROWS).values() if row.is_done]
    floors = [row for row in rows if row.method.startswith(FLOOR)]
    if floors:
        floor_figure(floors).savefig(FIGURES / "consensus-floor.png", dpi=150, metadata={"Software": None})
        print(f"{FIGURES / 'consensus-floor.png'}: {len(floors)} runs")


if __name__ == "__main__":
    main()
