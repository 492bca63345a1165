"""What to believe of the clusters, in words: how far they stand apart, who supports them, what one more would be.

No sentence rests on a silhouette: that of a far-off handful of rows is large, and that of real clusters that touch is
small.
"""

from collections.abc import Sequence

from koncord._words import counted, joined
from koncord.aggregate.confidence import (
    DISSOLVES,
    HALVES_OF_A_GAUSSIAN,
    NO_VALLEY,
    SINGLE_PEAK,
    STABLE,
    ClusterConfidence,
    Confidence,
)
from koncord.model.globalmodel import GlobalModel

NOT_TESTABLE = "not testable"
MOST_PAIRS = 4  # of clusters that a sentence names
ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth")


def belief(model: GlobalModel) -> str:
    """One line that says what to believe."""
    sure = model.confidence
    if sure is None and model.session.privacy and model.diagnostics.choice is not None:
        return "Beside a privacy budget how sure the clusters are is not known: sites send noisy sums of them."
    if sure is None:
        return (
            "This method does not tell how sure its clusters are; compare it with another one, such as consensus, "
            "before you rely on them."
        )
    return " ".join(filter(None, [about_distances(sure), about_fewer(model), about_next(sure)]))


def sentences(model: GlobalModel) -> list[str]:
    """The line that says what to believe, then what else speaks for and against it."""
    sure = model.confidence
    if sure is None:
        return [belief(model)]
    effects = site_effects(model)
    said = [
        belief(model),
        about_valleys(sure),
        about_site_effects(effects),
        about_sites(sure, effects),
        about_stability(sure),
        about_draws(sure),
    ]
    return [each for each in said if each]


def about_distances(sure: Confidence) -> str:
    """How far the clusters stand apart, against what cuts through one cloud would give."""
    k, least = len(sure.clusters), sure.least_apart
    if least is None:
        return "One cluster: nothing stands apart by more than chance gives one Gaussian."
    if least >= SINGLE_PEAK:
        return (
            f"Each cluster is at least {least:.1f} from its nearest; halves of a cloud with a single peak would be at "
            f"most {SINGLE_PEAK:.1f} apart."
        )
    near = [at for at, each in enumerate(sure.clusters) if each.apart is not None and each.apart < SINGLE_PEAK]
    closest = sure.clusters[min(near, key=lambda at: sure.clusters[at].apart or 0.0)]
    pair = sorted((sure.clusters.index(closest), closest.nearest or 0))
    who = "No cluster stands" if len(near) == k else f"{counted(k - len(near), 'cluster')} of {k} stand"
    if k - len(near) == 1:
        who += "s"
    as_what = (
        f"no more than two halves of one Gaussian ({HALVES_OF_A_GAUSSIAN:.1f})"
        if least <= HALVES_OF_A_GAUSSIAN
        else f"which a cut through a skewed or flat cloud can give too (at most {SINGLE_PEAK:.1f})"
    )
    return f"{who} clearly apart from all others; {pair[0]} and {pair[1]} are {least:.1f} from each other, {as_what}."


def about_fewer(model: GlobalModel) -> str | None:
    """The most clusters of the tree that do stand apart, where those found do not."""
    sure, tree = model.confidence, model.tree
    if sure is None or tree is None or sure.least_apart is None or sure.least_apart >= SINGLE_PEAK:
        return None
    levels = {k: tree.apart_at(k) or 0.0 for k in range(2, len(sure.clusters))}
    k = max((k for k, apart in levels.items() if apart >= SINGLE_PEAK), default=None)
    return None if k is None else f"Joined into {k}, each would be at least {levels[k]:.1f} from its nearest."


def about_next(sure: Confidence) -> str | None:
    """What one more cluster would be."""
    cut = sure.next_cut
    if cut is None:
        return None
    k = len(sure.clusters)
    rows = [each.rows for each in sure.clusters]
    what = f"cluster {cut.cluster}"
    if k == 1:
        what = "it"
    elif rows[cut.cluster] == max(rows):
        what = f"the largest, {cut.cluster},"
    said = f"A {ordinal(k + 1)} would cut {what} at {cut.apart:.1f}"
    if k > 1 and cut.apart >= SINGLE_PEAK:
        return f"{said}, which stands apart too: there may be more clusters."
    return f"{said}."


