"""All writers of a table keep to the columns that the first of them has written down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.bridge import spark_table
from penstock.bridge.spark_table import SparkTable, TableWriter, columns_of
from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.testing.manual_time import ManualClock

NUMBERS = pa.schema({"id": pa.int64()})


@pytest.fixture(autouse=True)
def other_jobs_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no cluster to ask."""
    monkeypatch.setattr(spark_table, "job_lives", lambda job_id: False)


def writer(table: SparkTable, job: str = "one", subtask: int = 0, attempt: int = 1) -> TableWriter:
    return table.writer(ConnectorContext(job, job, "out", subtask, 2, attempt, ManualClock()))


def write(to: TableWriter, *rows: dict[str, Any]) -> None:
    to.write(RowBatch(list(rows)))


def commit(*writers: TableWriter) -> None:
    for each in writers:
        each.commit(each.prepare_commit(), permit_of_completed_checkpoint(1, 1))
        each.close()


def test_subtasks_and_attempts_write_the_columns_of_the_first_rows(tmp_path: Path) -> None:
    table = SparkTable(tmp_path)
    first, second = writer(table), writer(table, subtask=1)
    write(first, {"id": 1, "share": 0.5})
    told = (
        r"a row has a column 'late'; .*Rows must fit the schema 'id: int64.* of table "
        rf"{tmp_path}: map the rows before the sink, or write a new table with the schema="
    )
    with pytest.raises(BadRecordError, match=told):
        write(second, {"id": 2, "late": "x"})
    write(second, {"id": 2}, {"share": 3})
    commit(first, second)
    again = writer(table, attempt=2)
    with pytest.raises(BadRecordError, match=r"column 'id' of type int64 can't hold 2\.5 of type float"):
        write(again, {"id": 2.5})
    again.write(ArrowBatch(pa.record_batch({"share": [1.5], "id": pa.array([3], pa.int8())})))
    commit(again)
    schemas = [pq.read_schema(file).remove_metadata() for file in tmp_path.glob("part-*")]
    assert schemas == [pa.schema({"id": pa.int64(), "share": pa.float64()})] * 3
    assert columns_of(str(tmp_path)) == schemas[0]


def test_a_later_job_keeps_to_the_columns_of_what_is_committed(tmp_path: Path) -> None:
    one = writer(SparkTable(tmp_path))
    write(one, {"id": 1})
    commit(one)
    two = writer(SparkTable(tmp_path), "two")
    with pytest.raises(BadRecordError, match="column 'id' of type int64 can't hold 'x' of type str"):
        write(two, {"id": "x"})
    other = pa.schema({"id": pa.string(), "late": pa.int64()})
    told = (
        rf"table {tmp_path} has other columns than the schema= of this sink: column 'id' is int64 there and "
        "string here, column 'late' is here only. Leave out schema=, give the table's own schema, or"
    )
    with pytest.raises(BadRecordError, match=told):
        writer(SparkTable(tmp_path, other), "three")
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(BadRecordError, match="column 'id' is 'not null' but holds nulls"):
        write(writer(SparkTable(tmp_path, strict), "four"), {"id": None})


def test_a_job_that_has_committed_nothing_decides_nothing_for_those_after_it(tmp_path: Path) -> None:
    died = writer(SparkTable(tmp_path))
    write(died, {"id": "one"})
    died.close()
    with pytest.raises(BadRecordError, match="column 'id' of type string can't hold 1 of type int"):
        write(writer(SparkTable(tmp_path), attempt=2), {"id": 1})
    later, beside = (writer(SparkTable(tmp_path), "two", subtask) for subtask in range(2))
    write(later, {"id": 1})
    with pytest.raises(BadRecordError, match="column 'id' of type int64 can't hold 'one' of type str"):
        write(beside, {"id": "one"})
    assert columns_of(str(tmp_path)) == NUMBERS


def test_a_file_that_may_still_be_committed_keeps_the_columns(tmp_path: Path) -> None:
    """A job that starts from a savepoint of the one that ended commits it."""
    ended = writer(SparkTable(tmp_path))
    write(ended, {"id": 1})
    pending = ended.prepare_commit()
    ended.close()
    with pytest.raises(BadRecordError, match="column 'id' is int64 there and string here"):
        writer(SparkTable(tmp_path, pa.schema({"id": pa.string()})), "two")
    os.remove(os.path.join(pending[0].directory, pending[0].name))
    writer(SparkTable(tmp_path, pa.schema({"id": pa.string()})), "two")


def test_the_zone_and_the_order_of_columns_may_be_others(tmp_path: Path) -> None:
    at = pa.list_(pa.timestamp("us", "UTC"))
    one = writer(SparkTable(tmp_path, pa.schema({"id": pa.int64(), "at": at})))
    write(one, {"id": 1})
    commit(one)
    other = pa.list_(pa.field("element", pa.timestamp("us", "Asia/Kolkata")))
    two = writer(SparkTable(tmp_path, pa.schema({"at": other, "id": pa.int64()})), "two")
    write(two, {"id": 2})
    commit(two)
    assert len(list(tmp_path.glob("part-*"))) == 2


def test_the_catalog_may_change_the_columns_of_a_table_that_it_has(tmp_path: Path) -> None:
    """As `ALTER TABLE ADD COLUMNS` does; what `SparkTable.of` makes is made here without Spark."""
    wider = pa.schema({"id": pa.int64(), "late": pa.string()})
    for job, schema in [("one", NUMBERS), ("two", wider), ("three", wider)]:
        table = SparkTable(tmp_path, schema)
        object.__setattr__(table, "_is_named", True)
        named = writer(table, job)
        write(named, {"id": 1})
        commit(named)
    assert columns_of(str(tmp_path)) == wider
    assert len(list((tmp_path / "_penstock" / "schemas").iterdir())) == 2


class Loaded(pa.ExtensionType):  # type: ignore[misc]
    """Runs code of this class when a schema is read."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.loaded")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Loaded:
        raise AssertionError


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (pa.schema({"id": Loaded()}, {"penstock.job": "one"}), r"extension type 'test\.loaded'"),
        (NUMBERS, r"KeyError: b'penstock\.job'"),
        (None, "length 7 .* damaged"),
    ],
    ids=["runs code", "names no job", "damaged"],
)
def test_columns_that_another_user_recorded_run_no_code(
    tmp_path: Path, schema: pa.Schema | None, reason: str
) -> None:
    write(writer(SparkTable(tmp_path)), {"id": 1})
    record = tmp_path / "_penstock/schemas/00000000"
    record.write_bytes(b"strange" if schema is None else schema.serialize().to_pybytes())
    pa.register_extension_type(Loaded())
    try:
        for read in (lambda: columns_of(str(tmp_path)), lambda: writer(SparkTable(tmp_path), "two")):
            with pytest.raises(ConnectorError, match=rf"{record} is not a valid record of .*{reason}"):
                read()
    finally:
        pa.unregister_extension_type("test.loaded")
