"""What left a site, and who was missing: one record a message and one an absence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One message that left a site."""

    exchange: int  # from 1
    site: str
    message: str
    numbers: int
    n_bytes: int
    seconds: float  # the site took to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """One exchange in which a site was asked and did not take part."""

    exchange: int  # from 1
    site: str
    asked: str  # the last message it was to answer
    reason: str
