"""Modules that a command does without."""

import subprocess
import sys

import pytest

FIT = """
import sys
from koncord.cli import main
assert main(["fit", *sys.argv[1:], "--out", "run"]) == 0
loaded = {"scipy.stats", "scipy.optimize", "pandas", "narwhals", "sklearn", "joblib", "asyncio"} & set(sys.modules)
assert not loaded, loaded
"""


def test_a_fit_loads_neither_scikit_learn_nor_what_it_brings(tmp_path):
    rows = "\n".join(f"{at % 7},{at % 5}.5,{(at > 40) * 9 + at % 3}" for at in range(80))
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"x,y,z\n{rows}\n")
    done = subprocess.run([sys.executable, "-c", FIT, "a.csv", "b.csv"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HELP = """
import sys
from koncord.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code == 0
loaded = {"numpy", "scipy", "sklearn", "pyarrow", "jinja2", "flwr", "opendp", "cryptography"} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.mark.parametrize("command", [["--help"], ["fit", "--help"], ["join", "--help"], ["--version"]])
def test_help_loads_neither_numpy_nor_anything_that_needs_it(command):
    done = subprocess.run([sys.executable, "-c", HELP, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
