"""Whether the owner of a site agrees to a run, before anything is computed for it, and to each reply before it leaves.

What a run asks is written to ``consent/RUN.json`` in the state folder, with the site's own terms. The standing rules of
the owner say yes or no, or the owner does in person (`koncord approve`, `koncord refuse`, `koncord release`). Who asks
is what the coordinator says: a site knows the coordinator by its certificate, and nobody behind it.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from koncord._files import locked, write_atomic
from koncord._text import shortened
from koncord.errors import CheckpointError, KoncordError, NotAllowed
from koncord.network.method import Statement
from koncord.network.places import now
from koncord.network.studies import check_study_name

WAITING, APPROVED, REFUSED = "waiting", "approved", "refused"
FOLDER, HELD, AGREED = "consent", "held", "studies.json"
MOST_WAITING = 100  # runs; each is a file at the site
ASK, REFUSE = "ask", "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the owner of a site agrees to without being asked, and what becomes of the rest.

    Parameters
    ----------
    asked_by : tuple of str, default None
        Who may ask, as patterns ("*@example.org"); None is anybody.
    methods : tuple of str, default None
        Aggregators; None is any that the site takes part in.
    columns : tuple of str, default None
        Columns that a run may be about: it must name its columns, and only these; None is all.
    max_rounds : int, default None
        Most rounds of a run; None is as many as the site's limits allow.
    until : date, default None
        Last day of the agreement; None has no end.
    otherwise : str, default "refuse"
        What becomes of other runs: "refuse" them, or "ask" the owner.
    """

    asked_by: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    max_rounds: int | None = None
    until: date | None = None
    otherwise: str = REFUSE

    def why_not(self, statement: Statement, today: date) -> str | None:
        """Why these rules do not agree to a run; None if they do."""
        asked = statement.asked
        if self.until is not None and today > self.until:
            return f"its owner's agreement ended on {self.until}"
        if self.asked_by is not None and not any(fnmatchcase(asked.by, pattern) for pattern in self.asked_by):
            return f"its owner has not agreed to runs of {asked.by!r}"
        if self.methods is not None and statement.aggregator not in self.methods:
            return f"its owner has not agreed to {statement.aggregator}"
        if self.max_rounds is not None and statement.rounds > self.max_rounds:
            return f"its owner has agreed to {self.max_rounds} rounds, not {statement.rounds}"
        if self.columns is not None:
            if asked.columns is None:
                return "its owner has agreed to some columns only, and the run names none (koncord run --columns)"
            others = [name for name in asked.columns if name not in self.columns]
            if others:
                return f"its owner has not agreed to the columns {', '.join(map(repr, others))}"
        return None

    def as_record(self) -> dict[str, Any]:
        return {**asdict(self), "until": None if self.until is None else self.until.isoformat()}

    @classmethod
    def from_record(cls, content: Mapping[str, Any]) -> Self:
        """Rules as `as_record` or a TOML file has them; `ValueError` names what is wrong."""
        known = {each.name for each in fields(cls)}
        unknown = sorted(set(content) - known)
        if unknown:
            raise ValueError(f"{', '.join(map(repr, unknown))} is not a rule; known are {', '.join(sorted(known))}.")
        given = {name: value for name, value in content.items() if value is not None}
        for name in ("asked_by", "methods", "columns"):
            if name in given:
                given[name] = checked_names(name, given[name])
        if "until" in given:
            given["until"] = checked_date(given["until"])
        rounds = given.get("max_rounds", 1)
        if type(rounds) is not int or rounds < 1:
            raise ValueError(f"'max_rounds' must be an integer of at least 1; got {rounds!r}.")
        if given.get("otherwise", REFUSE) not in (ASK, REFUSE):
            raise ValueError(f'\'otherwise\' must be "ask" or "refuse"; got {given["otherwise"]!r}.')
        return cls(**given)


def checked_names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name!r} must be a list of texts; got {value!r}.")
    return tuple(value)


