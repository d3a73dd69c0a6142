"""Penstock's jobs that `columns.py` measures, over columns and over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from columnar.files import Files

from penstock import Checkpointing, DataStream, FileSink, FileSource, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Sum
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.windows import TumblingEventTimeWindows

#: Out-of-orderness that the watermarks allow for, in seconds; records of `files.moments` have at most 2 s.
LATENESS = 5.0


def environment(storage: Path, parallelism: int = 1, *, checkpoints: bool = True) -> StreamEnvironment:
    """An environment that takes a checkpoint every second, unless `checkpoints` is false."""
    checkpointing = Checkpointing(every=1.0, storage=str(storage)) if checkpoints else None
    return StreamEnvironment("columns", parallelism=parallelism, checkpointing=checkpointing)


def keyed_sum(env: StreamEnvironment, files: Files, results: Path | None = None) -> StreamEnvironment:
    """Sums by key, over columns; the operator to measure is `sums-combine`."""
    return _into(_columns(env, files).key_by("k").aggregate("sums", total=Sum("v")), results)


def rows_aggregated(env: StreamEnvironment, files: Files) -> StreamEnvironment:
    """The job of `keyed_sum` on records that are dicts; the operator to measure is `sums-combine`."""
    return _into(_rows(env, files).key_by("k").aggregate("sums", total=Sum("v")), None)


def rows_reduced(env: StreamEnvironment, files: Files) -> StreamEnvironment:
    """The sums of `keyed_sum`, by a `reduce` on dicts; the operator to measure is `sums`."""
    return _into(_rows(env, files).key_by("k").reduce("sums", added), None)


def minute_sums(env: StreamEnvironment, files: Files, results: Path | None = None) -> StreamEnvironment:
    """Sums by key and minute of event time, over columns; the operator to measure is `minutes-combine`."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(LATENESS).with_timestamp_column("ts")
    timed = _columns(env, files).assign_timestamps_and_watermarks(strategy, id="timed")
    minutes = timed.key_by("k").window(TumblingEventTimeWindows(60.0))
    return _into(minutes.aggregate("minutes", total=Sum("v")), results)


def added(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """The sum of two rows that have the same key."""
    return {"k": a["k"], "v": a["v"] + b["v"]}


def _columns(env: StreamEnvironment, files: Files) -> DataStream[Any]:
    return env.from_source("files", FileSource.parquet(str(files.folder), batch_format="arrow"))


def _rows(env: StreamEnvironment, files: Files) -> DataStream[Any]:
    return env.from_source("files", FileSource.parquet(str(files.folder)))


def _into(stream: DataStream[Any], results: Path | None) -> StreamEnvironment:
    stream.sink("out", DiscardSink() if results is None else FileSink.parquet(results))
    return stream.environment
