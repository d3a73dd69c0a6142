from __future__ import annotations

import pyarrow as pa

from penstock.runtime.io.connectors.collect_sink import InMemoryCollector, PreviewSink, newest_rows
from penstock.runtime.operators.sinks import Sink
from penstock.runtime.record.elements import ArrowBatch, RowBatch


def test_rows_are_handed_in_before_any_commit(context):
    collector = InMemoryCollector()
    sink = PreviewSink(collector)
    assert isinstance(sink, Sink)
    writer = sink.writer(context())
    writer.write(RowBatch([1, 2]))
    writer.write(ArrowBatch(pa.record_batch({"a": [3]})))
    assert newest_rows(collector.rows()) == [1, 2, {"a": 3}]
    assert list(writer.prepare_commit()) == []


def test_no_more_is_handed_in_than_somebody_wants(context):
    collector = InMemoryCollector()
    writer = PreviewSink(collector, limit=3).writer(context())
    for start in (0, 2, 4, 6):
        writer.write(RowBatch([start, start + 1]))
    assert newest_rows(collector.rows()) == [0, 1, 2]
    assert len(collector.rows()) == 2


def test_a_new_attempt_begins_again_and_nothing_counts_twice(context):
    collector = InMemoryCollector()
    sink = PreviewSink(collector)
    sink.writer(context()).write(RowBatch(["a", "b"]))
    sink.writer(context(attempt=2)).write(RowBatch(["a"]))
    assert newest_rows(collector.rows()) == ["a"]
