from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock import CollectSink, DiscardSink
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.operators.sinks import Sink
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.record.value_codec import ValueCodec


def test_rows_are_collected_when_they_are_committed(context, permit):
    collector = InMemoryCollector()
    sink = CollectSink(collector)
    assert isinstance(sink, Sink)
    writer = sink.writer(context())
    writer.write(RowBatch([1, 2]))
    writer.write(ArrowBatch(pa.record_batch({"a": [3]})))
    pending = writer.prepare_commit()
    writer.write(RowBatch(["later"]))
    assert collector.rows() == []
    writer.commit(pending, permit)
    assert collector.rows() == [1, 2, {"a": 3}]


def test_a_commit_repeated_after_a_restore_adds_nothing(context, permit):
    collector = InMemoryCollector()
    writer = CollectSink(collector).writer(context())
    writer.write(RowBatch([(1, "x")]))
    codec = ValueCodec(allow_pickle=False)
    pending = list(writer.prepare_commit())
    writer.commit(pending, permit)
    restored = CollectSink(collector).writer(context(attempt=2))
    restored.commit(codec.loads(codec.dumps(pending)), permit)
    restored.write(RowBatch([(2, "y")]))
    restored.commit(restored.prepare_commit(), permit)
    assert collector.rows() == [(1, "x"), (2, "y")]


def test_nothing_written_is_nothing_to_commit(context):
    assert list(CollectSink(InMemoryCollector()).writer(context()).prepare_commit()) == []


def test_sinks_and_jobs_that_share_a_collector_do_not_shadow_each_other(context, permit):
    collector = InMemoryCollector()
    sink = CollectSink(collector)
    contexts = [
        context(),
        replace(context(), operator_id="another sink"),
        replace(context(), job_id="another-job"),
    ]
    for number, each in enumerate(contexts):
        writer = sink.writer(each)
        writer.write(RowBatch([number]))
        writer.commit(writer.prepare_commit(), permit)
    assert collector.rows() == [0, 1, 2]


def test_a_collector_of_this_process_is_not_sent_to_another():
    with pytest.raises(TypeError, match="RayCollector"):
        pickle.dumps(CollectSink(InMemoryCollector()))


def test_the_discarding_sink_keeps_nothing_for_a_commit(context, permit):
    writer = DiscardSink().writer(context())
    writer.write(RowBatch([1, 2]))
    writer.write(RowBatch([3]))
    pending = writer.prepare_commit()
    assert pending == ()
    writer.commit(pending, permit)


def test_a_sink_without_a_collector_keeps_rows_of_jobs_in_this_process(context, permit):
    results = CollectSink()
    writer = results.writer(context())
    writer.write(RowBatch([1, 2]))
    assert results.rows() == []
    writer.commit(writer.prepare_commit(), permit)
    assert results.rows() == [1, 2]
    assert CollectSink().rows() == [], "each sink has a collector of its own"


def test_the_rows_of_another_job_take_the_place_of_those_before(context, permit):
    results = CollectSink()
    for job in ("first", "second"):
        writer = results.writer(replace(context(), job_id=job))
        writer.write(RowBatch([job]))
        writer.commit(writer.prepare_commit(), permit)
    assert results.rows() == ["second"]


class WriteOnly:
    def add(self, key, rows):
        pass


def test_rows_of_a_collector_that_gives_none_back_are_refused():
    with pytest.raises(ConfigurationError, match=r"WriteOnly has no method `rows\(\)`"):
        CollectSink(WriteOnly()).rows()
