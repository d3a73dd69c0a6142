"""Transfers from Spark into a job or actors and back; a round measures each once and checks its sum."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from grown_memory import grown
from handoff_rows import BATCH, Counter, Maker, Making, PlainPush, summed
from measure import rows_a_second

from penstock import Checkpointing, CollectSink, JobStatus, StreamEnvironment
from penstock.actors.client.collect import RayCollector
from penstock.spark import SparkResults, from_spark

PARTITIONS = 8
_PATIENCE = 300.0
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

PUSH, SPARK_IN, PANDAS_IN = "plain push to actors", "from_spark", "df.toPandas()"
PARQUET_IN, DATA_IN = "Parquet files", "ray.data.from_spark"
SPARK_OUT, PANDAS_OUT = "SparkResults", "createDataFrame(pandas)"
PARQUET_OUT, DATA_OUT = "Parquet files", "Dataset.to_spark"


@dataclass(frozen=True, slots=True)
class Seen:
    """One measured transfer.

    Attributes:
        rate: Rows per second.
        grown: Peak growth of the memory of the driver's processes, in bytes.
    """

    rate: float
    grown: int


class Handoff:
    """Measures each way of transfer, round by round.

    Args:
        folder: Folder of checkpoints and files.
        rows: Number of rows of each transfer.
    """

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        from pyspark.sql import functions as F

        # Spark's Python workers don't have this folder on their path.
        spark.sparkContext.addPyFile(inspect.getfile(PlainPush))
        self.spark = spark
        self.folder = folder
        self.rows = rows
        self.total = rows * (rows - 1) // 2
        self.df = spark.range(0, rows, 1, PARTITIONS).select(
            "id", (F.col("id") * 0.5).alias("x"), F.lpad(F.col("id").cast("string"), 12, "0").alias("s")
        )
        self.actors = [Counter.options(name=f"counter-{i}", namespace="handoff").remote() for i in range(2)]
        self.makers = [Maker.remote() for _ in range(2)]
        self.seen_in: dict[str, list[Seen]] = {}
        self.seen_out: dict[str, list[Seen]] = {}

    def run_round(self, *directions: str) -> None:
        """Measure each way of these directions, `in` and `out`, except the ways of Ray Data."""
        if "in" in directions:
            self._measure(self.seen_in, PUSH, self.push)
            self._measure(self.seen_in, SPARK_IN, self.from_spark)
            self._measure(self.seen_in, PANDAS_IN, self.to_pandas)
            self._measure(self.seen_in, PARQUET_IN, self.parquet_in)
        if "out" in directions:
            self._measure(self.seen_out, SPARK_OUT, self.to_spark)
            self._measure(self.seen_out, PANDAS_OUT, self.create_data_frame)
            self._measure(self.seen_out, PARQUET_OUT, self.parquet_out)

    def run_ray_data_round(self, *directions: str) -> None:
        """Measure the ways of Ray Data in these directions.

        They come last, because `Dataset.to_spark` connects Spark's Python workers to Ray. Each of them then
        keeps two thirds of a processor busy until the session ends.
        """
        if "in" in directions:
            self._measure(self.seen_in, DATA_IN, self.ray_data_in)
        if "out" in directions:
            self._measure(self.seen_out, DATA_OUT, self.ray_data_out)

    def _measure(self, seen: dict[str, list[Seen]], name: str, way: Callable[[], float]) -> None:
        jvm: Any = self.spark.sparkContext._gateway
        jvm.jvm.System.gc()  # frees garbage of the previous measurement
        with grown([os.getpid(), jvm.proc.pid]) as memory:
            seconds = way()
        seen.setdefault(name, []).append(Seen(self.rows / seconds, memory.most))
        print(f"{name}: {rows_a_second(self.rows / seconds)} rows/s", file=sys.stderr, flush=True)

    # -- in ----------------------------------------------------------------------------------------------

    def push(self) -> float:
        """Push Arrow batches of the best size directly to actors: the minimum cost of a transfer."""
        usual = self.spark.conf.get(_BATCH_ROWS)
        self.spark.conf.set(_BATCH_ROWS, BATCH)
        try:
            begun = time.monotonic()
            push = PlainPush(ray.get_runtime_context().gcs_address)
            self.df.mapInArrow(push, "rows long").collect()
            return self._counted(begun)
        finally:
            self.spark.conf.set(_BATCH_ROWS, usual)

    def from_spark(self) -> float:
        """Measure a job with two readers, from its start, or that of Spark's job if earlier, to its last row.

        The results contain the time of the last row, because polling the job would slow it down.
        """
        env = self._environment("in")
        collector = RayCollector()
        sums = from_spark(env, self.df, id="rows").map_batches(summed, "arrow")
        sums.sink("out", CollectSink(collector))
        job: Any = env.submit()
        spark_jobs = self.spark.sparkContext.statusTracker()
        while not (_has_begun(job) or spark_jobs.getActiveJobsIds()):
            time.sleep(0.02)
        begun = time.monotonic()
        job.wait(_PATIENCE)
        seen = collector.rows()
        collector.close()
        assert sum(row["rows"] for row in seen) == self.rows, seen
        assert sum(row["total"] for row in seen) == self.total, seen
        return float(max(row["at"] for row in seen)) - begun

    def to_pandas(self) -> float:
        begun = time.monotonic()
        self._send(self.df.toPandas())
        return self._counted(begun)

    def parquet_in(self) -> float:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            begun = time.monotonic()
            self.df.write.mode("overwrite").parquet(folder)
            files = [str(file) for file in sorted(Path(folder).glob("part-*"))]
            ray.get([actor.add_files.remote(files[i::2]) for i, actor in enumerate(self.actors)])
            return self._counted(begun)

    def ray_data_in(self) -> float:
        begun = time.monotonic()
        blocks = ray.data.from_spark(self.df).to_arrow_refs()
        ray.get([self.actors[i % 2].add.remote(block) for i, block in enumerate(blocks)])
        return self._counted(begun)

    def _send(self, frame: Any) -> None:
        calls = []
        for i, start in enumerate(range(0, len(frame), BATCH)):
            piece = pa.Table.from_pandas(frame.iloc[start : start + BATCH], preserve_index=False)
            calls.append(self.actors[i % 2].add.remote(piece))
        ray.get(calls)

    def _counted(self, begun: float) -> float:
        seconds = time.monotonic() - begun
        seen = ray.get([actor.seen.remote() for actor in self.actors])
        assert (sum(s[0] for s in seen), sum(s[1] for s in seen)) == (self.rows, self.total), seen
        return seconds

    # -- out ---------------------------------------------------------------------------------------------

    def to_spark(self) -> float:
        """Measure a job with two subtasks that make rows, from its start to Spark's sum of the rows."""
        env = self._environment("out")
        pieces = env.from_collection("pieces", [{"first": f} for f in range(0, self.rows, BATCH)])
        rows = pieces.map_batches(Making(), "arrow", parallelism=2, id="make")
        with SparkResults() as results:
            rows.sink("out", results)
            job: Any = env.submit()
            while not _has_begun(job):
                time.sleep(0.02)
            begun = time.monotonic()
            job.wait(_PATIENCE)
            return self._aggregated(results.to_dataframe(self.spark), begun)

    def create_data_frame(self) -> float:
        begun = time.monotonic()
        tables = ray.get(self._made(lambda maker: maker.table))
        frame = pa.concat_tables(tables).to_pandas()
        return self._aggregated(self.spark.createDataFrame(frame), begun)

    def parquet_out(self) -> float:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            begun = time.monotonic()
            ray.get(self._made(lambda maker: maker.parquet, folder))
            return self._aggregated(self.spark.read.parquet(folder), begun)

    def ray_data_out(self) -> float:
        begun = time.monotonic()
        dataset = ray.data.from_arrow_refs(self._made(lambda maker: maker.table))
        return self._aggregated(dataset.to_spark(self.spark), begun)

    def _made(self, method: Callable[[Any], Any], *first: Any) -> list[Any]:
        starts = range(0, self.rows, BATCH)
        return [method(self.makers[i % 2]).remote(*first, start, BATCH) for i, start in enumerate(starts)]

    def _aggregated(self, frame: Any, begun: float) -> float:
        found = frame.selectExpr("count(*)", "sum(id)", "max(s)").first()
        seconds = time.monotonic() - begun
        assert tuple(found[:2]) == (self.rows, self.total), found
        return seconds

    def _environment(self, name: str) -> StreamEnvironment:
        storage = str(self.folder / "checkpoints")
        return StreamEnvironment(name, parallelism=2, checkpointing=Checkpointing(every=1, storage=storage))


def _has_begun(job: Any) -> bool:
    """Whether the job runs or has ended; `wait` raises the error of a failed job."""
    status = job.status()
    return status is JobStatus.RUNNING or bool(status.is_terminal)
