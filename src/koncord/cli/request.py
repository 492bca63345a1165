"""``koncord request NAME``: a key of the site's own, and the file that asks to be invited with it."""

import argparse
from pathlib import Path
from typing import Any

import koncord
from koncord._extras import require
from koncord.cli.output import as_json
from koncord.cli.parsing import add_command

NAME = "request"
SUMMARY = "make the key of a site, and the request to be invited with it"
DESCRIPTION = """\
At the site: make a key that never leaves this machine (NAME.key) and a request (NAME.request) that holds its public
half. Send the request to the coordinator in any way, and read the fingerprint to them over another, by telephone: it
is what tells your request from one that was put in its place. They answer with an invitation (koncord invite
NAME.request), which holds no secret.
"""
EPILOG = """\
examples:
  koncord request north
  koncord request north --out /etc/koncord/north.request
"""
SUFFIX, KEY_SUFFIX = ".request", ".key"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, NAME, SUMMARY, usage="koncord request NAME [options]", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("name", metavar="NAME", help="of the site: letters, digits, '.', '_' and '-'")
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"the request (default: NAME{SUFFIX})")
    parser.add_argument("--key", metavar="FILE", type=Path, help=f"the key (default: NAME{KEY_SUFFIX} beside it)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    require("flower", "koncord request")
    from koncord._files import write_atomic
    from koncord.network.certificates import site_key
    from koncord.network.places import Request, check_site_name

    site = check_site_name(args.name)
    out = args.out or Path(f"{site}{SUFFIX}")
    key = args.key or out.with_name(f"{site}{KEY_SUFFIX}")
    for option, path in (("--out", out), ("--key", key)):
        if path.exists():
            raise ValueError(f"{option} '{path}' is there already; name another file.")
        if not path.parent.is_dir():
            raise ValueError(f"The folder '{path.parent}' of {option} does not exist; make it first.")
    if out.resolve() == key.resolve():
        raise ValueError(f"--out and --key are the same file, '{out}'; name two.")
    private, _ = site_key()
    request = Request.made(site, private, koncord.__version__)
    write_atomic(key, private, private=True, durable=True)
    request.save(out)
    if args.json:
        print(as_json({"site": site, "request": str(out), "key": str(key), "fingerprint": request.fingerprint}))
        return
    print(f"{key}: the key; it stays here\n{out}: send it to the coordinator")
    print(f"fingerprint, to be read to them: {request.fingerprint}")
