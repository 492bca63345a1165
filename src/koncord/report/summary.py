"""A run in three sentences: what was found, what speaks for and against it, and what left the sites."""

from koncord._words import counted, joined
from koncord.aggregate.confidence import SINGLE_PEAK, STABLE, Confidence
from koncord.model.globalmodel import GlobalModel
from koncord.report.conditions import floor_of, is_all_private, private_sites
from koncord.report.federation import cluster_rows, discloses, rows_in_all
from koncord.report.numbers import size_of
from koncord.runs.record import RunRecord


def opening_sentences(model: GlobalModel, record: RunRecord) -> list[str]:
    """The three sentences that a page opens with."""
    return [about_found(model), about_evidence(model), about_sent(model, record)]


def about_found(model: GlobalModel) -> str:
    """How many clusters, in how many rows, and how large."""
    where = f"{rows_in_all(model)} of {counted(len(model.sites), 'site')}"
    if model.n_clusters == 1:
        return f"The {where} are one cluster."
    rows = sorted(cluster_rows(model), key=lambda row: (-row.share, row.number))
    first, last = rows[0], rows[-1]
    return (
        f"The {where} fall into {model.n_clusters} clusters: the largest, {first.number}, holds "
        f"{part_in_words(first.share)} of the rows, the smallest, {last.number}, {part_in_words(last.share)}."
    )


def part_in_words(part: float) -> str:
    return f"{part:.0%}" if part >= 0.0995 else f"{part:.1%}"


def about_evidence(model: GlobalModel) -> str:
    """What speaks for the clusters and what against them, from everything that is known of them."""
    sure = model.confidence
    if sure is None:
        return "How sure they are is not known" + (
            " beside a privacy budget." if model.session.privacy else ": this method does not tell."
        )
    if model.n_clusters == 1:
        return "Nothing stands apart from the rest by more than chance gives one Gaussian cloud."
    good: list[str] = []
    bad: list[str] = []
    least = sure.least_apart or 0.0
    (good if least >= SINGLE_PEAK else bad).append(
        "each stands clearly apart from its nearest"
        if least >= SINGLE_PEAK
        else "not all stand apart by more than cuts through one cloud would"
    )
    for is_good, said in (about_return(sure), about_single_sites(sure), about_agreement_of_draws(sure)):
        if said:
            (good if is_good else bad).append(said)
    if not good:
        return f"Against them speaks that {joined(bad)}."
    return f"For them speaks that {joined(good)}{f'; against them, that {joined(bad)}' if bad else ''}."


def about_return(sure: Confidence) -> tuple[bool, str]:
    """Whether the clusters that can be tested come back with half of the sites."""
    tested = {at: each.stability for at, each in enumerate(sure.clusters) if each.stability is not None}
    gone = [str(at) for at, value in tested.items() if value < STABLE]
    if gone:
        which = f"cluster {gone[0]} does" if len(gone) == 1 else f"clusters {joined(gone)} do"
        return False, f"{which} not fully come back with half of the sites"
    every = "all" if len(tested) == len(sure.clusters) else "those that several sites hold"
    return True, f"{every} come back with half of the sites" if tested else ""


def about_single_sites(sure: Confidence) -> tuple[bool, str]:
    """Clusters that nobody else can confirm."""
    alone = [str(at) for at, each in enumerate(sure.clusters) if each.sites == 1]
    if not alone:
        return True, ""
    if len(alone) == len(sure.clusters):
        return False, "each is held by a single site, so that no other can confirm it"
    which = f"cluster {alone[0]} is" if len(alone) == 1 else f"clusters {joined(alone)} are each"
    return False, f"{which} held by a single site, so that no other can confirm it"


def about_agreement_of_draws(sure: Confidence) -> tuple[bool, str]:
    """Whether other draws of the sites would give the same number."""
    if not sure.resampled:
        return True, ""
    own = sum(each.share for each in sure.resampled if each.n_clusters == len(sure.clusters))
    if own >= 0.5:
        return True, f"{own:.0%} of the draws of the sites give the same number"
    return False, f"only {own:.0%} of the draws of the sites give the same number"


def about_sent(model: GlobalModel, record: RunRecord) -> str:
    """What left the sites."""
    numbers = sum(departed.numbers for departed in record.departures)
    n_bytes = sum(departed.n_bytes for departed in record.departures)
    sent = f"{counted(numbers, 'number')} ({size_of(n_bytes)})"
    if discloses(record):
        return f"{sent} left the sites, and rows can be read from them."
    floor = floor_of(model)
    said = f"No row left its site; {sent} did"
    if floor is not None and floor > 1:
        said += f", each of which stands for at least {floor} rows"
        said += ", by noisy counts" if private_sites(model) else ""
    noisy = "all of them noisy" if is_all_private(model) else f"those of {joined(sorted(private_sites(model)))} noisy"
    return f"{said}, {noisy}." if private_sites(model) else f"{said}."
