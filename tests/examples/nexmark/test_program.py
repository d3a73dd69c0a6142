"""The program of the example runs a query on a cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

RunExample = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("version", [["--arrow"], pytest.param([], marks=pytest.mark.long)])
def test_program_prints_the_last_results(run_example: RunExample, version: list[str]) -> None:
    done = run_example("nexmark/__main__.py", "q17", "--events", "5000", "--parallelism", "2", *version)
    assert done.returncode == 0, done.stdout
    assert "results of 5,000 events" in done.stdout
    assert "'total_bids'" in done.stdout


def test_program_says_which_query_has_no_version_over_columns(run_example: RunExample) -> None:
    done = run_example("nexmark/__main__.py", "q12", "--arrow")
    assert done.returncode == 2
    assert "q12 has no version over columns" in done.stdout
