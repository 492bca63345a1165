"""Every exception koncord raises on purpose.

KoncordError
├── TableError             a file that cannot be read as a table of numbers
│   └── TableArgumentError the file, column or array asked for is not there: also a ValueError
├── TablesRefused          tables that koncord check would not have a run begin with
├── MissingExtra           an optional part of koncord that is not installed
├── MessageError           bytes that are not a message of the protocol
│   ├── BadReply           a reply that is not what its site was asked for
│   ├── UnknownMethod      a method that a site does not know, or with arguments it does not take
│   └── NotAllowed         a method, a run or a question beyond what the owner of a site allows
│       └── BudgetSpent    a question that a site's privacy budget has nothing left for
├── ColumnsDiffer          sites whose tables do not have the same columns
├── TooFewSites            fewer sites answered than the run needs; it can be resumed
├── CheckpointError        a file of a run that cannot be gone on from
├── DisclosureRefused      a method that sends rows, without the caller's leave
└── ModelFileError         a file that is no saved model

Arguments a caller got wrong are `ValueError` or `TypeError`; the sentence names the argument and its owner.

The text of an error is for the person at whose machine it happened. A site tells a coordinator `outside` alone, one of
few sentences that are the same whatever its rows are.
"""

from collections.abc import Mapping
from typing import ClassVar

from koncord._installation import install_command

NO_ANSWER = "could not compute an answer; its own ledger says why."


class KoncordError(Exception):
    """Base of the errors a caller can cause that are not wrong arguments. Its text is one sentence for a person."""

    outside: ClassVar[str] = NO_ANSWER


class TableError(KoncordError):
    """A file that cannot be read as a table of numbers; the sentence names the column or the row."""


class TableArgumentError(TableError, ValueError):
    """An argument that does not fit the table: a file, a column or an array that is not there."""


class TablesRefused(KoncordError):
    """Tables that a run would refuse, as `koncord check` found; the reasons are in what it printed."""


class MissingExtra(KoncordError):
    """Something needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str, distribution: str = "koncord") -> None:
        super().__init__(
            f"{what} needs an optional part of {distribution}, '{extra}': {install_command(distribution, extra)}"
        )


class MessageError(KoncordError):
    """A message that is malformed, or not one the protocol allows at this point."""

    outside = "was sent a message that is malformed, out of turn, or more than its method asks for."


class BadReply(MessageError):
    """A reply of a site that is malformed or not what it was asked for; the site is set aside."""

    def __init__(self, site: str, reason: str) -> None:
        super().__init__(f"Site {site!r} is set aside: {reason}")
        self.site, self.reason = site, reason


class UnknownMethod(MessageError):
    """A site was asked for an aggregator or an estimator that it does not know, or with wrong arguments."""

    outside = "was asked for a method it does not know, or with arguments it does not take."


class NotAllowed(MessageError):
    """A site was asked for what its owner does not allow."""

    outside = "was asked for a method, for more rounds or for more runs than its owner allows (koncord join --help)."


class BudgetSpent(NotAllowed):
    """A site was asked for more than its privacy budget was divided over."""

    outside = "has nothing left of its privacy budget for this question."


class ColumnsDiffer(KoncordError):
    """Sites with different columns, and no leave to take what they share; or that share none."""


class TooFewSites(KoncordError):
    """Fewer sites answered an exchange than the run needs."""

    def __init__(self, exchange: int, answered: int, wanted: int, missing: Mapping[str, str]) -> None:
        self.answered = answered
        why = "; ".join(f"{site}: {reason}" for site, reason in missing.items())
        super().__init__(
            f"{answered} {'site' if answered == 1 else 'sites'} answered exchange {exchange}; the run needs at least "
            f"{wanted} and stops here ({why or 'no site was asked'})."
        )


class StoppedOnAnswers(KoncordError):
    """A run cannot go on from the answers that it took; asked again, the sites answer the same."""


class CheckpointError(KoncordError):
    """What a run kept on disk is damaged, or belongs to another run."""

    outside = "began this run with another table, method, floor or privacy budget, or lost what it kept of it."


class DisclosureRefused(KoncordError):
    """A method that sends rows was asked for and the caller has not allowed it."""

    outside = "was asked for a method that sends rows, or that has no private form beside its privacy budget."


class ModelFileError(KoncordError):
    """A file that is not a saved koncord model, or one of a version this koncord does not know."""


def told_outside(error: BaseException) -> str:
    """What a site tells a coordinator of an error: one of few sentences."""
    return error.outside if isinstance(error, KoncordError) else NO_ANSWER
