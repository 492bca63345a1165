"""The notebook runs from top to bottom in a kernel of its own, and shows what its words say."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parent.parent / "examples" / "penguins.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def text_of(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs_from_top_to_bottom(executed):
    for cell in code_cells(executed):
        assert not [output for output in cell.outputs if output.output_type == "error"]
        assert cell.outputs or "import" in cell.source


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_shows_the_fitted_federation_as_a_table_and_what_left_every_island(executed):
    views = [
        output.data["text/html"]
        for cell in code_cells(executed)
        for output in cell.outputs
        if "data" in output
        if "text/html" in output.data
    ]
    assert any("<caption>K = " in view and "Torgersen" in view for view in views)
    told = "\n".join(text_of(cell) for cell in code_cells(executed))
    for island in ("Biscoe", "Dream", "Torgersen"):
        assert f"{island} " in told
    assert "bytes" in told
    assert "True [" in told  # the model that was read is the one that was saved


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_stored_is_what_the_cells_print(executed):
    stored = nbformat.read(NOTEBOOK, as_version=4)
    for kept, cell in zip(code_cells(stored), code_cells(executed), strict=True):
        assert text_of(kept) == text_of(cell), "scripts/run_notebook.py stores what is printed"
        assert "execution" not in kept.metadata
    assert "KONCORD_DATA" not in NOTEBOOK.read_text(encoding="utf-8")
