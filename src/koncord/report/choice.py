"""How the number of clusters was chosen, where the aggregator tells: criteria against K, and the runners-up."""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from markupsafe import Markup

from koncord.aggregate.confidence import SINGLE_PEAK
from koncord.aggregate.diagnostics import KCandidate, KChoice
from koncord.model.globalmodel import GlobalModel
from koncord.report.cells import TableView, color, numeric, words
from koncord.report.conditions import n_set_aside
from koncord.report.numbers import fixed
from koncord.report.svg import tag

WIDTH, PANEL, LEFT, TOP, BETWEEN = 480.0, 150.0, 52.0, 22.0, 46.0
BOTTOM = 26.0
# Values of K that the table shows: those about the chosen one, and one cluster.
MOST_ROWS = 12
# A criterion, what it is, and the value to compare it with.
CURVES = (
    ("separation", "Silhouette above that of one Gaussian", 0.0),
    ("gap", "Gap: compactness above that of one Gaussian", 0.0),
)
STANDING_APART = ("least_apart", "Distance of the two clusters that are least apart", SINGLE_PEAK)


def choice(model: GlobalModel) -> Mapping[str, Any]:
    """The section, or nothing where no choice is known."""
    made = model.diagnostics.choice
    if not isinstance(made, KChoice):
        return {}
    return {
        "summary": summary(made, is_all_used=not n_set_aside(model)),
        "figure": figure(made),
        "captions": captions(made),
        "candidates": candidates(made),
        "runners_up": runners_up_table(model),
    }


def summary(made: KChoice, *, is_all_used: bool = True) -> str:
    """What was chosen, against what, in words."""
    chosen, runner_up = made.chosen, made.runner_up
    if len(made.candidates) < 2:
        return "The number of clusters was not given. The sites reported too little to look at more than one."
    reported = "what the sites reported" if is_all_used else "what the sites reported, less what was set aside,"
    said = (
        f"The number of clusters was not given. The server clustered {reported} for every K and compared each "
        "clustering with what the same reports would give if all rows came from one Gaussian. "
    )
    if chosen.n_clusters == 1:
        return said + "None is clearly more separated or more compact than that, so there is one cluster."
    if made.stands_apart:
        said += (
            f"{chosen.n_clusters} clusters stand apart from each other: each is at least "
            f"{fixed(chosen.least_apart, 1)} from its nearest, measured on the line that separates the two, in "
            "units of both spreads. Two halves of one Gaussian would be 1.3 apart, halves of any cloud with a single "
            "peak at most 1.7."
        )
        if runner_up is not None and runner_up.n_clusters > 1:
            said += f" With {runner_up.n_clusters} clusters, the least is {fixed(runner_up.least_apart, 1)}."
        return said
    said += (
        f"{chosen.n_clusters} clusters are the fewest that are nearly as separated as any and nearly as compact as "
        f"any of these: their silhouette is {fixed(chosen.separation, 3)} above that of the Gaussian, their gap "
        f"{fixed(chosen.gap, 3)}."
    )
    if runner_up is None:
        return said
    return said + (
        f" The runner-up is {runner_up.n_clusters}, with {fixed(runner_up.separation, 3)} and "
        f"{fixed(runner_up.gap, 3)}."
    )


def best_by_k(made: KChoice) -> list[KCandidate]:
    """The clustering of each K that counts: the chosen one, the runner-up, else the more separated one."""
    named = [each for each in (made.chosen, made.runner_up) if each]
    best: dict[int, KCandidate] = {}
    for each in made.candidates:
        k = each.n_clusters
        if k not in best or each in named or (best[k] not in named and each.separation > best[k].separation):
            best[k] = each
    return [best[k] for k in sorted(best)]


# --- the curves ---


def figure(made: KChoice) -> Markup | None:
    rows = best_by_k(made)
    if len(rows) < 3:
        return None
    curves = (STANDING_APART, *CURVES) if made.stands_apart else CURVES
    height = TOP + len(curves) * PANEL + (len(curves) - 1) * BETWEEN + BOTTOM
    panels = [
        part
        for at, (name, title, mark) in enumerate(curves)
        for part in panel(made, rows, name, title, mark, top=TOP + at * (PANEL + BETWEEN))
    ]
    return tag(
        "svg",
        *panels,
        class_="map",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label="The criteria against the number of clusters; the table below has the values.",
    )


def captions(made: KChoice) -> list[str]:
    """Sentences beside the curves."""
    first = (
        "From top to bottom: how far the two clusters are from each other that are least apart; how much larger the "
        "silhouette is than that of one Gaussian; how much more compact the clusters are"
        if made.stands_apart
        else "Above: how much larger the silhouette is than that of one Gaussian. Below: how much more compact the "
        "clusters are"
    )
    line = "1.7 at the top and 0 below" if made.stands_apart else "0"
    return [
        f"{first}, as a difference of logarithms. The ring is the chosen K"
        + (", the cross the runner-up" if made.runner_up else "")
        + f"; the dashed line is {line}.",
        "Here the clusters stand apart from each other, and that decided. Halves of any cloud with a single peak are "
        "at most 1.7 apart."
        if made.stands_apart
        else "Among the K whose silhouette is nearly the largest, the gap decides; among those with nearly the largest "
        "gap, the fewest clusters win.",
    ]


