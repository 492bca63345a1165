"""Tables: from files, frames and arrays to rows, and those that come with koncord."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord.data.demonstrations import demonstration

__all__ = ["demonstration"]


def __getattr__(name: str) -> Any:
    if name != "demonstration":
        raise AttributeError(f"module 'koncord.data' has no attribute {name!r}")
    return import_module("koncord.data.demonstrations").demonstration


def __dir__() -> list[str]:
    return __all__
