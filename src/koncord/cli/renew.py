"""``koncord renew``: new certificates for a coordinator, while it runs."""

import argparse
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command
from koncord.cli.serve import add_folder_option

if TYPE_CHECKING:
    from koncord.network.places import Coordinator

NAME = "renew"
SUMMARY = "new certificates for a coordinator, while it runs"
DESCRIPTION = """\
Make a new certificate, and key, for the server. koncord serve takes it into use at once, without a stop: the sites
trust the authority that signs it.

The authority itself is renewed in two steps. --authority makes the next one and announces it: sites that are connected,
or connect from now on, trust both within ten minutes. --switch lets the new one sign. While sites have not been
connected for so long since, it names them and does nothing; with --anyway it does, and each of them needs an invitation
anew, which koncord invite with its request writes again.
"""
EPILOG = """\
examples:
  koncord renew
  koncord renew --authority
  koncord renew --switch
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord renew [options]", description=DESCRIPTION, epilog=EPILOG
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--authority", action="store_true", help="announce the next certificate authority to the sites")
    group.add_argument("--switch", action="store_true", help="let the authority that was announced sign from now on")
    parser.add_argument(
        "--anyway", action="store_true", help="with --switch: also if sites would need their invitation anew"
    )
    add_folder_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord renew")
    from koncord.errors import KoncordError
    from koncord.network.certificates import NEXT_KEY, announce_authority, switch_authority, valid_until, write_server
    from koncord.network.places import Coordinator

    if args.anyway and not args.switch:
        raise ValueError("--anyway goes with --switch.")
    place = Coordinator.load(args.folder)
    if place.is_insecure:
        raise ValueError(f"The coordinator of '{args.folder}' serves --insecure: it has no certificates.")
    is_announced = (place.folder / NEXT_KEY).exists()
    behind: list[str] = []
    if args.authority:
        if is_announced:
            raise ValueError("An authority is announced already; go on with: koncord renew --switch.")
        announce_authority(place.folder)
        done = (
            "the next authority is announced; ten minutes after all sites have been connected: koncord renew --switch"
        )
    elif args.switch:
        if not is_announced:
            raise ValueError("No authority is announced; begin with: koncord renew --authority.")
        behind = not_told(place)
        if behind and not args.anyway:
            raise KoncordError(
                f"Not connected for ten minutes since the authority was announced: {', '.join(behind)}. Wait for them, "
                "or add --anyway: each needs its invitation anew then."
            )
        switch_authority(place.folder, place.hosts)
        done = "the new authority signs from now on, and has signed a new server certificate"
    else:
        write_server(place.folder, place.hosts)
        done = "the server has a new certificate"
    until = {name: valid_until(place.folder / f"{name}.crt").isoformat() for name in ("server", "ca")}
    step = "authority" if args.authority else "switch" if args.switch else "server"
    if args.json:
        print(as_json({"renewed": step, "valid_until": until, "need_invitation": behind}))
        return
    print(f"{done} (valid until {until['server']})")
    if behind:
        print(f"not connected since it was announced: {', '.join(behind)}; each needs its invitation anew")


def not_told(place: "Coordinator") -> list[str]:
    """Sites that have not been connected long enough since the next authority was announced to have learned of it."""
    from datetime import UTC, datetime, timedelta

    from koncord.network.certificates import ANNOUNCEMENT
    from koncord.network.joining import LEARN_EVERY
    from koncord.network.sites import sites_of

    announced = datetime.fromtimestamp((place.folder / ANNOUNCEMENT).stat().st_mtime, UTC)
    learned = (announced + timedelta(seconds=LEARN_EVERY)).isoformat(timespec="seconds")
    return [
        site.name
        for site in sites_of(place)
        if site.revoked is None and (site.last_seen == "never" or site.last_seen < learned)
    ]
