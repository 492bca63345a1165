"""A federation's run, as text or as a record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from koncord._records import json_values
from koncord._words import counted, text_table
from koncord.aggregate.diagnostics import UpsilonChoice
from koncord.model.globalmodel import GlobalModel
from koncord.protocol.departures import Absence
from koncord.report.choice import about_choice
from koncord.report.conditions import (
    NOT_REPORTED,
    about_floor,
    floor_of,
    has_local_counts,
    is_all_private,
    private_sites,
    silent_sites,
)
from koncord.report.preparation import about_outliers, about_preparation
from koncord.report.sure import apart_of, belief, sentences, stability_of
from koncord.runs.record import RunRecord
from koncord.types import FloatArray

# Columns named as those that set a cluster apart, and how far a center is beside the farthest one in that column.
MOST_DISTINGUISHING, LEAST_DISTINGUISHING = 3, 0.05
# Share of rows from which on a cluster is that of one site, and clusters follow sites.
OF_ONE_SITE = 0.95
# Longer tables of sites are cut on the terminal; the page has all.
MOST_SITES = 30
# Where local counts would stand if phase 1 had run.
NOT_COUNTED = "Sites did not count their own components: this method does without. --local-counts has them counted."


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRow:
    name: str
    rows: int  # as it reported them; 0 of one that reported none
    local_k: int | None  # None where phase 1 was not run
    held: tuple[int, ...]  # clusters in which it reported rows
    is_silent: bool  # it has fewer rows than it reports at least

    @property
    def rows_told(self) -> str:
        return f"{self.rows:,}" if self.rows else NOT_REPORTED

    @property
    def held_told(self) -> str:
        return str(len(self.held)) if self.rows else NOT_REPORTED

    @property
    def local_k_told(self) -> str:
        return NOT_REPORTED if self.is_silent or not self.local_k else str(self.local_k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a center lies from the average of all, in one column."""

    column: int  # position
    amount: float  # in the units distances were measured in

    @property
    def is_above(self) -> bool:
        return self.amount > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """One global cluster. Its number is the label its rows have."""

    number: int
    rows: int
    share: float  # of all rows
    sites: tuple[str, ...]  # that reported rows in it
    silhouette: float | None  # None where no site has one
    is_weak: bool  # fewer sites than asked for have a component in it
    differences: tuple[Difference, ...]  # largest first


def site_rows(model: GlobalModel) -> list[SiteRow]:
    """One row a site, in name order."""
    silent = frozenset(silent_sites(model))
    local_counts = model.local_counts or (None,) * len(model.sites)
    return [
        SiteRow(
            name=name,
            rows=int(counts.sum()) + model.session.withheld.get(name, 0),
            local_k=local_k,
            held=tuple(np.flatnonzero(counts).tolist()),
            is_silent=name in silent,
        )
        for name, counts, local_k in zip(model.sites, model.holdings, local_counts, strict=True)
    ]


def cluster_rows(model: GlobalModel) -> list[ClusterRow]:
    """One row a cluster, in the order of the labels."""
    counts = model.holdings.sum(axis=0)
    silhouettes = silhouettes_of(model)
    apart = model.centers - average_center(model)
    return [
        ClusterRow(
            number=number,
            rows=int(counts[number]),
            share=float(model.weights[number]),
            sites=tuple(name for name, held in zip(model.sites, model.holdings[:, number], strict=True) if held),
            silhouette=silhouettes[number],
            is_weak=number in model.session.weak_clusters,
            differences=distinguishing(apart[number], np.abs(apart).max(axis=0)) if model.n_clusters > 1 else (),
        )
        for number in range(model.n_clusters)
    ]


def silhouettes_of(model: GlobalModel) -> Sequence[float | None]:
    """Of each cluster; a model that was not fitted by a federation has none."""
    return model.session.silhouettes or (None,) * model.n_clusters


def average_center(model: GlobalModel) -> FloatArray:
    """Mean of the centers weighted by rows, on the scaled columns."""
    average: FloatArray = model.weights @ model.centers
    return average


