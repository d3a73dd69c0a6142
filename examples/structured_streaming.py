"""Files -> Spark Structured Streaming -> a job with state -> a table -> Spark Structured Streaming.

    python examples/structured_streaming.py

A query watches a folder, parses readings and hands each micro-batch over; the job keeps the highest reading
of each sensor and writes every new record into a table; a second query watches the table. Spark commits a
micro-batch only when a checkpoint of the job covers it, so each reading counts once, whatever dies.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import bridge
from penstock.runtime import (
    Checkpointing,
    KeyedProcessFunction,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)

SENSORS = 5
RECORDS = pa.schema({"sensor": pa.string(), "celsius": pa.float64()})


class Records(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    """Emits a reading that is higher than all of its sensor before it."""

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the state."""
        self._highest: ValueState = ctx.value_state("highest", default=None)

    def process(self, value: dict[str, Any], ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """One reading of the sensor that is the current key."""
        highest = self._highest.value()
        if highest is None or value["celsius"] > highest:
            self._highest.update(value["celsius"])
            yield {"sensor": value["sensor"], "celsius": value["celsius"]}


def make_readings(folder: Path, files: int, readings: int) -> list[tuple[str, float]]:
    """Made-up readings as JSON lines, some files of them; all of them in their order."""
    folder.mkdir()
    made = [(f"s{i % SENSORS}", (i * 37 % 400) / 10 + i / 1000) for i in range(files * readings)]
    for number in range(files):
        lines = [
            json.dumps({"sensor": sensor, "celsius": celsius})
            for sensor, celsius in made[number * readings : (number + 1) * readings]
        ]
        (folder / f"{number:03d}.json").write_text("\n".join(lines))
    return made


def expected(readings: list[tuple[str, float]]) -> dict[str, float]:
    """The highest reading of each sensor."""
    highest: dict[str, float] = {}
    for sensor, celsius in readings:
        highest[sensor] = max(celsius, highest.get(sensor, celsius))
    return highest


def run(spark: Any, folder: Path, files: int, readings: int) -> bool:
    """Run it all; whether the result is right."""
    made = make_readings(folder / "readings", files, readings)
    watched = (
        spark.readStream.schema("sensor string, celsius double")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "readings"))
    )
    env = StreamEnvironment(
        "records", checkpointing=Checkpointing(every=0.5, storage=str(folder / "checkpoints"))
    )
    rows = bridge.from_structured_streaming(
        env,
        watched.where("celsius IS NOT NULL"),
        id="readings",
        format="rows",
        checkpoint_location=str(folder / "query"),
        trigger={"availableNow": True},  # ends when all files are read; leave it out to go on for ever
    )
    table = bridge.SparkTable(folder / "records", RECORDS)
    rows.key_by(lambda row: row["sensor"]).process("records", Records()).sink("table", table)

    job = env.submit()
    query = (
        table.read_stream(spark)
        .groupBy("sensor")
        .agg({"celsius": "max", "*": "count"})
        .writeStream.format("memory")
        .queryName("highest")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "second-query"))
        .start()
    )
    finished = job.wait()
    query.processAllAvailable()
    query.stop()
    highest = spark.sql("SELECT * FROM highest ORDER BY sensor")
    highest.show()
    print(f"the job took {finished.duration:.1f} s, {finished.statistics.completed_checkpoints} checkpoints")
    found = {row["sensor"]: row["max(celsius)"] for row in highest.collect()}
    return found == expected(made)


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=int, default=4, metavar="N", help="micro-batches")
    parser.add_argument("--readings", type=int, default=1_000, metavar="N", help="in each file")
    options = parser.parse_args()
    configs = {"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5, "spark.sql.shuffle.partitions": 2}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="structured-streaming-") as folder,
            bridge.spark_session("streaming", executors=1, cores=2, memory="600m", configs=configs) as spark,
        ):
            correct = run(spark, Path(folder), options.files, options.readings)
    except PenstockError as error:
        print(f"structured_streaming: {error}", file=sys.stderr)
        return 1
    print("the highest reading of each sensor is right" if correct else "WRONG")
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
