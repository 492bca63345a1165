"""The paper, reproduced: its data sets and clients, runs, one row a run, and the tables, figures and verdicts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord_reproduction.datasets import load as load
    from koncord_reproduction.fedkstarhc import FedKStarHC as FedKStarHC
    from koncord_reproduction.hdbscan import FedHDBSCAN as FedHDBSCAN
    from koncord_reproduction.partitions import partition as partition

_HOME = {
    "FedHDBSCAN": "koncord_reproduction.hdbscan",
    "FedKStarHC": "koncord_reproduction.fedkstarhc",
    "load": "koncord_reproduction.datasets",
    "partition": "koncord_reproduction.partitions",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'koncord_reproduction' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
