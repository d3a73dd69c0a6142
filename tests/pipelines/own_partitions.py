"""Records go where functions say, as rows and as Arrow batches; a record's subtask shows in the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import DataStream, ProcessFunction, StreamEnvironment

Row = dict[str, Any]


class Place(ProcessFunction[Row, Row]):
    """Notes whether a record is in the subtask that its number asks for."""

    def process(self, value: Row, ctx: Any) -> Iterable[Row]:
        yield {"n": value["n"], "right": ctx.subtask == value["n"] // 3 % ctx.parallelism}


def by_three(row: Row, subtasks: int) -> int:
    return int(row["n"]) // 3 % subtasks


def by_three_in_columns(batch: pa.RecordBatch, subtasks: int) -> Any:
    return batch.column("n").to_numpy() // 3 % subtasks


def make_input(random: Random) -> list[Row]:
    return [{"n": random.randrange(100)} for _ in range(60)]


def build(env: StreamEnvironment, rows: list[Row]) -> dict[str, DataStream[Row]]:
    source = env.from_collection("rows", rows)
    columns = source.with_columns(m=pc.field("n"))
    return {
        "rows": source.partition_custom(by_three).process("place", Place()),
        "columns": columns.partition_custom(by_three_in_columns, batch_format="arrow").process(
            "place-of-columns", Place()
        ),
    }


def expected(rows: list[Row]) -> Mapping[str, list[Row]]:
    right = [{"n": row["n"], "right": True} for row in rows]
    return {"rows": right, "columns": right}
