"""Every exception koncord raises on purpose.

KoncordError
├── TableError             a file that cannot be read as a table of numbers
└── MissingExtra           an optional part of koncord that is not installed

Arguments a caller got wrong are `ValueError` or `TypeError`; the sentence names the argument and its owner.
"""


class KoncordError(Exception):
    """Base of the errors a caller can cause that are not wrong arguments. Its text is one sentence for a person."""


class TableError(KoncordError):
    """A file that cannot be read as a table of numbers; the sentence names the column or the row."""


class MissingExtra(KoncordError):
    """Something needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part of koncord: pip install 'koncord[{extra}]'.")
