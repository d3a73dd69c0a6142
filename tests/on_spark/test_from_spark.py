"""DataFrames as sources: rows arrive once, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import ray
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    assert_each_once,
    committed,
    copied,
    depots,
    environment,
    eventually,
    finish,
    kill_executor,
    kill_subtask,
    tell_executor,
)
from ray.util import list_named_actors

from penstock import bridge
from penstock.actors import RayCollector, RayJobHandle, kill_process
from penstock.actors.names import NAMESPACE
from penstock.runtime import CollectSink, FileSink, GraphError, JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 400_000
#: Characters of each row of `wide_numbers`.
WIDTH = 300


def numbers(spark: SparkSession, count: int = COUNT, partitions: int = 5) -> DataFrame:
    from pyspark.sql import functions as F

    return spark.range(0, count, 1, partitions).select("id", F.format_string("row %08d", "id").alias("text"))


def wide_numbers(spark: SparkSession) -> DataFrame:
    """Each of its five partitions is several frames."""
    from pyspark.sql import functions as F

    return spark.range(0, COUNT, 1, 5).select(
        "id", F.rpad(F.col("id").cast("string"), WIDTH, "-").alias("text")
    )


def test_rows_of_all_partitions_arrive_once(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, numbers(spark))
    finish(job)
    assert_each_once(tmp_path, COUNT)
    table = committed(tmp_path)
    assert table["text"].to_pylist()[:3] == [f"row {i:08d}" for i in table["id"].to_pylist()[:3]]


def test_rows_come_as_dicts_when_they_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path, parallelism=1)
    results = RayCollector()
    rows = bridge.from_spark(env, numbers(spark, 10), format="rows")
    rows.map(lambda row: (row["id"], row["text"])).sink("out", CollectSink(results))
    env.run(timeout=PATIENCE, progress=False)
    assert sorted(results.rows()) == [(i, f"row {i:08d}") for i in range(10)]


def test_a_job_can_not_go_on_amidst_rows_that_went_with_another_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    slow = Slowed(2_000, tmp_path / "go")
    job = copied(tmp_path, numbers(spark), slow=slow)
    after_rows(job, 1)
    savepoint = job.stop()
    assert finish(job).statistics.restarts == 0
    env = environment(tmp_path)
    again: Any = bridge.from_spark(env, numbers(spark), id="rows", window=1 << 22)
    again.map_batches(slow, "arrow", id="slow").sink("out", FileSink.parquet(tmp_path / "out"))
    with pytest.raises(JobFailedError, match="the position in the checkpoint is one in rows that are not"):
        env.submit(restore_from=savepoint).wait(PATIENCE)


def test_an_empty_frame_and_fewer_partitions_than_readers_end_as_they_should(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    env = environment(tmp_path, parallelism=2)
    results = RayCollector()
    nothing = bridge.from_spark(env, numbers(spark).where(F.lit(False)), id="nothing", format="rows")
    few = bridge.from_spark(env, numbers(spark, 3, partitions=1), id="few", format="rows")
    nothing.union(few).sink("out", CollectSink(results))
    env.run(timeout=PATIENCE, progress=False)
    assert sorted(row["id"] for row in results.rows()) == [0, 1, 2]


def test_a_killed_reader_gets_its_rows_again(spark: SparkSession, tmp_path: Path) -> None:
    slow = Slowed(60_000, tmp_path / "go")
    job = copied(tmp_path, numbers(spark), slow=slow, window=1 << 20)
    after_rows(job, 30_000)
    kill_subtask(job, "rows", 0)
    after_rows(job, 60_000)
    kill_subtask(job, "rows", 1)
    slow_release(tmp_path)

    result = finish(job)

    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 2


def test_a_killed_job_master_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, numbers(spark), slow=Slowed(60_000, tmp_path / "go"), window=1 << 20)
    after_rows(job, 30_000)
    master = job.report().master
    assert master is not None
    kill_process(master)
    slow_release(tmp_path)

    result = finish(job)

    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_a_kill_before_the_first_checkpoint_reads_everything_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, every=600.0)
    stream: Any = bridge.from_spark(env, numbers(spark), id="rows")
    slow = stream.map_batches(Slowed(60_000, tmp_path / "go"), "arrow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    after_rows(job, 30_000, checkpoints=0)
    kill_subtask(job, "rows", 0)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_spark_waits_for_a_slow_job(spark: SparkSession, tmp_path: Path) -> None:
    """Back pressure: no more than the window and what tasks have under way waits, however much there is."""
    window = 1 << 20
    # Two tasks at a time with at most four frames of 4 MB on their way.
    most = window + 8 * (9 << 19)
    job = copied(tmp_path, wide_numbers(spark), slow=Slowed(10_000, tmp_path / "go"), window=window)
    after_rows(job, 40_000)
    before = depots(job)
    assert not any(depot.complete for depot in before)
    assert sum(depot.rows for depot in before) < COUNT
    assert all(depot.most_unread_bytes <= most for depot in before)
    assert 3 * most < COUNT * WIDTH, "without back pressure one of the two depots would hold more"
    slow_release(tmp_path)
    finish(job)
    assert_each_once(tmp_path, COUNT)


def test_a_partition_larger_than_the_memory_of_its_executor_streams(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One partition of 700 MB, from an executor with a heap of 600, through a window of 8."""
    rows, window = 100_000, 8 << 20
    wide = spark.range(0, rows, 1, 1).selectExpr("id", "rpad(cast(id AS string), 7000, '-') AS text")
    env = environment(tmp_path, parallelism=1)
    stream: Any = bridge.from_spark(env, wide, id="rows", window=window)
    narrow = stream.map_batches(NarrowedUntilTheLast(rows - 1, tmp_path / "go"), "arrow")
    narrow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    (seen,) = bridge.wait_for_hand_over(job, PATIENCE)
    slow_release(tmp_path)
    finish(job)
    assert_each_once(tmp_path, rows)
    assert seen.bytes > 700_000_000
    assert seen.partitions == 1
    assert seen.most_unread_bytes <= window + 5 * (5 << 20), "four frames under way, and one in hand"


