"""Watermarks in a chain: between which rows they pass, where they end, where others are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from chain_recorder import Recorder

from penstock.runtime.errors import OperatorError, OperatorLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.functions.record_functions import FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ReducedContents
from penstock.runtime.record.elements import END_OF_TIME, Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import TumblingEventTimeWindows


class Marker(Operator):
    """Makes a watermark of its own behind every row, the row's own number."""

    makes_watermarks = True

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        for row in batch.rows:
            yield RowBatch([row])
            yield Watermark(row)

    def end_of_data(self) -> Iterator[Output]:
        yield Watermark(99)


def marked(open_chain: Callable[..., Any], *before: Operator, fail_on: str = "") -> tuple[Any, list[str]]:
    """A chain that makes watermarks, and the calls of the operator below."""
    log: list[str] = []
    running = open_chain(*before, Marker(), Recorder("below", log, fail_on))
    log.clear()
    return running, log


def test_a_watermark_made_between_two_batches_passes_the_first_and_not_the_second(open_chain):
    running, log = marked(open_chain)
    list(running.chain.process(RowBatch([1, 2])))
    assert log == ["below row 1", "below watermark 1", "below row 2", "below watermark 2"]
    assert running.rows() == [1, "below@1", 2, "below@2"]
    assert running.watermarks == [Watermark(1), Watermark(2)]


def test_a_watermark_made_by_the_last_operator_leaves_at_once(open_chain):
    left = []
    chain = OperatorChain(
        [(OperatorLocation("marker", 0, 1), Marker())],
        lambda *emission: left.append(emission[2]),
        left.append,
    )
    list(chain.process(RowBatch([1, 2])))
    assert left == [RowBatch([1]), Watermark(1), RowBatch([2]), Watermark(2)]


def test_an_operator_that_is_in_the_middle_of_a_batch_goes_on_behind_the_watermark(open_chain):
    running, _ = marked(open_chain, FlatMapOperator(lambda n: range(n, n + 3)))
    list(running.chain.process(RowBatch([1])))
    assert running.rows() == [1, "below@1", 2, "below@2", 3, "below@3"]
    assert not running.chain.is_busy


def test_the_chain_can_be_left_in_the_middle_of_what_a_made_watermark_fires(open_chain):
    running, _ = marked(open_chain)
    work = running.chain.process(RowBatch([1, 2]))
    next(work)
    next(work)
    assert running.rows() == [1, "below@1"]
    assert running.watermarks == []  # it leaves behind what it fires
    list(work)
    assert running.watermarks == [Watermark(1), Watermark(2)]


def test_watermarks_from_above_end_where_others_are_made(open_chain):
    running, log = marked(open_chain)
    list(running.chain.process_time(Watermark(7)))
    assert (log, running.watermarks) == ([], [])


def test_only_the_end_of_time_passes_an_operator_that_makes_watermarks(open_chain):
    running, log = marked(open_chain)
    list(running.chain.process_time(Watermark(END_OF_TIME)))
    assert log == [f"below watermark {END_OF_TIME}"]
    assert running.watermarks == [Watermark(END_OF_TIME)]
    assert running.rows() == [f"below@{END_OF_TIME}"]


def test_the_end_of_time_comes_behind_what_it_fires_above(open_chain):
    log: list[str] = []
    above = Recorder("above", log)

    class Numbers(Marker):
        def process(self, batch: Batch) -> Iterator[Output]:
            yield batch
            yield Watermark(5)

    below = Recorder("below", log)
    running = open_chain(above, Numbers(), below)
    log.clear()
    list(running.chain.process_time(Watermark(END_OF_TIME)))
    assert log == [
        f"above watermark {END_OF_TIME}",
        f"below row above@{END_OF_TIME}",
        "below watermark 5",
        f"below watermark {END_OF_TIME}",
    ]
    assert running.watermarks == [Watermark(5), Watermark(END_OF_TIME)]


def test_two_operators_that_make_watermarks_the_lower_one_decides(open_chain):
    running = open_chain(Marker(), MapOperator(lambda n: n * 10), Marker())
    list(running.chain.process(RowBatch([1, 2])))
    assert running.rows() == [10, 20]
    assert running.watermarks == [Watermark(10), Watermark(20)]


