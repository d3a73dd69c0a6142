"""The speed of the way from Spark into a job and back, beside the naive ways, in the same run.

    python benchmarks/spark_handoff.py --json spark_handoff.json

The rows are a long, a double and a string of 12 characters. *In* is from the moment at which everything is
up (job, actors, executors, warm Python workers) until the last row was counted by two actors or subtasks.
*Out* is from rows in two actors or subtasks until Spark has aggregated them. Every way of a round is checked
by its sum. The *plain push* is the bare minimum: `mapInArrow` that pushes batches to two actors and waits.
*Driver grew* is the most memory that the way took, above what was there before, in the two processes of the
driver: this one and its JVM, in which `toPandas` collects.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray
from grown_memory import grown
from measure import Figures, machine, middle, options, rows_a_second, scratch, spread, table, versions

from penstock import bridge
from penstock.actors import start_local
from penstock.actors.cluster import join_existing
from penstock.runtime import Checkpointing, DiscardSink, JobStatus, StreamEnvironment

PARTITIONS = 8
BATCH = 100_000
_PATIENCE = 300.0

PUSH, SPARK_IN, PANDAS_IN = "plain push to actors", "bridge.from_spark", "df.toPandas()"
PARQUET_IN, DATA_IN = "Parquet files", "ray.data.from_spark"
SPARK_OUT, PANDAS_OUT = "bridge.SparkResults", "createDataFrame(pandas)"
PARQUET_OUT, DATA_OUT = "Parquet files", "Dataset.to_spark"


@ray.remote(num_cpus=0)
class Counter:
    """Counts rows and sums their first column."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def add(self, data: Any) -> None:
        """A batch as Arrow IPC, or an Arrow table."""
        found = pa.ipc.open_stream(data).read_all() if isinstance(data, bytes) else data
        self.rows += found.num_rows
        self.total += pc.sum(found["id"]).as_py() or 0

    def add_files(self, files: list[str]) -> None:
        """Rows of Parquet files."""
        for file in files:
            self.add(pq.read_table(file))

    def seen(self) -> tuple[int, int]:
        """Rows and sum; begins anew."""
        seen = self.rows, self.total
        self.rows = self.total = 0
        return seen


@ray.remote(num_cpus=0)
class Maker:
    """Has rows."""

    def table(self, first: int, rows: int) -> pa.Table:
        """Rows with these ids."""
        return pa.Table.from_batches([made(first, rows)])

    def parquet(self, folder: str, first: int, rows: int) -> None:
        """Rows with these ids, as a file."""
        pq.write_table(pa.Table.from_batches([made(first, rows)]), f"{folder}/{first}.parquet")


def made(first: int, rows: int) -> pa.RecordBatch:
    """Rows with these ids."""
    ids = pa.array(np.arange(first, first + rows))
    text = pc.utf8_lpad(ids.cast(pa.string()), 12, "0")
    return pa.record_batch({"id": ids, "x": pc.multiply(ids.cast(pa.float64()), 0.5), "s": text})


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of one way.

    Attributes:
        rate: Rows a second.
        grown: Bytes that the driver's processes took for it at most.
    """

    rate: float
    grown: int


class Handoff:
    """Measures every way, round by round.

    Args:
        spark: The session.
        folder: For checkpoints and files.
        rows: How many rows.
    """

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        from pyspark.sql import functions as F

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

    def run_round(self) -> None:
        """Every way once."""
        for name, way in (
            (PUSH, self.push),
            (SPARK_IN, self.from_spark),
            (PANDAS_IN, self.to_pandas),
            (PARQUET_IN, self.parquet_in),
            (DATA_IN, self.ray_data_in),
        ):
            self._measure(self.seen_in, name, way)
        for name, way in (
            (SPARK_OUT, self.to_spark),
            (PANDAS_OUT, self.create_data_frame),
            (PARQUET_OUT, self.parquet_out),
            (DATA_OUT, self.ray_data_out),
        ):
            self._measure(self.seen_out, name, way)

    def _measure(self, seen: dict[str, list[Seen]], name: str, way: Callable[[], float]) -> None:
        jvm: Any = self.spark.sparkContext._gateway
        jvm.jvm.System.gc()  # gives back what the last way has left
        with grown([os.getpid(), jvm.proc.pid]) as memory:
            seconds = way()
        seen.setdefault(name, []).append(Seen(self.rows / seconds, memory.most))
        print(f"{name}: {rows_a_second(self.rows / seconds)} rows/s", file=sys.stderr, flush=True)

    # -- in ----------------------------------------------------------------------------------------------

    def push(self) -> float:
        """The bare minimum."""
        begun = time.monotonic()
        push = PlainPush(ray.get_runtime_context().gcs_address)
        self.df.mapInArrow(push, "rows long").collect()
        return self._counted(begun)

    def from_spark(self) -> float:
        """A job with two readers, from the start of Spark's job (or of its own) to its last row."""
        env = self._environment("in")
        bridge.from_spark(env, self.df, id="rows").map_batches(summed, "arrow").sink("out", DiscardSink())
        job: Any = env.submit()
        spark_jobs = self.spark.sparkContext.statusTracker()
        while job.status() is not JobStatus.RUNNING and not spark_jobs.getActiveJobsIds():
            time.sleep(0.02)
        begun = time.monotonic()
        deadline = begun + _PATIENCE
        while (read := job.statistics().operators.get("rows")) is None or read.records_out < self.rows:
            if time.monotonic() > deadline:
                raise TimeoutError(str(job.report()))
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        job.wait(_PATIENCE)
        return seconds

    def to_pandas(self) -> float:
        """Through the driver."""
        begun = time.monotonic()
        self._send(self.df.toPandas())
        return self._counted(begun)

    def parquet_in(self) -> float:
        """Through files."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            begun = time.monotonic()
            self.df.write.mode("overwrite").parquet(folder)
            files = [str(file) for file in sorted(Path(folder).glob("part-*"))]
            ray.get([actor.add_files.remote(files[i::2]) for i, actor in enumerate(self.actors)])
            return self._counted(begun)

    def ray_data_in(self) -> float:
        """Through Ray Data."""
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
        """A job whose two subtasks make the rows, from its first moment of running to Spark's sum."""
        env = self._environment("out")
        pieces = env.from_collection("pieces", [{"first": f} for f in range(0, self.rows, BATCH)])
        rows = pieces.map_batches(Making(), "arrow", parallelism=2, id="make")
        with bridge.SparkResults() as results:
            rows.sink("out", results)
            job: Any = env.submit()
            while job.status() is not JobStatus.RUNNING:
                time.sleep(0.02)
            begun = time.monotonic()
            job.wait(_PATIENCE)
            return self._aggregated(results.to_dataframe(self.spark), begun)

    def create_data_frame(self) -> float:
        """Through the driver."""
        begun = time.monotonic()
        tables = ray.get(self._made(lambda maker: maker.table))
        frame = pa.concat_tables(tables).to_pandas()
        return self._aggregated(self.spark.createDataFrame(frame), begun)

    def parquet_out(self) -> float:
        """Through files."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            begun = time.monotonic()
            ray.get(self._made(lambda maker: maker.parquet, folder))
            return self._aggregated(self.spark.read.parquet(folder), begun)

    def ray_data_out(self) -> float:
        """Through Ray Data."""
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


class PlainPush:
    """Pushes batches to the actors, four at a time."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition."""
        from pyspark import TaskContext

        join_existing(self.address)
        partition = TaskContext.get().partitionId()
        actor = ray.get_actor(f"counter-{partition % 2}", namespace="handoff")
        calls: list[Any] = []
        rows = 0
        for batch in batches:
            if len(calls) == 4:
                ray.get(calls.pop(0))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            calls.append(actor.add.remote(sink.getvalue().to_pybytes()))
            rows += batch.num_rows
        ray.get(calls)
        yield pa.record_batch({"rows": [rows]})


