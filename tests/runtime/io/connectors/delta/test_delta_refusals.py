"""Tables that a `DeltaSink` can't fill: it refuses them before a checkpoint is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_jobs import TableWorld, numbers, rows_of
from deltalake import DeltaTable, Field, Schema, write_deltalake

from penstock.delta import DeltaSink
from penstock.operators import ArrowBatch
from penstock.runtime.errors import BadRecordError, ConfigurationError, ConnectorError, OperatorError
from penstock.runtime.io.connectors.tables.nulls import null_in
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.operators.committed_sink import StagingOperator
from penstock.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema({"number": pa.int64()})
NEVER_NULL = pa.schema([pa.field("number", pa.int64(), nullable=False)])


def opened(folder: Path, schema: pa.Schema | None = None, **settings: Any) -> None:
    TableWorld(folder, schema, **settings).job(numbers(1)).start().close()


# -- constraints and properties -------------------------------------------------------------------------


def test_a_table_with_a_constraint_is_refused(folder: Path) -> None:
    DeltaTable.create(folder / "table", SCHEMA).alter.add_constraint({"positive": "number > 0"})
    with pytest.raises(OperatorError, match="the constraint 'positive', which this sink does not check"):
        opened(folder)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"delta.generationExpression": "other + 1"}, "a generated column"),
        ({"delta.invariants": '{"expression": {"expression": "number > 3"}}'}, "an invariant"),
    ],
)
def test_a_table_whose_columns_have_rules_is_refused(
    folder: Path, metadata: dict[str, str], says: str
) -> None:
    columns = [Field("number", "long", metadata=metadata), Field("other", "long")]
    DeltaTable.create(folder / "table", Schema(columns))  # type: ignore[arg-type] # names of types are allowed
    with pytest.raises(OperatorError, match=says):
        opened(folder)


def test_a_new_job_looks_at_its_table_before_it_reads(folder: Path) -> None:
    sink = DeltaSink(folder / "table", SCHEMA)
    sink.prepare_destination("job-1")
    assert not (folder / "table").exists(), "the committer makes the table"
    DeltaTable.create(folder / "table", SCHEMA).alter.add_constraint({"positive": "number > 0"})
    with pytest.raises(ConnectorError, match="the constraint 'positive'"):
        sink.prepare_destination("job-1")
    DeltaTable.create(folder / "other", pa.schema({"number": pa.string()}))
    with pytest.raises(BadRecordError, match="column 'number' is string in the table"):
        DeltaSink(folder / "other", SCHEMA).prepare_destination("job-1")


def test_a_table_that_has_only_partition_columns_is_refused(folder: Path) -> None:
    """Its files would have no columns, and thus no rows."""
    with pytest.raises(BadRecordError, match="partition_by has all columns, number, so its files"):
        DeltaSink(folder / "table", SCHEMA, partition_by=["number"])
    with pytest.raises(OperatorError, match="Leave at least one column out of partition_by"):
        TableWorld(folder, partition_by=["number"]).finish(numbers(1))


def test_rows_are_not_merged_into_a_table_that_only_grows(folder: Path) -> None:
    only_grows = {"delta.appendOnly": "true"}
    with pytest.raises(ConfigurationError, match=r"delta.appendOnly, but key= replaces rows"):
        DeltaSink(folder / "table", SCHEMA, key=["number"], properties=only_grows)
    DeltaTable.create(folder / "table", SCHEMA, configuration=only_grows)
    with pytest.raises(OperatorError, match=r"delta.appendOnly, but key= replaces rows"):
        opened(folder, key=["number"])
    opened(folder)


def test_a_constraint_that_comes_later_fails_the_checkpoint(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(1)).start()
    job.write()
    world.table.alter.add_constraint({"positive": "number > 0"})
    with pytest.raises(OperatorError, match="the constraint 'positive'"):
        job.snapshot()


def test_a_constraint_that_comes_after_the_checkpoint_fails_its_commit(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(1)).start()
    job.write()
    point = job.snapshot()
    world.table.alter.add_constraint({"positive": "number > 0"})
    with pytest.raises(OperatorError, match="the constraint 'positive'"):
        job.complete(point)
    assert rows_of(world.folder) == []


# -- nulls ----------------------------------------------------------------------------------------------


def test_a_schema_may_not_allow_nulls_that_the_table_excludes(folder: Path) -> None:
    DeltaTable.create(folder / "table", NEVER_NULL)
    with pytest.raises(OperatorError, match="column 'number' is NOT NULL, but it may be null in schema="):
        opened(folder, SCHEMA)


def test_a_schema_may_not_leave_out_a_column_that_is_never_null(folder: Path) -> None:
    DeltaTable.create(folder / "table", NEVER_NULL)
    with pytest.raises(OperatorError, match="column 'number' is NOT NULL"):
        opened(folder, pa.schema({"other": pa.int64()}), schema_mode="merge")


def test_a_null_in_a_column_that_is_never_null_is_refused(folder: Path) -> None:
    DeltaTable.create(folder / "table", NEVER_NULL)
    with OperatorHarness(StagingOperator(DeltaSink(folder / "table"))) as writer:
        batch = pa.record_batch([pa.array([None], pa.int64())], schema=NEVER_NULL)
        with pytest.raises(OperatorError, match="column 'number' is NOT NULL, but a record has no value"):
            writer.push_batch(ArrowBatch(batch))


def test_an_empty_text_in_a_partition_column_that_is_never_null_is_refused(folder: Path) -> None:
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), *SCHEMA])
    sink = DeltaSink(folder / "table", schema, partition_by=["day"])
    with (
        OperatorHarness(StagingOperator(sink)) as writer,
        pytest.raises(OperatorError, match="partition column 'day' is NOT NULL"),
    ):
        writer.push([{"day": "", "number": 1}])


def test_a_table_from_first_records_may_have_nulls_in_each_column(folder: Path) -> None:
    """One subtask has a column that excludes nulls, and the other one has nulls there."""
    world = TableWorld(folder)
    batches = [
        pa.record_batch([pa.array([1])], schema=NEVER_NULL),
        pa.record_batch([pa.array([None], pa.int64())], schema=SCHEMA),
    ]
    job = world.job([]).start()
    for harness, batch in zip(job._subtasks, batches, strict=True):
        harness.push_batch(ArrowBatch(batch))
    job.checkpoint()
    job.close()
    assert pa.schema(world.table.schema().to_arrow()).field("number").nullable
    assert len(rows_of(world.folder)) == 2


STRUCT = pa.struct([pa.field("y", pa.int64(), nullable=False)])
LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))


@pytest.mark.parametrize(
    ("kind", "good", "bad", "path"),
    [
        (STRUCT, {"y": 1}, {"y": None}, "x.y"),
        (LIST, [1], [1, None], "x.element"),
        (MAP, [("a", 1)], [("a", None)], "x.value"),
        (pa.list_(MAP), [[("a", 1)]], [None, [("a", None)]], "x.element.value"),
    ],
)
def test_nulls_are_found_in_the_parts_of_a_column(kind: pa.DataType, good: Any, bad: Any, path: str) -> None:
    values = pa.array([good, bad, good, None, good], kind)
    field = pa.field("x", table_schema(pa.schema({"x": kind})).field("x").type)
    assert null_in(values, field) == null_in(values.slice(1), field) == path
    assert null_in(values.slice(2), field) is None


# -- columns --------------------------------------------------------------------------------------------


def test_a_schema_adds_no_columns_to_a_table_by_default(folder: Path) -> None:
    DeltaTable.create(folder / "table", SCHEMA)
    wider = pa.schema([*SCHEMA, pa.field("extra", pa.string())])
    with pytest.raises(OperatorError, match=r"lacks the columns extra of schema= .*schema_mode=\"merge\""):
        opened(folder, wider)
    opened(folder, wider, schema_mode="merge")


def test_columns_that_differ_only_in_case_are_refused(folder: Path) -> None:
    with pytest.raises(BadRecordError, match="differ in more than upper and lower case"):
        DeltaSink("/out", pa.schema({"id": pa.int64(), "ID": pa.int64()}))
    job = TableWorld(folder, SCHEMA, schema_mode="merge").job([{"number": 1, "id": 1}, {"ID": 2}]).start()
    job.write()
    with pytest.raises(OperatorError, match="'id' and 'ID' differ only in upper and lower case"):
        job.snapshot()


def test_a_column_that_another_writer_adds_with_another_type_fails_the_checkpoint(folder: Path) -> None:
    job = TableWorld(folder, SCHEMA, schema_mode="merge").job([{"number": 1, "extra": 1}]).start()
    job.write()
    other = pa.table({"number": [2], "extra": ["text"]})
    write_deltalake(folder / "table", other, mode="append", schema_mode="merge")
    with pytest.raises(OperatorError, match="column 'extra' is string in the table"):
        job.snapshot()


def test_a_table_that_another_writer_makes_without_partitions_fails_the_checkpoint(folder: Path) -> None:
    schema = pa.schema({"number": pa.int64(), "day": pa.string()})
    job = TableWorld(folder, partition_by=["day"]).job([{"number": 1, "day": "a"}]).start()
    job.write()
    DeltaTable.create(folder / "table", schema)
    with pytest.raises(OperatorError, match=r"partition columns \[\]"):
        job.snapshot()
