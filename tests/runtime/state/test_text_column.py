"""Texts in a column stay as they were written, and texts that no slot has don't fill the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.state.column_log import ColumnLog
from penstock.runtime.state.text_column import TextColumn, TextPool, new_column

SLOTS = 6

texts = st.none() | st.text(max_size=400)
writes = st.dictionaries(st.integers(0, SLOTS - 1), texts, max_size=SLOTS)
deletions = st.sets(st.integers(0, SLOTS - 1))


def column_of(kind: pa.DataType) -> TextColumn:
    column = new_column("c", kind)
    assert isinstance(column, TextColumn)
    column.reserve(SLOTS)
    return column


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
@given(steps=st.lists(writes | deletions, max_size=30))
def test_slots_have_what_was_written_last(kind: pa.DataType, steps: list[Any]) -> None:
    column, model = column_of(kind), dict.fromkeys(range(SLOTS))
    for step in steps:
        slots = np.array([*step], np.int64)
        if isinstance(step, set):
            column.clear(slots)
            model |= dict.fromkeys(step)
        else:
            written = pa.array([None, *step.values()], pa.string()).cast(kind)[1:]
            column.put(slots, written)
            model |= dict(zip(step, written.to_pylist(), strict=True))
            assert column.equals(slots, written).all()
        every = column.take(np.arange(SLOTS))
        assert every.type == kind
        assert every.to_pylist() == [*model.values()]
    other = pa.array(["other text", *model.values()][:1] * SLOTS, kind)
    assert not column.equals(np.arange(SLOTS), other).any()
    assert column.equals(np.arange(SLOTS), pa.nulls(SLOTS)).tolist() == [
        each is None for each in model.values()
    ]


def test_texts_that_no_slot_has_are_dropped() -> None:
    column = column_of(pa.string())
    for number in range(10_000):
        column.put(np.array([number % SLOTS]), pa.array([f"{number:05}" * 20]))
    assert column.pool.size < 400_000
    assert column.take(np.arange(SLOTS)).to_pylist() == [
        f"{number:05}" * 20 for number in (9996, 9997, 9998, 9999, 9994, 9995)
    ]


def test_column_keeps_its_type() -> None:
    with pytest.raises(
        StateMismatchError, match="'c' is of type binary here and of type string in the state"
    ):
        column_of(pa.string()).put(np.array([0]), pa.array([b"x"]))


def test_texts_follow_nulls_without_a_type_in_a_log() -> None:
    log = ColumnLog("log", 128)
    for value in (pa.nulls(1), pa.array(["x"]), pa.nulls(1)):
        log.append({"k": pa.array([1])}, np.array([10]), {"v": value})
    _, slots = log.find({"k": pa.array([1])}, np.array([0]), np.array([20]))
    assert isinstance(log.columns["v"], TextColumn)
    assert log.value("v", slots).to_pylist() == [None, "x", None]


def test_an_array_of_arrow_becomes_a_block_and_a_part_of_a_message_is_copied() -> None:
    made = pa.array([f"{number:030}" for number in range(2_000)]).filter(pa.array([True] * 2_000))
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, pa.schema({"c": pa.string()})) as writer:
            writer.write_batch(pa.record_batch({"c": made}))
        received = pa.ipc.open_stream(sink.getvalue()).read_next_batch().column("c")
    slots = np.arange(2_000)
    for texts, is_shared in ((made, True), (received, False), (made[:20], False)):
        column = new_column("c", pa.string())
        assert isinstance(column, TextColumn)
        column.reserve(2_000)
        column.put(slots[: len(texts)], texts)
        (block,) = column.pool.blocks
        assert (block.address == texts.buffers()[2].address) == is_shared
        assert column.take(slots[: len(texts)]).equals(texts)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), writes | deletions), min_size=1, max_size=20
    ),
    width=st.sampled_from([1, 3_000]),
)
def test_columns_of_one_pool_exchange_texts_while_others_are_dropped(steps: list[Any], width: int) -> None:
    pool = TextPool()
    columns = [TextColumn(f"c{number}", pa.string(), pool) for number in range(3)]
    models: list[dict[int, Any]] = [dict.fromkeys(range(SLOTS)) for _ in columns]
    for column in columns:
        column.reserve(SLOTS)
    for number, source, step in steps:
        column, model, slots = columns[number], models[number], np.array([*step], np.int64)
        if isinstance(step, set):  # move from another column
            column.values[slots] = columns[source].values[slots]
            column.valid[slots] = columns[source].valid[slots]
            model |= {slot: models[source][slot] for slot in step}
        else:
            written = {slot: None if text is None else text * width for slot, text in step.items()}
            column.put(slots, pa.array([*written.values()], pa.string()))
            model |= written
        for one, expected in zip(columns, models, strict=True):
            assert one.take(np.arange(SLOTS)).to_pylist() == [*expected.values()]


def test_a_pool_keeps_no_column_and_reads_only_its_live_texts() -> None:
    pool = TextPool()
    for number in range(50):
        column = TextColumn("c", pa.string(), pool)
        column.reserve(SLOTS)
        column.put(np.arange(SLOTS), pa.array([f"{number:05}" * 4_000] * SLOTS))
    assert pool.size < 2_000_000
    assert column.take(np.arange(SLOTS)).to_pylist() == ["00049" * 4_000] * SLOTS