def test_frames_that_a_checkpoint_covers_are_let_go(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, numbers(spark), slow=Slowed(100_000, tmp_path / "go"), window=1 << 20)
    eventually(
        "frames that are let go",
        lambda: any(d.held_bytes < d.bytes - d.unread_bytes for d in depots(job)),
    )
    slow_release(tmp_path)
    finish(job)
    assert_each_once(tmp_path, COUNT)


def test_a_killed_executor_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """It is killed while one of its tasks has pushed some of the frames of a partition, and not all."""
    stops = FailsOnce(str(tmp_path / "failed"), at=70_000)
    df = wide_numbers(spark).mapInArrow(stops, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(60_000, tmp_path / "go"), window=1 << 30)
    rows_of_the_one_that_stops(job)
    kill_executor(tmp_path / "failed.executor")
    bridge.wait_for_hand_over(job, PATIENCE)
    seen = depots(job)
    (tmp_path / "failed.now").touch()  # what is left of the executor's Python worker may end
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 0
    assert sum(d.attempts for d in seen) > sum(d.partitions for d in seen) == 5
    assert sum(d.duplicates for d in seen) >= 1, "frames that the killed one had pushed"


def test_a_task_that_fails_in_its_middle_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
    fails_once = FailsOnce(str(tmp_path / "failed"), at=70_000)
    df = wide_numbers(spark).mapInArrow(fails_once, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(200_000, tmp_path / "go"), window=1 << 30)
    fail_in_its_middle(job, tmp_path)
    bridge.wait_for_hand_over(job, PATIENCE)
    seen = depots(job)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 0
    assert sum(d.attempts for d in seen) >= 6, "five partitions, and one of them at least twice"
    assert sum(d.duplicates for d in seen) >= 1


def test_rows_that_differ_when_they_are_computed_again_are_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    fails_once = FailsOnce(str(tmp_path / "failed"), at=70_000, shift=True)
    df = wide_numbers(spark).mapInArrow(fails_once, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(200_000, tmp_path / "go"), window=1 << 30)
    fail_in_its_middle(job, tmp_path)
    with pytest.raises(JobFailedError, match="gave other rows when Spark computed it again"):
        job.wait(PATIENCE)


