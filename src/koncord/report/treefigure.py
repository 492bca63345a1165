"""The nested answers as a drawing: from one cluster at the left to the finest ones at the right, d' at every join."""

from markupsafe import Markup

from koncord.kernels.tree import ClusterTree
from koncord.model.globalmodel import GlobalModel
from koncord.report.cells import TableView, color, numeric, words
from koncord.report.numbers import fixed
from koncord.report.svg import tag

WIDTH, LEFT, RIGHT, TOP, BOTTOM, LINE = 480.0, 34.0, 22.0, 12.0, 34.0, 27.0
# Clusters at the right end at most: more lines could not be read.
MOST_DRAWN = 24
MOST_TICKS = 12


def tree_drawing(model: GlobalModel) -> Markup:
    """The tree with at most `MOST_DRAWN` clusters at its right end."""
    tree = model.tree
    assert tree is not None
    last = min(tree.n_leaves, MOST_DRAWN)
    heights = heights_of(tree, last)
    n_lines = int(max(heights.values())) + 1
    height = TOP + n_lines * LINE + BOTTOM

    def across(k: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (k - 1) / max(last - 1, 1)

    def down(node: int) -> float:
        return TOP + (heights[node] + 0.5) * LINE

    bottom = TOP + n_lines * LINE
    parts = [
        tag("rect", class_="frame", x="1", y="1", width=f"{WIDTH - 2:g}", height=f"{bottom + 6:.1f}"),
        *(
            tag("text", str(k), class_="axis", x=f"{across(k):.1f}", y=f"{bottom + 22:.1f}", text_anchor="middle")
            for k in k_ticks(last, model.n_clusters)
        ),
        tag("text", "K", class_="axis", x="6", y=f"{bottom + 22:.1f}"),
    ]
    if model.n_clusters <= last:
        at = across(model.n_clusters)
        parts.append(tag("path", class_="link", d=f"M{at:.1f} {TOP:g}V{bottom:.1f}", stroke_dasharray="4 4"))
    for node in heights:
        start, end = spans(tree, node, last)
        y = down(node)
        parts.append(tag("path", class_="ring branch", d=f"M{across(start):.1f} {y:.1f}H{across(end):.1f}"))
    labels = []
    for join, (one, other) in enumerate(tree.joins.tolist()):
        k = tree.n_leaves - join  # clusters before the two become one
        if k > last:
            continue
        x, low, high = across(k - 0.5), down(one), down(other)
        parts.append(tag("path", class_="ring branch", d=f"M{x:.1f} {low:.1f}V{high:.1f}"))
        apart = fixed(float(tree.apart[join]), 1)
        middle = (low + high) / 2  # between the two branches, where there is room
        labels.append(tag("text", apart, class_="axis", x=f"{x + 4:.1f}", y=f"{middle + 4:.1f}"))
    if model.n_clusters <= last:
        for cluster, node in enumerate(tree.nodes_at(model.n_clusters).tolist()):
            x, y = across(model.n_clusters), down(node)
            labels.append(tag("circle", class_=f"dot {color(cluster)}", cx=f"{x:.1f}", cy=f"{y:.1f}", r="9"))
            labels.append(
                tag("text", str(cluster), class_="label", x=f"{x:.1f}", y=f"{y + 5:.1f}", text_anchor="middle")
            )
    return tag(
        "svg",
        *parts,
        *labels,
        class_="map tree",
        viewBox=f"0 0 {WIDTH:g} {height:.1f}",
        role="img",
        aria_label="Tree of the clusters: which are joined where there are fewer, and how far apart they are. The "
        "table below says the same.",
    )


def heights_of(tree: ClusterTree, last: int) -> dict[int, float]:
    """The line of every node that is drawn: leaves of the drawing one below the other, joins between their parts."""
    ends = set(tree.nodes_at(last).tolist())
    order: list[int] = []
    waiting = [2 * tree.n_leaves - 2]
    heights: dict[int, float] = {}
    n_ends = 0
    while waiting:  # from the root, depth first, so that no two branches cross
        node = waiting.pop()
        order.append(node)
        if node in ends:
            heights[node] = float(n_ends)
            n_ends += 1
        else:
            waiting += sorted(tree.joins[node - tree.n_leaves].tolist(), key=tree.first_leaf, reverse=True)
    for node in reversed(order):
        if node not in heights:
            one, other = tree.joins[node - tree.n_leaves].tolist()
            heights[node] = (heights[one] + heights[other]) / 2
    return heights


def spans(tree: ClusterTree, node: int, last: int) -> tuple[float, float]:
    """From which K to which a node is there, as the drawing has it."""
    n = tree.n_leaves
    joined = [at for at, pair in enumerate(tree.joins.tolist()) if node in pair]
    start = n - joined[0] - 0.5 if joined else 1.0
    made = node - n
    return start, min(n - made - 0.5 if made >= 0 else n, last)


def k_ticks(last: int, k: int) -> list[int]:
    """Values of K below the drawing: all of a few, the ends and the found one of many."""
    if last <= MOST_TICKS:
        return list(range(1, last + 1))
    step = 5
    return sorted({1, last, *([k] if k <= last else []), *(at for at in range(step, last, step) if abs(at - k) > 1)})


def tree_table(model: GlobalModel) -> TableView:
    """One row a number of clusters: what the found clusters are there, and how far apart the next to be joined are."""
    tree = model.tree
    assert tree is not None
    own = tree.labels_at(model.n_clusters)
    rows = []
    for k in range(1, tree.n_leaves + 1):
        apart = tree.apart_at(k)
        rows.append([str(k), "" if apart is None else fixed(apart, 1), made_of(tree, own.tolist(), k)])
    return TableView(
        caption="Each number of clusters, how far apart the two are that are joined next, and which those found are",
        columns=[*numeric("K", "least apart"), *words("clusters")],
        rows=rows,
    )


def made_of(tree: ClusterTree, own: list[int], k: int) -> str:
    """The clusters at K in terms of those found: joined ones by a plus sign, cut ones with the number of parts."""
    labels = tree.labels_at(k).tolist()
    groups = [sorted({mine for mine, there in zip(own, labels, strict=True) if there == at}) for at in range(k)]
    if k <= len(set(own)):
        return ", ".join("+".join(map(str, group)) for group in groups)
    n_parts = {cluster: sum(cluster in group for group in groups) for cluster in sorted(set(own))}
    return ", ".join(str(cluster) if n == 1 else f"{cluster} in {n} parts" for cluster, n in n_parts.items())
