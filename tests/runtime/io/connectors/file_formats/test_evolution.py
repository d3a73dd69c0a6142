"""A field is added, dropped, renamed or widened between the savepoint of a job and the next program."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from proto_messages import message_of

from penstock import BadRecordError, FileSink, FileSource
from penstock.formats import Avro, CsvLines, Json, JsonSchema, Protobuf
from penstock.runtime.record.elements import RowBatch


def avro(*fields: Any) -> dict[str, Any]:
    described = [one if isinstance(one, dict) else {"name": one[0], "type": one[1]} for one in fields]
    return {"type": "record", "name": "Order", "fields": described}


WRITER = avro(("id", "int"), ("user", "string"))
Old = message_of([("id", "int32"), ("user", "string")])
OLD = pa.schema({"id": pa.int32(), "user": pa.string()})
ROWS = [{"id": number, "user": "u" * 50} for number in range(300)]

#: What changes; the next program's format; and a row that it reads.
CHANGES: list[tuple[str, Any, Any, Any]] = [
    ("added", Json(OLD), Json(pa.schema([*OLD, ("note", pa.string())])), {"note": None}),
    ("dropped", Json(OLD), Json(pa.schema({"id": pa.int32()})), {"user": ...}),
    (
        "renamed",
        Json(OLD),
        Json(pa.schema({"id": pa.int32(), "name": pa.string()})),
        {"user": ..., "name": None},
    ),
    ("widened", Json(OLD), Json(pa.schema({"id": pa.float64(), "user": pa.string()})), {"id": float}),
    (
        "added",
        JsonSchema({"required": ["id"]}, OLD),
        JsonSchema({"required": ["id"]}, pa.schema([*OLD, ("note", pa.string())])),
        {"note": None},
    ),
    (
        "widened",
        CsvLines(schema=OLD),
        CsvLines(["id", "user"], pa.schema({"id": pa.float64()})),
        {"id": float},
    ),
    (
        "added",
        Avro(WRITER),
        Avro(avro(*WRITER["fields"], {"name": "n", "type": "int", "default": 7})),
        {"n": 7},
    ),
    ("dropped", Avro(WRITER), Avro(avro(("id", "int"))), {"user": ...}),
    (
        "renamed",
        Avro(WRITER),
        Avro(avro(("id", "int"), {"name": "name", "type": "string", "aliases": ["user"]})),
        {"user": ..., "name": "u" * 50},
    ),
    ("widened", Avro(WRITER), Avro(avro(("id", "double"), ("user", ["null", "string"]))), {"id": float}),
    (
        "added",
        Protobuf(Old),
        Protobuf(message_of([("id", "int32"), ("user", "string"), ("n", "optional int32")])),
        {"n": None},
    ),
    ("dropped", Protobuf(Old), Protobuf(message_of([("id", "int32")])), {"user": ...}),
    (
        "renamed",
        Protobuf(Old),
        Protobuf(message_of([("id", "int32"), ("name", "string")])),
        {"user": ..., "name": "u" * 50},
    ),
    (
        "widened",
        Protobuf(Old),
        Protobuf(message_of([("id", "int64"), ("user", "bytes")])),
        {"user": b"u" * 50},
    ),
]


def changed(row: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A row with changed fields; `...` drops a field, and a type converts its value."""
    new = {name: value(row[name]) if isinstance(value, type) else value for name, value in change.items()}
    return {name: value for name, value in {**row, **new}.items() if value is not ...}


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("old", "new", "change"),
    [pytest.param(*rest, id=f"{type(rest[0]).__name__}-{what}") for what, *rest in CHANGES],
)
def test_a_restored_job_reads_by_the_schema_of_the_new_program(
    tmp_path, context, permit, drain, old, new, change, batch_format
):
    writer = FileSink.records(tmp_path, old).writer(context())
    for at in range(0, len(ROWS), 10):  # a reader of Avro may stop between two blocks only
        writer.write(RowBatch(ROWS[at : at + 10]))
    writer.commit(writer.prepare_commit(), permit)
    before = FileSource.records(tmp_path, old, batch_format=batch_format)
    reader = before.reader(context(), before.splits(1))
    first = drain(reader, 1, stop_after=1).rows
    assert first == ROWS[: len(first)]
    assert len(first) < len(ROWS)
    splits = reader.snapshot()
    reader.close()
    after = FileSource.records(tmp_path, new, batch_format=batch_format)
    rest = drain(after.reader(context(), splits)).rows
    assert [list(map(type, row.values())) for row in rest] == [
        list(map(type, changed(row, change).values())) for row in ROWS[len(first) :]
    ]
    assert rest == [changed(row, change) for row in ROWS[len(first) :]]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            Json(OLD),
            Json(pa.schema({"user": pa.int64()})),
            "field 'user' does not fit its column of type int64",
        ),
        (CsvLines(schema=OLD), CsvLines(["id", "user"], pa.schema({"user": pa.int64()})), "'user'"),
        (Avro(WRITER), Avro(avro(("user", "long"))), "'user'"),
        (Avro(WRITER), Avro(avro(("note", "string"))), "'note'"),
    ],
)
def test_a_change_that_the_format_does_not_know_names_the_field(
    tmp_path, context, permit, read_all, old, new, why, batch_format
):
    writer = FileSink.records(tmp_path, old).writer(context())
    writer.write(RowBatch(ROWS))
    writer.commit(writer.prepare_commit(), permit)
    with pytest.raises(BadRecordError, match=why):
        read_all(FileSource.records(tmp_path, new, batch_format=batch_format))
