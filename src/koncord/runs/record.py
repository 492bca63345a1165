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

RECORD_FORMAT = "koncord-run"
RECORD_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Clusters against classes: how many rows each cluster has of each class."""

    what: str  # of what kind the classes are, in the singular: species
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # one tuple a cluster, one number a class
    ari: float  # adjusted Rand index of cluster against class

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """From the JSON of a record."""
        return cls(
            what=stored["what"],
            classes=tuple(stored["classes"]),
            counts=tuple(map(tuple, stored["counts"])),
            ari=stored["ari"],
        )

    @property
    def rows(self) -> int:
        """Rows whose class is known."""
        return sum(map(sum, self.counts))

    @property
    def at_home(self) -> int:
        """Rows of the class that is the most frequent one in their cluster."""
        return sum(max(row) for row in self.counts)

    @property
    def homes(self) -> tuple[str | None, ...]:
        """The most frequent class of each cluster; None of a cluster without a row of known class."""
        return tuple(self.classes[row.index(max(row))] if any(row) else None for row in self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is known of the classes, where they are: for a demonstration, never for a fit."""

    n_clusters: int
    ari: float  # adjusted Rand index of cluster against class
    rows: int  # on which it was measured
    local_counts: Mapping[str, int]  # classes at each site
    is_held_out: bool = True  # whether these rows took no part
    crossings: tuple[Crossing, ...] = ()  # of the rows that took part, coarser classes first
    ari_at_k: float | None = None  # of the answer with as many clusters as there are classes, where the model has one
    pooled_ari: float | None = None  # of k-means with the number of classes given and all rows in one place
    nested: Crossing | None = None  # with one cluster more, against the finest classes, where the model has that answer

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """From the JSON of a record."""
        nested = stored["nested"]
        return cls(
            **{
                **stored,
                "crossings": tuple(map(Crossing.of, stored["crossings"])),
                "nested": None if nested is None else Crossing.of(nested),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Rows of one cluster that are far off in one column, too many for wrong readings."""

    cluster: int
    column: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierCounts:
    """Rows with a value far off in their cluster, over all tables."""

    by_column: Mapping[str, int]  # the column in which a row is farthest off
    crowded: tuple[Crowd, ...] = ()

    @property
    def rows(self) -> int:
        return sum(self.by_column.values())


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
    clusters_given: int | None = None  # how many the aggregator was asked to find; None where it found their number
    clusters_bound: int | None = None  # the most it was allowed to find
    labels_at_sites: bool = False  # over a network: neither tables nor labels are in the folder of the run
    labels_in_memory: bool = False  # of `FederatedClustering`: tables and labels are the caller's
    outliers: OutlierCounts | None = None  # where the tables are here and the shape of the clusters is known

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
        record = {"format": RECORD_FORMAT, "version": RECORD_VERSION, **asdict(self)}
        write_atomic(path, f"{json.dumps(record, indent=1, allow_nan=False)}\n".encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a saved record; `KoncordError` for anything else."""
        if not path.is_file():
            raise KoncordError(f"There is no record of a run '{path}'.")
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != RECORD_FORMAT:
                raise ValueError("another format")
            if record["version"] != RECORD_VERSION:
                raise KoncordError(
                    f"'{path}' is the record of a run of version {record['version']}; "
                    f"this koncord reads version {RECORD_VERSION}."
                )
            given: dict[str, Any] = {each.name: record[each.name] for each in fields(cls)}
            given["sends"] = tuple(Sent(**sent) for sent in given["sends"])
            given["departures"] = tuple(Departure(**departed) for departed in given["departures"])
            given["outliers"] = outliers_in(given["outliers"])
            given["truth"] = None if given["truth"] is None else Truth.of(given["truth"])
            return cls(**given)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KoncordError(f"'{path}' is not the record of a koncord run.") from error


def outliers_in(stored: Mapping[str, Any] | None) -> OutlierCounts | None:
    """From the JSON of a record."""
    if stored is None:
        return None
    crowded = tuple(Crowd(**each) for each in stored["crowded"])
    return OutlierCounts(by_column=stored["by_column"], crowded=crowded)
