"""``koncord serve``: the coordinator's side of a federation over a network."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koncord._extras import require
from koncord.cli.options import flag, names
from koncord.cli.parsing import add_command

if TYPE_CHECKING:
    from koncord.network.places import Coordinator

NAME = "serve"
SUMMARY = "be the coordinator of sites on other machines, until Ctrl-C"
DESCRIPTION = """\
Start what sites connect to: Flower, reachable from this machine only, and nginx in front of it, which lets sites
through to what they need and nobody to the rest. The first start makes a folder with a certificate authority of its
own, the server's certificate and the settings; later starts take them from there. Everything is encrypted (TLS).

With --insecure nothing is encrypted and no site proves who it is. It is refused on any address but this machine's own.
"""
EPILOG = """\
examples:
  koncord serve --host fed.example.org
  koncord serve --folder trial --host localhost --port 9443
  koncord serve --folder trial --insecure   # on one machine, to try things out: no certificates, no nginx
"""
DEFAULT_FOLDER = Path("koncord-coordinator")
DEFAULT_PORT = 8443
DEFAULT_INTERNAL_PORT = 18443


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord serve [options]", description=DESCRIPTION, epilog=EPILOG
    )
    add_folder_option(parser)
    group = parser.add_argument_group("first start", "Later starts take these from the folder and refuse others.")
    group.add_argument(
        "--host",
        metavar="NAME,NAME",
        type=names,
        help="names or addresses by which sites reach this machine, the first for invitations (default: localhost)",
    )
    group.add_argument("--port", metavar="N", type=int, help=f"for sites (default: {DEFAULT_PORT})")
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="address to listen on (default: all, or 127.0.0.1 where --host is this machine)",
    )
    group.add_argument(
        "--internal-port",
        metavar="N",
        type=int,
        help=f"for Flower, on this machine only (default: {DEFAULT_INTERNAL_PORT})",
    )
    group.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="no TLS, no keys and no nginx; only on this machine itself (default: no)",
    )
    add_log_option(parser)
    parser.set_defaults(run=run, command=NAME)


def add_log_option(parser: Any) -> None:
    parser.add_argument("--log-json", action="store_true", help="progress on stderr as JSON lines with times")


def begin_log(args: argparse.Namespace) -> None:
    """From now on progress goes to stderr as the options say."""
    if args.log_json:
        from koncord.network.processes import log_as_json

        log_as_json(args.command)


def add_folder_option(parser: Any) -> None:
    parser.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        default=DEFAULT_FOLDER,
        help=f"the coordinator's folder (default: {DEFAULT_FOLDER})",
    )


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord serve")
    from koncord.network.places import INSECURE
    from koncord.network.processes import Stopped, say, stopped_by_signals
    from koncord.network.serving import serving

    begin_log(args)
    place = place_of(args)
    if place.is_insecure:
        say(INSECURE)
    with stopped_by_signals(), place.serving_alone():
        try:
            with serving(place) as programs:
                print(f"ready: sites reach {place.address}; invite one: {invite_command(args)}", flush=True)
                programs.watch()
        except Stopped:
            say("stopped.")


def invite_command(args: argparse.Namespace) -> str:
    own = "" if args.folder == DEFAULT_FOLDER else f" --folder {args.folder}"
    return f"koncord invite NAME{own}"


def place_of(args: argparse.Namespace) -> "Coordinator":
    """The coordinator's folder, made at the first start, for ports that are free."""
    from koncord.network.places import Coordinator, check_host, check_port
    from koncord.network.processes import say
    from koncord.network.serving import check_all_free

    if (args.folder / "settings.json").exists():
        place = Coordinator.load(args.folder)
        check_unchanged(args, place)
        check_insecure(args, place)
        return place
    if args.folder.exists() and any(args.folder.iterdir()):
        raise ValueError(f"--folder '{args.folder}' is not empty and not that of a coordinator; name another.")
    hosts = tuple(check_host(host) for host in args.host or ["localhost"])
    listen = args.listen if args.listen in (None, "*") else check_host(args.listen)
    port = check_port("--port", args.port or DEFAULT_PORT)
    place = Coordinator(
        folder=args.folder.resolve(),
        hosts=hosts,
        listen=listen or own_address(hosts),
        port=port,
        internal_port=port
        if args.insecure
        else check_port("--internal-port", args.internal_port or DEFAULT_INTERNAL_PORT),
        is_insecure=bool(args.insecure),
    )
    check_insecure(args, place)
    if place.port == place.internal_port and not args.insecure:
        raise ValueError("--port and --internal-port must differ.")
    check_all_free(place)  # first: the folder holds to its ports for good
    place.create()
    certificates = (
        "" if args.insecure else f"a certificate authority, the server's certificate for {', '.join(hosts)}, "
    )
    say(f"made {args.folder}: {certificates}settings")
    return place


def own_address(hosts: Sequence[str]) -> str:
    """The address to listen on: this machine's own where the hosts are, else all."""
    from koncord.network.places import is_loopback

    if not is_loopback(hosts):
        return "*"
    return "127.0.0.1" if hosts[0] == "localhost" else hosts[0]


def check_insecure(args: argparse.Namespace, place: "Coordinator") -> None:
    """Refuse to serve others without TLS."""
    from koncord.network.places import is_loopback

    if not place.is_insecure:
        return
    for option, hosts in (("--host", place.hosts), ("--listen", (place.listen,))):
        if not is_loopback(hosts):
            raise ValueError(
                "--insecure is for one machine alone, as nothing is encrypted and nobody proves who they are: "
                f"{option} must be localhost, 127.0.0.1 or ::1; got {', '.join(hosts)}."
            )
    if args.internal_port is not None:
        raise ValueError("--internal-port does not go with --insecure: there is no nginx, Flower itself is at --port.")


def check_unchanged(args: argparse.Namespace, place: "Coordinator") -> None:
    """Refuse options that are not those of the first start."""
    stored = {
        "host": list(place.hosts),
        "port": place.port,
        "listen": place.listen,
        "internal_port": place.internal_port,
        "insecure": place.is_insecure,
    }
    changed = [name for name, value in stored.items() if getattr(args, name) not in (None, value)]
    if changed:
        flags = ", ".join(as_given(name, stored[name]) for name in changed)
        raise ValueError(
            f"'{args.folder}' was made {flags}, and its certificate and the invitations hold to that. Leave the "
            "option out, or name another --folder for another coordinator."
        )


def as_given(name: str, value: object) -> str:
    """An option as it was given at the first start."""
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {flag(name)}"
    return f"with {flag(name)} {','.join(value) if isinstance(value, list) else value}"
