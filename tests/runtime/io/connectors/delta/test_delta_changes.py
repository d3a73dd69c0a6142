"""`DeltaSink` with a column of change kinds: inserts, updates and deletions of rows by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_jobs import TableWorld
from deltalake import DeltaTable

from penstock.delta import DeltaSink
from penstock.operators import ArrowBatch
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.operators.committed_sink import CommitterOperator, StagingOperator
from penstock.runtime.testing.harness import OperatorHarness

NEVER_NULL = pa.schema([("id", pa.int64()), pa.field("price", pa.int64(), nullable=False)])


def world_of(folder: Path, schema: pa.Schema | None = NEVER_NULL) -> TableWorld:
    return TableWorld(folder, schema, key=["id"], change_kind="change")


def change(kind: str, number: int, price: int | None = None) -> dict[str, Any]:
    return {"id": number, "change": kind, **({} if price is None else {"price": price})}


def prices(world: TableWorld) -> dict[int, int]:
    return {row["id"]: row["price"] for row in world.rows()}


def test_the_last_change_of_a_key_decides(folder: Path) -> None:
    world = world_of(folder)
    world.finish([change("insert", number, 10) for number in range(4)])
    assert prices(world) == dict.fromkeys(range(4), 10)
    world.finish(
        [
            change("update_preimage", 0, 10),
            change("update_postimage", 0, 11),
            change("delete", 1),
            change("insert", 2, 12),
            change("delete", 2, 12),
            change("delete", 3),
            change("insert", 3, 13),
            change("delete", 7),
            change("insert", 8, 18),
        ],
        parallelism=1,
    )
    assert prices(world) == {0: 11, 3: 13, 8: 18}
    assert world.table.schema().to_json().count('"name"') == 2, "the kind is no column of the table"


def test_an_update_may_change_the_key(folder: Path) -> None:
    world = world_of(folder)
    world.finish([change("insert", 1, 10)])
    world.finish([change("update_preimage", 1, 10), change("update_postimage", 2, 10)], parallelism=1)
    assert prices(world) == {2: 10}


def test_deletions_of_one_checkpoint_apply_to_rows_of_an_earlier_one_after_a_death(folder: Path) -> None:
    world = world_of(folder)
    changes = [
        *(change("insert", number, number) for number in range(4)),
        change("delete", 1),
        change("delete", 2),
    ]
    job = world.job(changes, parallelism=1).start()
    job.write(4)
    job.decide(job.snapshot())
    job.kill()
    job.start().finish()
    assert prices(world) == {0: 0, 3: 3}


def test_arrow_batches_have_their_kinds_in_a_column(folder: Path) -> None:
    sink = DeltaSink(folder / "table", key=["id"], change_kind="change")
    batch = pa.record_batch({"id": [1, 2, 1], "change": ["insert", "insert", "delete"], "price": [1, 2, 1]})
    with (
        OperatorHarness(StagingOperator(sink)) as writer,
        OperatorHarness(CommitterOperator(sink)) as committer,
    ):
        writer.push_batch(ArrowBatch(batch))
        writer.snapshot()
        committer.push(writer.outputs)
        committer.complete_checkpoint(committer.snapshot())
    assert DeltaTable(folder / "table").to_pyarrow_table().to_pylist() == [{"id": 2, "price": 2}]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"id": 1, "price": 1, "change": "upsert"}, "a record has 'upsert': use one of 'insert'"),
        ({"id": 1, "price": 1}, "a record has none"),
        ({"id": 1, "change": "insert"}, "column 'price' is NOT NULL"),
    ],
)
def test_records_that_are_no_changes_are_refused(folder: Path, record: dict[str, Any], says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        world_of(folder).finish([record])


@pytest.mark.parametrize("key", [[], ["change"]])
def test_a_change_kind_needs_a_key(key: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"change_kind='change' needs key=, which must not contain"):
        DeltaSink("/out", key=key, change_kind="change")
