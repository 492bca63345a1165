"""The sites of a run with secure sums: what a coordinator states of them, and whether a site knows them.

A sum is blind for the coordinator only if the keys that sites sign with are their own. So a site keeps the keys of the
others: those that its owner named when it joined (``--peers``), got from their owners, or else those of the first run
that stated them. A run that states another key for a name is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord._files import locked, write_atomic
from koncord.errors import KoncordError, NotAllowed
from koncord.network.places import Coordinator, check_site_name
from koncord.privacy.budget import Budget

if TYPE_CHECKING:
    from koncord.privacy.releases import Parties

PEERS = "peers.json"
PEER_WORDS = 2  # in a line of the owner's file: name and fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSums:
    """What a coordinator states of secure sums: all sites with their public keys, and the budget that they share."""

    keys: Mapping[str, str]  # OpenSSH, by site
    budget: Mapping[str, float]

    def as_stated(self) -> dict[str, Any]:
        return {"sites": dict(sorted(self.keys.items())), "budget": dict(self.budget)}

    def fingerprints(self) -> dict[str, str]:
        from koncord.network.certificates import fingerprint

        return {site: fingerprint(public.encode()) for site, public in sorted(self.keys.items())}


def sums_in(content: Any) -> StatedSums:
    """What another's JSON states of secure sums; `ValueError` if it is not that."""
    if not isinstance(content, dict) or set(content) != {"sites", "budget"}:
        raise ValueError("'sums' does not hold sites and a budget.")
    sites, budget = content["sites"], content["budget"]
    if not (
        isinstance(sites, dict) and isinstance(budget, dict) and all(isinstance(key, str) for key in sites.values())
    ):
        raise ValueError("'sums' does not hold keys of sites and the numbers of a budget.")
    for site in sites:
        check_site_name(site)
    if len(set(sites.values())) < len(sites):
        raise ValueError("'sums' has one key for two sites.")
    found = StatedSums(keys=sites, budget=Budget(**budget).as_dict())
    found.fingerprints()  # ValueError for what is no key
    return found


def stated_by(place: Coordinator, sites: tuple[str, ...], budget: Budget) -> StatedSums:
    """The sums of a run over these sites, as its coordinator states them; `ValueError` if one has no key."""
    require("secure", "A secure sum")
    if place.is_insecure:
        raise ValueError("--secure-sums needs the keys of the sites; a coordinator that serves --insecure has none.")
    keys = {site.name: site.public for site in place.registered() if site.name in sites}
    return StatedSums(keys=keys, budget=budget.as_dict())


def session_name(statement: str, run: str) -> bytes:
    """Names the sums of a run: sites that were stated something else sign another name."""
    return f"{hashlib.sha256(statement.encode()).hexdigest()} {run}".encode()


# --- at a site ---


def parties_of(
    folder: Path,
    name: str,
    sums: StatedSums,
    budget: Budget | None,
    sign: Callable[[bytes], bytes] | None,
    session: bytes,
) -> "Parties":
    """The other sites of a run's sums; `NotAllowed` unless budget and keys are those that this site knows.

    Keys that it sees for the first time it knows from now on, unless its owner named the others.
    """
    if budget is None or budget.as_dict() != sums.budget:
        own = "none" if budget is None else f"{budget.as_dict()}"
        raise NotAllowed(
            f"site {name!r} was asked to add to secure sums within {dict(sums.budget)}; its own budget is {own}, and "
            "that of all sites must be the same."
        )
    if sign is None:
        raise NotAllowed(f"site {name!r} has no key, and adds to no secure sum.")
    require("secure", "A secure sum")
    from koncord.network.certificates import is_signed
    from koncord.privacy.releases import Parties

    check_peers(folder, name, sums)
    keys = {site: public.encode() for site, public in sums.keys.items()}
    return Parties(
        sites=frozenset(keys),
        session=session,
        sign=sign,
        is_signed=lambda site, data, signature: site in keys and is_signed(keys[site], data, signature),
    )


def check_peers(folder: Path, name: str, sums: StatedSums) -> None:
    """`NotAllowed` for a site that this one does not know by this key; new ones are kept, where none were named."""
    from koncord.network.certificates import fingerprint, public_half

    stated, own = sums.fingerprints(), fingerprint(public_half((folder / "key").read_bytes()))
    if stated.get(name) != own:
        raise NotAllowed(f"site {name!r} was asked to add to secure sums in which its key is not {own}.")
    with locked(folder / "peers.lock"):
        kept = read_peers(folder)
        for site, seen in stated.items():
            known = kept["keys"].get(site)
            if known is None and kept["named"] and site != name:
                raise NotAllowed(
                    f"site {name!r} was asked to add up with {site}, whom its owner did not name (--peers)."
                )
            if known not in (None, seen):
                raise NotAllowed(
                    f"site {name!r} was asked to add up with {site} by the key {seen}; it knows {site} by {known}. If "
                    f"that site has a new key, name it by --peers."
                )
        if not kept["named"] and not set(stated) <= set(kept["keys"]):
            write_peers(folder, {**kept["keys"], **stated}, named=False)


def read_peers(folder: Path) -> dict[str, Any]:
    """Fingerprints of the sites that are known, and whether the owner named them."""
    path = folder / PEERS
    kept: dict[str, Any] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"named": False, "keys": {}}
    )
    return kept


def write_peers(folder: Path, keys: Mapping[str, str], *, named: bool) -> None:
    write_atomic(folder / PEERS, json.dumps({"named": named, "keys": dict(keys)}, indent=1).encode(), private=True)


def named_peers(path: Path) -> dict[str, str]:
    """The fingerprint of each site that an owner names, a line each: name and fingerprint."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise KoncordError(f"--peers '{path}' cannot be read: {error}.") from error
    for words in lines:
        if len(words) != PEER_WORDS or not words[1].startswith("SHA256:"):
            raise ValueError(
                f"--peers '{path}' must have a name and a fingerprint, SHA256:..., in each line; got "
                f"{' '.join(words)!r}."
            )
    return {check_site_name(name): seen for name, seen in lines}
