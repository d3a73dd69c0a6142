"""Executes the notebooks and keeps their outputs for readers on the web.

    make notebook

executes them and writes their outputs into them. Standard error and the times of cells differ in each run and
help no reader, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

_FOLDER: Final = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOK: Final = _FOLDER / "spark_to_ray_and_back.ipynb"
TEN_MINUTES: Final = _FOLDER / "ten_minutes.ipynb"
#: Seconds for one cell.
_PATIENCE: Final = 560


def executed(folder: Path, path: Path = NOTEBOOK) -> Any:
    """A copy of a notebook, executed by a kernel of its own that works in this folder."""
    notebook = cleared(nbformat.read(path, as_version=4))
    NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3").execute(cwd=str(folder))
    return notebook


def cleared(notebook: Any) -> Any:
    """The notebook as it is before its first run."""
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    return notebook


def for_readers(notebook: Any) -> Any:
    """The executed notebook without what differs from run to run."""
    for cell in notebook.cells:
        cell.metadata = {}
    for cell in code_cells(notebook):
        cell.outputs = _joined(output for output in cell.outputs if output.get("name") != "stderr")
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def _joined(found: Iterable[Any]) -> list[Any]:
    """The printed text of a cell is one output, also where something that is left out came in between."""
    joined: list[Any] = []
    for output in found:
        if joined and output.get("name") == joined[-1].get("name") == "stdout":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def graphs(notebook: Any) -> list[str]:
    """The pages of graphs that a reader sees, in their order."""
    pages = [output.get("data", {}).get("text/html", "") for output in outputs(notebook)]
    return [page for page in pages if "<svg" in page]


def curves(notebook: Any) -> list[str]:
    """The pictures of matplotlib that a reader sees, as PNG in Base64."""
    return [output.data["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]


def without_pixels(notebook: Any) -> Any:
    """The notebook with pictures that every version of matplotlib draws a little otherwise left out."""
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = ""
    return notebook


if __name__ == "__main__":
    for path in (NOTEBOOK, TEN_MINUTES):
        nbformat.write(for_readers(executed(Path.cwd(), path)), path)
