"""How large the house is: lines, files, constants, names, commands, options, words, tests, what a small fit calls."""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gate.lines import LOWER, Line

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "koncord"
PRODUCT = re.compile(r"koncord\W")
KONCORD = (sys.executable, "-c", "import sys, koncord.cli; sys.exit(koncord.cli.main())")
GENERATED = ("cli.md",)  # pages of docs that no hand writes


def size() -> list[Line]:
    files = sorted(SOURCE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    walked = small_fit()
    on_path = [path for path in files if str(path.relative_to(SOURCE)) in walked["files"] and "aggregate" in path.parts]
    commands, options = commands_and_options()
    figures = {
        "source lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "files": len(files),
        "numeric constants": sum(n_constants(tree) for tree in trees.values()),
        "constants on the path of the default's choice": sum(n_constants(trees[path]) for path in on_path),
        "other numbers on that path": sum(n_literals(trees[path]) for path in on_path),
        "lines on that path": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in on_path),
        "public names": sum(n_public(tree) for tree in trees.values()),
        "commands": len(commands),
        "options, all commands": sum(options.values()),
        "options of fit": options["fit"],
        "words of README": n_words(ROOT / "README.md"),
        "words of docs, by hand": sum(n_words(page) for page in pages() if page.name not in GENERATED),
        "words of docs, generated": sum(n_words(page) for page in pages() if page.name in GENERATED),
        "test lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in test_files()),
        "modules imported by a small fit": walked["modules"],
        "functions called by a small fit": walked["functions"],
    }
    return [
        Line(name=name, value=value, better=LOWER, tolerance=0.01, is_share=True) for name, value in figures.items()
    ]


def constants_of(tree: ast.Module) -> Iterator[str]:
    """Names of a module, in capitals, that hold a number or several: each name of a tuple is one."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        else:
            continue
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        if any(is_number(part) for part in ast.walk(value)):
            yield from (name for name in names if name.isupper())


def n_constants(tree: ast.Module) -> int:
    return len(list(constants_of(tree)))


def n_literals(tree: ast.Module) -> int:
    """Numbers inside functions and classes, defaults included, other than 0, 1, 2, one half and their negatives."""
    bodies = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    numbers = [part for body in bodies for part in ast.walk(body) if is_number(part)]
    return sum(abs(part.value) not in (0, 1, 2, 0.5) for part in numbers)


def is_number(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def n_public(tree: ast.Module) -> int:
    """Functions, classes and constants of a module without a leading underscore."""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)]
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return len({name for name in names if not name.startswith("_")})


def pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def n_words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_files() -> list[Path]:
    return sorted(path for folder in ("tests", "reproduction/tests") for path in (ROOT / folder).rglob("*.py"))


def commands_and_options() -> tuple[list[str], dict[str, int]]:
    """Commands of koncord, and how many options each has, as `--help` tells."""
    shown = helped()
    commands = sorted(set(re.findall(r"^    ([a-z]+)(?: |$)", shown, re.MULTILINE)))
    return commands, {name: len(options_in(helped(name))) for name in commands}


def options_in(text: str) -> set[str]:
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", text, re.MULTILINE)) - {"--help"}


def helped(*words: str) -> str:
    command = [*KONCORD, *words, "--help"]
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def small_fit() -> dict[str, Any]:
    """What `koncord fit` of three small files imports and calls, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        for at in range(3):
            X = rng.standard_normal((200, 3)) + 6 * rng.integers(0, 2, (200, 1))
            path = Path(folder) / f"site{at}.csv"
            path.write_text(
                "a,b,c\n" + "".join(",".join(f"{x:.3f}" for x in row) + "\n" for row in X), encoding="utf-8"
            )
        command = [sys.executable, "-m", "gate.size", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def walk(folder: Path) -> dict[str, Any]:
    """Run the fit with a profile of every call of a function of koncord."""
    import threading

    import koncord.cli

    package = str(Path(koncord.cli.__file__).parents[1])
    called = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            called.add((code.co_filename, code.co_firstlineno))

    words = ["fit", *(str(path) for path in sorted(folder.glob("*.csv"))), "--out", str(folder / "run")]
    threading.setprofile(note)
    sys.setprofile(note)
    code = koncord.cli.main(words)
    sys.setprofile(None)
    if code:
        raise RuntimeError(f"koncord fit ended with {code}")
    files = sorted({str(Path(name).relative_to(package)) for name, _ in called})
    modules = sum(name.split(".")[0] == "koncord" for name in sys.modules)
    return {"functions": len(called), "modules": modules, "files": files}


if __name__ == "__main__":
    print(json.dumps(walk(Path(sys.argv[1]))))
