"""The page of a run: one file that explains itself, with no script, no network and no rows of any site.

`page` renders, `write_page` is the only writer. The same model and record give the same bytes. Every section is a
function that says what is in it, as plain text and tables, and a template of the same name that says how it looks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from koncord._files import write_atomic
from koncord._words import counted
from koncord.aggregate.confidence import ClusterConfidence
from koncord.aggregate.diagnostics import UpsilonChoice
from koncord.model.globalmodel import GlobalModel
from koncord.report import demonstration
from koncord.report.cells import Bar, Cell, Chip, Shade, Strong, TableView, numeric, words
from koncord.report.choice import about_choice
from koncord.report.conditions import (
    NOT_REPORTED,
    about_floor,
    floor_of,
    has_local_counts,
    has_micro_clusters,
    is_all_private,
    is_partly_private,
    private_sites,
)
from koncord.report.federation import (
    NOT_COUNTED,
    ClusterRow,
    about_candidates,
    cluster_rows,
    counts_are_complete,
    discloses,
    headline,
    n_rows_reported,
    notes_of,
    site_rows,
    upsilon_chosen,
    why_no_silhouette,
)
from koncord.report.numbers import fixed, number, size_of
from koncord.report.profiles import profiles
from koncord.report.rendering import rendered
from koncord.report.style import CSS
from koncord.report.summary import opening_sentences
from koncord.report.sure import sentences, stability_of, valley_of
from koncord.runs.folder import PAGE, SITES, read_run
from koncord.runs.record import RunRecord
from koncord.runs.sites import shown_sites

# A page may load nothing and run nothing; only its own style counts.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
View = Mapping[str, Any]  # what a template names
HEADINGS = {
    "truth": "Against the known classes",
    "sure": "How sure is it?",
    "holdings": "Who holds what",
    "profiles": "Cluster profiles",
    "sizes": "Cluster sizes",
    "local": "Local counts",
    "silhouettes": "Silhouette by cluster",
    "sent": "What left each site",
    "settings": "Settings",
    "reading": "How to read this",
}


def write_page(path: Path, model: GlobalModel, record: RunRecord) -> None:
    """Write the page; the file appears whole or not at all."""
    write_atomic(path, page(model, record).encode())


def write_report(folder: Path) -> GlobalModel:
    """Write the page from the files of a run alone, and return its model."""
    model, record = read_run(folder)
    write_page(folder / PAGE, model, record)
    return model


def page(model: GlobalModel, record: RunRecord) -> str:
    """The whole document."""
    rows = cluster_rows(model)
    views = {
        "truth": truth(model, record),
        "sure": sure(model, record),
        "holdings": holdings(model),
        "profiles": profiles(model, record, rows),
        "sizes": sizes_view(model, rows),
        "local": local_counts(model, record),
        "silhouettes": silhouettes_view(model, rows),
        "sent": sent(model, record),
        "settings": settings(model, record),
        "reading": how_to_read(model, record),
    }
    return rendered(
        "page",
        policy=CONTENT_POLICY,
        css=Markup(CSS),
        headline=headline(model),
        date=record.started[:10],
        summary=opening_sentences(model, record),
        figures=figures(model, record),
        sections=[{"name": name, "heading": HEADINGS[name], "view": view} for name, view in views.items() if view],
        version=model.versions.get("koncord", ""),
    )


# --- what comes first ---


def figures(model: GlobalModel, record: RunRecord) -> list[tuple[str, str, str]]:
    """What the page opens with: a name, a number, and where it comes from."""
    n_numbers = sum(departed.numbers for departed in record.departures)
    n_bytes = sum(departed.n_bytes for departed in record.departures)
    return [
        ("Global clusters", str(model.n_clusters), how_found(model, record)),
        ("Local counts", *local_counts_in_short(model)),
        ("Least apart", *least_apart_in_short(model)),
        ("Numbers that left the sites", f"{n_numbers:,}", f"{size_of(n_bytes)} in all"),
    ]


def local_counts_in_short(model: GlobalModel) -> tuple[str, str]:
    """Smallest and largest local count, and where they come from."""
    if not has_local_counts(model):
        return "not counted", "this method does without; --local-counts"
    reported = sorted(row.local_k for row in site_rows(model) if row.local_k)
    how = "found at each site on its own"
    if is_all_private(model):
        how = "left out for a privacy budget"
    elif is_partly_private(model):
        how = "found at each site; left out where there is a privacy budget"
    return number_range(reported) if reported else NOT_REPORTED, how


def least_apart_in_short(model: GlobalModel) -> tuple[str, str]:
    """Smallest distance of two clusters, and what to compare it with."""
    least = None if model.confidence is None else model.confidence.least_apart
    if least is None:
        return "none", "there is one cluster" if model.n_clusters == 1 else "this method does not tell"
    return f"{least:.1f}", "two halves of one Gaussian: 1.3"


def sure(model: GlobalModel, record: RunRecord) -> View:
    first, *others = sentences(model)
    return {
        "belief": first,
        "others": others,
        "choice": about_choice(model),
        "notes": notes_of(model, record),
        "evidence": evidence_table(model),
        "tree": tree(model),
        "draws": draws(model),
        "upsilon": upsilon(model),
    }


def evidence_table(model: GlobalModel) -> TableView | None:
    """What speaks for each cluster."""
    found = model.confidence
    if found is None:
        return None
    rows: list[list[Cell]] = [
        [Chip(at), *nearest_cells(each), valley_of(each), stability_of(each), str(each.sites), f"{each.rows:,}"]
        for at, each in enumerate(found.clusters)
    ]
    return TableView(
        caption="What speaks for each cluster",
        columns=[
            *words("cluster"),
            *numeric("apart", "from", "valley", "stability", "supporting sites", "rows in micro-clusters"),
        ],
        rows=rows,
    )


def nearest_cells(cluster: ClusterConfidence) -> tuple[Cell, Cell]:
    """How far apart a cluster is, and from which."""
    if cluster.apart is None or cluster.nearest is None:
        return "none", ""
    return fixed(cluster.apart, 1), Chip(cluster.nearest)


def draws(model: GlobalModel) -> TableView | None:
    """How often each K is chosen when the sites are drawn anew."""
    found = model.confidence
    if found is None or not found.resampled:
        return None
    most = max(each.share for each in found.resampled)
    return TableView(
        caption=f"K in {found.n_draws} draws of the sites with replacement",
        columns=[*numeric("K", "draws"), *words("compared with the most frequent", "")],
        rows=[
            [
                str(each.n_clusters),
                f"{each.share:.0%}",
                Bar(each.share, 0.0, most),
                "chosen" if each.n_clusters == model.n_clusters else "",
            ]
            for each in found.resampled
        ],
        is_wide=True,
    )


def tree(model: GlobalModel) -> TableView | None:
    """The nested answers: one row a number of clusters."""
    if model.tree is None or model.tree.n_leaves == 1:
        return None
    return TableView(
        caption="Each number of clusters, and how far apart the two nearest of them are",
        columns=[*numeric("K", "apart"), *words("")],
        rows=[
            [str(k), fixed(model.tree.apart_at(k) or 0.0, 1), "found" if k == model.n_clusters else ""]
            for k in range(2, model.tree.n_leaves + 1)
        ],
    )


def upsilon(model: GlobalModel) -> View:
    """How the choice of upsilon went, where there was one."""
    made = upsilon_chosen(model)
    if made is None:
        return {}
    scores = [each.score for each in made.candidates]
    about = about_candidates(made, model)
    if floor_of(model) != 1:
        about += f" A site judged if it held out at least {about_floor(model)}."
    return {
        "about": about,
        "table": TableView(
            caption="Values of upsilon, the clusters each gives without the held-out rows, and the score of these rows",
            columns=[
                *numeric("upsilon", "clusters", "score"),
                *words(f"from {'0' if min(scores) >= 0 else 'the lowest'} to the largest score", "choice"),
            ],
            rows=[
                [
                    number(each.upsilon),
                    str(each.n_clusters),
                    fixed(each.score, 3),
                    Bar(each.score, min(0.0, *scores), max(0.0, *scores)),
                    "chosen" if each is made.chosen else "",
                ]
                for each in made.candidates
            ],
            is_wide=True,
        ),
    }


def truth(model: GlobalModel, record: RunRecord) -> View:
    """For a demonstration: what is known of the classes."""
    known = record.truth
    if known is None:
        return {}
    shown = {f"Rows of each cluster by {crossing.what}": crossing for crossing in known.crossings[:1]}
    if known.nested is not None and demonstration.about_nested(model, known):
        shown[f"With {model.n_clusters + 1} clusters, by {known.nested.what}"] = known.nested
    tables = [
        TableView(
            caption=caption,
            columns=[*words("cluster"), *numeric(*crossing.classes), *words("mostly")],
            rows=[
                [Chip(cluster) if len(crossing.counts) == model.n_clusters else str(cluster), *row[1:]]
                for cluster, row in enumerate(demonstration.crossing_rows(crossing))
            ],
        )
        for caption, crossing in shown.items()
    ]
    return {"sentences": demonstration.about_agreement(model, known), "tables": tables}


# --- who holds what ---


def holdings(model: GlobalModel) -> View:
    sites, shown = site_rows(model), frozenset(shown_sites(model))
    withheld = model.session.withheld
    shares = model.holdings / np.array([max(row.rows, 1) for row in sites])[:, None]
    largest = float(shares.max())
    rows: list[list[Cell]] = [
        [
            row.name,
            *(Shade(count, share, share / largest) for count, share in zip(counts, parts, strict=True)),
            *([f"{withheld.get(row.name, 0):,}"] if withheld else []),
            row.rows_told,
        ]
        for row, counts, parts in zip(sites, model.holdings.tolist(), shares.tolist(), strict=True)
        if row.name in shown
    ]
    in_all = [
        *model.holdings.sum(axis=0).tolist(),
        *([sum(withheld.values())] if withheld else []),
        n_rows_reported(model),
    ]
    rows.append(["all sites", *(f"{total:,}" for total in in_all)])
    heads: list[str | Chip] = [*map(Chip, range(model.n_clusters)), *(["withheld"] if withheld else []), "rows"]
    table = TableView(
        caption="Rows by site and cluster",
        columns=[*words("site"), *numeric(*heads)],
        rows=rows,
        last_is_total=True,
        is_wide=True,
    )
    return {"about": about_rows_by_cluster(model), "table": table}


def about_rows_by_cluster(model: GlobalModel) -> str:
    """Which sites are shown, what counts of rows leave out, and what noise they have."""
    said = []
    n_shown = len(shown_sites(model))
    if n_shown < len(model.sites):
        said.append(
            f"Of {len(model.sites):,} sites the page shows the {n_shown} with most rows, here and below; {SITES}, "
            "beside it, has all."
        )
    if is_all_private(model):
        said.append("Counts are noisy: every site has a privacy budget.")
    elif is_partly_private(model):
        said.append(f"Counts of {', '.join(sorted(private_sites(model)))} are noisy because of a privacy budget.")
    if floor_of(model) != 1:
        said.append(f"A count stands for at least {about_floor(model)}, here and below.")
        if not is_all_private(model):
            said.append(
                "Where a site has fewer rows of a cluster, they are counted with another cluster; their labels stay."
            )
    return " ".join(said)


# --- one bar a cluster, one a site ---


def sizes_view(model: GlobalModel, rows: Sequence[ClusterRow]) -> View:
    largest = max(row.share for row in rows)
    caption = "No site reported rows by cluster; without counts, all weights are equal"
    if counts_are_complete(model):
        caption = "Rows in each cluster over all sites, their part of all rows, and the sites that hold any"
    elif model.holdings.any():
        caption = "Rows reported in each cluster, their part of all reported rows, and the sites that reported any"
    table = TableView(
        caption=caption,
        columns=[*words("cluster"), *numeric("rows", "weight", "sites"), *words("compared with the largest")],
        rows=[
            [
                Chip(row.number),
                f"{row.rows:,}",
                f"{row.share:.1%}",
                f"{len(row.sites)}{' weak' if row.is_weak else ''}",
                Bar(row.share, 0.0, largest),
            ]
            for row in rows
        ],
        is_wide=True,
    )
    return {"table": table}


def local_counts(model: GlobalModel, record: RunRecord) -> View:
    shown = frozenset(shown_sites(model))
    rows = [row for row in site_rows(model) if row.name in shown]
    is_counted = has_local_counts(model)
    largest = max([1, *(row.local_k or 0 for row in rows)])
    known = {} if record.truth is None else record.truth.local_counts
    table = TableView(
        caption="Local k of each site, and how many global clusters it holds"
        if is_counted
        else "How many global clusters each site holds",
        columns=[
            *words("site"),
            *numeric(
                "rows",
                *(["local k"] if is_counted else []),
                *(["known classes"] if known else []),
                "clusters held",
            ),
            *words(*(["local k, compared with the largest"] if is_counted else [])),
        ],
        rows=[
            [
                row.name,
                row.rows_told,
                *([row.local_k_told] if is_counted else []),
                *([str(known[row.name])] if known else []),
                row.held_told,
                *([Bar(row.local_k or 0, 0.0, largest)] if is_counted else []),
            ]
            for row in rows
        ],
        is_wide=True,
    )
    return {
        "not_counted": "" if is_counted else NOT_COUNTED,
        "private": private_sites(model),
        "where_private": at_private_sites(model),
        "counters": "" if is_all_private(model) else "Each other site" if private_sites(model) else "Each site",
        "estimator": record.estimator,
        "about_held": about_held(model),
        "table": table,
    }


def at_private_sites(model: GlobalModel) -> str:
    """Where there is a privacy budget, unless it is everywhere or nowhere."""
    return f" at {', '.join(sorted(private_sites(model)))}" if is_partly_private(model) else ""


def about_held(model: GlobalModel) -> str:
    if floor_of(model) == 1 and not private_sites(model):
        return "The clusters held are the global ones with at least one of its rows."
    return "The clusters held are the global ones in which it reported rows."


def silhouettes_view(model: GlobalModel, rows: Sequence[ClusterRow]) -> View:
    values = [row.silhouette for row in rows if row.silhouette is not None]
    if not values:
        return {"table": None, "why_none": why_no_silhouette(model)}
    low = min(0.0, *values)
    table = TableView(
        caption="Mean silhouette of the rows of each cluster",
        columns=[*words("cluster"), *numeric("silhouette"), *words(f"from {fixed(low, 2) if low else 0} to 1")],
        rows=[
            [
                Chip(row.number),
                "none" if row.silhouette is None else fixed(row.silhouette, 2),
                Bar(row.silhouette, low, 1.0),
            ]
            for row in rows
        ],
        is_wide=True,
    )
    return {"table": table}


# --- what left ---


def sent(model: GlobalModel, record: RunRecord) -> View:
    return {
        "exchanges": counted(max((departed.exchange for departed in record.departures), default=0), "exchange"),
        "who": "not every site" if model.session.missing else "every site",
        "has_seconds": record.labels_at_sites and any(departed.seconds for departed in record.departures),
        "warnings": warnings(model, record),
        "by_site": sent_by_site(model, record),
        "by_message": sent_by_message(record),
        "declared": declared(record),
        "n_features": len(model.columns),
        "global_k": model.n_clusters,
    }


def warnings(model: GlobalModel, record: RunRecord) -> list[str]:
    """What of the messages discloses single rows."""
    said = []
    if discloses(record):
        said.append(
            f"{record.aggregator} sends values that grow with the rows of a site: a reader of its messages can read "
            "rows. It ran because it was allowed to."
        )
    lone = [row.name for row in site_rows(model) if row.rows == 1 and row.name not in private_sites(model)]
    if lone:
        said.append(f"The mean of a single row is that row, and it was sent. Sites of one row: {', '.join(lone)}.")
    return said


def sent_by_site(model: GlobalModel, record: RunRecord) -> TableView:
    shown = frozenset(shown_sites(model))
    messages, numbers, n_bytes = Counter[str](), Counter[str](), Counter[str]()
    for departed in record.departures:
        messages[departed.site] += 1
        numbers[departed.site] += departed.numbers
        n_bytes[departed.site] += departed.n_bytes

    def line(name: str, n_messages: int, n_numbers: int, size: int, n_rows: int) -> list[str]:
        in_table = f"{n_rows * len(model.columns):,}" if n_rows else NOT_REPORTED
        return [name, f"{n_messages:,}", f"{n_numbers:,}", size_of(size), in_table]

    rows = [
        line(row.name, messages[row.name], numbers[row.name], n_bytes[row.name], row.rows)
        for row in site_rows(model)
        if row.name in shown
    ]
    rows.append(line("all sites", messages.total(), numbers.total(), n_bytes.total(), n_rows_reported(model)))
    return TableView(
        caption="Sent by each site, and for comparison the size of its table, by the rows it reported",
        columns=[*words("site"), *numeric("messages", "numbers sent", "bytes sent", "numbers in its table")],
        rows=rows,
        last_is_total=True,
    )


def sent_by_message(record: RunRecord) -> TableView:
    kinds: dict[str, list[int]] = {}
    n_bytes = Counter[str]()
    for departed in record.departures:
        kinds.setdefault(departed.message, []).append(departed.numbers)
        n_bytes[departed.message] += departed.n_bytes
    return TableView(
        caption="Sent by kind of message, over all sites, in the order of the exchanges",
        columns=[*words("message"), *numeric("times", "numbers in one", "numbers in all", "bytes in all")],
        rows=[
            [kind, f"{len(numbers):,}", number_range(sorted(numbers)), f"{sum(numbers):,}", size_of(n_bytes[kind])]
            for kind, numbers in kinds.items()
        ],
    )


def declared(record: RunRecord) -> TableView:
    """What the method says a site sends, whether or not it did this time."""
    seen = {departed.message for departed in record.departures}
    return TableView(
        caption=f"All that a site may send under {record.aggregator}, as its code declares and its tests check",
        columns=words("message", "field", "shape", "grows with the rows", "in this run"),
        rows=[
            [
                each.message,
                each.field,
                each.shape,
                Strong("yes") if each.grows_with_rows else "no",
                "sent" if each.message in seen else "not sent",
            ]
            for each in record.sends
        ],
    )


# --- settings and words ---


def settings(model: GlobalModel, record: RunRecord) -> View:
    scaled = "every column to mean 0 and variance 1, by the counts and sums that sites sent"
    files = TableView(
        caption="File of each site",
        columns=words("site", "file"),
        rows=[[site, record.files.get(site, "")] for site in shown_sites(model)],
    )
    return {
        "started": record.started.replace("T", " ").replace("+00:00", " UTC"),
        "seconds": record.seconds,
        "seed": model.seed,
        "estimator": model.settings.get("estimator", record.estimator),
        "left_out": where_left_out(model),
        "aggregator": model.settings.get("aggregator", record.aggregator),
        "scaled": scaled if record.is_standardized else "no, columns in their own units",
        "options": [(name, setting(value)) for name, value in record.options.items()],
        "found": [(name.replace("_", " "), setting(value)) for name, value in sorted(told_by_server(model).items())],
        "timings": timings(model, record),
        "files": files,
        "versions": sorted({**model.versions, **record.versions}.items()),
    }


def where_left_out(model: GlobalModel) -> str:
    """Where phase 1 was left out, if it was."""
    if not has_local_counts(model):
        return " left out: the method does without"
    return f" left out{at_private_sites(model)}" if private_sites(model) else ""


def told_by_server(model: GlobalModel) -> dict[str, str | int | float]:
    """Facts of the run that are one number or word each, by name."""
    own, session, made = model.diagnostics, model.session, model.diagnostics.choice
    facts = {
        **own.extra,
        "rounds": own.rounds,
        "stopped": own.stopped,
        "label_rule": own.label_rule,
        "upsilon": made.upsilon if isinstance(made, UpsilonChoice) else None,
        "exchanges": session.exchanges,
        "min_report": session.min_report,
        "min_support": session.min_support,
    }
    return {name: value for name, value in facts.items() if isinstance(value, str | int | float)}


def timings(model: GlobalModel, record: RunRecord) -> TableView:
    """Seconds the sites took, one after the other, by the kind of their answer."""
    prepared = "Prepared is phase 1" if has_local_counts(model) else "Prepared is the change of scale"
    if is_all_private(model):
        prepared = "Prepared takes the agreed scale"
    elif is_partly_private(model):
        prepared += ", or with a privacy budget takes the agreed scale"
    seconds: dict[str, list[float]] = {}
    for departed in record.departures:
        seconds.setdefault(departed.message, []).append(departed.seconds)
    return TableView(
        caption=f"Seconds the sites took for their answers; {prepared}",
        columns=[*words("answer"), *numeric("times", "slowest", "in all")],
        rows=[
            [kind, f"{len(values):,}", f"{max(values):.3f}", f"{sum(values):.3f}"] for kind, values in seconds.items()
        ],
    )


def how_to_read(model: GlobalModel, record: RunRecord) -> View:
    cells = ", or, at a site with a privacy budget, how many cells of rows stand out from the noise"
    in_own_units = "here, each in its own units."
    return {
        "belonging": belonging(model),
        "cells": cells if private_sites(model) else "",
        "what_makes_a_cluster": what_makes_a_cluster(model),
        "scale": "each has variance 1 by the sums that sites sent." if record.is_standardized else in_own_units,
        "is_shaped": model.gaussians is not None,
        "what_leaves": what_leaves(model, record),
        "labels_in_memory": record.labels_in_memory,
        "where_labels_are": where_labels_are(model, record),
    }


def belonging(model: GlobalModel) -> str:
    """Which cluster a row belongs to."""
    return "with the nearest center" if model.gaussians is None else "that it is most likely of, by size and shape"


def where_labels_are(model: GlobalModel, record: RunRecord) -> str:
    if record.labels_at_sites:
        return f"The labels of the rows are at the sites{that_answered(model)}, a file each"
    return "Beside this page, the folder of the run holds one file of labels a site"


def that_answered(model: GlobalModel) -> str:
    is_short = any(absence.asked == "Attribute" for absence in model.session.missing)
    return " that answered to the end" if is_short else ""


def what_makes_a_cluster(model: GlobalModel) -> str:
    """How what a site sees becomes a global cluster, by this method."""
    if has_micro_clusters(model):
        return "Global clusters are made of micro-clusters, smaller pieces of rows, and not of these components."
    if not model.components:
        return "Global clusters were not made of these components."
    return "Components of different sites that belong together make one global cluster." if len(model.sites) > 1 else ""


def what_leaves(model: GlobalModel, record: RunRecord) -> str:
    """What the messages hold, and what a reader may learn from them."""
    if discloses(record):
        return "This method sends rows in a form the server can read."
    said = ["Parameters such as means, counts and radii, never the rows."]
    floor = floor_of(model)
    if floor is not None and floor > 1:
        said.append(f"Each stands for at least {floor} rows{', by noisy counts' if private_sites(model) else ''}.")
    elif floor is None:
        said.append("Each site decides how many rows a number stands for at least.")
    if not is_all_private(model):
        said.append("They still disclose something: a mean of few rows lies close to these rows")
        said[-1] += "." if floor is not None and floor > 1 else ", and a count of one stands for one row."
    if not private_sites(model):
        said.append("No noise is added.")
    else:
        who = "Every site" if is_all_private(model) else ", ".join(sorted(private_sites(model)))
        said.append(f"{who} added noise to all of them, within a privacy budget.")
    return " ".join(said)


# --- small pieces ---


def how_found(model: GlobalModel, record: RunRecord) -> str:
    if record.clusters_bound is not None:
        return "found, given an upper bound"
    asked = record.clusters_given
    if asked is None:
        return "this number was not given"
    return "as asked" if asked == model.n_clusters else f"{asked} were asked for"


def number_range(values: Sequence[int]) -> str:
    """Smallest and largest of sorted numbers, or the one they all are."""
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value)
