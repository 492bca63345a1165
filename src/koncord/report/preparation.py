"""What was done with columns before phase 1, in sentences: as the model tells it, without a row."""

from collections.abc import Collection, Mapping, Sequence

from koncord._words import counted, joined
from koncord.aggregate.diagnostics import Calibration
from koncord.model.facts import Gaps
from koncord.model.globalmodel import GlobalModel
from koncord.model.outliers import FAR_OFF
from koncord.prepare.checking import about_unit
from koncord.prepare.plan import OTHER
from koncord.runs.record import RunRecord

FILLED = {
    "neighbors": "filled with the mean of the rows of their site that are nearest in the other columns",
    "gaussian": "filled with what the other columns of their rows let expect",
    "mean": "filled with the mean of their column",
}


def about_preparation(model: GlobalModel) -> list[str]:
    """Logarithms, fences, gaps, categories and other units, as far as there were any."""
    found = model.session.preparation
    said = [
        about_logs(found.logged),
        about_fence(found.fenced),
        *about_gaps(found.gaps, found.categories),
        about_categories(found.categories),
        *map(about_unit, found.units),
        about_calibration(model),
    ]
    return [*found.notes, *filter(None, said)]


def about_calibration(model: GlobalModel) -> str | None:
    """Offsets between the sites, as far as they are credible."""
    found = model.diagnostics.calibration
    if found is None:
        return None
    if found.is_applied:
        return (
            f"Offsets between the sites were taken out (--harmonize), {largest_offset(model, found)}: what a site "
            f"holds of a cluster lay {found.before:.1f} of its standard deviations from what the others hold before, "
            f"and {found.after:.2f} after. A new site has no offset: its rows are labeled as they are."
        )
    return (
        f"The sites seem to be calibrated differently, {largest_offset(model, found)}: what a site holds of a cluster "
        f"lies {found.before:.1f} of its standard deviations from what the others hold, and {found.after:.2f} once one "
        f"offset a site is taken out. Aligned, they make {counted(found.n_clusters, 'cluster')}: --harmonize does that."
    )


def largest_offset(model: GlobalModel, found: Calibration) -> str:
    """The site and column with the largest offset, in standard deviations of the column over all sites."""
    site, at = max(
        ((site, at) for site, own in found.offsets.items() for at in range(len(own))),
        key=lambda each: abs(found.offsets[each[0]][each[1]]),
    )
    return f"most of all {model.columns[at]} of {site} (by {found.offsets[site][at]:+.1f} standard deviations)"


def about_outliers(record: RunRecord, least: int | None) -> list[str]:
    """Rows with a value far off in their cluster, as far as they are as many as a number must stand for."""
    found = record.outliers
    if found is None or not found.rows + len(found.crowded):
        return []
    least = least or 1
    said = []
    if found.rows:
        how_many = f"fewer than {least} rows" if found.rows < least else counted(found.rows, "row")
        named = [f"{column} ({n:,})" for column, n in found.by_column.items() if n >= least]
        where = f", among them {joined(named)}" if named else ""
        said.append(
            f"Possible wrong readings: {how_many} with a value more than {FAR_OFF:g} standard deviations from the "
            f"center of its cluster{where}; the labels files name the column (outlier)."
        )
    crowds = [each for each in found.crowded if each.rows >= least]
    if crowds:
        named = [f"{each.rows:,} of cluster {each.cluster} in {each.column}" for each in crowds]
        said.append(
            f"So many rows lie as far off that they are not called wrong readings: {joined(named)}. A cluster may be "
            "missing there."
        )
    return said


def about_logs(logged: Sequence[str]) -> str | None:
    if not logged:
        return None
    return f"The logarithm was taken of {joined(logged)}, whose values are positive and skewed (--no-log leaves them)."


def about_fence(fenced: Mapping[str, int]) -> str | None:
    """Values that were moved; a site tells of them from its floor on."""
    if not fenced:
        return None
    named = joined([f"{name} ({n:,})" for name, n in fenced.items()])
    return f"Values far beyond all others were moved to a fence, at least so many of: {named} (--no-fence leaves them)."


def about_gaps(gaps: Gaps, categories: Collection[str]) -> list[str]:
    sentences = []
    if gaps.missing and gaps.how is not None:
        words = {name: f"{name} (about {n:,})" for name, n in gaps.missing.items()}
        numbers = [each for name, each in words.items() if name not in categories]
        levels = [each for name, each in words.items() if name in categories]
        if numbers:
            sentences.append(f"Missing values of {joined(numbers)} were {FILLED[gaps.how]} (--missing).")
        if levels:
            sentences.append(f"Where a level is missing, it counts as the mean of all rows: {joined(levels)}.")
    if gaps.unused:
        named = "; ".join(f"{name} ({', '.join(sites)})" for name, sites in gaps.unused.items())
        sentences.append(f"Not used, as more than half of the values are missing: {named}.")
    return sentences


def about_categories(categories: Mapping[str, Mapping[str, float]]) -> str | None:
    if not categories:
        return None
    named = joined([f"{name} ({levels_in_words(levels)})" for name, levels in categories.items()])
    return f"Used as categories, each as one column: {named}."


def levels_in_words(levels: Collection[str]) -> str:
    """How many levels there are, and whether rare ones are taken together."""
    own = counted(len([level for level in levels if level != OTHER]), "level")
    return f"{own} and rare ones as {OTHER}" if OTHER in levels else own
