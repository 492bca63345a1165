"""An aggregator of another package over a network: the sites whose owners named it take part, another one refuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from network.federation import Federation
from network.pace import waits

pytestmark = pytest.mark.network

PAGE = Path(__file__).parents[2] / "docs" / "howto-aggregator.md"
METHOD = ("--aggregator", "linkage", "--set", "reach=0.5", "--estimator", "xmeans")


@pytest.fixture
def federation(programs, tmp_path, monkeypatch):
    """Three sites with the package of the page installed beside koncord; west did not name its aggregator."""
    page = PAGE.read_text(encoding="utf-8")
    package = tmp_path / "package"
    package.mkdir()
    for language, file in {"python": "koncord_linkage.py", "toml": "pyproject.toml"}.items():
        (package / file).write_text(re.search(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)[1], encoding="utf-8")
    beside = tmp_path / "beside"
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", beside, package)
    subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True, timeout=180)
    monkeypatch.setenv("PYTHONPATH", str(beside))
    folder = tmp_path / "federation"
    folder.mkdir()
    made = Federation(folder)
    try:
        made.serve().invite().join("north", "south", options=("--methods", "consensus,linkage")).join("west")
        yield made.wait_joined()
    finally:
        made.stop()


def test_sites_that_allowed_it_take_part_and_the_other_refuses(federation):
    run = federation.run("--out", "run", *METHOD, "--min-sites", "2", *waits("--round-timeout", 30), "--json")
    assert run.end(200) == 0, run.text
    assert {each["site"] for each in federation.model("run").info["missing"]} == {"west"}
    ledger = (federation.folder / "state-west" / "west.ledger.jsonl").read_text(encoding="utf-8")
    assert "'linkage' is of the package koncord-linkage and was not allowed by name" in json.loads(
        ledger.splitlines()[0]
    ).get("refused", ledger)
    expected = federation.in_process("alone", *METHOD, sites=("north", "south"))
    np.testing.assert_array_equal(federation.model("run").centers, expected.centers)
