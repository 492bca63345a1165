"""The map of a federation as SVG: its global centers and the local components behind them. Parameters, no rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
from markupsafe import Markup

from koncord._words import counted
from koncord.model.globalmodel import GlobalModel
from koncord.report.cells import color
from koncord.report.conditions import has_micro_clusters
from koncord.report.svg import tag
from koncord.runs.sites import shown_sites
from koncord.types import BoolArray, FloatArray, IntArray

WIDTH, HEIGHT = 480.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 1.0, 1.0, 24.0, 24.0
RING, MARK = 10.0, 4.2
LABEL_HEIGHT, LETTER_WIDTH, GAP = 14.0, 10.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """Centers and components on two axes."""

    centers: FloatArray  # (k, 2)
    components: FloatArray  # (m, 2)
    groups: IntArray  # (m,) cluster of each component
    excluded: BoolArray  # (m,) whether it was set aside, and is in no cluster
    sites: tuple[str, ...]  # (m,) site of each component
    shares: tuple[float, float]  # of the variance of what is drawn
    is_line: bool  # one column: components are set apart by site, and the height means nothing


def plane_of(model: GlobalModel) -> Plane:
    """Centers and components on their first two principal axes."""
    sites = [site for site in shown_sites(model) if site in model.components and site in model.groups]
    components = np.concatenate([np.empty((0, len(model.columns))), *(model.components[site] for site in sites)])
    groups = np.concatenate([np.empty(0, dtype=np.int64), *(model.groups[site] for site in sites)])
    excluded = [model.excluded.get(site, np.zeros(len(model.groups[site]), dtype=np.bool_)) for site in sites]
    owners = tuple(site for site in sites for _ in range(len(model.components[site])))
    points, shares = on_two_axes(np.concatenate([model.centers, components]))
    is_line = len(model.columns) == 1
    if is_line:
        at = {site: place for place, site in enumerate(sites)}
        reach = float(np.ptp(points[:, 0])) or 1.0
        heights = [0.0] * model.n_clusters + [-(at[site] + 1) / (len(sites) + 1) for site in owners]
        points[:, 1] = 0.6 * reach * np.array(heights)
    return Plane(
        centers=points[: model.n_clusters],
        components=points[model.n_clusters :],
        groups=groups,
        excluded=np.concatenate([np.empty(0, dtype=np.bool_), *excluded]),
        sites=owners,
        shares=shares,
        is_line=is_line,
    )


def on_two_axes(points: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Points (n, d) on their first two principal axes, (n, 2), and the share of their variance on each.

    An axis that is not there is zero. The largest coefficient of an axis is positive, so that the map is always the
    same way round.
    """
    centered = points - points.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centered, full_matrices=False)
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    flat = np.zeros((len(points), 2))
    n_axes = min(2, len(axes))
    flat[:, :n_axes] = centered @ axes[:n_axes].T
    total = float((lengths**2).sum())
    shares = [float(length**2 / total) if total > 0 else 0.0 for length in lengths[:n_axes]] + [0.0, 0.0]
    return flat, (shares[0], shares[1])


def parameter_map(model: GlobalModel, plane: Plane) -> Markup:
    """The SVG element, with a title and a description in words."""
    centers, components = on_canvas(plane)
    n_aside = int(plane.excluded.sum())
    part = ("micro-cluster", "micro-clusters") if has_micro_clusters(model) else ("local component", "local components")
    title = f"Map of {counted(model.n_clusters, 'global center')}"
    what = ""
    if len(components):
        title += f" and {counted(len(components), *part)}"
        what = (
            f"{counted(len(components) - n_aside, *part)} of {counted(len(set(plane.sites)), 'site')}, drawn as small "
            "marks, each joined by a line to the center of the global cluster it went into. "
        )
    if n_aside:
        what += f"{counted(n_aside, 'mark')} without a line: set aside. "
    description = (
        f"Each global center is a ring with the number of its cluster. {what}"
        "Near on the map means alike, as far as two axes can show."
    )
    drawn = [
        tag("title", title, id="map-title"),
        tag("desc", description, id="map-desc"),
        *frame(plane),
        *(
            line(mark, centers[group], group)
            for mark, group, is_aside in zip(components, plane.groups.tolist(), plane.excluded, strict=True)
            if not is_aside
        ),
        *(ring(center, number) for number, center in enumerate(centers)),
        *marks(plane, components, part[0]),
        *labels(centers, components),
    ]
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        class_="map",
        role="img",
        aria_labelledby="map-title map-desc",
    )


