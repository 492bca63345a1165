"""What a run did, as far as a sentence about it depends on that."""

from koncord.model.globalmodel import GlobalModel

NOT_REPORTED = "not reported"


def private_sites(model: GlobalModel) -> frozenset[str]:
    """Sites with a privacy budget."""
    return frozenset(model.session.privacy)


def is_all_private(model: GlobalModel) -> bool:
    return bool(model.sites) and private_sites(model) >= set(model.sites)


def is_partly_private(model: GlobalModel) -> bool:
    return bool(private_sites(model)) and not is_all_private(model)


def floor_of(model: GlobalModel) -> int | None:
    """Rows that every number stands for at least; None where each site has a floor that the server does not know."""
    return model.session.min_report


def about_floor(model: GlobalModel) -> str:
    """The floor in words, to follow "at least"."""
    floor = floor_of(model)
    return "so many rows as the site decides" if floor is None else f"{floor} rows"


def silent_sites(model: GlobalModel) -> tuple[str, ...]:
    """Sites that have too few rows to tell of any."""
    return tuple(site for site in model.session.silent if site in model.sites)


def has_local_counts(model: GlobalModel) -> bool:
    """Whether phase 1 was run and the sites reported what it found."""
    return bool(model.local_counts)


def has_micro_clusters(model: GlobalModel) -> bool:
    """Whether the components of the model are micro-clusters, of which a site may have several in a cluster."""
    return model.diagnostics.micro_clusters is not None
