"""Channels of an edge's records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import KeyTypeError, PenstockError
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.result_partition import (
    KeyGroupSelector,
    RebalanceSelector,
    SingleChannelSelector,
    channel_selector,
)
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.state.key_groups import key_group_of, subtask_of_key_group


def test_rebalance_gives_every_channel_its_share() -> None:
    selector = RebalanceSelector(3, first=0)
    counts: Counter[int] = Counter()
    for size in [1, 2, 3, 4, 5, 90, 1, 1, 1]:
        for channel, part in selector.select(RowBatch(list(range(size)))):
            counts[channel] += len(part)
    assert sum(counts.values()) == 108
    assert max(counts.values()) - min(counts.values()) <= 3


def test_rebalance_goes_on_with_the_next_channel() -> None:
    selector = RebalanceSelector(3, first=1)
    channels = [channel for _ in range(4) for channel, _ in selector.select(RowBatch(["x"]))]
    assert channels == [1, 2, 0, 1]


def test_senders_begin_at_different_channels() -> None:
    partitioner = Partitioner(Partitioning.REBALANCE)
    firsts = []
    for subtask in range(4):
        selector = channel_selector(partitioner, 3, 128, subtask)
        assert selector is not None
        firsts.append(selector.select(RowBatch(["x"]))[0][0])
    assert firsts == [0, 1, 2, 0]


def test_rebalance_keeps_order_and_timestamps_within_a_piece() -> None:
    selected = RebalanceSelector(2, first=0).select(RowBatch(list("abcde"), [1, 2, 3, 4, 5]))
    assert selected == [(0, RowBatch(["a", "b", "c"], [1, 2, 3])), (1, RowBatch(["d", "e"], [4, 5]))]


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_record_goes_to_the_subtask_that_owns_its_key_group(channels: int) -> None:
    rows = [(f"key-{i % 50}", i) for i in range(200)]
    selector = KeyGroupSelector(lambda row: row[0], channels, 16)
    for _ in range(2):  # the second time from the cache
        selected = selector.select(RowBatch(rows))
        for channel, part in selected:
            assert {subtask_of_key_group(key_group_of(k, 16), channels, 16) for k, _ in part.rows} == {
                channel
            }
            assert [i for _, i in part.rows] == sorted(i for _, i in part.rows)
        assert sum(len(part) for _, part in selected) == len(rows)


def test_timestamps_go_with_their_records() -> None:
    rows = list(range(100))
    selector = KeyGroupSelector(lambda row: row, 3, 16)
    for _, part in selector.select(RowBatch(rows, [row * 10 for row in rows])):
        assert part.timestamps == [row * 10 for row in part.rows]


def test_nothing_is_selected_from_nothing() -> None:
    assert KeyGroupSelector(lambda row: row, 3, 16).select(RowBatch([])) == []


@pytest.mark.parametrize("channels", [1, 3])
def test_key_without_a_stable_hash_is_refused(channels: int) -> None:
    selector = KeyGroupSelector(lambda row: [row], channels, 16)
    with pytest.raises(KeyTypeError):
        selector.select(RowBatch(["a"]))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_column_of_keys_without_a_stable_hash_is_named(channels: int) -> None:
    selector = KeyGroupSelector(ColumnKey(("k",)), channels, 16)
    with pytest.raises(KeyTypeError, match=r"column 'k': \[1\] of type list can't be a key"):
        selector.select(RowBatch([{"k": [1]}]))


@pytest.mark.parametrize("kind", [Partitioning.FORWARD, Partitioning.GLOBAL])
def test_forward_and_global_use_the_first_channel(kind: Partitioning) -> None:
    selector = channel_selector(Partitioner(kind), 1, 128, 0)
    assert isinstance(selector, SingleChannelSelector)


def test_rebalance_to_a_single_subtask_needs_no_choice() -> None:
    assert isinstance(channel_selector(Partitioner(Partitioning.REBALANCE), 1, 128, 5), SingleChannelSelector)


def test_broadcast_has_no_selector() -> None:
    assert channel_selector(Partitioner(Partitioning.BROADCAST), 3, 128, 0) is None


def test_key_group_partitioning_without_a_key_selector_is_a_bug() -> None:
    with pytest.raises(ValueError, match="key selector"):
        channel_selector(Partitioner(Partitioning.KEY_GROUP), 3, 128, 0)


def custom(function: Any, channels: int = 3, batch_format: Any = "rows") -> Any:
    partitioner = Partitioner(Partitioning.CUSTOM, function, batch_format)
    return channel_selector(partitioner, channels, 128, 0)


def test_a_custom_partitioner_sends_rows_where_the_function_says_in_their_order() -> None:
    found = custom(lambda row, channels: row % channels).select(RowBatch([1, 4, 2, 7], [10, 40, 20, 70]))
    assert found == [(1, RowBatch([1, 4, 7], [10, 40, 70])), (2, RowBatch([2], [20]))]


@pytest.mark.parametrize("channels", [1, 3, 7])
def test_a_custom_partitioner_gives_the_same_for_rows_and_columns_in_either_format(channels: int) -> None:
    rows = [{"n": n} for n in range(40)]
    columns = ArrowBatch(pa.RecordBatch.from_pylist(rows), pa.array(range(40)))
    expected = {
        channel: [row for row in rows if row["n"] * 5 % channels == channel] for channel in range(channels)
    }
    of_rows = custom(lambda row, count: row["n"] * 5 % count, channels)
    of_columns = custom(lambda batch, count: batch["n"].to_numpy() * 5 % count, channels, "arrow")
    of_arrow = custom(
        lambda batch, count: pa.array([n * 5 % count for n in batch["n"].to_pylist()]), channels, "arrow"
    )
    for selector in (of_rows, of_columns, of_arrow):
        assert {c: list(part.rows) for c, part in selector.select(RowBatch(rows))} == expected
        parts = selector.select(columns)
        assert {c: part.batch.to_pylist() for c, part in parts} == expected
        assert all(part.timestamps.to_pylist() == [row["n"] for row in expected[c]] for c, part in parts)


@pytest.mark.parametrize(
    ("function", "batch_format", "message"),
    [
        (
            lambda row, channels: channels,
            "rows",
            r"lambda .* returned 3 for the record \{'n': 0\}; .* from 0 to 2",
        ),
        (lambda row, channels: -1, "rows", "returned -1 for the record"),
        (lambda row, channels: None, "rows", "returned None for the record"),
        (lambda batch, channels: batch["n"].to_numpy() + 2, "arrow", "returned 3 for row 1 of a batch"),
        (lambda batch, channels: pc.less(batch["n"], 1), "arrow", "bool of shape"),
        (
            lambda batch, channels: pa.nulls(2, pa.int64()),
            "arrow",
            r"float64 of shape \(2,\).*; give one whole number for each row \(rows: 2\)",
        ),
        (
            lambda batch, channels: [0],
            "arrow",
            r"of shape \(1,\).*; give one whole number for each row \(rows: 2\)",
        ),
        (lambda batch, channels: [0.5, 1.0], "arrow", "float64 of shape"),
    ],
)
def test_an_index_out_of_range_is_refused_with_the_function_and_the_record(
    function: Any, batch_format: str, message: str
) -> None:
    with pytest.raises(PenstockError, match=message):
        custom(function, 3, batch_format).select(RowBatch([{"n": 0}, {"n": 1}]))


def test_a_custom_partition_function_can_not_change_a_record() -> None:
    rows = [{"n": 1}]
    assert custom(lambda row, channels: row.pop("n")).select(RowBatch(rows)) == [(1, RowBatch([{"n": 1}]))]
