"""What the sites of a run sent, kept so that a site can be left out or added later without asking the others again.

A run whose method asks every site once follows from these replies alone. They are kept under what was asked, byte for
byte, with the columns and the scale that were agreed on at the beginning. Nothing else is in the file: neither rows nor
what the sites reported at the end about who holds what.

File format (version 1): a safetensors file that its owner alone may read. Its arrays are ``means`` and ``scales``,
``measure`` and ``prepare`` (bytes) where columns were prepared, and, for each reply, ``replies.SITE.DIGEST`` (bytes),
SITE being the position of the site in ``sites`` and DIGEST the SHA-256 of the message it answers. Its metadata is one
entry ``koncord``: a JSON object with ``format``, ``version`` and the other fields of `Reports`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from koncord._files import write_atomic
from koncord.errors import KoncordError
from koncord.types import FloatArray

FORMAT, VERSION = "koncord-reports", 1
PREFIX = "replies."
OPENING = ("measure", "prepare")

KeptReplies = Mapping[str, bytes]  # by the digest of the message that was asked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """What the sites of a federation compute on, for as long as it lasts."""

    columns: tuple[str, ...]
    means: FloatArray  # (n_features,) subtracted from a row
    scales: FloatArray  # (n_features,) a row is divided by
    # Where more than a scale was agreed on: what was measured by, and the plan, as the sites got them.
    measure: bytes = b""
    prepare: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reports:
    """The replies of the sites of one run, and what is needed to compute its model from them."""

    agreement: Agreement
    aggregator: str  # by name
    parameters: Mapping[str, Any]  # of the aggregator
    method: str = ""  # as it was stated to sites over a network; empty in one process
    settings: Mapping[str, str]  # as the model has them
    seed: int
    min_report: int | None
    min_support: int
    local_counts: bool = True  # whether the sites were asked for them
    replies: Mapping[str, KeptReplies]  # by site

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self.replies))

    def without(self, site: str) -> Self:
        """The same without what one site sent."""
        if site not in self.replies:
            raise ValueError(f"'site' must be one of this run, {', '.join(self.sites)}; got {site!r}.")
        if len(self.replies) == 1:
            raise ValueError(f"{site!r} is the only site of this run: without it there is no model; delete the run.")
        return replace(self, replies={name: own for name, own in self.replies.items() if name != site})

    def with_replies(self, more: Mapping[str, KeptReplies]) -> Self:
        """The same with what other sites sent."""
        return replace(self, replies={**self.replies, **more})

    def save(self, path: Path) -> None:
        """Write the file: whole, and for its owner only."""
        sites = self.sites
        opening = {name: getattr(self.agreement, name) for name in OPENING}
        arrays = {"means": self.agreement.means, "scales": self.agreement.scales}
        arrays |= {name: np.frombuffer(each, dtype=np.uint8) for name, each in opening.items() if each}
        arrays |= {
            f"{PREFIX}{at}.{asked}": np.frombuffer(reply, dtype=np.uint8)
            for at, site in enumerate(sites)
            for asked, reply in self.replies[site].items()
        }
        header = {
            "format": FORMAT,
            "version": VERSION,
            "sites": sites,
            "columns": self.agreement.columns,
            "aggregator": self.aggregator,
            "parameters": dict(self.parameters),
            "method": self.method,
            "settings": dict(self.settings),
            "seed": self.seed,
            "min_report": self.min_report,
            "local_counts": self.local_counts,
            "min_support": self.min_support,
        }
        data = save(arrays, metadata={"koncord": json.dumps(header)})
        write_atomic(path, data, private=True, durable=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a saved file; `KoncordError` for anything else."""
        if not path.is_file():
            raise KoncordError(
                f"There is no '{path}': the run kept no reports of its sites. Only a method that asks every site once "
                "keeps them (consensus without rounds, kfed, spahm); else run again without the site."
            )
        try:
            with safe_open(path, framework="numpy") as stored:
                header = json.loads((stored.metadata() or {})["koncord"])
                arrays = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
            if (header["format"], header["version"]) != (FORMAT, VERSION):
                raise ValueError("another format")
            replies: dict[str, dict[str, bytes]] = {site: {} for site in header["sites"]}
            for name in arrays:
                if name.startswith(PREFIX):
                    at, asked = name.removeprefix(PREFIX).split(".")
                    replies[header["sites"][int(at)]][asked] = arrays[name].tobytes()
            agreed = Agreement(
                columns=tuple(header["columns"]),
                means=arrays["means"],
                scales=arrays["scales"],
                **{name: arrays[name].tobytes() for name in OPENING if name in arrays},
            )
            own = {
                name: header[name]
                for name in ("aggregator", "parameters", "method", "settings", "seed", "min_report", "min_support")
            }
            return cls(agreement=agreed, replies=replies, local_counts=header["local_counts"], **own)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError) as error:
            raise KoncordError(f"'{path}' does not hold the reports of a koncord run.") from error


def digest(message: bytes) -> str:
    """One word for a message."""
    return hashlib.sha256(message).hexdigest()