def test_a_watermark_may_be_made_at_the_end_of_data(open_chain):
    running, log = marked(open_chain)
    list(running.chain.end_of_data())
    assert log == ["below watermark 99", "below end"]
    assert running.watermarks == [Watermark(99)]


def test_a_failure_of_what_a_made_watermark_fires_is_that_operators(open_chain):
    running, _ = marked(open_chain, fail_on="watermark 2")
    with pytest.raises(OperatorError, match=r"'op1'.*below can't watermark 2"):
        list(running.chain.process(RowBatch([1, 2, 3])))
    assert running.rows() == [1, "below@1", 2]
    assert running.watermarks == [Watermark(1)]
    assert not running.chain.is_busy


def test_windows_fire_in_the_chain_that_makes_their_watermarks(open_chain):
    def seconds(row):
        return row[1] * 1_000_000

    def add(a, b):
        return a[0], a[1] + b[1]

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(seconds)
    windows = TumblingEventTimeWindows(10)
    running = open_chain(
        TimestampsAndWatermarksOperator(strategy),
        WindowOperator(lambda row: row[0], windows, partial(ReducedContents, add)),
        MapOperator(lambda row: ("sum", *row)),
    )
    list(running.chain.process(RowBatch([("a", 1), ("a", 9)])))
    assert running.rows() == []
    list(running.chain.process(RowBatch([("a", 11), ("b", 15)])))
    assert running.rows() == [("sum", "a", 10)]
    assert running.watermarks == [Watermark(9 * 1_000_000 - 1), Watermark(15 * 1_000_000 - 1)]
    list(running.chain.process(RowBatch([("a", 3)])))
    assert running.rows("late_records") == [("a", 3)]
    list(running.chain.process_time(Watermark(END_OF_TIME)))
    assert running.rows()[1:] == [("sum", "a", 11), ("sum", "b", 15)]


class KeepsBack(Operator):
    """Emits rows only when it is flushed."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        self.kept += batch.rows
        return iter(())

    def flush(self) -> Iterator[Output]:
        kept, self.kept = self.kept, []
        yield RowBatch(kept)


class Pauses(Operator):
    """Its stream is idle behind every batch."""

    makes_watermarks = True

    def process(self, batch: Batch) -> Iterator[Output]:
        yield StreamStatus.ACTIVE
        yield batch
        yield StreamStatus.IDLE


def with_statuses(open_chain: Callable[..., Any], *operators: Operator) -> tuple[Any, list[Any]]:
    running = open_chain(*operators)
    told: list[Any] = []
    running.chain._emit = lambda index, tag, batch: told.append(list(batch.rows))
    running.chain._emit_time = told.append
    return running.chain, told


def test_what_is_kept_back_leaves_in_front_of_idle(open_chain):
    chain, told = with_statuses(open_chain, KeepsBack(), MapOperator(lambda n: -n))
    list(chain.process(RowBatch([1, 2])))
    list(chain.process_time(StreamStatus.ACTIVE))
    list(chain.process_time(StreamStatus.IDLE))
    assert told == [StreamStatus.ACTIVE, [-1, -2], StreamStatus.IDLE]


def test_a_status_made_in_the_chain_passes_the_operators_below(open_chain):
    chain, told = with_statuses(open_chain, Pauses(), KeepsBack())
    list(chain.process(RowBatch([1, 2])))
    assert told == [StreamStatus.ACTIVE, [1, 2], StreamStatus.IDLE]


def test_a_status_from_above_ends_where_watermarks_are_made(open_chain):
    chain, told = with_statuses(open_chain, KeepsBack(), Marker())
    list(chain.process(RowBatch([5])))
    list(chain.process_time(StreamStatus.IDLE))
    assert told == [[5], Watermark(5)], "what was kept back goes on"


def test_a_chain_without_operators_passes_statuses_on(open_chain):
    chain, told = with_statuses(open_chain)
    list(chain.process_time(StreamStatus.IDLE))
    assert told == [StreamStatus.IDLE]
