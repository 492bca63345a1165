"""What was done with columns before phase 1, in sentences: as the model tells it, without a row."""

from collections.abc import Mapping, Sequence

from koncord._words import counted, joined
from koncord.model.facts import Gaps
from koncord.model.globalmodel import GlobalModel
from koncord.prepare.checking import about_unit

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
        *about_gaps(found.gaps),
        about_categories(found.categories),
        *map(about_unit, found.units),
    ]
    return [*found.notes, *filter(None, said)]


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


def about_gaps(gaps: Gaps) -> list[str]:
    sentences = []
    if gaps.missing and gaps.how is not None:
        named = joined([f"{name} (about {n:,})" for name, n in gaps.missing.items()])
        sentences.append(f"Missing values of {named} were {FILLED[gaps.how]} (--missing).")
    if gaps.unused:
        named = "; ".join(f"{name} ({', '.join(sites)})" for name, sites in gaps.unused.items())
        sentences.append(f"Not used, as more than half of the values are missing: {named}.")
    return sentences


def about_categories(categories: Mapping[str, Mapping[str, float]]) -> str | None:
    if not categories:
        return None
    named = joined([f"{name} ({counted(len(levels), 'level')})" for name, levels in categories.items()])
    return f"Used as categories, each as one column: {named}."
