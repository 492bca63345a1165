"""koncord: federated clustering when nobody knows K.

Names are imported when they are first used, so that ``koncord --help`` does not wait for scikit-learn. The aggregators
and estimators among them are those of the two registries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from koncord.aggregate.registry import AGGREGATORS
from koncord.estimate.registry import ESTIMATORS

if TYPE_CHECKING:  # for type checkers, which cannot read a registry
    from koncord import data as data
    from koncord import theory as theory
    from koncord._bar import progress as progress
    from koncord.aggregate.afcl import AFCL as AFCL
    from koncord.aggregate.consensus import Consensus as Consensus
    from koncord.aggregate.fedgem import FedGEM as FedGEM
    from koncord.aggregate.fedkmeans import FedKMeans as FedKMeans
    from koncord.aggregate.ffcm import FFCM as FFCM
    from koncord.aggregate.kfed import KFed as KFed
    from koncord.aggregate.spahm import SPAHM as SPAHM
    from koncord.checks.aggregators import check_aggregator as check_aggregator
    from koncord.checks.estimators import check_local_estimator as check_local_estimator
    from koncord.clustering import FederatedClustering as FederatedClustering
    from koncord.errors import KoncordError as KoncordError
    from koncord.estimate.asm import ASM as ASM
    from koncord.estimate.dpgmm import DPGMM as DPGMM
    from koncord.estimate.gmeans import GMeans as GMeans
    from koncord.estimate.known import KnownCounts as KnownCounts
    from koncord.estimate.search import LabelFreeSearch as LabelFreeSearch
    from koncord.estimate.xmeans import XMeans as XMeans
    from koncord.fitting import fit as fit
    from koncord.model.globalmodel import GlobalModel as GlobalModel

__version__ = "0.1.0"

_HOME = {
    "DPGMM": "koncord.estimate.dpgmm",
    "FederatedClustering": "koncord.clustering",
    "GlobalModel": "koncord.model.globalmodel",
    "KnownCounts": "koncord.estimate.known",
    "KoncordError": "koncord.errors",
    "LabelFreeSearch": "koncord.estimate.search",
    "check_aggregator": "koncord.checks.aggregators",
    "check_local_estimator": "koncord.checks.estimators",
    "data": "koncord.data",
    "fit": "koncord.fitting",
    "progress": "koncord._bar",
    "theory": "koncord.theory",
}
_HOME |= {
    offer.attribute: offer.module
    for registry in (AGGREGATORS, ESTIMATORS)
    for offer in registry.own.values()
    if offer.attribute[0].isupper()  # a class; a function makes an estimator in a form of its own
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'koncord' has no attribute {name!r}")
    module = import_module(_HOME[name])
    return module if _HOME[name] == f"koncord.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
