"""The part of a DataFrame that a job needs: from the graph to the program with the Spark session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DiscardSink, StreamEnvironment
from penstock.aggregates import Sum
from penstock.bridge.needed_part import NeededPart
from penstock.bridge.receive_buffer_messages import BufferSettings
from penstock.bridge.spark_filter import Compared
from penstock.bridge.spark_source import SparkSource
from penstock.bridge.transfer_service import Rendezvous, TransferRequest
from penstock.runtime.operators.source import NeededColumns

#: The names of columns of a DataFrame may have dots, and may differ only in case.
SCHEMA = pa.schema({"a.b": pa.int64(), "v": pa.int64(), "V": pa.string(), "w": pa.float64()})


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("job")


@pytest.fixture
def rows(env: StreamEnvironment) -> Any:
    return env.from_source("rows", SparkSource(BufferSettings("transfer"), "arrow", SCHEMA))


def part(env: StreamEnvironment) -> NeededPart:
    source = next(o.source for v in env.build().vertices for o in v.operators if o.source is not None)
    assert isinstance(source, SparkSource)
    return replace(source.buffers.part, steps=b"")


def test_the_columns_of_a_select_are_needed_in_the_order_of_the_data_frame(
    env: StreamEnvironment, rows: Any
) -> None:
    rows.select("w", "a.b").sink("out", DiscardSink())
    assert part(env) == NeededPart((0, 3))
    assert part(env).schema_in(SCHEMA).names == ["a.b", "w"]
    assert "source(SparkSource), reads 2 of 4 columns" in env.describe()


def test_an_aggregation_needs_its_key_and_its_inputs(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(pc.field("w") > 0).key_by("V").aggregate("sums", total=Sum("v")).sink("out", DiscardSink())
    assert part(env).schema_in(SCHEMA).names == ["v", "V", "w"]


def test_a_function_needs_all_columns(env: StreamEnvironment, rows: Any) -> None:
    rows.map(dict).sink("out", DiscardSink())
    assert part(env) == NeededPart()
    assert part(env).schema_in(SCHEMA) == SCHEMA
    assert "columns" not in env.describe()


def test_a_filter_goes_to_spark_as_far_as_it_means_the_same_there(env: StreamEnvironment, rows: Any) -> None:
    rows.filter((pc.field("a.b") > 3) & (pc.field("v") + 1 > 3)).select("w").sink("out", DiscardSink())
    assert part(env).places == (0, 1, 3), "the job's own filter still runs"
    assert part(env).conditions == (Compared(0, "integer", ">", 3),)
    assert "reads 3 of 4 columns, part of the filter in Spark" in env.describe()


def test_a_filter_alone_leaves_all_columns(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(pc.field("V") == "x").sink("out", DiscardSink())
    assert part(env) == NeededPart(None, (Compared(2, "string", "=", "x"),), True)
    assert "source(SparkSource), filter in Spark" in env.describe()


def test_columns_that_spark_pads_are_not_compared_there() -> None:
    needed = NeededColumns(None, (), pc.field("V") != "x")
    assert NeededPart.of(SCHEMA, needed).conditions
    assert not NeededPart.of(SCHEMA, needed, {"V"}).conditions


def test_two_readers_of_the_stream_need_the_columns_of_both(env: StreamEnvironment, rows: Any) -> None:
    rows.select("v").sink("one", DiscardSink())
    rows.select("w").sink("two", DiscardSink())
    assert part(env) == NeededPart((1, 3))


def test_all_columns_and_unknown_columns_are_not_a_part() -> None:
    assert NeededPart.of(SCHEMA, NeededColumns(tuple(SCHEMA.names))) == NeededPart()
    assert NeededPart.of(SCHEMA, NeededColumns(("gone",))) == NeededPart()


def test_each_job_gets_its_own_part_of_a_data_frame() -> None:
    async def requests() -> list[TransferRequest | None]:
        rendezvous = Rendezvous()
        await rendezvous.register("one", 0, 1, "instance-1", -1, NeededPart((0,)))
        await rendezvous.register("two", 0, 1, "instance-2", -1, NeededPart((1, 2)))
        return [await rendezvous.request(number, 0.0) for number in range(2)]

    assert asyncio.run(requests()) == [
        TransferRequest("one", (-1,), NeededPart((0,))),
        TransferRequest("two", (-1,), NeededPart((1, 2))),
    ]