def distinguishing(apart: FloatArray, farthest: FloatArray) -> tuple[Difference, ...]:
    """The columns in which a center lies farthest from the average, at most a third of them.

    A center that lies beside the average where another one lies far from it is not set apart by that column: so the
    cluster that holds nearly all rows.
    """
    n_named = min(MOST_DISTINGUISHING, max(len(apart) // 3, 1))
    order = np.argsort(-np.abs(apart), kind="stable")[:n_named]
    return tuple(
        Difference(column=int(at), amount=float(apart[at]))
        for at in order
        if abs(apart[at]) > LEAST_DISTINGUISHING * farthest[at]
    )


def mean_silhouette(model: GlobalModel) -> float | None:
    """Mean over the clusters that have one, each counted by its rows; None without any."""
    scored = [(row.silhouette, row.rows) for row in cluster_rows(model) if row.silhouette is not None and row.rows]
    if not scored:
        return None
    values, rows = zip(*scored, strict=True)
    return float(np.average(values, weights=rows))


def why_no_silhouette(model: GlobalModel) -> str:
    """Why no cluster has one, in a clause."""
    if model.n_clusters == 1:
        return "there is one cluster, so no row can be compared with a next cluster"
    if private_sites(model):
        return "a site with a privacy budget sends no silhouette" + (
            "" if is_all_private(model) else ", and no other did"
        )
    if is_exact(model) and all(len(row.held) < 2 for row in site_rows(model)):
        return "no site holds rows of two clusters, so no row can be compared with a next cluster"
    return "no site reported the silhouette of a cluster"


def is_exact(model: GlobalModel) -> bool:
    """Whether every row of every site is in the counts by cluster, whatever it is near to."""
    return floor_of(model) == 1 and counts_are_complete(model)


def counts_are_complete(model: GlobalModel) -> bool:
    """Whether the counts by cluster hold, without noise, all rows that there are."""
    is_reported = all(row.rows for row in site_rows(model)) and not model.session.withheld
    return is_reported and not private_sites(model)


def upsilon_chosen(model: GlobalModel) -> UpsilonChoice | None:
    """The choice of upsilon, where there was one."""
    made = model.diagnostics.choice
    return made if isinstance(made, UpsilonChoice) and made.candidates else None


def about_candidates(made: UpsilonChoice, model: GlobalModel) -> str:
    """How much the number of clusters depends on the choice of upsilon."""
    tried, chosen = made.candidates, made.chosen.n_clusters
    counts = sorted(each.n_clusters for each in tried)
    if counts[0] == counts[-1]:
        said = f"All {len(tried)} values tried give {counted(counts[0], 'cluster')}"
    else:
        said = f"The {len(tried)} values tried give {counts[0]} to {counts[-1]} clusters, the chosen one {chosen}"
    return said + ("." if chosen == model.n_clusters else f"; with the held-out rows back it is {model.n_clusters}.")


def notes_of(model: GlobalModel, record: RunRecord | None = None) -> list[str]:
    """What a reader should know: what the aggregator says, clusters of nothing or of few sites, who was missing."""
    said = (
        *model.diagnostics.notes,
        *about_preparation(model),
        *([] if record is None else about_outliers(record, model.session.min_report)),
        about_left_out(model),
        about_empty(model),
        about_weak(model),
        about_site_effect(model),
        about_withheld(model),
    )
    notes = (about_privacy(model), *said, about_silent(model), about_coverage(model))
    return [note for note in (*notes, *about_missing(model)) if note]


def about_empty(model: GlobalModel) -> str | None:
    """Clusters in which no site reported a row, if any."""
    empty = [str(number) for number in np.flatnonzero(model.holdings.sum(axis=0) == 0).tolist()]
    if not empty:
        return None
    what = "No row of any site is" if is_exact(model) else "No site reported rows that are"
    where = "nearest to the center of" if model.gaussians is None else "most likely of"
    return f"{what} {where} cluster {', '.join(empty)}."


def about_coverage(model: GlobalModel) -> str | None:
    """What the method of a run with a floor sends beyond sums over cells, if it does."""
    if model.session.is_covered or floor_of(model) == 1 or is_all_private(model):
        return None
    return (
        "The method sends soft sums, in which every row has a weight of its own: each stands for at least "
        f"{about_floor(model)}, but differences of several may stand for fewer (docs/security.md, the joint partition)."
    )


def about_silent(model: GlobalModel) -> str | None:
    """Sites with fewer rows than they report, if any."""
    silent = silent_sites(model)
    if not silent:
        return None
    what = "as it has fewer rows than it reports" if len(silent) == 1 else "as they have fewer rows than they report"
    return f"The server knows only the names of the columns of {', '.join(silent)}, {what} at least."


def about_privacy(model: GlobalModel) -> str | None:
    """What the sites promised of their rows, if they did, and which."""
    promised = model.session.privacy
    if not promised:
        return None
    alike: dict[str, list[str]] = {}
    for site, its in promised.items():
        words = f"epsilon {its.epsilon:g}, delta {its.delta:g}, rows clipped to {its.bound:g}"
        alike.setdefault(words, []).append(site)
    is_of_all = len(alike) == 1 and set(promised) >= set(model.sites)
    who = {words: "each site" if is_of_all else ", ".join(sites) for words, sites in alike.items()}
    said = "; ".join(f"{sites} sent is differentially private ({words})" for words, sites in who.items())
    return f"Everything {said}: counts are noisy, and the seed does not repeat the run."


def about_left_out(model: GlobalModel) -> str | None:
    """Columns that were not used because not every site has them, if any."""
    others = model.session.left_out_columns
    if not others:
        return None
    named = "; ".join(f"{column} ({', '.join(sites)})" for column, sites in others.items())
    return f"Not used, as not every site has {'it' if len(others) == 1 else 'them'}: {named}."


def about_weak(model: GlobalModel) -> str | None:
    """Clusters that too few sites support, if any."""
    weak, support = model.session.weak_clusters, model.session.support
    if not weak:
        return None
    named = ", ".join(f"{cluster} ({counted(support[cluster], 'site')})" for cluster in weak)
    few = (
        "held, or made up, by one site"
        if max(support[cluster] for cluster in weak) < 2
        else ("held, or made up, by few sites")
    )
    return f"Fewer than {model.session.min_support} sites support cluster {named}: it may be {few}."


def about_site_effect(model: GlobalModel) -> str | None:
    """Where nearly all rows lie in clusters of one site each: a difference between sites would look the same."""
    counts = model.holdings
    if model.n_clusters < 2 or private_sites(model) or (counts.sum(axis=1) > 0).sum() < 2:
        return None
    own = counts.max(axis=0) >= OF_ONE_SITE * counts.sum(axis=0)
    if len({int(site) for site in counts.argmax(axis=0)}) < 2 or counts[:, own].sum() < OF_ONE_SITE * counts.sum():
        return None
    return (
        "Nearly every row is in a cluster that one site alone holds: a difference between sites, as of units, of "
        "calibration or of how rows were taken, would look the same. koncord check compares their columns."
    )


def about_withheld(model: GlobalModel) -> str | None:
    """Rows that no count holds, if any."""
    withheld = model.session.withheld
    if not withheld:
        return None
    rows = counted(sum(withheld.values()), "row")
    why = "too few to report, or suppressed to protect such a count"
    return f"The counts by cluster leave out {rows} of {', '.join(withheld)}: {why}."


def about_missing(model: GlobalModel) -> list[str]:
    """A sentence for every site that was missing: from which exchanges, and why."""
    absences: dict[str, list[Absence]] = {}
    for absence in model.session.missing:
        absences.setdefault(absence.site, []).append(absence)
    sentences = []
    for site, missed in absences.items():
        exchanges = ", ".join(f"{each.exchange} ({each.asked})" for each in missed)
        reasons = "; ".join(dict.fromkeys(each.reason for each in missed))
        sentences.append(f"Site {site} was missing from exchange {exchanges}: {reasons}.")
    return sentences


def headline(model: GlobalModel) -> str:
    return f"{counted(model.n_clusters, 'cluster')} in {rows_in_all(model)} at {counted(len(model.sites), 'site')}"


def n_rows_reported(model: GlobalModel) -> int:
    """Rows that the sites reported, whether or not by cluster."""
    return sum(row.rows for row in site_rows(model))


def rows_in_all(model: GlobalModel) -> str:
    """How many rows there are, as far as the sites reported them."""
    about = "about " if private_sites(model) else ""
    if all(row.rows for row in site_rows(model)):
        return f"{about}{counted(n_rows_reported(model), 'row')}"
    return f"{about}{counted(n_rows_reported(model), 'reported row')}"


def discloses(record: RunRecord) -> bool:
    """Whether a message of the method grows with the rows, so that they can be read from it."""
    return any(each.grows_with_rows for each in record.sends)


def federation_record(model: GlobalModel, record: RunRecord) -> dict[str, Any]:
    """For a machine."""
    return {
        "n_clusters": model.n_clusters,
        "sites": {row.name: {"rows": row.rows, "local_count": row.local_k} for row in site_rows(model)},
        "seconds": round(record.seconds, 3),
        "silhouette": mean_silhouette(model),
        "belief": belief(model),
        "confidence": json_values(model.confidence),
        "available": list(model.available),
        "estimator": record.estimator,
        "aggregator": record.aggregator,
        "standardized": record.is_standardized,
        "seed": model.seed,
        "columns": model.columns,
        "weights": model.weights,
        "info": model.info,
    }


def federation_text(model: GlobalModel, record: RunRecord) -> str:
    """For a person."""
    treated = (
        "standardized over the sites (--no-standardize to keep units)" if record.is_standardized else "not standardized"
    )
    columns = counted(len(model.plan.inputs), "column")
    about = f"{counted(len(model.sites), 'site')}, {rows_in_all(model)}, {columns}, {treated}"
    return "\n\n".join([about, about_clusters(model, record), sites_text(model), clusters_text(model)])


def about_clusters(model: GlobalModel, record: RunRecord) -> str:
    counted_by = record.estimator if has_local_counts(model) and not is_all_private(model) else "no phase 1"
    lines = [
        f"K = {model.n_clusters}  ({counted_by}, {record.aggregator}, seed {model.seed}, {record.seconds:.2f} s)",
        *sentences(model),
        *filter(None, [about_choice(model)]),
    ]
    if model.confidence is None:
        silhouette = mean_silhouette(model)
        value = f"none ({why_no_silhouette(model)})" if silhouette is None else f"{silhouette:.3f}"
        lines.append(f"mean silhouette: {value}")
    made = upsilon_chosen(model)
    if made:
        lines.append(f"upsilon: {made.upsilon:g}, chosen without labels. {about_candidates(made, model)}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes_of(model, record))])


def sites_text(model: GlobalModel) -> str:
    rows = site_rows(model)
    is_counted = has_local_counts(model)
    table = text_table(
        ("site", "rows", *(["local k"] if is_counted else []), "clusters held", ""),
        [
            (row.name, row.rows_told, *([row.local_k_told] if is_counted else []), row.held_told, "")
            for row in rows[:MOST_SITES]
        ],
    )
    more = [f"  and {len(rows) - MOST_SITES} more sites"] if len(rows) > MOST_SITES else []
    return "\n".join([table, *more, *([] if is_counted else [NOT_COUNTED])])


def clusters_text(model: GlobalModel) -> str:
    """One line a cluster: its rows, what speaks for it, and what sets it apart."""
    heads = ("apart", "stability") if model.confidence is not None else ("silhouette",)
    return text_table(
        ("cluster", "rows", "weight", "sites", *heads, "set apart by"),
        [
            (
                str(row.number),
                f"{row.rows:,}",
                f"{row.share:.1%}",
                f"{len(row.sites)}{' weak' if row.is_weak else ''}",
                *evidence_cells(model, row),
                set_apart_by(model, row),
            )
            for row in cluster_rows(model)
        ],
    )


def set_apart_by(model: GlobalModel, row: ClusterRow) -> str:
    """The columns that set a cluster apart, in words."""
    if not row.differences:
        return "near the average" if model.n_clusters > 1 else ""
    return ", ".join(f"{'high' if each.is_above else 'low'} {model.columns[each.column]}" for each in row.differences)


def evidence_cells(model: GlobalModel, row: ClusterRow) -> tuple[str, ...]:
    """What speaks for a cluster, as cells."""
    if model.confidence is not None:
        own = model.confidence.clusters[row.number]
        return apart_of(own), stability_of(own)
    return ("none" if row.silhouette is None else f"{row.silhouette:.3f}",)
