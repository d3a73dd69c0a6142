"""The examples with Spark inside `ray job submit`, on a running cluster that asks for a token."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from head_node import Cluster, head_node
from spark_notebook import NOTEBOOK, curves, for_readers, graphs, without_pixels

from penstock.bridge.session.spark_options import find_java, use_java

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its nodes find a Java, and wait for it to start, as docs/spark.md says."""
    pytest.importorskip("raydp", reason="needs pip install 'penstock[spark]'")
    java = {"PATH": os.environ["PATH"]}
    use_java(find_java(os.environ), java)
    with head_node(**java, RAY_worker_register_timeout_seconds="240") as head:
        yield head


@pytest.mark.long  # tests/on_spark/test_programs.py runs it every time, in a session that is there
def test_a_batch_goes_from_spark_into_a_job_and_back_while_a_subtask_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    run = cluster.submit(
        EXAMPLES, "python", "spark_in_out.py", "--kill", "--orders", 100_000, outside=tmp_path
    )
    assert run.returncode == 0, run.stdout
    assert "every order was counted once" in run.stdout
    assert "killed orders[" in run.stdout
    assert "with 1 restart(s)" in run.stdout


@pytest.mark.long
def test_a_stream_goes_from_spark_into_a_job_and_back(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.submit(EXAMPLES, "python", "structured_streaming.py", "--files", 2, outside=tmp_path)
    assert run.returncode == 0, run.stdout
    assert "every reading was counted once" in run.stdout


@pytest.mark.long
def test_the_notebook_is_executed_as_a_job_and_shows_what_is_committed(
    cluster: Cluster, tmp_path: Path
) -> None:
    done = tmp_path / "done.ipynb"
    path = NOTEBOOK.relative_to(EXAMPLES)
    run = cluster.submit(EXAMPLES, "jupyter", "execute", f"--output={done}", path, outside=tmp_path)
    assert run.returncode == 0, run.stdout
    notebook = nbformat.read(done, as_version=4)
    assert len(graphs(notebook)) == len(curves(notebook)) == 1
    committed = without_pixels(nbformat.read(NOTEBOOK, as_version=4))
    assert without_pixels(for_readers(notebook)) == committed, "`make notebook` renews it"
