"""``koncord invite REQUEST|NAME``: register a site and write the file it needs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.places import Coordinator, RegisteredSite, Request

NAME = "invite"
SUMMARY = "register a site and write the file it needs to join"
DESCRIPTION = """\
Register a site with the coordinator that runs on this machine (koncord serve) and write its invitation: the site's
name, the coordinator's address and its certificate authority.

With the request of a site (koncord request), the site's own key is registered; its private half never left the site,
and the invitation holds no secret. Compare the fingerprint with the one the site reads to you, or give it with
--fingerprint.

With a name alone, the key is made here and stands in the invitation: this coordinator has seen it, and anyone who has
the file can join as that site. Hand it over as you would a password, then delete it here. The invitation of a
coordinator that serves --insecure says so, and holds no key. A revoked site is invited again in the same way, with a
new key; the request of a site that is registered gives its invitation once more.
"""
EPILOG = """\
examples:
  koncord invite north.request
  koncord invite north.request --fingerprint SHA256:4vCaBEGd1NGVAl2fYgHZfdU8gT9cTqRTIhFHRi9Dfac
  koncord invite north
  koncord invite north --out /media/stick/north.invite
"""
SUFFIX = ".invite"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord invite REQUEST|NAME [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "name",
        metavar="REQUEST|NAME",
        help="the file of koncord request, or the name of a site: letters, digits, '.', '_' and '-'",
    )
    add_folder_option(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"the invitation (default: NAME{SUFFIX})")
    parser.add_argument(
        "--fingerprint", metavar="F", help="with a request: refuse it unless its key has this fingerprint"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord invite")
    from koncord.network.flower.control import register
    from koncord.network.places import INSECURE, Coordinator, Invitation, RegisteredSite, check_site_name, now
    from koncord.network.processes import say

    request = requested(args)
    site = check_site_name(args.name) if request is None else request.site
    out = args.out or Path(f"{site}{SUFFIX}")
    if out.exists():
        raise ValueError(f"--out '{out}' is there already; name another file.")
    if not out.parent.is_dir():
        raise ValueError(f"The folder '{out.parent}' of --out does not exist; make it first.")
    place = Coordinator.load(args.folder)
    entry, private = same_again(place, request), ""
    if entry is None:
        check_new(place, site, request)
        check_running(place)
        if place.is_insecure:
            say(INSECURE)
        public, private = keys(place, request)
        entry = RegisteredSite(
            name=site,
            node=register(place, site, public) if public else None,
            public=public,
            has_own_key=request is not None,
            invited=now(),
        )
        place.write_site(entry)
    invitation = Invitation(
        site=site,
        address=place.address,
        authority="" if place.authority is None else place.authority.read_text(encoding="utf-8"),
        key=private,
        fingerprint=entry.fingerprint,
        is_insecure=place.is_insecure,
    )
    invitation.save(out)
    if private:
        say(
            f"note: this coordinator has seen the key of {site}; anyone who has '{out}' can act as that site. "
            f"A site that makes its own key sends a request: koncord request {site}"
        )
    if args.json:
        shown = {
            "site": site,
            "address": place.address,
            "invite": str(out),
            "fingerprint": entry.fingerprint,
            "has_own_key": entry.has_own_key,
            "is_insecure": place.is_insecure,
        }
        print(as_json(shown))
        return
    own = f" --key {site}.key" if entry.has_own_key else ""
    print(f"{out}: site {site} joins by: koncord join --invite {out.name}{own} --data TABLE")
    if entry.fingerprint:
        print(f"key: {entry.fingerprint}")


def requested(args: argparse.Namespace) -> "Request | None":
    """The request that was named, its signature and its fingerprint checked; None where a name was given."""
    from koncord.cli.request import SUFFIX as REQUEST
    from koncord.network.places import Request

    path = Path(args.name)
    if path.suffix != REQUEST and not path.is_file():
        if args.fingerprint is not None:
            raise ValueError(f"--fingerprint goes with the file of a request (koncord request); got {args.name!r}.")
        return None
    request = Request.load(path)
    if args.fingerprint not in (None, request.fingerprint):
        raise ValueError(
            f"--fingerprint is {args.fingerprint}; the key in '{path}' is {request.fingerprint}: it is not the key of "
            "the site that you spoke with."
        )
    return request


def same_again(place: "Coordinator", request: "Request | None") -> "RegisteredSite | None":
    """The site that has sent this very request before: its invitation is written again, with today's certificates."""
    if request is None:
        return None
    known = [site for site in place.registered() if (site.name, site.public) == (request.site, request.public)]
    return known[0] if known and known[0].revoked is None else None


def check_new(place: "Coordinator", site: str, request: "Request | None") -> None:
    """Refuse a name that a site has, and a key that was registered or revoked before."""
    if place.is_insecure and request is not None:
        raise ValueError("A coordinator that serves --insecure checks no keys: invite the site by its name.")
    for known in place.registered():
        if known.name.casefold() == site.casefold() and (known.revoked is None or known.name != site):
            raise ValueError(f"A site {known.name!r} is registered already; every site needs a name of its own.")
        if request is not None and known.public == request.public:
            what = "is registered" if known.revoked is None else "was revoked"
            raise ValueError(f"The key {request.fingerprint} {what} as that of {known.name}; make a new request.")


def keys(place: "Coordinator", request: "Request | None") -> tuple[str, str]:
    """Public and private half of the site's key; what this coordinator does not have is empty."""
    from koncord.network.certificates import site_key

    if request is not None:
        return request.public, ""
    if place.is_insecure:
        return "", ""
    private, public = site_key()
    return public.decode(), private.decode()


def check_running(place: "Coordinator") -> None:
    from koncord.errors import KoncordError
    from koncord.network.serving import is_running

    place.check_certificates()
    if not is_running(place):
        raise KoncordError(f"The coordinator of '{place.folder}' is not running; start it: koncord serve.")
