"""Build docs/cli.md from what ``--help`` prints: ``python scripts/cli_docs.py`` writes it, ``--check`` compares."""

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

from koncord.aggregate.registry import AGGREGATORS
from koncord.cli import all_commands, main

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
INTRODUCTION = """\
# Command line

This page is what `koncord --help` prints; `python scripts/cli_docs.py` builds it, and a test checks that it is current.

Results go to stdout, progress goes to stderr (a bar on a terminal, when the work takes long). With `--json`, stdout is
one JSON object and nothing else. Exit codes: 0 success; 2 a wrong call (a bad option, a file or a column that is not
there); 1 any other failure; 130 stopped with Ctrl-C. What is wrong is always one line on stderr that begins with
`koncord:`; with the environment variable `KONCORD_TRACEBACK=1` the place in the source comes before it.

`embed`, `partition` and `reproduce` come with the distribution koncord-reproduction: `pip install ./reproduction` in a
checkout. Any distribution may add commands, as entry points of the group `koncord.commands`.
"""


def page() -> str:
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}  # the page must not depend on the terminal
    with patch.dict(vars(AGGREGATORS), outside={}):  # nor on what other distributions add to the choices
        parts = [INTRODUCTION, block("koncord", ["--help"])]
        parts += [block(f"koncord {command.NAME}", [command.NAME, "--help"]) for command in all_commands()]
    return "\n".join(parts)


def block(title: str, argv: list[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        main(argv)
    return f"## {title}\n\n```text\n{printed.getvalue().rstrip()}\n```\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else f"{PAGE} is stale; run {__file__}"
        )
    PAGE.write_text(page(), encoding="utf-8")
