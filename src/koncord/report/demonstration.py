"""What is known of the classes of a demonstration, beside what was found: for the terminal and for the page."""

from collections.abc import Sequence

from koncord._words import counted, joined, text_table
from koncord.model.globalmodel import GlobalModel
from koncord.runs.record import Crossing, RunRecord, Truth

SCALE = "1 is perfect agreement, 0 is chance"


def about_agreement(model: GlobalModel, truth: Truth) -> list[str]:
    """Sentences: how the clusters relate to the classes, how well, and what all rows in one place would give."""
    said = [about_true_counts(model, truth), *map(about_crossing, truth.crossings[:1])]
    caveat = "" if model.n_clusters <= truth.n_clusters else "; a class in several clusters counts as a disagreement"
    index = f"adjusted Rand index of cluster against class is {truth.ari:.3f} ({SCALE}{caveat})"
    said.append(f"Over all rows, the {index}.")
    if truth.ari_at_k is not None and model.n_clusters != truth.n_clusters:
        done = "joined" if model.n_clusters > truth.n_clusters else "cut"
        said.append(
            f"The same clusters {done} to {truth.n_clusters}, by the tree of the model and without labels: "
            f"{truth.ari_at_k:.3f}."
        )
    if truth.pooled_ari is not None:
        said.append(f"k-means with K = {truth.n_clusters} given and all rows in one place: {truth.pooled_ari:.3f}.")
    nested = about_nested(model, truth)
    return [*said, nested] if nested else said


def about_true_counts(model: GlobalModel, truth: Truth) -> str:
    what = truth.crossings[0].what if truth.crossings else "class"
    return (
        f"The {what} of every row is known here, and no site and no server used it: there are {truth.n_clusters}, "
        f"and {counted(model.n_clusters, 'cluster')} were found."
    )


def about_crossing(crossing: Crossing) -> str:
    """How pure the clusters are, and the classes that fall into several of them."""
    split = [name for name in crossing.classes if crossing.homes.count(name) > 1]
    lost = [name for name in crossing.classes if name not in crossing.homes]
    at_home = f"{crossing.at_home:,} of {crossing.rows:,} rows are in a cluster that is mostly their own"
    said = [f"By {crossing.what}, {at_home}"]
    if split:
        said.append(f"{joined(split)} {'falls' if len(split) == 1 else 'fall'} into several clusters")
    if lost:
        what = "has no cluster of its own" if len(lost) == 1 else "have no cluster of their own"
        said.append(f"{joined(lost)} {what}")
    return f"{'; '.join(said)}."


def about_nested(model: GlobalModel, truth: Truth) -> str | None:
    """What one cluster more is: said where it tells classes apart that share a cluster."""
    crossing = truth.nested
    if crossing is None or model.tree is None:
        return None
    k = model.n_clusters
    own, finer = model.tree.labels_at(k).tolist(), model.tree.labels_at(k + 1).tolist()
    parts = [sorted({b for a, b in zip(own, finer, strict=True) if a == cluster}) for cluster in range(k)]
    cut = next((cluster for cluster, of in enumerate(parts) if len(of) > 1), None)
    if cut is None:
        return None
    homes = [crossing.homes[part] for part in parts[cut]]
    if None in homes or len(set(homes)) < len(homes):
        return None
    of_part = [crossing.counts[part] for part in parts[cut]]
    named = [f"{home} ({max(counts):,} of {sum(counts):,} rows)" for home, counts in zip(homes, of_part, strict=True)]
    return (
        f"The nested answer with {k + 1} clusters cuts cluster {cut} in two: {joined(named)}. "
        f"koncord predict --clusters {k + 1} labels rows by it."
    )


def crossing_rows(crossing: Crossing) -> list[list[str]]:
    """One line a cluster: its number, its rows of each class, and the class most of them have."""
    return [
        [str(cluster), *(f"{n:,}" if n else "" for n in counts), home or "no row"]
        for cluster, (counts, home) in enumerate(zip(crossing.counts, crossing.homes, strict=True))
    ]


def crossing_heads(crossing: Crossing) -> list[str]:
    return ["cluster", *crossing.classes, "mostly"]


def bytes_by_site(record: RunRecord, sites: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Messages that left each site, and their bytes."""
    sent = dict.fromkeys(sites, (0, 0))
    for left in record.departures:
        messages, n_bytes = sent[left.site]
        sent[left.site] = messages + 1, n_bytes + left.n_bytes
    return sent


def demonstration_text(model: GlobalModel, record: RunRecord) -> str:
    """For a person at a terminal: agreement, one table of classes, and what left every island."""
    assert record.truth is not None
    parts = ["\n".join(about_agreement(model, record.truth))]
    parts += [text_table(crossing_heads(each), crossing_rows(each)) for each in record.truth.crossings[:1]]
    sent = bytes_by_site(record, model.sites)
    rows = [(name, f"{messages}", f"{n_bytes:,}", "") for name, (messages, n_bytes) in sent.items()]
    parts.append(f"what left each island\n{text_table(('island', 'messages', 'bytes', ''), rows)}")
    return "\n\n".join(parts)
