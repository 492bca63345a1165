"""The owner of a site is asked before a run, where koncord join runs: a question is shown, yes or no is typed."""

import sys
import termios
from collections.abc import Callable
from select import select

from koncord.network.processes import say

LOOK_EVERY = 0.5  # seconds
YES, NO = ("y", "yes"), ("n", "no")


def check_terminal() -> None:
    """`ValueError` unless a person can type an answer here."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ValueError("--ask needs a terminal, where its owner types yes or no; start koncord join in one.")


def typed_word(question: str, meanwhile: Callable[[], None]) -> bool:
    """Whether a person types yes; the end of the input is a no. `meanwhile` is called again and again until then."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question does not answer it
    say(question)
    while True:
        say("take part in this run? yes or no, and Enter:")
        while not select([sys.stdin], [], [], LOOK_EVERY)[0]:
            meanwhile()
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in (*YES, *NO):
            return word in YES
