"""Run the code of a tutorial or how-to page, block by block, and compare what it prints with what the page shows.

    python scripts/doc_blocks.py docs/tutorial-files.md            # says what differs
    python scripts/doc_blocks.py docs/tutorial-files.md --write    # writes what was printed into the page

Blocks run in the order of the page and in one empty folder: those marked ``sh`` in one shell, those marked ``python``
in one namespace. A block marked ``text`` that follows is what the block before it prints; ``...`` there stands for
anything. Blocks with any other mark are not run.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DONE = "doc-blocks-done"
WITHIN = 1800  # seconds for a page
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# What differs from run to run: how long it took.
SECONDS = re.compile(r"\d+\.\d+ s\b")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page that is run, with what the page says it prints."""

    language: str
    code: str
    line: int  # of the page
    shown: tuple[int, int] | None  # where in the page what it prints is
    expected: str


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    found = list(FENCE.finditer(page))
    blocks = []
    for at, match in enumerate(found):
        if match[1] == "text":
            continue
        after = found[at + 1] if at + 1 < len(found) else None
        is_shown = after is not None and after[1] == "text" and not page[match.end() : after.start()].strip()
        blocks.append(
            Block(
                language=match[1],
                code=match[2],
                line=page.count("\n", 0, match.start()) + 2,
                shown=after.span(2) if is_shown and after is not None else None,
                expected=after[2] if is_shown and after is not None else "",
            )
        )
    return blocks


class Shell:
    """One bash for all blocks of a page; `koncord` and `python` are those of this environment."""

    def __init__(self, folder: Path) -> None:
        bin_ = Path(sys.executable).parent
        variables = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "OPENBLAS_NUM_THREADS": "1"}
        variables["KONCORD_TABLES"] = str(
            folder.resolve() / ".tables"
        )  # a page is run by somebody who has answered nothing yet
        self.process = subprocess.Popen(
            ["timeout", "--kill-after=5", str(WITHIN), "bash", "--noprofile", "--norc"],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, code: str) -> str:
        """What a block prints; `RuntimeError` where one of its commands fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # A command that fails is noted and the shell goes on: it holds the jobs that the page started.
        self.process.stdin.write(f"failed=0; trap 'failed=$?' ERR\n{code}\necho; echo {DONE} $failed\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                status = int(line.split()[1])
                text = "".join(printed).removesuffix("\n")
                if status:
                    raise RuntimeError(f"exit code {status}:\n{text}")
                return text
            printed.append(line)
        raise RuntimeError(f"the shell ended:\n{''.join(printed)}")

    def close(self) -> None:
        """End the shell and what it left in the background."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.write("kill $(jobs -p) 2> /dev/null; wait; exit\n")
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def run_page(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Every block of a page, and what it prints in `folder`."""
    names: dict[str, object] = {"__name__": "page"}
    shell = Shell(folder)
    home = Path.cwd()
    try:
        os.chdir(folder)
        for block in blocks_of(page):
            try:
                if block.language == "sh":
                    printed = shell.run(block.code)
                else:
                    with contextlib.redirect_stdout(io.StringIO()) as out:
                        exec(compile(block.code, f"line {block.line}", "exec"), names)
                    printed = out.getvalue()
            except Exception as error:
                raise RuntimeError(f"The block at line {block.line} fails: {error}\n{block.code}") from error
            yield block, printed
    finally:
        os.chdir(home)
        shell.close()


def is_as_shown(block: Block, printed: str) -> bool:
    """Whether a block prints what the page shows; one without a block of text may print anything."""
    return block.shown is None or doctest.OutputChecker().check_output(block.expected, printed, FLAGS)


def rewritten(page: str, folder: Path) -> str:
    """The page with what its blocks print."""
    ran = [(block, printed) for block, printed in run_page(page, folder) if not is_as_shown(block, printed)]
    for block, printed in reversed(ran):
        assert block.shown is not None
        start, stop = block.shown
        text = "\n".join(line.rstrip() for line in SECONDS.sub("... s", printed).strip("\n").splitlines())
        page = f"{page[:start]}{text}\n{page[stop:]}"
    return page


def main() -> int:
    path = Path(sys.argv[1])
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        new = rewritten(page, Path(folder))
    if "--write" in sys.argv:
        path.write_text(new, encoding="utf-8")
        return 0
    if new != page:
        print(f"{path} shows what its code does not print; write it by --write", file=sys.stderr)
    return int(new != page)


if __name__ == "__main__":
    sys.exit(main())
