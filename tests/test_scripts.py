"""Scripts and benchmarks lie outside the package, so no other test notices when a name they import has gone."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(
    path for folder in ("scripts", "benchmarks", "reproduction/scripts") for path in ROOT.glob(f"{folder}/*.py")
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_script_finds_everything_it_imports(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(program.parent))
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert "main" in runpy.run_path(str(program), run_name="imported")
