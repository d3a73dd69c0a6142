"""A program with a Spark session that has executors on two hosts; see test_session_programs.py.

It is stopped after a transfer, in the middle of another one, and while it runs a streaming query.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    assert_each_once,
    committed,
    copied,
    environment,
    eventually,
    finish,
    kill_subtask,
)
from pipelines.two_hosts import CPUS, raced_attempts, session_on_two_hosts, two_nodes

from penstock import DeploymentError, JobFailedError
from penstock.cluster import RayJobHandle
from penstock.spark import SparkTable, from_structured_streaming, spark_session, wait_for_transfer

COUNT = 400_000


def too_many_executors() -> None:
    try:
        spark_session("large", executors=500)
    except DeploymentError as error:
        print("refused:", error)


def stopped_session(folder: Path, spark: Any) -> None:
    """One job has all of its rows and continues; two others still read, a batch and a stream, and fail."""
    whole, partial = folder / "whole", folder / "partial"
    for place in (whole, partial):
        place.mkdir()
    stream = streamed(folder, spark)
    eventually("two micro-batches", (folder / "query" / "commits" / "1").exists)
    # So slow that it still reads when the two others have ended.
    slow = Slowed(500, whole / "go")
    job = copied(whole, spark.range(0, COUNT, 1, 4), slow=slow, parallelism=1, window=1 << 30)
    done = wait_for_transfer(job, PATIENCE)
    assert sum(buffer.rows for buffer in done) == COUNT
    wide = spark.range(0, 4_000_000, 1, 40)
    batch = copied(partial, wide, slow=Slowed(10_000, partial / "go"), window=1 << 10)
    after_rows(batch, 5_000)
    before = committed_ids(partial)

    files = Path(spark.conf.get("spark.local.dir"))
    inside = {path.name.partition("-")[0] for path in files.iterdir()}
    spark.stop()
    print("files of the session:", sorted(inside & {"blockmgr", "credentials"}), "left:", files.exists())
    (partial / "go").touch()
    ends_in_failure("batch", batch)
    after = committed_ids(partial)
    once = set(after.values()) == {1}
    print("batch kept all that was committed, each row once:", bool(before) and before <= after and once)
    ends_in_failure("stream", stream)
    stream_has_kept_its_rows(folder)
    after_rows(job, 5_000)
    kill_subtask(job, "rows", 0)
    (whole / "go").touch()
    result = finish(job)
    assert_each_once(whole, COUNT)
    print("went on without Spark, restarts:", result.statistics.restarts)


def committed_ids(folder: Path) -> Counter[int]:
    return Counter(committed(folder)["id"].to_pylist())


def stream_has_kept_its_rows(folder: Path) -> None:
    commits = folder / "query" / "commits"
    by_spark = 100 * sum(name.name.isdigit() for name in commits.iterdir())
    files = [str(file) for file in (folder / "table").glob("part-*")]
    kept = ds.dataset(files, format="parquet").to_table()["value"].to_pylist()
    # The last micro-batch may be the job's and not Spark's.
    right = sorted(kept) == list(range(len(kept))) and len(kept) in (by_spark, by_spark + 100)
    print("stream kept all that Spark has committed:", right)


def streamed(folder: Path, spark: Any) -> RayJobHandle:
    """Start a job that writes a stream without end, 100 rows a micro-batch, into a table."""
    env = environment(folder, parallelism=1, every=3600.0)
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    rows: Any = from_structured_streaming(
        env, rate.select("value"), id="rows", checkpoint_location=str(folder / "query")
    )
    rows.sink("out", SparkTable(folder / "table", pa.schema({"value": pa.int64()})))
    job: Any = env.submit()
    return job  # type: ignore[no-any-return]


def ends_in_failure(kind: str, job: RayJobHandle) -> None:
    try:
        job.wait(PATIENCE)
    except JobFailedError as error:
        print(kind, "failed:", str(error).splitlines()[0])
        print(kind, "restarts:", job.statistics().restarts)


def main(folder: Path) -> None:
    # The session starts Ray itself; this is what the machine has, in Ray's eyes.
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": CPUS})
    too_many_executors()
    with two_nodes():
        spark = session_on_two_hosts()
        for scene in (raced_attempts, stopped_session):
            place = folder / scene.__name__
            place.mkdir()
            scene(place, spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