class Making:
    """Makes the rows of each piece."""

    def __call__(self, pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """One batch a piece."""
        for first in pieces["first"].to_pylist():
            yield made(first, BATCH)


def summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What `Counter` does, in a job."""
    # Lists of Python objects would make Arrow import pandas, which takes longer than all the rows.
    return pa.record_batch({"total": pa.repeat(pc.sum(batch["id"]), 1)})


def show(handoff: Handoff, figures: Figures) -> None:
    """Print the tables and keep the figures."""
    for direction, ways, base in (
        ("in", handoff.seen_in, PANDAS_IN),
        ("out", handoff.seen_out, PANDAS_OUT),
    ):
        rows: list[Sequence[object]] = []
        for name, seen in ways.items():
            rate, against = middle(one.rate for one in seen), compared(ways, name, base)
            memory = middle(one.grown for one in seen) / 1e6
            rows.append(
                (name, rows_a_second(rate), f"{middle(against):.2f}", spread(against), f"{memory:.0f} MB")
            )
            figures.rates[f"{direction}, {name}"] = rate
            figures.details[f"{direction}, {name}, driver grew, MB"] = memory
        print(table([direction, "rows/s", f"x {base}", "all rounds", "driver grew"], rows), end="\n\n")
    pairs = {
        "from_spark_vs_to_pandas": (handoff.seen_in, SPARK_IN, PANDAS_IN),
        "from_spark_vs_plain_push": (handoff.seen_in, SPARK_IN, PUSH),
        "results_vs_create_data_frame": (handoff.seen_out, SPARK_OUT, PANDAS_OUT),
    }
    for name, (ways, ours, other) in pairs.items():
        figures.ratios[name] = middle(compared(ways, ours, other))


def compared(ways: dict[str, list[Seen]], one: str, other: str) -> list[float]:
    """How many times as fast one way was as another one, in each round."""
    return [a.rate / b.rate for a, b in zip(ways[one], ways[other], strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    given = options(__doc__, rows=5_000_000, rounds=3, warm_up=1).parse_args(arguments)
    figures = Figures()
    if not ray.is_initialized():
        start_local(num_cpus=8)
    share = {"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5}
    with scratch() as folder:
        # `ray.data.from_spark` works in RayDP's fault-tolerant mode only.
        session = bridge.spark_session(
            "handoff", executors=1, cores=2, memory="1g", configs=share, fault_tolerant=True
        )
        with session as spark:
            handoff = Handoff(spark, folder, given.rows // BATCH * BATCH)
            for _ in range(given.warm_up):
                handoff.run_round()
            for seen in (handoff.seen_in, handoff.seen_out):
                seen.clear()
            for _ in range(given.rounds):
                handoff.run_round()
        show(handoff, figures)
    print(f"{handoff.rows:,} rows, middle of {given.rounds} round(s). {machine().in_words()}")
    figures.write(given.json, versions())
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
