"""How a failed check is reported, by its name, which is a sentence; and a check that both kinds share."""

from collections.abc import Callable, Iterable
from typing import Any

from sklearn.base import clone


def run_checks(checks: Iterable[Callable[[Any], None]], subject: Any) -> None:
    """Run every check on `subject`; `AssertionError` names the first that fails, and why."""
    for check in checks:
        try:
            check(subject)
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise AssertionError(
                f"{type(subject).__name__} fails the check '{sentence_of(check)}': {reason}"
            ) from error


def check_clone(subject: Any) -> None:
    """`AssertionError` if a clone has other parameters."""
    params = subject.get_params(deep=False)
    for name, value in clone(subject).get_params(deep=False).items():
        assert value is params[name] or repr(value) == repr(params[name]), f"{name!r} is not stored as it is given"


def sentence_of(check: Callable[..., None]) -> str:
    """The sentence that a check is named by.

    >>> def it_ends() -> None: ...
    >>> sentence_of(it_ends)
    'it ends'
    """
    return check.__name__.replace("_", " ")
