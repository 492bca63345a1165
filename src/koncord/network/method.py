"""What a coordinator tells the sites of the method of a run, as JSON, and what a site makes of it.

The aggregator goes with its parameters: they say how many rounds a run may have. Nothing of it is run but the
constructors of koncord's own classes, which store what they are given, and of those of installed packages that the
owner of the site allowed by name: no other package is even imported.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from koncord._random import seeded
from koncord._registry import Registry
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, sends_rows
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import NotAllowed
from koncord.estimate.named import estimator_named
from koncord.estimate.registry import ESTIMATORS

LONGEST = 10_000  # characters
# A method with more rounds than this must be named by the owner of a site: each round tells more.
MOST_ROUNDS = 25
# A few rows of nobody's, on which an estimator shows whether its arguments are right.
SAMPLE = np.linspace(-1.0, 1.0, 24).reshape(12, 2)


def as_text(aggregator: Aggregator, estimator: Mapping[str, Any]) -> str:
    """The method of a run; `estimator` holds the arguments of `estimator_named`."""
    stated = {
        "aggregator": aggregator.name,
        "parameters": aggregator.get_params(deep=False),
        "estimator": dict(estimator),
    }
    return json.dumps(stated, sort_keys=True)


def from_text(text: str, allowed: Collection[str] = ()) -> tuple[Aggregator, Any]:
    """Aggregator and estimator of a method; `ValueError`, `TypeError` or `KeyError` if it is none.

    Their arguments are checked here, without a row of anybody's table. One of an installed package is `NotAllowed`
    unless its name is among the `allowed`.
    """
    if len(text) > LONGEST:
        raise ValueError(f"The method has {len(text)} characters; at most {LONGEST} are read.")
    stated = json.loads(text)
    check_not_outside(AGGREGATORS, stated["aggregator"], allowed)
    check_not_outside(ESTIMATORS, stated["estimator"]["name"], allowed)
    aggregator = aggregator_named(stated["aggregator"])(**stated.get("parameters", {}))
    aggregator.most_rounds()  # checks what it reads
    estimator = estimator_named(**stated["estimator"])
    with one_thread():
        seeded(clone(estimator), 0).fit(SAMPLE)
    return aggregator, estimator


def check_not_outside(registry: Registry, name: str, allowed: Collection[str]) -> None:
    """`NotAllowed` for what an installed package offers, unless it is among the allowed."""
    if name not in allowed and registry[name].is_outside:
        raise NotAllowed(
            f"the {registry.what} {name!r} is of the package {registry[name].package} and was not allowed by name "
            "(--methods)."
        )


def usual_methods(*, with_rows: bool) -> tuple[str, ...]:
    """What a site takes part in unless its owner names other methods: few rounds, and rows only if they may leave.

    Never what an installed package adds.
    """
    kinds = [aggregator_named(name) for name in AGGREGATORS.own]
    few = [kind.name for kind in kinds if not sends_rows(kind) and kind().most_rounds() <= MOST_ROUNDS]
    return tuple(sorted([*few, *(kind.name for kind in kinds if with_rows and sends_rows(kind))]))
