"""DataFrames as sources while the job's processes die: rows arrive once, or the job says why it stops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    assert_each_once,
    buffers,
    committed,
    copied,
    environment,
    finish,
    kill_subtask,
    slow_release,
)
from pipelines.numbered import COUNT, numbers, wide_numbers

from penstock import FileSink, JobFailedError
from penstock.bridge.spark_source import BufferSplit
from penstock.spark import from_spark, read_state
from penstock.testing import kill_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_killed_readers_get_their_rows_again_and_a_killed_job_master_costs_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    slow = Slowed(2_000, tmp_path / "go")
    job = copied(tmp_path, wide_numbers(spark), slow=slow, window=1 << 20)
    after_rows(job, 5_000)
    assert sum(buffer.rows for buffer in buffers(job)) < COUNT, "in the middle of the transfer"
    kill_subtask(job, "rows", 0)
    after_rows(job, 10_000)
    assert sum(buffer.rows for buffer in buffers(job)) < COUNT
    kill_subtask(job, "rows", 1)
    after_rows(job, 5_000)
    assert sum(buffer.rows for buffer in buffers(job)) < COUNT
    master = job.report().master
    assert master is not None
    kill_process(master)
    slow_release(tmp_path)

    result = finish(job)

    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 3


@pytest.mark.long
def test_a_kill_before_the_first_checkpoint_reads_everything_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, every=600.0)
    stream: Any = from_spark(env, numbers(spark), id="rows")
    slow = stream.map_batches(Slowed(5_000, tmp_path / "go"), "arrow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    after_rows(job, 5_000, checkpoints=0)
    kill_subtask(job, "rows", 0)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def rows_by_partition(split: BufferSplit) -> list[dict[str, int]]:
    return [{"partition": partition, "rows": rows} for partition, rows in split.rows.items()]


@pytest.mark.long
def test_a_job_can_not_continue_inside_a_transfer_to_another_job(spark: SparkSession, tmp_path: Path) -> None:
    slow = Slowed(2_000, tmp_path / "go")
    job = copied(tmp_path, numbers(spark), slow=slow)
    after_rows(job, 1)
    savepoint = job.stop()
    assert finish(job).statistics.restarts == 0
    splits = read_state(
        spark, savepoint, "rows", "splits", classes=[BufferSplit], value=rows_by_partition
    ).collect()
    known = [(each.partition, each.rows) for split in splits for each in split.value]
    assert len(dict(known)) == len(known), "each partition goes to one reader"
    assert sum(rows for _, rows in known) == committed(tmp_path).num_rows > 0
    env = environment(tmp_path)
    again: Any = from_spark(env, numbers(spark), id="rows", window=1 << 22)
    again.map_batches(slow, "arrow", id="slow").sink("out", FileSink.parquet(tmp_path / "out"))
    with pytest.raises(JobFailedError, match="position refers to rows that are no longer held"):
        env.submit(restore_from=savepoint).wait(PATIENCE)
