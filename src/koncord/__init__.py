"""koncord: federated clustering when nobody knows K.

Names are imported when they are first used, so that ``koncord --help`` does not wait for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koncord import data, theory
    from koncord.errors import KoncordError
    from koncord.estimate.asm import ASM
    from koncord.estimate.dpgmm import DPGMM
    from koncord.estimate.gmeans import GMeans
    from koncord.estimate.known import KnownCounts
    from koncord.estimate.search import LabelFreeSearch
    from koncord.estimate.xmeans import XMeans
    from koncord.federate.afcl import AFCL
    from koncord.federate.consensus import Consensus
    from koncord.federate.fedgem import FedGEM
    from koncord.federate.fedkmeans import FedKMeans
    from koncord.federate.ffcm import FFCM
    from koncord.federate.kfed import KFed
    from koncord.federate.spahm import SPAHM
    from koncord.model.clustering import FederatedClustering
    from koncord.model.globalmodel import GlobalModel

__version__ = "0.1.0.dev0"

_HOME = {
    "AFCL": "koncord.federate.afcl",
    "ASM": "koncord.estimate.asm",
    "Consensus": "koncord.federate.consensus",
    "DPGMM": "koncord.estimate.dpgmm",
    "FFCM": "koncord.federate.ffcm",
    "FedGEM": "koncord.federate.fedgem",
    "FedKMeans": "koncord.federate.fedkmeans",
    "FederatedClustering": "koncord.model.clustering",
    "GMeans": "koncord.estimate.gmeans",
    "GlobalModel": "koncord.model.globalmodel",
    "KFed": "koncord.federate.kfed",
    "KnownCounts": "koncord.estimate.known",
    "KoncordError": "koncord.errors",
    "LabelFreeSearch": "koncord.estimate.search",
    "SPAHM": "koncord.federate.spahm",
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
