"""Every exception koncord raises on purpose.

KoncordError
├── TableError             a file that cannot be read as a table of numbers
│   └── TableArgumentError the file, column or array asked for is not there: also a ValueError
├── MissingExtra           an optional part of koncord that is not installed
├── MessageError           bytes that are not a message of the protocol
├── DisclosureRefused      a method that sends rows, without the caller's leave
└── ModelFileError         a file that is no saved model

Arguments a caller got wrong are `ValueError` or `TypeError`; the sentence names the argument and its owner.
"""


class KoncordError(Exception):
    """Base of the errors a caller can cause that are not wrong arguments. Its text is one sentence for a person."""


class TableError(KoncordError):
    """A file that cannot be read as a table of numbers; the sentence names the column or the row."""


class TableArgumentError(TableError, ValueError):
    """An argument that does not fit the table: a file, a column or an array that is not there."""


class MissingExtra(KoncordError):
    """Something needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part of koncord: pip install 'koncord[{extra}]'.")


class MessageError(KoncordError):
    """A message that is malformed, or not one the protocol allows at this point."""


class DisclosureRefused(KoncordError):
    """A method that sends rows was asked for and the caller has not allowed it."""


class ModelFileError(KoncordError):
    """A file that is not a saved koncord model, or one of a version this koncord does not know."""
