"""How the number of clusters was chosen, where the aggregator tells, in words."""

from koncord._words import counted
from koncord.aggregate.consensus.hierarchies import MIXTURE
from koncord.aggregate.diagnostics import KChoice
from koncord.model.globalmodel import GlobalModel
from koncord.report.numbers import fixed


def about_choice(model: GlobalModel) -> str | None:
    """The chosen K, why, and the runner-up; None where no such choice is known."""
    made = model.diagnostics.choice
    if not isinstance(made, KChoice):
        return None
    return " ".join(filter(None, [why_chosen(made), about_runner_up(made)]))


def why_chosen(made: KChoice) -> str:
    """The step of the rule that decided."""
    chosen = made.chosen
    if len(made.candidates) < 2:
        return "The sites reported too little to compare one cluster with more."
    if chosen.n_clusters == 1:
        return "One cluster was chosen: no clusters are clearly apart, and none show more structure than one Gaussian."
    if made.stands_apart:
        return f"{chosen.n_clusters} clusters were chosen because all, or nearly all, of them are clearly apart."
    if chosen.hierarchy == MIXTURE:
        return f"{chosen.n_clusters} clusters were chosen, the fewest that are nearly as likely as any."
    return (
        f"{chosen.n_clusters} clusters were chosen by comparison with one Gaussian: of the clusterings that are nearly "
        "as separated as any, theirs is the most compact for its number of clusters. Its silhouette is "
        f"{fixed(chosen.separation, 3)} above that of the Gaussian, its gap {fixed(chosen.gap, 2)}."
    )


def about_runner_up(made: KChoice) -> str | None:
    """The best of another K, by what decided."""
    chosen, other = made.chosen, made.runner_up
    if other is None:
        return None
    said = f"The runner-up is {counted(other.n_clusters, 'cluster')}"
    if chosen.n_clusters > 1 and not made.stands_apart and chosen.hierarchy != MIXTURE:
        return f"{said}, with {fixed(other.separation, 3)} and {fixed(other.gap, 2)}."
    if other.least_apart:
        return f"{said}, whose two nearest clusters are {fixed(other.least_apart, 1)} apart."
    return f"{said}."
