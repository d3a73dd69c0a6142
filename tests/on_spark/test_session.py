"""The session itself: asked for twice, taken over, too large, stopped at bad moments."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipelines.jobs import environment
from pipelines.programs import run_program

from penstock import bridge
from penstock.runtime import ConfigurationError, GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What sessions say where nobody sees to it that they are quiet.
NOISE = re.compile(
    r"\b(TRACE|DEBUG|INFO|WARN)\b|WARNING: |SLF4J|log4j|[Ii]llegal reflective|Setting default log level|"
    r"To adjust logging level|Unable to load native-hadoop|default log4j profile"
)


def test_asking_again_gives_the_same_session_and_other_settings_are_an_error(spark: SparkSession) -> None:
    from penstock.bridge.session import session

    running = session._running
    assert running is not None
    had = running.settings
    same = bridge.spark_session(
        had.app_name, executors=had.executors, cores=had.cores, memory=had.memory, configs=had.options
    )
    assert same is spark
    with pytest.raises(ConfigurationError, match=r"the Spark session 'tests' \(executors=2, cores=1"):
        bridge.spark_session("tests", executors=1)


def test_an_existing_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert bridge.spark_session(existing=spark) is spark


def test_python_workers_run_this_interpreter_and_nothing_listens_on_all_interfaces(
    spark: SparkSession,
) -> None:
    def interpreter(numbers: object) -> object:
        yield sys.executable

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(interpreter).collect() == [sys.executable]
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_arguments_of_a_transfer_that_can_not_be_meant_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(GraphError, match="format must be 'arrow' or 'rows', not 'pandas'"):
        bridge.from_spark(environment(tmp_path), spark.range(1), format="pandas")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="window=0 is not allowed"):
        bridge.from_spark(environment(tmp_path), spark.range(1), window=0)
    with pytest.raises(GraphError, match="several columns called 'a'"):
        bridge.from_spark(environment(tmp_path), spark.sql("SELECT 1 AS a, 2 AS a"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a program printed that had two sessions, one after the other."""
    pytest.importorskip("raydp")
    return run_program("sessions.py", tmp_path_factory.mktemp("sessions"))


def test_a_session_that_is_stopped_leaves_a_job_that_has_its_rows_and_fails_the_others(said: str) -> None:
    assert "refused: 500 executor(s) of 1 CPU(s) need 500 CPUs, and the Ray cluster has 3" in said
    assert "went on without Spark, restarts: 1" in said
    for kind in ("batch", "stream"):
        (failure,) = (line for line in said.splitlines() if line.startswith(f"{kind} failed: "))
        assert f"{kind} failed: operator 'rows'" in failure
        assert "the Spark session was stopped" in failure or "or stopped it, before" in failure
        assert "; keep " in failure
        assert "start the job again" in failure
        assert f"{kind} restarts: 0" in said
    assert "stream kept all that Spark has committed: True" in said
    assert "batch kept all that was committed, each row once: True" in said
    noise = [line for line in said.splitlines() if NOISE.search(line)]
    assert not noise, "Spark and RayDP say errors only"


def test_an_attempt_and_its_speculative_copy_push_at_the_same_time(said: str) -> None:
    seen = re.search(r"attempts: (\d+) duplicates: (\d+) rows: (\d+)", said)
    assert seen is not None, said
    attempts, duplicates, rows = map(int, seen.groups())
    assert attempts == 3, "two partitions, one of them twice"
    assert duplicates >= 1, "frames that the other attempt had pushed"
    assert rows == 20_000
    assert "both push at the same time" in said
    assert "each row once, restarts: 0" in said
