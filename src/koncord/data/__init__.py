"""Tables: from files, frames and arrays to rows, and those that come with koncord."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord.data.islands import penguins

__all__ = ["penguins"]


def __getattr__(name: str) -> Any:
    if name != "penguins":
        raise AttributeError(f"module 'koncord.data' has no attribute {name!r}")
    return import_module("koncord.data.islands").penguins


def __dir__() -> list[str]:
    return __all__
