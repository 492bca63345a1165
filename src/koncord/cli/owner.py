"""What the commands of a site's owner share: which state folder, and what a run asks, in words."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord.network.consent import Consent

STATE_FOLDERS = "koncord-site-*"


def add_owner_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help=f"the site's state folder (default: the only {STATE_FOLDERS} here)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def state_folder(args: argparse.Namespace) -> Path:
    """The state folder that is meant; `ValueError` if there is none, or more than one to choose from."""
    found = [args.state] if args.state is not None else sorted(Path().glob(STATE_FOLDERS))
    sites = [folder for folder in found if (folder / "site.json").is_file()]
    if len(sites) != 1:
        if args.state is not None:
            raise ValueError(f"--state '{args.state}' is not the state folder of a site (koncord join makes it).")
        if sites:
            known = ", ".join(map(str, sites))
            raise ValueError(f"{len(sites)} state folders of sites are here: name one by --state ({known}).")
        raise ValueError(
            f"No state folder of a site ({STATE_FOLDERS}) is here: run this where koncord join was started, or name "
            "the folder by --state."
        )
    folder: Path = sites[0].resolve()
    return folder


def consent_record(consent: "Consent") -> dict[str, Any]:
    """For a machine."""
    return {
        "run": consent.run,
        "identifier": consent.identifier,
        "state": consent.state,
        "by": consent.by,
        "reason": consent.reason,
        "asked_at": consent.asked_at,
        "decided_at": consent.decided_at,
        "statement": consent.statement,
        "terms": consent.terms,
        "held": list(consent.held),
        "released": consent.released,
        "releases_all": consent.releases_all,
    }


def consent_text(consent: "Consent", folder: Path) -> str:
    """For a person: what is asked, the site's own terms, and what can be done."""
    from koncord.network.consent import WAITING, held_file

    stated, terms = consent.statement, consent.terms
    lines = [
        f"run {consent.run}, identifier {consent.identifier}: {consent.state}"
        + (f" ({consent.reason})" if consent.reason else ""),
        f"  asked by    {stated['asked_by']} (as the coordinator says)",
        f"  purpose     {stated['purpose']}",
        f"  method      {stated['aggregator']} {values_text(stated['parameters'])}",
        f"  estimator   {values_text(stated['estimator'])}",
        f"  rounds      at most {stated['rounds']}",
        f"  columns     {', '.join(terms['columns'])}",
        f"  floor       {terms['min_report']} rows",
        *([f"  sums of     {values_text(stated['sums']['sites'])}"] if stated.get("sums") else []),
        f"  budget      {'none' if terms['privacy'] is None else values_text(terms['privacy'])}",
    ]
    if consent.state == WAITING:
        lines.append(f"  koncord approve {consent.run}, or koncord refuse {consent.run}")
    lines += [f"  reply held  {held_file(folder, consent.run, exchange)}" for exchange in consent.held]
    if consent.held:
        lines.append(f"  koncord release {consent.run}, or koncord refuse {consent.run}")
    return "\n".join(lines)


def values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None) or "as it comes"
