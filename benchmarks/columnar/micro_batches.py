"""A query of Spark Structured Streaming -> sums by key: in a job over columns, and with pandas in the driver.

Both contenders use `foreachBatch` of the same query over the same files. `from_structured_streaming` returns
from it when a checkpoint of the job covers the micro-batch. The other one calls `toPandas` and adds up sums.
Each round also measures one micro-batch alone, and subtracts its time, which includes all starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from columnar import files, jobs
from columnar.round_trip import SETTINGS
from columnar.work import Work

from penstock import CollectSink
from penstock.aggregates import Count, Sum
from penstock.spark import from_structured_streaming, spark_session

OURS, PANDAS = "from_structured_streaming, sums in a job", "foreachBatch, toPandas, groupby"

_KEYS = 1000
#: Micro-batches of the larger run, and files in each of them.
_BATCHES, _FILES = 5, 2

Sums = dict[int, int]


def _ratios(name: str) -> tuple[tuple[str, str, str, str], ...]:
    return (
        (f"{name}_vs_foreach_batch", OURS, PANDAS, "at least 2"),
        (f"{name}_with_start_vs_foreach_batch", f"{OURS}, with start", f"{PANDAS}, with start", ""),
    )


class MicroBatches(Work):
    """Compares both ways, with all micro-batches and with one."""

    ratios = _ratios("structured_streaming")

    #: Text columns besides the key and the summed value, which neither way needs.
    texts: ClassVar[int] = 0
    #: Rows are this much fewer, because `toPandas` holds all columns in the driver's memory.
    fewer: ClassVar[int] = 1

    def prepare(self) -> None:
        """Write the files, start Spark and warm up both ways; check that both return the expected sums."""
        self.spark = spark_session("micro-batches", executors=1, cores=2, memory="2g", configs={**SETTINGS})
        self.closing.callback(self.spark.stop)
        each = self.scale.round_trip_rows // self.fewer // (_BATCHES * _FILES)
        self.one, self.all = (
            files.numbers(
                self.folder / name,
                keys=_KEYS,
                rows=count * each,
                each=each,
                different=_FILES,
                texts=self.texts,
            )
            for name, count in (("one", _FILES), ("all", _BATCHES * _FILES))
        )
        self.notes["Spark"] = (
            f"Micro-batches of {_FILES * each:,} rows in {_FILES} files. "
            f"Settings: {', '.join(f'`{k}={v}`' for k, v in SETTINGS.items())}."
        )
        self._runs = 0
        for data in (self.one, self.all):
            table = files.sums(data.folder, ["k"])
            right = dict(zip(*(table.column(name).to_pylist() for name in ("k", "total")), strict=True))
            for name, way in ((OURS, self.through_columns), (PANDAS, self.through_pandas)):
                if way(data) != right:
                    raise RuntimeError(f"the sums of {name} differ from pyarrow's")

    def run_round(self, number: int) -> None:
        """Measure both ways, in alternating order."""
        ways = [(OURS, self.through_columns), (PANDAS, self.through_pandas)]
        for name, way in ways if number % 2 else reversed(ways):
            start, whole = _seconds(way, self.one), _seconds(way, self.all)
            self.add(name, (self.all.rows - self.one.rows) / max(whole - start, 1e-3))
            self.add(f"{name}, with start", self.all.rows / whole)

    def through_columns(self, data: files.Files) -> Sums:
        """Transfer micro-batches into a job that adds up sums."""
        rows = from_structured_streaming(
            jobs.environment(self.storage, 2),
            self._stream(data),
            checkpoint_location=self._location(),
            trigger={"availableNow": True},
            id="rows",
        )
        results = CollectSink()
        sums = rows.key_by("k").aggregate("sums", total=Sum("v"), rows=Count(), emit_every=60.0)
        sums.sink("out", results)
        rows.environment.run()
        newest = sorted(results.rows(), key=lambda row: row["rows"])
        return {row["k"]: row["total"] for row in newest}

    def through_pandas(self, data: files.Files) -> Sums:
        """Transfer micro-batches into the driver's memory, and add up sums there."""
        sums: Sums = {}

        def add(batch: Any, number: int) -> None:
            for key, total in batch.toPandas().groupby("k")["v"].sum().items():
                sums[key] = sums.get(key, 0) + total

        writer = self._stream(data).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", self._location()).foreachBatch(add)
        writer.start().awaitTermination()
        return sums

    def _stream(self, data: files.Files) -> Any:
        columns = ["k long", "v long", *(f"text{index} string" for index in range(self.texts))]
        reader = self.spark.readStream.schema(", ".join(columns)).option("maxFilesPerTrigger", _FILES)
        return reader.parquet(str(data.folder))

    def _location(self) -> str:
        self._runs += 1
        return str(self.folder / f"query-{self._runs}")


class MicroBatches6(MicroBatches):
    """Four more columns: texts of 12 characters."""

    ratios = _ratios("structured_streaming_6_columns")
    texts = 4
    fewer = 4


def _seconds(way: Callable[[files.Files], Sums], data: files.Files) -> float:
    begun = time.monotonic()
    way(data)
    return time.monotonic() - begun
