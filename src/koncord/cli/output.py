"""Where results go: JSON for machines, and files that can be written."""

import json
import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any


def as_json(record: Mapping[str, Any]) -> str:
    """One JSON object on one line; arrays become lists, and numbers that JSON does not know become null.

    >>> as_json({"score": float("nan"), "counts": (1, 2)})
    '{"score": null, "counts": [1, 2]}'
    """
    return json.dumps(plain(record), allow_nan=False)


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # a NumPy array or number
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def check_output_file(option: str, path: Path, suffix: str) -> None:
    """Refuse, before any work, a file that could not be written after it."""
    if path.suffix.lower() != suffix:
        raise ValueError(f"{option} writes a {suffix} file; got '{path}'.")
    if path.is_dir():
        raise ValueError(f"{option} needs the name of a file; '{path}' is a folder.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder '{path.parent}' of {option} does not exist; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"The folder '{path.parent}' of {option} cannot be written to; choose another one.")
