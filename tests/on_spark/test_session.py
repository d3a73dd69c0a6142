"""The session itself: asked for twice, and taken over. Programs stop theirs in test_session_programs.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipelines.jobs import environment

from penstock import bridge
from penstock.runtime import ConfigurationError, GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_python_workers_begin_with_pandas_arrow_and_ray(spark: SparkSession) -> None:
    def loaded(numbers: object) -> object:
        yield sorted({"pandas", "pyarrow", "ray"} & set(sys.modules))

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(loaded).collect() == [
        ["pandas", "pyarrow", "ray"]
    ]


def test_arguments_of_a_transfer_that_can_not_be_meant_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(GraphError, match="format must be 'arrow' or 'rows', not 'pandas'"):
        bridge.from_spark(environment(tmp_path), spark.range(1), format="pandas")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="window=0 is not allowed"):
        bridge.from_spark(environment(tmp_path), spark.range(1), window=0)
    with pytest.raises(GraphError, match="several columns called 'a'"):
        bridge.from_spark(environment(tmp_path), spark.sql("SELECT 1 AS a, 2 AS a"))
