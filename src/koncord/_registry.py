"""What can be chosen by its name: koncord's own, and what installed packages offer by an entry point.

Nothing is imported before it is used: names and summaries come from a table here and from the metadata of packages.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from koncord.errors import KoncordError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One thing that can be chosen by its name."""

    name: str
    home: str  # "package.module:attribute"
    summary: str
    package: str | None = None  # the distribution that offers it; None for koncord's own

    @property
    def is_outside(self) -> bool:
        return self.package is not None

    @property
    def module(self) -> str:
        return self.home.partition(":")[0]

    @property
    def attribute(self) -> str:
        return self.home.partition(":")[2]

    def load(self) -> Any:
        """Import it. `KoncordError` if the package that offers it fails to."""
        try:
            return getattr(import_module(self.module), self.attribute)
        except Exception as error:
            if not self.is_outside:
                raise
            raise KoncordError(
                f"{self.name!r} of the package {self.package} cannot be loaded from '{self.home}': "
                f"{type(error).__name__}: {error}"
            ) from error


class Registry:
    """Offers by name, koncord's own first. Iterates over the names.

    A package cannot take the name of one of koncord's own, and a name that two packages offer is neither's.

    Parameters
    ----------
    what : str
        What is offered, in the singular, for messages.
    group : str
        Group of entry points that packages offer theirs in.
    own : sequence of Offer
        What koncord itself offers.
    """

    def __init__(self, what: str, group: str, own: Sequence[Offer]) -> None:
        self.what = what
        self.group = group
        self.own = {offer.name: offer for offer in own}

    @cached_property
    def outside(self) -> dict[str, Offer]:
        """What installed packages offer, looked up once in a process."""
        found: dict[str, list[Offer]] = {}
        for entry in self.find():
            package = entry.dist
            offer = Offer(
                name=entry.name,
                home=entry.value,
                summary="" if package is None else str(package.metadata["Summary"] or ""),
                package="unknown" if package is None else package.name,
            )
            found.setdefault(entry.name, []).append(offer)
        return {name: offers[0] for name, offers in found.items() if len(offers) == 1 and name not in self.own}

    def find(self) -> "Iterable[EntryPoint]":
        """The entry points of the group."""
        from importlib.metadata import entry_points  # slow to import: `koncord --help` does without

        return entry_points(group=self.group)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from sorted(self.outside)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.outside

    def __getitem__(self, name: str) -> Offer:
        """The offer of this name; `ValueError` if there is none."""
        if name in self.own:
            return self.own[name]
        if name in self.outside:
            return self.outside[name]
        raise ValueError(f"There is no {self.what} {name!r}; there are {', '.join(self)}.")