def test_spark_may_be_gone_after_the_hand_over(spark: SparkSession, tmp_path: Path) -> None:
    """What a stopped session leaves is tried in test_session.py; here nobody takes orders any more."""
    job = copied(tmp_path, numbers(spark), slow=Slowed(60_000, tmp_path / "go"), window=1 << 30)
    done = bridge.wait_for_hand_over(job, PATIENCE)
    assert sum(d.rows for d in done) == COUNT
    after_rows(job, 30_000)
    kill_subtask(job, "rows", 1)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_a_function_that_fails_in_spark_fails_the_job_with_its_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = numbers(spark, 100).mapInArrow(raise_always, "id long, text string")
    job = copied(tmp_path, df)
    with pytest.raises(JobFailedError, match=r"operator 'rows'.*ValueError: no luck with these rows"):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0


def test_a_depot_that_dies_fails_the_job_at_once(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, numbers(spark), slow=Slowed(40_000, tmp_path / "go"), window=1 << 18)
    after_rows(job, 20_000)
    name = next(a["name"] for a in list_named_actors(all_namespaces=True) if a["name"].startswith("depot:"))
    ray.kill(ray.get_actor(name, namespace=NAMESPACE))
    slow_release(tmp_path)
    with pytest.raises(
        JobFailedError, match="the process that holds the rows between Spark and the job died"
    ):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        ("named_struct('age', INTERVAL '3' YEAR)", r"column 'c\.age' has type interval year, which Arrow"),
        ("array(INTERVAL '3' MONTH)", r"column 'c\[\]' has type interval month, which Arrow"),
        ("map('a', INTERVAL '2' YEAR)", r"column 'c\.value' has type interval year, which Arrow"),
    ],
)
def test_a_type_that_can_not_travel_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, column: str, refused: str
) -> None:
    """What has no Arrow type on the way back is refused by name in tests/bridge/test_spark_schema.py."""
    df = spark.sql(f"SELECT 1 AS id, {column} AS c")
    with pytest.raises(GraphError, match=refused):
        bridge.from_spark(environment(tmp_path), df)


def test_a_user_defined_type_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(1, Vectors.dense([0.5]))], ["id", "features"])
    with pytest.raises(GraphError, match=r"column 'features' has type vector, .*: convert it to plain"):
        bridge.from_spark(environment(tmp_path), df)


def rows_of_the_one_that_stops(job: RayJobHandle) -> None:
    """Wait until all other partitions, and some frames of that one, are handed over."""
    eventually("rows of the partition that stops", lambda: sum(d.rows for d in depots(job)) > COUNT * 4 // 5)


def fail_in_its_middle(job: RayJobHandle, folder: Path) -> None:
    rows_of_the_one_that_stops(job)
    (folder / "failed.now").touch()
    eventually("its failure", (folder / "failed").exists)


class FailsOnce:
    """Stops once, in one partition, after some rows, until it is told to fail.

    The next time it does not stop, and gives other rows if it is told to.
    """

    def __init__(self, marker: str, at: int, *, shift: bool = False) -> None:
        self.marker = marker
        self.at = at
        self.shift = shift

    def __call__(self, batches: Any) -> Any:
        import pyarrow.compute as pc
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        chosen = task.partitionId() == 2
        executor = Path(f"{self.marker}.executor")
        again = executor.exists()
        rows = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 10_000):
                piece = batch.slice(start, 10_000)
                if chosen and again and self.shift:
                    piece = piece.set_column(0, "id", pc.add(piece["id"], 1))
                yield piece
                rows += piece.num_rows
                if chosen and not again and rows >= self.at:
                    tell_executor(executor)
                    eventually("the word to fail", Path(f"{self.marker}.now").exists)
                    Path(self.marker).touch()
                    raise ValueError("no luck this time")


class NarrowedUntilTheLast:
    """Lets ids through, and holds the last one until a file is there."""

    def __init__(self, last: int, release: Path) -> None:
        self.last = last
        self.release = str(release)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.last in batch["id"].to_pylist():
            eventually("the release", Path(self.release).exists)
        return batch.select(["id"])


def raise_always(batches: Any) -> Any:
    raise ValueError("no luck with these rows")
    yield from batches


def slow_release(folder: Path) -> None:
    (folder / "go").touch()
