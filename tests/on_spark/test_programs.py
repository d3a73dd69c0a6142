"""Programs of the examples and of the documents, in the session that the tests of this folder share.

As programs of their own, with a session that they start, they run with `--run-long`: `tests/examples` and
`tests/docs`.
"""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from test_snippets import ON_RAY, Snippet, needs_spark

from penstock.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Runs the file of a program with its arguments; what it printed.
Run: TypeAlias = Callable[..., str]


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a program in the test's folder; the session that it asks for is this one, and stays."""
    signature = inspect.signature(spark_session)

    def session(*arguments: Any, **options: Any) -> AbstractContextManager[SparkSession]:
        signature.bind(*arguments, **options)
        return nullcontext(spark)

    def run(program: Path, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [str(program), *map(str, arguments)])
        code: object = 0
        try:
            runpy.run_path(str(program), run_name="__main__")
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        assert not code, said
        return said.out

    monkeypatch.setattr("penstock.spark.spark_session", session)
    monkeypatch.chdir(tmp_path)
    return run


def test_a_batch_goes_from_spark_into_a_job_and_back_while_a_subtask_dies(run: Run) -> None:
    for orders in (100_000, 400_000, 1_600_000):
        said = run(EXAMPLES / "spark_in_out.py", "--kill", "--orders", orders)
        if "ended before the kill" not in said:
            break
    assert "every order was counted once" in said
    assert "killed orders[" in said
    assert "with 1 restart(s)" in said


@pytest.mark.long
def test_a_stream_goes_from_spark_into_a_job_and_back(run: Run) -> None:
    said = run(EXAMPLES / "structured_streaming.py", "--files", 2)
    assert "every reading was counted once" in said


@pytest.mark.long
def test_columns_go_from_spark_into_a_job_and_back(run: Run) -> None:
    said = run(EXAMPLES / "spark_columns.py", "--sales", 50_000)
    assert "the result equals Spark's" in said


@pytest.mark.parametrize("snippet", [each for each in ON_RAY if needs_spark(each)], ids=str)
def test_a_block_of_the_documents_prints_what_they_say(run: Run, tmp_path: Path, snippet: Snippet) -> None:
    program = tmp_path / "snippet.py"
    program.write_text(snippet.code, encoding="utf-8")
    said = run(program)
    assert snippet.prints
    assert said == snippet.prints
