"""What a coordinator knows of its sites, in one place: its own registry, what they last said, and Flower's list."""

from dataclasses import dataclass

from koncord.errors import KoncordError
from koncord.network.flower import control
from koncord.network.places import Coordinator, RegisteredSite
from koncord.network.serving import is_running

NOT_KNOWN, NOT_SEEN = "not known", "not seen yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNow:
    """How one site is."""

    name: str
    state: str  # "connected", "away", "not seen yet", "revoked", or "not known" while nobody serves
    last_seen: str  # ISO 8601, UTC, or "never"
    last_answer: str
    version: str
    key_made: str  # "at the site", "by the coordinator", or empty without TLS
    fingerprint: str
    invited: str
    revoked: str | None
    reason: str


def sites_of(place: Coordinator) -> list[SiteNow]:
    """Every site that was invited, by name."""
    known: dict[int, control.KnownKey] = {}
    if not place.is_insecure and is_running(place):
        try:
            known = control.nodes(place)
        except KoncordError:  # it stops at this moment
            known = {}
    return [site_now(place, site, known.get(site.node or 0)) for site in place.registered()]


def site_now(place: Coordinator, site: RegisteredSite, node: control.KnownKey | None) -> SiteNow:
    answered, version = place.seen(site.name)
    now = NOT_KNOWN if node is None else node.state
    return SiteNow(
        name=site.name,
        # Flower knows of a site from when koncord serve was started on.
        state="revoked" if site.revoked is not None else "away" if answered and now == NOT_SEEN else now,
        last_seen=max(answered, "" if node is None else node.last_seen) or "never",
        last_answer=answered,
        version=version or NOT_KNOWN,
        key_made="" if not site.public else "at the site" if site.has_own_key else "by the coordinator",
        fingerprint=site.fingerprint,
        invited=site.invited,
        revoked=site.revoked,
        reason=site.reason,
    )
