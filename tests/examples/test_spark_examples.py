"""The examples with Spark run, and their results are right."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RunExample = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("raydp", reason="needs pip install 'penstock[spark]'")


def test_rows_go_from_spark_into_a_job_and_back_while_a_subtask_dies(run_example: RunExample) -> None:
    run = run_example("spark_in_out.py", "--kill", "--orders", 100_000)

    assert run.returncode == 0, run.stdout
    assert "every order was counted once" in run.stdout
    assert "killed orders[" in run.stdout
    assert "with 1 restart(s)" in run.stdout


def test_a_stream_goes_from_spark_into_a_job_and_back(run_example: RunExample) -> None:
    run = run_example("structured_streaming.py", "--files", 2)

    assert run.returncode == 0, run.stdout
    assert "the highest reading of each sensor is right" in run.stdout
