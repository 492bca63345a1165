"""The tutorial on raw tables, run as it is written."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "tutorial-tables.md"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_raw_exports_end_in_the_right_number_of_clusters(blocks, tmp_path, monkeypatch, run, result):
    monkeypatch.chdir(tmp_path)
    python = [code for kind, code in blocks if kind == "python"]
    commands = [shlex.split(code)[1:] for kind, code in blocks if kind == "sh"]
    names: dict[str, object] = {}
    exec(python[0], names)
    look, again, fit, predict = commands
    code, out, _ = run(*look)
    assert code == 1
    assert "--convert dublin:temperature=F-to-C" in out
    assert "refused: text with 3 levels; --categories shift or --drop shift" in out
    assert "humidity is not at aachen, bergen, dublin and essen" in out
    assert "used, as its logarithm" in out
    assert run(*again)[0] == 0
    found = result(*fit)
    assert found["n_clusters"] == 4
    page = Path("run/report.html").read_text(encoding="utf-8")
    for sentence in ("The logarithm was taken of dust", "Missing values of temperature", "humidity (cork)"):
        assert sentence in page
    assert run(*predict)[0] == 0
    assert Path("dublin-labels.csv").read_text() == Path("run/labels/dublin.csv").read_text()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(python[1], names)
    assert printed.getvalue() == "4\n"