def on_canvas(plane: Plane) -> tuple[FloatArray, FloatArray]:
    """Positions of centers and components, one scale for both axes, so that distances compare in every direction."""
    points = np.concatenate([plane.centers, plane.components])
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([WIDTH - LEFT - RIGHT - 6 * RING, HEIGHT - TOP - BOTTOM - 6 * RING])
    spans = high - low
    scales = [room[axis] / spans[axis] for axis in (0, 1) if spans[axis] > 0]
    scale = min(scales, default=1.0)
    middle = np.array([(LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2])
    placed = middle + (points - (low + high) / 2) * scale * np.array([1.0, -1.0])
    return placed[: len(plane.centers)], placed[len(plane.centers) :]


def frame(plane: Plane) -> list[Markup]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    across = "the only column" if plane.is_line else f"principal axis 1 ({plane.shares[0]:.0%} of the variance drawn)"
    up = "one line a site" if plane.is_line else f"principal axis 2 ({plane.shares[1]:.0%})"
    return [
        tag("rect", x=LEFT, y=TOP, width=right - LEFT, height=bottom - TOP, class_="frame"),
        tag("text", across, x=right, y=bottom + 17, text_anchor="end", class_="axis"),
        tag("text", up, x=LEFT, y=TOP - 8, class_="axis"),
    ]


def line(mark: FloatArray, center: FloatArray, cluster: int) -> Markup:
    (x1, y1), (x2, y2) = mark, center
    return tag("line", x1=at(x1), y1=at(y1), x2=at(x2), y2=at(y2), class_=f"link {color(cluster)}")


def ring(center: FloatArray, cluster: int) -> Markup:
    return tag("circle", cx=at(center[0]), cy=at(center[1]), r=at(RING), class_=f"ring {color(cluster)}")


def marks(plane: Plane, components: FloatArray, part: str) -> list[Markup]:
    """One small mark a component; hovering over it names the site."""
    drawn = []
    seen: dict[str, int] = {}
    each = zip(components, plane.groups.tolist(), plane.excluded, plane.sites, strict=True)
    for (x, y), group, is_aside, site in each:
        number = seen.get(site, 0)
        seen[site] = number + 1
        went = "set aside" if is_aside else f"cluster {group}"
        said = tag("title", f"{site}, {part} {number}: {went}")
        shape, kind = (SITE_MARKS[0], "aside") if is_aside else (SITE_MARKS[group % len(SITE_MARKS)], color(group))
        outline = " ".join(f"{at(x + MARK * dx)},{at(y + MARK * dy)}" for dx, dy in shape)
        drawn.append(tag("polygon", said, points=outline, class_=f"mark {kind}"))
    return drawn


def labels(centers: FloatArray, components: FloatArray) -> list[Markup]:
    """The number of each cluster beside its ring, where it covers least of what is drawn already."""
    taken: list[tuple[float, float, float, float]] = [
        (x - RING, y - RING, x + RING, y + RING) for x, y in centers.tolist()
    ] + [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in components.tolist()]
    drawn = []
    for number, (x, y) in enumerate(centers.tolist()):
        half_width = LETTER_WIDTH * len(str(number)) / 2
        reach_x, reach_y = RING + half_width + GAP, RING + LABEL_HEIGHT / 2 + GAP / 2
        places = [(x + reach_x * dx, y + reach_y * dy) for dx, dy in AROUND]
        boxes = [(px - half_width, py - LABEL_HEIGHT / 2, px + half_width, py + LABEL_HEIGHT / 2) for px, py in places]
        best = min(range(len(boxes)), key=lambda place: (round(covered(boxes[place], taken), 3), place))
        taken.append(boxes[best])
        px, py = places[best]
        drawn.append(tag("text", str(number), x=at(px), y=at(py + 5.5), text_anchor="middle", class_="label"))
    return drawn


def covered(box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]) -> float:
    """Area of `box` that others cover, each counted for itself, or that lies off the canvas."""
    area = sum(overlap(box, other) for other in taken)
    inside = overlap(box, (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM))
    return area + (box[2] - box[0]) * (box[3] - box[1]) - inside


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def at(position: float) -> str:
    return f"{position:.1f}".removesuffix(".0")


def polygon(n_corners: int, first: float, *, inner: float = 1.0, size: float = 1.0) -> list[tuple[float, float]]:
    """Corners on a circle, from the angle `first`; with `inner`, every second one lies that much further in."""
    return [
        (size * (inner if corner % 2 else 1.0) * cos(angle), size * (inner if corner % 2 else 1.0) * sin(angle))
        for corner in range(n_corners)
        for angle in [first + 2 * pi * corner / n_corners]
    ]


# A disc, triangle up, square, diamond, triangle down, star, plus.
SITE_MARKS = (
    polygon(14, 0.0),
    polygon(3, -pi / 2, size=1.35),
    polygon(4, pi / 4, size=1.25),
    polygon(4, 0.0, size=1.35),
    polygon(3, pi / 2, size=1.35),
    polygon(10, -pi / 2, inner=0.45, size=1.5),
    [
        (x * 1.3, y * 1.3)
        for x, y in (
            (-0.35, -1),
            (0.35, -1),
            (0.35, -0.35),
            (1, -0.35),
            (1, 0.35),
            (0.35, 0.35),
            (0.35, 1),
            (-0.35, 1),
            (-0.35, 0.35),
            (-1, 0.35),
            (-1, -0.35),
            (-0.35, -0.35),
        )
    ],
)
AROUND = ((0.0, -1.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.85, -0.85), (-0.85, -0.85), (0.85, 0.85), (-0.85, 0.85))
