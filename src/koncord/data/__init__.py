"""Data sets by name, and who holds which rows."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord.data.datasets import load
    from koncord.data.demonstrations import demonstration
    from koncord.data.partitions import partition

_HOME = {
    "demonstration": "koncord.data.demonstrations",
    "load": "koncord.data.datasets",
    "partition": "koncord.data.partitions",
}

__all__ = ["demonstration", "load", "partition"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'koncord.data' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
