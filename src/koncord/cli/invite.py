"""``koncord invite NAME``: register a site and write the one file it needs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.places import Coordinator

NAME = "invite"
SUMMARY = "register a site and write the one file it needs to join"
DESCRIPTION = """\
Make a key for a site, register it with the coordinator that runs on this machine (koncord serve), and write the
invitation: the site's name and key, the coordinator's address and its certificate authority. Anyone who has the file
can join as that site: hand it over as you would a password, then delete it here. The invitation of a coordinator that
serves --insecure says so, and holds neither.
"""
EPILOG = """\
examples:
  koncord invite north
  koncord invite north --out /media/stick/north.invite
"""
SUFFIX = ".invite"


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        NAME,
        help=SUMMARY,
        usage="koncord invite NAME [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="of the site: letters, digits, '.', '_' and '-'")
    add_folder_option(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"the invitation (default: NAME{SUFFIX})")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord invite")
    from koncord.network.places import INSECURE, Coordinator, Invitation, check_site_name
    from koncord.network.processes import say

    site = check_site_name(args.name)
    out = args.out or Path(f"{site}{SUFFIX}")
    if out.exists():
        raise ValueError(f"--out '{out}' is there already; name another file.")
    if not out.parent.is_dir():
        raise ValueError(f"The folder '{out.parent}' of --out does not exist; make it first.")
    place = Coordinator.load(args.folder)
    if site.casefold() in {name.casefold() for name in place.sites()}:
        raise ValueError(f"A site {site!r} is registered already; every site needs a name of its own.")
    check_running(place)
    if place.is_insecure:
        say(INSECURE)
    node, key = (None, "") if place.authority is None else registered(place, site)
    place.add_site(site, node)
    invitation = Invitation(
        site=site,
        address=place.address,
        authority="" if place.authority is None else place.authority.read_text(encoding="utf-8"),
        key=key,
        is_insecure=place.is_insecure,
    )
    invitation.save(out)
    if args.json:
        shown = {"site": site, "address": place.address, "invite": str(out), "is_insecure": place.is_insecure}
        print(as_json(shown))
    else:
        print(f"{out}: site {site} joins by: koncord join --invite {out.name} --data TABLE")


def registered(place: "Coordinator", site: str) -> tuple[int, str]:
    """Flower's number of the site's new key, and its private half."""
    from tempfile import TemporaryDirectory

    from koncord.network.certificates import site_key
    from koncord.network.flower.programs import SUPERLINK, call

    private, public = site_key()
    with TemporaryDirectory() as folder:
        key = Path(folder) / "key.pub"
        key.write_bytes(public)
        answer = call(place.flower_home, "supernode", "register", str(key), SUPERLINK, "--name", site)
    return int(answer["node-id"]), private.decode()


def check_running(place: "Coordinator") -> None:
    from koncord.errors import KoncordError
    from koncord.network.serving import is_running

    place.check_certificates()
    if not is_running(place):
        raise KoncordError(f"The coordinator of '{place.folder}' is not running; start it: koncord serve.")
