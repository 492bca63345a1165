"""koncord: federated clustering when nobody knows K.

Names are imported when they are first used, so that ``koncord --help`` does not wait for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord import data, theory
    from koncord.aggregate.afcl import AFCL
    from koncord.aggregate.consensus import Consensus
    from koncord.aggregate.fedgem import FedGEM
    from koncord.aggregate.fedkmeans import FedKMeans
    from koncord.aggregate.ffcm import FFCM
    from koncord.aggregate.kfed import KFed
    from koncord.aggregate.spahm import SPAHM
    from koncord.clustering import FederatedClustering
    from koncord.errors import KoncordError
    from koncord.estimate.asm import ASM
    from koncord.estimate.dpgmm import DPGMM
    from koncord.estimate.gmeans import GMeans
    from koncord.estimate.known import KnownCounts
    from koncord.estimate.search import LabelFreeSearch
    from koncord.estimate.xmeans import XMeans
    from koncord.model.globalmodel import GlobalModel

__version__ = "0.1.0.dev0"

_HOME = {
    "AFCL": "koncord.aggregate.afcl",
    "ASM": "koncord.estimate.asm",
    "Consensus": "koncord.aggregate.consensus",
    "DPGMM": "koncord.estimate.dpgmm",
    "FFCM": "koncord.aggregate.ffcm",
    "FedGEM": "koncord.aggregate.fedgem",
    "FedKMeans": "koncord.aggregate.fedkmeans",
    "FederatedClustering": "koncord.clustering",
    "GMeans": "koncord.estimate.gmeans",
    "GlobalModel": "koncord.model.globalmodel",
    "KFed": "koncord.aggregate.kfed",
    "KnownCounts": "koncord.estimate.known",
    "KoncordError": "koncord.errors",
    "LabelFreeSearch": "koncord.estimate.search",
    "SPAHM": "koncord.aggregate.spahm",
    "XMeans": "koncord.estimate.xmeans",
    "data": "koncord.data",
    "theory": "koncord.theory",
}

__all__ = [
    "AFCL",
    "ASM",
    "DPGMM",
    "FFCM",
    "SPAHM",
    "Consensus",
    "FedGEM",
    "FedKMeans",
    "FederatedClustering",
    "GMeans",
    "GlobalModel",
    "KFed",
    "KnownCounts",
    "KoncordError",
    "LabelFreeSearch",
    "XMeans",
    "__version__",
    "data",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'koncord' has no attribute {name!r}")
    module = import_module(_HOME[name])
    return module if _HOME[name] == f"koncord.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
