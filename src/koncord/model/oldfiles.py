"""Model files of versions 1 and 2, brought to version 3.

Until version 2 a file had one object ``info`` with the facts of aggregator and session, some in two spellings, and -1
in ``groups.N`` marked what was set aside. Version 1 had no shapes of clusters.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from koncord.aggregate.diagnostics import Diagnostics
from koncord.kernels.assign import nearest
from koncord.model.facts import SessionFacts

StoredArrays = dict[str, Any]
# Facts under other names, and what other fields hold now.
RENAMED = ("n_rounds", "labels", "note", "converged", "candidates", "upsilon", "weak_clusters", "set_aside")


def updated(header: Mapping[str, Any], arrays: StoredArrays) -> tuple[dict[str, Any], StoredArrays]:
    """Header and arrays of an older file, as those of a file of today."""
    info = header["info"]
    own = {each.name for each in fields(Diagnostics)} - {"extra"}
    of_session = {each.name for each in fields(SessionFacts)}
    diagnostics = {
        **{name: value for name, value in info.items() if name in own},
        "rounds": info.get("rounds", info.get("n_rounds")),
        "stopped": {True: "converged", False: "round limit", None: None}[info.get("converged")],
        "label_rule": info.get("label_rule", info.get("labels", "nearest")),
        "notes": [*filter(None, [info.get("note")]), *info.get("notes", [])],
        "choice": info.get("choice") or upsilon_choice(info),
        "extra": {name: value for name, value in info.items() if name not in {*own, *of_session, *RENAMED}},
    }
    session = {name: value for name, value in info.items() if name in of_session}
    return {**header, "diagnostics": diagnostics, "session": session}, with_masks(arrays)


def upsilon_choice(info: Mapping[str, Any]) -> dict[str, Any] | None:
    if "upsilon" not in info:
        return None
    return {"upsilon": info["upsilon"], "candidates": info.get("candidates") or []}


def with_masks(arrays: StoredArrays) -> StoredArrays:
    """The arrays with a mask in the place of -1; what was set aside has the cluster of the nearest center."""
    found = dict(arrays)
    for name, groups in arrays.items():
        if name.startswith("groups.") and (groups < 0).any():
            at = name.removeprefix("groups.")
            aside = groups < 0
            found[f"excluded.{at}"] = aside
            found[name] = np.where(aside, nearest(arrays[f"components.{at}"], arrays["centers"]), groups)
    return found
