"""The aggregators by name: the one list of koncord's own, and those of installed packages.

A package offers an aggregator by an entry point of the group ``koncord.aggregators``: the name it has as `name`, and
where its class is (see docs/howto-aggregator.md). Aggregators of koncord are added to `AGGREGATORS` below.
"""

from typing import TYPE_CHECKING

from koncord._registry import Offer, Registry
from koncord.errors import KoncordError

if TYPE_CHECKING:
    from koncord.aggregate.base import Aggregator

AGGREGATORS = Registry(
    "aggregator",
    "koncord.aggregators",
    [
        Offer(
            name="consensus",
            home="koncord.aggregate.consensus:Consensus",
            summary="finds K: sites report micro-clusters, the server finds how many clusters they make",
        ),
        Offer(
            name="fedgem",
            home="koncord.aggregate.fedgem:FedGEM",
            summary="finds K: federated generalized EM, components whose balls meet are one cluster",
        ),
        Offer(name="kfed", home="koncord.aggregate.kfed:KFed", summary="K given: k-means of local centers, one round"),
        Offer(
            name="fedkmeans",
            home="koncord.aggregate.fedkmeans:FedKMeans",
            summary="K given: rounds of k-means, the server clusters the local means",
        ),
        Offer(name="ffcm", home="koncord.aggregate.ffcm:FFCM", summary="K given: rounds of fuzzy c-means"),
        Offer(
            name="spahm",
            home="koncord.aggregate.spahm:SPAHM",
            summary="finds K: Bayesian nonparametric matching of local means, one round",
        ),
        Offer(
            name="afcl",
            home="koncord.aggregate.afcl:AFCL",
            summary="finds K from above: competing seeds; discloses every row, a benchmark",
        ),
    ],
)


def aggregator_named(name: str) -> "type[Aggregator]":
    """The class of the aggregator of this name; `ValueError` if there is none.

    >>> aggregator_named("kfed").__name__
    'KFed'
    """
    from koncord.aggregate.base import Aggregator

    offer = AGGREGATORS[name]
    kind = offer.load()
    if not (isinstance(kind, type) and issubclass(kind, Aggregator)):
        raise KoncordError(
            f"'{offer.home}' of the package {offer.package} is no class derived from koncord.aggregate.base.Aggregator."
        )
    if kind.name != name:
        raise KoncordError(
            f"The aggregator that the package {offer.package} offers as {name!r} has the name {kind.name!r}; "
            "both must be the same."
        )
    return kind