def about_valleys(sure: Confidence) -> str | None:
    """Clusters that run into their nearest one, and how many there would be without these cuts.

    Not those farther apart than halves of a single peak: few micro-clusters of a small one may hide a valley.
    """
    pairs = {
        (min(at, each.nearest), max(at, each.nearest))
        for at, each in enumerate(sure.clusters)
        if each.nearest is not None and each.apart is not None and each.apart < SINGLE_PEAK
        if each.valley is not None and each.valley < NO_VALLEY
    }
    if not pairs:
        return None
    named = [f"{one} and {other}" for one, other in sorted(pairs)]
    if len(named) > MOST_PAIRS:
        named = [*named[:MOST_PAIRS], f"{len(named) - MOST_PAIRS} more pairs"]
    groups = list(range(len(sure.clusters)))
    for one, other in pairs:
        groups = [groups[one] if each == groups[other] else each for each in groups]
    return (
        f"The density has no valley between clusters {'; '.join(named)}: rare clusters that touch a frequent one look "
        f"so, and so do parts of one cluster. With these joined, K would be {len(set(groups))}."
    )


def site_effects(model: GlobalModel) -> tuple[int, ...]:
    """Clusters of one site alone that others hold, too, with their offsets taken out."""
    calibration = model.diagnostics.calibration
    return () if calibration is None else calibration.site_effects


def about_site_effects(effects: Sequence[int]) -> str | None:
    """Clusters that are there because a site measures otherwise, not because its rows are others."""
    if not effects:
        return None
    which = (
        f"Cluster {effects[0]} is a site effect"
        if len(effects) == 1
        else f"Clusters {joined(list(map(str, effects)))} are site effects"
    )
    return (
        f"{which}, not more structure: one site alone supports each, and others hold the same shape, shifted. "
        "--harmonize aligns the sites."
    )


def about_sites(sure: Confidence, effects: Sequence[int] = ()) -> str | None:
    """Clusters that a single site holds: nobody else can confirm them."""
    if not sure.n_draws:
        return "Only one site reported micro-clusters, so no cluster can be looked for without it."
    alone = [str(at) for at, each in enumerate(sure.clusters) if each.sites == 1 and at not in effects]
    if not alone or len(sure.clusters) == 1:
        return None
    which = f"Cluster {alone[0]} is" if len(alone) == 1 else f"Clusters {joined(alone)} are each"
    return f"{which} supported by a single site: whether other sites would show it cannot be tested."


def about_stability(sure: Confidence) -> str | None:
    """Whether clusters come back with half of the sites."""
    tested = {at: each.stability for at, each in enumerate(sure.clusters) if each.stability is not None}
    if not tested or len(sure.clusters) == 1:
        return None
    gone = {at: value for at, value in tested.items() if value < DISSOLVES}
    if gone:
        named = joined([f"{at} ({value:.2f})" for at, value in gone.items()])
        return f"With half of the sites, {'cluster' if len(gone) == 1 else 'clusters'} {named} dissolve."
    shaky = {at: value for at, value in tested.items() if value < STABLE}
    if shaky:
        named = joined([f"{at} ({value:.2f})" for at, value in shaky.items()])
        return f"With half of the sites, {'cluster' if len(shaky) == 1 else 'clusters'} {named} come back in part only."
    every = "every cluster" if len(tested) == len(sure.clusters) else "every cluster that can be tested"
    return f"With half of the sites, {every} comes back (at least {min(tested.values()):.2f} of its rows)."


def about_draws(sure: Confidence) -> str | None:
    """What other draws of the sites would choose."""
    if not sure.resampled:
        return None
    k = len(sure.clusters)
    own = sum(each.share for each in sure.resampled if each.n_clusters == k)
    others = [each.n_clusters for each in sure.resampled if each.n_clusters != k]
    said = f"Of {sure.n_draws} draws of the sites with replacement, {own:.0%} give K = {k}"
    return f"{said}." if not others else f"{said}, the others {k_range(sorted(others))}."


def stability_of(cluster: ClusterConfidence) -> str:
    """Stability as a cell of a table; never a number for a cluster of a single site."""
    return NOT_TESTABLE if cluster.stability is None else f"{cluster.stability:.2f}"


def apart_of(cluster: ClusterConfidence) -> str:
    """Distance and which cluster is nearest, as a cell of a table."""
    return "none" if cluster.apart is None else f"{cluster.apart:.1f} from {cluster.nearest}"


def valley_of(cluster: ClusterConfidence) -> str:
    """Depth of the valley on the way to the nearest cluster, as a cell of a table."""
    return "none" if cluster.valley is None else f"{cluster.valley:.2f}"


def k_range(ks: Sequence[int]) -> str:
    return str(ks[0]) if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"


def ordinal(n: int) -> str:
    """``2`` is second; beyond twelfth, digits."""
    if n - 2 < len(ORDINALS):
        return ORDINALS[n - 2]
    last = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th") if n % 100 not in (11, 12, 13) else "th"
    return f"{n}{last}"
