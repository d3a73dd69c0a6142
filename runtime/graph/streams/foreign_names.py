"""Advice for names that other systems use: Flink, Spark, Kafka Streams, pandas.

The nearest name of Penstock would mislead, such as `split` for `print`. So these names have advice of their
own.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from penstock.runtime.graph.streams.checked_call import WrongStreamError

_KEY_BY: Final = 'group it with key_by("column")'
_SINK: Final = "write it with sink(id, sink)"
_WINDOW: Final = 'use key_by("column").window(TumblingEventTimeWindows(size))'
_RUN: Final = "run the job with env.run() or env.submit()"
_OPTION: Final = "give parallelism=... to the operator's call"
_ID: Final = "give id=... to the operator's call"

_OF_STREAMS: Final = MappingProxyType(
    {
        "print": "show() prints its first records, and a sink writes all of them",
        "groupBy": _KEY_BY,
        "group_by": _KEY_BY,
        "groupby": _KEY_BY,
        "groupByKey": _KEY_BY,
        "where": "choose records with filter(function) or filter(expression)",
        "withColumn": "use with_columns(name=expression)",
        "foreach": "use map(function), or write a sink",
        "for_each": "use map(function), or write a sink",
        "foreachBatch": "use map_batches(function), or write a sink",
        "mapValues": "use map(function)",
        "map_values": "use map(function)",
        "peek": "use map(function)",
        "to": _SINK,
        "sinkTo": _SINK,
        "sink_to": _SINK,
        "addSink": _SINK,
        "add_sink": _SINK,
        "write": _SINK,
        "writeStream": _SINK,
        "write_csv": "write it with sink(id, FileSink.csv(directory))",
        "write_json": "write it with sink(id, FileSink.json(directory))",
        "write_parquet": "write it with sink(id, FileSink.parquet(directory))",
        "process_element": "call process(id, function)",
        "timeWindow": _WINDOW,
        "time_window": _WINDOW,
        "windowBy": _WINDOW,
        "interval_join": "use join(other, on=..., within=...) before key_by",
        "intervalJoin": "use join(other, on=..., within=...) before key_by",
        "withWatermark": "use assign_timestamps_and_watermarks(strategy)",
        "dropDuplicates": "use dedup(id, keys)",
        "drop_duplicates": "use dedup(id, keys)",
        "get_side_output": "use side_output(tag)",
        "shuffle": "use rebalance()",
        "execute": _RUN,
        "start": _RUN,
        "setParallelism": _OPTION,
        "set_parallelism": _OPTION,
        "uid": _ID,
        "name": _ID,
    }
)

#: Functions of `aggregate` by the method that other systems have.
_AGGREGATES: Final = MappingProxyType(
    {
        "sum": 'Sum("column")',
        "min": 'Min("column")',
        "max": 'Max("column")',
        "mean": 'Mean("column")',
        "avg": 'Mean("column")',
        "count": "Count()",
        "agg": 'Sum("column")',
    }
)

_FILES: Final = "use from_source(id, FileSource.csv(path)), or another format of FileSource"
_LINES: Final = "use from_source(id, FileSource.text(path))"
_CHECKPOINTS: Final = "give StreamEnvironment(checkpointing=Checkpointing(...))"

OF_ENVIRONMENTS: Final = MappingProxyType(
    {
        "execute": "use run()",
        "execute_async": "use submit()",
        "executeAsync": "use submit()",
        "from_elements": "use from_collection(id, records)",
        "fromElements": "use from_collection(id, records)",
        "add_source": "use from_source(id, source)",
        "addSource": "use from_source(id, source)",
        "from_kafka": "use from_source(id, KafkaSource(...))",
        "read": _FILES,
        "readStream": _FILES,
        "read_csv": _FILES,
        "read_json": "use from_source(id, FileSource.json(path))",
        "read_parquet": "use from_source(id, FileSource.parquet(path))",
        "read_text_file": _LINES,
        "readTextFile": _LINES,
        "textFile": _LINES,
        "enable_checkpointing": _CHECKPOINTS,
        "enableCheckpointing": _CHECKPOINTS,
        "setParallelism": "give StreamEnvironment(parallelism=...)",
        "set_parallelism": "give StreamEnvironment(parallelism=...)",
        "set_state_backend": "give StreamEnvironment(state_backend=...)",
    }
)


def refuse_foreign_method(kind: str, name: str, before_aggregate: str = "") -> None:
    """Raise an error with advice if `name` is a method of streams in other systems.

    Args:
        kind: The stream's class in the message.
        before_aggregate: Call that comes before `aggregate`.
    """
    advice = _OF_STREAMS.get(name)
    if name in _AGGREGATES:
        advice = f'use {before_aggregate}aggregate("id", {name}={_AGGREGATES[name]})'
    if advice is not None:
        article = "an" if kind.startswith("A") else "a"
        msg = f"{article} {kind} has no {name}: {advice}"
        raise WrongStreamError(msg)


def refuse_foreign_environment(name: str) -> None:
    """Raise an error with advice if `name` is a method of environments in other systems."""
    if name in OF_ENVIRONMENTS:
        msg = f"a StreamEnvironment has no {name}: {OF_ENVIRONMENTS[name]}"
        raise WrongStreamError(msg)
