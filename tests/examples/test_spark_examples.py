"""The examples with Spark run, and their results are right."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebooks" / "spark_to_ray_and_back.ipynb"

RunExample = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("raydp", reason="needs pip install 'penstock[spark]'")


@pytest.mark.long  # as part of `ray job submit` it runs every time, and the next one, too
def test_rows_go_from_spark_into_a_job_and_back_while_a_subtask_dies(run_example: RunExample) -> None:
    run = run_example("spark_in_out.py", "--kill", "--orders", 100_000)

    assert run.returncode == 0, run.stdout
    assert "every order was counted once" in run.stdout
    assert "killed orders[" in run.stdout
    assert "with 1 restart(s)" in run.stdout


@pytest.mark.long
def test_a_stream_goes_from_spark_into_a_job_and_back(run_example: RunExample) -> None:
    run = run_example("structured_streaming.py", "--files", 2)

    assert run.returncode == 0, run.stdout
    assert "the highest reading of each sensor is right" in run.stdout


def test_the_notebook_runs_and_shows_its_picture(tmp_path: Path, ray_folder: str) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", ray_folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        NotebookClient(notebook, timeout=280, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output.data["image/svg+xml"] for output in shown if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == 1
    assert pictures[0].count("<circle") == 24
    assert not [output for output in shown if output.output_type == "error"]
