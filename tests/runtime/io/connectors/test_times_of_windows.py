"""The times of windows are aware datetimes in UTC, in rows and in columns, and every sink takes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from proto_messages import message_of

from penstock import CollectSink, FileSink, FileSource
from penstock.aggregates import Count
from penstock.formats import Avro, CsvLines, Json, Protobuf
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.testing import OperatorHarness
from penstock.windows import TimeWindow, TumblingEventTimeWindows

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ROW = {"shop": "north", "start": NOON, "end": NOON + MINUTE, "n": 2}
SCHEMA = pa.schema(
    [
        ("shop", pa.string()),
        ("start", pa.timestamp("us", "UTC")),
        ("end", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
    ]
)
AVRO = Avro(
    {
        "type": "record",
        "name": "Sales",
        "fields": [
            {"name": "shop", "type": "string"},
            {"name": "start", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "end", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "n", "type": "long"},
        ],
    }
)
TIME = ".google.protobuf.Timestamp"
PROTOBUF = Protobuf(message_of([("shop", "string"), ("start", TIME), ("end", TIME), ("n", "int64")]))


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


SALES = [{"shop": "north"}, {"shop": "north"}]
MOMENTS = [micros(NOON), micros(NOON + MINUTE) - 1]


def counted(shop: str, window: TimeWindow, sales: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"shop": shop, "start": window.start, "end": window.end, "n": len(sales)}


@pytest.fixture(params=["rows", "columns"])
def result(request: pytest.FixtureRequest) -> Batch:
    """The result of a window over rows, or of a window over columns with its times renamed."""
    minutes = TumblingEventTimeWindows(MINUTE)
    if request.param == "rows":
        with OperatorHarness.of(
            lambda sales: sales.key_by(lambda sale: sale["shop"]).window(minutes).apply("counted", counted)
        ) as harness:
            harness.push(SALES, MOMENTS)
            return RowBatch(harness.push_watermark(micros(NOON + MINUTE)))
    with OperatorHarness.of(
        lambda sales: sales.key_by("shop").window(minutes).aggregate("counted", combine=False, n=Count())
    ) as harness:
        harness.push(SALES, MOMENTS)
        rows = harness.push_watermark(micros(NOON + MINUTE))
    named = [
        {"shop": r["shop"], "start": r["window_start"], "end": r["window_end"], "n": r["n"]} for r in rows
    ]
    return ArrowBatch(pa.RecordBatch.from_pylist(named, SCHEMA), None)


def test_windows_over_rows_and_over_columns_have_the_same_times(result):
    rows = result.rows if isinstance(result, RowBatch) else result.batch.to_pylist()
    assert rows == [ROW]
    assert rows[0]["start"].utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("sink", "source"),
    [
        (FileSink.parquet, FileSource.parquet),
        (FileSink.json, partial(FileSource.json, batch_format="arrow", schema=SCHEMA)),
        (FileSink.csv, partial(FileSource.csv, schema=SCHEMA)),
        (partial(FileSink.records, format=AVRO), partial(FileSource.records, format=AVRO)),
        (partial(FileSink.records, format=PROTOBUF), partial(FileSource.records, format=PROTOBUF)),
    ],
    ids=["parquet", "json", "csv", "avro", "protobuf"],
)
def test_files_have_the_times(tmp_path, context, permit, read_all, result, sink, source):
    writer = sink(str(tmp_path)).writer(context())
    writer.write(result)
    writer.commit(writer.prepare_commit(), permit)
    assert read_all(source(str(tmp_path))).rows == [ROW]


@pytest.mark.parametrize(
    "value_format",
    [Json(SCHEMA), AVRO, PROTOBUF, CsvLines(SCHEMA.names, schema=SCHEMA)],
    ids=lambda form: type(form).__name__,
)
def test_values_of_kafka_and_requests_have_the_times(result, value_format):
    values = value_format.encoder().encode(result)
    assert value_format.decoder("rows").decode(values).batch.rows == [ROW]


def test_json_without_a_schema_has_the_times_as_text(result):
    (value,) = Json().encoder().encode(result)
    assert value == (
        b'{"shop":"north","start":"2024-05-01T12:00:00+00:00","end":"2024-05-01T12:01:00+00:00","n":2}'
    )


def test_collected_rows_have_the_times(context, permit, result):
    collector = InMemoryCollector()
    writer = CollectSink(collector).writer(context())
    writer.write(result)
    codec = ValueCodec(allow_pickle=False)
    writer.commit(codec.loads(codec.dumps(list(writer.prepare_commit()))), permit)
    assert collector.rows() == [ROW]
