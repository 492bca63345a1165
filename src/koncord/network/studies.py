"""Studies of a coordinator: what some sites have agreed to be asked, once for any number of runs.

A study is a name, the columns and the method that were agreed on, who asks and what for, the sites, and how its runs
go. It is a file of the coordinator, ``studies/NAME.json``. Its identifier is that of every run of it: a site whose
owner has agreed to a study (`koncord approve RUN --study`) is not asked again as long as nothing of that changes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from koncord._files import write_atomic
from koncord.errors import KoncordError
from koncord.network.places import PLACES_VERSION, check_site_name, read_json

FORMAT, FOLDER = "koncord-study", "studies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What runs of one name have in common.

    Parameters
    ----------
    name : str
        Unique at the coordinator.
    identifier : str
        Of what its runs state to the sites.
    sites : tuple of str
        Who takes part.
    method : mapping of str to any
        Options of koncord run that shape the result and what is stated, by name.
    policy : mapping of str to any
        Options of koncord run that say how it goes, by name; a run may be given others.
    created : str
        ISO 8601, UTC.
    """

    name: str
    identifier: str
    sites: tuple[str, ...]
    method: Mapping[str, Any]
    policy: Mapping[str, Any]
    created: str

    def as_record(self) -> dict[str, Any]:
        """For a machine: what is said of the study, without the options that were not given."""
        given = {name: value for name, value in self.method.items() if value not in (None, False, [])}
        return {**asdict(self), "sites": list(self.sites), "method": given, "policy": dict(self.policy)}


def study_file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{check_study_name(name)}.json"


def check_study_name(name: str) -> str:
    """A name that is safe as a file name and in a policy."""
    try:
        return check_site_name(name)
    except ValueError as error:
        raise ValueError(str(error).replace("of a site", "of a study")) from None


def write_study(folder: Path, study: Study) -> None:
    """Write a new study into the folder of its coordinator; `ValueError` if there is one of the name."""
    path = study_file(folder, study.name)
    taken = [each.name for each in read_studies(folder) if each.name.casefold() == study.name.casefold()]
    if taken:
        raise ValueError(f"A study {taken[0]!r} is there already; what was agreed on is not changed: name another.")
    path.parent.mkdir(exist_ok=True)
    content = {"format": FORMAT, "version": PLACES_VERSION, **asdict(study)}
    write_atomic(path, json.dumps(content, indent=1).encode(), private=True, durable=True)


def read_study(folder: Path, name: str) -> Study:
    """The study of a name; `ValueError` if there is none."""
    path = study_file(folder, name)
    if not path.is_file():
        known = ", ".join(each.name for each in read_studies(folder)) or "none"
        raise ValueError(f"There is no study {name!r}; known: {known} (koncord study create).")
    content = read_json(path, FORMAT, "a study of a coordinator")
    try:
        made = {key: value for key, value in content.items() if key not in ("format", "version")}
        return Study(**{**made, "sites": tuple(made["sites"])})
    except (KeyError, TypeError) as error:
        raise KoncordError(f"'{path}' is not a study of a coordinator.") from error


def read_studies(folder: Path) -> list[Study]:
    """Every study of a coordinator, by name."""
    return [read_study(folder, path.stem) for path in sorted((folder / FOLDER).glob("*.json"))]
