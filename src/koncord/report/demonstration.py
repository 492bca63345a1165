"""What is known of the classes of a demonstration, beside what was found: for the terminal and for the page."""

from collections.abc import Sequence

from koncord._words import counted, joined, text_table
from koncord.model.globalmodel import GlobalModel
from koncord.runs.record import Crossing, RunRecord, Truth

SCALE = "1 is perfect agreement, 0 is chance"


def about_agreement(model: GlobalModel, truth: Truth) -> list[str]:
    """Sentences: how the clusters relate to the classes, how well, and what all rows in one place would give."""
    said = [about_true_counts(model, truth)]
    said += [about_crossing(each) for each in truth.crossings]
    on = f"On {counted(truth.rows, 'row')} that took no part" if truth.is_held_out else "Over all rows"
    caveat = "" if model.n_clusters <= truth.n_clusters else "; a class in several clusters counts as a disagreement"
    said.append(f"{on}, the adjusted Rand index of cluster against class is {truth.ari:.3f} ({SCALE}{caveat}).")
    if truth.ari_at_k is not None and model.n_clusters != truth.n_clusters:
        said.append(
            f"The same clusters joined to {truth.n_clusters}, by the tree of the model and without labels: "
            f"{truth.ari_at_k:.3f}."
        )
    if truth.pooled_ari is not None:
        said.append(f"k-means with K = {truth.n_clusters} given and all rows in one place: {truth.pooled_ari:.3f}.")
    return said


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


def demonstration_text(model: GlobalModel, record: RunRecord, site: str) -> str:
    """For a person at a terminal: agreement, one table of classes, and what left every site."""
    assert record.truth is not None
    parts = ["\n".join(about_agreement(model, record.truth))]
    if record.truth.crossings:
        finest = record.truth.crossings[-1]
        parts.append(text_table(crossing_heads(finest), crossing_rows(finest)))
    sent = bytes_by_site(record, model.sites)
    rows = [(name, f"{messages}", f"{n_bytes:,}", "") for name, (messages, n_bytes) in sent.items()]
    parts.append(f"what left each {site}\n{text_table((site, 'messages', 'bytes', ''), rows)}")
    return "\n\n".join(parts)
