"""What a coordinator tells the sites of the method of a run, as JSON, and what a site makes of it.

The aggregator goes with its parameters: they say how many rounds a run may have. Nothing of it is run but the
constructors of koncord's own classes, which store what they are given.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

import koncord
from koncord._random import seeded
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator
from koncord.estimate.named import estimator_named

LONGEST = 10_000  # characters
# A method with more rounds than this must be named by the owner of a site: each round tells more.
MOST_ROUNDS = 25
# A few rows of nobody's, on which an estimator shows whether its arguments are right.
SAMPLE = np.linspace(-1.0, 1.0, 24).reshape(12, 2)


def as_text(aggregator: Aggregator, estimator: Mapping[str, Any]) -> str:
    """The method of a run; `estimator` holds the arguments of `estimator_named`."""
    told = {
        "aggregator": aggregator.name,
        "parameters": aggregator.get_params(deep=False),
        "estimator": dict(estimator),
    }
    return json.dumps(told, sort_keys=True)


def from_text(text: str) -> tuple[Aggregator, Any]:
    """Aggregator and estimator of a method; `ValueError`, `TypeError` or `KeyError` if it is none.

    Their arguments are checked here, without a row of anybody's table.
    """
    if len(text) > LONGEST:
        raise ValueError(f"The method has {len(text)} characters; at most {LONGEST} are read.")
    told = json.loads(text)
    aggregator = aggregators()[told["aggregator"]](**told.get("parameters", {}))
    aggregator.most_rounds()  # checks what it reads
    estimator = estimator_named(**told["estimator"])
    with one_thread():
        seeded(clone(estimator), 0).fit(SAMPLE)
    return aggregator, estimator


def aggregators() -> dict[str, type[Aggregator]]:
    """Every aggregator koncord offers, by its name."""
    offered = [getattr(koncord, name) for name in koncord.__all__]
    kinds = [each for each in offered if isinstance(each, type) and issubclass(each, Aggregator)]
    return {kind.name: kind for kind in kinds}


def sends_rows(kind: type[Aggregator]) -> bool:
    return any(sent.grows_with_rows for sent in kind.sends)


def usual_methods(*, with_rows: bool) -> tuple[str, ...]:
    """What a site takes part in unless its owner names other methods: few rounds, and rows only if they may leave."""
    kinds = aggregators().values()
    few = [kind.name for kind in kinds if not sends_rows(kind) and kind().most_rounds() <= MOST_ROUNDS]
    return tuple(sorted([*few, *(kind.name for kind in kinds if with_rows and sends_rows(kind))]))
