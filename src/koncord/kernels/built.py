"""The parts that are written in C as well: a wheel that was built without a compiler lacks them."""

from importlib import import_module
from typing import Any


def compiled_module(name: str) -> Any:
    """A module of `koncord.kernels` in C; None where it was not built, and NumPy does its work."""
    try:
        return import_module(f"koncord.kernels.{name}")
    except ImportError:
        return None
