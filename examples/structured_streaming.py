"""Files -> Spark Structured Streaming -> a job with state -> a table -> Spark Structured Streaming.

    pip install 'penstock[spark]'
    python examples/structured_streaming.py

A query watches a folder, parses readings, and sends each micro-batch to the job. The job numbers the readings
of each sensor and keeps the highest reading in its state. It writes both into a table after each reading. A
second query watches the table and aggregates it. Then plain Python computes the result again, and the example
compares both.

Spark commits a micro-batch only when a checkpoint of the job covers it. The table shows its rows only then,
too. So each reading counts once from end to end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import (
    Checkpointing,
    KeyedProcessFunction,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.spark import SparkTable, from_structured_streaming, spark_session

SENSORS = 5
KNOWN = pa.schema({"sensor": pa.string(), "number": pa.int64(), "highest": pa.float64()})


class Highest(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    """Numbers the readings of each sensor and keeps the highest."""

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the state."""
        self._so_far: ValueState = ctx.value_state("so far", default=None)

    def process(self, value: dict[str, Any], ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Process one reading of the sensor that is the current key."""
        number, highest = self._so_far.value() or (0, value["celsius"])
        number, highest = number + 1, max(highest, value["celsius"])
        self._so_far.update((number, highest))
        yield {"sensor": value["sensor"], "number": number, "highest": highest}


def make_readings(folder: Path, files: int, readings: int) -> list[tuple[str, float]]:
    """Write readings into files of JSON lines, and return them."""
    folder.mkdir()
    made = [(f"s{i % SENSORS}", round((i * 37 % 400) / 10 + i / 1000, 3)) for i in range(files * readings)]
    for number in range(files):
        lines = [
            json.dumps({"sensor": sensor, "celsius": celsius})
            for sensor, celsius in made[number * readings : (number + 1) * readings]
        ]
        (folder / f"{number:03d}.json").write_text("\n".join(lines))
    return made


def expected(readings: list[tuple[str, float]]) -> dict[str, tuple[int, int, float]]:
    """Compute each sensor's number of rows, last number and highest reading, without Spark or Penstock."""
    count = Counter(sensor for sensor, _ in readings)
    highest: dict[str, float] = {}
    for sensor, celsius in readings:
        highest[sensor] = max(celsius, highest.get(sensor, celsius))
    return {sensor: (count[sensor], count[sensor], highest[sensor]) for sensor in count}


def job_from_readings(spark: SparkSession, folder: Path) -> tuple[StreamEnvironment, SparkTable]:
    """Build the first query and the job that reads it; return the job and its table."""
    watched = (
        spark.readStream.schema("sensor string, celsius double")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "readings"))
    )
    # The end of each micro-batch triggers a checkpoint, so the interval may be long.
    env = StreamEnvironment(
        "highest", checkpointing=Checkpointing(every=60, storage=str(folder / "checkpoints"))
    )
    rows = from_structured_streaming(
        env,
        watched.where("celsius IS NOT NULL"),
        id="readings",
        batch_format="rows",
        checkpoint_location=str(folder / "query"),
        trigger={"availableNow": True},  # ends when all files are read; without it the query runs for ever
    )
    table = SparkTable(folder / "highest", KNOWN)
    rows.key_by(lambda row: row["sensor"]).process("highest", Highest()).sink("table", table)
    return env, table


def run(spark: SparkSession, folder: Path, files: int, readings: int) -> bool:
    """Run both queries and the job; return whether the result is right."""
    made = make_readings(folder / "readings", files, readings)
    env, table = job_from_readings(spark, folder)
    job = env.submit()
    query = (
        table.read_stream(spark)
        .groupBy("sensor")
        .agg(F.count("*").alias("rows"), F.max("number").alias("last"), F.max("highest").alias("highest"))
        .writeStream.format("memory")
        .queryName("summed")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "second-query"))
        .start()
    )
    finished = job.wait(progress=True)
    query.processAllAvailable()  # the rest of the table
    query.stop()
    summed = spark.sql("SELECT * FROM summed ORDER BY sensor")
    summed.show()
    print(f"the job took {finished.duration:.1f} s, {finished.statistics.completed_checkpoints} checkpoints")
    found = {row.sensor: (row.rows, row.last, row.highest) for row in summed.collect()}
    if found != expected(made):
        print(f"WRONG: {found} is not {expected(made)}")
    return found == expected(made)


def positive(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, at least 1")
    return int(text)


def main() -> int:
    """Run the example, and compare its result with the expected one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=positive, default=4, metavar="N", help="micro-batches (default: 4)")
    parser.add_argument(
        "--readings", type=positive, default=1_000, metavar="N", help="readings in each file (default: 1000)"
    )
    options = parser.parse_args()
    configs = {"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5, "spark.sql.shuffle.partitions": 2}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="structured-streaming-") as folder,
            spark_session("streaming", executors=1, cores=2, memory="600m", configs=configs) as spark,
        ):
            correct = run(spark, Path(folder), options.files, options.readings)
    except PenstockError as error:
        print(f"structured_streaming: {error}", file=sys.stderr)
        return 1
    if correct:
        print("every reading was counted once")
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
