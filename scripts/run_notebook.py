"""Run the notebook and store what its cells print.

    python scripts/run_notebook.py        # writes examples/penguins.ipynb

A test runs it again and compares.
"""

import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

NOTEBOOK = Path(__file__).parent.parent / "examples" / "penguins.ipynb"


def is_cleared(output: nbformat.NotebookNode) -> bool:
    """Whether an output is the place of a progress bar that went."""
    return bool(output.output_type == "display_data" and not output.data.get("text/html"))


def main() -> int:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the clock
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_cleared(output)]
    nbformat.write(notebook, NOTEBOOK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