def checked_date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"'until' must be a day, as 2027-06-30; got {value!r}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the owner of a site is asked: by standing rules, in person, and before each reply leaves.

    Where there are rules for some studies and none for the rest, nothing is agreed to in advance but these studies.
    """

    rules: Rules | None = None
    studies: Mapping[str, Rules] = field(default_factory=dict)  # in the place of `rules`, for runs of these
    asks: bool = False
    holds: bool = False

    def as_record(self) -> dict[str, Any]:
        return {
            "rules": None if self.rules is None else self.rules.as_record(),
            "studies": {name: rules.as_record() for name, rules in self.studies.items()},
            "asks": self.asks,
            "holds": self.holds,
        }

    @classmethod
    def from_record(cls, content: Mapping[str, Any]) -> Self:
        rules = content["rules"]
        return cls(
            rules=None if rules is None else Rules.from_record(rules),
            studies={name: Rules.from_record(each) for name, each in content["studies"].items()},
            asks=content["asks"],
            holds=content["holds"],
        )

    def sections(self) -> dict[str, Rules]:
        """All rules, by the name of their section in a policy file."""
        own = {} if self.rules is None else {"approve": self.rules}
        return {**own, **{f"study.{name}": rules for name, rules in self.studies.items()}}

    def decision(self, statement: Statement, today: date) -> tuple[str, str, str]:
        """State, who decided it, and why."""
        rules = self.studies.get(statement.asked.study or "", self.rules)
        if rules is None and not self.studies:
            return (WAITING, "", "") if self.asks else (APPROVED, "default", "")
        if rules is None:
            reason = f"its owner has agreed to the studies {', '.join(sorted(self.studies))} only"
        else:
            reason = rules.why_not(statement, today) or ""
        if not reason:
            return APPROVED, "policy", ""
        if self.asks or (rules is not None and rules.otherwise == ASK):
            return WAITING, "", reason
        return REFUSED, "policy", reason


def read_policy(path: Path) -> tuple[dict[str, Any], Terms]:
    """Limits and terms in an owner's policy file (TOML); `ValueError` names what is wrong with it.

    ``[limits]`` has the options of koncord join by their names; ``[approve]`` the rules, and ``[study.NAME]`` those for
    runs of one study; ``hold_results`` and ``ask`` stand above them.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"The policy '{path}' is not there.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"The policy '{path}' is not TOML: {error}.") from error
    unknown = sorted(set(content) - {"ask", "hold_results", "approve", "study", "limits"})
    if unknown:
        raise ValueError(
            f"The policy '{path}' has {', '.join(map(repr, unknown))}; known are 'ask', 'hold_results', [approve], "
            "[study.NAME] and [limits]."
        )
    flags = {name: content.get(name, False) for name in ("ask", "hold_results")}
    tables = {name: content.get(name, {}) for name in ("approve", "study", "limits")}
    for name, value in flags.items():
        if type(value) is not bool:
            raise ValueError(f"{name!r} of the policy '{path}' must be true or false; got {value!r}.")
    for name, value in tables.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name!r} of the policy '{path}' must be a table, [{name}]; got {value!r}.")
    if any(not isinstance(value, dict) for value in tables["study"].values()):
        raise ValueError(f"[study] of the policy '{path}' needs the name of the study: [study.NAME].")
    try:
        rules = Rules.from_record(tables["approve"]) if "approve" in content else None
    except ValueError as error:
        raise ValueError(f"[approve] of the policy '{path}': {error}") from error
    studies = {name: study_rules(path, name, each) for name, each in tables["study"].items()}
    return tables["limits"], Terms(rules=rules, studies=studies, asks=flags["ask"], holds=flags["hold_results"])


