"""What a coordinator states of a run to the sites, as JSON, and what a site makes of it.

The statement goes with every exchange and never changes in a run: who asks and what for, the aggregator and its
parameters, the estimator, the columns. Its SHA-256 is the run's identifier, which both sides show. The parameters say
how many rounds a run may have. Nothing of it is run but the constructors of koncord's own classes, which store what
they are given, and of those of installed packages that the owner of the site allowed by name: no other package is even
imported.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.base import clone

from koncord._random import seeded
from koncord._registry import Registry
from koncord._text import shortened
from koncord._threads import one_thread
from koncord.aggregate.base import Aggregator, sends_rows
from koncord.aggregate.registry import AGGREGATORS, aggregator_named
from koncord.errors import NotAllowed
from koncord.estimate.named import estimator_named
from koncord.estimate.registry import ESTIMATORS
from koncord.session.policy import SitePolicy

LONGEST = 100_000  # characters: the names of a few thousand columns
IDENTIFIER_DIGITS = 16  # of a SHA-256: as much as two people compare
NOT_SAID = "not said"
# A method with more rounds than this must be named by the owner of a site: each round tells more.
MOST_ROUNDS = 25
# A few rows of nobody's, on which an estimator shows whether its arguments are right.
SAMPLE = np.linspace(-1.0, 1.0, 24).reshape(12, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Who asks for a run, what for, and which columns it is about."""

    by: str = NOT_SAID  # as the coordinator says; nobody proves it
    purpose: str = NOT_SAID
    columns: tuple[str, ...] | None = None  # None: all that the sites have


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a site is asked to take part in, as its owner sees it."""

    identifier: str
    asked: RunRequest
    aggregator: str
    parameters: Mapping[str, Any]
    estimator: Mapping[str, Any]
    rounds: int  # at most, by the aggregator's own account with these parameters

    def question(self, run: str, columns: Sequence[str], policy: SitePolicy) -> str:
        """What a person reads who says whether a site takes part: what is asked, and the site's own limits."""
        budget = {} if policy.budget is None else policy.budget.as_dict()
        return "\n".join(
            (
                f"run {run}, identifier {self.identifier}",
                f"  asked by    {self.asked.by} (as the coordinator says)",
                f"  purpose     {self.asked.purpose}",
                f"  method      {self.aggregator} {values_text(self.parameters)}",
                f"  estimator   {values_text(self.estimator)}",
                f"  rounds      at most {self.rounds}",
                f"  columns     {', '.join(columns)}",
                f"  floor       {policy.min_report} rows",
                f"  budget      {values_text(budget) or 'none'}",
            )
        )


def values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shortened(str(value))}" for name, value in values.items() if value is not None)


def statement_text(aggregator: Aggregator, estimator: Mapping[str, Any], asked: RunRequest | None = None) -> str:
    """The statement of a run; `estimator` holds the arguments of `estimator_named`."""
    stated: dict[str, Any] = {
        "aggregator": aggregator.name,
        "parameters": aggregator.get_params(deep=False),
        "estimator": dict(estimator),
    }
    if asked is not None:
        columns = None if asked.columns is None else list(asked.columns)
        stated["asked"] = {"by": asked.by, "purpose": asked.purpose, "columns": columns}
    return json.dumps(stated, sort_keys=True)


def identifier(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:IDENTIFIER_DIGITS]


def statement_of(text: str, aggregator: Aggregator) -> Statement:
    """What is asked, from a text that `from_text` has read as a method with this aggregator."""
    stated = json.loads(text)
    return Statement(
        identifier=identifier(text),
        asked=asked_in(stated.get("asked", {})),
        aggregator=aggregator.name,
        parameters=stated.get("parameters", {}),
        estimator=stated["estimator"],
        rounds=aggregator.most_rounds(),
    )


def asked_in(content: Any) -> RunRequest:
    """Who asks, from another's JSON; `ValueError` if it is not that."""
    if not isinstance(content, dict):
        raise ValueError("'asked' is not an object.")
    by, purpose, columns = content.get("by", NOT_SAID), content.get("purpose", NOT_SAID), content.get("columns")
    if not isinstance(by, str) or not isinstance(purpose, str):
        raise ValueError("'by' and 'purpose' are not text.")
    if columns is not None and not (
        isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns)
    ):
        raise ValueError("'columns' is not a list of names.")
    return RunRequest(
        by=shortened(by) or NOT_SAID,
        purpose=shortened(purpose) or NOT_SAID,
        columns=None if columns is None else tuple(columns),
    )


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
    check_fits(json.dumps(stated["estimator"], sort_keys=True))
    return aggregator, estimator


@lru_cache(maxsize=16)
def check_fits(arguments: str) -> None:
    """An error of its own unless the estimator with these arguments, as JSON, can be fitted to a few rows."""
    with one_thread():
        seeded(clone(estimator_named(**json.loads(arguments))), 0).fit(SAMPLE)


def check_not_outside(registry: Registry, name: str, allowed: Collection[str]) -> None:
    """`NotAllowed` for what an installed package offers, unless it is among the allowed."""
    if name not in allowed and registry[name].is_outside:
        raise NotAllowed(
            f"the {registry.what} {name!r} is of the package {registry[name].package} and was not allowed by name "
            "(--methods)."
        )


def usual_methods(*, with_rows: bool) -> tuple[str, ...]:
    """What a site takes part in unless its owner names other methods: what its joint partition covers, in few rounds.

    And what sends rows, if they may leave. Never what an installed package adds.
    """
    kinds = [aggregator_named(name) for name in AGGREGATORS.own]
    few = [kind.name for kind in kinds if not kind.reads_rows and kind().most_rounds() <= MOST_ROUNDS]
    return tuple(sorted([*few, *(kind.name for kind in kinds if with_rows and sends_rows(kind))]))
