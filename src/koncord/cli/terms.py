"""The owner of a site before a run: rules of a policy file, what they say in words, and answers at the terminal."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any

from koncord.aggregate.registry import AGGREGATORS
from koncord.cli.options import flag
from koncord.session.policy import SitePolicy

if TYPE_CHECKING:
    from koncord.network.consent import Consent, Terms


def owner_terms(args: argparse.Namespace) -> "Terms":
    """How the owner is asked; limits in the policy file take the place of options that were not given."""
    from dataclasses import replace

    from koncord.network.consent import Terms, read_policy

    limits, terms = ({}, Terms()) if args.policy is None else read_policy(args.policy)
    unknown = sorted(set(limits) - set(LIMITS))
    if unknown:
        raise ValueError(
            f"[limits] of the policy '{args.policy}' has {', '.join(map(repr, unknown))}; known are "
            f"{', '.join(LIMITS)}."
        )
    for name, value in limits.items():
        kind = LIMITS[name]
        if not isinstance(value, kind) or isinstance(value, bool) or (kind is list and not all_text(value)):
            raise ValueError(f"{name!r} in [limits] of the policy '{args.policy}' cannot be {value!r}.")
        if getattr(args, name) not in (None, value, *((SitePolicy.min_report,) if name == "min_report" else ())):
            raise ValueError(f"{flag(name)} and {name!r} of the policy '{args.policy}' differ; give one of them.")
        setattr(args, name, value)
    unknown = sorted(set((terms.rules and terms.rules.methods) or ()) - set(AGGREGATORS))
    if unknown:
        raise ValueError(
            f"'methods' in [approve] of the policy '{args.policy}' names {', '.join(unknown)}; known are "
            f"{', '.join(AGGREGATORS)}."
        )
    return replace(terms, asks=terms.asks or args.ask, holds=terms.holds or args.hold_results)


# What a policy file may limit, by the names of the options, and the type of each.
LIMITS: dict[str, Any] = {
    "min_report": int,
    "methods": list,
    "max_rounds": int,
    "max_runs": int,
    "epsilon": int | float,
    "delta": int | float,
    "bound": int | float,
    "center": int | float,
    "total_epsilon": int | float,
}


def notes_on_terms(terms: "Terms", columns: Sequence[str], methods: Sequence[str], today: date) -> Iterator[str]:
    """What of the owner's rules can never agree to a run, and so may be a slip."""
    rules = terms.rules
    if rules is None:
        return
    others = [name for name in rules.columns or () if name not in columns]
    if others:
        yield f"[approve] of the policy names columns that the table does not have: {', '.join(others)}"
    never = [name for name in rules.methods or () if name not in methods]
    if never:
        yield f"[approve] of the policy names methods that this site takes no part in: {', '.join(never)}"
    if rules.until is not None and rules.until < today:
        yield f"[approve] of the policy ended on {rules.until}: it agrees to no run"


def all_text(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def terms_in_words(terms: "Terms") -> str:
    """How the owner is asked, in a line."""
    if terms.rules is not None:
        waits = terms.asks or terms.rules.otherwise == "ask"
        asked = f"its policy agrees to runs; others {'wait for koncord approve' if waits else 'are refused'}"
    else:
        asked = "every run waits for koncord approve" if terms.asks else "runs within these limits are not asked about"
    return f"consent: {asked}" + ("; every reply waits for koncord release" if terms.holds else "")


class OwnerAsked:
    """Shows the owner, where koncord join runs, what waits for an answer, and takes one that is typed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: set[tuple[str, tuple[int, ...]]] = set()

    def look(self) -> None:
        from koncord.cli.owner import consent_text
        from koncord.network.consent import WAITING, consents
        from koncord.network.processes import say

        waiting = [each for each in consents(self.folder) if each.state == WAITING or each.held]
        for each in waiting:
            if (each.run, tuple(each.held)) not in self.shown:
                self.shown.add((each.run, tuple(each.held)))
                say(consent_text(each, self.folder))
                if sys.stdin is not None and sys.stdin.isatty():
                    say(question_of(each))
        if waiting and sys.stdin is not None and sys.stdin.isatty() and select([sys.stdin], [], [], 0)[0]:
            self.answer(waiting[0], sys.stdin.readline().strip().lower())

    def answer(self, consent: "Consent", word: str) -> None:
        """Take the word of the owner on the oldest thing that waits."""
        from koncord.network.consent import APPROVED, REFUSED, WAITING, decide, release
        from koncord.network.processes import say

        if word in ("y", "yes"):
            if consent.state == WAITING:
                decide(self.folder, consent.run, APPROVED)
            else:
                release(self.folder, consent.run)
            say(f"run {consent.run}: yes")
        elif word in ("n", "no"):
            decide(self.folder, consent.run, REFUSED, "refused at the site")
            say(f"run {consent.run}: no")
        else:
            say(question_of(consent))


def question_of(consent: "Consent") -> str:
    """What the owner is asked at the terminal."""
    from koncord.network.consent import WAITING

    what = "take part in this run" if consent.state == WAITING else "let this reply leave"
    return f"{what}? yes or no, and Enter:"