def study_rules(path: Path, name: str, content: Mapping[str, Any]) -> Rules:
    """The rules of a policy for one study; `ValueError` names what is wrong with them."""
    try:
        check_study_name(name)
        return Rules.from_record(content)
    except ValueError as error:
        raise ValueError(f"[study.{name}] of the policy '{path}': {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The word of a site's owner on one run, as ``consent/RUN.json`` has it."""

    run: str
    state: str
    statement: Mapping[str, Any]
    terms: Mapping[str, Any]  # the site's own: floor, budget, columns
    by: str = ""  # "default", "policy", "study" or "owner"; empty while it waits
    reason: str = ""
    asked_at: str = ""  # ISO 8601, UTC
    decided_at: str = ""
    released: int = 0  # the last exchange whose reply may leave, where replies are held
    releases_all: bool = False
    held: Sequence[int] = field(default_factory=tuple)  # exchanges whose reply waits

    @property
    def identifier(self) -> str:
        return str(self.statement["identifier"])

    def may_leave(self, exchange: int) -> bool:
        return self.releases_all or exchange <= self.released


def consent_file(folder: Path, run: str) -> Path:
    return folder / FOLDER / f"{run}.json"


def read_consent(path: Path) -> Consent:
    try:
        return Consent(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise KoncordError(f"'{path}' does not hold the word of an owner on a run.") from error


def consents(folder: Path) -> list[Consent]:
    """What was asked of a site, the oldest first."""
    found = [read_consent(path) for path in sorted((folder / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda each: (each.asked_at, each.run))


def write_consent(folder: Path, consent: Consent) -> None:
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    content = json.dumps(asdict(consent), indent=1).encode()
    write_atomic(consent_file(folder, consent.run), content, private=True, durable=True)


def consent_to(
    folder: Path, run: str, statement: Statement, terms: Terms, own: Mapping[str, Any], today: date
) -> Consent:
    """The owner's word on a run: that of before, or that of the rules, or that it waits.

    `CheckpointError` if the run was asked for with another statement before; `NotAllowed` if too many runs wait.
    """
    with locked(folder / "lock"):
        path = consent_file(folder, run)
        if path.exists():
            before = read_consent(path)
            if before.identifier != statement.identifier:
                raise CheckpointError(
                    f"this site began this run with another method or statement, {before.identifier}; it cannot go on "
                    f"with {statement.identifier}."
                )
            return before
        state, by, reason = terms.decision(statement, today)
        if state == WAITING and statement.identifier in agreed_studies(folder):
            state, by, reason = APPROVED, "study", ""
        if state == WAITING and sum(each.state == WAITING for each in consents(folder)) >= MOST_WAITING:
            raise NotAllowed(f"{MOST_WAITING} runs wait for the word of this site's owner; no more are noted.")
        asked = Consent(
            run=run,
            state=state,
            statement=statement.as_record(),
            terms=own,
            by=by,
            reason=reason,
            asked_at=now(),
            decided_at="" if state == WAITING else now(),
        )
        write_consent(folder, asked)
        return asked


def decide(folder: Path, run: str, state: str, reason: str = "", *, whole_study: bool = False) -> Consent:
    """Note the owner's word on a run, or on every run of its study; `KoncordError` if it was not asked for.

    A run that was agreed to can be refused later: nothing more leaves, and its study is no longer agreed to. One that
    was refused stays so: the coordinator has gone on without this site.
    """
    with locked(folder / "lock"):
        before = found(folder, run)
        if before.state == REFUSED and state != REFUSED:
            raise KoncordError(f"Run {run} was refused on {before.decided_at}; the coordinator must start a new one.")
        after = replace(before, state=state, by="owner", reason=shortened(reason), decided_at=now())
        if whole_study:
            agree_to_study(folder, before)
        elif state == REFUSED and before.identifier in agreed_studies(folder):
            keep_studies(folder, {key: of for key, of in agreed_studies(folder).items() if key != before.identifier})
        write_consent(folder, after)
        return after


def agree_to_study(folder: Path, consent: Consent) -> None:
    """Note that every run with this statement, which names a study, is agreed to."""
    study = consent.statement.get("study")
    if study is None:
        raise ValueError(f"--study goes with a run that belongs to a study; run {consent.run} belongs to none.")
    keep_studies(folder, {**agreed_studies(folder), consent.identifier: {"study": study, "agreed": now()}})


def agreed_studies(folder: Path) -> dict[str, dict[str, str]]:
    """The studies that the owner has agreed to as a whole, by the identifier of their statement."""
    path = folder / AGREED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep_studies(folder: Path, studies: Mapping[str, Mapping[str, str]]) -> None:
    write_atomic(folder / AGREED, json.dumps(studies, indent=1).encode(), private=True, durable=True)


def release(folder: Path, run: str, *, every: bool = False) -> Consent:
    """Let the replies that wait leave, and with `every` all later ones of the run."""
    with locked(folder / "lock"):
        before = found(folder, run)
        if not before.held and not every:
            raise KoncordError(f"No reply of run {run} waits to be released.")
        after = replace(
            before,
            released=max((before.released, *before.held)),
            releases_all=before.releases_all or every,
            held=(),
        )
        write_consent(folder, after)
        return after


def found(folder: Path, run: str) -> Consent:
    path = consent_file(folder, run)
    if path.parent.parent != folder or not path.is_file():
        waiting = [each.run for each in consents(folder) if each.state == WAITING or each.held]
        raise KoncordError(f"No run {run!r} was asked of this site; waiting: {', '.join(waiting) or 'none'}.")
    return read_consent(path)


def hold(folder: Path, run: str, exchange: int, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the reply to an exchange must wait; then it is written out, readable, and noted for the owner."""
    with locked(folder / "lock"):
        consent = read_consent(consent_file(folder, run))
        if consent.may_leave(exchange):
            return False
        path = held_file(folder, run, exchange)
        if exchange not in consent.held or not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            content = {"run": run, "exchange": exchange, "messages": list(messages)}
            write_atomic(path, json.dumps(content, indent=1).encode(), private=True)
            write_consent(folder, replace(consent, held=sorted({*consent.held, exchange})))
        return True


def held_file(folder: Path, run: str, exchange: int) -> Path:
    return folder / "runs" / run / HELD / f"{exchange:05}.json"