def panel(made: KChoice, rows: Sequence[KCandidate], name: str, title: str, mark: float, *, top: float) -> list[Markup]:
    """One criterion over log K, with a dashed line at `mark`."""
    rows = [each for each in rows if name != "least_apart" or each.n_clusters > 1]
    values = [float(getattr(each, name)) for each in rows]
    low, high = min(0.0, *values), max(mark, *values)
    reach = (high - low) or 1.0
    last = log(rows[-1].n_clusters)

    def place(each: KCandidate) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - 12) * log(each.n_clusters) / last
        return across, top + PANEL - 10 - (PANEL - 20) * (float(getattr(each, name)) - low) / reach

    dashed = top + PANEL - 10 - (PANEL - 20) * (mark - low) / reach
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, rows))
    parts = [
        tag("rect", class_="frame", x=f"{LEFT:g}", y=f"{top:g}", width=f"{WIDTH - LEFT - 1:g}", height=f"{PANEL:g}"),
        tag("text", title, class_="axis", x=f"{LEFT:g}", y=f"{top - 7:g}"),
        tag("path", class_="link", d=f"M{LEFT:g} {dashed:.1f}H{WIDTH - 1:g}", stroke_dasharray="4 4"),
        *(
            tag("text", fixed(value, 2), class_="axis", x=f"{LEFT - 6:g}", y=f"{y:.1f}", text_anchor="end")
            for value, y in ((high, top + 14), (low, top + PANEL - 6))
        ),
        *(
            tag(
                "text",
                str(k),
                class_="axis",
                x=f"{place(each)[0]:.1f}",
                y=f"{top + PANEL + 14:g}",
                text_anchor="middle",
            )
            for k, each in ticks(rows)
        ),
        tag("polyline", class_=f"ring {color(0)}", points=points),
    ]
    if made.runner_up in rows:
        x, y = place(made.runner_up)
        parts.append(tag("path", class_=f"ring {color(3)}", d=f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"))
    x, y = place(made.chosen)
    parts.append(tag("circle", class_=f"ring {color(3)}", cx=f"{x:.1f}", cy=f"{y:.1f}", r="7"))
    return parts


def ticks(rows: Sequence[KCandidate]) -> list[tuple[int, KCandidate]]:
    """Values of K that the axis names, as far as they were looked at."""
    by_k = {each.n_clusters: each for each in rows}
    return [(k, by_k[k]) for k in (1, 2, 3, 5, 10, 20, 30, 50, 100) if k in by_k]


# --- the tables ---


def candidates(made: KChoice) -> TableView:
    rows = best_by_k(made)
    ks = [each.n_clusters for each in rows]
    at = ks.index(made.chosen.n_clusters)
    first = max(min(at - MOST_ROWS // 2, len(rows) - MOST_ROWS), 0)
    shown = rows[first : first + MOST_ROWS]
    named = {made.chosen.n_clusters: "chosen"}
    if made.runner_up:
        named[made.runner_up.n_clusters] = "runner-up"
    shown += [each for each in rows if each.n_clusters in named and each not in shown]
    lines = [
        [
            str(each.n_clusters),
            fixed(each.least_apart, 1) if each.n_clusters > 1 else "",
            fixed(each.separation, 3),
            fixed(each.gap, 3),
            named.get(each.n_clusters, ""),
        ]
        for each in sorted(shown, key=lambda each: each.n_clusters)
    ]
    return TableView(
        caption=f"Numbers of clusters about the chosen one, of {len(rows)} that were looked at",
        columns=[*numeric("K", "least apart", "silhouette above one Gaussian", "gap"), *words("choice")],
        rows=lines,
    )


def runners_up_table(model: GlobalModel) -> TableView | None:
    """The next best numbers of clusters, and how much worse each is."""
    sure = model.confidence
    if sure is None or not sure.runners_up:
        return None
    return TableView(
        caption="Runners-up, best first, and by how much each is behind the chosen clusters",
        columns=numeric(
            "K", "least apart", "score for standing apart", "behind in it by", "in silhouette by", "in gap by"
        ),
        rows=[
            [
                str(each.n_clusters),
                fixed(each.least_apart, 1) if each.n_clusters > 1 else "",
                fixed(each.apart, 1),
                fixed(each.behind_apart, 1),
                fixed(each.behind_separation, 3),
                fixed(each.behind_gap, 2),
            ]
            for each in sure.runners_up
        ],
    )
