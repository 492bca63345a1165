"""The federation that tests share: one that a test broke is not handed to the next test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network

BROKEN = """
METHOD = ("--aggregator", "kfed", "--clusters", "3", "--seed", "5")


def test_that_breaks_the_federation_and_fails(federation):
    federation.kill_superlink()
    raise AssertionError("on purpose")


def test_after_it(federation):
    run = federation.run("--out", "next", "--min-sites", "3", *METHOD)
    assert run.end(120) == 0, run.text
"""


def test_a_test_that_fails_does_not_fail_the_next(programs, tmp_path):
    (tmp_path / "test_broken.py").write_text(BROKEN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "network.conftest", "-q", "test_broken.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1], done.stdout
