"""What a run was, beside the model it left: who sent what, when, how long it took, what was asked. No rows.

File format (version 1): a JSON object with ``format``, ``version`` and the fields of `RunRecord`.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from koncord._files import write_atomic
from koncord.errors import KoncordError
from koncord.protocol.departures import Departure
from koncord.protocol.schema import Sent
from koncord.protocol.setup import SENDS

FORMAT = "koncord-run"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is known of the classes, where they are: for a demonstration, never for a fit."""

    n_clusters: int
    ari: float  # of rows that took no part
    rows: int  # of these
    local_counts: Mapping[str, int]  # classes at each site


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run, as far as the model does not tell it."""

    started: str  # ISO 8601, UTC
    seconds: float
    estimator: str
    aggregator: str
    is_standardized: bool
    options: Mapping[str, Any]  # what was asked beyond these
    files: Mapping[str, str]  # name of each site's file
    sends: tuple[Sent, ...]  # what the method says a site sends
    departures: tuple[Departure, ...]
    versions: Mapping[str, str] = field(default_factory=dict)  # of what the model does not name
    truth: Truth | None = None
    clusters_given: int | None = None  # how many the aggregator was told to find; None where it found their number
    clusters_bound: int | None = None  # how many it was told there are at most
    labels_at_sites: bool = False  # over a network: neither tables nor labels are in the folder of the run
    labels_in_memory: bool = False  # of `FederatedClustering`: tables and labels are the caller's
    forgotten: tuple[str, ...] = ()  # sites that took part and were left out later
    added: tuple[str, ...] = ()  # sites that came later

    @classmethod
    def of_run(cls, *, sends: tuple[Sent, ...], departures: Sequence[Departure], seconds: float, **asked: Any) -> Self:
        """The record of a run that has just ended here.

        Parameters
        ----------
        sends : tuple of Sent
            What the aggregator declares; what every run sends comes before it.
        departures : sequence of Departure
            Every message that left a site.
        seconds : float
            How long the run took.
        **asked
            The other fields.
        """
        return cls(
            sends=(*SENDS, *sends),
            departures=tuple(departures),
            seconds=round(seconds, 6),
            versions={"python": platform.python_version()},
            **asked,
        )

    def save(self, path: Path) -> None:
        record = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_atomic(path, f"{json.dumps(record, indent=1, allow_nan=False)}\n".encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a saved record; `KoncordError` for anything else."""
        if not path.is_file():
            raise KoncordError(f"There is no record of a run '{path}'.")
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError("another format")
            if record["version"] != VERSION:
                raise KoncordError(
                    f"'{path}' is the record of a run of version {record['version']}; "
                    f"this koncord reads version {VERSION}."
                )
            given: dict[str, Any] = {each.name: record[each.name] for each in fields(cls) if each.name in record}
            if "clusters_bound" not in record:
                given |= counts_in_older(record)
            given["sends"] = tuple(Sent(**sent) for sent in given["sends"])
            given["departures"] = tuple(Departure(**departed) for departed in given["departures"])
            for name in ("forgotten", "added"):
                given[name] = tuple(given.get(name, ()))
            given["truth"] = None if given["truth"] is None else Truth(**given["truth"])
            return cls(**given)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KoncordError(f"'{path}' is not the record of a koncord run.") from error


def counts_in_older(record: Mapping[str, Any]) -> dict[str, int | None]:
    """The number of clusters that was given, from a record that did not tell a bound from a number.

    AFCL was the only aggregator with a bound.
    """
    told = record.get("clusters_given")
    told = record["options"].get("--clusters") if told is None else told
    is_bound = record["aggregator"] == "afcl"
    return {"clusters_given": None if is_bound else told, "clusters_bound": told if is_bound else None}
