"""What the docs say of the files of a run, held against files of a run."""

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

from koncord.cli import main
from koncord.model.globalmodel import PLANNED
from koncord.runs.assignments import HEADER, OUTLIER_HEADER

SUPPORT = ("--min-support", "2")  # so that what one site alone holds is set aside
DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def folder(blobs, tmp_path, capsys):
    for name, centers in {"a": [[0, 0], [9, 0]], "b": [[9, 0], [0, 9]]}.items():
        rows = blobs(centers, n_each=40)[0]
        lines = ["x,y", *(",".join(map(str, row)) for row in rows.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    assert (
        main(["fit", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--out", str(tmp_path / "run"), *SUPPORT]) == 0
    )
    capsys.readouterr()
    return tmp_path / "run"


def first_names(page, heading):
    """The first name of every row of the table below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def rows_of(page, heading):
    """First cells of the table below a heading, without their quotes."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")][2:]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_page_on_the_model_file_names_every_array_and_every_key(folder):
    with safe_open(folder / "model.koncord", framework="numpy") as stored:
        arrays = {re.sub(r"\.\d+$", ".N", name) for name in stored.keys()}  # noqa: SIM118
        header = json.loads(stored.metadata()["koncord"])
    planned = {name for name in arrays if name.startswith("plan.")}
    assert rows_of("model-format.md", "Arrays") == arrays - planned
    assert rows_of("model-format.md", "Plan") == {f"plan.{name}" for name in PLANNED} >= planned
    assert rows_of("model-format.md", "JSON") == set(header)
    for part in ("diagnostics", "session"):
        assert first_names("model-format.md", part) == set(header[part])


def test_the_page_on_the_folder_names_every_file_and_every_key(folder):
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert rows_of("report.md", "run.json") == set(record) - {"format", "version"}
    assert rows_of("report.md", "Labels") == {*HEADER, OUTLIER_HEADER}
    listed = (DOCS / "report.md").read_text(encoding="utf-8").split("## Labels")[0]
    for file in folder.iterdir():
        assert f"| `{file.name}" in listed
