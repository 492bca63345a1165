"""Text that others wrote, made fit to be shown: no character that moves a cursor or turns the direction of reading."""

from unicodedata import category

LONGEST_SHOWN = 300  # characters of what somebody else says: a line of a report
# They turn the direction of what follows, so that a name reads as another one.
DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Control characters, halves of a character pair, separators of lines and paragraphs.
DISRUPTIVE = ("Cc", "Cs", "Zl", "Zp")


def is_disruptive(character: str) -> bool:
    """Whether a character does something to the text around it, rather than being shown."""
    return character in DIRECTION_MARKS or category(character) in DISRUPTIVE


def is_showable(text: str) -> bool:
    """Whether no character of `text` is disruptive; letters of any script and emoji are not."""
    return text.isprintable() or not any(map(is_disruptive, text))


def showable(text: str) -> str:
    r"""`text` with an escape in the place of every disruptive character.

    >>> showable("Größe\x1b[2J\n")
    'Größe\\x1b[2J\\n'
    """
    if is_showable(text):
        return text
    return "".join(c.encode("unicode_escape").decode("ascii") if is_disruptive(c) else c for c in text)


def shortened(text: str, most: int = LONGEST_SHOWN) -> str:
    """`text` as one line of at most `most` characters that can be shown.

    >>> shortened("no\\n rows\\x07", 8)
    'no ro...'
    """
    # No more of a long text is looked at than can be shown.
    line = showable(" ".join(text[: 2 * most].split()))
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[: most - 3]}..."
