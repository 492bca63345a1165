"""The page of a run: one file that explains itself, with no script, no network and no rows of any site.

`page` renders, `write_page` is the only writer. The same model and record give the same bytes.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from koncord._files import write_atomic
from koncord._words import counted
from koncord.aggregate.diagnostics import UpsilonChoice
from koncord.model.globalmodel import GlobalModel
from koncord.report.choice import choice
from koncord.report.conditions import (
    NOT_TOLD,
    about_floor,
    floor_of,
    has_micro_clusters,
    is_all_private,
    is_partly_private,
    n_micro_sites,
    n_set_aside,
    private_sites,
)
from koncord.report.federation import (
    ClusterRow,
    about_candidates,
    average_center,
    cluster_rows,
    headline,
    is_complete,
    mean_silhouette,
    n_rows_told,
    notes_of,
    reading,
    site_rows,
    upsilon_chosen,
    why_no_silhouette,
)
from koncord.report.markup import (
    Column,
    aligned,
    bar,
    definitions,
    fixed,
    notice,
    number,
    paragraph,
    section,
    size_of,
    table,
    tag,
    text,
)
from koncord.report.parametermap import color, parameter_map, plane_of
from koncord.report.style import CSS
from koncord.runs.folder import PAGE, read_run
from koncord.runs.record import RunRecord

# The darkest shade of a cell: text on it keeps its contrast, light and dark.
DARKEST = 0.45
# A page may load nothing and run nothing; only its own style counts.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
UP, DOWN = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"
HEADINGS = {
    "sure": "How sure is it?",
    "choice": "How many clusters?",
    "truth": "Against the known classes",
    "holdings": "Who holds what",
    "map": "Map of centers and components",
    "sizes": "Cluster sizes",
    "local": "Local counts",
    "silhouettes": "Silhouette by cluster",
    "centers": "Centers",
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
    contents = {
        "sure": sure(model),
        "choice": choice(model),
        "truth": truth(model, record),
        "holdings": holdings(model),
        "map": parameters(model, record),
        "sizes": sizes(model, rows),
        "local": local_counts(model, record),
        "silhouettes": silhouettes(model, rows),
        "centers": centers(model, rows),
        "sent": sent(model, record),
        "settings": settings(model, record),
        "reading": how_to_read(model, record),
    }
    shown = {name: parts for name, parts in contents.items() if parts}
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">',
        '<link rel="icon" href="data:,">',
        tag("title", f"{headline(model)} | koncord"),
        tag("style", f"\n{CSS}"),
    ]
    results = "\n".join(section(name, HEADINGS[name], *parts) for name, parts in shown.items())
    closing = f"Written by koncord {text(model.versions.get('koncord', ''))}. This page loads nothing and runs nothing."
    body = [
        tag("a", "Skip to the results", class_="skip", href="#results"),
        tag("header", wrapped(opening(model, record), navigation(tuple(shown)))),
        tag("main", results, id="results", class_="wrap"),
        tag("footer", wrapped(paragraph(closing))),
    ]
    document = tag("html", "\n".join([tag("head", "\n".join(head)), tag("body", "\n".join(body))]), lang="en")
    return f"<!doctype html>\n{document}\n"


def wrapped(*parts: str) -> str:
    return tag("div", "\n".join(parts), class_="wrap")


def navigation(names: Sequence[str]) -> str:
    links = [tag("li", tag("a", HEADINGS[name], href=f"#{name}")) for name in names]
    return tag("nav", tag("ul", "".join(links)), aria_label="On this page")


# --- what comes first ---


def opening(model: GlobalModel, record: RunRecord) -> str:
    silhouette = mean_silhouette(model)
    word, _ = reading(silhouette, model)
    n_numbers = sum(departed.numbers for departed in record.departures)
    n_bytes = sum(departed.n_bytes for departed in record.departures)
    figures = [
        ("Global clusters", str(model.n_clusters), how_found(model, record)),
        ("Local counts", *local_counts_in_short(model)),
        ("Mean silhouette", "none" if silhouette is None else fixed(silhouette, 2), f"structure: {word}"),
        ("Numbers that left the sites", f"{n_numbers:,}", f"{size_of(n_bytes)} in all"),
    ]
    return "\n".join(
        [
            paragraph(f"koncord, federated clustering, {text(record.started[:10])}", class_="brand"),
            tag("h1", text(headline(model))),
            definitions([(term, value + tag("small", about)) for term, value, about in figures], class_="figures"),
        ]
    )


def local_counts_in_short(model: GlobalModel) -> tuple[str, str]:
    """Smallest and largest local count, and where they come from."""
    told = sorted(row.local_k for row in site_rows(model) if not row.is_silent)
    how = "found at each site on its own"
    if is_all_private(model):
        how = "cells that stand out from the noise at each site"
    elif is_partly_private(model):
        how = "found at each site; with a privacy budget, cells that stand out from the noise"
    return span(told) if told else NOT_TOLD, how


def sure(model: GlobalModel) -> list[str]:
    silhouette = mean_silhouette(model)
    word, clause = reading(silhouette, model)
    verdict = f"There is no silhouette to judge by: {clause}."
    if silhouette is not None:
        verdict = (
            f"The mean silhouette is {tag('strong', fixed(silhouette, 2))} on a scale from {fixed(-1, 0)} to 1. "
            f"That speaks for {tag('strong', f'{word} structure')}: {clause}."
        )
    return [paragraph(verdict), *(notice("Note", text(note)) for note in notes_of(model)), *candidates(model)]


def candidates(model: GlobalModel) -> list[str]:
    """How the choice of upsilon went, where there was one."""
    made = upsilon_chosen(model)
    if made is None:
        return []
    scores = [each.score for each in made.candidates]
    rows = [
        [
            number(each.upsilon),
            str(each.n_clusters),
            fixed(each.score, 3),
            barred(each.score, min(0.0, *scores), max(0.0, *scores)),
            "chosen" if each is made.chosen else "",
        ]
        for each in made.candidates
    ]
    return [
        paragraph(
            f"FedGEM groups local components whose balls meet, and {tag('i', 'upsilon')} scales the balls. It was "
            "chosen without labels: every site that took part held out a fifth of its rows, and the value won that "
            f"gave these rows the largest silhouette, summed over the sites. {about_candidates(made, model)}"
            + ("" if floor_of(model) == 1 else f" A site judged if it held out at least {about_floor(model)}.")
        ),
        table(
            "Values of upsilon, the clusters each gives without the held-out rows, and the score of these rows",
            [
                *numeric("upsilon", "clusters", "score"),
                Column(head=f"from {'0' if min(scores) >= 0 else 'the lowest'} to the largest score", is_text=True),
                Column(head="choice", is_text=True),
            ],
            rows,
            class_="wide",
        ),
    ]


def truth(model: GlobalModel, record: RunRecord) -> list[str]:
    """For a demonstration: what is known of the classes."""
    known = record.truth
    if known is None:
        return []
    return [
        paragraph(
            "The classes of these rows are known; nothing above or below used them. There are "
            f"{tag('strong', str(known.n_clusters))} classes, and {tag('strong', str(model.n_clusters))} clusters "
            f"were found. On {counted(known.rows, 'row')} that took no part, the adjusted Rand index of cluster "
            f"against class is {tag('strong', f'{known.ari:.3f}')} (1 is perfect agreement, 0 is chance)."
        )
    ]


# --- who holds what ---


def holdings(model: GlobalModel) -> list[str]:
    sites = site_rows(model)
    withheld = model.session.withheld
    shares = model.holdings / np.array([max(row.rows, 1) for row in sites])[:, None]
    largest = float(shares.max())
    rows = [
        [
            text(row.name),
            *(shaded(count, share, share / largest) for count, share in zip(counts, parts, strict=True)),
            *([f"{withheld.get(row.name, 0):,}"] if withheld else []),
            row.rows_told,
        ]
        for row, counts, parts in zip(sites, model.holdings.tolist(), shares.tolist(), strict=True)
    ]
    in_all = [*model.holdings.sum(axis=0).tolist(), *([sum(withheld.values())] if withheld else []), n_rows_told(model)]
    rows.append(["all sites", *(f"{total:,}" for total in in_all)])
    heads = [*(chip(at) for at in range(model.n_clusters)), *(["withheld"] if withheld else []), "rows"]
    return [
        paragraph(
            "Rows of each site in each global cluster, and the part of the site's rows that is. The larger the part, "
            f"the stronger the shade. {about_counts(model)}"
        ),
        table(
            "Rows by site and cluster",
            [Column(head="site", is_text=True), *numeric(*heads)],
            rows,
            last_is_total=True,
            class_="wide",
        ),
    ]


def about_counts(model: GlobalModel) -> str:
    """What counts of rows leave out, and what noise they have."""
    said = []
    if is_all_private(model):
        said.append("Counts are noisy: every site has a privacy budget.")
    elif is_partly_private(model):
        said.append(f"Counts of {', '.join(map(text, sorted(private_sites(model))))} are noisy, for a privacy budget.")
    if floor_of(model) != 1:
        said.append(f"A count stands for at least {about_floor(model)}; one of fewer is 0, here and below.")
    return " ".join(said)


def shaded(count: int, share: float, shade: float) -> str:
    if not count:
        return tag("td", "0", class_="n muted")
    percent = tag("small", f"{share:.0%}" if share >= 0.005 else "&lt;1%")
    return tag("td", f"{count:,} {percent}", class_="n shade", style=f"--a:{DARKEST * shade:.3f}")


def chip(cluster: int) -> str:
    return tag("span", tag("b", str(cluster)), class_=f"chip {color(cluster)}")


# --- the map ---


def parameters(model: GlobalModel, record: RunRecord) -> list[str]:
    plane = plane_of(model)
    about = "Every ring is a global center with the number of its cluster."
    more = ""
    if len(plane.components):
        about += f" {about_marks(model)}"
        parts = "Micro-clusters" if has_micro_clusters(model) else "Local components"
        rows = table(
            f"{parts}, the cluster each went into, and its distance to that center on the scaled columns",
            [Column(head="site", is_text=True), *numeric("component", "cluster", "distance")],
            component_rows(model),
        )
        more = tag("details", tag("summary", "The same as a table") + rows)
    else:
        about += f" {text(record.aggregator)} keeps no local components, so only centers are drawn."
    axes = "The axes are the directions in which these points differ most. One step is equally long in both directions."
    if len(plane.centers) + len(plane.components) == 1:
        axes = "A single point has no axes."
    elif plane.is_line:
        axes = "The only column runs from left to right."
        axes += " The components of every site have a height of their own." if len(plane.components) else ""
    caption = [about, axes, about_drawn(model, record)]
    told = tag("figcaption", "".join(paragraph(each) for each in caption))
    return [tag("figure", parameter_map(model, plane) + told), more]


def about_marks(model: GlobalModel) -> str:
    """What the small marks are, and what they tell."""
    said = ["Every small mark is a local component of one site, joined to the center it went into."]
    if has_micro_clusters(model):
        said = [
            "Every small mark is a micro-cluster, a piece of the rows of one site, joined to the center it went into."
        ]
    if n_set_aside(model):
        said.append(
            "An open mark without a line is a micro-cluster that was set aside: its cluster had support of fewer than "
            f"{model.session.min_support} sites."
        )
    if n_micro_sites(model) > 1:
        said.append("Where the marks of a ring lie close together, the sites agree.")
    if private_sites(model):
        said.append("Where a site has a privacy budget, noise has moved its marks.")
    return " ".join(said)


def about_drawn(model: GlobalModel, record: RunRecord) -> str:
    floor = floor_of(model)
    if discloses(record) or floor is None or floor == 1:
        return "Parameters are drawn, not rows; the mean of a single row is that row."
    return f"No row of any site is drawn: whatever is drawn stands for at least {floor} rows{by_noisy_counts(model)}."


def by_noisy_counts(model: GlobalModel) -> str:
    return ", by noisy counts" if private_sites(model) else ""


def component_rows(model: GlobalModel) -> list[list[str]]:
    rows = []
    for site in model.sites:
        aside = model.excluded.get(site)
        for component, cluster in enumerate(model.groups.get(site, ())):
            step = model.components[site][component] - model.centers[cluster]
            went = [chip(int(cluster)), f"{float((step**2).sum() ** 0.5):.3f}"]
            is_aside = aside is not None and aside[component]
            rows.append([text(site), str(component), *(["set aside", ""] if is_aside else went)])
    return rows


# --- one bar a cluster, one a site ---


def sizes(model: GlobalModel, rows: Sequence[ClusterRow]) -> list[str]:
    largest = max(row.share for row in rows)
    lines = [
        [
            chip(row.number),
            f"{row.rows:,}",
            f"{row.share:.1%}",
            f"{len(row.sites)}{' weak' if row.is_weak else ''}",
            barred(row.share, 0.0, largest),
        ]
        for row in rows
    ]
    return [
        table(
            "Rows in each cluster over all sites, their part of all rows, and the sites that hold any"
            if is_complete(model)
            else "Rows that sites told of in each cluster, their part of all such rows, and the sites that told of any"
            if model.holdings.any()
            else "No site told of rows by cluster; the weights are equal for want of counts",
            [
                Column(head="cluster", is_text=True),
                *numeric("rows", "weight", "sites"),
                Column(head="compared with the largest", is_text=True),
            ],
            lines,
            class_="wide",
        )
    ]


def local_counts(model: GlobalModel, record: RunRecord) -> list[str]:
    rows = site_rows(model)
    largest = max(row.local_k for row in rows)
    known = {} if record.truth is None else record.truth.local_counts
    lines = [
        [
            text(row.name),
            row.rows_told,
            row.local_k_told,
            *([str(known[row.name])] if known else []),
            row.held_told,
            barred(row.local_k, 0.0, largest),
        ]
        for row in rows
    ]
    return [
        paragraph(f"{about_local_counts(model, record)} {about_held(model)}"),
        table(
            "Local k of each site, and how many global clusters it holds",
            [
                Column(head="site", is_text=True),
                *numeric("rows", "local k", *(["known classes"] if known else []), "clusters held"),
                Column(head="local k, compared with the largest", is_text=True),
            ],
            lines,
            class_="wide",
        ),
    ]


def about_local_counts(model: GlobalModel, record: RunRecord) -> str:
    """Where the local counts come from."""
    said = []
    if not is_all_private(model):
        who = "Each other site" if private_sites(model) else "Each site"
        said.append(
            f"{who} counted its own components with {tag('code', text(record.estimator))}, on its own rows and "
            "without being told how many there are."
        )
    if private_sites(model):
        whom = "" if is_all_private(model) else f" at {', '.join(map(text, sorted(private_sites(model))))}"
        said.insert(
            0,
            f"Phase 1 was left out{whom} for a privacy budget; the local k there is the number of cells of rows that "
            "stand out from the noise.",
        )
    return " ".join(said)


def about_held(model: GlobalModel) -> str:
    if floor_of(model) == 1 and not private_sites(model):
        return "The clusters held are the global ones with at least one of its rows."
    return "The clusters held are the global ones that it told of rows in."


def silhouettes(model: GlobalModel, rows: Sequence[ClusterRow]) -> list[str]:
    values = [row.silhouette for row in rows if row.silhouette is not None]
    if not values:
        return [paragraph(f"No cluster has a silhouette: {why_no_silhouette(model)}.")]
    low = min(0.0, *values)
    lines = [
        [
            chip(row.number),
            "none" if row.silhouette is None else fixed(row.silhouette, 2),
            barred(row.silhouette, low, 1.0),
        ]
        for row in rows
    ]
    return [
        paragraph(
            "How much nearer a row lies to its own cluster than to the next one: 1 is far nearer, 0 is undecided, "
            "below 0 is nearer to the next. Every site compares its own rows only."
        ),
        table(
            "Mean silhouette of the rows of each cluster",
            [
                Column(head="cluster", is_text=True),
                *numeric("silhouette"),
                Column(head=f"from {fixed(low, 2) if low else 0} to 1", is_text=True),
            ],
            lines,
            class_="wide",
        ),
    ]


# --- the centers ---


def centers(model: GlobalModel, rows: Sequence[ClusterRow]) -> list[str]:
    apart = {(row.number, each.column): each.is_above for row in rows for each in row.differences}
    average = average_center(model) * model.scales + model.means
    lines = []
    for at, name in enumerate(model.columns):
        *values, mean = aligned([*model.centers_original[:, at].tolist(), float(average[at])])
        cells = [center_cell(value, apart.get((cluster, at))) for cluster, value in enumerate(values)]
        lines.append([text(name), *cells, mean])
    about = "The center of each cluster in the units of the tables. The average counts every center by its weight."
    if apart:
        about += f" A framed value is one of those that set its cluster apart most: {UP} above average, {DOWN} below."
    return [
        paragraph(about),
        table(
            "Centers, one line a column of the tables",
            [Column(head="column", is_text=True), *numeric(*(chip(row.number) for row in rows), "average")],
            lines,
        ),
    ]


def center_cell(value: str, is_above: bool | None) -> str:
    if is_above is None:
        return tag("td", value, class_="n")
    arrow, word = (UP, "above average") if is_above else (DOWN, "below average")
    return tag("td", f"{tag('span', arrow, role='img', aria_label=word)} {value}", class_="n top")


# --- what left ---


def sent(model: GlobalModel, record: RunRecord) -> list[str]:
    n_exchanges = max((departed.exchange for departed in record.departures), default=0)
    who = "not every site" if model.session.missing else "every site"
    parts = [
        paragraph(
            f"In {counted(n_exchanges, 'exchange')} the server asked and {who} answered. The answers below"
            + (", with the seconds that some took," if record.labels_at_sites and has_timings(record) else "")
            + " are all that left the sites; what the server sent to them is not counted."
        )
    ]
    if discloses(record):
        parts.append(
            notice(
                "Warning",
                f"{text(record.aggregator)} sends values that grow with the rows of a site: whoever reads its "
                "messages can read rows. It ran because it was allowed to.",
            )
        )
    lone = [text(row.name) for row in site_rows(model) if row.rows == 1 and row.name not in private_sites(model)]
    if lone:
        parts.append(
            notice(
                "Warning",
                f"The mean of a single row is that row, and it was sent. Sites of one row: {', '.join(lone)}.",
            )
        )
    return [*parts, by_site(model, record), by_message(record), *declared(model, record)]


def by_site(model: GlobalModel, record: RunRecord) -> str:
    messages, numbers, n_bytes = Counter[str](), Counter[str](), Counter[str]()
    for departed in record.departures:
        messages[departed.site] += 1
        numbers[departed.site] += departed.numbers
        n_bytes[departed.site] += departed.n_bytes

    def line(name: str, n_messages: int, n_numbers: int, size: int, n_rows: int) -> list[str]:
        in_table = f"{n_rows * len(model.columns):,}" if n_rows else NOT_TOLD
        return [name, f"{n_messages:,}", f"{n_numbers:,}", size_of(size), in_table]

    rows = [
        line(text(row.name), messages[row.name], numbers[row.name], n_bytes[row.name], row.rows)
        for row in site_rows(model)
    ]
    rows.append(line("all sites", messages.total(), numbers.total(), n_bytes.total(), n_rows_told(model)))
    return table(
        "Sent by each site, and for comparison the size of its table, by the rows it told of",
        [Column(head="site", is_text=True), *numeric("messages", "numbers sent", "bytes sent", "numbers in its table")],
        rows,
        last_is_total=True,
    )


def by_message(record: RunRecord) -> str:
    kinds: dict[str, list[int]] = {}
    n_bytes = Counter[str]()
    for departed in record.departures:
        kinds.setdefault(departed.message, []).append(departed.numbers)
        n_bytes[departed.message] += departed.n_bytes
    return table(
        "Sent by kind of message, over all sites, in the order of the exchanges",
        [Column(head="message", is_text=True), *numeric("times", "numbers in one", "numbers in all", "bytes in all")],
        [
            [text(kind), f"{len(numbers):,}", span(sorted(numbers)), f"{sum(numbers):,}", size_of(n_bytes[kind])]
            for kind, numbers in kinds.items()
        ],
    )


def declared(model: GlobalModel, record: RunRecord) -> list[str]:
    """What the method says a site sends, whether or not it did this time."""
    seen = {departed.message for departed in record.departures}
    heads = ("message", "field", "shape", "grows with the rows", "in this run")
    rows = [
        [
            text(each.message),
            text(each.field),
            text(each.shape),
            tag("strong", "yes") if each.grows_with_rows else "no",
            "sent" if each.message in seen else "not sent",
        ]
        for each in record.sends
    ]
    return [
        table(
            f"All that a site may send under {record.aggregator}, as its code declares and its tests check",
            [Column(head=head, is_text=True) for head in heads],
            rows,
        ),
        paragraph(
            f"Here n_features is {len(model.columns)}, global_k is {model.n_clusters}, and local_k is the site's own "
            "count.",
            class_="muted",
        ),
    ]


# --- settings and words ---


def settings(model: GlobalModel, record: RunRecord) -> list[str]:
    scale = "every column to mean 0 and variance 1, by the counts and sums that sites sent"
    phase_1 = tag("code", text(model.settings.get("estimator", record.estimator)))
    if private_sites(model):
        phase_1 += " left out" + (
            "" if is_all_private(model) else f" at {', '.join(map(text, sorted(private_sites(model))))}"
        )
    asked = [
        ("started", text(record.started.replace("T", " ").replace("+00:00", " UTC"))),
        ("seconds", f"{record.seconds:.1f}"),
        ("seed", text(model.seed)),
        ("estimator, phase 1", phase_1),
        ("aggregator, phase 2", tag("code", text(model.settings.get("aggregator", record.aggregator)))),
        ("scaled", scale if record.is_standardized else "no, columns in their own units"),
        *((tag("code", text(name)), told(value)) for name, value in record.options.items()),
    ]
    found = [(text(name.replace("_", " ")), told(value)) for name, value in sorted(told_by_server(model).items())]
    versions = [(text(name), text(value)) for name, value in sorted({**model.versions, **record.versions}.items())]
    return [
        tag("h3", "What was asked"),
        definitions(asked, class_="pairs"),
        tag("h3", "What the server tells"),
        definitions(found, class_="pairs"),
        tag("h3", "Timings"),
        timings(model, record),
        tag("h3", "Files and versions"),
        table(
            "File of each site",
            [Column(head="site", is_text=True), Column(head="file", is_text=True)],
            [[text(site), text(record.files.get(site, ""))] for site in model.sites],
        ),
        definitions(versions, class_="pairs"),
    ]


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


def has_timings(record: RunRecord) -> bool:
    return any(departed.seconds for departed in record.departures)


def timings(model: GlobalModel, record: RunRecord) -> str:
    """Seconds the sites took, one after the other, by the kind of their answer."""
    prepared = "Prepared is phase 1"
    if is_all_private(model):
        prepared = "Prepared is the search for cells that stand out from the noise"
    elif is_partly_private(model):
        prepared += ", or with a privacy budget the search for cells that stand out from the noise"
    seconds: dict[str, list[float]] = {}
    for departed in record.departures:
        seconds.setdefault(departed.message, []).append(departed.seconds)
    return table(
        f"Seconds the sites took for their answers; {prepared}",
        [Column(head="answer", is_text=True), *numeric("times", "slowest", "in all")],
        [
            [text(kind), f"{len(values):,}", f"{max(values):.3f}", f"{sum(values):.3f}"]
            for kind, values in seconds.items()
        ],
    )


def how_to_read(model: GlobalModel, record: RunRecord) -> list[str]:
    cells = ""
    if private_sites(model):
        cells = ", or, at a site with a privacy budget, how many cells of rows stand out from the noise"
    terms = {
        "Cluster, center": "A cluster is a group of rows that lie together, over all sites. Its center is one point "
        f"that stands for it, and a row belongs to the cluster {belonging(model)}. The number of a cluster is a "
        "name only: 0 is not less than 1.",
        "Component, local k": "What one site sees on its own: the groups among its own rows. The local k is how many "
        f"it found{cells}. {what_makes_a_cluster(model)}".strip(),
        "Weight": "The part of all rows that lies in the cluster, as far as sites told of rows by cluster.",
        "Silhouette": "For a row: the mean distance to the rows of the next cluster, less that to the rows of its own, "
        "divided by the larger of the two. Above 0.7 is commonly read as strong structure, above 0.5 as reasonable, "
        "above 0.25 as weak. A site compares its own rows only, 3,000 of them where it has more, and a site with rows "
        "of one cluster has no silhouette. A good value says that the clusters lie apart, not that they mean anything.",
        "Distance": "Distances are measured on the columns as they were scaled: "
        + (
            "each has variance 1 by the sums that sites sent."
            if record.is_standardized
            else "here, each in its own units."
        )
        + ("" if model.gaussians is None else " The distance of a row to a cluster is in units of its spread there."),
        "What leaves a site": what_leaves(model, record),
        "Labels": where_labels_are(model, record),
    }
    return [definitions(list(terms.items()), class_="terms")]


def belonging(model: GlobalModel) -> str:
    """Which cluster a row belongs to."""
    return "with the nearest center" if model.gaussians is None else "that it is most likely of, by size and shape"


def where_labels_are(model: GlobalModel, record: RunRecord) -> str:
    if record.labels_in_memory:
        return f"The attribute {tag('code', 'labels_')} of the fitted object holds the cluster of every row, by site."
    where = "Beside this page, the folder of the run holds one file of labels a site"
    if record.labels_at_sites:
        where = f"The labels of the rows are at the sites{that_answered(model)}, a file each"
    return (
        f"{where}: the cluster of every row, its distance to the center, and the cluster that comes next. A row with "
        "two nearly equal distances lies between two clusters."
    )


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
    """What the messages hold, and what may be told from them."""
    if discloses(record):
        return "This method sends rows in a form the server can read."
    said = ["Parameters such as means, counts and radii, never the rows."]
    floor = floor_of(model)
    if floor is not None and floor > 1:
        said.append(f"Each stands for at least {floor} rows{by_noisy_counts(model)}.")
    elif floor is None:
        said.append("Each site decides how many rows a number stands for at least.")
    if not is_all_private(model):
        said.append("They still tell something: a mean of few rows lies close to these rows")
        said[-1] += "." if floor is not None and floor > 1 else ", and a count of one tells of one row."
    if not private_sites(model):
        said.append("No noise is added.")
    else:
        who = "Every site" if is_all_private(model) else ", ".join(map(text, sorted(private_sites(model))))
        said.append(f"{who} added noise to all of them, within a privacy budget.")
    return " ".join(said)


# --- small pieces ---


def how_found(model: GlobalModel, record: RunRecord) -> str:
    asked = record.options.get("--clusters") if record.clusters_given is None else record.clusters_given
    if asked is None:
        return "nobody was told this number"
    if record.aggregator == "afcl":
        return "found, given an upper bound"
    return "as asked" if asked == model.n_clusters else f"{asked} were asked for"


def discloses(record: RunRecord) -> bool:
    return any(each.grows_with_rows for each in record.sends)


def numeric(*heads: str) -> list[Column]:
    return [Column(head=head) for head in heads]


def barred(value: float | None, low: float, high: float) -> str:
    return tag("td", bar(value, low, high), class_="barcell")


def span(values: Sequence[int]) -> str:
    """Smallest and largest of sorted numbers, or the one they all are."""
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def told(value: object) -> str:
    """A setting as markup."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else text(value)
