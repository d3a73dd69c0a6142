"""The examples with Spark run, and their results are right."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from spark_notebook import NOTEBOOK, curves, executed, for_readers, graphs, outputs, without_pixels

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RunExample = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("raydp", reason="needs pip install 'penstock[spark]'")


@pytest.mark.long  # tests/on_spark/test_programs.py runs it every time, in a session that is there
def test_rows_go_from_spark_into_a_job_and_back_while_a_subtask_dies(run_example_alone: RunExample) -> None:
    run = run_example_alone("spark_in_out.py", "--kill", "--orders", 100_000)

    assert run.returncode == 0, run.stdout
    assert "every order was counted once" in run.stdout
    assert "killed orders[" in run.stdout
    assert "with 1 restart(s)" in run.stdout


@pytest.mark.long
def test_a_stream_goes_from_spark_into_a_job_and_back(run_example_alone: RunExample) -> None:
    run = run_example_alone("structured_streaming.py", "--files", 2)

    assert run.returncode == 0, run.stdout
    assert "every reading was counted once" in run.stdout


@pytest.mark.long
def test_columns_go_from_spark_into_a_job_and_back(run_example_alone: RunExample) -> None:
    run = run_example_alone("spark_columns.py", "--sales", 100_000)

    assert run.returncode == 0, run.stdout
    assert "the result equals Spark's" in run.stdout


@pytest.mark.long  # as part of `ray job submit` it runs every time
def test_the_notebook_runs_and_shows_what_is_committed(tmp_path: Path, ray_folder: str) -> None:
    """`make notebook` renews what is committed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", ray_folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        notebook = executed(tmp_path)
    assert (len(graphs(notebook)), len(curves(notebook))) == (1, 2)
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    committed = without_pixels(nbformat.read(NOTEBOOK, as_version=4))
    assert without_pixels(for_readers(notebook)) == committed
